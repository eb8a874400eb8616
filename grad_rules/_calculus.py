"""Words that rules share: conjugates, zeros, sums, scalar computations, and taking or putting elements along a dimension.

Everything here is made of the documented functions of `xla_torch.ops`, so what a rule builds is an ordinary program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xla_torch import functions as ops
from xla_torch.core.shape import UNBOUNDED, Shape
from xla_torch.core.types import PRED, S32, PrimitiveType, has_nan, has_zero
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Computation


def conj(x: XlaOp) -> XlaOp:
    """The complex conjugate; a real value is its own. The gradient of a holomorphic f is ``ct * conj(f'(x))``."""
    return ops.Conj(x) if x.element_type.is_complex else x


def real_part(x: XlaOp) -> XlaOp:
    """The real part; a real value is its own."""
    return ops.Real(x) if x.element_type.is_complex else x


def convert(x: XlaOp, element_type: PrimitiveType) -> XlaOp:
    """`x` in another element type, by an op only where the type differs; complex to real takes the real part."""
    if x.element_type is element_type:
        return x
    return ops.ConvertElementType(x if element_type.is_complex else real_part(x), element_type)


def nothing(element_type: PrimitiveType) -> float:
    """Zero; of the type of scales, which has none, the least number."""
    return 0 if has_zero(element_type) else 2.0**-127


def full(builder: Builder, value: complex, shape: Shape) -> XlaOp:
    """An array of `shape` whose elements all equal `value` (0 is the least number where a type has no zero); size 1, which
    stretches, stands for an unknown size."""
    value = nothing(shape.element_type) if value == 0 else value
    return ops.Broadcast(builder.constant(value, shape.element_type), _known(shape.dimensions))


def zeros(like: XlaOp, shape: Shape | None = None) -> XlaOp:
    """Zeros of `shape`, or of the shape of `like`, in the builder of `like`."""
    return full(like.builder, 0, shape or like.shape)


def constant(like: XlaOp, value: np.ndarray) -> XlaOp:
    """An array constant in the builder of `like`."""
    return like.builder.constant(value)


def iota(like: XlaOp, dimensions: Sequence[int], dimension: int, element_type: PrimitiveType = S32) -> XlaOp:
    """Positions along `dimension` of an array with these dimensions."""
    return ops.Iota(like.builder, Shape.array(element_type, dimensions), dimension)


def scalar_computation(function: str, element_type: PrimitiveType) -> Computation:
    """The reducer ``(a, b) -> function(a, b)`` on scalars; `function` is a documented name such as ``"Add"``."""
    builder = Builder(f"{function.lower()}_{element_type.text}")
    scalar = Shape.array(element_type)
    lhs, rhs = builder.parameter(0, scalar, "lhs"), builder.parameter(1, scalar, "rhs")
    return builder.finish(getattr(ops, function)(lhs, rhs))


def second_computation(element_type: PrimitiveType) -> Computation:
    """The combiner ``(old, new) -> new``, which makes a scatter overwrite."""
    builder = Builder(f"overwrite_{element_type.text}")
    scalar = Shape.array(element_type)
    builder.parameter(0, scalar, "old")
    return builder.finish(builder.parameter(1, scalar, "new"))


def sum_over(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """The sum over some dimensions, which disappear."""
    if not dimensions:
        return x
    return ops.Reduce(x, x.builder.constant(0, x.element_type), scalar_computation("Add", x.element_type), dimensions)


def sum_all(x: XlaOp) -> XlaOp:
    """The sum of all elements, a scalar."""
    return sum_over(x, range(x.shape.rank))


def sum_to(ct: XlaOp, shape: Shape) -> XlaOp:
    """The cotangent of an operand that may be a scalar where the result is an array (clamp's bounds)."""
    return sum_all(ct) if shape.rank == 0 else ct


def any_over(pred: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """True where any element along `dimensions` is."""
    return ops.Reduce(pred, pred.builder.constant(False), scalar_computation("Or", PRED), dimensions)


def masked(pred: XlaOp, ct: XlaOp) -> XlaOp:
    """`ct` where `pred` holds and zero elsewhere. A select, not a product: zero times infinity is not zero."""
    return ops.Select(pred, ct, zeros(ct))


def nan_where_nan(value: XlaOp, ct: XlaOp) -> XlaOp:
    """`ct`, and NaN where `value` is NaN; `ct` itself if the type has no NaN."""
    return ops.Select(ops.Ne(value, value), math.nan, ct) if has_nan(ct.element_type) else ct


def others(dimensions: Sequence[int], rank: int) -> list[int]:
    """The dimensions of an array of this rank that are not among `dimensions`, ascending."""
    return [d for d in range(rank) if d not in set(dimensions)]


def broadcast_over(x: XlaOp, dimensions: Sequence[int], over: Sequence[int]) -> XlaOp:
    """The reverse of a reduction: `x` repeated along the dimensions `over` of an array with these dimensions. Size 1, which
    stretches, stands for an unknown size among them."""
    kept = others(over, len(dimensions))
    sizes = _known(dimensions)
    for position, d in enumerate(kept):
        sizes[d] = x.shape.dimensions[position]
    return ops.BroadcastInDim(x, sizes, kept)


def _known(dimensions: Sequence[int]) -> list[int]:
    return [1 if n == UNBOUNDED else n for n in dimensions]


def present(x: XlaOp, dimensions: Sequence[int]) -> XlaOp | None:
    """Where an array has an element, up to the bounds of `dimensions`; None where these are static."""
    found: XlaOp | None = None
    for d in dimensions:
        if x.shape.dynamic_flags[d] and x.shape.dimensions[d] != UNBOUNDED:
            here = ops.Lt(iota(x, x.shape.dimensions, d), ops.GetDimensionSize(x, d))
            found = here if found is None else ops.And(found, here)
    return found


def filled(x: XlaOp, dimensions: Sequence[int], value: XlaOp) -> XlaOp:
    """`x` with these dimensions, where they are dynamic, filled up to their bounds with the scalar `value`."""
    for d in dimensions:
        if x.shape.dynamic_flags[d] and x.shape.dimensions[d] != UNBOUNDED:
            there = ops.Lt(iota(x, x.shape.dimensions, d), ops.GetDimensionSize(x, d))
            x = ops.Select(there, ops.RemoveDynamicDimension(x, d), ops.Broadcast(value, x.shape.dimensions))
    return x


def inverse(permutation: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    result = [0] * len(permutation)
    for position, dimension in enumerate(permutation):
        result[dimension] = position
    return result


def transpose(x: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """A transpose, or `x` itself for the identity."""
    return x if list(permutation) == list(range(x.shape.rank)) else ops.Transpose(x, list(permutation))


def reshape(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """A reshape, or `x` itself where it has these dimensions."""
    return x if tuple(dimensions) == x.shape.dimensions else ops.Reshape(x, list(dimensions))


def in_sizes_of(x: XlaOp, array: XlaOp) -> XlaOp:
    """A reshape to the sizes that an array has at run time."""
    sizes = [ops.GetDimensionSize(array, d) for d in range(array.shape.rank)]
    return ops.DynamicReshape(x, sizes, array.shape.dimensions, array.shape.dynamic_flags)


def at_bounds(x: XlaOp) -> XlaOp:
    """An array with zeros up to the bounds of its dynamic sizes."""
    for d, bound in enumerate(x.shape.dimensions):
        if x.shape.dynamic_flags[d] and bound != UNBOUNDED:
            x = ops.RemoveDynamicDimension(x, d)
    return x


def cut_like(x: XlaOp, array: XlaOp) -> XlaOp:
    """The part of an array of static sizes that another one has, whose sizes are dynamic."""
    for d, bound in enumerate(array.shape.dimensions):
        if array.shape.dynamic_flags[d] and bound != UNBOUNDED:
            x = ops.SetDimensionSize(x, ops.GetDimensionSize(array, d), d)
    return x


def pad(x: XlaOp, config: Sequence[tuple[int, int, int]], value: complex = 0) -> XlaOp:
    """A pad with (low, high, interior) for each dimension, or `x` itself where nothing changes."""
    if all(edges == (0, 0, 0) for edges in config):
        return x
    return ops.Pad(x, x.builder.constant(value, x.element_type), list(config))


def put_along(updates: XlaOp, positions: XlaOp, dimension: int, size: int) -> XlaOp:
    """Zeros of `size` along `dimension`, with each update at its position along it. Positions are distinct in each line."""
    rank = updates.shape.rank
    lines = others([dimension], rank)
    dimensions = list(updates.shape.dimensions)
    dimensions[dimension] = size
    numbers = ops.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(dimension,), scatter_dims_to_operand_dims=(dimension,),
        index_vector_dim=rank, input_batching_dims=tuple(lines), scatter_indices_batching_dims=tuple(lines))
    return ops.Scatter(zeros(updates, updates.shape.with_dimensions(dimensions)), positions, updates,
                       scalar_computation("Add", updates.element_type), numbers, unique_indices=True)


def size_of(shape: Shape, dimensions: Sequence[int]) -> int:
    """How many elements lie along these dimensions together."""
    return math.prod(shape.dimensions[d] for d in dimensions)
