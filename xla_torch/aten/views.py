"""The same elements in other shapes and places: views, slices, concatenation, padding. Nothing is aliased: views are values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import PRED, S32, S64, U8, PrimitiveType, complex_part
from ..functions.hlo_builder import XlaOp
from .checks import Where, require
from .indexing import indexed, put
from .operator_rules import rule
from .values import Number, cast, filled, full, iota, number_for, place, size_of, sized_as, spread


@rule("alias", "clone")
def _same(self: XlaOp) -> XlaOp:
    return self


@rule("_to_copy", shown="dtype")
def _converted(self: XlaOp, result: Shape) -> XlaOp:
    return cast(self, result.element_type)


@rule("copy")
def _copy(src: XlaOp, self: XlaOp) -> XlaOp:
    return sized_as(spread(cast(src, self.element_type), self.shape.dimensions), self)


@rule("squeeze.dim", "squeeze.dims")
def _squeezed(self: XlaOp, dim: int | Sequence[int], result: Shape, where: Where) -> XlaOp:
    """torch.export takes a size that depends on values for one that stays; eager torch drops the dimension where it is 1."""
    for d in (place(d, self.shape.rank) for d in ([dim] if isinstance(dim, int) else dim) if self.shape.rank):
        if self.shape.dynamic_flags[d] and (line := where()) is not None:
            size = cast(ops.GetDimensionSize(self, d), S64)
            require(ops.Ne(size, 1), f"dimension {d}, which is squeezed, has a size other than 1", {"the size": size}, line)
    return _reshaped(self, result)


@rule("view", "unsqueeze", shown="size dim")
def _reshaped(self: XlaOp, result: Shape) -> XlaOp:
    """Where a dynamic dimension is joined with others or divided, it must be the outermost: its elements are the first ones."""
    sizes = list(result.dimensions)
    if self.shape.is_static or _wide(self.shape) == _wide(result):
        return ops.Reshape(self, sizes)
    for shape in (self.shape, result):
        if any(is_dynamic for _, is_dynamic in _wide(shape)[1:]) or self.shape.element_count != result.element_count:
            raise UnsupportedError("a view that joins or divides a dimension whose size depends on values", got=self.shape,
                                   expected="the outermost dimension", hint=f"here it is to be {result}")
    return ops.Reshape(filled(self, range(self.shape.rank)), sizes)


@rule("view.dtype", shown="dtype")
def _same_bytes(self: XlaOp, result: Shape) -> XlaOp:
    """XLA converts no bits of truth values and complex numbers: they are bytes, and pairs of reals."""
    count, wanted = self.shape.element_count, result.element_type
    x = ops.Reshape(self, [count])
    if x.element_type.is_pred:
        x = cast(x, U8)
    elif x.element_type.is_complex:
        parts = [ops.Reshape(part, [count, 1]) for part in (ops.Real(x), ops.Imag(x))]
        x = ops.Reshape(ops.ConcatInDim(x.builder, parts, 1), [2 * count])
    x = _converted_bits(x, U8 if wanted.is_pred else complex_part(wanted) if wanted.is_complex else wanted)
    if wanted.is_pred:
        x = ops.Ne(x, 0)
    elif wanted.is_complex:
        x = ops.Complex(*(ops.SliceInDim(x, k, x.shape.dimensions[0], 2, 0) for k in (0, 1)))
    return ops.Reshape(x, list(result.dimensions))


def _converted_bits(x: XlaOp, wanted: PrimitiveType) -> XlaOp:
    """A flat array as one of another type."""
    joined = wanted.bits // x.element_type.bits
    x = ops.Reshape(x, [x.shape.element_count // joined, joined]) if joined > 1 else x
    found = ops.BitcastConvertType(x, wanted)
    return ops.Reshape(found, [found.shape.element_count])


def _wide(shape: Shape) -> list[tuple[int, bool]]:
    """The dimensions whose size is not 1, and whether they are dynamic."""
    return [(n, f) for n, f in zip(shape.dimensions, shape.dynamic_flags, strict=True) if n != 1]


@rule("expand", shown="size")
def _expand(self: XlaOp, result: Shape) -> XlaOp:
    return spread(self, result.dimensions)


@rule("permute")
def _permute(self: XlaOp, dims: Sequence[int]) -> XlaOp:
    return ops.Transpose(self, [place(d, self.shape.rank) for d in dims]) if self.shape.rank else self


@rule("flip")
def _flip(self: XlaOp, dims: Sequence[int]) -> XlaOp:
    found = sorted({place(d, self.shape.rank) for d in dims})
    for d in [d for d in found if self.shape.rank and self.shape.dynamic_flags[d]]:
        self = _backwards(self, d)
        found.remove(d)
    return ops.Rev(self, found) if found and self.shape.rank else self


def _backwards(x: XlaOp, dim: int) -> XlaOp:
    """From the last element on that there is at run time."""
    bound = x.shape.dimensions[dim]
    places = iota(x, [bound], 0)
    size = spread(size_of(x, dim), [bound])  # pyright: ignore[reportArgumentType]
    return _at(x, ops.Sub(ops.Sub(size, full(x.builder, 1, places.shape)), places), dim, size_of(x, dim))


def _at(x: XlaOp, places: XlaOp, dim: int, size: XlaOp | int) -> XlaOp:
    """The first ones of places along a dimension; those beyond may be anywhere."""
    inside = ops.Clamp(full(x.builder, 0, places.shape), places, full(x.builder, x.shape.dimensions[dim] - 1, places.shape))
    found = indexed(filled(x, [dim]), [*[None] * dim, inside])
    return ops.SetDimensionSize(found, size if isinstance(size, int) else cast(size, S32), dim)


# ------------------------------------------------------------------------------------------- slices


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


@rule("slice.Tensor")
def _slice(self: XlaOp, dim: int, start: int | None, end: int | XlaOp | None, step: int, result: Shape) -> XlaOp:
    dim = place(dim, self.shape.rank)
    if self.shape.dynamic_flags[dim] or result.dynamic_flags[dim]:
        is_first = start in (0, None) and step == 1 and 0 <= result.dimensions[dim] <= self.shape.dimensions[dim]
        return _first_of(self, dim, result) if is_first else _between(self, dim, start or 0, end, step, result)
    assert not isinstance(end, XlaOp)
    return ops.SliceInDim(self, *_bounds(self.shape.dimensions[dim], start, end), step, dim)


def _first_of(x: XlaOp, dim: int, result: Shape) -> XlaOp:
    """A slice whose end is known at run time only, with what is beyond."""
    return ops.SliceInDim(filled(x, [dim]), 0, result.dimensions[dim], 1, dim)


def _between(x: XlaOp, dim: int, start: int | XlaOp, end: int | XlaOp | None, step: int, result: Shape) -> XlaOp:
    """A slice whose ends are counted from what a dimension has at run time."""
    size = x.builder.constant(0, S64) if x.shape.element_count == 0 else size_of(x, dim)
    size = x.builder.constant(size, S64) if isinstance(size, int) else size
    first, last = _from_there(start, size), size if end is None else _from_there(end, size)
    count = ops.Max(ops.Div(ops.Add(ops.Sub(last, first), x.builder.constant(step - 1, S64)), x.builder.constant(step, S64)),
                    x.builder.constant(0, S64))
    bound = result.dimensions[dim] if result.dimensions[dim] >= 0 else max(-(-x.shape.dimensions[dim] // step), 2)
    places = iota(x, [bound], 0)
    places = ops.Add(spread(first, [bound]), ops.Mul(places, full(x.builder, step, places.shape)))
    return _at(x, places, dim, count)


def _from_there(place: int | XlaOp, size: XlaOp) -> XlaOp:
    """A place between 0 and a size, s64[]; what is below 0 counts from the end."""
    none = size.builder.constant(0, S64)
    place = place if isinstance(place, XlaOp) else size.builder.constant(place, S64)
    return ops.Clamp(none, ops.Select(ops.Lt(place, none), ops.Add(place, size), place), size)


@rule("select.int")
def _select(self: XlaOp, dim: int, index: int | XlaOp, result: Shape) -> XlaOp:
    dim = place(dim, self.shape.rank)
    if isinstance(index, XlaOp):
        return indexed(self, [*[None] * dim, index])
    index %= self.shape.dimensions[dim]
    return ops.Reshape(ops.SliceInDim(self, index, index + 1, 1, dim), list(result.dimensions))


@rule("split_with_sizes")
def _split(self: XlaOp, split_sizes: Sequence[int], dim: int) -> list[XlaOp]:
    ends = list(itertools.accumulate(split_sizes))
    dim = place(dim, self.shape.rank)
    return [ops.SliceInDim(self, end - size, end, 1, dim) for size, end in zip(split_sizes, ends, strict=True)]


@rule("slice_scatter")
def _slice_scatter(self: XlaOp, src: XlaOp, dim: int, start: int | None, end: int | None, step: int) -> XlaOp:
    dim = place(dim, self.shape.rank)
    size = self.shape.dimensions[dim]
    first, last = _bounds(size, start, end)
    src = spread(cast(src, self.element_type), [-(-(last - first) // step) if d == dim else n
                                                for d, n in enumerate(self.shape.dimensions)])
    count = src.shape.dimensions[dim]
    if not count:
        return self
    if step == 1:
        return ops.DynamicUpdateSliceInDim(self, src, first, dim)
    reach = (count - 1) * step + 1
    padding = [(first, size - first - reach, step - 1) if d == dim else (0, 0, 0) for d in range(self.shape.rank)]
    written = ops.Pad(full(self.builder, True, src.shape.with_element_type(PRED)), False, padding)
    return ops.Select(written, ops.Pad(src, number_for(0, self.element_type), padding), self)


@rule("select_scatter")
def _select_scatter(self: XlaOp, src: XlaOp, dim: int, index: int) -> XlaOp:
    dim = place(dim, self.shape.rank)
    sizes = [1 if d == dim else n for d, n in enumerate(self.shape.dimensions)]
    inner = [n for d, n in enumerate(self.shape.dimensions) if d != dim]
    src = ops.Reshape(spread(cast(src, self.element_type), inner), sizes)
    return ops.DynamicUpdateSliceInDim(self, src, index % self.shape.dimensions[dim], dim)


@rule("diagonal")
def _diagonal(self: XlaOp, offset: int, dim1: int, dim2: int, result: Shape) -> XlaOp:
    """A stride through the two dimensions as one: elements of the diagonal are a row and one place apart."""
    rank = self.shape.rank
    first, second = place(dim1, rank), place(dim2, rank)
    kept = [d for d in range(rank) if d not in (first, second)]
    x = ops.Transpose(self, [*kept, first, second])
    *outer, rows, columns = x.shape.dimensions
    count = result.dimensions[-1]
    start = offset if offset >= 0 else -offset * columns
    flat = ops.Reshape(x, [*outer, rows * columns])
    if not count:
        return ops.SliceInDim(flat, 0, 0, 1, len(outer))
    return ops.SliceInDim(flat, start, start + (count - 1) * (columns + 1) + 1, columns + 1, len(outer))


@rule("as_strided")
def _as_strided(self: XlaOp, size: Sequence[int], stride: Sequence[int], storage_offset: int | None, is_plain: bool) -> XlaOp:
    """Elements by their places in memory, which are known of an array that lies there as it stands."""
    at = _places(self, size, stride, storage_offset, is_plain)
    return indexed(ops.Reshape(self, [self.shape.element_count]), [self.builder.constant(at)])


@rule("as_strided_scatter")
def _as_strided_scatter(self: XlaOp, src: XlaOp, size: Sequence[int], stride: Sequence[int], storage_offset: int | None,
                        is_plain: bool) -> XlaOp:
    """What stands at these places is another's. Gradients of what is changed through a view are made of it."""
    at, count = _places(self, size, stride, storage_offset, is_plain), self.shape.element_count
    if len(np.unique(at)) != at.size:
        raise UnsupportedError("several elements for one index", subject="as_strided_scatter",
                               got=f"size {list(size)}, stride {list(stride)}", expected="places that differ")
    if np.array_equal(at.reshape(-1), np.arange(count)):
        return ops.Reshape(cast(src, self.element_type), list(self.shape.dimensions))
    found = put(ops.Reshape(self, [count]), [self.builder.constant(at)], src, False)
    return ops.Reshape(found, list(self.shape.dimensions))


