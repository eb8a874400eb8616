"""Pooling: averages and maxima of windows, and averages of parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import S64, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation
from .indexing import scattered
from .operator_rules import rule
from .values import cast, full, iota, least, reducer, spatial, summed, wide


class _Windows:
    """The windows of a pooling over the last dimensions of an array, as the sizes of its result say."""

    def __init__(self, sizes: Sequence[int], result: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
                 padding: Sequence[int], dilation: Sequence[int] = (1,), *, count: int):
        self.outer, self.sizes, self.result = len(sizes) - count, list(sizes[-count:]), list(result[-count:])
        self.kernel, self.padding, self.dilation = (spatial(v, count) for v in (kernel, padding, dilation))
        self.stride = spatial(stride, count) if stride else self.kernel
        self.spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        # What the last window reaches over the end, or leaves of it.
        self.high = [(m - 1) * s + span - n - low for n, m, s, span, low in zip(
            self.sizes, self.result, self.stride, self.spans, self.padding, strict=True)]

    def reduced(self, x: XlaOp | Sequence[XlaOp], initial: object, computation: Computation) -> XlaOp:
        lead = [1] * self.outer
        edges = [(0, 0)] * self.outer + list(zip(self.padding, self.high, strict=True))
        return ops.ReduceWindowWithGeneralPadding(x, initial, computation, lead + self.kernel, lead + self.stride,
                                                  window_dilations=lead + self.dilation, padding=edges)

    def counts(self, include_padding: bool) -> np.ndarray:
        """How many elements each window has: those of the array, or with the padding that torch knows of."""
        found = np.ones([1] * len(self.sizes))
        for d, (n, m, k, s, p) in enumerate(zip(self.sizes, self.result, self.kernel, self.stride, self.padding, strict=True)):
            starts = np.arange(m) * s - p
            ends = np.minimum(starts + k, n + p)
            if not include_padding:
                starts, ends = np.maximum(starts, 0), np.minimum(ends, n)
            found = found * (ends - starts).reshape([-1 if d == e else 1 for e in range(len(self.sizes))])
        return found


# ------------------------------------------------------------------------------------------- averages


def _average_pools(count: int) -> None:
    @rule(f"avg_pool{count}d", shown="ceil_mode")
    def pool(self: XlaOp, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], count_include_pad: bool,
             result: Shape, divisor_override: int | None = None) -> XlaOp:
        x = wide(self)
        windows = _Windows(x.shape.dimensions, result.dimensions, kernel_size, stride, padding, count=count)
        total = windows.reduced(x, 0, reducer("Add", x.element_type))
        return cast(ops.Div(total, _divisors(windows, total, count_include_pad, divisor_override)), self.element_type)


for _count in (1, 2, 3):
    _average_pools(_count)


def _divisors(windows: _Windows, like: XlaOp, include_padding: bool, override: int | None) -> XlaOp:
    counts = windows.counts(include_padding) if override is None else np.full(1, float(override))
    if (counts == counts.flat[0]).all():
        return full(like.builder, float(counts.flat[0]), like.shape)
    t = like.element_type
    constant = like.builder.constant(counts.astype(t.numpy), t)
    return ops.BroadcastInDim(constant, like.shape.dimensions, range(windows.outer, like.shape.rank))


def _average_pools_backward(count: int) -> None:
    @rule(f"avg_pool{count}d_backward", shown="ceil_mode")
    def back(grad_output: XlaOp, self: XlaOp, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
             count_include_pad: bool, divisor_override: int | None) -> XlaOp:
        ct = wide(grad_output)
        windows = _Windows(self.shape.dimensions, ct.shape.dimensions, kernel_size, stride, padding, count=count)
        shares = ops.Div(ct, _divisors(windows, ct, count_include_pad, divisor_override))
        return cast(_spread_windows(windows, shares), grad_output.element_type)


for _count in (2, 3):
    _average_pools_backward(_count)


def _spread_windows(windows: _Windows, shares: XlaOp) -> XlaOp:
    """Each element gets its share of all windows that it is in, which are windows of the shares."""
    edges = [(0, 0, 0)] * windows.outer
    for n, m, k, s, p in zip(windows.sizes, windows.result, windows.kernel, windows.stride, windows.padding, strict=True):
        low = k - 1 - p
        edges.append((low, n + k - 1 - low - ((m - 1) * s + 1), s - 1))
    spread = ops.Pad(shares, 0, edges)
    rank = spread.shape.rank
    return ops.ReduceWindowWithGeneralPadding(spread, 0, reducer("Add", spread.element_type),
                                              [1] * windows.outer + windows.kernel, [1] * rank, padding=[(0, 0)] * rank)


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def _adaptive_avg_pool(self: XlaOp, output_size: Sequence[int]) -> XlaOp:
    found = wide(self)
    first = found.shape.rank - len(output_size)
    for dim, size in enumerate(output_size, first):
        found = _averaged_parts(found, dim, size)
    return cast(found, self.element_type)


def _parts(size: int, count: int) -> list[tuple[int, int]]:
    """The parts of a dimension that adaptive pooling averages: they overlap where the sizes do not divide."""
    return [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]


def _averaged_parts(x: XlaOp, dim: int, count: int) -> XlaOp:
    size = x.shape.dimensions[dim]
    if count and size % count == 0:
        split = ops.Reshape(x, [*x.shape.dimensions[:dim], count, size // count, *x.shape.dimensions[dim + 1:]])
        total = summed(split, [dim + 1])
        return ops.Div(total, full(x.builder, float(size // count), total.shape))
    found = []
    for low, high in _parts(size, count):
        total = summed(ops.SliceInDim(x, low, high, 1, dim), [dim], keepdim=True)
        found.append(ops.Div(total, full(x.builder, float(high - low), total.shape)))
    return ops.ConcatInDim(x.builder, found, dim)


@rule("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(grad_output: XlaOp, self: XlaOp) -> XlaOp:
    found = wide(grad_output)
    for dim, (size, count) in enumerate(zip(self.shape.dimensions, grad_output.shape.dimensions, strict=True)):
        found = found if size == count else _spread_parts(found, dim, size)
    return cast(found, grad_output.element_type)


def _spread_parts(x: XlaOp, dim: int, size: int) -> XlaOp:
    total: XlaOp | None = None
    for k, (low, high) in enumerate(_parts(size, x.shape.dimensions[dim])):
        part = ops.SliceInDim(x, k, k + 1, 1, dim)
        part = ops.Div(part, full(x.builder, float(high - low), part.shape))
        sizes = [high - low if d == dim else n for d, n in enumerate(part.shape.dimensions)]
        part = ops.PadInDim(ops.BroadcastInDim(part, sizes, range(len(sizes))), 0, dim, low, size - high)
        total = part if total is None else ops.Add(total, part)
    assert total is not None
    return total


# ------------------------------------------------------------------------------------------- maxima


def _max_pools(count: int) -> None:
    @rule(f"max_pool{count}d_with_indices", shown="ceil_mode")
    def pool(self: XlaOp, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
             result: Sequence[Shape]) -> list[XlaOp]:
        """Places count through all spatial dimensions. Nothing is computed for them where nobody reads them."""
        t = self.element_type
        windows = _Windows(self.shape.dimensions, result[0].dimensions, kernel_size, stride, padding, dilation, count=count)
        value = windows.reduced(self, least(t), reducer("Max", t))
        both = windows.reduced([self, _plane(self, count)], [least(t), 2**62], _first_greatest(t))
        return [value, ops.GetTupleElement(both, 1)]

    @rule(f"max_pool{count}d_with_indices_backward", f"adaptive_max_pool{count}d_backward",
          f"fractional_max_pool{count}d_backward", shown="kernel_size stride padding dilation ceil_mode output_size")
    def back(grad_output: XlaOp, self: XlaOp, indices: XlaOp) -> XlaOp:
        """What comes back is added up at its place in its plane."""
        sizes = self.shape.dimensions
        outer, plane = list(sizes[:-count]), math.prod(sizes[-count:])
        flat = [*outer, math.prod(grad_output.shape.dimensions[-count:])]
        start = full(self.builder, 0, grad_output.shape.with_dimensions([*outer, plane]))
        found = scattered(start, len(outer), ops.Reshape(indices, flat), ops.Reshape(grad_output, flat),
                          reducer("Add", grad_output.element_type))
        return ops.Reshape(found, list(sizes))


for _count in (2, 3):
    _max_pools(_count)


def _plane(x: XlaOp, count: int) -> XlaOp:
    """Each element's number in its plane."""
    sizes = x.shape.dimensions
    total, stride = full(x.builder, 0, x.shape.with_element_type(S64)), 1
    for dim in range(x.shape.rank - 1, x.shape.rank - count - 1, -1):
        at = iota(x, sizes, dim)
        total = ops.Add(total, ops.Mul(at, full(x.builder, stride, at.shape)))
        stride *= sizes[dim]
    return total


def _first_greatest(element_type: PrimitiveType) -> Computation:
    """Of two elements with their places the greater one, of equal ones the first, and NaN before all others."""
    builder = Builder(f"first_greatest_{element_type.text}")
    shapes = [Shape.array(element_type), Shape.array(S64)]
    a, i = (builder.parameter(k, s, n) for k, (s, n) in enumerate(zip(shapes, ("a", "place_a"), strict=True)))
    b, j = (builder.parameter(k, s, n) for k, (s, n) in enumerate(zip(shapes, ("b", "place_b"), strict=True), 2))
    greater, equal = ops.Gt(a, b), ops.Eq(a, b)
    if element_type.is_floating:
        nan_a, nan_b = ops.Ne(a, a), ops.Ne(b, b)
        greater = ops.Or(greater, ops.And(nan_a, ops.Not(nan_b)))
        equal = ops.Or(equal, ops.And(nan_a, nan_b))
    left = ops.Or(greater, ops.And(equal, ops.Lt(i, j)))
    return builder.finish(ops.Tuple(builder, [ops.Select(left, a, b), ops.Select(left, i, j)]))
