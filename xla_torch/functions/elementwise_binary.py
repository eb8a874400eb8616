"""Elementwise arithmetic of two operands, under its documented names.

Documents: operation semantics, the sections of the functions' own names (in older documents element-wise binary arithmetic
operations). Results have the dimensions that the operands broadcast to and, unless said otherwise, their element type. Functions
broadcast implicitly (hlo/SPEC.md, Implicit broadcast): a scalar with anything; operands of different rank by
`broadcast_dimensions`, which says for each dimension of the lower-ranked operand which dimension of the other it matches; then
dimensions of size 1 stretch. Beside an op, an operand may be a Python number or NumPy array, which becomes a constant of the op's
element type if that holds it (`hlo/numbers.py` has the rule). All raise InvalidArgument for element types that they do not take
and for shapes that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..opcodes import elementwise
from ._documented import documented
from .hlo_builder import Operand, XlaOp, broadcast_operands

__all__ = [
    "Add", "And", "Atan2", "Complex", "Div", "LogicalAnd", "LogicalOr", "Max", "Min", "Mul", "Mulhi", "Or", "Pow",
    "Rem", "ShiftLeft", "ShiftRightArithmetic", "ShiftRightLogical", "Sub", "Xor",
]


def _binary(opcode: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int]) -> XlaOp:
    lhs, rhs = broadcast_operands(opcode, lhs, rhs, broadcast_dimensions)
    return lhs.builder.add(opcode, [lhs, rhs])


@documented
def Add(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Sum of any element types; integers wrap, PRED is disjunction.

    >>> ops.Add(torch.tensor([1.0, 2.0]), 3.0)
    tensor([4., 5.])
    >>> ops.Add(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([10.0, 20.0]), [0])
    tensor([[11., 12.],
            [23., 24.]])
    """
    return _binary(elementwise.add, lhs, rhs, broadcast_dimensions)


@documented
def Sub(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Difference of integers (which wrap), floats and complex numbers.

    >>> ops.Sub(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 5.0]))
    tensor([ 0.5000, -3.0000])
    """
    return _binary(elementwise.subtract, lhs, rhs, broadcast_dimensions)


@documented
def Mul(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Product of any element types; integers wrap, PRED is conjunction.

    >>> ops.Mul(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor([3., 8.])
    """
    return _binary(elementwise.multiply, lhs, rhs, broadcast_dimensions)


