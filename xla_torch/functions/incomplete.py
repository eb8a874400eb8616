"""Incomplete gamma and beta functions, as XLA's client library has them: series and continued fractions, in loops.

A loop runs until all elements have converged, at most `_LIMIT` times, or as often as `iterations` says. The loops that run until
then are recognised where they are differentiated, and their gradients, by the parameters too, are formulas
(`grad_rules/functions.py`); given `iterations`, they are those of as many terms: some 50 do for arguments up to 10, and about
``8 sqrt(a)`` for larger ones.
`IgammaGradA` and `RandomGammaGrad` are derivatives by formula.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

from ..core.shape import Shape
from ..core.types import F64, PRED
from ..hlo.ir import Computation
from .comparison import Eq, Ge, Gt, Le, Lt, Ne, Select
from .control import GetTupleElement, Tuple, While
from .convert import ConvertElementType
from .elementwise import Abs, Exp, Log, Log1p, Not, Sqrt
from .elementwise_binary import And, Or
from .hlo_builder import Builder, XlaOp
from .movement import Broadcast
from .reduction import ReduceAll
from .special import Digamma, Lgamma, floating, lanczos_sum

__all__ = ["Igamma", "IgammaGradA", "Igammac", "RandomGammaGrad", "RegularizedIncompleteBeta"]

_LIMIT = 2000
"""Rounds after which a loop ends in any case."""


# ------------------------------------------------------------------------------------------- loops

Step = Callable[[XlaOp, Sequence[XlaOp], Sequence[XlaOp]], tuple[list[XlaOp], XlaOp]]
"""(count of the round, state, constants) to (next state, PRED: the element has converged)."""


def iterated(step: Step, state: Sequence[XlaOp], constants: Sequence[XlaOp], iterations: int | None,
             limit: int = _LIMIT) -> list[XlaOp]:
    """The state after so many rounds, or once all elements have converged or `limit` is reached; each one's is that when it
    converged."""
    builder, shape = state[0].builder, state[0].shape
    active = Broadcast(builder.constant(True), shape.dimensions)
    init = Tuple(builder, [builder.constant(0), active, *state, *constants])
    condition, body = Builder("unfinished"), Builder("round")

    carry = condition.parameter(0, init.shape)
    going_on = Lt(GetTupleElement(carry, 0), limit if iterations is None else iterations)
    if iterations is None:
        going_on = And(going_on, ReduceAll(GetTupleElement(carry, 1), condition.constant(False), _either()))

    count, active, *values = _elements(body.parameter(0, init.shape))
    given, fixed = values[:len(state)], values[len(state):]
    new, converged = step(ConvertElementType(count + 1, shape.element_type), given, fixed)
    if iterations is None:
        new = [Select(active, after, before) for after, before in zip(new, given, strict=True)]
        active = And(active, Not(converged))
    Tuple(body, [count + 1, active, *new, *fixed])
    return _elements(While(condition.finish(going_on), body.finish(), init))[2:2 + len(state)]


def _elements(carry: XlaOp) -> list[XlaOp]:
    return [GetTupleElement(carry, k) for k in range(len(carry.shape.tuple_shapes))]


@functools.cache
def _either() -> Computation:
    builder = Builder("either")
    Or(builder.parameter(0, Shape(PRED)), builder.parameter(1, Shape(PRED)))
    return builder.finish()


def _epsilon(like: XlaOp) -> float:
    return 2.0 ** (-53 if like.element_type is F64 else -24)


def _full(like: XlaOp, value: float) -> XlaOp:
    return Broadcast(like.builder.constant(value, like.element_type), like.shape.dimensions)


# ------------------------------------------------------------------------------------------- numbers with slopes


@dataclasses.dataclass(frozen=True)
class _Number:
    """A value and, where they are wanted, its derivatives with respect to some variables: arithmetic keeps all."""

    value: XlaOp
    slopes: tuple[XlaOp, ...] = ()

    def __add__(self, other: _Number) -> _Number:
        return _Number(self.value + other.value, _sums(self.slopes, other.slopes))

    def __sub__(self, other: _Number) -> _Number:
        return _Number(self.value - other.value, _sums(self.slopes, tuple(-s for s in other.slopes)))

    def __mul__(self, other: _Number) -> _Number:
        left = tuple(s * other.value for s in self.slopes)
        return _Number(self.value * other.value, _sums(left, tuple(self.value * s for s in other.slopes)))

    def __truediv__(self, other: _Number) -> _Number:
        quotient = self.value / other.value
        changes = _sums(self.slopes, tuple(-quotient * s for s in other.slopes))
        return _Number(quotient, tuple(c / other.value for c in changes))

    def parts(self) -> list[XlaOp]:
        return [self.value, *self.slopes]


def _sums(left: tuple[XlaOp, ...], right: tuple[XlaOp, ...]) -> tuple[XlaOp, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True)) if left and right else left or right


def _numbers(parts: Sequence[XlaOp], slopes: int) -> list[_Number]:
    """The numbers of which these are the parts, each with so many slopes."""
    return [_Number(parts[k], tuple(parts[k + 1:k + 1 + slopes])) for k in range(0, len(parts), 1 + slopes)]


def _settled(change: _Number, total: _Number) -> XlaOp:
    """PRED: the last change of a total, and those of its slopes, were too small to be seen."""
    scale = _epsilon(total.value) * Abs(total.value)
    settled = Not(Gt(Abs(change.value), scale))
    for changed, slope in zip(change.slopes, total.slopes, strict=True):
        settled = And(settled, Not(Gt(Abs(changed), _epsilon(total.value) * Abs(slope) + scale)))
    return settled


# ------------------------------------------------------------------------------------------- incomplete gamma


def _series(a: XlaOp, x: XlaOp, sloped: bool, iterations: int | None) -> _Number:
    """``1 + x/(a+1) + x^2/((a+1)(a+2)) + ...`` and, where wanted, its derivative by a."""
    def step(count: XlaOp, state: Sequence[XlaOp], constants: Sequence[XlaOp]) -> tuple[list[XlaOp], XlaOp]:
        term, total = _numbers(state, sloped)
        a, x = constants
        term = term * (_Number(x) / _Number(a + count, (_full(a, 1.0),) if sloped else ()))
        total = total + term
        return [*term.parts(), *total.parts()], _settled(term, total)

    one = _Number(_full(a, 1.0), (_full(a, 0.0),) if sloped else ()).parts()
    return _numbers(iterated(step, [*one, *one], [a, x], iterations), sloped)[1]


def _fraction(a: XlaOp, x: XlaOp, sloped: bool, iterations: int | None) -> _Number:
    """``1/(x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - ...)))`` by Lentz's method and, where wanted, its derivative by a."""
    def step(count: XlaOp, state: Sequence[XlaOp], constants: Sequence[XlaOp]) -> tuple[list[XlaOp], XlaOp]:
        upper, lower, total = _numbers(state, sloped)
        a, x = constants
        numerator = _Number(count * (a - count), (Broadcast(count, a.shape.dimensions),) if sloped else ())
        denominator = _Number(x + (2.0 * count + 1.0) - a, (_full(a, -1.0),) if sloped else ())
        lower = _Number(_full(a, 1.0)) / (numerator * lower + denominator)
        upper = denominator + numerator / upper
        product = total * (lower * upper)
        return [*upper.parts(), *lower.parts(), *product.parts()], _settled(product - total, product)

    first = _Number(_full(a, 1.0)) / _Number(x + 1.0 - a, (_full(a, -1.0),) if sloped else ())
    endless = _Number(_full(a, 1e30), (_full(a, 0.0),) if sloped else ())
    state = [*endless.parts(), *first.parts(), *first.parts()]
    return _numbers(iterated(step, state, [a, x], iterations), sloped)[2]


