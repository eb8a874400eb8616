"""Sorting. NaN is above all numbers, and zeros of either sign are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import PRED, S64, U8, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation
from .indexing import taken_along
from .operator_rules import rule
from .values import cast, filled, full, greatest, iota, is_beyond, place, reduced


def _comparator(element_type: PrimitiveType, descending: bool) -> Computation:
    builder = Builder(f"{'descending' if descending else 'ascending'}_{element_type.text}")
    keys = [builder.parameter(k, Shape.array(element_type), name) for k, name in enumerate(("a", "b"))]
    for k, name in ((2, "place_a"), (3, "place_b")):
        builder.parameter(k, Shape.array(S64), name)
    if not element_type.is_floating:
        return builder.finish((ops.Gt if descending else ops.Lt)(*keys))
    return builder.finish((ops.GtTotalOrder if descending else ops.LtTotalOrder)(*map(_canonical, keys)))


def _canonical(key: XlaOp) -> XlaOp:
    """One zero and one NaN of all."""
    key = ops.Select(ops.Eq(key, 0), full(key.builder, 0, key.shape), key)
    return ops.Select(ops.Ne(key, key), full(key.builder, math.nan, key.shape), key)


def ordered(x: XlaOp, dim: int, descending: bool) -> list[XlaOp]:
    """The elements in order along a dimension, and their places."""
    if not x.shape.rank:
        return [x, full(x.builder, 0, x.shape.with_element_type(S64))]
    if x.shape.dynamic_flags[dim]:
        return _ordered_before(x, dim, descending)
    key = cast(x, U8) if x.element_type is PRED else x
    found = ops.Sort([key, iota(x, x.shape.dimensions, dim)], _comparator(key.element_type, descending), dim, is_stable=True)
    return [cast(ops.GetTupleElement(found, 0), x.element_type), ops.GetTupleElement(found, 1)]


def _ordered_before(x: XlaOp, dim: int, descending: bool) -> list[XlaOp]:
    """Of a dimension whose size depends on values, with what is beyond after all others: no element need be the last one."""
    x_filled = filled(x, [dim])
    _, at = ordered(x_filled, dim, descending)
    found = ops.Sort([cast(is_beyond(at, x, dim), U8), at], _comparator(U8, False), dim, is_stable=True)
    at = ops.GetTupleElement(found, 1)
    return [taken_along(x_filled, at, dim), at]


@rule("sort", "sort.stable")
def _sort(self: XlaOp, dim: int, descending: bool, stable: bool | None = None) -> list[XlaOp]:
    """Always stable."""
    return ordered(self, place(dim, self.shape.rank), descending)


@rule("topk")
def _topk(self: XlaOp, k: int, dim: int, largest: bool, sorted: bool, result: Sequence[Shape]) -> list[XlaOp]:
    """Always sorted, and of equal elements the first ones, which torch leaves open."""
    dim = place(dim, self.shape.rank)
    found = ordered(self, dim, largest)
    return [ops.SliceInDim(part, 0, k, 1, dim) for part in found] if self.shape.rank else found


# ------------------------------------------------------------------------------------------- one element of all in order


def _ranked(x: XlaOp, rank: int | XlaOp, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    """The element with a rank along a dimension, and its place: that of the first of equal ones."""
    values, at = ordered(x, dim, False)
    if not x.shape.rank:
        return [values, at]
    if isinstance(rank, int):
        rank = full(x.builder, rank, Shape.array(S64, [1 if d == dim else n for d, n in enumerate(x.shape.dimensions)]))
    place = taken_along(at, rank, dim)
    return [ops.Reshape(taken_along(part, where, dim), list(shape.dimensions))
            for part, where, shape in zip((x, at), (place, rank), result, strict=True)]


@rule("kthvalue", shown="keepdim")
def _kthvalue(self: XlaOp, k: int, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    return _ranked(self, k - 1, place(dim, self.shape.rank), result)


def _median(x: XlaOp, dim: int, result: Sequence[Shape], ignores: bool) -> list[XlaOp]:
    """The lower one of two in the middle. A NaN is what it is, or else, with `ignores`, no element."""
    if not x.shape.rank or not x.element_type.is_floating:
        return _ranked(x, (x.shape.dimensions[dim] - 1) // 2 if x.shape.rank else 0, dim, result)
    size = x.shape.dimensions[dim]
    count = reduced(cast(ops.Eq(x, x), S64), "Add", 0, [dim], True)  # of those that are no NaN
    halved = ops.Div(ops.Sub(ops.Max(count, full(x.builder, 1, count.shape)), full(x.builder, 1, count.shape)),
                     full(x.builder, 2, count.shape))
    if not ignores:
        halved = ops.Select(ops.Eq(count, size), halved, count)
    return _ranked(x, halved, dim, result)


def _of_all(x: XlaOp, result: Shape, ignores: bool) -> XlaOp:
    flat = ops.Reshape(x, [x.shape.element_count])
    return _median(flat, 0, [result, result.with_element_type(S64)], ignores)[0]


@rule("median")
def _median_of_all(self: XlaOp, result: Shape) -> XlaOp:
    return _of_all(self, result, False)


@rule("nanmedian")
def _nanmedian_of_all(self: XlaOp, result: Shape) -> XlaOp:
    return _of_all(self, result, True)


@rule("median.dim", shown="keepdim")
def _median_along(self: XlaOp, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    return _median(self, place(dim, self.shape.rank), result, False)


@rule("nanmedian.dim", shown="keepdim")
def _nanmedian_along(self: XlaOp, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    return _median(self, place(dim, self.shape.rank), result, True)


@rule("mode", shown="keepdim")
def _mode(self: XlaOp, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    """The least of the most frequent elements, and the last place where it stands."""
    if not self.shape.rank:
        return [self, full(self.builder, 0, result[1])]
    dim = place(dim, self.shape.rank)
    values, at = ordered(self, dim, False)
    sizes, rank = self.shape.dimensions, self.shape.rank
    pairs = [*sizes[:dim], sizes[dim], *sizes[dim:]]
    one, other = (ops.BroadcastInDim(values, pairs, [d + (d > last) for d in range(rank)]) for last in (dim, dim - 1))
    often = reduced(cast(ops.Eq(one, other), S64), "Add", 0, [dim + 1])
    most = ops.BroadcastInDim(reduced(often, "Max", 0, [dim], True), sizes, range(rank))
    counted = iota(self, sizes, dim)
    first = reduced(ops.Select(ops.Eq(often, most), counted, full(self.builder, sizes[dim], counted.shape)), "Min", greatest(S64),
                    [dim], True)
    last = ops.Sub(ops.Add(first, taken_along(often, first, dim)), full(self.builder, 1, first.shape))
    where = taken_along(at, last, dim)
    return [ops.Reshape(part, list(shape.dimensions))
            for part, shape in zip((taken_along(self, where, dim), where), result, strict=True)]