@documented
def Div(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Quotient of integers, floats and complex numbers.

    Integers truncate toward zero; x / 0 is -1 or, unsigned, has all bits set; MIN / -1 is MIN.

    >>> ops.Div(torch.tensor([7, -7, 1], dtype=torch.int32), torch.tensor([2, 2, 0], dtype=torch.int32))
    tensor([ 3, -3, -1], dtype=torch.int32)
    """
    return _binary(elementwise.divide, lhs, rhs, broadcast_dimensions)


@documented
def Rem(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Remainder with the sign of the dividend, of integers and floats; for integers x % 0 is x.

    >>> ops.Rem(torch.tensor([7.5, -7.5]), 2.0)
    tensor([ 1.5000, -1.5000])
    """
    return _binary(elementwise.remainder, lhs, rhs, broadcast_dimensions)


@documented
def Max(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Larger of two, any element types; NaN where either is NaN; complex numbers in lexicographic order.

    >>> ops.Max(torch.tensor([1.0, 2.0]), torch.tensor([3.0, float("nan")]))
    tensor([3., nan])
    """
    return _binary(elementwise.maximum, lhs, rhs, broadcast_dimensions)


@documented
def Min(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Smaller of two, any element types; NaN where either is NaN; complex numbers in lexicographic order.

    >>> ops.Min(torch.tensor([1.0, 2.0]), torch.tensor([3.0, float("nan")]))
    tensor([1., nan])
    """
    return _binary(elementwise.minimum, lhs, rhs, broadcast_dimensions)


@documented
def Pow(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Power of integers (which wrap; 0 for a negative exponent unless the base is 1 or -1), floats and complex numbers.

    >>> ops.Pow(torch.tensor([2.0, 4.0]), torch.tensor([3.0, 0.5]))
    tensor([8., 2.])
    """
    return _binary(elementwise.power, lhs, rhs, broadcast_dimensions)


@documented
def Atan2(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Angle of the point (rhs, lhs), of floats and complex numbers.

    >>> ops.Atan2(torch.tensor([1.0, -1.0]), torch.tensor([0.0, -1.0]))
    tensor([ 1.5708, -2.3562])
    """
    return _binary(elementwise.atan2, lhs, rhs, broadcast_dimensions)


@documented
def And(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Bitwise conjunction of integers, logical of PRED.

    >>> ops.And(torch.tensor([6, 3], dtype=torch.int32), torch.tensor([3, 4], dtype=torch.int32))
    tensor([2, 0], dtype=torch.int32)
    """
    return _binary(elementwise.and_, lhs, rhs, broadcast_dimensions)


@documented
def Or(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Bitwise disjunction of integers, logical of PRED.

    >>> ops.Or(torch.tensor([6, 3], dtype=torch.int32), torch.tensor([3, 4], dtype=torch.int32))
    tensor([7, 7], dtype=torch.int32)
    """
    return _binary(elementwise.or_, lhs, rhs, broadcast_dimensions)


@documented
def Xor(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Bitwise exclusive disjunction of integers, logical of PRED.

    >>> ops.Xor(torch.tensor([6, 3], dtype=torch.int32), torch.tensor([3, 4], dtype=torch.int32))
    tensor([5, 7], dtype=torch.int32)
    """
    return _binary(elementwise.xor, lhs, rhs, broadcast_dimensions)


@documented
def ShiftLeft(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers shifted left. The amount counts as unsigned; one of the width or more gives 0.

    >>> ops.ShiftLeft(torch.tensor([1, 1], dtype=torch.int32), torch.tensor([4, 32], dtype=torch.int32))
    tensor([16,  0], dtype=torch.int32)
    """
    return _binary(elementwise.shift_left, lhs, rhs, broadcast_dimensions)


@documented
def ShiftRightArithmetic(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers shifted right with copies of the top bit coming in; the amount counts as unsigned.

    >>> ops.ShiftRightArithmetic(torch.tensor([16, -16], dtype=torch.int32), 2)
    tensor([ 4, -4], dtype=torch.int32)
    """
    return _binary(elementwise.shift_right_arithmetic, lhs, rhs, broadcast_dimensions)


@documented
def ShiftRightLogical(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers shifted right with zeros coming in; the amount counts as unsigned, one of the width or more gives 0.

    >>> ops.ShiftRightLogical(torch.tensor([16, -16], dtype=torch.int32), 2)
    tensor([         4, 1073741820], dtype=torch.int32)
    """
    return _binary(elementwise.shift_right_logical, lhs, rhs, broadcast_dimensions)


@documented
def Complex(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Complex numbers of real parts `lhs` and imaginary parts `rhs`: C64 of F32, C128 of F64.

    >>> ops.Complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor([1.+3.j, 2.+4.j])
    """
    return _binary(elementwise.complex_, lhs, rhs, broadcast_dimensions)


@documented
def Mulhi(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Upper half of the product of twice the width, of integers.

    >>> ops.Mulhi(torch.tensor([2**30, -1], dtype=torch.int32), torch.tensor([8, 3], dtype=torch.int32))
    tensor([ 2, -1], dtype=torch.int32)
    """
    return _binary(elementwise.mulhi, lhs, rhs, broadcast_dimensions)


@documented
def LogicalAnd(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The older name of And.

    >>> ops.LogicalAnd(torch.tensor([True, True]), torch.tensor([True, False]))
    tensor([ True, False])
    """
    return And(lhs, rhs, broadcast_dimensions)


@documented
def LogicalOr(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The older name of Or.

    >>> ops.LogicalOr(torch.tensor([False, True]), torch.tensor([False, False]))
    tensor([False,  True])
    """
    return Or(lhs, rhs, broadcast_dimensions)
