"""Conversions under their documented names: of value, of bits, and of precision.

Documents: operation semantics, ConvertElementType, BitcastConvertType, ReducePrecision.
"""

from __future__ import annotations

from ..core.errors import InvalidArgument
from ..core.types import (
    F6E2M3FN,
    F6E3M2FN,
    F8E4M3B11FNUZ,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F8E8M0FNU,
    F32,
    S32,
    U8,
    PrimitiveType,
    type_from_text,
)
from ..opcodes import convert
from ._documented import documented, renamed
from .comparison import Eq, Gt, Le, Lt, Ne, Select
from .elementwise import Abs, Not, Real
from .elementwise_binary import Add, And, Or, Sub
from .hlo_builder import Operand, XlaOp, broadcast_operands, lift_operands

__all__ = ["BitcastConvertType", "ConvertElementType", "NextAfter", "ReducePrecision", "StochasticConvertType"]


@documented
def ConvertElementType(operand: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
    """The same values as another element type.

    Integers wrap; floats round to nearest even; floats to integers truncate toward zero, saturate, and take NaN to 0; anything
    but 0 is true; of complex numbers a real type takes the real part. Raises InvalidArgument where either is no array type.

    >>> ops.ConvertElementType(torch.tensor([1.9, -1.9, float("nan"), 1e20]), "s32")
    tensor([         1,         -1,          0, 2147483647], dtype=torch.int32)
    """
    (operand,) = lift_operands(convert.convert, operand)
    _require_array_type(convert.convert, new_element_type)
    if operand.element_type.is_complex and not new_element_type.is_complex:
        operand = Real(operand)
        if operand.element_type is new_element_type:
            return operand
    shape = operand.shape.without_layout().with_element_type(new_element_type)
    return operand.builder.add(convert.convert, [operand], shape=shape)


@documented
def BitcastConvertType(operand: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
    """The same bits as another element type.

    A narrower type appends a dimension of old width / new width, low part first; a wider one takes away the last dimension,
    which must be of size new width / old width. Raises InvalidArgument for widths that are not multiples of each other, and
    between complex and real types.

    >>> ops.BitcastConvertType(torch.tensor([1.0]), "s32")
    tensor([1065353216], dtype=torch.int32)
    >>> ops.BitcastConvertType(torch.tensor([1], dtype=torch.int32), "u8")
    tensor([[1, 0, 0, 0]], dtype=torch.uint8)
    """
    (operand,) = lift_operands(convert.bitcast_convert, operand)
    _require_array_type(convert.bitcast_convert, new_element_type)
    dims, flags = operand.shape.dimensions, operand.shape.dynamic_flags
    wide, narrow = operand.element_type.bits, new_element_type.bits
    if wide > narrow:
        dims, flags = (*dims, wide // narrow), (*flags, False)
    elif wide < narrow:
        dims, flags = dims[:-1], flags[:-1]
    shape = operand.shape.with_element_type(new_element_type).with_dimensions(dims, flags)
    return operand.builder.add(convert.bitcast_convert, [operand], shape=shape)


@documented
def ReducePrecision(operand: XlaOp, exponent_bits: int, mantissa_bits: int) -> XlaOp:
    """Floats rounded to what a format with these widths holds: to nearest even, overflow to infinity, and what would be
    subnormal there to zero. Raises InvalidArgument for other types, no exponent bits, or a negative width.

    >>> ops.ReducePrecision(torch.tensor([1.0, 0.1, 70000.0]), 5, 10)
    tensor([1.0000, 0.1000,    inf])
    """
    (operand,) = lift_operands(convert.reduce_precision, operand)
    widths = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    return operand.builder.add(convert.reduce_precision, [operand], widths)


@documented
def StochasticConvertType(operand: XlaOp, random: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
    """Floats rounded to integers, away from zero with the fraction as probability, by unsigned random bits of the operand's
    width and dimensions. Raises InvalidArgument for operands that do not fit.

    >>> ops.StochasticConvertType(torch.tensor([1.25, 1.25]), torch.tensor([0, 2**32 - 1], dtype=torch.uint32), "s32")
    tensor([2, 1], dtype=torch.int32)
    """
    operand, random = lift_operands(convert.stochastic_convert, operand, random)
    _require_array_type(convert.stochastic_convert, new_element_type)
    shape = operand.shape.without_layout().with_element_type(new_element_type)
    return operand.builder.add(convert.stochastic_convert, [operand, random], shape=shape)


@renamed(**{"from": "lhs", "to": "rhs"})
@documented
def NextAfter(lhs: Operand, rhs: Operand) -> XlaOp:
    """The float next to `lhs` in the direction of `rhs`; NaN where either is NaN. Raises InvalidArgument for other operands than
    floats.

    >>> ops.NextAfter(torch.tensor([1.0]), torch.tensor([2.0])) - 1.0
    tensor([1.1921e-07])
    """
    start, goal = broadcast_operands("next-after", lhs, rhs, ())
    element_type = start.element_type
    if not element_type.is_floating:
        raise InvalidArgument("an element type without neighbours", subject="next-after", got=start.shape, expected="floats")
    if element_type is F8E8M0FNU:  # neither sign nor zero: codes count up
        codes = BitcastConvertType(start, U8)
        near = Select(Gt(goal, start), Add(codes, 1), Select(Gt(start, goal), Sub(codes, 1), codes))
        return Select(Or(Ne(start, start), Ne(goal, goal)), Add(start, goal), BitcastConvertType(near, element_type))
    if element_type.bits == 6:  # there are no integers of 6 bits, and F32 has the neighbours of all these values
        return _next_of_six_bits(start, goal)
    integer = type_from_text(f"s{element_type.bits}")
    assert integer is not None
    bits, goal_bits = BitcastConvertType(start, integer), BitcastConvertType(goal, integer)
    sign_bit = -(1 << (element_type.bits - 1))
    magnitude, goal_magnitude = And(bits, ~sign_bit), And(goal_bits, ~sign_bit)
    # Bits count away from zero: one down where the goal is nearer to zero or on its other side, else one up.
    inward = Or(Gt(magnitude, goal_magnitude), Ne(And(bits, sign_bit), And(goal_bits, sign_bit)))
    neighbour = Select(inward, Sub(bits, 1), Add(bits, 1))
    neighbour = Select(Eq(magnitude, 0), Or(And(goal_bits, sign_bit), 1), neighbour)
    if element_type in (F8E4M3FNUZ, F8E5M2FNUZ, F8E4M3B11FNUZ):  # they have one zero: its negative is NaN
        neighbour = Select(Eq(neighbour, sign_bit), 0, neighbour)
    neighbour = BitcastConvertType(Select(Eq(start, goal), goal_bits, neighbour), element_type)
    return Select(Or(Ne(start, start), Ne(goal, goal)), Add(start, goal), neighbour)


_SIX_BITS = {F6E2M3FN: (3, 0.125), F6E3M2FN: (2, 0.0625)}
"""Mantissa bits and the smallest number of each."""


def _next_of_six_bits(start: XlaOp, goal: XlaOp) -> XlaOp:
    """`NextAfter` of formats of so many bits, which have neither infinities nor NaNs: by steps on their grid in F32."""
    mantissa, smallest = _SIX_BITS[start.element_type]
    x, towards = (ConvertElementType(value, F32) for value in (start, goal))
    size, step, normal = Abs(x), 1 << (23 - mantissa), smallest * 2**mantissa
    signs = [And(BitcastConvertType(value, S32), -(1 << 31)) for value in (x, towards)]
    inward = Or(Lt(Abs(towards), size), Ne(*signs))
    further = Select(Lt(size, normal), size + smallest, BitcastConvertType(BitcastConvertType(size, S32) + step, F32))
    nearer = Select(Le(size, normal), size - smallest, BitcastConvertType(BitcastConvertType(size, S32) - step, F32))
    at_zero = Eq(size, 0.0)
    found = Select(Or(at_zero, Not(inward)), further, nearer)
    signed = BitcastConvertType(Or(BitcastConvertType(found, S32), Select(at_zero, signs[1], signs[0])), F32)
    return Select(Eq(start, goal), goal, ConvertElementType(signed, start.element_type))


def _require_array_type(subject: str, element_type: PrimitiveType) -> None:
    if not element_type.is_array:
        raise InvalidArgument(f"{element_type} is not an element type of arrays", subject=subject)
