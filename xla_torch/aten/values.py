"""Words that the rules share: torch's promotion of types, its broadcast, places of dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import BF16, C64, C128, F16, F32, F64, PRED, S8, S16, S32, S64, U8, Kind, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation

Number = bool | int | float | complex
Value = XlaOp | Number

# ------------------------------------------------------------------------------------------- types

_ORDER = {Kind.PRED: 0, Kind.UNSIGNED: 1, Kind.SIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}
_SIGNED = (S8, S16, S32, S64)


def promoted(*values: Value) -> PrimitiveType:
    """The type that torch computes in: arrays come before scalars of rank 0, and these before numbers, unless they are of a
    higher kind (booleans, integers, floats, complex numbers)."""
    groups = ([v.element_type for v in values if isinstance(v, XlaOp) and v.shape.rank],
              [v.element_type for v in values if isinstance(v, XlaOp) and not v.shape.rank],
              [_of_number(v) for v in values if not isinstance(v, XlaOp)])
    found: PrimitiveType | None = None
    for group in groups:
        if not group:
            continue
        lower = functools.reduce(_promoted_pair, group)
        if found is None:
            found = lower
        elif _ORDER[lower.kind] > _ORDER[found.kind]:
            found = _with_kind_of(found, lower)
    assert found is not None
    return found


def _of_number(value: Number) -> PrimitiveType:
    return PRED if isinstance(value, bool) else S64 if isinstance(value, int) else F32 if isinstance(value, float) else C64


def _with_kind_of(found: PrimitiveType, higher: PrimitiveType) -> PrimitiveType:
    """The type for values of `found` beside one of lower rank and of a higher kind."""
    if higher.is_complex and found.is_floating:
        return C128 if found is F64 else C64
    return higher


def _promoted_pair(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda t: (_ORDER[t.kind], t.bits))
    if high.is_complex:
        return C128 if low in (F64, C128) else high
    if high.is_floating:
        return F32 if {low, high} == {F16, BF16} else high
    if low.is_pred:
        return high
    if {low.kind, high.kind} == {Kind.SIGNED, Kind.UNSIGNED}:
        unsigned = low if low.is_unsigned else high
        if unsigned is not U8:
            raise UnsupportedError("torch promotes no such types", got=f"{a} and {b}")
        signed = high if low is unsigned else low
        return S16 if signed is S8 else signed
    return high


def cast(x: XlaOp, element_type: PrimitiveType) -> XlaOp:
    """`x` in another element type, as torch converts: what is not 0 is True, and of complex numbers the real part."""
    if x.element_type is element_type:
        return x
    if element_type is PRED:
        return ops.Ne(x, full(x.builder, 0, x.shape))
    if x.element_type.is_complex and not element_type.is_complex:
        x = ops.Real(x)
    return x if x.element_type is element_type else ops.ConvertElementType(x, element_type)


def wide(x: XlaOp) -> XlaOp:
    """Narrow floats as F32, in which torch adds them up."""
    return cast(x, F32) if x.element_type in (F16, BF16) else x


# ------------------------------------------------------------------------------------------- shapes


def full(builder: Builder, value: Value, shape: Shape) -> XlaOp:
    """An array of a number, or of one that the program has read from a tensor."""
    if isinstance(value, XlaOp):
        return ops.Broadcast(cast(value, shape.element_type), shape.dimensions)
    return ops.Broadcast(builder.constant(number_for(value, shape.element_type), shape.element_type), shape.dimensions)


def is_number(value: Value, number: Number) -> bool:
    """Whether a value is this number, which none is that the program reads."""
    return not isinstance(value, XlaOp) and value == number


def number_for(value: Number, element_type: PrimitiveType) -> Number:
    """A number as torch takes it for a type: True for what is not 0, and for integers what stands before the point."""
    if element_type.is_pred:
        return bool(value)
    if element_type.is_integral and isinstance(value, (bool, int, float)):
        return int(value) % (1 << element_type.bits) if element_type.is_unsigned else int(value)
    if element_type.is_floating and not isinstance(value, complex):
        return float(value)
    return value


def spread(x: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """`x` broadcast to sizes, with its last dimension at the last."""
    if x.shape.dimensions == tuple(sizes):
        return x
    first = len(sizes) - x.shape.rank
    return ops.BroadcastInDim(x, list(sizes), range(first, len(sizes)))


def aligned(element_type: PrimitiveType, *values: Value, sizes: Sequence[int] | None = None) -> list[XlaOp]:
    """The values in one type and of one shape: the `sizes`, or those that torch broadcasts them to."""
    arrays = [v for v in values if isinstance(v, XlaOp)]
    builder = arrays[0].builder
    sizes = broadcast_sizes(*(a.shape.dimensions for a in arrays)) if sizes is None else sizes
    return [spread(cast(v, element_type), sizes) if isinstance(v, XlaOp)
            else full(builder, v, Shape.array(element_type, sizes)) for v in values]


def broadcast_sizes(*sizes: Sequence[int]) -> list[int]:
    """The sizes that arrays of these sizes are broadcast to."""
    rank = max(map(len, sizes))
    columns = zip(*([1] * (rank - len(s)) + list(s) for s in sizes), strict=True)
    return [next((n for n in column if n != 1), 1) for column in columns]


def place(dim: int, rank: int) -> int:
    """A dimension that may be counted from the end; a scalar has one for torch."""
    return dim % max(rank, 1)


def places(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """Dimensions that may be counted from the end, in order; none of them means all."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return list(range(rank))
    return sorted({place(d, rank) for d in ([dims] if isinstance(dims, int) else dims)}) if rank else []


