"""Special functions, as XLA's client library has them: error functions, the gamma family, Bessel functions, zeta.

They are programs of documented ops, so they print, run on real XLA and differentiate. Operands are floats of one type, and
broadcast as scalars do; narrow floats are computed in F32. All raise InvalidArgument for other element types. The incomplete
functions stand in `incomplete.py`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.types import F32, F64
from . import _chebyshev as chebyshev
from ._documented import documented
from .comparison import Clamp, Eq, Ge, Gt, Le, Lt, Ne, Select
from .convert import ConvertElementType, ReducePrecision
from .elementwise import Abs, Cos, Erf, Exp, Floor, Log, Log1p, RoundNearestEven, Sign, Sin, Sqrt
from .elementwise_binary import And, Max, Min, Or, Pow
from .hlo_builder import Operand, XlaOp, broadcast_scalars, lift_operands

__all__ = ["BesselI0e", "BesselI1e", "Digamma", "ErfInv", "Erfc", "Lgamma", "Polygamma", "Zeta"]


def floating(function: Callable[..., XlaOp]) -> Callable[..., Any]:
    """A documented function of floats: its operands (the parameters without default) made equal in shape, and wide."""
    signature = inspect.signature(function)
    names = [name for name, p in signature.parameters.items() if p.default is p.empty]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> XlaOp:
        bound = signature.bind(*args, **kwargs).arguments
        operands = broadcast_scalars(*lift_operands(function.__name__, *(bound.pop(name) for name in names)))
        given = operands[0].element_type
        _check(function.__name__, operands)
        if given.bits >= 32:
            return function(*operands, **bound)
        return ConvertElementType(function(*(ConvertElementType(o, F32) for o in operands), **bound), given)

    call.__annotations__ = function.__annotations__ | dict.fromkeys(names, Operand)  # numbers are lifted here
    return documented(call)


def _check(subject: str, operands: Sequence[XlaOp]) -> None:
    got = ", ".join(str(o.shape) for o in operands)
    if not all(o.element_type.is_floating for o in operands):
        raise InvalidArgument("operands that are not floats", subject=subject, got=got, expected="floats")
    first = operands[0].shape.without_layout()
    if any(o.shape.without_layout() != first for o in operands):
        raise InvalidArgument("operands of different shapes", subject=subject, got=got, expected="one shape, or scalars")


# ------------------------------------------------------------------------------------------- error functions


@floating
def Erfc(operand: XlaOp) -> XlaOp:
    """``1 - erf(x)``, of full relative accuracy for large x also.

    >>> ops.Erfc(torch.tensor([0.0, 5.0]))
    tensor([1.0000e+00, 1.5375e-12])
    """
    magnitude = Clamp(0.5, Abs(operand), 30.0)  # below 1, where it is chosen, so that its slope at 1 is no bound's
    # Squares of half the digits are exact; exp(-x^2) of a rounded square would lose digits where x^2 is large.
    rounded = ReducePrecision(magnitude, *((11, 25) if operand.element_type is F64 else (8, 11)))
    rest = (rounded - magnitude) * (rounded + magnitude)  # below 0.05 where the result is not 0
    power = Exp(-(rounded * rounded)) * (1.0 + rest * (1.0 + rest * (1 / 2 + rest * (1 / 6 + rest * (1 / 24)))))
    inverse = 1.0 / (magnitude + 2.5)
    tail = power * chebyshev.ERFCX(1.0 - 7.0 * inverse) * inverse
    return Select(Lt(Abs(operand), 1.0), 1.0 - Erf(operand), Select(Lt(operand, 0.0), 2.0 - tail, tail))


@floating
def ErfInv(operand: XlaOp) -> XlaOp:
    """The x whose ``erf(x)`` is the operand: infinite for -1 and 1, NaN beyond.

    >>> ops.ErfInv(torch.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.4769,    inf])
    """
    w = -Log((1.0 - operand) * (1.0 + operand))
    # In F32 no number but 1 is as near to 1 as the far tail.
    scale = _erfinv_scale(w, is_far=operand.element_type is F64)
    return operand * Select(Eq(Abs(operand), 1.0), math.inf, scale)


def _erfinv_scale(w: XlaOp, is_far: bool = True) -> XlaOp:
    """``erfinv(x) / x`` for ``w = -log(1 - x^2)``, up to where its square root is 4.25, or else 6.25."""
    s = Sqrt(Max(w, 6.25))
    scale = chebyshev.ERFINV_TAIL(Min(s, 4.25) / 0.875 - 27 / 7)
    if is_far:
        scale = Select(Gt(s, 4.25), chebyshev.ERFINV_FAR_TAIL(Max(s, 4.25) - 5.25), scale)
    return Select(Lt(w, 6.25), chebyshev.ERFINV_CENTRE(Min(w, 6.25) / 3.125 - 1.0), scale)


@floating
def erfcx(operand: XlaOp) -> XlaOp:
    """``exp(x^2) erfc(x)``, infinite where ``exp(x^2)`` is."""
    shifted = Max(operand, 1.0) + 2.5
    far = chebyshev.ERFCX(1.0 - 7.0 / shifted) / shifted
    # As in Erfc, the square is that of a rounded number and a rest.
    inside = Clamp(-30.0, operand, 1.0)
    rounded = ReducePrecision(inside, *((11, 25) if operand.element_type is F64 else (8, 11)))
    power = Exp(rounded * rounded) * Exp((inside - rounded) * (inside + rounded))
    near = Select(Lt(operand, -30.0), math.inf, power * Erfc(inside))
    return Select(Ge(operand, 1.0), far, near)


@floating
def ndtri(operand: XlaOp) -> XlaOp:
    """The quantile of the normal distribution: infinite for 0 and 1, NaN beyond."""
    w = -(Log(4.0 * operand) + Log1p(-operand))
    scale = _erfinv_scale(Max(w, 0.0))
    s = Sqrt(Max(w, 36.0))
    farthest = s * chebyshev.ERFINV_FARTHEST((1.0 / s - 1 / 28) / (1 / 6 - 1 / 28) * 2.0 - 1.0)
    is_end = Or(Eq(operand, 0.0), Eq(operand, 1.0))
    scale = Select(is_end, math.inf, Select(Gt(w, 36.0), farthest, scale))
    inside = And(Ge(operand, 0.0), Le(operand, 1.0))
    return Select(inside, math.sqrt(2) * (2.0 * operand - 1.0) * scale, math.nan)


# ------------------------------------------------------------------------------------------- gamma family

_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)
"""Gamma(z + 1) = sqrt(2 pi) t^(z + 1/2) exp(-t) (c[0] + sum c[k] / (z + k)), where t = z + 7.5."""


def _lanczos(operand: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp, XlaOp]:
    """(whether the operand is reflected to 1 - x; z, t and log t of the formula for that)."""
    reflected = Lt(operand, 0.5)
    z = Select(reflected, -operand, operand - 1.0)
    return reflected, z, z + 7.5, Log1p(z / 7.5) + math.log(7.5)


def lanczos_sum(z: XlaOp) -> XlaOp:
    """``c[0] + sum c[k] / (z + k)`` of the formula."""
    total = _LANCZOS[1] / (z + 1.0) + _LANCZOS[0]
    for k, c in enumerate(_LANCZOS[2:], 2):
        total = total + c / (z + float(k))
    return total


@floating
def Lgamma(operand: XlaOp) -> XlaOp:
    """The logarithm of ``|gamma(x)|``; infinite for 0, negative integers and infinities.

    >>> ops.Lgamma(torch.tensor([5.0, 0.5, 0.0]))
    tensor([3.1781, 0.5724,    inf])
    """
    reflected, z, t, log_t = _lanczos(operand)
    # (z + 1/2) log t - t, which does not overflow before the result does
    value = (z + 0.5 - t / log_t) * log_t + 0.5 * math.log(2 * math.pi) + Log(lanczos_sum(z))
    fraction = Abs(operand) - Floor(Abs(operand))
    nearest = Select(reflected, Min(fraction, 1.0 - fraction), 0.5)
    value = Select(reflected, math.log(math.pi) - Log(Sin(nearest * math.pi)) - value, value)
    return Select(Eq(Abs(operand), math.inf), math.inf, value)


@floating
def Digamma(operand: XlaOp) -> XlaOp:
    """The derivative of `Lgamma`; -inf for 0, as XLA has it from jaxlib 0.12 on, and NaN for negative integers.

    >>> ops.Digamma(torch.tensor([1.0, 0.0, -1.0]))
    tensor([-0.5772,    -inf,     nan])
    """
    reflected, z, t, log_t = _lanczos(operand)
    part = _LANCZOS[1] / (z + 1.0)
    total, slope = part + _LANCZOS[0], -part / (z + 1.0)
    for k, c in enumerate(_LANCZOS[2:], 2):
        shifted = z + float(k)
        part = c / shifted
        total, slope = total + part, slope - part / shifted
    value = log_t + slope / total - 7.0 / t
    turn = Select(reflected, operand - Floor(operand + 0.5), 0.25) * math.pi
    value = Select(reflected, value - math.pi * Cos(turn) / Sin(turn), value)
    value = Select(And(Lt(operand, 0.0), Eq(operand, Floor(operand))), math.nan, value)
    return Select(Eq(operand, 0.0), -math.inf, value)


@floating
def Polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    """The n-th derivative of `Digamma` at x. NaN where n is no integer from 0 on.

    >>> ops.Polygamma(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    tensor([ 1.6449, -2.4041])
    """
    magnitude = Exp(Lgamma(n + 1.0)) * Zeta(n + 1.0, x)
    value = Select(Eq(n, 0.0), Digamma(x), Select(_is_even(n), -magnitude, magnitude))
    return Select(Or(Lt(n, 0.0), Ne(n, Floor(n))), math.nan, value)


@floating
def trigamma(x: XlaOp) -> XlaOp:
    """`true_polygamma` of order 1."""
    left, mirrored, offset = _reflected(x)
    right, turn = Polygamma(1.0, mirrored), math.pi / Sin(math.pi * Select(left, offset, 0.5))
    return Select(left, turn * turn - right, right)


@floating
def true_polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    """`Polygamma`, and right also left of -10, where XLA's own sum is wrong: by reflection to 1 - x. For gradients, and for what
    JAX writes in its own.

    The sum of ``(x + k)^-(n + 1)`` over all whole k has a period, and its two halves are polygammas right of 0."""
    left, mirrored, offset = _reflected(x)
    right, near = Polygamma(n, mirrored), Select(left, Abs(offset), 0.5)
    near, far = Polygamma(n, near), Polygamma(n, 1.0 - near)
    below, even = Lt(offset, 0.0), _is_even(n)
    other = Select(below, near, far)
    # Halfway between two poles the halves of an even order cancel: they are subtracted first, so that `right` keeps its digits.
    both = Select(below, far, near) + Select(even, -other, other)
    value = Select(left, both + Select(even, right, -right), right)
    return Select(Eq(n, 0.0), Digamma(x), value)


def _reflected(x: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(whether x lies left of 1/2; x or its reflection 1 - x, whichever is right of it; how far x is from a whole number)."""
    left = Lt(x, 0.5)
    return left, Select(left, 1.0 - x, x), x - RoundNearestEven(x)


def _is_even(x: XlaOp) -> XlaOp:
    return Eq(x * 0.5, Floor(x * 0.5))


# ------------------------------------------------------------------------------------------- zeta

_EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
                    -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000,
                    77683 / 14101100039391805440000, -236364091 / 1693824136731743669452800000)
