"""Elements at places that are known at run time. Negative places count from the end; ones out of range, at which torch raises an
error, are XLA's affair: reading takes the nearest element, and what is written there is dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import PRED, S32, S64, U8
from ..functions.hlo_builder import XlaOp
from ..functions.indexing import GatherDimensionNumbers, ScatterDimensionNumbers
from ..hlo.ir import Computation
from .checks import Where, require_values
from .chosen import places_where
from .operator_rules import rule
from .values import (
    Number,
    aligned,
    broadcast_sizes,
    cast,
    filled,
    full,
    greatest,
    iota,
    least,
    place,
    reducer,
    running,
    second,
    size_of,
    sized_as,
    spread,
    summed,
)


def _from_start(index: XlaOp, size: int | XlaOp) -> XlaOp:
    """Places counted from the start."""
    if index.element_type in (PRED, U8):
        raise UnsupportedError("a mask cannot be used as an index here", got=index.shape, expected="places")
    total, = aligned(index.element_type, size, sizes=index.shape.dimensions) if isinstance(size, XlaOp) else [
        full(index.builder, size, index.shape)]
    return ops.Select(ops.Lt(index, 0), ops.Add(index, total), index)


# ------------------------------------------------------------------------------------------- along one dimension


def taken_along(x: XlaOp, index: XlaOp, dim: int) -> XlaOp:
    """The elements at places along a dimension, a place for each element of the result, and where dynamic ones end what is
    beyond: XLA knows no such gathers."""
    x, index = (filled(a, range(a.shape.rank)) for a in (x, index))
    sizes = index.shape.dimensions
    x = _cut(x, sizes, dim)
    rank = x.shape.rank
    others = [d for d in range(rank) if d != dim]
    numbers = GatherDimensionNumbers((), (dim,), (dim,), rank, others, others)
    return ops.Gather(x, ops.Reshape(index, [*sizes, 1]), numbers, [1] * rank)


def _cut(x: XlaOp, sizes: Sequence[int], dim: int) -> XlaOp:
    """The array as far as the sizes go in all dimensions but one."""
    ends = [n if d == dim else m for d, (n, m) in enumerate(zip(x.shape.dimensions, sizes, strict=True))]
    return x if list(x.shape.dimensions) == ends else ops.Slice(x, [0] * len(ends), ends)


@rule("gather")
def _gather(self: XlaOp, dim: int, index: XlaOp, result: Shape) -> XlaOp:
    if not self.shape.rank or not index.shape.rank:
        return spread(ops.Reshape(self, []), result.dimensions)
    dim = place(dim, self.shape.rank)
    if not index.shape.element_count:
        return full(self.builder, 0, result)
    return taken_along(self, _from_start(index, size_of(self, dim)), dim)


@rule("scatter.src", "scatter.value")
def _scatter(self: XlaOp, dim: int, index: XlaOp, src: XlaOp | None = None, value: Number = 0) -> XlaOp:
    updates = full(self.builder, value, self.shape.with_dimensions(index.shape.dimensions)) if src is None else src
    return scattered(self, dim, index, updates, second(self.element_type))


@rule("scatter_add")
def _scatter_add(self: XlaOp, dim: int, index: XlaOp, src: XlaOp) -> XlaOp:
    return scattered(self, dim, index, src, reducer("Or" if self.element_type.is_pred else "Add", self.element_type))


def scattered(x: XlaOp, dim: int, index: XlaOp, updates: XlaOp, combiner: Computation) -> XlaOp:
    """Updates brought to places along a dimension of `x`."""
    if not index.shape.element_count:
        return x
    if not x.shape.rank:
        one = scattered(ops.Reshape(x, [1]), 0, ops.Reshape(index, [1]), ops.Reshape(updates, [1]), combiner)
        return ops.Reshape(one, [])
    rank = x.shape.rank
    dim = place(dim, rank)
    for d in range(rank):
        if index.shape.dimensions[d] > updates.shape.dimensions[d]:  # torch.export has asserted that there are no more
            index = _up_to(index, d, updates.shape.dimensions[d], False)
    sizes = index.shape.dimensions
    if updates.shape.dimensions != sizes:
        updates = ops.Slice(updates, [0] * rank, sizes)
    index = cast(_from_start(index, x.shape.dimensions[dim]), S64)
    parts = [index if d == dim else iota(x, sizes, d) for d in range(rank)]
    places = ops.ConcatInDim(x.builder, [ops.Reshape(p, [*sizes, 1]) for p in parts], rank)
    everywhere = range(rank)
    return ops.Scatter(x, places, updates, combiner, ScatterDimensionNumbers((), everywhere, everywhere, rank))


_WORDS = {"sum": "Add", "prod": "Mul", "mean": "Add", "amax": "Max", "amin": "Min"}


@rule("scatter_reduce.two")
def _scatter_reduce(self: XlaOp, dim: int, index: XlaOp, src: XlaOp, reduce: str, include_self: bool) -> XlaOp:
    t = self.element_type
    begins: dict[str, Number] = {"prod": 1, "amax": least(t), "amin": greatest(t)}
    start = self
    if not include_self:
        blank = full(self.builder, begins.get(reduce, 0), self.shape.with_dimensions(index.shape.dimensions))
        start = scattered(self, dim, index, blank, second(t))
    found = scattered(start, dim, index, src, reducer(_WORDS[reduce], t))
    if reduce != "mean":
        return found
    ones = full(self.builder, 1, self.shape.with_dimensions(index.shape.dimensions))
    count = scattered(full(self.builder, 1 if include_self else 0, self.shape), dim, index, ones, reducer("Add", t))
    count = ops.Max(count, full(self.builder, 1, self.shape))
    if t.is_floating:
        return ops.Div(found, count)
    down = ops.And(ops.Lt(found, 0), ops.Ne(ops.Rem(found, count), 0))
    quotient = ops.Div(found, count)
    return ops.Select(down, ops.Sub(quotient, full(self.builder, 1, self.shape)), quotient)


# ------------------------------------------------------------------------------------------- index arrays


@rule("index.Tensor")
def _index(self: XlaOp, indices: Sequence[XlaOp | None], result: Shape, where: Where = lambda: None) -> XlaOp:
    has_mask = any(index is not None and index.element_type in (PRED, U8) for index in indices)
    if result.is_static and not result.element_count and not (has_mask and self.shape.element_count):
        return full(self.builder, 0, result)  # of what a mask chooses the size is checked
    return indexed(self, _without_masks(indices, where))


def _without_masks(indices: Sequence[XlaOp | None], where: Where) -> list[XlaOp | None]:
    """The indices, each mask as a vector of places for each of its dimensions, as many as there are places beside it."""
    masks = [k for k, index in enumerate(indices) if index is not None and index.element_type in (PRED, U8)]
    if len(masks) > 1:
        raise UnsupportedError("several masks in one index may select different numbers of elements", subject="index",
                               got=f"{len(masks)} masks", expected="one", hint="index twice, or combine the masks with &")
    found: list[XlaOp | None] = []
    for k, index in enumerate(indices):
        found += places_where(index) if k in masks and index is not None else [index]
    return _of_one_number(found, where)


def _of_one_number(indices: Sequence[XlaOp | None], where: Where) -> list[XlaOp | None]:
    """The indices, where those whose number depends on values are as many as those of a known number. That is checked."""
    given = [index for index in indices if index is not None and index.shape.rank]
    known = {index.shape.dimensions[-1] for index in given if not index.shape.dynamic_flags[-1]} - {1}
    if len(known) != 1 or not any(index.shape.dynamic_flags[-1] for index in given):
        return list(indices)
    count, found = known.pop(), list(indices)
    for k, index in enumerate(indices):
        if index is None or not index.shape.rank or not index.shape.dynamic_flags[-1]:
            continue
        dim = index.shape.rank - 1
        require_values(ops.ConvertElementType(ops.GetDimensionSize(index, dim), S64), count, ops.Eq, AS_MANY, where)
        found[k] = _up_to(index, dim, min(count, index.shape.dimensions[dim]), True)
    return found


@rule("index_select")
def _index_select(self: XlaOp, dim: int, index: XlaOp, result: Shape) -> XlaOp:
    if not self.shape.rank:
        return spread(self, result.dimensions)
    dim = place(dim, self.shape.rank)
    index = ops.Reshape(index, [index.shape.element_count])
    return indexed(self, [*[None] * dim, index])


@rule("embedding")
def _embedding(weight: XlaOp, indices: XlaOp, padding_idx: int) -> XlaOp:
    """Which row is padding matters for gradients only, of which `embedding_dense_backward` has it."""
    return indexed(weight, [indices])


AS_MANY = "there are as many values as places"


def indexed(x: XlaOp, indices: Sequence[XlaOp | None]) -> XlaOp:
    """``x[indices]``, where None stands for all of a dimension."""
    dims, places, window = _index_vectors(x, indices)
    numbers = GatherDimensionNumbers(window, dims, dims, places.shape.rank - 1)
    sizes = [1 if d in dims else n for d, n in enumerate(x.shape.dimensions)]
    return ops.Gather(x, places, numbers, sizes)


def _index_vectors(x: XlaOp, indices: Sequence[XlaOp | None]) -> tuple[list[int], XlaOp, list[int]]:
    """(The indexed dimensions, a vector of places in them for each element of the broadcast indices, and where in the result the
    other dimensions stand.) Those of the indices come where the first indexed dimension was, or in front if there are others
    between indexed ones."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    sizes = broadcast_sizes(*(index.shape.dimensions for index in given))
    columns = [ops.Reshape(spread(cast(_from_start(index, size_of(x, d)), S64), sizes), [*sizes, 1])
               for d, index in zip(dims, given, strict=True)]
    places = columns[0] if len(columns) == 1 else ops.ConcatInDim(x.builder, columns, len(sizes))
    before = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = x.shape.rank - len(dims)
    return dims, places, [k if k < before else k + len(sizes) for k in range(rest)]


