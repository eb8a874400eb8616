"""Rows of windows that slide: reductions over them, and scattering to what they select."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.agreement import dtype_of, element_type
from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import COMPLEX, FLOATS, INTEGERS, INTS, NARROW_FLOATS, NUMBERS
from .reduction import arg_largest, limit

Combine = Callable[..., Any]


def _window(d: Drawn) -> tuple[list[int], list[int], list[int]]:
    dims = d.dims(1, 3, smallest=1)
    return dims, [d.integer(1, 3) for _ in dims], [d.integer(1, 2) for _ in dims]


def _reduce_window(combine: Combine, domain: str, init: Any = 0) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        dims, sizes, strides = _window(d)
        start = d.constant(init(d.kind) if callable(init) else init)
        return ops.ReduceWindow(d.array(dims, domain=domain), start, d.region(combine), sizes, strides,
                                d.choice(ops.Padding.SAME, ops.Padding.VALID))
    return build


def _reduce_window_general(combine: Combine, domain: str, init: Any = 0) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        dims, sizes, strides = _window(d)
        start = d.constant(init(d.kind) if callable(init) else init)
        return ops.ReduceWindowWithGeneralPadding(
            d.array(dims, domain=domain), start, d.region(combine), sizes, strides, [d.integer(1, 2) for _ in dims],
            [d.integer(1, 2) for _ in dims], [(d.integer(-1, 2), d.integer(-1, 2)) for _ in dims])
    return build


def _reduce_window_pairs(d: Drawn) -> Any:
    dims, sizes, strides = _window(d)
    lowest = limit(d.kind, highest=False) if element_type(d.kind).is_integral else -100
    return ops.ReduceWindow([d.array(dims, domain="small"), d.array(dims, "s32")],
                            [d.constant(lowest), d.constant(2**31 - 1, "s32")],
                            d.region(arg_largest, d.kind, "s32", d.kind, "s32"), sizes, strides, ops.Padding.VALID)


def _windows(size: int, window: int, stride: int, low: int = 0, high: int = 0) -> int:
    padded = size + low + high
    return 0 if padded < window else (padded - window) // stride + 1


def _distinct(d: Drawn, dims: list[int]) -> Any:
    """An array of different values: among equal ones XLA's CPU does not keep to row-major order in several dimensions."""
    count = int(np.prod(dims))
    return d.array(dims, domain=lambda rng: rng.permutation(count).reshape(dims))


def _select_and_scatter(select: Combine) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        dims, sizes, strides = _window(d)
        same = d.flag()
        counts = [-(-n // s) if same else _windows(n, w, s) for n, w, s in zip(dims, sizes, strides, strict=True)]
        return ops.SelectAndScatter(_distinct(d, dims), d.region(select), sizes, strides,
                                    ops.Padding.SAME if same else ops.Padding.VALID, d.array(counts, domain="small"),
                                    d.constant(0), d.region(ops.Add))
    return build


def _select_and_scatter_general(select: Combine) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        dims, sizes, strides = _window(d)
        padding = [(d.integer(0, 2), d.integer(0, 2)) for _ in dims]
        counts = [_windows(n, w, s, *p) for n, w, s, p in zip(dims, sizes, strides, padding, strict=True)]
        return ops.SelectAndScatterWithGeneralPadding(
            _distinct(d, dims), d.region(select), sizes, strides, padding, d.array(counts, domain="small"),
            d.constant(1), d.region(ops.Add))
    return build


def _lowest(kind: str) -> Any:
    return np.asarray(limit(kind, highest=False)).astype(dtype_of(kind))


ROWS: list[Row] = [
    Row("ReduceWindow", _reduce_window(ops.Add, "small"), (*INTEGERS, *FLOATS, *COMPLEX), variant="by addition"),
    Row("ReduceWindow", _reduce_window(ops.Add, "few"), NARROW_FLOATS, variant="by addition, narrow"),
    Row("ReduceWindow", _reduce_window(ops.Max, "any", _lowest), NUMBERS, variant="to the largest", unsigned_zero=True),
    Row("ReduceWindow", _reduce_window_pairs, (*INTS, *FLOATS), variant="of pairs"),
    Row("ReduceWindowWithGeneralPadding", _reduce_window_general(ops.Add, "small"), (*INTEGERS, *FLOATS, *COMPLEX),
        variant="by addition"),
    Row("ReduceWindowWithGeneralPadding", _reduce_window_general(ops.Add, "few"), NARROW_FLOATS, variant="by addition, narrow"),
    Row("ReduceWindowWithGeneralPadding", _reduce_window_general(ops.Mul, "small", 1), (*INTS, "f32", "f64"),
        variant="by multiplication"),
    Row("SelectAndScatter", _select_and_scatter(ops.Ge), (*INTS, *FLOATS)),
    Row("SelectAndScatterWithGeneralPadding", _select_and_scatter_general(ops.Ge), (*INTS, *FLOATS)),
    Row("SelectAndScatterWithGeneralPadding", _select_and_scatter_general(ops.Lt), (*INTS, *FLOATS), variant="of the smallest"),
]