class _Gamma:
    """The two methods with arguments made harmless outside of their domains, so that neither gives NaN to the gradient of
    the other: for arguments in `valid`, the fraction where `beyond`, otherwise the series."""

    def __init__(self, a: XlaOp, x: XlaOp, sloped: bool, iterations: int | None = None):
        self.valid = And(And(Gt(a, 0.0), Lt(a, math.inf)), And(Gt(x, 0.0), Lt(x, math.inf)))
        self.a, self.x = Select(self.valid, a, 1.0), Select(self.valid, x, 1.0)
        self.beyond = And(Gt(self.x, 1.0), Gt(self.x, self.a))
        self.series = _series(self.a, Select(self.beyond, 0.5, self.x), sloped, iterations)
        self.fraction = _fraction(Select(self.beyond, self.a, 1.0), Select(self.beyond, self.x, 2.0), sloped, iterations)

    def power(self) -> XlaOp:
        """``x^a exp(-x) / gamma(a)``, by which the fraction is the upper function, and the series over a the lower one."""
        return _gamma_power(self.a, self.x)

    def slope(self) -> XlaOp:
        """The derivative of the lower function by a, over `power`."""
        (of_series,), (of_fraction,), log_x = self.series.slopes, self.fraction.slopes, Log(self.x)
        lower = (of_series + self.series.value * (log_x - Digamma(self.a + 1.0))) / self.a
        return Select(self.beyond, -(of_fraction + self.fraction.value * (log_x - Digamma(self.a))), lower)


