"""Arithmetic, comparisons and functions element by element.

Where torch and XLA's op of the same name differ, a rule spells out what torch does: signs of zeros and NaNs, the sides of a bound
on which a gradient is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import PRED, S16, S32, S64, PrimitiveType
from ..functions.hlo_builder import XlaOp
from .inverses import INVERSES
from .operator_rules import rule
from .values import Number, Value, aligned, cast, full, is_number, magnitude, promoted, wide

# ------------------------------------------------------------------------------------------- functions of one operand


def _floating(names: str, function: Callable[[XlaOp], XlaOp]) -> None:
    """Functions whose result is floating, of integers too."""

    @rule(*names.split())
    def apply(self: XlaOp, result: Shape) -> XlaOp:
        return function(cast(self, result.element_type))


def _log10(x: XlaOp) -> XlaOp:
    return ops.Log(x) * (1 / math.log(10))


def _log2(x: XlaOp) -> XlaOp:
    return ops.Log(x) * (1 / math.log(2))


def _exp2(x: XlaOp) -> XlaOp:
    return ops.Pow(full(x.builder, 2, x.shape), x)


def signed_digamma(x: XlaOp) -> XlaOp:
    """At a zero infinite, of the other sign."""
    return ops.Select(ops.Eq(x, 0), ops.Neg(ops.Reciprocal(x)), ops.Digamma(x))


for _name, _function in {
        **INVERSES, "atan": ops.Atan, "cos": ops.Cos, "erf": ops.Erf, "erfc": ops.Erfc, "erfinv": ops.ErfInv, "exp": ops.Exp,
        "exp2": _exp2, "expm1": ops.Expm1, "lgamma": ops.Lgamma, "digamma": signed_digamma, "log": ops.Log, "log1p": ops.Log1p,
        "log10": _log10, "log2": _log2, "reciprocal": ops.Reciprocal, "rsqrt": ops.Rsqrt, "sigmoid": ops.Logistic,
        "sin": ops.Sin, "sqrt": ops.Sqrt, "tan": ops.Tan, "tanh": ops.Tanh}.items():
    _floating(_name, _function)


def _rounding(name: str, function: Callable[[XlaOp], XlaOp]) -> None:
    """Functions that leave integers as they are."""

    @rule(name)
    def apply(self: XlaOp) -> XlaOp:
        return function(self) if self.element_type.is_floating else self


def truncated(x: XlaOp) -> XlaOp:
    return ops.Select(ops.Lt(x, 0), ops.Ceil(x), ops.Floor(x))


for _name, _function in {"ceil": ops.Ceil, "floor": ops.Floor, "round": ops.RoundNearestEven, "trunc": truncated}.items():
    _rounding(_name, _function)


@rule("abs")
def _abs(self: XlaOp) -> XlaOp:
    return self if self.element_type.is_unsigned or self.element_type.is_pred else magnitude(self)


@rule("neg")
def _neg(self: XlaOp) -> XlaOp:
    return ops.Neg(self)


@rule("sign", "sgn")
def _sign(self: XlaOp) -> XlaOp:
    """Of NaN it is 0, as torch has it, unless it is complex."""
    if self.element_type.is_complex:
        return ops.Sign(self)
    if self.element_type.is_pred:
        return self
    if self.element_type.is_unsigned:
        return cast(ops.Ne(self, 0), self.element_type)
    if not self.element_type.is_floating:
        return ops.Sign(self)
    return ops.Select(_is_nan(self), full(self.builder, 0, self.shape), ops.Sign(self))


@rule("isnan")
def _isnan(self: XlaOp) -> XlaOp:
    return _is_nan(self)


def _is_nan(x: XlaOp) -> XlaOp:
    return ops.Ne(x, x)


@rule("isinf")
def _isinf(self: XlaOp) -> XlaOp:
    if not self.element_type.is_differentiable:
        return full(self.builder, False, self.shape.with_element_type(PRED))
    parts = [ops.Real(self), ops.Imag(self)] if self.element_type.is_complex else [self]
    found = [ops.Eq(ops.Abs(part), math.inf) for part in parts]
    return found[0] if len(found) == 1 else ops.Or(*found)


@rule("bitwise_not")
def _bitwise_not(self: XlaOp) -> XlaOp:
    return ops.Not(self)


@rule("logical_not")
def _logical_not(self: XlaOp) -> XlaOp:
    return ops.Not(cast(self, PRED))


# ------------------------------------------------------------------------------------------- arithmetic


@rule("add.Tensor", "add.Scalar")
def _add(self: XlaOp, other: Value, alpha: Value, result: Shape) -> XlaOp:
    left, right = _both(result, self, other)
    return (ops.Or if result.element_type.is_pred else ops.Add)(left, _scaled(right, alpha))


@rule("sub.Tensor", "sub.Scalar")
def _sub(self: XlaOp, other: Value, alpha: Value, result: Shape) -> XlaOp:
    left, right = _both(result, self, other)
    return ops.Sub(left, _scaled(right, alpha))


@rule("mul.Tensor", "mul.Scalar")
def _mul(self: XlaOp, other: Value, result: Shape) -> XlaOp:
    return (ops.And if result.element_type.is_pred else ops.Mul)(*_both(result, self, other))


def _both(result: Shape, *values: Value) -> list[XlaOp]:
    return aligned(result.element_type, *values, sizes=result.dimensions)


def _scaled(x: XlaOp, alpha: Value) -> XlaOp:
    if is_number(alpha, 1) and not isinstance(alpha, bool):
        return x
    return ops.And(x, full(x.builder, alpha, x.shape)) if x.element_type.is_pred else ops.Mul(
        x, full(x.builder, alpha, x.shape))


@rule("div.Tensor", "div.Scalar")
def _div(self: XlaOp, other: Value, result: Shape) -> XlaOp:
    return ops.Div(*_both(result, self, other))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(self: XlaOp, other: Value, rounding_mode: str | None, result: Shape) -> XlaOp:
    left, right = _both(result, self, other)
    if rounding_mode is None:
        return ops.Div(left, right)
    if rounding_mode == "trunc":
        return truncated(ops.Div(left, right)) if left.element_type.is_floating else ops.Div(left, right)
    return _floor_divided(left, right)


def _floor_divided(left: XlaOp, right: XlaOp) -> XlaOp:
    """The largest whole number under the quotient, found by the remainder, so that a quotient that rounds up is not taken."""
    if left.element_type.is_unsigned:
        return ops.Div(left, right)
    remainder = ops.Rem(left, right)
    down = ops.And(ops.Ne(remainder, 0), ops.Ne(ops.Lt(right, 0), ops.Lt(remainder, 0)))
    if not left.element_type.is_floating:
        quotient = ops.Div(left, right)
        return ops.Select(down, ops.Sub(quotient, full(left.builder, 1, left.shape)), quotient)
    exact = ops.Div(left, right)
    quotient = ops.Div(ops.Sub(left, remainder), right)
    quotient = ops.Select(down, quotient - 1, quotient)
    floor = ops.Floor(quotient)
    floor = ops.Select(ops.Gt(quotient - floor, 0.5), floor + 1, floor)
    # A quotient of 0 has the sign that the exact one has, and one by 0 is infinite or NaN.
    zero = ops.Mul(full(left.builder, 0, left.shape), exact)
    return ops.Select(ops.Eq(right, 0), exact, ops.Select(ops.Eq(quotient, 0), zero, floor))


@rule("remainder.Tensor", "remainder.Scalar")
def _remainder(self: XlaOp, other: Value, result: Shape) -> XlaOp:
    """Of the divisor's sign."""
    left, right = _both(result, self, other)
    found = ops.Rem(left, right)
    if left.element_type.is_unsigned:
        return found
    turned = ops.And(ops.Ne(found, 0), ops.Ne(ops.Lt(right, 0), ops.Lt(found, 0)))
    return ops.Select(turned, ops.Add(found, right), found)


