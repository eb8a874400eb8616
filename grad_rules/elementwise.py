"""Gradients of elementwise ops: one line of calculus each.

Complex operands follow torch: the cotangent of a holomorphic f is ``ct * conj(f'(x))``; `conj` is free for real values.
Ties follow JAX: max and min share the cotangent half and half.
Where a product would meet zero times infinity, a select takes its place, so no NaN appears where JAX has none.
"""

from __future__ import annotations

import math

from grad_rules._calculus import conj, masked, zeros
from grad_rules._table import Rule, vjp, zero
from xla_torch.functions import (
    Abs,
    And,
    Complex,
    Cos,
    Cosh,
    Eq,
    Exp,
    Floor,
    Ge,
    Gt,
    Imag,
    Log,
    Pow,
    Real,
    Rsqrt,
    Select,
    Sign,
    Sin,
    Sinh,
)
from xla_torch.functions.hlo_builder import XlaOp

# ---------------------------------------------------------------------------------------- exponentials and roots

vjp("exponential", operand=lambda ct, out: ct * conj(out))
vjp("exponential-minus-one", operand=lambda ct, out: ct * conj(out + 1))
vjp("log", operand=lambda ct, operand: ct / conj(operand))
vjp("log-plus-one", operand=lambda ct, operand: ct / conj(operand + 1))
vjp("logistic", operand=lambda ct, out: ct * conj(out * (1 - out)))
vjp("sqrt", operand=lambda ct, out: ct * conj(0.5 / out))
vjp("rsqrt", operand=lambda ct, out, operand: ct * conj(-0.5 * (out / operand)))
vjp("cbrt", operand=lambda ct, out: ct * (Pow(out, -2.0) / 3))
vjp("erf", operand=lambda ct, operand: ct * (2 / math.sqrt(math.pi) * Exp(-(operand * operand))))

# ------------------------------------------------------------------------------------------- circle and hyperbola

vjp("sine", operand=lambda ct, operand: ct * conj(Cos(operand)))
vjp("cosine", operand=lambda ct, operand: -(ct * conj(Sin(operand))))
vjp("tan", operand=lambda ct, out: ct * conj(1 + out * out))
vjp("asin", operand=lambda ct, operand: ct * conj(Rsqrt(1 - operand * operand)))
vjp("acos", operand=lambda ct, operand: -(ct * conj(Rsqrt(1 - operand * operand))))
vjp("atan", operand=lambda ct, operand: ct / conj(1 + operand * operand))
vjp("sinh", operand=lambda ct, operand: ct * conj(Cosh(operand)))
vjp("cosh", operand=lambda ct, operand: ct * conj(Sinh(operand)))
# (1 + out) * (1 - out), factored so that the small factor of a saturated tanh is exact
vjp("tanh", operand=lambda ct, out: (ct + ct * conj(out)) * conj(1 - out))
vjp("asinh", operand=lambda ct, operand: ct * conj(Rsqrt(operand * operand + 1)))
vjp("acosh", operand=lambda ct, operand: ct * (conj(Rsqrt(operand - 1) * Rsqrt(operand + 1)) if operand.element_type.is_complex
    else Select(Gt(operand, zeros(operand)), Rsqrt(operand - 1) * Rsqrt(operand + 1), Rsqrt((operand - 1) * (operand + 1)))))
vjp("atanh", operand=lambda ct, operand: ct / conj((1 + operand) * (1 - operand)))


def _over_square(this: XlaOp, that: XlaOp) -> XlaOp:
    """``this / (this^2 + that^2)`` by the ratio of both, whose square neither overflows nor vanishes."""
    larger = Gt(Abs(this), Abs(that))
    size, ratio = Select(larger, this, that), Select(larger, that, this) / Select(larger, this, that)
    inverse = 1 / (size * (1 + ratio * ratio))
    return Select(larger, inverse, ratio * inverse)


vjp("atan2",
    lhs=lambda ct, lhs, rhs: ct * conj(_over_square(rhs, lhs)),
    rhs=lambda ct, lhs, rhs: -(ct * conj(_over_square(lhs, rhs))))

# ----------------------------------------------------------------------------------------------------- arithmetic