@rule("index_put")
def put(self: XlaOp, indices: Sequence[XlaOp | None], values: XlaOp, accumulate: bool, where: Where = lambda: None) -> XlaOp:
    t = self.element_type
    first = indices[0]
    if first is not None and len(indices) == 1 and first.element_type is PRED and (
            math.prod(values.shape.dimensions) == 1 or not self.shape.is_static):
        return _put_where(self, first, values, accumulate, where)
    dims, places, window = _index_vectors(self, _without_masks(indices, where))
    rest = [n for d, n in enumerate(self.shape.dimensions) if d not in dims]
    at = next(k for k in range(self.shape.rank + 1) if k not in window)
    places, values = _as_many(places, values, values.shape.rank + at - len(rest) - 1, where)
    batch = list(places.shape.dimensions[:-1])
    sizes, others = [0] * (len(batch) + len(rest)), iter(batch)
    for k in range(len(sizes)):
        sizes[k] = rest[window.index(k)] if k in window else next(others)
    combiner = reducer("Or" if t.is_pred else "Add", t) if accumulate else second(t)
    numbers = ScatterDimensionNumbers(window, dims, dims, places.shape.rank - 1)
    if 0 in sizes:
        return self
    return ops.Scatter(self, places, spread(cast(values, t), sizes), combiner, numbers)


