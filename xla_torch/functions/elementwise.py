"""Elementwise arithmetic under its documented names.

Documents: operation semantics, the sections of the functions' own names (in older documents elementwise unary functions and
element-wise binary arithmetic operations). Results have the operand's dimensions, or those that two operands broadcast to, and
unless said otherwise their element type. Binary functions broadcast implicitly (hlo/SPEC.md, Implicit broadcast): a scalar
with anything; operands of different rank by `broadcast_dimensions`, which says for each dimension of the lower-ranked operand
which dimension of the other it matches; then dimensions of size 1 stretch. Beside an op, an operand may be a Python number or
NumPy array, which becomes a constant of the op's element type if that holds it (`hlo/numbers.py` has the rule).
All raise InvalidArgument for element types that they do not
take and for shapes that do not fit. `result_accuracy` is a hint.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hlo.attributes import ResultAccuracy
from ..opcodes import elementwise
from ._documented import documented
from .hlo_builder import Operand, XlaOp, broadcast_operands, lift_operands

__all__ = [
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cbrt", "Ceil", "Clz",
    "Complex", "Conj", "Cos", "Cosh", "Div", "Erf", "Exp", "Expm1", "Floor", "Imag", "IsFinite", "Log", "Log1p",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Logistic", "Max", "Min", "Mul", "Mulhi", "Neg", "Not", "Or",
    "PopulationCount", "Pow", "Real", "Reciprocal", "Rem", "ResultAccuracy", "Round", "RoundNearestAfz", "RoundNearestEven",
    "Rsqrt", "ShiftLeft", "ShiftRightArithmetic", "ShiftRightLogical", "Sign", "Sin", "Sinh", "Sqrt", "Square", "Sub", "Tan",
    "Tanh", "Xor",
]


def _unary(opcode: str, operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    (operand,) = lift_operands(opcode, operand)
    return operand.builder.add(opcode, [operand], {} if result_accuracy is None else {"result_accuracy": result_accuracy})


def _binary(opcode: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int]) -> XlaOp:
    lhs, rhs = broadcast_operands(opcode, lhs, rhs, broadcast_dimensions)
    return lhs.builder.add(opcode, [lhs, rhs])


# ------------------------------------------------------------------------------------------- one operand


@documented
def Abs(operand: XlaOp) -> XlaOp:
    """Magnitude of signed integers, floats and complex numbers (of which the result is the component type).
    Of the smallest integer it is that integer itself.
    """
    return _unary(elementwise.abs_, operand)


@documented
def Cbrt(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Real cube root, of floats."""
    return _unary(elementwise.cbrt, operand, result_accuracy)


@documented
def Ceil(operand: XlaOp) -> XlaOp:
    """Smallest integer not below, of floats."""
    return _unary(elementwise.ceil, operand)


@documented
def Clz(operand: XlaOp) -> XlaOp:
    """Number of zero bits above the highest set bit, of integers; the bit width for 0."""
    return _unary(elementwise.count_leading_zeros, operand)


