"""Equal ops of equal operands made one, as XLA does before it compiles a program: frontends spell out each function by itself, so
that JAX's ``//`` and ``%`` of the same numbers compute one remainder three times.

Equal are ops of one opcode, shape and attributes; regions are equal where they are written alike. What is noted with an op
(metadata, shardings) does not count, and the first of equal ones stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ..core import tuning
from ..core.sizes import unnamed
from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction, cached_on_computation
from ..hlo.literals.literal import SizeLiteral
from ..hlo.regions import has_regions_of_values, with_regions
from ..hlo.structure import CONSTANT
from ..opcodes import internal

Number = Callable[[Any], Hashable]
"""What stands for an operand, or for a computation, in keys."""


def key_of(instruction: Instruction, number: Number = id) -> Hashable | None:
    """What makes two instructions the same; None for those that never are the same as another one: parameters, whatever has an
    effect, draws or exchanges, and large constants."""
    if instruction.is_parameter or not _repeats(instruction):
        return None
    if instruction.opcode == CONSTANT and instruction.shape.element_count > tuning.COMPARED_CONSTANTS:
        return None
    attributes = tuple((name, _comparable(value, number)) for name, value in sorted(instruction.attributes.items()))
    return instruction.opcode, instruction.shape.key, tuple(map(number, instruction.operands)), attributes


def _repeats(instruction: Instruction) -> bool:
    """Whether the instruction would give the same again, and nobody could tell how often it was carried out."""
    schema = instruction.schema
    return schema.pure and not schema.effect and all(map(_all_repeat, instruction.called_computations))


@cached_on_computation
def _all_repeat(computation: Computation) -> bool:
    return all(is_pure(i) and all(map(_all_repeat, i.called_computations)) for i in computation.instructions)


def _comparable(value: Any, number: Number) -> Hashable:
    """An attribute's value, where equal sizes are found without being asked for."""
    if isinstance(value, Computation):
        return number(value)
    if isinstance(value, SizeLiteral):
        return value.shape.key, unnamed(value.size)
    return tuple(_comparable(v, number) for v in value) if isinstance(value, tuple) else unnamed(value)


@cached_on_computation
def without_repetitions(computation: Computation) -> Computation:
    """The computation, in canonical form, with one op for those that are equal, in its loops and branches as well; itself where
    no two are."""
    return _Merging().computation(computation)


class _Merging:
    """Merges in a computation and those inside it, each of which is looked at once, however many run it."""

    def __init__(self) -> None:
        self.made: dict[Computation, Computation] = {}
        self.forms: dict[Hashable, int] = {}
        """A number for each way in which a region is written."""
        self.form_of: dict[Computation, int] = {}

    def computation(self, computation: Computation) -> Computation:
        """The computation with one of those that are equal."""
        if computation not in self.made:
            self.made[computation] = self._merged(computation)
        return self.made[computation]

    def _merged(self, computation: Computation) -> Computation:
        found: dict[Instruction, Instruction] = {}
        known: dict[Hashable, Instruction] = {}
        kept: list[Instruction] = []
        for instruction in computation.instructions:
            now = self._over(instruction, [found[o] for o in instruction.operands])
            key = key_of(now, self._number) if _may_merge(now) else None
            first = now if key is None else known.setdefault(key, now)
            found[instruction] = first
            if first is now:
                kept.append(now)
        if all(old is new for old, new in found.items()):
            return computation
        merged = Computation(computation.name, kept, found[computation.root], computation.execution_thread)
        merged.is_canonical, merged.derivatives = computation.is_canonical, computation.derivatives
        return merged

    def _over(self, instruction: Instruction, operands: list[Instruction]) -> Instruction:
        """The instruction over these operands, its regions merged; itself where that changes nothing."""
        attributes = instruction.attributes
        if has_regions_of_values(instruction) and any(self.computation(c) is not c for c in instruction.called_computations):
            attributes = with_regions(instruction, lambda region: self.made[region.computation])
        elif all(a is b for a, b in zip(operands, instruction.operands, strict=True)):
            return instruction
        return Instruction(instruction.opcode, instruction.shape, operands, attributes, instruction.name, instruction.common,
                           instruction.line, instruction.column)

    def _number(self, part: Any) -> int:
        """What stands for an operand, which is itself alone, or for a region, which is as it is written."""
        if not isinstance(part, Computation):
            return id(part)
        if part not in self.form_of:
            self.form_of[part] = self.forms.setdefault(self._written(part), len(self.forms))
        return self.form_of[part]

    def _written(self, computation: Computation) -> Hashable:
        """How a computation is written, names apart."""
        places = {i: k for k, i in enumerate(computation.instructions)}

        def number(part: Any) -> int:
            return self._number(part) if isinstance(part, Computation) else places[part]

        lines = tuple((i.shape.key, i.attributes["parameter_number"]) if i.is_parameter else key_of(i, number) or id(i)
                      for i in computation.instructions)
        return places[computation.root], lines


def _may_merge(instruction: Instruction) -> bool:
    """False for a barrier, which stands there so that what is behind it is computed again, and for tokens."""
    return instruction.opcode != internal.opt_barrier and all(leaf.is_array for leaf in instruction.shape.leaves())
