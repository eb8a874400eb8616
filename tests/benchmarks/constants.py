"""The constants of `xla_torch/core/tuning.py` that decide how the CPU works, each beside its neighbours: milliseconds for what it
is weighed on, with the constant at several values. The last column is the one that stands.

    python tests/benchmarks/constants.py [NAME...]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_torch import parse_hlo
from xla_torch.core import tuning
from xla_torch.kernels import indexing, random, reduction, sorting, window

Run = Callable[[], Any]
Case = tuple[str, Sequence[int], Callable[[int], Run]]
"""What is run, the values to try, and what makes a run once the constant has a value."""


def chain(size: int) -> Run:
    """A program of ten elementwise ops."""
    shape, lines = f"f32[{size}]", []
    for k in range(5):
        lines += [f"  a{k} = {shape} multiply(x{k}, x{k})", f"  x{k + 1} = {shape} subtract(a{k}, x0)"]
    lines = [f"  x0 = {shape} parameter(0)", *lines, f"  ROOT r = {shape} tanh(x5)"]
    program, x = parse_hlo("HloModule chain\nENTRY main {\n" + "\n".join(lines) + "\n}"), torch.rand(size)
    return lambda: program(x)


def two_sums(size: int) -> Run:
    """A program whose second op can write over the first one's result."""
    shape = f"f32[{size}]"
    text = (f"HloModule sums\nENTRY main {{\n  x = {shape} parameter(0)\n  a = {shape} add(x, x)\n  b = {shape} multiply(a, x)\n"
            f"  c = {shape} add(b, x)\n  ROOT d = {shape} subtract(c, x)\n}}")
    program, x = parse_hlo(text), torch.rand(size)
    return lambda: program(x)


ATTENTION = """HloModule attention
most {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }}
sum {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }}
ENTRY e {{
  q = f32[8,{n},64] parameter(0)
  k = f32[8,{n},64] parameter(1)
  v = f32[8,{n},64] parameter(2)
  s = f32[8,{n},{n}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[8,{n}] reduce(s, low), dimensions={{2}}, to_apply=most
  mb = f32[8,{n},{n}] broadcast(m), dimensions={{0,1}}
  d = f32[8,{n},{n}] subtract(s, mb)
  x = f32[8,{n},{n}] exponential(d)
  t = f32[8,{n}] reduce(x, zero), dimensions={{2}}, to_apply=sum
  tb = f32[8,{n},{n}] broadcast(t), dimensions={{0,1}}
  p = f32[8,{n},{n}] divide(x, tb)
  ROOT o = f32[8,{n},64] dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_contracting_dims={{1}}
}}"""


def attention(n: int) -> Run:
    """Eight heads that look at `n` positions."""
    program, (q, k, v) = parse_hlo(ATTENTION.format(n=n)), torch.randn(3, 8, n, 64)
    return lambda: program(q, k, v)


LOOP = """HloModule loop
body {{
  t = (s32[], {s}, {s}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  a = {s} get-tuple-element(t), index=1
  x = {s} get-tuple-element(t), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = {s} add(a, x)
  ROOT u = (s32[], {s}, {s}) tuple(j, b, x)
}}
goes_on {{
  t = (s32[], {s}, {s}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(200)
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  a = {s} parameter(0)
  x = {s} parameter(1)
  z = s32[] constant(0)
  t = (s32[], {s}, {s}) tuple(z, a, x)
  w = (s32[], {s}, {s}) while(t), condition=goes_on, body=body
  ROOT r = {s} get-tuple-element(w), index=1
}}
"""


def accumulated(size: int) -> Run:
    """A loop that adds an array to a carry, 200 times."""
    program, a, x = parse_hlo(LOOP.format(s=f"f32[{size}]")), torch.rand(size), torch.rand(size)
    return lambda: program(a, x)


def affine(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a * c, b * c + d


def reduced(rows: int, columns: int) -> Run:
    """A reduction of each row by a combiner that torch does not know."""
    operands = (torch.rand(rows, columns), torch.rand(rows, columns))
    return lambda: reduction.reduce_by(affine, operands, (1.0, 0.0), (1,))


def slid(side: int) -> Run:
    """Windows of a side, with stride 1, reduced by such a combiner."""
    operands = (torch.rand(1 << 18), torch.rand(1 << 18))
    return lambda: window.reduce_windows_by(affine, operands, (1.0, 0.0), [(side, 1, 0, 0, 1, 1)])


def scattered(repeats: int) -> Run:
    """So many updates of each of 4096 elements, by a combiner that torch does not know."""
    slots = 4096
    where = torch.arange(slots * repeats).remainder(slots).reshape(-1, 1)
    operands = (torch.rand(slots), torch.rand(slots))
    updates = (torch.rand(slots * repeats), torch.rand(slots * repeats))
    return lambda: indexing.scatter_by_rounds(
        affine, operands, where, updates, True, update_window_dims=(), inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,), index_vector_dim=1)


