"""Rows of the functions that move elements, and of constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from support.agreement import element_type, special_values
from xla_torch import Shape, ops

from .drawn import Drawn, Row, rows_of
from .kinds import ALL, EVERYTHING, NARROW_INTS

PACKED: tuple[str, ...] = (*NARROW_INTS, "f4e2m1fn")
"""Types of which XLA packs several elements into a byte."""


def _broadcast(d: Drawn) -> Any:
    return ops.Broadcast(d.array(d.dims(0, 2)), d.dims(0, 2))


def _broadcast_in_dim(d: Drawn) -> Any:
    out = d.dims()
    kept = d.some(len(out))
    return ops.BroadcastInDim(d.array([out[k] if d.flag() else 1 for k in kept]), out, kept)


def _reshaped(d: Drawn) -> tuple[Any, list[int]]:
    """An array and other sizes for its elements: factors taken apart and put together in another order."""
    dims = d.dims(1, 4)
    out = [dims[k] for k in d.order(len(dims))]
    if len(out) > 1 and d.flag():
        out = [out[0] * out[1], *out[2:]]
    if d.flag():
        out.insert(d.integer(0, len(out)), 1)
    return d.array(dims), out


def _reshape(d: Drawn) -> Any:
    operand, out = _reshaped(d)
    return ops.Reshape(operand, out)


def _reshape_to_shape(d: Drawn) -> Any:
    operand, out = _reshaped(d)
    return ops.Reshape(Shape.array(element_type(d.kind), out), operand)


def _reshape_transposing(d: Drawn) -> Any:
    dims = d.dims()
    order = d.order(len(dims))
    return ops.Reshape(d.array(dims), order, [math.prod(dims)] if d.flag() else [dims[k] for k in order])


def _reshape_inferred(d: Drawn) -> Any:
    dims = d.dims(1, 3, smallest=1)
    at = d.integer(0, len(dims) - 1)
    out = [dims[k] for k in d.order(len(dims))]
    return ops.ReshapeWithInferredDimension(d.array(dims), [-1 if k == at else n for k, n in enumerate(out)], at)


def _collapse(d: Drawn) -> Any:
    dims = d.dims(1, 4)
    first = d.integer(0, len(dims) - 1)
    return ops.Collapse(d.array(dims), list(range(first, d.integer(first, len(dims)))))


def _transpose(d: Drawn) -> Any:
    dims = d.dims()
    return ops.Transpose(d.array(dims), d.order(len(dims)))


def _reverse(d: Drawn) -> Any:
    dims = d.dims()
    return ops.Rev(d.array(dims), d.some(len(dims)))


def _slice(d: Drawn) -> Any:
    dims = d.dims()
    starts = [d.integer(0, n) for n in dims]
    limits = [d.integer(s, n) for s, n in zip(starts, dims, strict=True)]
    if d.flag():
        return ops.Slice(d.array(dims), starts, limits)
    return ops.Slice(d.array(dims), starts, limits, [d.integer(1, 3) for _ in dims])


def _slice_in_dim(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    start = d.integer(0, dims[at])
    return ops.SliceInDim(d.array(dims), start, d.integer(start, dims[at]), d.integer(1, 3), at)


def _concatenate(d: Drawn, function: Any) -> Any:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    parts = [d.array([*dims[:at], d.integer(0, 4), *dims[at + 1:]]) for _ in range(d.integer(1, 3))]
    d.expect(lambda *arrays: [np.concatenate(arrays, at)])
    return function(d.builder, parts, at)


def _padding(d: Drawn, size: int) -> tuple[int, int, int]:
    """Low, high and interior padding, negative ones among them, that leave a size of at least 0."""
    interior = d.integer(0, 2)
    inside = size + max(size - 1, 0) * interior
    low = d.integer(-min(inside, 3), 3)
    return low, d.integer(-min(inside + low, 3), 3), interior


def _pad(d: Drawn) -> Any:
    dims = d.dims(0, 3)
    return ops.Pad(d.array(dims), d.array([]), [_padding(d, n) for n in dims])


def _pad_in_dim(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    low, high, _ = _padding(d, dims[at])
    return ops.PadInDim(d.array(dims), d.array([]), at, max(low, 0), max(high, 0))


def _iota(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    return ops.Iota(d.builder, Shape.array(element_type(d.kind), dims), d.integer(0, len(dims) - 1))


def _iota_of_size(d: Drawn) -> Any:
    return ops.Iota(d.builder, element_type(d.kind), d.integer(0, 20))


def _constant(d: Drawn, function: Any, rank: int) -> Any:
    values = special_values(d.kind)
    if np.iscomplexobj(values):
        values = values[~np.isnan(values.real)]  # XLA's parser makes the imaginary part NaN, too
    return function(d.builder, np.random.default_rng(d.seed).choice(values, d.dims(rank, rank)))


ROWS: list[Row] = [
    Row("Broadcast", _broadcast, EVERYTHING),
    Row("BroadcastInDim", _broadcast_in_dim, EVERYTHING),
    Row("Reshape", _reshape, EVERYTHING),
    Row("Reshape", _reshape_to_shape, ALL, variant="to a shape"),
    Row("Reshape", _reshape_transposing, ALL, variant="of three arguments"),
    Row("ReshapeWithInferredDimension", _reshape_inferred, ALL),
    Row("Collapse", _collapse, ALL),
    Row("Transpose", _transpose, EVERYTHING),
    Row("Rev", _reverse, EVERYTHING),
    Row("Slice", _slice, EVERYTHING),
    Row("SliceInDim", _slice_in_dim, ALL),
    *rows_of("ConcatInDim Concatenate", _concatenate, EVERYTHING, disputed=dict.fromkeys(PACKED, "XLA's CPU compiler aborts")),
    Row("Pad", _pad, EVERYTHING),
    Row("PadInDim", _pad_in_dim, ALL),
    Row("Iota", _iota, tuple(t for t in ALL if t != "pred")),
    Row("Iota", _iota_of_size, tuple(t for t in ALL if t != "pred"), variant="of a type and a size"),
    Row("Copy", lambda d: ops.Copy(d.array(d.dims())), EVERYTHING),
    *(Row(f"ConstantR{rank}", lambda d, rank=rank: _constant(d, getattr(ops, f"ConstantR{rank}"), rank), ALL)
      for rank in range(5)),
    *rows_of("ConstantLiteral Constant", lambda d, function: _constant(d, function, d.integer(0, 3)), EVERYTHING),
]