"""Bernoulli numbers: B[2j] / (2j)! for j from 1 on."""

_SUMMED = 10


@floating
def Zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """Hurwitz zeta, the sum of ``(q + k)^-x`` over k from 0 on, for q above -10.

    Infinite for x = 1. Where q is 0 or a negative integer it is infinite for even x and else NaN; NaN for x below 1.

    >>> ops.Zeta(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0]))
    tensor([1.6449,    inf])
    """
    total = Pow(q, -x)
    for k in range(1, _SUMMED):
        total = total + Pow(q + float(k), -x)
    # The rest of the sum is an integral, and its corrections at the end.
    base = q + float(_SUMMED)
    power = Pow(base, -x)
    total = total + power * (base / (x - 1.0) + 0.5)
    factor = x * power / base
    for j, c in enumerate(_EULER_MACLAURIN, 1):
        total = total + c * factor
        factor = factor * ((x + (2.0 * j - 1.0)) / base) * ((x + 2.0 * j) / base)
    pole = And(Le(q, 0.0), Eq(q, Floor(q)))
    total = Select(Or(Eq(x, 1.0), And(pole, _is_even(x))), math.inf, Select(pole, math.nan, total))
    total = Select(Eq(q, math.inf), 0.0, total)
    return Select(Lt(x, 1.0), math.nan, Select(Eq(x, 1.0), math.inf, total))


