"""Elementwise kernels of floating and complex numbers where torch has no function, or one with another meaning.

Integer kernels stand in `integers.py`, conversions in `convert.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..opcodes import elementwise as ops
from .calls import elementwise, elementwise_as, elementwise_in_c
from .indexing import on_host
from .integers import Operand, as_tensors

# ------------------------------------------------------------------------------- real


@elementwise
def sign(x: torch.Tensor) -> torch.Tensor:
    """-1, 0 or 1; zeros keep their sign and NaN stays NaN."""
    return torch.where(x.abs() > 0, torch.sign(x), x)


@elementwise
def round_half_away(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest integer, halfway cases away from zero; keeps -0."""
    whole = torch.trunc(x)
    # x - whole is exact, which x + 0.5 is not: 0.49999997 + 0.5 is 1.
    return whole + torch.copysign(((x - whole).abs() >= 0.5).to(x.dtype), x)


@elementwise
def cube_root(x: torch.Tensor) -> torch.Tensor:
    """The real cube root, negative for negative x; keeps signed zeros and infinities."""
    if x.dtype is not torch.float64:
        return torch.copysign(x.double().abs().pow(1 / 3), x).to(x.dtype)
    magnitude = x.abs()
    root = magnitude.pow(1 / 3)
    # 1/3 is not a float: one Newton step takes the error of a few units in the last place away.
    better = root - (root * root * root - magnitude) / (3 * root * root)
    return torch.copysign(torch.where(better.isfinite(), better, root), x)


@elementwise_in_c(float="{0} / {1}")
def quotient(number: float, x: torch.Tensor) -> torch.Tensor:
    """``number / x``, rounded once: torch's own operator multiplies the number with the reciprocal."""
    return torch.div(torch.full((), number, dtype=x.dtype, device=x.device), x)


@elementwise
def float_remainder(lhs: Operand, rhs: Operand) -> torch.Tensor:
    """C's fmod. torch's own gives NaN on the CPU where the quotient is beyond the largest float."""
    lhs, rhs = as_tensors(lhs, rhs)
    if rhs.dtype is not torch.float64:
        return torch.fmod(lhs.double(), rhs.double()).to(rhs.dtype)
    # Taking away multiples of multiples of the divisor first changes nothing; where these overflow, it does nothing.
    far = rhs * 2.0**700
    return torch.fmod(torch.fmod(torch.fmod(lhs, far * 2.0**700), far), rhs)


# ------------------------------------------------------------------------------- complex arithmetic
#
# torch's complex kernels multiply by 1 or subtract from 0 on the way, which turns infinite parts into NaN and -0 into 0.


@elementwise_as(ops.add)
def complex_add(lhs: Operand, rhs: Operand) -> torch.Tensor:
    """The sum, part by part."""
    a, b = _parts(lhs, rhs)
    return torch.view_as_complex(a + b)


@elementwise_as(ops.subtract)
def complex_subtract(lhs: Operand, rhs: Operand) -> torch.Tensor:
    """The difference, part by part."""
    a, b = _parts(lhs, rhs)
    return torch.view_as_complex(a - b)


@elementwise_as(ops.negate)
def complex_negate(x: torch.Tensor) -> torch.Tensor:
    """Both parts negated."""
    return torch.view_as_complex(-torch.view_as_real(x.resolve_conj()))


def _parts(lhs: Operand, rhs: Operand) -> tuple[torch.Tensor, torch.Tensor]:
    lhs, rhs = as_tensors(lhs, rhs)
    return torch.view_as_real(lhs.resolve_conj()), torch.view_as_real(rhs.resolve_conj())


@elementwise_as(ops.divide)
def complex_divide(lhs: Operand, rhs: Operand) -> torch.Tensor:
    """The quotient; by 0 and with infinite parts what C's rules say."""
    lhs, rhs = as_tensors(lhs, rhs)
    quotient = lhs / rhs
    if on_host(quotient) and _is_ordinary(lhs, rhs):
        return quotient
    a, b, c, d = lhs.real, lhs.imag, rhs.real, rhs.imag
    real, imag = a * c + b * d, b * c - a * d
    unit_a, unit_b, unit_c, unit_d = _infinite_units(a), _infinite_units(b), _infinite_units(c), _infinite_units(d)
    unknown = real.isnan() & imag.isnan()
    infinity = torch.copysign(torch.full_like(c, math.inf), c)
    overflows = (a.isinf() | b.isinf()) & c.isfinite() & d.isfinite()
    vanishes = a.isfinite() & b.isfinite() & (c.isinf() | d.isinf())
    by_zero = (c == 0) & (d == 0) & ~(a.isnan() & b.isnan())
    large_real = torch.where(unknown, math.inf * (unit_a * c + unit_b * d), real)
    large_imag = torch.where(unknown, math.inf * (unit_b * c - unit_a * d), imag)
    small_real, small_imag = 0.0 * (a * unit_c + b * unit_d), 0.0 * (b * unit_c - a * unit_d)

    def choose(by_0: torch.Tensor, large: torch.Tensor, small: torch.Tensor, ordinary: torch.Tensor) -> torch.Tensor:
        return torch.where(by_zero, by_0, torch.where(overflows, large, torch.where(vanishes, small, ordinary)))

    return torch.complex(choose(infinity * a, large_real, small_real, quotient.real),
                         choose(infinity * b, large_imag, small_imag, quotient.imag))


