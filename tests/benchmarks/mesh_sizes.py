"""One GPT's training step on 2 to 1,024 participants, on paper: partitioned for real, and counted.

    python tests/benchmarks/mesh_sizes.py [--width 512] [--batch 1024]
    python tests/benchmarks/mesh_sizes.py --measured [--width 256] [--batch 64] [--steps 7]

Each row is `partition` of the JAX loss in `xla_torch/demo/gpt.py` with a layout, and what `suggest_sharding` counts of its
gradient: bytes held and sent by each participant, and seconds on a machine of so many operations and bytes a second
(`Machine`).

With ``--measured`` the same model stands beside gloo processes on this machine: what it says of 2, 4 and 8 of them, and the
median of what their steps (loss and gradient) took. The machine is what these processes do, all at the same time, in short
measurements: products of the width's size, additions over 8 MiB, and gathers of 16 KiB and 8 MiB. So where processes share
cores, their number is in it, and no figure of the program itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (2, 4, 8, 64, 1024)
MEASURED = (2, 4, 8)
LAYOUTS = ("data", "fully_sharded")


def loss_of(width: int, batch: int) -> tuple[Any, dict[str, Any]]:
    """The loss, and its parameters."""
    import xla_torch
    from xla_torch.demo.gpt import gpt_loss, initial_parameters
    from xla_torch.demo.text import CONTEXT

    parameters = initial_parameters(0, width)
    return xla_torch.from_jax(gpt_loss, parameters, np.zeros((batch, CONTEXT + 1), np.int32), derivatives="xla"), parameters


# ------------------------------------------------------------------------------------------------ on paper

def on_paper(width: int, batch: int) -> None:
    """Print the table, which docs/distributed.md has, and ``make pages`` draws."""
    import xla_torch
    from xla_torch.api.suggestions import Machine, counted

    loss, _ = loss_of(width, batch)
    weights = loss.parameters_of(0)
    print("| participants | layout | MiB held | MiB sent | exchanges | Gflop | ms | partitioned in s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in SIZES:
        meshes = [({"data": size}, {"data": name}) for name in LAYOUTS]
        meshes += [({"data": size // 4, "model": 4}, {"data": "fully_sharded", "model": "tensor"})] if size > 4 else []
        for mesh, layout in meshes:
            start = time.perf_counter()
            part = xla_torch.partition(loss.computation, mesh, layout, weights=weights)
            seconds = time.perf_counter() - start
            found = counted(layout, part, weights, Machine())
            name = " x ".join(word.replace("_", " ") for word in layout.values())
            print(f"| {size} | {name} | {' | '.join(found.row()[1:])} | {seconds:.1f} |", flush=True)


# ------------------------------------------------------------------------------------------------ beside real processes


def rate(work: Callable[[], Any], barrier: Callable[[], Any]) -> float:
    """Seconds that a piece of work takes while all processes do it, the median of several."""
    seconds = []
    for _ in range(9):
        barrier()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def calibrated(width: int, mesh: Any) -> Any:
    """The machine that each of the processes has while all work."""
    import torch
    import torch.distributed as dist

    import xla_torch
    from xla_torch.analysis.cost import computation_cost
    from xla_torch.api.suggestions import Machine

    def gather(count: int) -> tuple[float, int]:
        """Seconds and bytes sent of a gather of so many elements."""
        program = xla_torch.parse_hlo(f"ENTRY e {{ x = f32[{count}] parameter(0) ROOT y = f32[{count}] negate(x) }}")
        gathered: Any = xla_torch.on_mesh(program, mesh, [("data",)], (None,))
        cut = gathered.placed(0, torch.zeros(count))
        return rate(lambda: gathered(cut), dist.barrier), computation_cost(gathered.part.program.canonical).sent

    left, right, many = torch.randn(1024, width), torch.randn(width, 4 * width), torch.randn(1 << 21)
    flops = 2 * left.numel() * right.shape[1] / rate(lambda: left @ right, dist.barrier)
    memory = 2 * many.nbytes / rate(lambda: torch.add(many, 1, out=many), dist.barrier)
    (latency, few), (slow, sent) = gather(1 << 12), gather(1 << 21)
    return Machine(flops, memory, (sent - few) / max(slow - latency, 1e-9), latency)


def in_process(rank: int, port: int, size: int, proto: bytes, leaves: Sequence[np.ndarray], steps: int, into: str) -> None:
    """In a process: the machine, and for each layout what the model says and what steps took, in seconds."""
    import torch
    import torch.distributed as dist

    import xla_torch
    from xla_torch.api.suggestions import counted
    from xla_torch.nn import XlaModule

    torch.set_num_threads(1)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TF_CPP_MIN_LOG_LEVEL="2")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    mesh = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("data",))
    machine = calibrated(leaves[-1].shape[0], mesh)
    loss = xla_torch.from_hlo_proto(proto, derivatives="as written")
    examples = loss.program_shape.parameters[-1]
    characters = torch.zeros(examples.dimensions, dtype=torch.int32)
    found: dict[str, Any] = {"machine": dataclasses.astuple(machine)}
    for layout in LAYOUTS:
        module: Any = XlaModule(loss, list(leaves), mesh=mesh, shardings={"data": layout})

        def step(module: Any = module) -> None:
            module.zero_grad()
            module(characters).backward()

        for _ in range(2):
            step()
        seconds = []
        for _ in range(steps):
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            seconds.append(time.perf_counter() - start)
        messages = counted({"data": layout}, module.computation.part, range(len(leaves)), machine)
        found[layout] = messages.seconds, statistics.median(seconds)
    if rank == 0:
        Path(into).write_text(json.dumps(found))
    dist.destroy_process_group()


def beside_processes(width: int, batch: int, steps: int) -> None:
    import jax
    import torch.multiprocessing as mp

    loss, parameters = loss_of(width, batch)
    proto, leaves = loss.computation.to_hlo_proto(), [np.asarray(p) for p in jax.tree_util.tree_leaves(parameters)]
    print(f"GPT of {sum(p.nbytes for p in leaves) / 2**20:.1f} MiB of weights, {batch} examples, {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}\n")
    print("| processes | Gop/s | GB/s | GB sent/s | us | layout | predicted ms | measured ms | measured to predicted |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in MEASURED:
        with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            probe.close()
            into = Path(folder) / "found"
            mp.spawn(in_process, (port, size, proto, leaves, steps, str(into)), nprocs=size)
            found = json.loads(into.read_text())
        flops, memory, link, latency = found.pop("machine")
        for layout, (messages, took) in found.items():
            print(f"| {size} | {flops / 1e9:.1f} | {memory / 1e9:.1f} | {link / 1e9:.2f} | {latency * 1e6:.0f} | "
                  f"{layout.replace('_', ' ')} | {messages * 1e3:.0f} | {took * 1e3:.0f} | {took / messages:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--width", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--measured", action="store_true", help="beside gloo processes on this machine")
    given = parser.parse_args()
    if given.measured:
        beside_processes(given.width or 256, given.batch or 64, given.steps)
        return
    on_paper(given.width or 512, given.batch or 1024)


if __name__ == "__main__":
    main()
