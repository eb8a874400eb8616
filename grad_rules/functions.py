"""Derivatives of functions that XLA has no op for. `_functions.py` says how they are used.

Where a derivative has a limit, it is that: zero times infinity does not become NaN. At ties and kinks it is JAX's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grad_rules._calculus import conj, zeros
from grad_rules._functions import function
from xla_torch.core.errors import DifferentiationError
from xla_torch.functions import (
    Abs,
    And,
    BesselI0e,
    BesselI1e,
    Cos,
    Digamma,
    Eq,
    Exp,
    Ge,
    IgammaGradA,
    IsFinite,
    Lgamma,
    Log,
    Log1p,
    Logistic,
    Lt,
    Not,
    Or,
    Rem,
    Select,
    Sign,
    Sin,
)
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.functions.incomplete import gamma_density, incomplete_beta_slope
from xla_torch.functions.special import trigamma, true_polygamma

# ------------------------------------------------------------------------------------------- error functions

_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)

function("erfc", operand=lambda ct, operand: ct * (-_TWO_BY_ROOT_PI * Exp(-(operand * operand))))
function("erf_inv", operand=lambda ct, out: ct * (Exp(out * out) / _TWO_BY_ROOT_PI))
function("erfcx", operand=lambda ct, operand, out: ct * (2.0 * operand * out - _TWO_BY_ROOT_PI))
function("dawsn", operand=lambda ct, operand, out: ct * (1.0 - 2.0 * operand * out))
function("ndtr", operand=lambda ct, operand: ct * (Exp(-0.5 * (operand * operand)) / math.sqrt(2 * math.pi)))

# ------------------------------------------------------------------------------------------- gamma family

function("lgamma", operand=lambda ct, operand: ct * Digamma(operand))
function("digamma", operand=lambda ct, operand: ct * trigamma(operand))


def _by_order(ct: XlaOp, n: XlaOp) -> XlaOp:
    raise DifferentiationError("polygamma has no derivative by its order, which is an integer")


function("polygamma", n=_by_order, x=lambda ct, n, x: ct * true_polygamma(n + 1.0, x))
function("igamma", a=lambda ct, a, x: ct * IgammaGradA(a, x), x=lambda ct, a, x: ct * gamma_density(a, x))
function("igammac", a=lambda ct, a, x: -(ct * IgammaGradA(a, x)), x=lambda ct, a, x: -(ct * gamma_density(a, x)))


def _times_log(factor: XlaOp, log: XlaOp) -> XlaOp:
    """``factor * log``, 0 where the factor is."""
    none = Eq(factor, zeros(factor))
    return Select(none, zeros(factor), factor * Select(none, zeros(factor), log))


def _beta_density(ct: XlaOp, a: XlaOp, b: XlaOp, x: XlaOp) -> XlaOp:
    scale = Lgamma(a + b) - Lgamma(a) - Lgamma(b)
    return ct * Exp(_times_log(a - 1.0, Log(x)) + _times_log(b - 1.0, Log1p(-x)) + scale)


function("incomplete_beta", a=lambda ct, a, b, x: ct * incomplete_beta_slope(a, b, x, by_a=True),
         b=lambda ct, a, b, x: ct * incomplete_beta_slope(a, b, x, by_a=False), x=_beta_density)

# ------------------------------------------------------------------------------------------- bessel functions

function("bessel_i0e", operand=lambda ct, out, operand: ct * (BesselI1e(operand) - Sign(operand) * out))


def _even_series(square: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """The sum of the coefficients times powers of a square."""
    total = zeros(square)
    for c in reversed(coefficients):
        total = total * square + c
    return total


_I0_LESS_I1_BY_X = [(1 - 1 / (2 * k + 2)) / math.factorial(k)**2 / 4.0**k for k in range(11)]


def _bessel_i1e(ct: XlaOp, out: XlaOp, operand: XlaOp) -> XlaOp:
    """``i0e(x) - i1e(x) / x - i1e(|x|)``, the difference by its series about 0, where digits cancel in it.

    At 0 the sign is 1, as in the derivative of the absolute value: the kinks of ``exp(|x|) * i1e(x)``, which is i1, cancel."""
    near = Lt(Abs(operand), 1.0)
    inside, beyond = Select(near, operand, zeros(operand)), Select(near, zeros(operand) + 1, operand)
    series = Exp(-Abs(inside)) * _even_series(inside * inside, _I0_LESS_I1_BY_X)
    return ct * (Select(near, series, BesselI0e(beyond) - out / beyond) - Select(Ge(operand, zeros(operand)), out, -out))


function("bessel_i1e", operand=_bessel_i1e)

# ------------------------------------------------------------------------------------------- integrals of exponentials and waves

function("expi", operand=lambda ct, operand: ct * (Exp(operand) / operand))
function("exp1", operand=lambda ct, operand: ct * (-Exp(-operand) / operand))


def _quarter_turns(x: XlaOp) -> XlaOp:
    """The angle ``pi x^2 / 2``, of which whole turns are left out."""
    return Rem(x * x, zeros(x) + 4.0) * (math.pi / 2)


def _sine_ratio(x: XlaOp) -> XlaOp:
    """``sin(x) / x``, its series about 0, and 0 at infinity."""
    infinite = Eq(Abs(x), math.inf)
    far = Select(infinite, zeros(x) + 1, x)
    near = Lt(Abs(far), 1.0)
    inside, beyond = Select(near, far, zeros(x)), Select(near, zeros(x) + 1, far)
    series = _even_series(inside * inside, [(-1.0)**k / math.factorial(2 * k + 1) for k in range(10)])
    return Select(infinite, zeros(x), Select(near, series, Sin(beyond) / beyond))


function("fresnel_s", operand=lambda ct, operand: ct * Sin(_quarter_turns(operand)))
function("fresnel_c", operand=lambda ct, operand: ct * Cos(_quarter_turns(operand)))
function("sine_integral", operand=lambda ct, operand: ct * _sine_ratio(operand))
function("cosine_integral", operand=lambda ct, operand: ct * (Cos(operand) / operand))

# ------------------------------------------------------------------------------------------- sums of exponentials


def _share(ct: XlaOp, this: XlaOp, that: XlaOp, out: XlaOp, log_base: float = 1.0) -> XlaOp:
    """What `this` has in the sum of both powers: half of it where both are equal, infinities too."""
    if this.element_type.is_complex:
        return ct * conj(Exp((this - out) * log_base))
    same = And(Eq(this, that), Not(IsFinite(this)))
    difference = this - Select(same, this, that)
    return ct * Logistic(Select(same, zeros(this), difference) * log_base)


function("logaddexp", lhs=lambda ct, out, lhs, rhs: _share(ct, lhs, rhs, out),
         rhs=lambda ct, out, lhs, rhs: _share(ct, rhs, lhs, out))
function("logaddexp2", lhs=lambda ct, out, lhs, rhs: _share(ct, lhs, rhs, out, math.log(2)),
         rhs=lambda ct, out, lhs, rhs: _share(ct, rhs, lhs, out, math.log(2)))
function("softplus", operand=lambda ct, operand: ct * Logistic(operand))

# ------------------------------------------------------------------------------------------- entropies


def _ratio(x: XlaOp, y: XlaOp) -> XlaOp:
    """``x / y``; 0 where both are, and 1 where both are the same infinity."""
    same = Eq(x, y)
    none, infinite = And(same, Eq(x, zeros(x))), And(same, Not(IsFinite(x)))
    return Select(infinite, zeros(x) + 1, x) / Select(Or(none, infinite), zeros(y) + 1, y)


function("xlogy", x=lambda ct, x, y: ct * Log(y), y=lambda ct, x, y: ct * _ratio(x, y))
function("xlog1py", x=lambda ct, x, y: ct * Log1p(y), y=lambda ct, x, y: ct * _ratio(x, y + 1.0))

# ------------------------------------------------------------------------------------------- others


def _sinc(ct: XlaOp, out: XlaOp, operand: XlaOp) -> XlaOp:
    """``(cos(pi x) - sinc(x)) / x``, and its series about 0, where both are 1."""
    near = Lt(Abs(operand), 0.25)
    inside, beyond = Select(near, operand, zeros(operand)), Select(near, zeros(operand) + 1, operand)
    # the derivative of the sum of (-1)^k (pi x)^2k / (2k + 1)!
    series = _even_series((inside * inside) * math.pi**2, [(-1.0)**k * 2 * k / math.factorial(2 * k + 1) for k in range(1, 9)])
    slope = Select(near, series * inside * math.pi**2, (Cos(beyond * math.pi) - out) / beyond)
    return ct * conj(slope)


function("log2", operand=lambda ct, operand: ct / conj(operand * math.log(2)))
function("log10", operand=lambda ct, operand: ct / conj(operand * math.log(10)))
function("sinc", operand=_sinc)
function("logit", operand=lambda ct, operand: ct / operand / (1.0 - operand))
function("bessel_i0", operand=lambda ct, operand: ct * (Exp(Abs(operand)) * BesselI1e(operand)))
function("square", operand=lambda ct, operand: ct * conj(2.0 * operand))
