"""Cotangents and tangents as values: an op of the value's shape, for a tuple one for each element, None for a zero that was
never built."""

from __future__ import annotations

from typing import Any, TypeAlias

from grad_rules._calculus import full, sum_over
from grad_rules._masks import added

from .. import functions as ops
from ..core.shape import UNBOUNDED, Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..transform.values import Value, leaves

Cotangent: TypeAlias = "XlaOp | tuple[Cotangent, ...] | None"


def is_zero(ct: Cotangent) -> bool:
    """Whether no part of it was built."""
    return all(map(is_zero, ct)) if isinstance(ct, tuple) else ct is None


def parts_of(ct: Cotangent, count: int) -> tuple[Cotangent, ...]:
    """The cotangents of a tuple's elements."""
    assert not isinstance(ct, XlaOp)
    return (None,) * count if ct is None else ct


def add(a: Cotangent, b: Cotangent, singular: bool = False) -> Cotangent:
    """The sum of two cotangents of one value. `singular` says that the value comes of an op whose derivative may be infinite."""
    if a is None or b is None:
        return b if a is None else a
    return tree.combined(lambda x, y: _sum(x, y, singular), a, b)


def with_part(whole: Cotangent, part: tree.At, singular: bool = False) -> Cotangent:
    """The cotangent of a tuple, to one element of which something is added."""
    return tree.combined(lambda x, y: _sum(y, x, singular), part, whole)


def _sum(x: XlaOp | None, y: XlaOp | None, singular: bool) -> XlaOp | None:
    return (y if x is None else x) if x is None or y is None else added(x, y, singular)


def zeros(builder: Builder, shape: Shape) -> XlaOp:
    """An array of zeros; size 1 stands for an unknown size."""
    return full(builder, 0, shape)


def materialised(builder: Builder, ct: Cotangent, shape: Shape) -> Value:
    """The cotangent of a value of this shape, zeros where it is None."""
    return tree.mapped(lambda own, part: zeros(builder, own) if part is None else part, shape, tree.filled(ct, shape), kind=list)


def frozen(value: Any) -> Any:
    """Nested lists as nested tuples: a value as rules and cotangents have it."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


# ------------------------------------------------------------------------------------------------ dynamic sizes


def measure(value: Value) -> None:
    """The sizes that `fitted` will ask for, as values of the forward pass: it then keeps them, and not the arrays."""
    for leaf in leaves(value):
        for d, size in enumerate(leaf.shape.dimensions):
            if leaf.shape.dynamic_flags[d] and size != UNBOUNDED:
                ops.GetDimensionSize(leaf, d)


def fitted(part: Cotangent, value: Value) -> Cotangent:
    """The cotangent with the sizes that a value with dynamic dimensions has at run time: cut, or filled up with zeros. Where
    size 1 met an unknown size, the sum; where an unknown size was left at 1, repeated."""
    return None if part is None else tree.combined(_fitted, part, frozen(value))


def _fitted(part: XlaOp | None, value: XlaOp) -> XlaOp | None:
    return part if part is None or (part.shape.is_static and value.shape.is_static) else _resized(part, value)


def _resized(part: XlaOp, value: XlaOp) -> XlaOp:
    shape = value.shape
    if any(n == UNBOUNDED and m == 1 for n, m in zip(shape.dimensions, part.shape.dimensions, strict=True)):
        part = ops.Select(ops.Eq(value, value), part, part)
    stretched = [d for d in range(shape.rank) if shape.dimensions[d] == 1 and part.shape.dimensions[d] == UNBOUNDED]
    if stretched:
        part = ops.Reshape(sum_over(part, stretched), shape.dimensions)
    for d, size in enumerate(shape.dimensions):
        if shape.dynamic_flags[d] and size != UNBOUNDED:
            part = ops.SetDimensionSize(part, ops.GetDimensionSize(value, d), d)
    return part