def _as_many(places: XlaOp, values: XlaOp, dim: int, where: Where) -> tuple[XlaOp, XlaOp]:
    """Places, and as many values along `dim`. That is checked where either number depends on values; torch.export does not."""
    is_one = dim < 0 or (values.shape.dimensions[dim] == 1 and not values.shape.dynamic_flags[dim])
    if is_one or places.shape.rank != 2 or not (places.shape.dynamic_flags[0] or values.shape.dynamic_flags[dim]):
        return places, values
    number = ops.ConvertElementType(ops.GetDimensionSize(places, 0), S64)
    require_values(number, size_of(values, dim), ops.Eq, AS_MANY, where)
    least_of_both = min(places.shape.dimensions[0], values.shape.dimensions[dim])
    is_static = not (places.shape.dynamic_flags[0] and values.shape.dynamic_flags[dim])
    return _up_to(places, 0, least_of_both, is_static), _up_to(values, dim, least_of_both, is_static)


def _up_to(x: XlaOp, dim: int, bound: int, is_static: bool) -> XlaOp:
    """The first elements, of a known number or up to one."""
    size = size_of(x, dim)
    x = ops.SliceInDim(filled(x, [dim]), 0, bound, 1, dim)
    if is_static or not isinstance(size, XlaOp):
        return x
    return ops.SetDimensionSize(x, cast(ops.Min(size, size.builder.constant(bound, S64)), S32), dim)


