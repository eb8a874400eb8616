"""Orthogonal polynomials of an order for each element, by their recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import F64
from ..functions.hlo_builder import XlaOp
from ..functions.incomplete import iterated
from .inverses import INVERSES
from .operator_rules import rule
from .pointwise import truncated
from .values import Value, aligned, full

First = Callable[[XlaOp], XlaOp]
Next = Callable[[XlaOp, XlaOp, XlaOp, XlaOp], XlaOp]
"""(k, x, the polynomial of order k, that of order k - 1) to that of order k + 1."""

Waves = Callable[[XlaOp, XlaOp], XlaOp]
"""(the order, the angle whose cosine x is) to the polynomial, between -1 and 1."""

_LONGEST = (1 << 31) - 1


def _evaluated(x: XlaOp, n: XlaOp, first: First, following: Next, waves: Waves | None, above: int) -> XlaOp:
    """The polynomials of these orders at x; by `waves` those between -1 and 1 of an order above that. 0 for orders below 0."""
    one, found = full(x.builder, 1, x.shape), None
    looped = n
    if waves is not None:
        is_wave = ops.And(ops.Gt(n, above), ops.Lt(ops.Abs(x), 1.0))
        found = waves(n, INVERSES["acos"](ops.Select(is_wave, x, full(x.builder, 0, x.shape))))
        looped = ops.Select(is_wave, full(x.builder, 0, x.shape), n)

    def step(k: XlaOp, state: Sequence[XlaOp], constants: Sequence[XlaOp]) -> tuple[list[XlaOp], XlaOp]:
        (above, here), (at, order) = state, constants
        k = ops.Broadcast(k, at.shape.dimensions)
        is_there = ops.Lt(k, order)
        after = following(k, at, above, here)
        return [ops.Select(is_there, after, above), ops.Select(is_there, above, here)], ops.Not(ops.Lt(k + 1.0, order))

    high, _ = iterated(step, [first(x), one], [x, looped], None, _LONGEST)
    value = ops.Select(ops.Lt(looped, 1.0), one, high)
    value = value if found is None else ops.Select(is_wave, found, value)
    return ops.Select(ops.Lt(n, 0.0), full(x.builder, 0, x.shape), value)


def _twice(k: XlaOp, x: XlaOp, here: XlaOp, before: XlaOp) -> XlaOp:
    return ops.Sub(ops.Mul(x + x, here), before)


def _t_waves(n: XlaOp, angle: XlaOp) -> XlaOp:
    return ops.Cos(n * angle)


def _u_waves(n: XlaOp, angle: XlaOp) -> XlaOp:
    return ops.Sin((n + 1.0) * angle) / ops.Sin(angle)


def _v_waves(n: XlaOp, angle: XlaOp) -> XlaOp:
    return ops.Cos((n + 0.5) * angle) / ops.Cos(angle * 0.5)


def _w_waves(n: XlaOp, angle: XlaOp) -> XlaOp:
    return ops.Sin((n + 0.5) * angle) / ops.Sin(angle * 0.5)


def _laguerre(k: XlaOp, x: XlaOp, here: XlaOp, before: XlaOp) -> XlaOp:
    return ((k + k + (1.0 - x)) * here - k * before) / (k + 1.0)


def _legendre(k: XlaOp, x: XlaOp, here: XlaOp, before: XlaOp) -> XlaOp:
    return ((k + k + 1.0) * x * here - k * before) / (k + 1.0)


def _hermite(k: XlaOp, x: XlaOp, here: XlaOp, before: XlaOp) -> XlaOp:
    return (x + x) * here - (k + k) * before


def _hermite_e(k: XlaOp, x: XlaOp, here: XlaOp, before: XlaOp) -> XlaOp:
    return x * here - k * before


_CHEBYSHEV: dict[str, tuple[First, Waves, int]] = {
    "t": (lambda x: x, _t_waves, 6), "u": (lambda x: x + x, _u_waves, 8), "v": (lambda x: x + x - 1.0, _v_waves, 8),
    "w": (lambda x: x + x + 1.0, _w_waves, 8)}
_OTHERS: dict[str, tuple[First, Next]] = {
    "hermite_polynomial_h": (lambda x: x + x, _hermite), "hermite_polynomial_he": (lambda x: x, _hermite_e),
    "laguerre_polynomial_l": (lambda x: 1.0 - x, _laguerre), "legendre_polynomial_p": (lambda x: x, _legendre)}


def _polynomial(name: str, evaluated: Callable[[XlaOp, XlaOp], XlaOp]) -> None:
    @rule(f"special_{name}", f"special_{name}.x_scalar", f"special_{name}.n_scalar")
    def apply(x: Value, n: Value, result: Shape) -> XlaOp:
        at, order = aligned(result.element_type, x, n, sizes=result.dimensions)
        return evaluated(at, truncated(order))


def _chebyshev(letter: str) -> None:
    first, waves, above = _CHEBYSHEV[letter]
    _polynomial(f"chebyshev_polynomial_{letter}", lambda x, n: _evaluated(x, n, first, _twice, waves, above))
    _polynomial(f"shifted_chebyshev_polynomial_{letter}",
                lambda x, n: _evaluated(x + x - 1.0, n, first, _twice, waves, 6))


def _other(name: str) -> None:
    first, following = _OTHERS[name]

    def evaluated(x: XlaOp, n: XlaOp) -> XlaOp:
        if not name.startswith("hermite"):
            return _evaluated(x, n, first, following, None, 0)
        is_beyond = ops.Gt(n, 512.0 if x.element_type is F64 else 128.0)  # where torch computes none
        found = _evaluated(x, ops.Select(is_beyond, full(x.builder, 0, x.shape), n), first, following, None, 0)
        return ops.Select(is_beyond, full(x.builder, math.nan, x.shape), found)

    _polynomial(name, evaluated)


for _letter in _CHEBYSHEV:
    _chebyshev(_letter)
for _name in _OTHERS:
    _other(_name)