def _places(x: XlaOp, size: Sequence[int], stride: Sequence[int], offset: int | None, is_plain: bool) -> np.ndarray:
    at = np.full(size, offset or 0, np.int64)
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        at += np.arange(n).reshape([-1] + [1] * (len(size) - 1 - d)) * s
    count = x.shape.element_count
    if not is_plain or (at.size and at.max() >= count):
        raise UnsupportedError("as_strided reads outside the tensor or in another order", subject="as_strided",
                               got=f"size {list(size)}, stride {list(stride)}, offset {offset}",
                               expected=f"places among the {count} elements of a contiguous tensor")
    return at


@rule("unfold")
def _unfold(self: XlaOp, dimension: int, size: int, step: int, result: Shape) -> XlaOp:
    """Windows along a dimension, whose elements come last."""
    if not self.shape.rank:
        return ops.Reshape(self, list(result.dimensions))
    dim = place(dimension, self.shape.rank)
    at = np.arange(result.dimensions[dim], dtype=np.int64)[:, None] * step + np.arange(size)
    found = indexed(self, [*[None] * dim, self.builder.constant(at)])
    return ops.Transpose(found, [*(d for d in range(found.shape.rank) if d != dim + 1), dim + 1])


# ------------------------------------------------------------------------------------------- putting together


