"""How many there are depends on values: places that a mask chooses. Their dimension is dynamic, and its bound is how many there
can be; no less than 2, since a bound of 1 would be taken for a dimension that broadcasts."""

from __future__ import annotations

import itertools
import math
import operator

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import PRED, S32, S64
from ..functions.hlo_builder import Builder, XlaOp
from ..functions.indexing import GatherDimensionNumbers
from ..hlo.ir import Computation
from .operator_rules import rule
from .values import broadcast_sizes, cast, filled, full, iota, reduced, spread, summed


def chosen(mask: XlaOp) -> XlaOp:
    """The places of what is True in a vector, in order: the first of all places in order, where others are beyond."""
    mask = filled(mask, [0])
    count = mask.shape.dimensions[0]
    if count < 2:
        mask, count = ops.PadInDim(mask, False, 0, 0, 2 - count), 2
    beyond = full(mask.builder, count, Shape.array(S64, [count]))
    ordered = ops.Sort(ops.Select(mask, iota(mask, [count], 0), beyond), _earlier(), 0)
    return ops.SetDimensionSize(ordered, summed(cast(mask, S32), [0]), 0)


def _earlier() -> Computation:
    builder = Builder("earlier")
    a, b = (builder.parameter(k, Shape.array(S64), name) for k, name in enumerate("ab"))
    return builder.finish(ops.Lt(a, b))


def places_where(x: XlaOp) -> list[XlaOp]:
    """For each dimension, where what is not 0 stands in it."""
    mask = filled(cast(x, PRED), range(x.shape.rank))
    sizes = mask.shape.dimensions
    flat = chosen(ops.Reshape(mask, [mask.shape.element_count]))
    strides = [*itertools.accumulate(reversed(sizes[1:]), operator.mul, initial=1)][::-1]
    return [ops.Rem(ops.Div(flat, full(x.builder, stride, flat.shape)), full(x.builder, max(n, 1), flat.shape))
            for n, stride in zip(sizes, strides, strict=True)]


@rule("masked_select")
def _masked_select(self: XlaOp, mask: XlaOp, result: Shape) -> XlaOp:
    sizes = broadcast_sizes(self.shape.dimensions, mask.shape.dimensions)
    if 0 in sizes:
        return full(self.builder, 0, Shape.array(result.element_type, [0]))
    flat, where = (ops.Reshape(spread(x, sizes), [math.prod(sizes)]) for x in (self, mask))
    places = chosen(where)
    column = ops.Reshape(places, [places.shape.dimensions[0], 1])
    return ops.Gather(flat, column, GatherDimensionNumbers((), (0,), (0,), 1), [1])


@rule("nonzero")
def _nonzero(self: XlaOp, result: Shape) -> XlaOp:
    if not self.shape.element_count:
        return full(self.builder, 0, Shape.array(S64, [0, self.shape.rank]))
    if not self.shape.rank:
        there = ops.Reshape(cast(self, PRED), [1])
        return ops.SetDimensionSize(full(self.builder, 0, Shape.array(S64, [2, 0])), summed(cast(there, S32), [0]), 0)
    columns = [ops.Reshape(part, [part.shape.dimensions[0], 1]) for part in places_where(self)]
    return columns[0] if len(columns) == 1 else ops.ConcatInDim(self.builder, columns, 1)


def first_of_runs(x: XlaOp) -> XlaOp:
    """Whether each element of a vector, or row of an array, is another than the one before."""
    count = x.shape.dimensions[0]
    differs = ops.Ne(ops.SliceInDim(x, 1, count, 1, 0), ops.SliceInDim(x, 0, count - 1, 1, 0))
    differs = reduced(differs, "Or", False, [1]) if differs.shape.rank > 1 else differs
    return ops.PadInDim(differs, True, 0, 1, 0)


def sizes_as(vector: XlaOp, places: XlaOp) -> XlaOp:
    """The first elements of a vector, as many as there are places."""
    missing = places.shape.dimensions[0] - vector.shape.dimensions[0]
    vector = ops.PadInDim(vector, 0, 0, 0, missing) if missing else vector
    return ops.SetDimensionSize(vector, ops.GetDimensionSize(places, 0), 0)
