"""Rows of Sort and TopK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import FLOATS, INTS, NUMBERS

FAILS: dict[str, str] = dict.fromkeys(("s2", "u2"), "XLA's CPU compiler fails")


def _sort(compare: Callable[..., Any], domain: str = "any") -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        dims = d.dims(1, 3)
        operand, comparator = d.array(dims, domain=domain), d.region(compare)
        if d.flag():
            return ops.Sort([operand], comparator, is_stable=True)
        return ops.Sort(operand, comparator, d.integer(0, len(dims) - 1), is_stable=True)
    return build


def _sort_pairs(compare: Callable[..., Any], second: str) -> Callable[[Drawn], Any]:
    """Sort an array with another one beside it; equal keys are many, so that stability shows."""
    def build(d: Drawn) -> Any:
        dims = d.dims(1, 2)
        at = d.integer(0, len(dims) - 1)
        comparator = d.region(compare, d.kind, d.kind, second, second)

        def sorted_pairs(keys: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
            ties = -values.astype(np.int64) if compare is _by_both else np.zeros(dims)
            order = np.lexsort((ties, keys.astype(np.int64)), axis=at)
            return [np.take_along_axis(a, order, at) for a in (keys, values)]

        d.expect(sorted_pairs)
        return ops.Sort([d.array(dims, domain="small"), d.array(dims, second)], comparator, at, is_stable=True)
    return build


def _by_first(a: Any, b: Any, c: Any, e: Any) -> Any:
    return ops.Lt(a, b)


def _by_both(a: Any, b: Any, c: Any, e: Any) -> Any:
    return ops.Or(ops.Lt(a, b), ops.And(ops.Eq(a, b), ops.Gt(c, e)))


def _top_k(d: Drawn) -> Any:
    dims = [*d.dims(0, 2), d.integer(1, 6)]
    return ops.TopK(d.array(dims), d.integer(0, dims[-1]), d.flag())


ROWS: list[Row] = [
    Row("Sort", _sort(ops.LtTotalOrder), NUMBERS, variant="ascending"),
    Row("Sort", _sort(ops.GtTotalOrder), NUMBERS, variant="descending"),
    Row("Sort", _sort(ops.Lt, "small"), NUMBERS, variant="by plain comparison"),
    Row("Sort", _sort(lambda a, b: ops.Lt(ops.Rem(a, ops.Add(ops.Sub(a, a), 3)), ops.Rem(b, ops.Add(ops.Sub(b, b), 3)))), INTS,
        variant="by a computed key"),
    Row("Sort", _sort_pairs(_by_first, "s32"), NUMBERS, variant="of pairs", disputed=FAILS),
    Row("Sort", _sort_pairs(_by_both, "u8"), NUMBERS, variant="by two keys", disputed=FAILS),
    Row("TopK", _top_k, (*INTS, *FLOATS)),
]