@rule("cat")
def _cat(tensors: Sequence[XlaOp], dim: int, result: Shape) -> XlaOp:
    """Vectors without elements are left out, whatever the others are."""
    parts = [cast(t, result.element_type) for t in tensors if t.shape.dimensions != (0,)]
    if not parts:
        return cast(tensors[0], result.element_type)
    return parts[0] if len(parts) == 1 else ops.ConcatInDim(parts[0].builder, parts, place(dim, result.rank))


@rule("repeat")
def _repeat(self: XlaOp, repeats: Sequence[int], result: Shape) -> XlaOp:
    own = [1] * (len(repeats) - self.shape.rank) + list(self.shape.dimensions)
    if not self.shape.is_static:
        found = ops.Reshape(self, own)
        for d, count in enumerate(repeats):
            found = ops.ConcatInDim(self.builder, [found] * count, d) if count > 1 else found
        return found
    pairs = [n for pair in zip(repeats, own, strict=True) for n in pair]
    kept = [2 * d + 1 for d in range(len(own))]
    return ops.Reshape(ops.BroadcastInDim(ops.Reshape(self, own), pairs, kept), list(result.dimensions))


# ------------------------------------------------------------------------------------------- padding


@rule("constant_pad_nd")
def _constant_pad(self: XlaOp, pad: Sequence[int], value: Number) -> XlaOp:
    return ops.Pad(self, number_for(value, self.element_type), [(low, high, 0) for low, high in _edges(self, pad)])


