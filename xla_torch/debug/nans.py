"""The instruction that makes the first NaN or Inf."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from ..hlo.regions import has_regions_of_values
from ..hlo.structure import CONSTANT
from ..hlo.tree import arrays
from ..runtime.computation import XlaComputation
from ..runtime.steps import require_computation
from .observing import observed
from .steps import Statistics, Step, has_nan, is_finite


@dataclasses.dataclass
class Finding:
    """Report the first instruction that made a NaN or an Inf.

    Its operands hold no NaN, or are finite, respectively. `step` has the operands, the HLO line, the op_name and the source. An
    argument that holds a NaN is reported as its parameter. A Finding is false if there was none.

    >>> root = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] sqrt(x) }")
    >>> found = xla_torch.debug.find_nan(root, torch.tensor([1.0, -1.0]))
    >>> bool(found), found.watched, found.step.name, found.step.operands
    (True, 2, 'y', (tensor([ 1., -1.]),))

    `see` is what `observed` calls with each step:

    >>> own = xla_torch.debug.Finding()
    >>> with xla_torch.debug.observed(own.see):
    ...     result = root(torch.tensor([4.0, 9.0]))
    >>> print(own)
    no NaN or Inf was made
    """

    step: Step | None = None
    watched: int = 0
    """How many instructions were seen."""

    def __bool__(self) -> bool:
        return self.step is not None

    def __str__(self) -> str:
        step = self.step
        if step is None:
            return "no NaN or Inf was made" if self.watched else "nothing was watched: no program ran meanwhile"
        what = "came in as" if step.instruction.is_parameter else "was made by"
        lines = [f"the first NaN or Inf {what} {step}", f"  {step.hlo.strip()}"]
        lines += [f"  from {step.op_name}"] if step.op_name else []
        lines += [f"  at {step.source}"] if step.source else []
        for operand, value in zip(step.instruction.operands, step.operands, strict=True):
            lines += [f"  operand {operand!r}: {Statistics.of(t)}" for t, _ in arrays(value, operand.shape) if t is not None]
        return "\n".join(lines)

    def see(self, step: Step) -> None:
        """Note the step if it is the first that made a NaN or Inf."""
        self.watched += 1
        if self.step is None and _makes(step):
            self.step = step


def _makes(step: Step) -> bool:
    instruction = step.instruction
    # Constants are what their author wrote; what calls computations only passes on what was made inside.
    if instruction.opcode == CONSTANT or has_regions_of_values(instruction):
        return False
    made = _arrays(step.value, instruction.shape)
    if all(map(is_finite, made)):
        return False
    given = [t for v, i in zip(step.operands, instruction.operands, strict=True) for t in _arrays(v, i.shape)]
    if any(map(has_nan, made)):
        return not any(map(has_nan, given))
    return not instruction.is_parameter and all(map(is_finite, given))


def _arrays(value: Any, shape: Any) -> list[torch.Tensor]:
    return [t for t, _ in arrays(value, shape) if t is not None]


@contextlib.contextmanager
def _finding() -> Iterator[Finding]:
    found = Finding()
    with observed(found.see):
        yield found


def find_nan(computation: XlaComputation | None = None, *arguments: Any) -> Any:
    """Find the first instruction that makes a NaN or Inf and return a Finding.

    Without a computation it is a context manager: ``with find_nan() as found:`` observes all programs in the block, including
    backward passes.

    >>> root = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] sqrt(x) }")
    >>> found = xla_torch.debug.find_nan(root, torch.tensor([1.0, -1.0]))
    >>> found.step.instruction.name
    'y'
    """
    if computation is None:
        return _finding()
    require_computation(computation, "find_nan")
    with _finding() as found:
        computation(*arguments)
    return found
