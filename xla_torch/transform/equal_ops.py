"""When two ops are the same, so that one will do: of one opcode, shape and attributes, of the same operands, and without effects.

Frontends spell out each function by itself, so that JAX's ``//`` and ``%`` of the same numbers compute one remainder three times,
and gradient rules do not know of each other. What is noted with an op (metadata, shardings) does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..core import tuning
from ..core.sizes import unnamed
from ..hlo.composites import is_composite
from ..hlo.custom_calls import is_routine
from ..hlo.ir import Computation, Instruction, cached_on_computation, reachable
from ..hlo.literals.literal import SizeLiteral
from ..hlo.structure import CONSTANT

Numbered = Callable[[Computation], int]
"""What stands for a computation in keys."""


def key_of(instruction: Instruction, operands: Sequence[Hashable], numbered: Numbered = id) -> Hashable | None:
    """What makes two instructions the same, given what stands for their operands; None for those that never are the same as
    another one: parameters, whatever has an effect, draws or exchanges (also in a loop or branch), and large constants."""
    if instruction.is_parameter or not repeats(instruction):
        return None
    if instruction.opcode == CONSTANT and instruction.shape.element_count > tuning.COMPARED_CONSTANTS:
        return None
    attributes = tuple((name, _comparable(value, numbered)) for name, value in sorted(instruction.attributes.items()))
    config = str(instruction.common.get("backend_config", "")) if is_routine(instruction) else ""
    return instruction.opcode, instruction.shape.key, tuple(operands), attributes, config


def repeats(instruction: Instruction) -> bool:
    """Whether the instruction would give the same again, and nobody could tell how often it was carried out."""
    return _is_repeated(instruction) and all(map(_all_repeat, instruction.called_computations))


def _is_repeated(instruction: Instruction) -> bool:
    schema = instruction.schema
    return schema.pure and (not schema.effect or is_composite(instruction) or is_routine(instruction))


@cached_on_computation
def _all_repeat(computation: Computation) -> bool:
    for each in reachable([computation]):  # the innermost first, so that no question leads to a deeper one
        _repeat_inside(each)
    return _repeat_inside(computation)


@cached_on_computation
def _repeat_inside(computation: Computation) -> bool:
    return all(_is_repeated(i) and all(map(_repeat_inside, i.called_computations)) for i in computation.instructions)


def _comparable(value: Any, numbered: Numbered) -> Hashable:
    """An attribute's value, where equal sizes are found without being asked for."""
    if isinstance(value, Computation):
        return numbered(value)
    if isinstance(value, SizeLiteral):
        return value.shape.key, unnamed(value.size)
    return tuple(_comparable(v, numbered) for v in value) if isinstance(value, tuple) else unnamed(value)


class Forms:
    """A number for each way in which computations are written, names apart. Computations are kept as long as it is."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._of: dict[Computation, int] = {}

    def number(self, computation: Computation) -> int:
        """The number of the computation's form."""
        if computation not in self._of:
            for each in reachable([computation]):
                if each not in self._of:
                    self._of[each] = self._numbers.setdefault(self._form(each), len(self._numbers))
        return self._of[computation]

    def _form(self, computation: Computation) -> Hashable:
        places = {i: k for k, i in enumerate(computation.instructions)}
        lines: list[Hashable] = []
        for i in computation.instructions:
            if i.is_parameter:
                lines.append((i.shape.key, i.attributes["parameter_number"]))
            else:
                lines.append(key_of(i, [places[o] for o in i.operands], self.number) or i)
        return places[computation.root], tuple(lines)