def _edges(x: XlaOp, pad: Sequence[int]) -> list[tuple[int, int]]:
    """Low and high padding of each dimension, of which torch gives those of the last one first."""
    given = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return [(0, 0)] * (x.shape.rank - len(given)) + given


@rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflection_pad(self: XlaOp, padding: Sequence[int]) -> XlaOp:
    return _padded(self, padding, lambda x, dim, first, count: ops.Rev(ops.SliceInDim(x, first, first + count, 1, dim), [dim]), 1)


@rule("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replication_pad(self: XlaOp, padding: Sequence[int]) -> XlaOp:
    def edge(x: XlaOp, dim: int, first: int, count: int) -> XlaOp:
        at = 0 if first == 0 else x.shape.dimensions[dim] - 1
        sizes = [count if d == dim else n for d, n in enumerate(x.shape.dimensions)]
        return ops.BroadcastInDim(ops.SliceInDim(x, at, at + 1, 1, dim), sizes, range(len(sizes)))

    return _padded(self, padding, edge, 0)


def _padded(x: XlaOp, padding: Sequence[int], edge: Callable[[XlaOp, int, int, int], XlaOp], away: int) -> XlaOp:
    """Padding made of pieces of the array: `edge` gives `count` elements beginning at a place, `away` from the border."""
    for dim, (low, high) in enumerate(_edges(x, padding)):
        size = x.shape.dimensions[dim]
        parts = [edge(x, dim, away, low)] if low > 0 else []
        parts.append(ops.SliceInDim(x, max(-low, 0), size - max(-high, 0), 1, dim))
        if high > 0:
            parts.append(edge(x, dim, size - away - high if away else size, high))
        x = parts[0] if len(parts) == 1 else ops.ConcatInDim(x.builder, parts, dim)
    return x