def _gamma_power(a: XlaOp, x: XlaOp) -> XlaOp:
    """``x^a exp(-x) / gamma(a)`` for positive finite a and x."""
    # Lanczos' formula for gamma(a + 1), with its powers of t joined to those of x before anything is rounded away.
    t = a + 7.5
    u = (x - t) / t
    far = Lt(u, -0.5)
    log_ratio = Select(far, Log(x / t), Log1p(Select(far, _full(u, 0.0), u)))
    return a * Exp(a * (log_ratio - u) - 7.5 * u) / (Sqrt(t * (2 * math.pi)) * lanczos_sum(a))


def gamma_density(a: XlaOp, x: XlaOp) -> XlaOp:
    """The derivative of `Igamma` by x, ``x^(a-1) exp(-x) / gamma(a)``: at 0 its limit, 0 at infinity, NaN for negative
    arguments."""
    inside = And(And(Gt(a, 0.0), Lt(a, math.inf)), And(Gt(x, 0.0), Lt(x, math.inf)))
    p, y = Select(inside, a, 1.0), Select(inside, x, 1.0)
    at_zero = Select(Lt(a, 1.0), math.inf, Select(Eq(a, 1.0), 1.0, _full(x, 0.0)))
    end = Select(Eq(x, 0.0), at_zero, _full(x, 0.0))
    ordered = And(Gt(a, 0.0), Or(Eq(x, 0.0), Eq(x, math.inf)))
    return Select(inside, _gamma_power(p, y) / y, Select(ordered, end, _full(x, math.nan)))


def _gamma_part(a: XlaOp, x: XlaOp, upper: bool, iterations: int | None) -> XlaOp:
    gamma = _Gamma(a, x, False, iterations)
    power = gamma.power()
    small, large = power / gamma.a * gamma.series.value, power * gamma.fraction.value
    value = Select(gamma.beyond, large, 1.0 - small) if upper else Select(gamma.beyond, 1.0 - large, small)
    none, whole = (_full(x, 1.0), 0.0) if upper else (_full(x, 0.0), 1.0)
    at_end = Select(Or(And(Eq(a, 0.0), Gt(x, 0.0)), And(Ge(a, 0.0), Eq(x, math.inf))), whole, _full(x, math.nan))
    return Select(gamma.valid, value, Select(And(Eq(x, 0.0), Gt(a, 0.0)), none, at_end))


@floating
def Igamma(a: XlaOp, x: XlaOp, iterations: int | None = None) -> XlaOp:
    """The lower incomplete gamma function P(a, x), regularised. NaN for negative arguments and where both are 0.

    >>> ops.Igamma(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    tensor([0.6321, 0.2642])
    """
    return _gamma_part(a, x, False, iterations)


@floating
def Igammac(a: XlaOp, x: XlaOp, iterations: int | None = None) -> XlaOp:
    """The upper incomplete gamma function, ``1 - P(a, x)``, of full relative accuracy where it is small.

    >>> ops.Igammac(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 30.0]))
    tensor([3.6788e-01, 2.9009e-12])
    """
    return _gamma_part(a, x, True, iterations)


def _outside(gamma: _Gamma, a: XlaOp, x: XlaOp, value: XlaOp) -> XlaOp:
    """A derivative by a, with its values outside of the domain."""
    return Select(gamma.valid, value, Select(And(Eq(x, 0.0), Gt(a, 0.0)), 0.0, _full(x, math.nan)))


@floating
def IgammaGradA(a: XlaOp, x: XlaOp, iterations: int | None = None) -> XlaOp:
    """The derivative of `Igamma` by a.

    >>> ops.IgammaGradA(torch.tensor([2.0]), torch.tensor([1.0]))
    tensor([-0.2762])
    """
    gamma = _Gamma(a, x, True, iterations)
    return _outside(gamma, a, x, gamma.power() * gamma.slope())


@floating
def RandomGammaGrad(a: XlaOp, x: XlaOp, iterations: int | None = None) -> XlaOp:
    """The derivative by a of x, a sample of the gamma distribution: how x moves if P(a, x) stays.

    >>> ops.RandomGammaGrad(torch.tensor([2.0]), torch.tensor([1.0]))
    tensor([0.7508])
    """
    gamma = _Gamma(a, x, True, iterations)
    return _outside(gamma, a, x, -gamma.x * gamma.slope())


# ------------------------------------------------------------------------------------------- incomplete beta


