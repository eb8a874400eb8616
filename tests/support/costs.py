"""What programs cost in counted things: torch's calls, allocations and their bytes, and the native functions that run.
`tests/data/costs.txt` keeps them, and `tests/lowering/test_costs.py` compares. The programs of the benchmarks, which need jax,
are counted with their native code, the others without. Where a change means to change them, write them anew and read the
difference::

    make costs
"""

from __future__ import annotations

import inspect
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest
import torch

from benchmarks import cases
from benchmarks.kinds import KINDS
from benchmarks.models import MODELS
from benchmarks.more_kinds import MORE_KINDS
from support.counting import Counted
from support.stored_programs import DATA, StoredProgram
from xla_torch import kernels, load, parse_hlo, value_and_grad
from xla_torch.codegen import compiled
from xla_torch.codegen.compiled import _loaded as load_library
from xla_torch.core import tuning
from xla_torch.errors import PerhapsLostDerivatives
from xla_torch.kernels import contraction
from xla_torch.kernels.native import Awaited
from xla_torch.passes import products
from xla_torch.runtime.computation import XlaComputation
from xla_torch.storage import torch_private

TABLE = DATA.parent / "costs.txt"
STORED = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())

CHAIN = """HloModule chain
ENTRY main {
  x = f32[1048576] parameter(0)
  negated = f32[1048576] negate(x)
  squared = f32[1048576] multiply(x, negated)
  raised = f32[1048576] exponential(squared)
  bounded = f32[1048576] tanh(x)
  both = f32[1048576] add(raised, bounded)
  scaled = f32[1048576] logistic(x)
  ROOT out = f32[1048576] multiply(both, scaled)
}"""
ROWS = """HloModule rows
larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
total { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[512,2048] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  most = f32[512] reduce(x, low), dimensions={1}, to_apply=larger
  mosts = f32[512,2048] broadcast(most), dimensions={0}
  below = f32[512,2048] subtract(x, mosts)
  raised = f32[512,2048] exponential(below)
  sum = f32[512] reduce(raised, zero), dimensions={1}, to_apply=total
  sums = f32[512,2048] broadcast(sum), dimensions={0}
  ROOT out = f32[512,2048] divide(raised, sums)
}"""
LOOP = """HloModule loop
body {
  p = (s32[], f32[10]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[10] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[10] sine(x)
  z = f32[10] add(x, y)
  ROOT out = (s32[], f32[10]) tuple(next, z)
}
goes { p = (s32[], f32[10]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(100)
  ROOT less = pred[] compare(i, n), direction=LT }
ENTRY main {
  x = f32[10] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[10]) tuple(zero, x)
  end = (s32[], f32[10]) while(start), condition=goes, body=body
  ROOT out = f32[10] get-tuple-element(end), index=1
}"""
TEXTS = {"elementwise chain of 1 Mi": (CHAIN, (1 << 20,)), "softmax of rows": (ROWS, (512, 2048)),
         "100 steps over ten": (LOOP, (10,))}
BENCHMARKS = {**KINDS, **MORE_KINDS, **MODELS}
PROGRAMS = [*STORED, *TEXTS, *BENCHMARKS]


def _shared() -> list[Any]:
    """The functions of the kernels' that make native code for all programs of the process, as far as they are loaded."""
    return [made for name, module in list(sys.modules.items()) if name.startswith(f"{kernels.__name__}.")
            for made in vars(module).values() if hasattr(made, "cache_clear")
            and inspect.unwrap(made).__annotations__.get("return") == Awaited.__name__]


class Cost(NamedTuple):
    calls: int
    allocations: int
    bytes: int
    native: int


def costs(name: str) -> Iterator[tuple[str, Cost]]:
    """A program's rows of the table: its call and, if something of it has a gradient, that with the gradients of its sum."""
    if name in BENCHMARKS:
        yield name, natively(name)
        return
    program, arguments, argnums = _opened(name)
    yield name, cost(program, *arguments)
    if argnums:
        yield f"{name}, with gradient", cost(value_and_grad(program, argnums), *arguments)


def cost(function: Callable[..., Any], *arguments: torch.Tensor) -> Cost:
    counted = Counted.of(function, *arguments)
    return Cost(counted.calls, counted.allocations, counted.made, 0)


def natively(name: str) -> Cost:
    """What a program of the benchmarks costs as soon as its native code is there, which it waits for."""
    make, ran = BENCHMARKS[name], set[Path]()

    def loaded(path: Path) -> Callable[..., int]:
        function = load_library(path)

        def noted(*places: Any) -> int:
            ran.add(path)
            return function(*places)

        return noted

    for shared in _shared():  # some may have been loaded before
        shared.cache_clear()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_TORCH_CACHE", folder)
        patch.setattr(tuning, "NATIVE_AFTER", 0.0)
        patch.setattr(tuning, "NATIVE_WAIT", 60.0)  # whether native code is there in time would count
        patch.setattr(tuning, "NATIVE_WAITED_CALLS", 10**9)
        patch.setattr(compiled, "_loaded", loaded)
        patch.setattr(products, "_prefers_onednn", lambda: False)  # or the table would be of some processors
        patch.setattr(products, "has_units", lambda dtype: False)
        patch.setattr(contraction, "int8_products", None)
        patch.setattr(torch_private, "is_watched", lambda: False)  # by who counts: torch's calls alone are then counted
        made: Any = make()
        run = cases.step_of(made, made.program) if name in MODELS else cases.our_run(made)
        counted = Counted.of(run)
    return Cost(counted.calls, counted.allocations, counted.made, len(ran))


def _opened(name: str) -> tuple[XlaComputation, list[torch.Tensor], tuple[int, ...]]:
    if name in TEXTS:
        text, dims = TEXTS[name]
        return parse_hlo(text), [torch.linspace(-1, 1, math.prod(dims)).reshape(dims)], ()
    stored = StoredProgram.load(DATA / name)
    scalar = len(stored.results) == 1 and stored.results[0].ndim == 0
    return load(DATA / name / "module.hlo"), stored.tensors, tuple(stored.gradients) if scalar else ()


def table(rows: dict[str, Cost]) -> str:
    width = max(map(len, rows))
    head = [f"# What programs cost; `make costs` writes it. {versions()}",
            f"{'# program':{width}}  {'calls':>6} {'allocations':>11} {'bytes':>10} {'native':>6}"]
    lines = [f"{n:{width}}  {c.calls:6} {c.allocations:11} {c.bytes:10} {c.native:6}" for n, c in rows.items()]
    return "\n".join([*head, *lines, ""])


def read() -> tuple[str, dict[str, Cost]]:
    """The versions that the table is of, and its rows."""
    first, _, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    parts = [line.rsplit(maxsplit=4) for line in lines]
    return first.partition(". ")[2], {name: Cost(*map(int, numbers)) for name, *numbers in parts}


def versions() -> str:
    """What torch makes of its composite functions differs from one minor version to the next, and what JAX traces does."""
    found = {"torch": torch.__version__, "jax": jax.__version__}
    return ", ".join(f"{name} {'.'.join(version.split('.')[:2])}" for name, version in found.items())


def main() -> None:
    tuning.NATIVE_AFTER = math.inf  # as in the tests: whether native code is there yet, would count
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PerhapsLostDerivatives)
    found = dict(row for name in PROGRAMS for row in costs(name))
    TABLE.write_text(table(found), encoding="utf-8")
    print(table(found), end="")


if __name__ == "__main__":
    main()
