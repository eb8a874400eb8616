"""What exchanges cost: processes against the same call of torch.distributed by hand, threads of one process against copying,
and what runs beside an exchange.

    python tests/benchmarks/collectives.py

What is compared runs in turns, and what is shown is the median of the ratios.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.distributed_workers import workers  # the helpers stand beside the tests
from xla_torch import XlaComputation, parse_hlo, run_replicas
from xla_torch.core import tuning
from xla_torch.distributed import of_process_group

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def adder(kind: str) -> str:
    return f"add {{\n  a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n  ROOT r = {kind}[] add(a, b)\n}}"


def program(instruction: str, kind: str, given: int, taken: int) -> XlaComputation:
    """One collective of `given` elements with a result of `taken`."""
    return parse_hlo(f"HloModule m\n{adder(kind)}\nENTRY e {{\n  p = {kind}[{given}] parameter(0)\n"
                     f"  ROOT r = {kind}[{taken}] {instruction}, replica_groups={{}}\n}}")


# ------------------------------------------------------------------------------------------- processes

HAND: dict[str, tuple[str, Callable[..., Any]]] = {
    "AllReduce": ("all-reduce(p), to_apply=add", lambda out, x: dist.all_reduce(out)),
    "AllGather": ("all-gather(p), dimensions={0}", getattr(dist, "all_gather_single", dist.all_gather_into_tensor)),
    "ReduceScatter": ("reduce-scatter(p), dimensions={0}, to_apply=add",
                      getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)),
    "AllToAll": ("all-to-all(p), dimensions={0}", dist.all_to_all_single),
}
"""Each op in HLO, and what a user of torch calls, which writes into a given tensor. Newer torch has newer names for some."""


def in_turns(calls: Sequence[Callable[[], Any]], runs: int) -> list[list[float]]:
    """The seconds of each call, in turns, each begun by all processes at the same time."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(runs + 1):
        for times, call in zip(found, calls, strict=True):
            dist.barrier()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [times[1:] for times in found]


def against_hand(op: str, kind: str, count: int, runs: int) -> list[list[float]]:
    """In each process: the seconds of a program's exchange in which `count` elements are the larger of what is given and
    taken, of the same by hand into memory that is there, and of the same by hand into new memory."""
    size, dtype = dist.get_world_size(), DTYPES[kind]
    instruction, call = HAND[op]
    given, taken = count // size if op == "AllGather" else count, count // size if op == "ReduceScatter" else count
    ours, x, out = program(instruction, kind, given, taken), torch.ones(given, dtype=dtype), torch.ones(taken, dtype=dtype)

    def new() -> None:
        call(x.clone() if op == "AllReduce" else torch.empty_like(out), x)

    with of_process_group():
        return in_turns([lambda: ours(x), lambda: call(out, x), new], runs)


def ratios(of_processes: Sequence[Sequence[Sequence[float]]]) -> tuple[float, float, float]:
    """Milliseconds of ours, and the ratios to the others, by the slowest process of each run."""
    slowest = [[max(times) for times in zip(*column, strict=True)] for column in zip(*of_processes, strict=True)]
    ours, *others = slowest
    one, two = (statistics.median(a / b for a, b in zip(ours, other, strict=True)) for other in others)
    return statistics.median(ours) * 1e3, one, two


# ------------------------------------------------------------------------------------------- threads


def chain(count: int, n: int) -> XlaComputation:
    """So many AllReduces of n elements, one after another."""
    lines = [f"  v{k + 1} = f32[{n}] all-reduce(v{k}), to_apply=add, replica_groups={{}}" for k in range(count)]
    lines[-1] = lines[-1].replace("  v", "  ROOT v", 1)
    body = "\n".join(lines)
    return parse_hlo(f"HloModule chain\n{adder('f32')}\nENTRY e {{\n  v0 = f32[{n}] parameter(0)\n{body}\n}}")


def seconds_of_threads(n: int, count: int, participants: int = 8) -> float:
    """For each AllReduce of n elements with threads as participants."""
    computation = chain(count, n)
    arguments = [(torch.zeros(n),)] * participants
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        run_replicas(computation, arguments, num_replicas=participants)
        best = min(best, time.perf_counter() - start)
    return best / count


def against_copies(n: int, runs: int, participants: int = 8) -> float:
    """An AllReduce of n elements between threads, to one copy of each thread's operand: results need no less."""
    computation, arguments = chain(1, n), [(torch.zeros(n),)] * participants
    found = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        run_replicas(computation, arguments, num_replicas=participants)
        reduced = time.perf_counter()
        copies = [x.clone() for x, in arguments]
        found.append((reduced - start) / (time.perf_counter() - reduced))
        del copies
    return statistics.median(found[1:])


# ------------------------------------------------------------------------------------------- overlap

BESIDE = """HloModule beside
{add}
ENTRY e {{
  p = f32[{n}] parameter(0)
  q = f32[{m},{m}] parameter(1)
  {begin}
  {products}
  {end}
  ROOT r = (f32[{n}], f32[{m},{m}]) tuple(sum, q{count})
}}"""


