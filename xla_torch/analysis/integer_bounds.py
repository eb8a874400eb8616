"""Bounds that the elements of an integer array are known to keep, whatever the program's arguments are."""

from __future__ import annotations

import numpy as np

from ..hlo.ir import Instruction
from ..hlo.schema import Trait
from ..opcodes import comparison, movement

Bounds = tuple[int, int]
"""The least and the greatest value."""


def bounds_of(array: Instruction) -> Bounds | None:
    """Bounds of every element of an integer array, or None where they are not known: of constants and counts, of what is
    clamped to such, and of these moved about or joined. What reads the bits as another type has other values."""
    if array.has(Trait.REARRANGES):
        kept = array.operands[0].shape.element_type is array.shape.element_type
        return bounds_of(array.operands[0]) if kept else None
    match array.opcode:
        case movement.constant:
            return _of_literal(array.attributes["literal"].value)
        case movement.iota:
            return 0, max(array.shape.dimensions[array.attributes["iota_dimension"]] - 1, 0)
        case comparison.clamp:
            low, high = bounds_of(array.operands[0]), bounds_of(array.operands[2])
            return (min(low[0], high[0]), high[1]) if low and high else None
        case movement.concatenate:
            bounds = [bounds_of(operand) for operand in array.operands]
            known = [b for b in bounds if b]
            return (min(b[0] for b in known), max(b[1] for b in known)) if len(known) == len(bounds) else None
    return None


def _of_literal(value: object) -> Bounds | None:
    return (int(value.min()), int(value.max())) if isinstance(value, np.ndarray) and value.size else None