vjp("negate", operand=lambda ct: -ct)
vjp("add", lhs=lambda ct: ct, rhs=lambda ct: ct)
vjp("subtract", lhs=lambda ct: ct, rhs=lambda ct: -ct)
vjp("multiply", lhs=lambda ct, rhs: ct * conj(rhs), rhs=lambda ct, lhs: ct * conj(lhs))
vjp("divide", lhs=lambda ct, rhs: ct / conj(rhs), rhs=lambda ct, out, rhs: -(ct * conj(out / rhs)))


def _whole_quotient(lhs: XlaOp, rhs: XlaOp) -> XlaOp:
    """``trunc(lhs / rhs)``: the remainder is ``lhs - trunc(lhs / rhs) * rhs``."""
    quotient = lhs / rhs
    return Sign(quotient) * Floor(Abs(quotient))


vjp("remainder", lhs=lambda ct: ct, rhs=lambda ct, lhs, rhs: -(ct * _whole_quotient(lhs, rhs)))


def _power_base(ct: XlaOp, lhs: XlaOp, rhs: XlaOp) -> XlaOp:
    """``y * x^(y-1)``. At x = y = 0 that is zero times infinity; the exponent 0 makes it zero, as the limit in x is."""
    both_zero = And(Eq(lhs, zeros(lhs)), Eq(rhs, zeros(rhs)))
    return ct * conj(rhs * Pow(lhs, Select(both_zero, zeros(rhs), rhs - 1)))


def _power_exponent(ct: XlaOp, out: XlaOp, lhs: XlaOp, rhs: XlaOp) -> XlaOp:
    """``x^y * log(x)``, with 0^y constant for y >= 0: there the logarithm is taken of 1."""
    base_zero = Eq(lhs, zeros(lhs))
    constant = And(base_zero, Ge(rhs, zeros(rhs))) if not rhs.element_type.is_complex else base_zero
    return ct * conj(out * Log(Select(constant, zeros(lhs) + 1, lhs)))


vjp("power", lhs=_power_base, rhs=_power_exponent)


def _chosen(ct: XlaOp, out: XlaOp, this: XlaOp, that: XlaOp) -> XlaOp:
    """max and min: to the operand that is the result, half where both are."""
    return masked(Eq(this, out), Select(Eq(this, that), ct * 0.5, ct))


_EXTREME: dict[str, Rule] = {
    "lhs": lambda ct, out, lhs, rhs: _chosen(ct, out, lhs, rhs), "rhs": lambda ct, out, lhs, rhs: _chosen(ct, out, rhs, lhs)}
vjp("maximum", **_EXTREME)
vjp("minimum", **_EXTREME)

# -------------------------------------------------------------------------------------- size, direction and parts


def _widened(ct: XlaOp, like: XlaOp) -> XlaOp:
    """A real cotangent as a complex one where the operand is complex."""
    return Complex(ct, zeros(ct)) if like.element_type.is_complex else ct


def _direction(ct: XlaOp, out: XlaOp, operand: XlaOp) -> XlaOp | None:
    """sign(z) = z/|z| turns with z but does not grow with it; the sign of a real number is a step."""
    if not operand.element_type.is_complex:
        return None
    length = Abs(operand)
    across = ct - out * _widened(Real(ct * conj(out)), out)
    nonzero = Gt(length, zeros(length))
    return masked(nonzero, across / _widened(Select(nonzero, length, zeros(length) + 1), out))


def _length(ct: XlaOp, operand: XlaOp) -> XlaOp:
    """Along z/|z|, nothing at the origin; of a real number to one side or the other, at 0 to the right as in JAX."""
    if operand.element_type.is_complex:
        return _widened(ct, operand) * Sign(operand)
    return Select(Ge(operand, zeros(operand)), ct, -ct)


vjp("abs", operand=_length)
vjp("sign", operand=_direction)
vjp("complex", lhs=lambda ct: Real(ct), rhs=lambda ct: Imag(ct))
vjp("real", operand=lambda ct, operand: _widened(ct, operand))
vjp("imag", operand=lambda ct, operand: Complex(zeros(ct), ct) if operand.element_type.is_complex else None)

zero("floor", "ceil", "round-nearest-afz", "round-nearest-even", "is-finite")
zero("and", "or", "xor", "not", "shift-left", "shift-right-arithmetic", "shift-right-logical")
zero("popcnt", "count-leading-zeros", "mulhi")
