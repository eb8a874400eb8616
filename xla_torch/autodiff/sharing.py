"""A builder that makes no op twice: what is asked for again is the op that is already there.

Rules do not know of each other, so two of them often compute the same thing, or what the forward pass has computed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..analysis.named_functions import clipped_part
from ..core import tuning
from ..core.sizes import unnamed
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..hlo.literals.literal import SizeLiteral
from ..hlo.structure import CONSTANT


class SharingBuilder(Builder):
    """Equal pure ops of equal operands are one op, unless they are parts of functions that differ in their derivatives."""

    def __init__(self, name: str = "computation"):
        super().__init__(name)
        self._known: dict[Hashable, XlaOp] = {}

    def append(self, instruction: Instruction) -> XlaOp:
        key = _key(instruction)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return known
        op = super().append(instruction)
        if key is not None:
            self._known[key] = op
        return op


def _key(instruction: Instruction) -> Hashable | None:
    """What makes two instructions the same; None for those that are never shared."""
    schema = instruction.schema
    if instruction.is_parameter or not schema.pure or schema.effect:
        return None
    if instruction.opcode == CONSTANT and instruction.shape.element_count > tuning.COMPARED_CONSTANTS:
        return None
    attributes = tuple((name, _comparable(value)) for name, value in sorted(instruction.attributes.items()))
    return instruction.opcode, instruction.shape.key, tuple(map(id, instruction.operands)), attributes, clipped_part(instruction)


def _comparable(value: Any) -> Hashable:
    """Attribute values are compared by value, computations by identity."""
    if isinstance(value, Computation):
        return id(value)
    if isinstance(value, SizeLiteral):
        return value.shape.key, unnamed(value.size)
    return tuple(map(_comparable, value)) if isinstance(value, tuple) else unnamed(value)
