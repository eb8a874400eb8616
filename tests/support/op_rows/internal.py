"""Rows of what compiled programs contain, and of sizes that are data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from support.agreement import element_type
from xla_torch import Shape, XlaBuilder, XlaComputation, ops

from .drawn import Drawn, Row
from .kinds import ALL, COMPLEX, FLOATS, INTS, NUMBERS

COUNTED = (*INTS, "f32", "f64")


def _doubling(d: Drawn, dims: list[int]) -> XlaComputation:
    builder = XlaBuilder("doubling")
    x = ops.Parameter(builder, 0, Shape.array(element_type(d.kind), dims), "x")
    return builder.build(ops.Sub(x, ops.Neg(x)))


def _bitcast(d: Drawn) -> Any:
    dims = d.dims(0, 3)
    return ops.Bitcast(d.array(dims), Shape.array(element_type(d.kind), [math.prod(dims)]))


def _fusion(d: Drawn) -> Any:
    dims = d.dims(0, 3, smallest=1)
    return ops.Fusion(d.builder, "kLoop", [d.array(dims)], _doubling(d, dims))


def _async(d: Drawn) -> Any:
    """XLA's CPU compiler has no such pairs."""
    dims = d.dims(0, 3)
    d.expect(lambda x: [x + x])
    begun = ops.AsyncStart(d.builder, [d.array(dims, domain="small")], _doubling(d, dims))
    return ops.AsyncDone(ops.AsyncUpdate(begun) if d.flag() else begun)


def _domain(d: Drawn) -> Any:
    return ops.Domain(d.array(d.dims(0, 2)), "{maximal device=0}", "{maximal device=1}")


# ------------------------------------------------------------------------------------------------- sizes that are data


def _sized(d: Drawn) -> tuple[Any, list[int], int]:
    """An array of which one dimension is set to a smaller size; small whole numbers in it."""
    dims = d.dims(1, 3, smallest=1)
    at = d.integer(0, len(dims) - 1)
    return ops.SetDimensionSize(d.array(dims, domain="small"), d.index(0, dims[at]), at), dims, at


def _sum_of_sized(d: Drawn) -> Any:
    """Padding takes no part in a reduction."""
    operand, dims, _ = _sized(d)
    return ops.Reduce(operand, d.constant(0), d.region(ops.Add), list(range(len(dims))))


def _size(d: Drawn) -> Any:
    operand, dims, _ = _sized(d)
    return ops.GetDimensionSize(operand, d.integer(0, len(dims) - 1))


def _sum_of_reshaped(d: Drawn) -> Any:
    """The first elements, as many as the sizes say."""
    rows, columns = d.integer(1, 4), d.integer(1, 4)
    operand = d.array([rows * columns], domain="small")
    reshaped = ops.DynamicReshape(operand, [d.index(0, rows), d.index(columns, columns)], [rows, columns], [True, False])
    return ops.Reduce(reshaped, d.constant(0), d.region(ops.Add), [0, 1])


def _sum_of_first(*arrays: np.ndarray) -> list[np.ndarray]:
    operand, rows, columns = arrays
    with np.errstate(all="ignore"):
        return [np.asarray(operand[:int(rows) * int(columns)].sum(dtype=operand.dtype))]


ROWS: list[Row] = [
    Row("Bitcast", _bitcast, (*INTS, *FLOATS, *COMPLEX), eager=False, reference=lambda x: [x.reshape(-1)]),
    Row("Fusion", _fusion, (*NUMBERS, *COMPLEX)),
    Row("AsyncStart AsyncUpdate AsyncDone", _async, COUNTED, eager=False),
    Row("CopyStart CopyDone", lambda d: ops.CopyDone(ops.CopyStart(d.array(d.dims(0, 2)))), ALL, eager=False,
        reference=lambda x: [x]),
    Row("Domain", _domain, COUNTED, reference=lambda x: [x]),
    Row("SetDimensionSize", _sum_of_sized, COUNTED, variant="in a sum"),
    Row("GetDimensionSize", _size, COUNTED),
    Row("RemoveDynamicDimension", lambda d: ops.RemoveDynamicDimension(d.array(dims := d.dims(1, 3)), len(dims) - 1), ALL),
    Row("DynamicReshape", _sum_of_reshaped, COUNTED, variant="in a sum", reference=_sum_of_first),
]