@documented
def Cos(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Cosine of floats and complex numbers."""
    return _unary(elementwise.cosine, operand, result_accuracy)


@documented
def Erf(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Error function ``2 / sqrt(pi) * integral of exp(-t*t) from 0 to x``, of floats."""
    return _unary(elementwise.erf, operand, result_accuracy)


@documented
def Exp(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Exponential of floats and complex numbers."""
    return _unary(elementwise.exponential, operand, result_accuracy)


@documented
def Expm1(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """``exp(x) - 1``, accurate near 0, of floats and complex numbers."""
    return _unary(elementwise.exponential_minus_one, operand, result_accuracy)


@documented
def Floor(operand: XlaOp) -> XlaOp:
    """Largest integer not above, of floats."""
    return _unary(elementwise.floor, operand)


@documented
def Imag(operand: XlaOp) -> XlaOp:
    """Imaginary part of complex numbers, in their component type; zeros for floats."""
    return _unary(elementwise.imag, operand)


@documented
def IsFinite(operand: XlaOp) -> XlaOp:
    """PRED: neither infinite nor NaN, of floats."""
    return _unary(elementwise.is_finite, operand)


@documented
def Log(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Natural logarithm of floats and complex numbers."""
    return _unary(elementwise.log, operand, result_accuracy)


@documented
def Log1p(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """``log(1 + x)``, accurate near 0, of floats and complex numbers."""
    return _unary(elementwise.log_plus_one, operand, result_accuracy)


@documented
def Logistic(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """``1 / (1 + exp(-x))`` without overflow, of floats and complex numbers."""
    return _unary(elementwise.logistic, operand, result_accuracy)


@documented
def Neg(operand: XlaOp) -> XlaOp:
    """Negation of integers (which wrap), floats and complex numbers."""
    return _unary(elementwise.negate, operand)


@documented
def Not(operand: XlaOp) -> XlaOp:
    """Bitwise complement of integers, logical complement of PRED."""
    return _unary(elementwise.not_, operand)


@documented
def PopulationCount(operand: XlaOp) -> XlaOp:
    """Number of set bits, of integers."""
    return _unary(elementwise.popcnt, operand)


@documented
def Real(operand: XlaOp) -> XlaOp:
    """Real part of complex numbers, in their component type; a float is its own."""
    return _unary(elementwise.real, operand)


@documented
def RoundNearestAfz(operand: XlaOp) -> XlaOp:
    """Nearest integer, halfway cases away from zero, of floats."""
    return _unary(elementwise.round_nearest_afz, operand)


@documented
def RoundNearestEven(operand: XlaOp) -> XlaOp:
    """Nearest integer, halfway cases to the even one, of floats."""
    return _unary(elementwise.round_nearest_even, operand)


@documented
def Rsqrt(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Reciprocal of the square root of floats and complex numbers."""
    return _unary(elementwise.rsqrt, operand, result_accuracy)


@documented
def Sign(operand: XlaOp) -> XlaOp:
    """-1, 0 or 1 for signed integers and floats (signed zeros and NaN stay); ``z / |z|`` for complex numbers, 0 for 0."""
    return _unary(elementwise.sign, operand)


@documented
def Sin(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Sine of floats and complex numbers."""
    return _unary(elementwise.sine, operand, result_accuracy)


@documented
def Sqrt(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Square root of floats and complex numbers."""
    return _unary(elementwise.sqrt, operand, result_accuracy)


@documented
def Tan(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Tangent of floats and complex numbers."""
    return _unary(elementwise.tan, operand, result_accuracy)


@documented
def Tanh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Hyperbolic tangent of floats and complex numbers."""
    return _unary(elementwise.tanh, operand, result_accuracy)


@documented
def Acos(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Arc cosine of floats and complex numbers."""
    return _unary(elementwise.acos, operand, result_accuracy)


@documented
def Acosh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Inverse hyperbolic cosine of floats and complex numbers."""
    return _unary(elementwise.acosh, operand, result_accuracy)


@documented
def Asin(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Arc sine of floats and complex numbers."""
    return _unary(elementwise.asin, operand, result_accuracy)


@documented
def Asinh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Inverse hyperbolic sine of floats and complex numbers."""
    return _unary(elementwise.asinh, operand, result_accuracy)


@documented
def Atan(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Arc tangent of floats and complex numbers."""
    return _unary(elementwise.atan, operand, result_accuracy)


@documented
def Atanh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Inverse hyperbolic tangent of floats and complex numbers."""
    return _unary(elementwise.atanh, operand, result_accuracy)


@documented
def Cosh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Hyperbolic cosine of floats and complex numbers."""
    return _unary(elementwise.cosh, operand, result_accuracy)


@documented
def Sinh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Hyperbolic sine of floats and complex numbers."""
    return _unary(elementwise.sinh, operand, result_accuracy)


@documented
def Round(operand: XlaOp) -> XlaOp:
    """The same as RoundNearestAfz."""
    return RoundNearestAfz(operand)


@documented
def LogicalNot(operand: XlaOp) -> XlaOp:
    """The older name of Not."""
    return Not(operand)


@documented
def Conj(operand: XlaOp) -> XlaOp:
    """Conjugate of complex numbers; a float is its own."""
    return Complex(Real(operand), Neg(Imag(operand))) if operand.element_type.is_complex else Real(operand)


@documented
def Square(operand: XlaOp) -> XlaOp:
    """``x * x``, of the types that `Mul` takes.

    Of a complex number ``(x - y) (x + y) + 2 x y i``: the real part has no difference of squares, which overflow and cancel.
    """
    if not operand.element_type.is_complex:
        return Mul(operand, operand)
    x, y = Real(operand), Imag(operand)
    largest = float(np.finfo(x.element_type.numpy).max)
    # Of parts of equal magnitude one factor is 0, which times an overflowed one would be NaN.
    difference, total = (Max(Min(part, largest), -largest) for part in (Sub(x, y), Add(x, y)))
    return Complex(Mul(difference, total), Mul(2.0, Mul(x, y)))


@documented
def Reciprocal(operand: XlaOp) -> XlaOp:
    """``1 / x``, of the types that `Div` takes."""
    return Div(1, operand)


# ------------------------------------------------------------------------------------------- two operands


@documented
def Add(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Sum of any element types; integers wrap, PRED is disjunction."""
    return _binary(elementwise.add, lhs, rhs, broadcast_dimensions)


@documented
def Sub(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Difference of integers (which wrap), floats and complex numbers."""
    return _binary(elementwise.subtract, lhs, rhs, broadcast_dimensions)


@documented
def Mul(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Product of any element types; integers wrap, PRED is conjunction."""
    return _binary(elementwise.multiply, lhs, rhs, broadcast_dimensions)


@documented
def Div(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Quotient of integers, floats and complex numbers.

    Integers truncate toward zero; x / 0 is -1 or, unsigned, has all bits set; MIN / -1 is MIN.
    """
    return _binary(elementwise.divide, lhs, rhs, broadcast_dimensions)


@documented
def Rem(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Remainder with the sign of the dividend, of integers and floats; for integers x % 0 is x."""
    return _binary(elementwise.remainder, lhs, rhs, broadcast_dimensions)


@documented
def Max(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Larger of two, any element types; NaN where either is NaN; complex numbers in lexicographic order."""
    return _binary(elementwise.maximum, lhs, rhs, broadcast_dimensions)


@documented
def Min(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Smaller of two, any element types; NaN where either is NaN; complex numbers in lexicographic order."""
    return _binary(elementwise.minimum, lhs, rhs, broadcast_dimensions)


@documented
def Pow(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Power of integers (which wrap; 0 for a negative exponent unless the base is 1 or -1), floats and complex numbers."""
    return _binary(elementwise.power, lhs, rhs, broadcast_dimensions)


@documented
def Atan2(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Angle of the point (rhs, lhs), of floats and complex numbers."""
    return _binary(elementwise.atan2, lhs, rhs, broadcast_dimensions)


@documented
def And(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Bitwise conjunction of integers, logical of PRED."""
    return _binary(elementwise.and_, lhs, rhs, broadcast_dimensions)


@documented
def Or(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Bitwise disjunction of integers, logical of PRED."""
    return _binary(elementwise.or_, lhs, rhs, broadcast_dimensions)


@documented
def Xor(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Bitwise exclusive disjunction of integers, logical of PRED."""
    return _binary(elementwise.xor, lhs, rhs, broadcast_dimensions)


@documented
def ShiftLeft(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers shifted left. The amount counts as unsigned; one of the width or more gives 0."""
    return _binary(elementwise.shift_left, lhs, rhs, broadcast_dimensions)


@documented
def ShiftRightArithmetic(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers shifted right with copies of the top bit coming in; the amount counts as unsigned."""
    return _binary(elementwise.shift_right_arithmetic, lhs, rhs, broadcast_dimensions)


@documented
def ShiftRightLogical(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Integers shifted right with zeros coming in; the amount counts as unsigned, one of the width or more gives 0."""
    return _binary(elementwise.shift_right_logical, lhs, rhs, broadcast_dimensions)


@documented
def Complex(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Complex numbers of real parts `lhs` and imaginary parts `rhs`: C64 of F32, C128 of F64."""
    return _binary(elementwise.complex_, lhs, rhs, broadcast_dimensions)


@documented
def Mulhi(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """Upper half of the product of twice the width, of integers."""
    return _binary(elementwise.mulhi, lhs, rhs, broadcast_dimensions)


@documented
def LogicalAnd(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The older name of And."""
    return And(lhs, rhs, broadcast_dimensions)


@documented
def LogicalOr(lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
    """The older name of Or."""
    return Or(lhs, rhs, broadcast_dimensions)
