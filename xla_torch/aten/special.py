"""Special functions of floats, and greatest common divisors of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import S32, S64
from ..functions import bessel
from ..functions.hlo_builder import XlaOp
from ..functions.incomplete import iterated
from ..functions.special import erfcx, ndtri, trigamma, true_zeta
from .checks import require
from .indexing import scattered
from .operator_rules import rule
from .pointwise import signed_digamma
from .values import aligned, cast, full, greatest, least, reduced, reducer

# ------------------------------------------------------------------------------------------- functions of one operand


def _floating(name: str, function: Callable[[XlaOp], XlaOp]) -> None:
    @rule(name)
    def apply(self: XlaOp, result: Shape) -> XlaOp:
        return function(cast(self, result.element_type))


def _floating_x(name: str, function: Callable[[XlaOp], XlaOp]) -> None:
    """The same where the operator calls its operand x."""

    @rule(name)
    def apply(x: XlaOp, result: Shape) -> XlaOp:
        return function(cast(x, result.element_type))


for _name, _function in {
        "i0": bessel.bessel_i0, "special_i0e": ops.BesselI0e, "special_i1": bessel.bessel_i1, "special_i1e": ops.BesselI1e,
        "special_modified_bessel_i0": bessel.bessel_i0, "special_modified_bessel_i1": bessel.bessel_i1,
        "special_modified_bessel_k0": bessel.bessel_k0, "special_modified_bessel_k1": bessel.bessel_k1,
        "special_bessel_j0": bessel.bessel_j0, "special_bessel_j1": bessel.bessel_j1,
        "special_bessel_y0": bessel.bessel_y0, "special_bessel_y1": bessel.bessel_y1,
        "special_erfcx": erfcx, "special_ndtri": ndtri}.items():
    _floating(_name, _function)

for _name, _function in {
        "special_scaled_modified_bessel_k0": bessel.bessel_k0e, "special_scaled_modified_bessel_k1": bessel.bessel_k1e,
        "special_spherical_bessel_j0": bessel.spherical_bessel_j0, "special_airy_ai": bessel.airy_ai}.items():
    _floating_x(_name, _function)


@rule("polygamma")
def _polygamma(n: int, self: XlaOp, result: Shape) -> XlaOp:
    x = cast(self, result.element_type)
    if n == 0:
        return signed_digamma(x)
    if n == 1:
        return trigamma(x)
    size = ops.Mul(full(x.builder, _factorial(n), x.shape), _zeta(full(x.builder, n + 1, x.shape), x))
    return size if n % 2 else ops.Neg(size)


def _factorial(n: int) -> float:
    return math.inf if n > 170 else float(math.factorial(n))


def _zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """NaN at infinity, as torch has it."""
    return ops.Select(ops.Eq(q, math.inf), full(q.builder, math.nan, q.shape), true_zeta(x, q))


# ------------------------------------------------------------------------------------------- functions of two operands


def _floating_pair(name: str, function: Callable[[XlaOp, XlaOp], XlaOp]) -> None:
    @rule(name)
    def apply(self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
        return function(*aligned(result.element_type, self, other, sizes=result.dimensions))


def _incomplete(function: Callable[[XlaOp, XlaOp], XlaOp], at_infinity: float) -> Callable[[XlaOp, XlaOp], XlaOp]:
    """An incomplete gamma function that has its limit where `a` is infinite, which XLA's has not."""

    def apply(a: XlaOp, x: XlaOp) -> XlaOp:
        beyond, both = ops.Eq(a, math.inf), ops.And(ops.Eq(a, math.inf), ops.Eq(x, math.inf))
        limit = ops.Select(ops.Or(both, ops.Not(ops.Ge(x, 0))), full(x.builder, math.nan, x.shape),
                           full(x.builder, at_infinity, x.shape))
        return ops.Select(beyond, limit, function(ops.Select(beyond, full(a.builder, 1, a.shape), a), x))

    return apply


for _name, _pair in {"igamma": _incomplete(ops.Igamma, 0.0), "igammac": _incomplete(ops.Igammac, 1.0), "nextafter": ops.NextAfter,
                     "special_zeta": _zeta}.items():
    _floating_pair(_name, _pair)


@rule("gcd")
def _gcd(self: XlaOp, other: XlaOp, result: Shape) -> XlaOp:
    """By Euclid's algorithm."""
    x, y = aligned(result.element_type, self, other, sizes=result.dimensions)
    if not result.element_type.is_unsigned:
        x, y = ops.Abs(x), ops.Abs(y)

    def step(count: XlaOp, state: Sequence[XlaOp], constants: Sequence[XlaOp]) -> tuple[list[XlaOp], XlaOp]:
        high, low = state
        ended = ops.Eq(low, 0)
        rest = ops.Rem(high, ops.Select(ended, full(low.builder, 1, low.shape), low))
        return [ops.Select(ended, high, low), ops.Select(ended, low, rest)], ended

    return iterated(step, [x, y], [], None)[0]


# ------------------------------------------------------------------------------------------- counts


@rule("bincount")
def _bincount(self: XlaOp, weights: XlaOp | None, minlength: int, result: Shape) -> XlaOp:
    """Of `minlength` bins. That there need be no more is checked."""
    if not minlength and result.is_static and self.shape.element_count:
        return _as_many_bins(self, weights, result)
    if not minlength:
        raise UnsupportedError("the number of bins depends on values", subject="bincount", got="minlength=0",
                               hint="pass minlength=n for n bins, of numbers from 0 to n - 1")
    at, start = cast(self, S64), full(self.builder, 0, Shape.array(result.element_type, [minlength]))
    if not self.shape.element_count:
        return start
    low, high = reduced(at, "Min", greatest(S64), [0]), reduced(at, "Max", least(S64), [0])
    require(ops.And(ops.Ge(low, 0), ops.Lt(high, minlength)), f"bincount takes numbers from 0 to minlength - 1 = {minlength - 1}",
            {"the least": low, "the greatest": high}, "bincount")
    counted = full(at.builder, 1, start.shape.with_dimensions(at.shape.dimensions)) if weights is None else cast(
        weights, result.element_type)
    return scattered(start, 0, at, counted, reducer("Add", result.element_type))


def _as_many_bins(x: XlaOp, weights: XlaOp | None, result: Shape) -> XlaOp:
    """As many bins as the greatest number needs, which the example says: one more tells whether it is as many."""
    count, at = result.dimensions[0], cast(x, S64)
    low, high = reduced(at, "Min", greatest(S64), [0]), reduced(at, "Max", least(S64), [0])
    require(ops.Ge(low, 0), "bincount takes numbers from 0", {"the least": low}, "bincount")
    counted = cast(weights, result.element_type) if weights is not None else full(
        at.builder, 1, Shape.array(result.element_type, at.shape.dimensions))
    start = full(x.builder, 0, Shape.array(result.element_type, [count + 1]))
    found = scattered(start, 0, ops.Min(at, count), counted, reducer("Add", result.element_type))
    return ops.SetDimensionSize(found, cast(ops.Min(ops.Add(high, 1), count + 1), S32), 0)
