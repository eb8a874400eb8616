"""Arithmetic on host scalars: loop counters, and the indices computed from them, stay Python integers.

A `Host` knows the interval of values it can take. An operation is done on the host only where the interval proves that the
result fits its element type, so no wrap-around is ever missed; a comparison that the interval decides becomes a constant.
That turns JAX's ``select(i < 0, i + n, i)`` into plain ``i``.
"""

from __future__ import annotations

from ..core.types import PrimitiveType
from ..hlo.ir import Instruction
from .host_rules import HOST, Scalar, interval


def evaluate(instruction: Instruction, operands: list[Scalar]) -> Scalar | None:
    """The result of a scalar instruction as a Host or a number, or None where it must be computed on tensors.

    `operands` are Hosts and Python numbers, at least one of them a Host.
    """
    rule = HOST.get(instruction.opcode)
    if rule is None:
        return None
    result = rule(instruction, *operands)
    if result is None or isinstance(result, bool):
        return result
    low, high = interval(result)
    if not fits(low, high, instruction.shape.element_type):
        return None
    return low if low == high else result


def fits(low: int, high: int, element_type: PrimitiveType) -> bool:
    """Whether every integer of the interval is a value of the type, as a tensor stores it and as itself."""
    if element_type.is_pred:
        return low >= 0 and high <= 1
    if not element_type.is_integral:
        return False
    bits = element_type.bits
    return (0 if element_type.is_unsigned else -(2 ** (bits - 1))) <= low and high < 2 ** (bits - 1)