def _is_ordinary(lhs: torch.Tensor, rhs: torch.Tensor) -> bool:
    """Whether all quotients are of finite numbers, and by none that is 0: of these torch's are right."""
    return is_finite(lhs) and is_finite(rhs) and bool(rhs.all())


def is_finite(x: torch.Tensor) -> bool:
    """Whether all elements are, or their parts: their limits are, which one pass gives (`isfinite` and `all` take ten times as
    long)."""
    parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return not x.numel() or all(math.isfinite(limit.item()) for limit in torch.aminmax(parts))


def _infinite_units(x: torch.Tensor) -> torch.Tensor:
    """1 for an infinite part and 0 for a finite one, with the sign of the part."""
    return torch.copysign(x.isinf().to(x.dtype), x)


@elementwise_as(ops.power)
def complex_power(base: Operand, exponent: Operand) -> torch.Tensor:
    """The power; of any number to 0, and of 1, it is 1; 0 to a positive real exponent is 0, to any other exponent NaN.
    NaN also where its angle is not finite; finite real powers of positive numbers, and powers of infinity, have none."""
    base, exponent = as_tensors(base, exponent)
    a, c = base.real, exponent.real
    of_zero = torch.where((exponent.imag == 0) & (c > 0), torch.zeros_like(c), math.nan)
    angle = (torch.log(base) * exponent).imag
    result = _nan_where(~angle.isfinite(), torch.pow(base, exponent))
    is_real = (base.imag == 0) & (exponent.imag == 0) & (a > 0) & (c.isfinite() | (a.isinf() & c.isinf()))
    result = torch.where(is_real, torch.complex(torch.pow(a, c), torch.zeros_like(c)), result)
    result = torch.where(base == 0, torch.complex(of_zero, of_zero), result)
    return torch.where((base == 1) | (exponent == 0), 1.0, result)


@elementwise
def complex_atan2(y: Operand, x: Operand) -> torch.Tensor:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    y, x = as_tensors(y, x)
    return -1j * torch.log((x + 1j * y) / torch.sqrt(x * x + y * y))


# ------------------------------------------------------------------------------- complex functions

# Beside infinities and NaN these are XLA's products of functions of the parts: an angle that is not finite has no sine, and 0
# times infinity is NaN. C's rules, which torch follows, know zeros and infinities there. Elsewhere values are torch's.