def _put_where(x: XlaOp, mask: XlaOp, values: XlaOp, accumulate: bool, where: Where) -> XlaOp:
    """Values where a mask says so: one for all places, or one after another."""
    rank, plain = mask.shape.rank, filled(x, range(x.shape.rank))
    sizes, rest = plain.shape.dimensions, plain.shape.dimensions[rank:]
    mask = filled(mask, range(rank))
    if values.shape.rank == 1 + len(rest) and (values.shape.dimensions[0] != 1 or values.shape.dynamic_flags[0]):
        require_values(_count(mask), size_of(values, 0), ops.Eq, AS_MANY, where)
    values = filled(cast(values, x.element_type), range(values.shape.rank))
    if math.prod(values.shape.dimensions) == 1:
        values = ops.Reshape(values, [])
    elif values.shape.rank == 1 + len(rest) and values.shape.dimensions[0] != 1:
        values = ops.Reshape(indexed(spread(values, [values.shape.dimensions[0], *rest]), [_numbers(mask)]), sizes)
    else:
        values = ops.Reshape(spread(values, [1, *rest]), rest)
    found = spread(values, sizes)
    chosen = ops.BroadcastInDim(mask, sizes, range(rank))
    return sized_as(ops.Select(chosen, ops.Add(plain, found) if accumulate else found, plain), x)


def _count(mask: XlaOp) -> XlaOp:
    """How many elements a mask chooses, s64[]."""
    return summed(cast(mask, S64), range(mask.shape.rank))


def _numbers(mask: XlaOp) -> XlaOp:
    """For each element of a mask how many chosen ones are before it, s64."""
    count = mask.shape.element_count
    counted = running(cast(ops.Reshape(mask, [count]), S64), "Add", 0, 0)
    return ops.Max(ops.Sub(counted, full(mask.builder, 1, Shape.array(S64, [count]))), 0)


@rule("masked_scatter")
def _masked_scatter(self: XlaOp, mask: XlaOp, source: XlaOp, result: Shape, where: Where = lambda: None) -> XlaOp:
    """The elements of the source one after another in the places of the mask: each place's number is a running count."""
    self = spread(self, result.dimensions) if result.is_static else self
    if not self.shape.element_count:
        return self
    count = self.shape.element_count
    flat = ops.Reshape(spread(mask, self.shape.dimensions), [count])
    if not source.shape.is_static or source.shape.element_count < count:
        given: Any = math.prod(size_of(source, d) for d in range(source.shape.rank))
        require_values(_count(flat), given, ops.Ge, "there are no fewer values than places", where)
    source = filled(source, range(source.shape.rank))
    taken = indexed(ops.Reshape(source, [source.shape.element_count]), [_numbers(flat)])
    return ops.Reshape(ops.Select(flat, taken, ops.Reshape(self, [count])), list(self.shape.dimensions))


@rule("embedding_dense_backward")
def _embedding_backward(grad_output: XlaOp, indices: XlaOp, num_weights: int, padding_idx: int,
                        scale_grad_by_freq: bool) -> XlaOp:
    width = grad_output.shape.dimensions[-1]
    count = indices.shape.element_count
    rows = ops.Reshape(grad_output, [count, width])
    at = ops.Reshape(indices, [count])
    if scale_grad_by_freq:
        raise UnsupportedError("gradients scaled by how often a row is used", subject="embedding_dense_backward")
    if padding_idx >= 0:
        padding = ops.BroadcastInDim(ops.Eq(at, padding_idx), rows.shape.dimensions, [0])
        rows = ops.Select(padding, full(rows.builder, 0, rows.shape), rows)
    start = full(rows.builder, 0, rows.shape.with_dimensions([num_weights, width]))
    return put(start, [at], rows, True)