def sorted_by(size: int) -> Run:
    """1000 rows of a size, sorted by a comparator that torch does not know."""
    rows = torch.rand(1000, size)
    return lambda: sorting.sort_by_comparator(lambda a, b: ((a * a < b * b),), (rows,), 1)


def sorted_rows(*dims: int) -> Run:
    """Rows of floats, sorted."""
    less = ("less {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
            "  ROOT c = pred[] compare(a, b), direction=LT\n}\n")
    shape = f"f32[{','.join(map(str, dims))}]"
    program = parse_hlo(f"HloModule s\n{less}ENTRY main {{\n  x = {shape} parameter(0)\n"
                        f"  ROOT r = {shape} sort(x), dimensions={{{len(dims) - 1}}}, is_stable=true, to_apply=less\n}}")
    x = torch.rand(dims)
    return lambda: program(x)


def counted(words: int) -> Run:
    """So many random words."""
    state = torch.zeros(2, dtype=torch.int64)
    return lambda: random.threefry_bits(state, (words,), 32)


ENDLESS = 1 << 40
CASES: dict[str, list[Case]] = {
    "BLOCK": [("ten ops on 16 Mi floats", [1 << k for k in (14, 15, 16, 18, 19, 20)], lambda _: chain(1 << 24))],
    "PRODUCT_BLOCKED_FROM": [(f"attention at {n} positions", [ENDLESS, 1], lambda _, n=n: attention(n))
                             for n in (256, 512, 1024, 2048)],
    "BLOCKED_FROM": [(f"ten ops on {n} Ki floats", [ENDLESS, 1], lambda _, n=n: chain(n << 10))
                     for n in (64, 128, 256, 512, 1024, 4096)],
    "LARGE": [(f"four ops on {n} Ki floats", [ENDLESS, 1], lambda _, n=n: two_sums(n << 10)) for n in (4, 16, 32, 64, 128, 256)],
    "ACCUMULATED_FROM": [(f"200 sums of {n} floats in a loop", [ENDLESS, 1], lambda _, n=n: accumulated(n))
                         for n in (256, 1024, 4096, 16384, 65536)],
    "COMBINED_AT_ONCE": [("pairs [512, 2048] by rows", [1 << k for k in (14, 16, 17, 19, 20, 40)], lambda _: reduced(512, 2048)),
                         ("pairs [1, 4 Mi]", [1 << k for k in (14, 16, 17, 19, 20, 40)], lambda _: reduced(1, 1 << 22))],
    "SHORT_WINDOW": [(f"windows of {n}", [2, 64], lambda _, n=n: slid(n)) for n in (4, 6, 8, 12, 16, 32)],
    "MANY_UPDATES": [(f"{n} updates of each of 4096", [ENDLESS, 1], lambda _, n=n: scattered(n)) for n in (2, 4, 8, 16, 32, 64)],
    "SORTED_BY_NETWORK": [(f"1000 rows of {n}", [ENDLESS, 0], lambda _, n=n: sorted_by(n)) for n in (8, 16, 32, 64, 128)],
    "RADIX_SORTED_FROM": [(f"{n} Ki floats", [ENDLESS, 1], lambda _, n=n: sorted_rows(n << 10))
                          for n in (1, 2, 4, 8, 16, 32, 64, 256, 1024)],
    "RADIX_SORTED_ROW": [(f"10,000 rows of {n}", [ENDLESS, 1], lambda _, n=n: sorted_rows(10_000, n))
                         for n in (32, 64, 128, 256)],
    "COUNTERS_AT_ONCE": [("4 Mi words", [1 << k for k in (12, 13, 14, 16, 17, 19, 40)], lambda _: counted(1 << 22))],
}


def milliseconds(run: Run, runs: int) -> float:
    """The median time of a run, each of some 20 ms, in time of this thread: others on the machine take less from that."""
    run()
    start = time.thread_time()
    run()
    many = max(1, round(0.02 / max(time.thread_time() - start, 1e-6)))
    found = []
    for _ in range(runs):
        start = time.thread_time()
        for _ in range(many):
            run()
        found.append((time.thread_time() - start) / many)
    return 1e3 * statistics.median(found)


def _word(name: str, value: int) -> str:
    """What a value means: no size reaches `ENDLESS`, and every size is below it."""
    upper = name in ("SORTED_BY_NETWORK", "COMBINED_AT_ONCE", "COUNTERS_AT_ONCE")
    return str(value) if value != ENDLESS else "always" if upper else "never"


def row(name: str, case: Case, runs: int = 9) -> str:
    """One line: the times at the values to try, and at the one that stands."""
    what, values, make = case
    stands, found = getattr(tuning, name), []
    for value in (*values, stands):
        setattr(tuning, name, value)
        found.append(f"{_word(name, value)}: {milliseconds(make(value), runs):.3f}")
    return f"{name:<18} {what:<34} {'   '.join(found)}"


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        for case in CASES[name]:
            print(row(name, case), flush=True)


if __name__ == "__main__":
    main()
