"""A GPT's training step on a mesh of four gloo processes: ours beside the same by hand with torch's own tools.

    python tests/benchmarks/meshes.py [--width 256] [--steps 15] [--memory | --without overlap,buckets]

Ours is the JAX loss in `xla_torch/demo/gpt.py` as an `XlaModule` with a mesh. By hand: `parallelize_module` with a batch that is
cut over data x model, and FSDP2's `fully_shard`. Both train with AdamW. All are in one run and take turns, step by step; what is
told is the median of the steps' ratios, ours to theirs. Memory is what a process's peak grows by from before the model is made to
its third step (VmHWM, reset before that), in a process of its own for each, in which a small model has been trained before, so
that libraries and threads do not count; beside it that of one process with the whole model. It is told twice:
with glibc as it is, whose heap keeps the holes between what is held, and where it gives all memory back at once
(`MALLOC_MMAP_THRESHOLD_`), so that what is held counts alone. ``--memory`` measures memory and nothing else.

With ``--without`` ours is beside itself without these passes, and no memory is measured: what a step takes, how long a process
waits in it for exchanges (`xla_torch.debug.exchanges`), and how many there are.

Needs jax (the loss is traced), four processes, and what they take of this machine's cores.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import forget_peak, resident

PROCESSES = 4
BATCH, CONTEXT, HEADS, VOCABULARY, LAYERS = 16, 64, 4, 96, 8
SMALL = 64
"""The width of the model that is trained before memory is measured."""
Step = Callable[[torch.Tensor], torch.Tensor]


class Block(nn.Module):
    """Attention and a perceptron, as in demo/gpt.py, with queries, keys and values apart."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.norm1(x)
        q, k, v = (part(given).unflatten(-1, (-1, self.q.in_features // HEADS)).transpose(1, 2)
                   for part in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class ByHand(nn.Module):
    """The demo's transformer in torch."""

    def __init__(self, width: int):
        super().__init__()
        self.characters, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks, self.norm = nn.ModuleList(Block(width) for _ in range(LAYERS)), nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        given, wanted = characters[:, :-1], characters[:, 1:]
        x = self.characters(given) + self.positions(torch.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), wanted.flatten())


# ------------------------------------------------------------------------------------------------ what is measured


def program(width: int) -> tuple[bytes, list[np.ndarray]]:
    """The loss as StableHLO, and its parameters in order."""
    import jax

    import xla_torch
    from xla_torch.demo.gpt import gpt_loss, initial_parameters

    parameters = initial_parameters(0, width, CONTEXT)
    parameters["layers"] = parameters["layers"] * (LAYERS // len(parameters["layers"]))
    traced: Any = xla_torch.from_jax(gpt_loss, parameters, np.zeros((BATCH, CONTEXT + 1), np.int32), derivatives="xla")
    return traced.computation.to_hlo_proto(), [np.asarray(p) for p in jax.tree_util.tree_leaves(parameters)]


def stepping(model: nn.Module, part: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(characters: torch.Tensor) -> torch.Tensor:
        loss = model(part(characters))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def whole(characters: torch.Tensor) -> torch.Tensor:
    return characters


def ours(given: tuple[bytes, list[np.ndarray]], mesh: Any, shardings: Any) -> Step:
    import xla_torch
    from xla_torch.nn import XlaModule

    proto, parameters = given
    loss = xla_torch.from_hlo_proto(proto, derivatives="as written")
    return stepping(XlaModule(loss, parameters, mesh=mesh, shardings=shardings), whole)


def own_rows(mesh: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda characters: characters.chunk(mesh.size())[mesh.get_local_rank()]


def tensor_parallel(width: int, mesh: Any, reshard: bool = False) -> Step:
    """Products cut along ``model``. FSDP2 adds up the gradients of ``data``, and with `reshard` cuts weights along it, too."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = ByHand(width)
    plan = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel(),
            "up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh["model"], plan)
        if reshard:
            fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"], reshard_after_forward=reshard)
    return stepping(model, own_rows(mesh["data"]))


def fsdp(width: int, mesh: Any) -> Step:
    from torch.distributed.fsdp import fully_shard

    model = ByHand(width)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return stepping(model, own_rows(mesh))


CASES: dict[str, tuple[tuple[int, ...], tuple[str, ...], Any, Callable[[int, Any], Step]]] = {
    "data x tensor": ((2, 2), ("data", "model"), {"data": "data", "model": "tensor"}, tensor_parallel),
    "fully sharded": ((4,), ("data",), "fully_sharded", fsdp),
    "sharded x tensor": ((2, 2), ("data", "model"), {"data": "fully_sharded", "model": "tensor"},
                         functools.partial(tensor_parallel, reshard=True)),
}


def batches(steps: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=draw, dtype=torch.int32) for _ in range(steps)]


# ------------------------------------------------------------------------------------------------ in processes


def joined(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TF_CPP_MIN_LOG_LEVEL="2")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=PROCESSES)


def timed(rank: int, port: int, given: Any, width: int, steps: int, into: str) -> None:
    joined(rank, port)
    found = {}
    for name, (sizes, names, shardings, by_hand) in CASES.items():
        mesh = dist.init_device_mesh("cpu", sizes, mesh_dim_names=names)
        ways = {"ours": ours(given, mesh, shardings), "by hand": by_hand(width, mesh)}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for characters in batches(steps + 5):
            for way, step in ways.items():
                dist.barrier()
                start = time.perf_counter()
                step(characters if way == "ours" else characters.long())
                dist.barrier()
                seconds[way].append(time.perf_counter() - start)
        found[name] = {way: all_of[5:] for way, all_of in seconds.items()}
    if rank == 0:
        Path(into).write_text(json.dumps(found))
    dist.destroy_process_group()


def compared(rank: int, port: int, given: Any, without: list[str], steps: int, into: str) -> None:
    """Ours with all passes and without some: milliseconds of each step; of one more, those that a process waits in the mean, and
    exchanges."""
    import xla_torch
    from xla_torch.core import tuning

    joined(rank, port)
    found: dict[str, Any] = {}
    for name, (sizes, names, shardings, _) in CASES.items():
        mesh = dist.init_device_mesh("cpu", sizes, mesh_dim_names=names)
        ways = {way: (ours(given, mesh, shardings), frozenset(passes)) for way, passes in (("with", []), ("without", without))}
        own: dict[str, Any] = {way: [] for way in ways}
        for characters in batches(steps + 3):
            for way, (step, passes) in ways.items():
                tuning.WITHOUT_PASSES = passes  # while a program is lowered
                dist.barrier()
                start = time.perf_counter()
                with xla_torch.debug.exchanges() as seen:
                    step(characters)
                dist.barrier()
                waited = torch.tensor([sum(event.waited for event in seen.events)])
                dist.all_reduce(waited)
                own[way].append((time.perf_counter() - start, float(waited) / PROCESSES, len(seen.events)))
        found[name] = {way: all_of[3:] for way, all_of in own.items()}
    if rank == 0:
        Path(into).write_text(json.dumps(found))
    dist.destroy_process_group()


def show_compared(found: Any) -> None:
    print(f"{'step':16} {'ms':>9} {'without':>9} {'ratio':>7} {'waited ms':>10} {'without':>9} {'exchanges':>10} {'without':>9}")
    for name, ways in found.items():
        (a, waits, count), (b, waits_b, count_b) = (tuple(zip(*ways[way], strict=True)) for way in ("with", "without"))
        ratio = statistics.median(one / other for one, other in zip(a, b, strict=True))
        print(f"{name:16} {statistics.median(a) * 1e3:9.1f} {statistics.median(b) * 1e3:9.1f} {ratio:7.2f} "
              f"{statistics.median(waits) * 1e3:10.1f} {statistics.median(waits_b) * 1e3:9.1f} {count[0]:10} {count_b[0]:9}")


def show_timed(found: Any) -> None:
    print(f"{'step':16} {'ours ms':>9} {'by hand ms':>11} {'ratio':>7}")
    for name, seconds in found.items():
        ratio = statistics.median(a / b for a, b in zip(seconds["ours"], seconds["by hand"], strict=True))
        print(f"{name:16} {statistics.median(seconds['ours']) * 1e3:9.1f} {statistics.median(seconds['by hand']) * 1e3:11.1f} "
              f"{ratio:7.2f}")


def peak_growth(make: Callable[[Any], Step], small: Any, large: Any) -> float:
    """MiB by which a process's peak grows with the large model, once it has trained the small one."""
    for characters in batches(2):
        make(small)(characters)
    gc.collect()
    before = resident("VmRSS")
    step = make(large)
    for characters in batches(2):
        step(characters)
    forget_peak()
    step(batches(1)[0])
    return (resident("VmHWM") - before) / 2**20


def remembered(rank: int, port: int, small: Any, given: Any, width: int, name: str, way: str, into: str) -> None:
    sizes, names, shardings, by_hand = CASES[name]
    joined(rank, port)
    mesh = dist.init_device_mesh("cpu", sizes, mesh_dim_names=names)
    dist.barrier()
    if way == "ours":
        growth = peak_growth(lambda loss: ours(loss, mesh, shardings), small, given)
    else:
        growth = peak_growth(lambda width: of_long(by_hand(width, mesh)), SMALL, width)
    all_of: list[Any] = [None] * PROCESSES
    dist.all_gather_object(all_of, growth)
    if rank == 0:
        Path(into).write_text(json.dumps(all_of))
    dist.destroy_process_group()


def of_long(step: Step) -> Step:
    return lambda characters: step(characters.long())


def alone(_: int, small: Any, given: Any, into: str) -> None:
    torch.set_num_threads(1)
    Path(into).write_text(json.dumps([peak_growth(lambda loss: ours(loss, None, None), small, given)]))


def spawned(function: Callable[..., None], *arguments: Any, processes: int = PROCESSES) -> Any:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        into = str(Path(folder) / "found")
        given = (port, *arguments, into) if processes > 1 else (*arguments, into)
        mp.spawn(function, given, nprocs=processes)
        return json.loads(Path(into).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--without", help="passes with commas between them: ours beside itself without them")
    parser.add_argument("--memory", action="store_true", help="memory alone")
    given = parser.parse_args()
    loss = program(given.width)
    size = sum(p.nbytes for p in loss[1]) / 2**20
    print(f"GPT of {size:.1f} MiB of weights, batch {BATCH} x {CONTEXT}, {PROCESSES} gloo processes on {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}; torch {torch.__version__}\n")
    if given.without is not None:
        show_compared(spawned(compared, loss, given.without.split(","), given.steps))
        return
    if not given.memory:
        show_timed(spawned(timed, loss, given.width, given.steps))
    small = program(SMALL)
    show_memory("with glibc as it is", small, loss, given.width)
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 18)  # of the processes that are started from here on
    show_memory("held", small, loss, given.width)


def show_memory(what: str, small: Any, loss: Any, width: int) -> None:
    one = spawned(alone, small, loss, processes=1)[0]
    print(f"\npeak memory of a step, {what}: {one:.1f} MiB in one process")
    print(f"{'of each process':16} {'ours MiB':>9} {'of one':>7} {'by hand MiB':>12} {'of one':>7}")
    for name in CASES:
        most = {way: max(spawned(remembered, small, loss, width, name, way)) for way in ("ours", "by hand")}
        print(f"{name:16} {most['ours']:9.1f} {most['ours'] / one:7.2f} {most['by hand']:12.1f} {most['by hand'] / one:7.2f}",
              flush=True)


if __name__ == "__main__":
    main()
