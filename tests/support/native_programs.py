"""Programs with loops, in torch and as native code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import xla_torch
from xla_torch.codegen.loops import Source
from xla_torch.core import tuning
from xla_torch.kernels.native_bundles import NativeBundle
from xla_torch.kernels.native_plans import NativePlan
from xla_torch.lowering import control
from xla_torch.runtime.computation import XlaComputation


@contextlib.contextmanager
def native_after(seconds: float, folder: Path) -> Iterator[None]:
    """Loops are compiled when their steps have taken so long, into this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", seconds)
        patch.setenv("XLA_TORCH_CACHE", str(folder))
        yield


def native_loops(patch: pytest.MonkeyPatch) -> list[bool]:
    """Of each loop that is lowered from here on, whether it has native code."""
    found: list[bool] = []
    native_source = control._Loop._native_source

    def noted(loop: control._Loop) -> object:
        source = native_source(loop)
        found.append(source is not None)
        return source

    patch.setattr(control._Loop, "_native_source", noted)
    return found


def run_both(text: str, arguments: list[np.ndarray], folder: Path) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
    """The results of a program whose loop stays in torch, and of one whose loop is native from the first step on."""
    in_torch = xla_torch.parse_hlo(text).run_numpy(*arguments)
    computation = xla_torch.parse_hlo(text)
    with native_after(0.0, folder):
        native = computation.run_numpy(*arguments)
    return in_torch, native


ZEROS = {"p": "false", "c": "(0, 0)"}


def leaves_of(row: str) -> list[str]:
    """The shapes of what a row (``shape op(...)``) gives: of a tuple, of its elements."""
    return row[1:row.index(") ")].split(", ") if row.startswith("(") else [row.partition(" ")[0]]


def loop_of_rows(rows: list[str], operands: dict[str, str], regions: str = "", steps: int = 2) -> str:
    """A loop whose body computes each row (``shape op(...)``) of the operands, which stay as they are, in each step: behind
    barriers, so that nothing leaves it. Results are carries."""
    made = [f"{shape} get-tuple-element(pair{k}), index={j}" if row.startswith("(") else row
            for k, row in enumerate(rows) for j, shape in enumerate(leaves_of(row))]
    pairs = "".join(f"  pair{k} = {row}\n" for k, row in enumerate(rows) if row.startswith("("))
    rows, shapes = made, [shape for row in rows for shape in leaves_of(row)]
    carry = ", ".join(["s32[]", *operands.values(), *shapes])
    names = list(operands)
    reads = "\n".join(f"  {n}_given = {s} get-tuple-element(carry), index={k + 1}\n  {n} = {s} opt-barrier({n}_given)"
                      for k, (n, s) in enumerate(operands.items()))
    makes = pairs + "\n".join(f"  r{k} = {row}" for k, row in enumerate(rows))
    fresh = "\n".join(f"  z{k} = {s.partition('[')[0]}[] constant({ZEROS.get(s[0], '0')})\n"
                      f"  full{k} = {s} broadcast(z{k}), dimensions={{}}" for k, s in enumerate(shapes))
    results = ", ".join(f"r{k}" for k in range(len(rows)))
    takes = "\n".join(f"  {n} = {s} parameter({k})" for k, (n, s) in enumerate(operands.items()))
    return f"""HloModule rows
{regions}
condition {{
  carry = ({carry}) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  n = s32[] constant({steps})
  ROOT r = pred[] compare(i, n), direction=LT
}}
body {{
  carry = ({carry}) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
{reads}
  one = s32[] constant(1)
  next = s32[] add(i, one)
{makes}
  ROOT made = ({carry}) tuple(next, {', '.join(names)}, {results})
}}
ENTRY main {{
{takes}
  start = s32[] constant(0)
{fresh}
  first = ({carry}) tuple(start, {', '.join(names)}, {', '.join(f'full{k}' for k in range(len(rows)))})
  done = ({carry}) while(first), condition=condition, body=body
{chr(10).join(f'  g{k} = {s} get-tuple-element(done), index={k + 1 + len(names)}' for k, s in enumerate(shapes))}
  ROOT all = ({', '.join(shapes)}) tuple({', '.join(f'g{k}' for k in range(len(rows)))})
}}
"""


def natively(text: str) -> bool:
    """Whether the program has a loop that may become native code."""
    program = xla_torch.parse_hlo(text)
    return "_native" in program.python_code()


def sources_of(computation: XlaComputation) -> list[Source]:
    """The native functions of a program's bundles and plans."""
    modules = list(computation.lowered().modules())
    return [s for m in modules for s in ([m.source] if isinstance(m, NativeBundle) else
                                         m.plan.sources if isinstance(m, NativePlan) else [])]