@rule("fmod.Tensor", "fmod.Scalar")
def _fmod(self: XlaOp, other: Value, result: Shape) -> XlaOp:
    return ops.Rem(*_both(result, self, other))


@rule("pow.Tensor_Tensor", "pow.Scalar")
def _pow(self: Value, exponent: Value, result: Shape) -> XlaOp:
    return _power(*_both(result, self, exponent))


def _power(base: XlaOp, exponent: XlaOp) -> XlaOp:
    if not base.element_type.is_integral or base.element_type.is_unsigned:
        return ops.Pow(base, exponent)
    # Negative powers of integers are 0, but for those of 1 and -1.
    odd = ops.Ne(ops.And(exponent, full(base.builder, 1, base.shape)), 0)
    inverse = ops.Select(ops.Eq(base, 1), base, ops.Select(
        ops.Eq(base, -1), ops.Select(odd, base, full(base.builder, 1, base.shape)), full(base.builder, 0, base.shape)))
    return ops.Select(ops.Lt(exponent, 0), inverse, ops.Pow(base, ops.Max(exponent, 0)))


@rule("pow.Tensor_Scalar")
def _pow_number(self: XlaOp, exponent: Value, result: Shape) -> XlaOp:
    x = cast(self, result.element_type)
    if isinstance(exponent, XlaOp):
        return _power(*_both(result, x, exponent))
    if exponent == 2:
        return ops.Mul(x, x)
    if exponent == 3:
        return ops.Mul(ops.Mul(x, x), x)
    if x.element_type.is_floating and exponent in _POWERS:
        return _POWERS[exponent](x)
    return _power(*aligned(x.element_type, x, exponent))


