"""The table of links: along which dimensions an op treats examples alike. `link_rules` fills it, `rebatched_run` asks it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable


class Place(NamedTuple):
    """Where the batch lies in an array: within a dimension of size ``outer * batch * inner`` (reshapes put dimensions together).
    A negative dimension says that the op has looked at all examples, and that its result has no batch."""

    dimension: int
    outer: int = 1
    inner: int = 1

    def resized(self, dimensions: Sequence[int], size: int) -> tuple[int, ...]:
        """The dimensions of an array with a batch of `size` in this place."""
        if self.dimension < 0:
            return tuple(dimensions)
        sizes = list(dimensions)
        sizes[self.dimension] = self.outer * size * self.inner
        return tuple(sizes)


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """Which dimensions of an op's operands are which dimension of its results (all of which have the same), where the op does the
    same at every place along that dimension and looks at no other place. So a batch that lies there may have any size.

    `operands` has for each operand its linked dimensions; `free` are dimensions of the result along which it is the same though
    no operand has them; `changed` gives the attributes that depend on the size, from the place in the result and the size;
    `reason` is what the op does along all other dimensions.
    """

    operands: tuple[Mapping[int, int], ...]
    reason: str = "mixes examples"
    free: frozenset[int] = frozenset()
    changed: Callable[[Place, int], dict[str, Any]] = lambda place, size: {}

    def forward(self, number: int, place: Place, batch: int) -> Place | None:
        """The result's place where operand `number` has the batch there. None where the op does not allow it."""
        found = self.operands[number].get(place.dimension)
        return None if found is None else place._replace(dimension=found)

    def backward(self, place: Place, batch: int) -> list[Place | None] | None:
        """Each operand's place for the result's; None for those that do not have that dimension. None at all where the op does
        not allow it."""
        dimensions = [next((own for own, there in linked.items() if there == place.dimension), None) for linked in self.operands]
        known = place.dimension in self.free or any(d is not None for d in dimensions)
        if not known:
            return None
        return [None if d is None else place._replace(dimension=d) for d in dimensions]


@dataclasses.dataclass(frozen=True, slots=True)
class Reshaped(Links):
    """A reshape: the batch keeps its stride."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def forward(self, number: int, place: Place, batch: int) -> Place | None:
        return moved(place, batch, self.before, self.after)

    def backward(self, place: Place, batch: int) -> list[Place | None] | None:
        found = moved(place, batch, self.after, self.before)
        return None if found is None else [found]


def moved(place: Place, batch: int, before: Sequence[int], after: Sequence[int]) -> Place | None:
    """The place of the batch behind a reshape; None where it is split up."""
    slower = math.prod(before[:place.dimension]) * place.outer
    faster = math.prod(before[place.dimension + 1:]) * place.inner
    for d, size in enumerate(after):
        ahead, behind = math.prod(after[:d]), math.prod(after[d + 1:])
        fits = ahead and behind and slower % ahead == 0 and faster % behind == 0
        if fits and (slower // ahead) * batch * (faster // behind) == size:
            return Place(d, slower // ahead, faster // behind)
    return None


Rule = Callable[[Instruction], Links]

LINKS: RuleTable[Rule] = RuleTable("rebatching", filled_by=[f"{__package__}.rebatching_link_rules"])
