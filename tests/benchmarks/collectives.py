"""What exchanges cost: threads of one process, processes against bare torch.distributed, and what runs beside them.

    python tests/benchmarks/collectives.py
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent.parent))

from distributed_workers import workers  # the helpers stand beside the tests
from xla_torch import XlaComputation, parse_hlo, run_replicas
from xla_torch.distributed import of_process_group

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}"


def chain(count: int, n: int) -> XlaComputation:
    """So many AllReduces of n elements, one after another."""
    lines = [f"  v{k + 1} = f32[{n}] all-reduce(v{k}), to_apply=add, replica_groups={{}}" for k in range(count)]
    lines[-1] = lines[-1].replace("  v", "  ROOT v", 1)
    body = "\n".join(lines)
    return parse_hlo(f"HloModule chain\n{ADD}\nENTRY e {{\n  v0 = f32[{n}] parameter(0)\n{body}\n}}")


def seconds_of_threads(n: int, count: int, participants: int = 8) -> float:
    """For each AllReduce of n elements with threads as participants."""
    program = chain(count, n)
    arguments = [(torch.zeros(n),)] * participants
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        run_replicas(program, arguments, num_replicas=participants)
        best = min(best, time.perf_counter() - start)
    return best / count


def against_bare(n: int, runs: int) -> tuple[float, float]:
    """In each process: the median seconds of a program's AllReduce of n elements, and of torch.distributed's."""
    program, x = chain(1, n), torch.ones(n)
    ours: list[float] = []
    bare: list[float] = []
    with of_process_group():
        for times, call in [(ours, lambda: program(x)), (bare, lambda: dist.all_reduce(x.mul_(0.25)))] * (runs + 1):
            dist.barrier()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return statistics.median(ours[1:]), statistics.median(bare[1:])


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
    return parse_hlo(BESIDE.format(add=ADD, n=n, m=m, begin=begin, products=products, end=end, count=count))


def overlap(n: int, m: int, count: int, delay: float, runs: int) -> tuple[float, float]:
    """In each process: the median seconds with the exchange beside the products, and before them. The last process comes
    `delay` seconds late, so that the others have to wait, which needs no core."""
    x, y = torch.ones(n), torch.eye(m)
    found = []
    with of_process_group() as processes:
        for program in (beside(n, m, count, True), beside(n, m, count, False)):
            times = []
            for _ in range(runs + 1):
                dist.barrier()
                start = time.perf_counter()
                if processes.rank == dist.get_world_size() - 1:
                    time.sleep(delay)
                program(x, y)
                times.append(time.perf_counter() - start)
            found.append(statistics.median(times[1:]))
    return found[0], found[1]


def in_processes(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The function's results in so many processes of a group."""
    with workers(size) as group:
        return group.call(function, [arguments] * size)


if __name__ == "__main__":
    for n, count in ((8, 1000), (1 << 16, 100), (1 << 22, 5)):
        print(f"8 threads, AllReduce of {n:8d} f32: {seconds_of_threads(n, count) * 1e6:9.1f} us each")
    multiprocessing.set_start_method("spawn")
    # Functions of a script cannot be found by its children; those of the module can.
    from benchmarks import collectives

    for n, runs in ((8, 200), (1 << 14, 50), (1 << 24, 5)):
        ours, bare = in_processes(4, collectives.against_bare, n, runs)[0]
        print(f"4 processes, AllReduce of {n:8d} f32: {ours * 1e3:8.3f} ms, bare {bare * 1e3:8.3f} ms, ratio {ours / bare:.2f}")
    together, apart = in_processes(2, collectives.overlap, 1 << 20, 512, 40, 0.1, 5)[0]
    print(f"2 processes, one 100 ms late, an exchange beside matrix products: {together * 1e3:.0f} ms, "
          f"before them {apart * 1e3:.0f} ms")
