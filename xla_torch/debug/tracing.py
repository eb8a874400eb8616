"""The values of a run, kept: statistics of all, and the values themselves up to a number of bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.ir import Instruction
from ..hlo.tree import arrays, mapped
from ..runtime.computation import XlaComputation, require_computation
from .evaluation import Observer
from .observing import Names, observed
from .steps import Statistics, Step

KEEP = 1 << 28
"""How many bytes of values a trace keeps unless it is told."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One instruction of a trace: the `program` and the instruction's `name`, `op_name`, `source` (``file:line``) and line of
    `hlo`; its `place` in loops, outermost first, each with the iteration; the number of the `participant`; the `statistics` of
    each array of the value, and the value itself, which was `kept` where there was room. `instruction` is that of the IR.

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
        """The value. Raises InvalidArgument where the trace had no room for it."""
        if self.kept is None:
            raise InvalidArgument("the value was not kept", subject=self.name, hint="trace with a larger keep=, or fewer names=")
        return self.kept

    def __str__(self) -> str:
        inside = "".join(f"{loop}[{number}]/" for loop, number in self.place)
        return f"{inside}{self.hlo.strip()}\n    {'; '.join(map(str, self.statistics))}"


@dataclasses.dataclass
class Trace:
    """What a trace saw, `rows` in the order of evaluation, and the run's `result`. `free` are the bytes for which it would still
    keep values. It is an observer itself, by `see`.

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
        """Note a step."""
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
    """Run on arguments and note each instruction that `names` fits (see `observed`): its statistics, and its value up to `keep`
    bytes in all. With `on` nothing is kept, and each step goes to `on(step)`. Warns of NothingObserved where no name fits.

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