_POWERS: dict[Number, Callable[[XlaOp], XlaOp]] = {
    0.5: ops.Sqrt, -0.5: ops.Rsqrt, -1: ops.Reciprocal, -2: lambda x: ops.Reciprocal(ops.Mul(x, x)), 1: lambda x: x}


@rule("atan2")
def _atan2(self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
    return ops.Atan2(*_both(result, self, other))


@rule("copysign.Tensor", "copysign.Scalar")
def _copysign(self: XlaOp, other: Value, result: Shape) -> XlaOp:
    """A zero or NaN has a sign, too."""
    size, sign = _both(result, self, other)
    bits = ops.BitcastConvertType(sign, {16: S16, 32: S32, 64: S64}[result.element_type.bits])
    size = ops.Abs(size)
    return ops.Select(ops.Lt(bits, 0), ops.Neg(size), size)


@rule("maximum")
def _maximum(self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
    return ops.Max(*_both(result, self, other))


@rule("minimum")
def _minimum(self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
    return ops.Min(*_both(result, self, other))


# ------------------------------------------------------------------------------------------- comparisons and logic


def _comparison(name: str, function: Callable[[XlaOp, XlaOp], XlaOp]) -> None:
    @rule(f"{name}.Tensor", f"{name}.Scalar")
    def apply(self: XlaOp, other: Value) -> XlaOp:
        if not isinstance(other, XlaOp):
            decided = _beyond(self.element_type, other)
            if decided is not None:
                return full(self.builder, _DECIDED[name](decided), self.shape.with_element_type(PRED))
        return function(*aligned(promoted(self, other), self, other))


def _beyond(element_type: PrimitiveType, number: Number) -> int | None:
    """On which side of an integer type's numbers a number lies: above is 1, below is -1. Negative ones are none below those of an
    unsigned type: torch takes them for the number of the same bits."""
    if not element_type.is_integral or isinstance(number, (bool, float, complex)):
        return None
    low = -(1 << (element_type.bits - (not element_type.is_unsigned)))
    high = (1 << (element_type.bits - (not element_type.is_unsigned))) - 1
    return None if low <= number <= high else 1 if number > high else -1


_DECIDED: dict[str, Callable[[int], bool]] = {
    "eq": lambda side: False, "ne": lambda side: True, "lt": lambda side: side > 0, "le": lambda side: side > 0,
    "gt": lambda side: side < 0, "ge": lambda side: side < 0}

for _name, _compare in {"eq": ops.Eq, "ne": ops.Ne, "lt": ops.Lt, "le": ops.Le, "gt": ops.Gt, "ge": ops.Ge}.items():
    _comparison(_name, _compare)


def _bitwise(name: str, function: Callable[[XlaOp, XlaOp], XlaOp]) -> None:
    @rule(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar")
    def bits(self: XlaOp, other: Value, result: Shape) -> XlaOp:
        return function(*_both(result, self, other))

    @rule(f"logical_{name}")
    def logic(self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
        return function(*aligned(PRED, self, other, sizes=result.dimensions))


for _name, _logic in {"and": ops.And, "or": ops.Or, "xor": ops.Xor}.items():
    _bitwise(_name, _logic)


@rule("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "bitwise_left_shift.Scalar_Tensor", "__lshift__.Tensor",
      "__lshift__.Scalar")
def _left_shift(self: Value, other: Value, result: Shape) -> XlaOp:
    return ops.ShiftLeft(*_both(result, self, other))


@rule("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "bitwise_right_shift.Scalar_Tensor",
      "__rshift__.Tensor", "__rshift__.Scalar")
def _right_shift(self: Value, other: Value, result: Shape) -> XlaOp:
    shift = ops.ShiftRightLogical if result.element_type.is_unsigned else ops.ShiftRightArithmetic
    return shift(*_both(result, self, other))


@rule("where.self")
def _where(condition: XlaOp, self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
    chosen, = aligned(PRED, condition, sizes=result.dimensions)
    return ops.Select(chosen, *_both(result, self, other))


# ------------------------------------------------------------------------------------------- bounds and activations


@rule("clamp", "clamp.Tensor")
def _clamp(self: XlaOp, min: Value | None, max: Value | None, result: Shape) -> XlaOp:
    """On a bound the gradient is the operand's, which `Clamp` has not. A bound that is NaN gives NaN."""
    found, = _both(result, self)
    for bound, beyond in ((min, ops.Lt), (max, ops.Gt)):
        if bound is not None:
            limit = aligned(result.element_type, bound, sizes=result.dimensions)[0] if isinstance(
                bound, XlaOp) else full(self.builder, bound, result)
            outside = beyond(found, limit)
            if isinstance(bound, XlaOp) or bound != bound:
                outside = ops.And(ops.Eq(found, found), ops.Or(outside, _is_nan(limit)))
            found = ops.Select(outside, limit, found)
    return found


@rule("relu")
def _relu(self: XlaOp) -> XlaOp:
    return ops.Select(ops.Le(self, 0), full(self.builder, 0, self.shape), self)


@rule("hardtanh")
def _hardtanh(self: XlaOp, min_val: float, max_val: float) -> XlaOp:
    low, high = (full(self.builder, v, self.shape) for v in (min_val, max_val))
    return ops.Select(ops.Le(self, low), low, ops.Select(ops.Ge(self, high), high, self))


@rule("leaky_relu")
def _leaky_relu(self: XlaOp, negative_slope: Value) -> XlaOp:
    return ops.Select(ops.Gt(self, 0), self, ops.Mul(self, full(self.builder, negative_slope, self.shape)))


@rule("elu")
def _elu(self: XlaOp, alpha: Value, scale: Value, input_scale: Value) -> XlaOp:
    def times(x: XlaOp, number: Value) -> XlaOp:
        return ops.Mul(x, full(x.builder, number, x.shape))

    x = wide(self)
    # Of what is not chosen, the slope would overflow.
    negative = ops.Select(ops.Gt(x, 0), full(x.builder, 0, x.shape), x)
    below = times(ops.Expm1(times(negative, input_scale)), alpha * scale)
    return cast(ops.Select(ops.Gt(x, 0), times(x, scale), below), self.element_type)


@rule("gelu")
def _gelu(self: XlaOp, approximate: str) -> XlaOp:
    x = wide(self)
    if approximate == "none":
        found = x * 0.5 * (ops.Erf(x * math.sqrt(0.5)) + 1.0)
    elif approximate == "tanh":
        found = x * 0.5 * (ops.Tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)
    else:
        raise UnsupportedError("no such approximation", subject="gelu", got=approximate, expected="none or tanh")
    return cast(found, self.element_type)