def _beta_fraction(a: _Number, b: _Number, x: XlaOp, iterations: int | None) -> _Number:
    """The continued fraction of the incomplete beta function by Lentz's method, two levels in a round, and its
    derivatives where a and b have slopes."""
    slopes = len(a.slopes)
    one, nothing = _Number(_full(x, 1.0)), _full(x, 0.0)
    given = [*a.parts(), *b.parts()]

    def step(count: XlaOp, state: Sequence[XlaOp], constants: Sequence[XlaOp]) -> tuple[list[XlaOp], XlaOp]:
        upper, lower, total = _numbers(state, slopes)
        (a, b), x = _numbers(constants[:-1], slopes), _Number(constants[-1])
        unit, number = _Number(_full(x.value, 1.0)), _Number(count)
        level = a + _Number(2.0 * count)
        even = number * (b - number) / (level - unit) * x / level
        odd = (_Number(_full(x.value, 0.0)) - (a + number)) / level * (a + b + number) / (level + unit) * x
        product = total
        for numerator in (even, odd):
            lower, upper = unit / (unit + numerator * lower), unit + numerator / upper
            product = product * (lower * upper)
        return [*upper.parts(), *lower.parts(), *product.parts()], _settled(product - total, product)

    first = one / (one - (a + b) / (a + one) * _Number(x))
    start = _Number(_full(x, 1.0), (nothing,) * slopes)
    state = [*start.parts(), *first.parts(), *first.parts()]
    return _numbers(iterated(step, state, [*given, x], iterations), slopes)[2]


@floating
def RegularizedIncompleteBeta(a: XlaOp, b: XlaOp, x: XlaOp, iterations: int | None = None) -> XlaOp:
    """The incomplete beta function I(x; a, b), regularised. NaN for negative a and b, and for x outside of 0 to 1.

    >>> ops.RegularizedIncompleteBeta(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), torch.tensor([0.25, 0.5]))
    tensor([0.2500, 0.6875])
    """
    inside = _inside_beta(a, b, x)
    p, q, y = Select(inside, a, 1.0), Select(inside, b, 1.0), Select(inside, x, 0.5)
    near, far, z, turned = _below_the_mean(p, q, y)
    part = _beta_power(p, q, y) / near * _beta_fraction(_Number(near), _Number(far), z, iterations).value
    return Select(inside, Select(turned, 1.0 - part, part), _beta_ends(a, b, x))


def _below_the_mean(a: XlaOp, b: XlaOp, x: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp, XlaOp]:
    """The arguments of which the fraction converges fast, and whether they are those of the complement."""
    turned = Gt(x, (a + 1.0) / (a + b + 2.0))
    return Select(turned, b, a), Select(turned, a, b), Select(turned, 1.0 - x, x), turned


def _beta_power(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    """``x^a (1-x)^b / B(a, b)``."""
    return Exp(a * Log(x) + b * Log1p(-x) + (Lgamma(a + b) - Lgamma(a) - Lgamma(b)))


def incomplete_beta_slope(a: XlaOp, b: XlaOp, x: XlaOp, by_a: bool) -> XlaOp:
    """The derivative of `RegularizedIncompleteBeta` by a, or by b. 0 for x of 0 and 1, NaN outside of the domain.

    The rounds go on until both slopes have settled, so that this can be differentiated by the other parameter, too: where b is
    a whole number the fraction and its slope by a end early, and its slope by b does not."""
    inside = _inside_beta(a, b, x)
    p, q, y = Select(inside, a, 1.0), Select(inside, b, 1.0), Select(inside, x, 0.5)
    near, far, z, turned = _below_the_mean(p, q, y)
    one, none = _full(x, 1.0), _full(x, 0.0)
    is_near = Select(turned, none, one) if by_a else Select(turned, one, none)
    fraction = _beta_fraction(_Number(near, (one, none)), _Number(far, (none, one)), z, None)
    by_near, by_far = fraction.slopes
    slope = Select(turned, by_far, by_near) if by_a else Select(turned, by_near, by_far)
    log_slope = (Log(y) if by_a else Log1p(-y)) + Digamma(p + q) - Digamma(p if by_a else q)
    part = _beta_power(p, q, y) / near * (slope + fraction.value * (log_slope - is_near / near))
    at_end = And(And(Gt(a, 0.0), Gt(b, 0.0)), Or(Eq(x, 0.0), Eq(x, 1.0)))
    return Select(inside, Select(turned, -part, part), Select(at_end, 0.0, _full(x, math.nan)))


def _inside_beta(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    inside = And(And(Gt(a, 0.0), Lt(a, math.inf)), And(Gt(b, 0.0), Lt(b, math.inf)))
    return And(inside, And(Gt(x, 0.0), Lt(x, 1.0)))


def _beta_ends(a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    """The limits for x of 0 and 1, and for one of a and b of 0 or infinite; NaN for everything else."""
    ordered = And(And(Ge(a, 0.0), Ge(b, 0.0)), And(Ge(x, 0.0), Le(x, 1.0)))
    left = Or(Eq(a, 0.0), Eq(b, math.inf))
    right = Or(Eq(b, 0.0), Eq(a, math.inf))
    none = And(ordered, And(Not(left), Or(right, Eq(x, 0.0))))
    whole = And(ordered, And(Not(right), Or(left, Eq(x, 1.0))))
    return Select(Ne(none, whole), Select(none, 0.0, _full(x, 1.0)), _full(x, math.nan))
