"""Sorting. NaN is above all numbers, and zeros of either sign are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import PRED, S64, U8, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation
from .operator_rules import rule
from .values import cast, full, iota, place


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


def _ordered(x: XlaOp, dim: int, descending: bool) -> list[XlaOp]:
    if not x.shape.rank:
        return [x, full(x.builder, 0, x.shape.with_element_type(S64))]
    key = cast(x, U8) if x.element_type is PRED else x
    found = ops.Sort([key, iota(x, x.shape.dimensions, dim)], _comparator(key.element_type, descending), dim, is_stable=True)
    return [cast(ops.GetTupleElement(found, 0), x.element_type), ops.GetTupleElement(found, 1)]


@rule("sort", "sort.stable")
def _sort(self: XlaOp, dim: int, descending: bool, stable: bool | None = None) -> list[XlaOp]:
    """Always stable."""
    return _ordered(self, place(dim, self.shape.rank), descending)


@rule("topk")
def _topk(self: XlaOp, k: int, dim: int, largest: bool, sorted: bool, result: Sequence[Shape]) -> list[XlaOp]:
    """Always sorted, and of equal elements the first ones, which torch leaves open."""
    dim = place(dim, self.shape.rank)
    found = _ordered(self, dim, largest)
    return [ops.SliceInDim(part, 0, k, 1, dim) for part in found] if self.shape.rank else found