def beside(n: int, m: int, count: int, overlapped: bool) -> XlaComputation:
    """An AllReduce and `count` matrix products that do not need it: at the same time, or before them."""
    products = "\n  ".join(f"q{k + 1} = f32[{m},{m}] dot(q{k or ''}, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
                           for k in range(count))
    begin = f"started = f32[{n}] all-reduce-start(p), to_apply=add, replica_groups={{}}"
    end = f"sum = f32[{n}] all-reduce-done(started)"
    if not overlapped:  # what is computed needs the sum, though not its value
        begin = f"{begin}\n  {end}"
        products = products.replace("dot(q, q)", "dot(after, q)")
        begin += (f"\n  part = f32[1] slice(sum), slice={{[0:1]}}\n  one = f32[] reshape(part)\n  none = f32[] constant(0)\n"
                  f"  zero = f32[] multiply(one, none)\n  zeros = f32[{m},{m}] broadcast(zero), dimensions={{}}\n"
                  f"  after = f32[{m},{m}] add(q, zeros)")
        end = ""
    return parse_hlo(BESIDE.format(add=adder("f32"), n=n, m=m, begin=begin, products=products, end=end, count=count))


def overlap(n: int, m: int, count: int, delay: float, runs: int) -> list[list[float]]:
    """In each process: the seconds with the exchange beside the products, before them, and of the products alone. The last
    process comes `delay` seconds late: the others have to wait, which needs no core."""
    x, y = torch.ones(n), torch.eye(m)
    with of_process_group() as processes:
        late = processes.rank == dist.get_world_size() - 1

        def run(computation: XlaComputation) -> None:
            if late:
                time.sleep(delay)
            computation(x, y)

        together, apart = beside(n, m, count, True), beside(n, m, count, False)

        def products() -> None:
            z = y
            for _ in range(count):
                z = z @ y

        return in_turns([lambda: run(together), lambda: run(apart), products], runs)


# ------------------------------------------------------------------------------------------- joined


def joining(n: int, count: int, runs: int) -> list[list[float]]:
    """In each process: the seconds of `count` AllReduces of n elements as one exchange, and as one each."""
    x, made = [torch.ones(n) for _ in range(count)], list[XlaComputation]()
    lines = [f"  p{k} = f32[{n}] parameter({k})\n  sum{k} = f32[{n}] all-reduce(p{k}), to_apply=add, replica_groups={{}}"
             for k in range(count)]
    root = f"  ROOT r = ({', '.join([f'f32[{n}]'] * count)}) tuple({', '.join(f'sum{k}' for k in range(count))})"
    text = "\n".join([f"HloModule joined\n{adder('f32')}\nENTRY e {{", *lines, root, "}"])
    before = tuning.JOINED_BYTES
    with of_process_group():
        for most in (1 << 30, 0):
            tuning.JOINED_BYTES = most
            made.append(parse_hlo(text))
            made[-1](*x)  # lowered
        tuning.JOINED_BYTES = before
        return in_turns([lambda one=one: one(*x) for one in made], runs)


# ------------------------------------------------------------------------------------------- all of it


def in_processes(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The function's results in so many processes of a group."""
    with workers(size) as group:
        return group.call(function, [arguments] * size)


def show_processes(size: int, kinds: Sequence[str], kib: int, runs: int) -> None:
    for kind in kinds:
        for op in HAND:
            found = in_processes(size, collectives.against_hand, op, kind, (kib << 10) // DTYPES[kind].itemsize, runs)
            ours, there, new = ratios(found)
            print(f"{size} processes, {op:13s} of {kib:5d} KiB {kind:4s}: {ours:8.3f} ms, to the same by hand into memory that "
                  f"is there {there:.2f}, into new memory {new:.2f}", flush=True)


def show_overlap(n: int, m: int, count: int, delay: float, what: str) -> None:
    found = in_processes(2, collectives.overlap, n, m, count, delay, 7)
    together, to_apart, _ = ratios(found)
    alone = statistics.median(max(times) for times in zip(*(process[2] for process in found), strict=True)) * 1e3
    print(f"2 processes, {what}, beside {alone:.0f} ms of matrix products: {together:.0f} ms, to one after the other "
          f"{to_apart:.2f}")


def show_joining(size: int, kib: int, count: int, runs: int) -> None:
    columns = zip(*in_processes(size, collectives.joining, kib << 8, count, runs), strict=True)
    one, each = ([max(times) for times in zip(*column, strict=True)] for column in columns)
    ratio = statistics.median(a / b for a, b in zip(one, each, strict=True))
    print(f"{size} processes, {count} AllReduces of {kib:4d} KiB as one: {statistics.median(one) * 1e3:8.3f} ms, to one each "
          f"{ratio:.2f}", flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    # Functions of a script cannot be found by its children; those of the module can.
    from benchmarks import collectives

    for n, count in ((8, 1000), (1 << 16, 100)):
        print(f"8 threads, AllReduce of {n:6d} f32: {seconds_of_threads(n, count) * 1e6:9.1f} us each")
    print(f"8 threads, AllReduce of 16 MiB, to copying each operand once: {against_copies(1 << 22, 7):.2f}")
    show_overlap(1 << 20, 512, 40, 0.1, "one 100 ms late for an exchange")
    show_overlap(1 << 24, 512, 40, 0.0, "an exchange of 64 MiB")
    show_processes(2, ["f32", "bf16"], 1 << 16, runs=11)
    show_processes(4, ["f32"], 1 << 16, runs=7)
    for kib in (1, 4, 16, 64, 256, 1024):
        show_joining(4, kib, 8, runs=51)
    for kib in (4, 64, 1024):
        show_processes(2, ["f32"], kib, runs=101)
