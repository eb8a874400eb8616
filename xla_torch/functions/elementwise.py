"""Elementwise functions of one operand, under their documented names.

Documents: operation semantics, the sections of the functions' own names (in older documents elementwise unary functions). Results
have the operand's dimensions and, unless said otherwise, its element type. All raise InvalidArgument for element types that they
do not take. `result_accuracy` is a hint.
"""

from __future__ import annotations

import numpy as np

from ..hlo.attributes import ResultAccuracy
from ..opcodes import elementwise
from ._documented import documented
from .elementwise_binary import Add, Complex, Div, Max, Min, Mul, Sub
from .hlo_builder import XlaOp, lift_operands

__all__ = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cbrt", "Ceil", "Clz", "Conj", "Cos", "Cosh", "Erf",
    "Exp", "Expm1", "Floor", "Imag", "IsFinite", "Log", "Log1p", "LogicalNot", "Logistic", "Neg", "Not",
    "PopulationCount", "Real", "Reciprocal", "ResultAccuracy", "Round", "RoundNearestAfz", "RoundNearestEven", "Rsqrt",
    "Sign", "Sin", "Sinh", "Sqrt", "Square", "Tan", "Tanh",
]


def _unary(opcode: str, operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    (operand,) = lift_operands(opcode, operand)
    return operand.builder.add(opcode, [operand], {} if result_accuracy is None else {"result_accuracy": result_accuracy})


@documented
def Abs(operand: XlaOp) -> XlaOp:
    """Magnitude of signed integers, floats and complex numbers (of which the result is the component type).
    Of the smallest integer it is that integer itself.

    >>> ops.Abs(torch.tensor([-1.5, 2.0]))
    tensor([1.5000, 2.0000])
    """
    return _unary(elementwise.abs_, operand)


@documented
def Cbrt(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Real cube root, of floats.

    >>> ops.Cbrt(torch.tensor([8.0, -27.0]))
    tensor([ 2., -3.])
    """
    return _unary(elementwise.cbrt, operand, result_accuracy)


@documented
def Ceil(operand: XlaOp) -> XlaOp:
    """Smallest integer not below, of floats.

    >>> ops.Ceil(torch.tensor([1.2, -1.2]))
    tensor([ 2., -1.])
    """
    return _unary(elementwise.ceil, operand)


@documented
def Clz(operand: XlaOp) -> XlaOp:
    """Number of zero bits above the highest set bit, of integers; the bit width for 0.

    >>> ops.Clz(torch.tensor([1, 0, -1], dtype=torch.int32))
    tensor([31, 32,  0], dtype=torch.int32)
    """
    return _unary(elementwise.count_leading_zeros, operand)


@documented
def Cos(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Cosine of floats and complex numbers.

    >>> ops.Cos(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.5403])
    """
    return _unary(elementwise.cosine, operand, result_accuracy)


@documented
def Erf(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Error function ``2 / sqrt(pi) * integral of exp(-t*t) from 0 to x``, of floats.

    >>> ops.Erf(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """
    return _unary(elementwise.erf, operand, result_accuracy)


@documented
def Exp(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Exponential of floats and complex numbers.

    >>> ops.Exp(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """
    return _unary(elementwise.exponential, operand, result_accuracy)


@documented
def Expm1(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """``exp(x) - 1``, accurate near 0, of floats and complex numbers.

    >>> ops.Expm1(torch.tensor([0.0, 1e-5]))
    tensor([0.0000e+00, 1.0000e-05])
    """
    return _unary(elementwise.exponential_minus_one, operand, result_accuracy)


@documented
def Floor(operand: XlaOp) -> XlaOp:
    """Largest integer not above, of floats.

    >>> ops.Floor(torch.tensor([1.2, -1.2]))
    tensor([ 1., -2.])
    """
    return _unary(elementwise.floor, operand)


@documented
def Imag(operand: XlaOp) -> XlaOp:
    """Imaginary part of complex numbers, in their component type; zeros for floats.

    >>> ops.Imag(torch.tensor([1 + 2j, 3 - 4j]))
    tensor([ 2., -4.])
    """
    return _unary(elementwise.imag, operand)


@documented
def IsFinite(operand: XlaOp) -> XlaOp:
    """PRED: neither infinite nor NaN, of floats.

    >>> ops.IsFinite(torch.tensor([1.0, float("inf"), float("nan")]))
    tensor([ True, False, False])
    """
    return _unary(elementwise.is_finite, operand)


@documented
def Log(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Natural logarithm of floats and complex numbers.

    >>> ops.Log(torch.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """
    return _unary(elementwise.log, operand, result_accuracy)


@documented
def Log1p(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """``log(1 + x)``, accurate near 0, of floats and complex numbers.

    >>> ops.Log1p(torch.tensor([0.0, 1e-5]))
    tensor([0.0000e+00, 9.9999e-06])
    """
    return _unary(elementwise.log_plus_one, operand, result_accuracy)


@documented
def Logistic(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """``1 / (1 + exp(-x))`` without overflow, of floats and complex numbers.

    >>> ops.Logistic(torch.tensor([0.0, 2.0, -100.0]))
    tensor([0.5000, 0.8808, 0.0000])
    """
    return _unary(elementwise.logistic, operand, result_accuracy)


@documented
def Neg(operand: XlaOp) -> XlaOp:
    """Negation of integers (which wrap), floats and complex numbers.

    >>> ops.Neg(torch.tensor([1.0, -2.0]))
    tensor([-1.,  2.])
    """
    return _unary(elementwise.negate, operand)


@documented
def Not(operand: XlaOp) -> XlaOp:
    """Bitwise complement of integers, logical complement of PRED.

    >>> ops.Not(torch.tensor([0, 5], dtype=torch.int32))
    tensor([-1, -6], dtype=torch.int32)
    """
    return _unary(elementwise.not_, operand)


@documented
def PopulationCount(operand: XlaOp) -> XlaOp:
    """Number of set bits, of integers.

    >>> ops.PopulationCount(torch.tensor([0, 5, -1], dtype=torch.int32))
    tensor([ 0,  2, 32], dtype=torch.int32)
    """
    return _unary(elementwise.popcnt, operand)


@documented
def Real(operand: XlaOp) -> XlaOp:
    """Real part of complex numbers, in their component type; a float is its own.

    >>> ops.Real(torch.tensor([1 + 2j, 3 - 4j]))
    tensor([1., 3.])
    """
    return _unary(elementwise.real, operand)


@documented
def RoundNearestAfz(operand: XlaOp) -> XlaOp:
    """Nearest integer, halfway cases away from zero, of floats.

    >>> ops.RoundNearestAfz(torch.tensor([0.5, 1.5, -2.5]))
    tensor([ 1.,  2., -3.])
    """
    return _unary(elementwise.round_nearest_afz, operand)


@documented
def RoundNearestEven(operand: XlaOp) -> XlaOp:
    """Nearest integer, halfway cases to the even one, of floats.

    >>> ops.RoundNearestEven(torch.tensor([0.5, 1.5, -2.5]))
    tensor([ 0.,  2., -2.])
    """
    return _unary(elementwise.round_nearest_even, operand)


@documented
def Rsqrt(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Reciprocal of the square root of floats and complex numbers.

    >>> ops.Rsqrt(torch.tensor([4.0, 0.0]))
    tensor([0.5000,    inf])
    """
    return _unary(elementwise.rsqrt, operand, result_accuracy)


@documented
def Sign(operand: XlaOp) -> XlaOp:
    """-1, 0 or 1 for signed integers and floats (signed zeros and NaN stay); ``z / |z|`` for complex numbers, 0 for 0.

    >>> ops.Sign(torch.tensor([-3.0, -0.0, 2.0]))
    tensor([-1., -0.,  1.])
    """
    return _unary(elementwise.sign, operand)


@documented
def Sin(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Sine of floats and complex numbers.

    >>> ops.Sin(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8415])
    """
    return _unary(elementwise.sine, operand, result_accuracy)


@documented
def Sqrt(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Square root of floats and complex numbers.

    >>> ops.Sqrt(torch.tensor([4.0, -1.0]))
    tensor([2., nan])
    """
    return _unary(elementwise.sqrt, operand, result_accuracy)


@documented
def Tan(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Tangent of floats and complex numbers.

    >>> ops.Tan(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5574])
    """
    return _unary(elementwise.tan, operand, result_accuracy)


@documented
def Tanh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Hyperbolic tangent of floats and complex numbers.

    >>> ops.Tanh(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """
    return _unary(elementwise.tanh, operand, result_accuracy)


@documented
def Acos(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Arc cosine of floats and complex numbers.

    >>> ops.Acos(torch.tensor([1.0, 0.0]))
    tensor([0.0000, 1.5708])
    """
    return _unary(elementwise.acos, operand, result_accuracy)


@documented
def Acosh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Inverse hyperbolic cosine of floats and complex numbers.

    >>> ops.Acosh(torch.tensor([1.0, 2.0]))
    tensor([0.0000, 1.3170])
    """
    return _unary(elementwise.acosh, operand, result_accuracy)


@documented
def Asin(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Arc sine of floats and complex numbers.

    >>> ops.Asin(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5708])
    """
    return _unary(elementwise.asin, operand, result_accuracy)


@documented
def Asinh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Inverse hyperbolic sine of floats and complex numbers.

    >>> ops.Asinh(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8814])
    """
    return _unary(elementwise.asinh, operand, result_accuracy)


@documented
def Atan(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Arc tangent of floats and complex numbers.

    >>> ops.Atan(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7854])
    """
    return _unary(elementwise.atan, operand, result_accuracy)


@documented
def Atanh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Inverse hyperbolic tangent of floats and complex numbers.

    >>> ops.Atanh(torch.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5493])
    """
    return _unary(elementwise.atanh, operand, result_accuracy)


@documented
def Cosh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Hyperbolic cosine of floats and complex numbers.

    >>> ops.Cosh(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 1.5431])
    """
    return _unary(elementwise.cosh, operand, result_accuracy)


@documented
def Sinh(operand: XlaOp, result_accuracy: ResultAccuracy | None = None) -> XlaOp:
    """Hyperbolic sine of floats and complex numbers.

    >>> ops.Sinh(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.1752])
    """
    return _unary(elementwise.sinh, operand, result_accuracy)


@documented
def Round(operand: XlaOp) -> XlaOp:
    """The same as RoundNearestAfz.

    >>> ops.Round(torch.tensor([0.5, 1.5, -2.5]))
    tensor([ 1.,  2., -3.])
    """
    return RoundNearestAfz(operand)


@documented
def LogicalNot(operand: XlaOp) -> XlaOp:
    """The older name of Not.

    >>> ops.LogicalNot(torch.tensor([True, False]))
    tensor([False,  True])
    """
    return Not(operand)


@documented
def Conj(operand: XlaOp) -> XlaOp:
    """Conjugate of complex numbers; a float is its own.

    >>> ops.Conj(torch.tensor([1 + 2j, 3 - 4j]))
    tensor([1.-2.j, 3.+4.j])
    """
    return Complex(Real(operand), Neg(Imag(operand))) if operand.element_type.is_complex else Real(operand)


@documented
def Square(operand: XlaOp) -> XlaOp:
    """``x * x``, of the types that `Mul` takes.

    Of a complex number ``(x - y) (x + y) + 2 x y i``: the real part has no difference of squares, which overflow and cancel.

    >>> ops.Square(torch.tensor([3.0, -4.0]))
    tensor([ 9., 16.])
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
    """``1 / x``, of the types that `Div` takes.

    >>> ops.Reciprocal(torch.tensor([2.0, 4.0]))
    tensor([0.5000, 0.2500])
    """
    return Div(1, operand)
