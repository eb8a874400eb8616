"""Derivatives of elementwise functions in closed form, by mpmath: a row for each function, with the points where it is asked.

Where a function has no derivative (kinks, poles, infinities, outside of its domain), the row's `edges` say the value and why.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
from mpmath import mp
from mpmath.libmp import NoConvergence

import xla_torch
from make_expansions import JAX_REAL
from support.gradient_checks import built
from support.jax_oracle import program
from xla_torch import ops

Point = tuple[float, ...]
Formula = Callable[..., Any]
INF, NAN = math.inf, math.nan
DIGITS = 40
SPECIAL = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, 3.0, -3.0, 0.3, -0.7, 1e-3, -1e-3, 1e-8, -1e-8, 1e-300,
           -1e-300, 7.25, -9.7, 10.0, -10.0, -10.5, -16.5, 20.0, 40.0, -40.0, 100.5, -100.5, 800.0, -800.0, 1e8, -1e5 - 0.3,
           1e300, -1e300, INF, -INF, NAN)
PAIRED = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-300, 1e300, -1e300, INF, -INF, NAN)


@dataclasses.dataclass(frozen=True)
class Edge:
    """Where `at` holds there is no derivative, for this `reason`, or the formula has no value. Gradients are `want` there: a
    number for all arguments, a number for each, or a function of the point."""

    at: Callable[..., bool]
    want: float | Point | Callable[..., float | Point] | None
    reason: str

    def values(self, point: Point, count: int) -> Point:
        found = NAN if self.want is None else self.want(*point) if callable(self.want) else self.want
        return found if isinstance(found, tuple) else (found,) * count


@dataclasses.dataclass(frozen=True)
class Row:
    """A function, by its name in the gradient tables. `first` are its partial derivatives, by those arguments that move, and
    `second` the upper triangle of their derivatives, row by row. `of` gives a program for arrays. `atol` is what may be lost
    of digits, and `lost` says why."""

    name: str
    of: Callable[..., Any]
    points: tuple[Point, ...]
    first: tuple[Formula, ...]
    second: tuple[Formula, ...]
    edges: tuple[Edge, ...] = ()
    by: tuple[int, ...] | None = None
    rtol: float = 1e-10
    atol: float = 1e-320
    lost: str = ""
    once: Callable[..., bool] = lambda *_: False
    """Where the second derivative is not asked: a power on the way to it overflows."""
    deep: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def arguments(self) -> list[np.ndarray]:
        return [np.array(column) for column in zip(*self.points, strict=True)]

    @property
    def moving(self) -> tuple[int, ...]:
        return tuple(range(len(self.points[0]))) if self.by is None else self.by

    def computation(self) -> xla_torch.XlaComputation:
        make = built if self.of.__module__.startswith("xla_torch") else program
        return make(self.of, *self.arguments)

    def slopes(self, point: Point) -> tuple[Point, bool]:
        """The first derivatives, and whether the formulas gave them."""
        for edge in self.edges:
            if edge.at(*point):
                return edge.values(point, len(self.first)), False
        return tuple(self._value(formula, point) for formula in self.first), True

    def bends(self, point: Point, weights: Sequence[float]) -> Point:
        """For each argument that moves, the derivative by it of the weighted sum of the first ones."""
        count = len(self.first)
        triangle = dict(zip(itertools.combinations_with_replacement(range(count), 2), self.second, strict=True))
        values = {pair: self._value(formula, point) for pair, formula in triangle.items()}
        return tuple(sum(weights[j] * values[min(j, k), max(j, k)] for j in range(count)) for k in range(count))

    def _value(self, formula: Formula, point: Point) -> float:
        finite = [abs(x) for x in point if x and math.isfinite(x)]
        size = int(max((abs(math.log10(x)) for x in finite), default=0)) if self.deep else 0
        with mp.workdps(DIGITS + 3 * size):
            try:
                found = formula(*map(mp.mpf, point))
            except (ValueError, ZeroDivisionError, OverflowError, TypeError, NoConvergence):
                return NAN
            return NAN if isinstance(found, mp.mpc) else float(found)


# ------------------------------------------------------------------------------------------------------- words of edges


def beyond(test: Callable[..., bool], want: float | Callable[..., float | Point] | None) -> Edge:
    return Edge(test, want, "outside of the domain; a formula's value there is JAX's")


def pole(at: float, want: float | Callable[..., float]) -> Edge:
    return Edge(lambda x: x == at, want, "a pole, on whose sides the slope grows without end")


def signed(x: float) -> float:
    return math.copysign(INF, x)


def at_infinity(want: float | Callable[..., float]) -> Edge:
    return Edge(math.isinf, want, "the limit, or NaN where there is none")


NOT_A_NUMBER = Edge(lambda *point: any(map(math.isnan, point)), NAN, "NaN goes on")


def _one(name: str, first: Formula, second: Formula, *edges: Edge, of: Callable[..., Any] | None = None, limit: float = INF,
         least: float = 0.0, **options: Any) -> Row:
    """A row for the special points up to a limit; with a `least` size for neither smaller ones nor NaN."""
    points = tuple((x,) for x in SPECIAL if least <= abs(x) <= limit or (not least and math.isnan(x)))
    return Row(name, of or JAX_REAL[name], points, (first,), (second,), edges, **options)


def _some(name: str, first: tuple[Formula, ...], second: tuple[Formula, ...], *edges: Edge,
          columns: Sequence[Sequence[float]] = (), of: Callable[..., Any] | None = None, **options: Any) -> Row:
    points = tuple(itertools.product(*columns or (PAIRED, PAIRED)))
    return Row(name, of or JAX_REAL[name], points, first, second, edges, **options)


# ------------------------------------------------------------------------------------------------------- functions of one


def _logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _mills(x: Any) -> Any:
    return mpmath.exp(x * x) * mpmath.erfc(x)


def _dawson(x: Any) -> Any:
    return mpmath.sqrt(mp.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)


def _bell(x: Any) -> Any:
    return 2 / mpmath.sqrt(mp.pi) * mpmath.exp(-x * x)


def _bessel(order: int, x: Any) -> Any:
    """The scaled one at the size of x."""
    return mpmath.exp(-abs(x)) * mpmath.besseli(order, abs(x))


def _erfinv_slope(x: Any) -> Any:
    return mpmath.sqrt(mp.pi) / 2 * mpmath.exp(mpmath.erfinv(x) ** 2)


def _sinc_slope(x: Any) -> Any:
    return (mpmath.cospi(x) - mpmath.sincpi(x)) / x if x else mp.zero


def _angle(x: Any) -> Any:
    return mp.pi * x * x / 2


def _across(x: Any) -> Any:
    return 1 - x * x


def _hypotenuse(x: Any) -> Any:
    return 1 + x * x


_REDUCED = "a difference of numbers about 1"
_FROM_RESULT = "the rule reads the result only, which has rounded to a number that it nears"
_SQUARED = "a square overflows where the derivative is below 1e-154"
_WAVE_AT_INFINITY = at_infinity(NAN)
_WHOLE = Edge(lambda x: x <= 0 and float(x).is_integer(), None, "a pole")
ONE = [
    _one("exponential", mpmath.exp, mpmath.exp, of=ops.Exp, limit=800),
    _one("exponential-minus-one", mpmath.exp, mpmath.exp, of=ops.Expm1, limit=800, atol=4e-16, lost=_FROM_RESULT),
    _one("log", lambda x: 1 / x, lambda x: -1 / x**2, pole(0, signed), beyond(lambda x: x == -INF, -0.0), of=ops.Log),
    _one("log-plus-one", lambda x: 1 / (1 + x), lambda x: -1 / (1 + x)**2, pole(-1, INF), of=ops.Log1p),
    _one("logistic", lambda x: _logistic(x) * _logistic(-x), lambda x: _logistic(x) * _logistic(-x) * (1 - 2 * _logistic(x)),
         of=ops.Logistic, limit=800, atol=4e-16, lost=_FROM_RESULT),
    _one("sqrt", lambda x: 1 / (2 * mpmath.sqrt(x)), lambda x: -1 / (4 * x * mpmath.sqrt(x)), pole(0, signed),
         beyond(lambda x: x < 0, NAN), of=ops.Sqrt),
    _one("rsqrt", lambda x: -1 / (2 * x * mpmath.sqrt(x)), lambda x: 3 / (4 * x**2 * mpmath.sqrt(x)), pole(0, -INF),
         beyond(lambda x: x < 0, NAN), of=ops.Rsqrt),
    _one("cbrt", lambda x: 1 / (3 * mpmath.cbrt(abs(x))**2), lambda x: -2 / (9 * x * mpmath.cbrt(abs(x))**2), pole(0, INF),
         at_infinity(0.0), of=ops.Cbrt),
    _one("erf", _bell, lambda x: -2 * x * _bell(x), at_infinity(0.0), of=ops.Erf),
    _one("sine", mpmath.cos, lambda x: -mpmath.sin(x), _WAVE_AT_INFINITY, of=ops.Sin),
    _one("cosine", lambda x: -mpmath.sin(x), lambda x: -mpmath.cos(x), _WAVE_AT_INFINITY, of=ops.Cos),
    _one("tan", lambda x: mpmath.sec(x)**2, lambda x: 2 * mpmath.tan(x) * mpmath.sec(x)**2, _WAVE_AT_INFINITY, of=ops.Tan),
    _one("asin", lambda x: 1 / mpmath.sqrt(_across(x)), lambda x: x / mpmath.sqrt(_across(x))**3,
         beyond(lambda x: abs(x) > 1, NAN), Edge(lambda x: abs(x) == 1, INF, "a vertical tangent"), of=ops.Asin),
    _one("acos", lambda x: -1 / mpmath.sqrt(_across(x)), lambda x: -x / mpmath.sqrt(_across(x))**3,
         beyond(lambda x: abs(x) > 1, NAN), Edge(lambda x: abs(x) == 1, -INF, "a vertical tangent"), of=ops.Acos),
    _one("atan", lambda x: 1 / _hypotenuse(x), lambda x: -2 * x / _hypotenuse(x)**2, at_infinity(0.0), of=ops.Atan),
    _one("sinh", mpmath.cosh, mpmath.sinh, of=ops.Sinh, limit=800),
    _one("cosh", mpmath.sinh, mpmath.cosh, of=ops.Cosh, limit=800),
    _one("tanh", lambda x: mpmath.sech(x)**2, lambda x: -2 * mpmath.tanh(x) * mpmath.sech(x)**2, of=ops.Tanh, limit=800,
         atol=4e-15, lost=_FROM_RESULT),
    _one("asinh", lambda x: 1 / mpmath.sqrt(_hypotenuse(x)), lambda x: -x / mpmath.sqrt(_hypotenuse(x))**3, at_infinity(0.0),
         of=ops.Asinh, atol=1e-154, lost=_SQUARED),
    _one("acosh", lambda x: 1 / mpmath.sqrt(x * x - 1), lambda x: -x / mpmath.sqrt(x * x - 1)**3,
         Edge(lambda x: abs(x) == 1, INF, "a vertical tangent"), beyond(lambda x: abs(x) < 1, NAN),
         at_infinity(0.0), beyond(lambda x: x < -1, lambda x: 1 / math.sqrt((x - 1) * (x + 1))),
         of=ops.Acosh),
    _one("atanh", lambda x: 1 / _across(x), lambda x: 2 * x / _across(x)**2,
         Edge(lambda x: abs(x) == 1, INF, "a pole"), at_infinity(-0.0), of=ops.Atanh, atol=4e-16, lost=_REDUCED),
    _one("negate", lambda x: mp.mpf(-1), lambda x: mp.zero, of=ops.Neg),
    _one("abs", mpmath.sign, lambda x: mp.zero, Edge(lambda x: x == 0, 1.0, "a kink, where JAX goes to the right"),
         Edge(math.isnan, -1.0, "JAX's select, for which NaN is not on the right"), of=ops.Abs),
    _one("sign", lambda x: mp.zero, lambda x: mp.zero, of=ops.Sign),
    _one("square", lambda x: 2 * x, lambda x: mp.mpf(2), of=ops.Square),
    _one("erfc", lambda x: -_bell(x), lambda x: 2 * x * _bell(x), at_infinity(0.0)),
    _one("erf_inv", _erfinv_slope, lambda x: 2 * mpmath.erfinv(x) * _erfinv_slope(x)**2,
         Edge(lambda x: abs(x) == 1, INF, "a pole"), limit=1),
    _one("erfcx", lambda x: 2 * x * _mills(x) - 2 / mpmath.sqrt(mp.pi),
         lambda x: 2 * _mills(x) + 2 * x * (2 * x * _mills(x) - 2 / mpmath.sqrt(mp.pi)), limit=20, atol=1e-12, lost=_REDUCED),
    _one("dawsn", lambda x: 1 - 2 * x * _dawson(x), lambda x: -2 * _dawson(x) - 2 * x * (1 - 2 * x * _dawson(x)), limit=40,
         atol=1e-13, lost=_REDUCED),
    _one("ndtr", mpmath.npdf, lambda x: -x * mpmath.npdf(x), at_infinity(0.0)),
    _one("lgamma", mpmath.digamma, lambda x: mpmath.polygamma(1, x),
         Edge(lambda x: x == 0, -INF, "digamma at 0, as XLA of jaxlib 0.12, torch and SciPy have it"), _WHOLE,
         at_infinity(lambda x: x if x > 0 else NAN), NOT_A_NUMBER, limit=900),
    _one("digamma", lambda x: mpmath.polygamma(1, x), lambda x: mpmath.polygamma(2, x),
         Edge(lambda x: x <= 0 and float(x).is_integer(), INF, "a pole"),
         at_infinity(lambda x: 0.0 if x > 0 else NAN), NOT_A_NUMBER, limit=900),
    _one("bessel_i0e", lambda x: mpmath.sign(x) * (_bessel(1, x) - _bessel(0, x)),
         lambda x: 2 * _bessel(0, x) - 2 * _bessel(1, x) - _bessel(1, x) / abs(x),
         Edge(lambda x: x == 0, 0.0, "a kink, between whose slopes -1 and 1 this is"), limit=800, atol=1e-15, lost=_REDUCED),
    _one("bessel_i1e", lambda x: _bessel(0, x) - (_bessel(1, x) / abs(x) if x else mp.mpf("0.5")) - _bessel(1, x),
         lambda x: mpmath.sign(x) * (_bessel(1, x) * (2 + 2 / x**2 + 2 / abs(x)) - _bessel(0, x) * (2 + 1 / abs(x))),
         limit=800, atol=1e-15, lost=_REDUCED, deep=True),
    _one("bessel_i0", lambda x: mpmath.besseli(1, x),
         lambda x: mpmath.besseli(0, x) - mpmath.besseli(1, x) / x if x else mp.mpf("0.5"), limit=101, deep=True),
    _one("expi", lambda x: mpmath.exp(x) / x, lambda x: mpmath.exp(x) * (x - 1) / x**2, limit=101, least=0.3,
         once=lambda x: x == 1),  # two terms cancel there, and from JAX 0.12 on the program is an approximation without a rule
    _one("exp1", lambda x: -mpmath.exp(-x) / x, lambda x: mpmath.exp(-x) * (x + 1) / x**2, limit=101,
         least=0.3),  # JAX's own loops, also those of expi, do not end at numbers near 0

    _one("fresnel_s", lambda x: mpmath.sin(_angle(x)), lambda x: mp.pi * x * mpmath.cos(_angle(x)), limit=101, atol=1e-11,
         lost="the square of x is rounded before whole turns are left out"),
    _one("fresnel_c", lambda x: mpmath.cos(_angle(x)), lambda x: -mp.pi * x * mpmath.sin(_angle(x)), limit=101, atol=1e-11,
         lost="the square of x is rounded before whole turns are left out"),
    _one("sine_integral", lambda x: mpmath.sin(x) / x if x else mp.one,
         lambda x: (x * mpmath.cos(x) - mpmath.sin(x)) / x**2 if x else mp.zero, at_infinity(0.0), deep=True),
    _one("cosine_integral", lambda x: mpmath.cos(x) / x, lambda x: -(x * mpmath.sin(x) + mpmath.cos(x)) / x**2, pole(0, signed),
         at_infinity(NAN)),
    _one("softplus", _logistic, lambda x: _logistic(x) * _logistic(-x), limit=800, atol=4e-16, lost=_FROM_RESULT),
    _one("log2", lambda x: 1 / (x * mpmath.log(2)), lambda x: -1 / (x**2 * mpmath.log(2)), pole(0, signed), of=jnp.log2),
    _one("log10", lambda x: 1 / (x * mpmath.log(10)), lambda x: -1 / (x**2 * mpmath.log(10)), pole(0, signed), of=jnp.log10),
    _one("sinc", _sinc_slope, lambda x: -mp.pi**2 * mpmath.sincpi(x) - 2 * _sinc_slope(x) / x if x else -mp.pi**2 / 3,
         limit=900, deep=True),
    _one("logit", lambda x: 1 / (x * (1 - x)), lambda x: (2 * x - 1) / (x * (1 - x))**2,
         Edge(lambda x: x in (0, 1), signed, "a pole")),
]

# ------------------------------------------------------------------------------------------------------- functions of several


def _whole(x: Any, y: Any) -> Any:
    return mpmath.floor(abs(x / y)) * mpmath.sign(x / y)


def _density(a: Any, x: Any) -> Any:
    return mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))


def _igamma_slope(a: Any, x: Any, n: int = 1) -> Any:
    return mpmath.diff(lambda a: mpmath.gammainc(a, 0, x, regularized=True), a, n)


def _beta(a: Any, b: Any, x: Any) -> Any:
    return mpmath.betainc(a, b, 0, x, regularized=True)


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    return x**(a - 1) * (1 - x)**(b - 1) / mpmath.beta(a, b)


def _share(x: Any, y: Any) -> Any:
    return _logistic(x - y)


def _share_of_twos(x: Any, y: Any) -> Any:
    return _logistic((x - y) * mpmath.log(2))


def _zero(*_: Any) -> Any:
    return mp.zero


def _unit(*_: Any) -> Any:
    return mp.one


def _as_floats(*formulas: Callable[[Any, Any], Any]) -> Callable[[float, float], Point]:
    """What formulas give in floating-point numbers, infinities and NaN too."""
    def values(x: float, y: float) -> Point:
        with np.errstate(all="ignore"):
            return tuple(float(f(np.float64(x), np.float64(y))) for f in formulas)

    return values


def _power_by_exponent(x: Any, y: Any) -> Any:
    return np.where(x < 0, NAN, np.where(y >= 0, 0.0, np.power(x, y) * np.log(abs(x))))


def _infinite(x: float, y: float) -> bool:
    return math.isinf(x) or math.isinf(y)


def _both_infinite(x: float, y: float) -> bool:
    return math.isinf(x) and math.isinf(y)


SHAPES, PLACES = (1e-3, 0.5, 1.0, 2.5, 20.0), (1e-3, 0.5, 1.0, 2.5, 20.0, 60.0)
BASES, EXPONENTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-300, 1e300), (0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 2.0, -2.0)
_TIE = Edge(lambda x, y: x == y, 0.5, "a tie, which both share")
_SERIES = "a series whose terms are about 1"
_SAME_INFINITY = Edge(lambda x, y: x == y and math.isinf(x), 0.5, "a tie, which both share")
_NAN_IS_NONE = Edge(lambda x, y: math.isnan(x) or math.isnan(y), 0.0, "neither is the result, as in JAX")
SEVERAL = [
    _some("add", (_unit, _unit), (_zero,) * 3, of=ops.Add),
    _some("subtract", (_unit, lambda x, y: mp.mpf(-1)), (_zero,) * 3, of=ops.Sub),
    _some("multiply", (lambda x, y: y, lambda x, y: x), (_zero, _unit, _zero), of=ops.Mul),
    _some("maximum", (lambda x, y: mp.mpf(x > y), lambda x, y: mp.mpf(y > x)), (_zero,) * 3, _TIE, _NAN_IS_NONE, of=ops.Max),
    _some("minimum", (lambda x, y: mp.mpf(x < y), lambda x, y: mp.mpf(y < x)), (_zero,) * 3, _TIE, _NAN_IS_NONE, of=ops.Min),
    _some("divide", (lambda x, y: 1 / y, lambda x, y: -x / y**2), (_zero, lambda x, y: -1 / y**2, lambda x, y: 2 * x / y**3),
          Edge(lambda x, y: y == 0 or _both_infinite(x, y), _as_floats(lambda x, y: 1 / y, lambda x, y: -(x / y) / y),
               "a pole, or NaN: the formula in floats"), of=ops.Div, atol=1e-16, lost=_REDUCED),
    _some("remainder", (_unit, lambda x, y: -_whole(x, y)), (_zero,) * 3,
          Edge(lambda x, y: y == 0 or math.isinf(x),
               _as_floats(lambda x, y: 1.0, lambda x, y: -np.sign(x / y) * np.floor(abs(x / y))),
               "the formula in floats, as in JAX"),
          of=ops.Rem),
    _some("atan2", (lambda y, x: x / (x * x + y * y), lambda y, x: -y / (x * x + y * y)),
          (lambda y, x: -2 * x * y / (x * x + y * y)**2, lambda y, x: (y * y - x * x) / (x * x + y * y)**2,
           lambda y, x: 2 * x * y / (x * x + y * y)**2),
          Edge(lambda y, x: x == y == 0 or _both_infinite(x, y), NAN, "every angle is near"),
          Edge(lambda y, x: _infinite(x, y) and not (math.isnan(x) or math.isnan(y)), 0.0, "the limit"), of=ops.Atan2),
    _some("power", (lambda x, y: y * x**(y - 1), lambda x, y: x**y * mpmath.log(x)),
          (lambda x, y: y * (y - 1) * x**(y - 2), lambda x, y: x**(y - 1) * (1 + y * mpmath.log(x)),
           lambda x, y: x**y * mpmath.log(x)**2),
          Edge(lambda x, y: x == 0, _as_floats(lambda x, y: y * np.power(x, y - 1) if y else 0.0, _power_by_exponent),
               "0^y is constant for y >= 0, and x^0 in x"),
          Edge(lambda x, y: x < 0, _as_floats(lambda x, y: y * np.power(x, y - 1), _power_by_exponent),
               "no power of a negative number has a derivative by its exponent"), columns=(BASES, EXPONENTS), of=ops.Pow,
          once=lambda x, y: 0 < x < 1e-150 and y == 0),
    _some("polygamma", (lambda n, x: mpmath.polygamma(int(n) + 1, x),), (lambda n, x: mpmath.polygamma(int(n) + 2, x),),
          columns=((0.0, 1.0, 2.0, 3.0, 6.0), (0.5, 1.0, 2.5, 30.0, 1e6, -0.5, -9.7, -16.5, -10.25, -1e-3, 1e-3, -300.3)),
          by=(1,), rtol=1e-8),
    _some("igamma", (_igamma_slope, _density),
          (lambda a, x: _igamma_slope(a, x, 2), lambda a, x: _density(a, x) * (mpmath.log(x) - mpmath.digamma(a)),
           lambda a, x: _density(a, x) * ((a - 1) / x - 1)), columns=(SHAPES, PLACES), atol=1e-15, lost=_SERIES),
    _some("igammac", (lambda a, x: -_igamma_slope(a, x), lambda a, x: -_density(a, x)),
          (lambda a, x: -_igamma_slope(a, x, 2), lambda a, x: _density(a, x) * (mpmath.digamma(a) - mpmath.log(x)),
           lambda a, x: _density(a, x) * (1 - (a - 1) / x)), columns=(SHAPES, PLACES), atol=1e-15, lost=_SERIES),
    _some("incomplete_beta", (lambda a, b, x: mpmath.diff(lambda a: _beta(a, b, x), a),
                              lambda a, b, x: mpmath.diff(lambda b: _beta(a, b, x), b), _beta_density),
          (lambda a, b, x: mpmath.diff(lambda a: _beta(a, b, x), a, 2),
           lambda a, b, x: mpmath.diff(lambda a, b: _beta(a, b, x), (a, b), (1, 1)),
           lambda a, b, x: _beta_density(a, b, x) * (mpmath.log(x) - mpmath.digamma(a) + mpmath.digamma(a + b)),
           lambda a, b, x: mpmath.diff(lambda b: _beta(a, b, x), b, 2),
           lambda a, b, x: _beta_density(a, b, x) * (mpmath.log1p(-x) - mpmath.digamma(b) + mpmath.digamma(a + b)),
           lambda a, b, x: _beta_density(a, b, x) * ((a - 1) / x - (b - 1) / (1 - x))),
          columns=((0.5, 2.5), (0.5, 3.0), (1e-3, 0.3, 0.7)), atol=1e-15, lost=_SERIES),
    _some("logaddexp", (_share, lambda x, y: _share(y, x)),
          (lambda x, y: _share(x, y) * _share(y, x), lambda x, y: -_share(x, y) * _share(y, x),
           lambda x, y: _share(x, y) * _share(y, x)), _SAME_INFINITY),
    _some("logaddexp2", (_share_of_twos, lambda x, y: _share_of_twos(y, x)),
          (lambda x, y: mpmath.log(2) * _share_of_twos(x, y) * _share_of_twos(y, x),
           lambda x, y: -mpmath.log(2) * _share_of_twos(x, y) * _share_of_twos(y, x),
           lambda x, y: mpmath.log(2) * _share_of_twos(x, y) * _share_of_twos(y, x)), _SAME_INFINITY),
    _some("xlogy", (lambda x, y: mpmath.log(y), lambda x, y: x / y), (_zero, lambda x, y: 1 / y, lambda x, y: -x / y**2),
          Edge(lambda x, y: x == y == 0, (-INF, 0.0), "0 where both are"),
          Edge(lambda x, y: y <= 0 or _both_infinite(x, y),
               _as_floats(lambda x, y: np.log(y), lambda x, y: 1.0 if x == y else x / y),
               "the formula in floats, 1 for the same infinity")),
    _some("xlog1py", (lambda x, y: mpmath.log1p(y), lambda x, y: x / (1 + y)),
          (_zero, lambda x, y: 1 / (1 + y), lambda x, y: -x / (1 + y)**2),
          Edge(lambda x, y: x == 0 and y == -1, (-INF, 0.0), "0 where both are"),
          Edge(lambda x, y: y <= -1 or _both_infinite(x, y),
               _as_floats(lambda x, y: np.log1p(y), lambda x, y: 1.0 if x == 1 + y else x / (1 + y)),
               "the formula in floats, 1 for the same infinity")),
]
ROWS = [*ONE, *SEVERAL]
