"""The values of a run, kept: statistics of all, and the values themselves up to a number of bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.ir import Instruction
from ..hlo.tree import arrays, mapped
from ..runtime.computation import XlaComputation
from ..runtime.steps import require_computation
from .evaluation import Observer
from .observing import Names, observed
from .steps import Statistics, Step

KEEP = 1 << 28
"""How many bytes of values a trace keeps unless it is told."""


@dataclasses.dataclass(frozen=True)
class Row:
    """Describe one instruction of a trace.

    `program`, `name`, `op_name`, `source` (``file:line``) and `hlo` identify it, and `instruction` is its IR. `place` lists the
    enclosing loops with their iterations, outermost first. `participant` is the participant's number. `statistics` describe
    each array of the value; `kept` is the value if the memory budget allowed it.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> row = xla_torch.debug.trace(square, torch.tensor([1.0, 2.0])).rows[-1]
    >>> row.program, row.name, row.place, row.participant, row.value, str(row.statistics[0])
    ('module_e', 'y', (), 0, tensor([1., 4.]), 'min 1, max 4, mean 2.5, 0 of 2 zero')
    """

    program: str
    name: str
    op_name: str
    source: str
    hlo: str
    place: tuple[tuple[str, int], ...]
    participant: int
    statistics: list[Statistics]
    kept: Any
    instruction: Instruction = dataclasses.field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """Return the value. Raises InvalidArgument if the trace's memory budget was exhausted."""
        if self.kept is None:
            raise InvalidArgument("the trace did not keep the value", subject=self.name,
                                  hint="trace with a larger keep=, or fewer names=")
        return self.kept

    def __str__(self) -> str:
        inside = "".join(f"{loop}[{number}]/" for loop, number in self.place)
        return f"{inside}{self.hlo.strip()}\n    {'; '.join(map(str, self.statistics))}"


@dataclasses.dataclass
class Trace:
    """Hold a trace: `rows` in the order of evaluation, and the run's `result`.

    `free` is the number of bytes left for values. The method `see` makes it an observer.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> found = xla_torch.debug.Trace([])
    >>> with xla_torch.debug.observed(found.see):
    ...     result = square(torch.tensor([1.0, 2.0]))
    >>> [row.name for row in found.rows], found["y"][0].value
    (['x', 'y'], tensor([1., 4.]))
    """

    rows: list[Row]
    result: Any = None
    free: int = KEEP

    def __getitem__(self, name: str) -> list[Row]:
        """All rows of the instructions of this name: several where a loop runs it again."""
        return [row for row in self.rows if row.name == name]

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))

    def see(self, step: Step) -> None:
        """Append a step."""
        size = sum(t.numel() * t.element_size() for t, _ in arrays(step.value, step.instruction.shape) if t is not None)
        kept = None
        if size <= self.free:
            self.free -= size
            # What others hold may change later: arguments are overwritten by their owners.
            kept = mapped(lambda _, t: None if t is None else t.clone(), step.instruction.shape, step.value)
        self.rows.append(Row(step.program, step.name, step.op_name, step.source, step.hlo, step.place, step.participant,
                             step.statistics, kept, step.instruction))


def trace(computation: XlaComputation, *arguments: Any, names: Names = None, keep: int = KEEP, on: Observer | None = None,
          participant: int | None = None) -> Trace:
    """Run a program and record each instruction that matches `names`.

    The trace has statistics of each value, and the values themselves up to `keep` bytes in total. With `on`, nothing is kept
    and each step goes to `on(step)`. Warns NothingObserved if no name matches.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> found = xla_torch.debug.trace(square, torch.tensor([1.0, 2.0]), names="y")
    >>> found.rows[0].name, found.result
    ('y', tensor([1., 4.]))
    """
    require_computation(computation, "trace")
    found = Trace([], free=keep)
    with observed(on or found.see, names, participant):
        found.result = computation(*arguments)
    return found