def spatial(given: Sequence[int], count: int) -> list[int]:
    """A size for each spatial dimension, of one for all or of one for each."""
    found = list(given)
    return found * count if len(found) == 1 else found


def iota(like: XlaOp, sizes: Sequence[int], dimension: int, element_type: PrimitiveType = S64) -> XlaOp:
    """Positions along a dimension."""
    return ops.Iota(like.builder, Shape.array(element_type, sizes), dimension)


def size_of(x: XlaOp, dim: int) -> XlaOp | int:
    """The size of a dimension, s64[] where that is known at run time only."""
    if not x.shape.dynamic_flags[dim]:
        return x.shape.dimensions[dim]
    return cast(ops.GetDimensionSize(x, dim), S64)


def filled(x: XlaOp, dims: Sequence[int]) -> XlaOp:
    """`x` with zeros up to the bounds of these dimensions."""
    for d in dims:
        x = ops.RemoveDynamicDimension(x, d) if x.shape.dynamic_flags[d] else x
    return x


def sized_as(x: XlaOp, other: XlaOp) -> XlaOp:
    """`x` with the dynamic dimensions of an array of the same bounds."""
    for d, flag in enumerate(other.shape.dynamic_flags):
        if flag and not x.shape.dynamic_flags[d]:
            x = ops.SetDimensionSize(x, ops.GetDimensionSize(other, d), d)
    return x


def is_beyond(at: XlaOp, x: XlaOp, dim: int) -> XlaOp:
    """Which places are beyond the size that a dimension has at run time."""
    size = cast(ops.GetDimensionSize(x, dim), at.element_type)
    return ops.Ge(at, spread(size, at.shape.dimensions))


def magnitude(x: XlaOp) -> XlaOp:
    """The absolute value. Of a real float its gradient at 0 is 0, in the middle of the kink."""
    return ops.Mul(x, ops.Sign(x)) if x.element_type.is_floating else ops.Abs(x)


# ------------------------------------------------------------------------------------------- regions


def reducer(function: str, element_type: PrimitiveType) -> Computation:
    """``(a, b) -> function(a, b)`` on scalars; `function` is a documented name."""
    builder = Builder(f"{function.lower()}_{element_type.text}")
    scalar = Shape.array(element_type)
    return builder.finish(getattr(ops, function)(builder.parameter(0, scalar, "a"), builder.parameter(1, scalar, "b")))


def second(element_type: PrimitiveType) -> Computation:
    """``(old, new) -> new``."""
    builder = Builder(f"overwrite_{element_type.text}")
    builder.parameter(0, Shape.array(element_type), "old")
    return builder.finish(builder.parameter(1, Shape.array(element_type), "new"))


def least(element_type: PrimitiveType) -> Number:
    """What a maximum begins with."""
    if element_type.is_floating:
        return -math.inf
    return False if element_type.is_pred else 0 if element_type.is_unsigned else -(1 << (element_type.bits - 1))


def greatest(element_type: PrimitiveType) -> Number:
    """What a minimum begins with."""
    if element_type.is_floating:
        return math.inf
    return True if element_type.is_pred else (1 << (element_type.bits - (not element_type.is_unsigned))) - 1


def reduced(x: XlaOp, function: str, initial: Number, dims: Sequence[int], keepdim: bool = False) -> XlaOp:
    """A reduction along dimensions, which stay with size 1 with `keepdim`."""
    builder, t = x.builder, x.element_type
    found = ops.Reduce(builder, x, builder.constant(initial, t), reducer(function, t), list(dims)) if dims else x
    return ops.Reshape(found, [1 if d in dims else n for d, n in enumerate(x.shape.dimensions)]) if keepdim else found


def summed(x: XlaOp, dims: Sequence[int], keepdim: bool = False) -> XlaOp:
    """The sum along dimensions; narrow floats are added up as F32, and a sum of booleans says whether there is one."""
    t = x.element_type
    return cast(reduced(wide(x), "Or" if t.is_pred else "Add", False if t.is_pred else 0, dims, keepdim), t)


def running(x: XlaOp, function: str, initial: Number, dim: int) -> XlaOp:
    """What an associative function gives of all elements up to each one."""
    if not x.shape.rank or not x.shape.element_count:
        return x
    t, rank, size = x.element_type, x.shape.rank, x.shape.dimensions[dim]
    sizes, padding = [1] * rank, [(0, 0)] * rank
    sizes[dim], padding[dim] = size, (size - 1, 0)
    inner = wide(x)
    found = ops.ReduceWindowWithGeneralPadding(inner, initial, reducer(function, inner.element_type), sizes, [1] * rank,
                                               padding=padding)
    return cast(found, t)
