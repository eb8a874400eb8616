"""Rows of Sort and TopK."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import FLOATS, INTS, NUMBERS

FAILS: dict[str, str] = dict.fromkeys(("s2", "u2"), "XLA's CPU compiler fails")
SCRAMBLES: dict[str, str] = dict.fromkeys(("s2", "u2"), "XLA's CPU code sorts these wrongly, each run otherwise")


def _sort(compare: Callable[..., Any], domain: str = "any",
          key: Callable[[np.ndarray], np.ndarray] | None = None) -> Callable[[Drawn], Any]:
    """Sort one array. The key, of integers, decides where XLA does not."""
    def build(d: Drawn) -> Any:
        dims = d.dims(1, 3)
        operand, comparator = d.array(dims, domain=domain), d.region(compare)
        at = len(dims) - 1 if d.flag() else None
        along = d.integer(0, len(dims) - 1) if at is None else at
        if key is not None:
            d.expect(functools.partial(_in_order, key, along))
        if at is not None:
            return ops.Sort([operand], comparator, is_stable=True)
        return ops.Sort(operand, comparator, along, is_stable=True)
    return build


def _in_order(key: Callable[[np.ndarray], np.ndarray], along: int, array: np.ndarray) -> list[np.ndarray]:
    return [np.take_along_axis(array, np.argsort(key(array.astype(np.int64)), axis=along, kind="stable"), along)]


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


def _by_remainder(a: Any, b: Any) -> Any:
    return ops.Lt(ops.Rem(a, ops.Add(ops.Sub(a, a), 3)), ops.Rem(b, ops.Add(ops.Sub(b, b), 3)))


def _top_k(d: Drawn) -> Any:
    dims = [*d.dims(0, 2), d.integer(1, 6)]
    return ops.TopK(d.array(dims), d.integer(0, dims[-1]), d.flag())


ROWS: list[Row] = [
    Row("Sort", _sort(ops.LtTotalOrder, key=np.positive), NUMBERS, variant="ascending", disputed=SCRAMBLES),
    Row("Sort", _sort(ops.GtTotalOrder, key=np.negative), NUMBERS, variant="descending", disputed=SCRAMBLES),
    Row("Sort", _sort(ops.Lt, "small", np.positive), NUMBERS, variant="by plain comparison", disputed=SCRAMBLES),
    Row("Sort", _sort(_by_remainder), INTS, variant="by a computed key"),
    Row("Sort", _sort_pairs(_by_first, "s32"), NUMBERS, variant="of pairs", disputed=FAILS),
    Row("Sort", _sort_pairs(_by_both, "u8"), NUMBERS, variant="by two keys", disputed=FAILS),
    Row("TopK", _top_k, (*INTS, *FLOATS)),
]
