"""Sums, products, extremes and what is made of them along dimensions, and running sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import PRED, S64
from ..functions.hlo_builder import XlaOp
from .indexing import taken_along
from .operator_rules import rule
from .values import (
    Number,
    cast,
    filled,
    full,
    greatest,
    iota,
    least,
    magnitude,
    place,
    places,
    reduced,
    running,
    size_of,
    spread,
    summed,
    wide,
)


@rule("sum.dim_IntList", shown="dtype")
def _sum(self: XlaOp, result: Shape, dim: Sequence[int] | None = None, keepdim: bool = False) -> XlaOp:
    x = cast(self, result.element_type)
    return summed(x, places(dim, x.shape.rank), keepdim)


@rule("mean", "mean.dim", shown="dtype")
def _mean(self: XlaOp, result: Shape, dim: Sequence[int] | None = None, keepdim: bool = False) -> XlaOp:
    x = wide(cast(self, result.element_type))
    return cast(_averaged(x, places(dim, x.shape.rank), keepdim), result.element_type)


def _averaged(x: XlaOp, dims: Sequence[int], keepdim: bool) -> XlaOp:
    return _by_count(summed(x, dims, keepdim), x, dims, 0)


def _by_count(found: XlaOp, x: XlaOp, dims: Sequence[int], correction: float) -> XlaOp:
    """`found` by the number of elements along dimensions less the correction, and by no less than 0."""
    sizes = [size_of(x, d) for d in dims]
    count = math.prod(n for n in sizes if isinstance(n, int))
    unknown = [n for n in sizes if isinstance(n, XlaOp)]
    if not unknown:
        return ops.Div(found, full(x.builder, max(count - correction, 0), found.shape))
    number = cast(functools.reduce(ops.Mul, unknown), found.element_type)
    number = ops.Sub(ops.Mul(number, full(x.builder, count, number.shape)), full(x.builder, correction, number.shape))
    number = number if found.element_type.is_complex else ops.Max(number, full(x.builder, 0, number.shape))
    return ops.Div(found, spread(number, found.shape.dimensions))


@rule("var.correction", "var.dim")
def _var(self: XlaOp, result: Shape, dim: Sequence[int] | None = None, correction: float | None = None, unbiased: bool = True,
         keepdim: bool = False) -> XlaOp:
    taken = (1 if unbiased else 0) if correction is None else correction
    return cast(variance(wide(self), places(dim, self.shape.rank), taken, keepdim)[0], result.element_type)


@rule("var_mean.correction")
def _var_mean(self: XlaOp, dim: Sequence[int] | None, correction: float | None, keepdim: bool,
              result: Sequence[Shape]) -> list[XlaOp]:
    found = variance(wide(self), places(dim, self.shape.rank), 1 if correction is None else correction, keepdim)
    return [cast(part, shape.element_type) for part, shape in zip(found, result, strict=True)]


@rule("std.correction")
def _std(self: XlaOp, result: Shape, dim: Sequence[int] | None = None, correction: float | None = None,
         keepdim: bool = False) -> XlaOp:
    """Where it is 0 its gradient is taken for 0, as torch does."""
    taken = 1 if correction is None else correction
    found = variance(wide(self), places(dim, self.shape.rank), taken, keepdim)[0]
    return cast(_powered(found, 0.5), result.element_type)


def variance(x: XlaOp, dims: Sequence[int], correction: float, keepdim: bool) -> tuple[XlaOp, XlaOp]:
    """(variance, mean): the sum of squares from the mean by the count less the correction, and by no less than 0."""
    mean = _averaged(x, dims, True)
    distance = ops.Sub(x, ops.BroadcastInDim(mean, x.shape.dimensions, range(x.shape.rank)))
    squares = ops.Mul(ops.Real(distance), ops.Real(distance)) if x.element_type.is_complex else ops.Mul(distance, distance)
    if x.element_type.is_complex:
        squares = ops.Add(squares, ops.Mul(ops.Imag(distance), ops.Imag(distance)))
    total = summed(squares, dims, keepdim)
    found = _by_count(total, x, dims, correction)
    return found, mean if keepdim else ops.Reshape(mean, list(found.shape.dimensions))


@rule("prod", "prod.dim_int", shown="dtype")
def _prod(self: XlaOp, result: Shape, dim: int | None = None, keepdim: bool = False) -> XlaOp:
    x = cast(self, result.element_type)
    found = reduced(wide(x), "Mul", 1, places(dim, x.shape.rank), keepdim)
    return cast(found, result.element_type)


@rule("_is_all_true")
def _is_all_true(self: XlaOp) -> XlaOp:
    return reduced(self, "And", True, places(None, self.shape.rank), False)


@rule("any", "any.dim", "any.dims", "_is_any_true")
def _any(self: XlaOp, result: Shape, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> XlaOp:
    return cast(reduced(cast(self, PRED), "Or", False, places(dim, self.shape.rank), keepdim), result.element_type)


# ------------------------------------------------------------------------------------------- extremes


def _extreme(x: XlaOp, maximum: bool, dims: Sequence[int], keepdim: bool) -> XlaOp:
    t = x.element_type
    word, initial = ("Max", least(t)) if maximum else ("Min", greatest(t))
    if t.is_pred:
        word = "Or" if maximum else "And"
    return reduced(x, word, initial, dims, keepdim)


@rule("amax")
def _amax(self: XlaOp, dim: Sequence[int], keepdim: bool) -> XlaOp:
    return _extreme(self, True, places(dim, self.shape.rank), keepdim)


@rule("amin")
def _amin(self: XlaOp, dim: Sequence[int], keepdim: bool) -> XlaOp:
    return _extreme(self, False, places(dim, self.shape.rank), keepdim)


@rule("max")
def _max(self: XlaOp) -> XlaOp:
    return _extreme(self, True, places(None, self.shape.rank), False)


@rule("min")
def _min(self: XlaOp) -> XlaOp:
    return _extreme(self, False, places(None, self.shape.rank), False)


def _first(x: XlaOp, maximum: bool, dim: int) -> XlaOp:
    """The first place along a dimension where the extreme stands, or a NaN; that dimension stays."""
    if not x.shape.rank:
        return full(x.builder, 0, x.shape.with_element_type(S64))
    return _first_of(x, maximum, iota(x, x.shape.dimensions, dim), [dim])


def _first_of(x: XlaOp, maximum: bool, counted: XlaOp, dims: Sequence[int]) -> XlaOp:
    """The least number that stands where the extreme along dimensions is, or a NaN; these dimensions stay. Where nothing is,
    the greatest number of all, which is no place: torch raises an error for it."""
    sizes = x.shape.dimensions
    found = ops.BroadcastInDim(_extreme(x, maximum, dims, True), sizes, range(len(sizes)))
    here = ops.Eq(x, found)
    if x.element_type.is_floating:
        here = ops.Or(here, ops.Ne(x, x))
    return reduced(ops.Select(here, counted, full(x.builder, greatest(S64), counted.shape)), "Min", greatest(S64), dims, True)


def _with_place(x: XlaOp, maximum: bool, dim: int, shapes: Sequence[Shape]) -> list[XlaOp]:
    """Values and places. The value is taken from its place, so that its gradient goes there and nowhere else."""
    dim = place(dim, x.shape.rank)
    at = _first(x, maximum, dim)
    value = taken_along(x, at, dim) if x.shape.rank else x
    if x.shape.rank and x.shape.dynamic_flags[dim]:  # of nothing it is what an extreme begins with
        nothing = full(x.builder, (least if maximum else greatest)(x.element_type), value.shape)
        value = ops.Select(ops.Eq(at, greatest(S64)), nothing, value)
    return [ops.Reshape(part, list(shape.dimensions)) for part, shape in zip((value, at), shapes, strict=True)]


@rule("max.dim", shown="keepdim")
def _max_dim(self: XlaOp, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    return _with_place(self, True, dim, result)


@rule("min.dim", shown="keepdim")
def _min_dim(self: XlaOp, dim: int, result: Sequence[Shape]) -> list[XlaOp]:
    return _with_place(self, False, dim, result)


@rule("argmax", shown="keepdim")
def _argmax(self: XlaOp, dim: int | None, result: Shape) -> XlaOp:
    return _argument(self, True, dim, result)


@rule("argmin", shown="keepdim")
def _argmin(self: XlaOp, dim: int | None, result: Shape) -> XlaOp:
    return _argument(self, False, dim, result)


def _argument(x: XlaOp, maximum: bool, dim: int | None, result: Shape) -> XlaOp:
    if dim is None and not x.shape.is_static:
        return ops.Reshape(_first_of(x, maximum, _numbered(x), range(x.shape.rank)), list(result.dimensions))
    x = ops.Reshape(x, [x.shape.element_count]) if dim is None else x
    found = _first(x, maximum, place(dim or 0, x.shape.rank))
    return ops.Reshape(found, list(result.dimensions))


def _numbered(x: XlaOp) -> XlaOp:
    """The number of each element, of an array whose size depends on values."""
    if any(x.shape.dynamic_flags[1:]):
        raise UnsupportedError("a flat index needs static sizes of the inner dimensions", got=x.shape,
                               expected="the outermost one", hint="give a dim")
    return ops.Reshape(iota(x, [x.shape.element_count], 0), list(x.shape.dimensions))


# ------------------------------------------------------------------------------------------- running sums


@rule("cumsum", shown="dtype")
def _cumsum(self: XlaOp, dim: int, result: Shape) -> XlaOp:
    return _running(cast(self, result.element_type), "Add", 0, dim)


@rule("cumprod", shown="dtype")
def _cumprod(self: XlaOp, dim: int, result: Shape) -> XlaOp:
    return _running(cast(self, result.element_type), "Mul", 1, dim)


def _running(x: XlaOp, function: str, initial: Number, dim: int) -> XlaOp:
    """What is beyond a size that depends on values comes after all that counts."""
    dim = place(dim, x.shape.rank)
    return running(filled(x, [dim]) if x.shape.rank else x, function, initial, dim)


def _doubled(parts: list[XlaOp], fills: Sequence[Number], dim: int,
             combined: Callable[[list[XlaOp], list[XlaOp]], list[XlaOp]]) -> list[XlaOp]:
    """What an associative function gives of all elements up to each one, in as many steps as the length has binary digits."""
    size, step = parts[0].shape.dimensions[dim], 1
    while step < size:
        before = [ops.PadInDim(ops.SliceInDim(part, 0, size - step, 1, dim), fill, dim, step, 0)
                  for part, fill in zip(parts, fills, strict=True)]
        parts, step = combined(before, parts), 2 * step
    return parts


def _running_extreme(x: XlaOp, dim: int, maximum: bool) -> list[XlaOp]:
    """Of equal elements the last one, and of NaNs, which are before all others."""
    if not x.shape.rank or not x.shape.element_count:
        return [x, full(x.builder, 0, x.shape.with_element_type(S64))]

    def later(before: list[XlaOp], here: list[XlaOp]) -> list[XlaOp]:
        chosen = (ops.Ge if maximum else ops.Le)(here[0], before[0])
        if x.element_type.is_floating:
            chosen = ops.Or(ops.Ne(here[0], here[0]), ops.And(ops.Eq(before[0], before[0]), chosen))
        return [ops.Select(chosen, b, a) for a, b in zip(before, here, strict=True)]

    fill = (least if maximum else greatest)(x.element_type)
    _, at = _doubled([x, iota(x, x.shape.dimensions, dim)], [fill, 0], dim, later)
    return [taken_along(x, at, dim), at]


@rule("cummax")
def _cummax(self: XlaOp, dim: int) -> list[XlaOp]:
    return _running_extreme(self, place(dim, self.shape.rank), True)


@rule("cummin")
def _cummin(self: XlaOp, dim: int) -> list[XlaOp]:
    return _running_extreme(self, place(dim, self.shape.rank), False)


@rule("logcumsumexp")
def _logcumsumexp(self: XlaOp, dim: int) -> XlaOp:
    if self.element_type.is_complex:
        raise UnsupportedError("a running sum of exponentials of complex numbers", got=self.shape, expected="real ones")
    if not self.shape.rank or not self.shape.element_count:
        return self

    def added(before: list[XlaOp], here: list[XlaOp]) -> list[XlaOp]:
        (a,), (b,) = before, here
        least_of, greatest_of = ops.Min(a, b), ops.Max(a, b)
        apart = ops.Add(greatest_of, ops.Log1p(ops.Exp(ops.Sub(least_of, greatest_of))))
        return [ops.Select(ops.And(ops.Eq(a, b), ops.Eq(ops.Abs(a), math.inf)), a, apart)]

    return cast(_doubled([wide(self)], [-math.inf], place(dim, self.shape.rank), added)[0], self.element_type)


# ------------------------------------------------------------------------------------------- norms and softmax


@rule("linalg_vector_norm", shown="dtype")
def _vector_norm(self: XlaOp, ord: float, dim: Sequence[int] | None, keepdim: bool, result: Shape) -> XlaOp:
    x = wide(magnitude(self))
    x = cast(x, result.element_type) if result.element_type.bits > x.element_type.bits else x
    dims = places(dim, x.shape.rank)
    if ord in (math.inf, -math.inf):
        return cast(_extreme(x, ord > 0, dims, keepdim), result.element_type)
    if ord == 0:
        found = summed(cast(ops.Ne(x, 0), x.element_type), dims, keepdim)
    elif ord == 1:
        found = summed(x, dims, keepdim)
    elif ord == 2:
        found = _powered(summed(ops.Mul(x, x), dims, keepdim), 0.5)
    else:
        found = _powered(summed(_powered(x, ord), dims, keepdim), 1 / ord)
    return cast(found, result.element_type)


def _powered(x: XlaOp, exponent: float) -> XlaOp:
    """A power. At 0 its gradient is 0, as torch's, also where the slope is infinite."""
    zero = ops.Eq(x, 0)
    inner = ops.Select(zero, full(x.builder, 1, x.shape), x)
    found = ops.Sqrt(inner) if exponent == 0.5 else ops.Pow(inner, full(x.builder, exponent, x.shape))
    return ops.Select(zero, full(x.builder, 0 if exponent > 0 else math.inf, x.shape), found)


