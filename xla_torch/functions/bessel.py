"""Bessel functions of whole orders and the Airy function, which torch has and XLA's client library has not.

Far from 0 an oscillating function is two smooth ones in and out of phase with a wave: ``(p cos(t) - q sin(t)) / sqrt(pi x / 2)``
is J and ``(p sin(t) + q cos(t)) / sqrt(pi x / 2)`` is Y, where ``t = x - (2 n + 1) pi / 4``.
"""

from __future__ import annotations

import math

from . import _chebyshev_bessel as chebyshev
from ._chebyshev import Series
from .comparison import Ge, Gt, Le, Lt, Select
from .elementwise import Abs, Cos, Exp, Log, Sin, Sqrt
from .elementwise_binary import Max, Min
from .hlo_builder import XlaOp
from .special import BesselI0e, BesselI1e, floating

_NEAR = 5.0
_TWO_BY_PI = 2 / math.pi


def _waves(x: XlaOp, order: int) -> tuple[XlaOp, XlaOp, XlaOp, XlaOp]:
    """(the part in phase, that out of phase, the cosine, the sine) of x from 5 on, both parts over sqrt(pi x / 2)."""
    in_phase, out_of_phase = ((chebyshev.P0, chebyshev.Q0), (chebyshev.P1, chebyshev.Q1))[order]
    nearness = _NEAR / x
    t = nearness * nearness * 2.0 - 1.0
    scale = math.sqrt(_TWO_BY_PI) / Sqrt(x)
    turn = x - (2 * order + 1) * math.pi / 4
    return in_phase(t) * scale, nearness * out_of_phase(t) * scale, Cos(turn), Sin(turn)


def _square(x: XlaOp) -> XlaOp:
    """The argument of a series in ``x^2`` for x from 0 to 5."""
    return x * x / 12.5 - 1.0


def _from_zero(x: XlaOp, zero: float, rest: float) -> XlaOp:
    """``x^2 - z^2`` to full relative accuracy about the zero, which is the sum of two numbers."""
    return ((x - zero) - rest) * (x + zero)


def _j0_near(x: XlaOp) -> XlaOp:
    return _from_zero(x, 2.404825557695773, -1.176691651530894e-16) * chebyshev.J0_NEAR(_square(x))


def _j1_near(x: XlaOp) -> XlaOp:
    return x * _from_zero(x, 3.8317059702075125, -1.5269184090088067e-16) * chebyshev.J1_NEAR(_square(x))


@floating
def bessel_j0(x: XlaOp) -> XlaOp:
    """The Bessel function of the first kind, of order 0."""
    size = Abs(x)
    p, q, cos, sin = _waves(Max(size, _NEAR), 0)
    return Select(Le(size, _NEAR), _j0_near(Min(size, _NEAR)), p * cos - q * sin)


@floating
def bessel_j1(x: XlaOp) -> XlaOp:
    """The Bessel function of the first kind, of order 1."""
    size = Abs(x)
    p, q, cos, sin = _waves(Max(size, _NEAR), 1)
    far = p * cos - q * sin
    near = _j1_near(Max(Min(x, _NEAR), -_NEAR))
    return Select(Le(size, _NEAR), near, Select(Lt(x, 0.0), -far, far))


@floating
def bessel_y0(x: XlaOp) -> XlaOp:
    """The Bessel function of the second kind, of order 0: -inf at 0, NaN below."""
    p, q, cos, sin = _waves(Max(x, _NEAR), 0)
    inside = Min(x, _NEAR)
    near = chebyshev.Y0_NEAR(_square(inside)) + _TWO_BY_PI * Log(inside) * _j0_near(inside)
    return Select(Le(x, _NEAR), near, p * sin + q * cos)


@floating
def bessel_y1(x: XlaOp) -> XlaOp:
    """The Bessel function of the second kind, of order 1: -inf at 0, NaN below."""
    p, q, cos, sin = _waves(Max(x, _NEAR), 1)
    inside = Min(x, _NEAR)
    logarithm = Select(Gt(x, 0.0), _j1_near(inside) * Log(inside), 0.0)
    near = inside * chebyshev.Y1_NEAR(_square(inside)) + _TWO_BY_PI * (logarithm - 1.0 / Abs(inside))
    return Select(Lt(x, 0.0), math.nan, Select(Le(x, _NEAR), near, p * sin + q * cos))


