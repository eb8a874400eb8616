"""Gradients of random numbers with respect to the distribution's parameters: the drawn numbers are kept, not drawn again."""

from __future__ import annotations

from grad_rules._calculus import masked, sum_all, zeros
from grad_rules._table import vjp, zero
from xla_torch.functions import Eq, Not, Select
from xla_torch.functions.hlo_builder import XlaOp


def _first(ct: XlaOp, out: XlaOp, low: XlaOp, high: XlaOp, distribution: str) -> XlaOp:
    """low + u (high - low) moves with low by 1 - u; mu + sigma z moves with mu."""
    return sum_all(ct) if distribution == "rng_normal" else sum_all(ct) - sum_all(ct * _fraction(out, low, high))


def _second(ct: XlaOp, out: XlaOp, low: XlaOp, high: XlaOp, distribution: str) -> XlaOp:
    """low + u (high - low) moves with high by u; mu + sigma z moves with sigma by z."""
    if distribution == "rng_uniform":
        return sum_all(ct * _fraction(out, low, high))
    degenerate = Eq(high, zeros(high))
    return masked(Not(degenerate), sum_all(ct * ((out - low) / Select(degenerate, zeros(high) + 1, high))))


def _fraction(out: XlaOp, low: XlaOp, high: XlaOp) -> XlaOp:
    """Where in its interval each number lies. In an empty interval nobody knows, so it is the middle."""
    width = high - low
    empty = Eq(width, zeros(width))
    inside = (out - low) / Select(empty, zeros(width) + 1, width)
    return Select(empty, zeros(out) + 0.5, inside)


vjp("rng", low=_first, high=_second)
zero("rng-bit-generator", "rng-get-and-update-state")