@rule("_cdist_forward", shown="compute_mode")
def _cdist(x1: XlaOp, x2: XlaOp, p: float, result: Shape) -> XlaOp:
    """The norms of the differences of each row of the one with each row of the other."""
    return _distances(_differences(x1, x2, result.dimensions), p, result)


def _differences(x1: XlaOp, x2: XlaOp, distances: Sequence[int]) -> XlaOp:
    *batch, rows, others = distances
    width = x1.shape.dimensions[-1]
    left = ops.Reshape(spread(x1, [*batch, rows, width]), [*batch, rows, 1, width])
    right = ops.Reshape(spread(x2, [*batch, others, width]), [*batch, 1, others, width])
    sizes = [*batch, rows, others, width]
    return ops.Sub(spread(left, sizes), spread(right, sizes))


@rule("_cdist_backward")
def _cdist_back(grad: XlaOp, x1: XlaOp, x2: XlaOp, p: float, cdist: XlaOp, result: Shape) -> XlaOp:
    """The gradient of `x1`: 0 where rows are equal. Below the norm of 1 it is 0 along each dimension in which they are."""
    difference = _differences(x1, x2, cdist.shape.dimensions)
    rank = difference.shape.rank
    distance, ct = (ops.BroadcastInDim(x, difference.shape.dimensions, range(rank - 1)) for x in (cdist, grad))
    size = ops.Abs(difference)
    zero = full(difference.builder, 0, difference.shape)
    if p == 0:
        slope = zero
    elif p == 1:
        slope = ops.Sign(difference)
    elif math.isinf(p):
        slope = ops.Select(ops.Eq(size, distance), ops.Sign(difference), zero)
    else:
        power = ops.Pow(ops.Div(size, distance), full(difference.builder, p - 1, difference.shape))
        flat = ops.Eq(distance, 0) if p >= 1 else ops.Or(ops.Eq(distance, 0), ops.Eq(size, 0))
        slope = ops.Select(flat, zero, ops.Mul(ops.Sign(difference), power))
    return summed(ops.Mul(ct, slope), [rank - 2], False)