@floating
def true_zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """`Zeta`, and right also for q left of -10 and whole x: by reflection to 1 - q, as in `true_polygamma`. Infinite where q is
    0 or a negative whole number; NaN where it is another one below 0 and x is none."""
    left, mirrored, offset = _reflected(q)
    right, near = Zeta(x, mirrored), Select(left, Abs(offset), 0.5)
    near, far = Zeta(x, near), Zeta(x, 1.0 - near)
    below, even = Lt(offset, 0.0), _is_even(x)
    # The sum over all whole numbers has a period: of odd x it changes its sign with the offset's.
    whole = Select(even, near + far, Select(below, far - near, near - far))
    value = Select(left, whole + Select(even, -right, right), right)
    inside = Gt(q, 0.0)
    value = Select(And(left, inside), Zeta(x, Select(And(left, inside), q, 1.0)), value)
    value = Select(Or(inside, Eq(x, Floor(x))), value, math.nan)
    value = Select(And(Le(q, 0.0), Eq(q, Floor(q))), math.inf, value)
    return Select(Lt(x, 1.0), math.nan, Select(Eq(x, 1.0), math.inf, value))


# ------------------------------------------------------------------------------------------- bessel functions


def _far(series: chebyshev.Series, magnitude: XlaOp) -> XlaOp:
    """A scaled Bessel function from 8 on."""
    clamped = Max(magnitude, 8.0)
    return series(16.0 / clamped - 1.0) / Sqrt(clamped)


@floating
def BesselI0e(operand: XlaOp) -> XlaOp:
    """The modified Bessel function of order 0, scaled: ``exp(-|x|) I0(x)``.

    >>> ops.BesselI0e(torch.tensor([0.0, 2.0]))
    tensor([1.0000, 0.3085])
    """
    magnitude = operand * Sign(operand)  # the slope of |x| at 0 is taken for 0, in the middle of the kink
    near = chebyshev.I0E_SMALL(Min(magnitude, 8.0) / 4.0 - 1.0)
    return Select(Le(magnitude, 8.0), near, _far(chebyshev.I0E_LARGE, magnitude))


@floating
def BesselI1e(operand: XlaOp) -> XlaOp:
    """The modified Bessel function of order 1, scaled: ``exp(-|x|) I1(x)``.

    >>> ops.BesselI1e(torch.tensor([0.0, 2.0]))
    tensor([0.0000, 0.2153])
    """
    magnitude = Abs(operand)
    near = operand * chebyshev.I1E_SMALL(Min(magnitude, 8.0) / 4.0 - 1.0)
    far = _far(chebyshev.I1E_LARGE, magnitude)
    return Select(Le(magnitude, 8.0), near, Select(Ge(operand, 0.0), far, -far))