def _nan_where(unknown: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value, or NaN in both parts."""
    nan = torch.full_like(value.real, math.nan)  # a complex NaN does not survive being printed in traced code
    return torch.where(unknown, torch.complex(nan, nan), value)


@elementwise_as(ops.abs_)
def complex_abs(x: torch.Tensor) -> torch.Tensor:
    """The magnitude; NaN where a part is NaN, also beside an infinite one."""
    found = x.abs()
    if on_host(found) and is_finite(found):
        return found
    return torch.where(x.isnan(), math.nan, found)


@elementwise_as(ops.cosine)
def complex_cos(x: torch.Tensor) -> torch.Tensor:
    """``cos a cosh b - sin a sinh b i``."""
    cosine = torch.cos(x)
    imag = torch.where((x.real == 0) & ~x.imag.isfinite(), math.nan, cosine.imag)
    return _nan_where(~x.real.isfinite(), torch.complex(cosine.real, imag))


@elementwise_as(ops.sine)
def complex_sin(x: torch.Tensor) -> torch.Tensor:
    """``sin a cosh b + cos a sinh b i``."""
    sine = torch.sin(x)
    real = torch.where((x.real == 0) & ~x.imag.isfinite(), math.nan, sine.real)
    return _nan_where(~x.real.isfinite(), torch.complex(real, sine.imag))


@elementwise_as(ops.tan)
def complex_tan(x: torch.Tensor) -> torch.Tensor:
    """The tangent, which far from the real axis has no angle."""
    return _nan_where(x.imag.isfinite() & ~x.real.isfinite(), torch.tan(x))


@elementwise_as(ops.tanh)
def complex_tanh(x: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent, which far from the imaginary axis has no angle."""
    return _nan_where(x.real.isfinite() & ~x.imag.isfinite(), torch.tanh(x))


@elementwise_as(ops.cosh)
def complex_cosh(x: torch.Tensor) -> torch.Tensor:
    """``cosh a cos b + sinh a sin b i``."""
    return _nan_where(~x.imag.isfinite(), torch.cosh(x))


@elementwise_as(ops.sinh)
def complex_sinh(x: torch.Tensor) -> torch.Tensor:
    """``sinh a cos b + cosh a sin b i``."""
    return _nan_where(~x.imag.isfinite(), torch.sinh(x))


@elementwise_as(ops.exponential)
def complex_exp(x: torch.Tensor) -> torch.Tensor:
    """``exp(a) (cos b + sin b i)``."""
    return _nan_where(~x.imag.isfinite(), torch.exp(x))


@elementwise_as(ops.log)
def complex_log(x: torch.Tensor) -> torch.Tensor:
    """``log |x| + arg x i``; NaN in both parts where one is NaN."""
    return _nan_where(x.isnan(), torch.log(x))


@elementwise_as(ops.sqrt)
def complex_sqrt(x: torch.Tensor) -> torch.Tensor:
    """The square root with a real part not below 0; NaN in both parts where one is NaN."""
    return _nan_where(x.isnan(), torch.sqrt(x))


@elementwise_as(ops.sign)
def complex_sign(x: torch.Tensor) -> torch.Tensor:
    """x / |x|, part by part; 0 for 0, and NaN + NaN i where a part is NaN."""
    if on_host(x) and is_finite(x):  # torch's takes infinite parts beside tiny ones for NaN
        return torch.sgn(x)
    magnitude = x.abs()
    magnitude = torch.where(magnitude == 0, 1.0, magnitude)
    return torch.complex(x.real / magnitude, x.imag / magnitude)


@elementwise_as(ops.exponential_minus_one)
def complex_expm1(x: torch.Tensor) -> torch.Tensor:
    """exp(x) - 1; real for real x, also where that is infinite."""
    return torch.where(x.imag == 0, torch.complex(torch.expm1(x.real), x.imag), torch.expm1(x))


@elementwise_as(ops.log_plus_one)
def complex_log1p(z: torch.Tensor) -> torch.Tensor:
    """log(1 + z) as XLA has it: exact to rounding where |1 + z| is near 1 or beyond the range of squares."""
    x, y = z.real, z.imag
    larger, smaller = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = torch.where(smaller == larger, 1, smaller / larger)
    far = torch.log(larger) + torch.log1p(ratio * ratio) / 2
    near_zero = torch.log(torch.hypot(1 + x, y))
    near_one = torch.log1p(_compensated_sum([x + x, *_square(y), *_square(x)])) / 2
    real = torch.where((1 + x).abs() + y.abs() < 0.2, near_zero, near_one)
    real = torch.where(larger > math.sqrt(torch.finfo(x.dtype).max) * 0.01, far, real)
    return torch.complex(real, torch.atan2(y, 1 + x))


def _square(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The square and its rounding error (Dekker)."""
    scaled = x * (2.0 ** (27 if x.dtype == torch.float64 else 12) + 1)
    high = scaled - (scaled - x)
    low, square = x - high, x * x
    return square, ((high * high - square) + 2 * (high * low)) + low * low


def _compensated_sum(terms: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum, with the rounding errors of its steps added at the end; squares stand before the errors of squares."""
    first, *others = [terms[0], terms[1], terms[3], terms[2], terms[4]]
    total, error = first, torch.zeros_like(first)
    for term in others:
        new = total + term
        part = new - total
        error = error + ((total - (new - part)) + (term - part))
        total = new
    return total + error


@elementwise_as(ops.rsqrt)
def complex_rsqrt(x: torch.Tensor) -> torch.Tensor:
    """1 / sqrt(x)."""
    return complex_divide(1.0, torch.sqrt(x))


def complex_logistic(x: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x))."""
    return complex_divide(1.0, complex_exp(-x) + 1.0)


# ------------------------------------------------------------------------------- complex order


@elementwise
def complex_less(lhs: Operand, rhs: Operand, or_equal: bool) -> torch.Tensor:
    """``lhs < rhs`` (or ``<=``) of complex numbers in lexicographic order of real and imaginary part."""
    lhs, rhs = as_tensors(lhs, rhs)
    a, b = lhs.real, rhs.real
    tie = lhs.imag <= rhs.imag if or_equal else lhs.imag < rhs.imag
    return (a < b) | ((a == b) & tie)


@elementwise
def complex_extreme(lhs: Operand, rhs: Operand, largest: bool) -> torch.Tensor:
    """The larger (or smaller) of two complex numbers in lexicographic order; where they do not compare, `rhs`."""
    lhs, rhs = as_tensors(lhs, rhs)
    takes_lhs = complex_less(rhs, lhs, or_equal=True) if largest else complex_less(lhs, rhs, or_equal=True)
    return torch.where(takes_lhs, lhs, rhs)