# ------------------------------------------------------------------------------------------- modified functions


@floating
def bessel_i0(x: XlaOp) -> XlaOp:
    """The modified Bessel function of the first kind, of order 0: infinite where ``exp(|x|)`` is."""
    return Exp(Abs(x)) * BesselI0e(x)


@floating
def bessel_i1(x: XlaOp) -> XlaOp:
    """The modified Bessel function of the first kind, of order 1: infinite where ``exp(|x|)`` is."""
    return Exp(Abs(x)) * BesselI1e(x)


def _k_near(x: XlaOp, order: int) -> XlaOp:
    """Of x from 0 to 2."""
    t, log = x * x * 0.5 - 1.0, Log(x * 0.5)
    if order == 0:
        return chebyshev.K0_NEAR(t) - log * bessel_i0(x)
    return Select(Gt(x, 0.0), log * bessel_i1(x), 0.0) + chebyshev.K1_NEAR(t) / Abs(x)


def _k_scaled(x: XlaOp, order: int) -> XlaOp:
    """``exp(x) K(x)`` of x from 2 on."""
    series: Series = (chebyshev.K0E_FAR, chebyshev.K1E_FAR)[order]
    return series(4.0 / x - 1.0) / Sqrt(x)


def _k(x: XlaOp, order: int, is_scaled: bool) -> XlaOp:
    inside, beyond = Min(x, 2.0), Max(x, 2.0)
    near, far = _k_near(inside, order), _k_scaled(beyond, order)
    found = Select(Le(x, 2.0), near * Exp(inside) if is_scaled else near, far if is_scaled else Exp(-beyond) * far)
    return Select(Lt(x, 0.0), math.nan, found)


@floating
def bessel_k0(x: XlaOp) -> XlaOp:
    """The modified Bessel function of the second kind, of order 0: infinite at 0, NaN below."""
    return _k(x, 0, False)


@floating
def bessel_k1(x: XlaOp) -> XlaOp:
    """The modified Bessel function of the second kind, of order 1: infinite at 0, NaN below."""
    return _k(x, 1, False)


@floating
def bessel_k0e(x: XlaOp) -> XlaOp:
    """``exp(x) K0(x)``."""
    return _k(x, 0, True)


@floating
def bessel_k1e(x: XlaOp) -> XlaOp:
    """``exp(x) K1(x)``."""
    return _k(x, 1, True)


# ------------------------------------------------------------------------------------------- of half and third orders


@floating
def spherical_bessel_j0(x: XlaOp) -> XlaOp:
    """``sin(x) / x``, its series about 0, and 0 at infinity."""
    size = Abs(x)
    square, total = x * x, None
    for k in reversed(range(7)):
        c = (-1.0)**k / math.factorial(2 * k + 1)
        total = square * 0.0 + c if total is None else total * square + c
    far = Select(Ge(size, math.inf), 0.0, Sin(x) / x)
    assert total is not None
    return Select(Lt(size, 0.5), total, far)


_AIRY_NEAR = 2.25
_AIRY_LAST = 103.892
"""Up to where torch computes the Airy function."""


@floating
def airy_ai(x: XlaOp) -> XlaOp:
    """The Airy function Ai."""
    size = Max(Abs(x), _AIRY_NEAR)
    root = Sqrt(size)
    z = size * root * (2 / 3)
    scale = 1.0 / (math.sqrt(math.pi) * Sqrt(root))
    nearness = _AIRY_NEAR / z
    t = nearness * nearness * 2.0 - 1.0
    turn = z - math.pi / 4
    left = (chebyshev.AIRY_P(t) * Cos(turn) + nearness * chebyshev.AIRY_Q(t) * Sin(turn)) * scale
    right = 0.5 * scale * Exp(-z) * chebyshev.AIRY_FAR(nearness * 2.0 - 1.0)
    near = chebyshev.AIRY_NEAR(Max(Min(x, _AIRY_NEAR), -_AIRY_NEAR) / _AIRY_NEAR)
    found = Select(Gt(x, _AIRY_NEAR), Select(Gt(x, _AIRY_LAST), 0.0, right), Select(Lt(x, -_AIRY_NEAR), left, near))
    return Select(Ge(Abs(x), math.inf), math.nan, found)
