"""A builder that makes no op twice: what is asked for again is the op that is already there.

Rules do not know of each other, so two of them often compute the same thing, or what the forward pass has computed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..builder import XlaBuilder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..opcodes.inference import definition_of

_SMALL = 64
"""Up to how many elements constants are compared by value."""


class SharingBuilder(XlaBuilder):
    """Equal pure ops of equal operands are one op."""

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
    definition = definition_of(instruction.opcode)
    if instruction.opcode == "parameter" or not definition.pure or definition.effect:
        return None
    if instruction.opcode == "constant" and instruction.shape.element_count > _SMALL:
        return None
    attributes = tuple((name, _comparable(value)) for name, value in sorted(instruction.attributes.items()))
    return instruction.opcode, instruction.shape, tuple(map(id, instruction.operands)), attributes


def _comparable(value: Any) -> Hashable:
    """Attribute values are compared by value, computations by identity."""
    if isinstance(value, Computation):
        return id(value)
    return tuple(map(_comparable, value)) if isinstance(value, tuple) else value