@rule("_pdist_forward")
def _pdist(self: XlaOp, p: float, result: Shape) -> XlaOp:
    """The norms of the differences of each row with each later one."""
    rows = self.shape.dimensions[0]
    parts = [ops.Sub(spread(ops.SliceInDim(self, k, k + 1, 1, 0), [rows - 1 - k, self.shape.dimensions[1]]),
                     ops.SliceInDim(self, k + 1, rows, 1, 0)) for k in range(rows - 1)]
    return _distances(ops.ConcatInDim(self.builder, parts, 0), p, result) if parts else full(self.builder, 0, result)


def _distances(difference: XlaOp, p: float, result: Shape) -> XlaOp:
    return _vector_norm(difference, p, [difference.shape.rank - 1], False, result)


@rule("_softmax", shown="half_to_float")
def _softmax(self: XlaOp, dim: int, result: Shape) -> XlaOp:
    x = wide(self)
    _, powers, total = _exponentials(x, dim)
    return cast(ops.Div(powers, ops.BroadcastInDim(total, x.shape.dimensions, range(x.shape.rank))), result.element_type)


@rule("_log_softmax", shown="half_to_float")
def _log_softmax(self: XlaOp, dim: int, result: Shape) -> XlaOp:
    x = wide(self)
    shifted, _, total = _exponentials(x, dim)
    return cast(ops.Sub(shifted, spread(ops.Log(total), x.shape.dimensions)), result.element_type)


def _exponentials(x: XlaOp, dim: int) -> tuple[XlaOp, XlaOp, XlaOp]:
    """The operand less its maximum along a dimension, its exponentials, and their sum, in which that dimension stays."""
    dims = places(dim, x.shape.rank)
    sizes = range(x.shape.rank)
    shifted = ops.Sub(x, ops.BroadcastInDim(_extreme(x, True, dims, True), x.shape.dimensions, sizes))
    powers = ops.Exp(shifted)
    return shifted, powers, summed(powers, dims, True)
