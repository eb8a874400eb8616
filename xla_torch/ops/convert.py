"""Conversions under their documented names: of value, of bits, and of precision.

Documents: operation semantics, ConvertElementType, BitcastConvertType, ReducePrecision.
"""

from __future__ import annotations

from ..builder import XlaOp, documented
from ..errors import InvalidArgument
from ..types import PrimitiveType, type_from_text
from ._broadcast import Operand, broadcast_operands, lift_operands
from .comparison import Eq, Gt, Ne, Select
from .elementwise import Add, And, Or, Real, Sub

__all__ = ["BitcastConvertType", "ConvertElementType", "NextAfter", "ReducePrecision", "StochasticConvertType"]


@documented
def ConvertElementType(operand: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
    """The same values as another element type.

    Integers wrap; floats round to nearest even; floats to integers truncate toward zero, saturate, and take NaN to 0; anything
    but 0 is true; of complex numbers a real type takes the real part. Raises InvalidArgument where either is no array type.
    """
    (operand,) = lift_operands("convert", operand)
    _require_array_type("convert", new_element_type)
    if operand.element_type.is_complex and not new_element_type.is_complex:
        operand = Real(operand)
        if operand.element_type is new_element_type:
            return operand
    shape = operand.shape.without_layout().with_element_type(new_element_type)
    return operand.builder.add("convert", [operand], shape=shape)


@documented
def BitcastConvertType(operand: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
    """The same bits as another element type.

    A narrower type appends a dimension of old width / new width, low part first; a wider one takes away the last dimension,
    which must be of size new width / old width. Raises InvalidArgument for widths that are not multiples of each other, and
    between complex and real types.
    """
    (operand,) = lift_operands("bitcast-convert", operand)
    _require_array_type("bitcast-convert", new_element_type)
    dims, flags = operand.shape.dimensions, operand.shape.dynamic_flags
    wide, narrow = operand.element_type.bits, new_element_type.bits
    if wide > narrow:
        dims, flags = (*dims, wide // narrow), (*flags, False)
    elif wide < narrow:
        dims, flags = dims[:-1], flags[:-1]
    shape = operand.shape.with_element_type(new_element_type).with_dimensions(dims, flags)
    return operand.builder.add("bitcast-convert", [operand], shape=shape)


@documented
def ReducePrecision(operand: XlaOp, exponent_bits: int, mantissa_bits: int) -> XlaOp:
    """Floats rounded to what a format with these widths holds: to nearest even, overflow to infinity, and what would be
    subnormal there to zero. Raises InvalidArgument for other types, no exponent bits, or a negative width."""
    (operand,) = lift_operands("reduce-precision", operand)
    return operand.builder.add("reduce-precision", [operand], {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits})


@documented
def StochasticConvertType(operand: XlaOp, random: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
    """Floats rounded to integers, away from zero with the fraction as probability, by unsigned random bits of the operand's
    width and dimensions. Raises InvalidArgument for operands that do not fit."""
    operand, random = lift_operands("stochastic-convert", operand, random)
    _require_array_type("stochastic-convert", new_element_type)
    shape = operand.shape.without_layout().with_element_type(new_element_type)
    return operand.builder.add("stochastic-convert", [operand, random], shape=shape)


@documented
def NextAfter(lhs: Operand, rhs: Operand) -> XlaOp:
    """The float next to `lhs` in the direction of `rhs`; NaN where either is NaN. Takes floats of 16 bits and more."""
    start, goal = broadcast_operands("next-after", lhs, rhs, ())
    element_type = start.element_type
    if not element_type.is_floating or element_type.bits < 16:
        raise InvalidArgument("an element type without neighbours", subject="next-after", got=start.shape,
                              expected="floats of 16 bits and more")
    integer = type_from_text(f"s{element_type.bits}")
    assert integer is not None
    bits, goal_bits = BitcastConvertType(start, integer), BitcastConvertType(goal, integer)
    sign_bit = -(1 << (element_type.bits - 1))
    magnitude, goal_magnitude = And(bits, ~sign_bit), And(goal_bits, ~sign_bit)
    # Bits count away from zero: one down where the goal is nearer to zero or on its other side, else one up.
    inward = Or(Gt(magnitude, goal_magnitude), Ne(And(bits, sign_bit), And(goal_bits, sign_bit)))
    neighbour = Select(inward, Sub(bits, 1), Add(bits, 1))
    neighbour = Select(Eq(magnitude, 0), Or(And(goal_bits, sign_bit), 1), neighbour)
    neighbour = BitcastConvertType(Select(Eq(start, goal), goal_bits, neighbour), element_type)
    return Select(Or(Ne(start, start), Ne(goal, goal)), Add(start, goal), neighbour)


def _require_array_type(subject: str, element_type: PrimitiveType) -> None:
    if not element_type.is_array:
        raise InvalidArgument(f"{element_type} is not an element type of arrays", subject=subject)
