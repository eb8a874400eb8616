"""Windows that slide over arrays (hlo/SPEC.md, Windows): reduced by any combiner, or selecting elements.

A window is given as one tuple of integers for each dimension: size, stride, low and high padding, base dilation, window
dilation. Padding may be negative.

A window is reduced one dimension after another, the last one first: that keeps the row-major order of its elements, and
costs the sum of its sizes instead of their product.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..codegen import windows
from ..core import tuning
from ..opcodes.reducer_kinds import ReducerKind
from ..opcodes.reduction_order import IN_ORDER_IN_WINDOW, ROW, SIDE
from . import indexing
from .calls import fresh, fresh_tuple
from .movement import pad
from .native import Awaited, run_on_threads
from .reduction import Combiner, Number, Tensors, filled, fold_by, reduce_blocks, shaped
from .rows import is_plain

Window = Sequence[tuple[int, ...]]
TRIVIAL = (1, 1, 0, 0, 1)


def is_trivial(dimension: tuple[int, ...]) -> bool:
    """Whether the window does nothing along a dimension."""
    return tuple(dimension[:5]) == TRIVIAL


def has_padding(window: Window) -> bool:
    """Whether windows reach positions that hold no element."""
    return any(low > 0 or high > 0 or dilation > 1 for _, _, low, high, dilation, _ in window)


def padded(operand: torch.Tensor, value: torch.Tensor | Number, window: Window) -> torch.Tensor:
    """The array with the window's padding and base dilation filled with a value; itself where there are none."""
    if all(low == high == 0 and dilation == 1 for _, _, low, high, dilation, _ in window):
        return operand
    return pad(operand, value, [(low, high, dilation - 1) for _, _, low, high, dilation, _ in window])


def positions(size: int, dimension: tuple[int, ...]) -> int:
    """How many positions a window has along a dimension of a padded array."""
    length, stride, *_, dilation = dimension
    reach = (length - 1) * dilation + 1
    return 0 if size < reach else (size - reach) // stride + 1


# ------------------------------------------------------------------------------------------------ reductions


def reduce_windows(operand: torch.Tensor, kind: ReducerKind, neutral: Number, window: Window) -> torch.Tensor:
    """Reduce each window with a reducer of this kind (a key of `_KNOWN`); `neutral` fills the padding."""
    combine, fold = _KNOWN[kind]
    whole = padded(operand, neutral, window)
    # Sums and products of narrow floats are made in float32 and rounded once.
    widen = kind in (ReducerKind.ADD, ReducerKind.MULTIPLY) and whole.dtype in (torch.bfloat16, torch.float16)
    result, = _slide_all(lambda a, b: (combine(a, b),), (whole.float() if widen else whole,), window, fold)
    return result.to(operand.dtype)


@fresh_tuple
def reduce_windows_by(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number],
                      window: Window) -> Tensors:
    """Reduce each window with a combiner, elements in row-major order, the inits once as first element.

    Padding and the holes of base dilation are left out; a window of nothing else gives the inits.
    """
    combine, count = shaped(combine), len(operands)
    wholes = tuple(padded(o, 0, window) for o in operands)
    dims = [positions(n, d) for n, d in zip(wholes[0].shape, window, strict=True)]
    starts = tuple(filled(init, o, dims) for init, o in zip(inits, operands, strict=True))
    if not has_padding(window):
        return combine(*starts, *_slide_all(combine, wholes, window))

    def combine_present(*pairs: torch.Tensor) -> Tensors:
        is_old, is_new, old, new = pairs[0], pairs[count + 1], pairs[1:count + 1], pairs[count + 2:]
        both = is_old & is_new
        met = combine(*old, *new)
        return (is_old | is_new, *(choose(both, m, choose(is_old, o, n)) for m, o, n in zip(met, old, new, strict=True)))

    present = padded(torch.ones_like(operands[0], dtype=torch.bool), False, window)
    any_present, *found = _slide_all(combine_present, (present, *wholes), window)
    results = combine(*starts, *found)
    return tuple(torch.where(any_present, r, s) for r, s in zip(results, starts, strict=True))


def reduce_windows_in_order(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number],
                            window: Window) -> Tensors:
    """`reduce_windows_by` for combiners that may not be associative: from the inits on, one element after another."""
    combine = shaped(combine)
    wholes = tuple(padded(o, 0, window) for o in operands)
    present = padded(torch.ones_like(operands[0], dtype=torch.bool), False, window) if has_padding(window) else None
    counts = [positions(n, d) for n, d in zip(wholes[0].shape, window, strict=True)]
    results = tuple(filled(init, o, counts) for init, o in zip(inits, operands, strict=True))
    for place in itertools.product(*(range(size) for size, *_ in window)):
        at = tuple(slice(k * dilation, k * dilation + max(0, (n - 1) * stride + 1), stride)
                   for k, n, (_, stride, *_, dilation) in zip(place, counts, window, strict=True))
        met = combine(*results, *(w[at] for w in wholes))
        results = met if present is None else tuple(choose(present[at], m, r) for m, r in zip(met, results, strict=True))
    return results


def running_in_order(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number], dim: int,
                     reverse: bool, exclusive: bool) -> Tensors:
    """A running reduction, written as a window as long as the array, by a combiner that is not associative, as XLA's CPU code
    does it: an array of more than `ROW` elements, filled up with inits, is cut into rows, and each result in a row is combined
    with the running reduction of the rows before it (in reverse: behind it). `exclusive` leaves out the element itself, and has
    one place more."""
    count, rank = operands[0].shape[dim], operands[0].dim()
    if count <= ROW:
        low, high = (0, count - 1 + exclusive) if reverse else (count - 1 + exclusive, 0)
        window = [(count, 1, low, high, 1, 1) if d == dim else (*TRIVIAL, 1) for d in range(rank)]
        return reduce_windows_in_order(combine, operands, inits, window)

    def filled_up(arrays: Sequence[torch.Tensor], low: int, high: int) -> Tensors:
        config = [(low, high, 0) if d == dim else (0, 0, 0) for d in range(rank)]
        return tuple(pad(a, init, config) for a, init in zip(arrays, inits, strict=True))

    rows = tuple(o.unflatten(dim, (-1, ROW)) for o in filled_up(operands, 0, -count % ROW))
    within = running_in_order(combine, rows, inits, dim + 1, reverse, False)
    ends = tuple(w.select(dim + 1, 0 if reverse else ROW - 1) for w in within)
    before = (b.narrow(dim, int(reverse), rows[0].shape[dim]).unsqueeze(dim + 1)
              for b in running_in_order(combine, ends, inits, dim, reverse, True))
    met = shaped(combine)(*within, *(b.expand_as(w) for b, w in zip(before, within, strict=True)))
    results = tuple(m.flatten(dim, dim + 1).narrow(dim, 0, count) for m in met)
    return filled_up(results, int(not reverse), int(reverse)) if exclusive else results


def reduce_in_order(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number],
                    dims: Sequence[int]) -> Tensors:
    """Reduce dimensions with a combiner that is not associative, in the order of XLA's CPU code.

    That takes element after element from the inits on. But where one array is reduced along more than `SIDE` elements, it
    is first cut into windows of so many, whose results replace it, until no dimension is longer.
    """
    while len(operands) == 1 and operands[0].numel() and any(operands[0].shape[d] > SIDE for d in dims):
        sizes = [min(n, SIDE) if d in dims else 1 for d, n in enumerate(operands[0].shape)]
        spare = [-n % size for n, size in zip(operands[0].shape, sizes, strict=True)]
        operands = reduce_windows_in_order(combine, operands, inits, [
            (size, size, low // 2, low - low // 2, 1, 1) for size, low in zip(sizes, spare, strict=True)])
    return fold_by(combine, operands, inits, dims)


Fold = Callable[[torch.Tensor, int], torch.Tensor]

_KNOWN: dict[ReducerKind, tuple[Callable[..., torch.Tensor], Fold]] = {
    ReducerKind.ADD: (torch.add, lambda x, dim: x.sum(dim, dtype=x.dtype)),
    ReducerKind.MULTIPLY: (torch.mul, lambda x, dim: x.prod(dim, dtype=x.dtype)),
    ReducerKind.MAXIMUM: (torch.maximum, torch.amax),
    ReducerKind.MINIMUM: (torch.minimum, torch.amin),
    ReducerKind.OR: (torch.logical_or, torch.any),
    ReducerKind.AND: (torch.logical_and, torch.all),
}
"""For each kind of reducer, how two arrays and how one dimension of an array are combined."""


def _slide_all(combine: Combiner, operands: Tensors, window: Window, fold: Fold | None = None) -> Tensors:
    for dim in reversed(range(len(window))):
        size, stride, *_, dilation = window[dim]
        if size > 1 or stride > 1:
            operands = _slide(combine, operands, dim, size, stride, dilation, fold)
    return operands


def _slide(combine: Combiner, operands: Tensors, dim: int, size: int, stride: int, dilation: int, fold: Fold | None) -> Tensors:
    """Reduce windows along one dimension."""
    count = positions(operands[0].shape[dim], (size, stride, dilation))
    if count == 0:
        return tuple(o.narrow(dim, 0, 0) for o in operands)
    span = (count - 1) * stride + 1
    if size <= tuning.SHORT_WINDOW:
        result = _steps(operands, dim, 0, span, stride)
        for k in range(1, size):
            result = combine(*result, *_steps(operands, dim, k * dilation, span, stride))
        return result
    if stride >= size:
        return _fold_apart(combine, operands, dim, size, stride, dilation, fold)
    return _steps(_double(combine, operands, dim, size, dilation, span), dim, 0, span, stride)


def _steps(operands: Tensors, dim: int, start: int, span: int, stride: int) -> Tensors:
    """Every `stride`-th element of a stretch along a dimension."""
    at = (slice(None),) * dim + (slice(start, start + span, stride),)
    return tuple(o[at] for o in operands)


def _double(combine: Combiner, operands: Tensors, dim: int, size: int, dilation: int, span: int) -> Tensors:
    """Windows of stride 1 at the first `span` positions, put together from windows of 1, 2, 4, ... elements."""
    result: Tensors | None = None
    done, length, powers = 0, 1, operands
    while True:
        if size & length:
            piece = _steps(powers, dim, done * dilation, span, 1)
            result = piece if result is None else combine(*result, *piece)
            done += length
        if done == size:
            return result or powers
        shift = length * dilation
        left = powers[0].shape[dim] - shift
        powers = combine(*_steps(powers, dim, 0, left, 1), *_steps(powers, dim, shift, left, 1))
        length *= 2


def _fold_apart(combine: Combiner, operands: Tensors, dim: int, size: int, stride: int, dilation: int,
                fold: Fold | None) -> Tensors:
    """Windows that do not overlap: cut the dimension into pieces and reduce each."""
    opened = tuple(o.unfold(dim, (size - 1) * dilation + 1, stride)[..., ::dilation] for o in operands)
    if fold is not None:
        return tuple(fold(o, -1) for o in opened)
    dims = opened[0].shape[:-1]
    outer = math.prod(dims[:dim + 1])
    blocks = tuple(o.movedim(-1, dim + 1).reshape(outer, size, -1 if o.numel() else 0) for o in opened)
    return tuple(r.reshape(dims) for r in reduce_blocks(combine, blocks))


# ------------------------------------------------------------------------------------------------ select and scatter


def choose(mask: torch.Tensor, on_true: torch.Tensor, on_false: torch.Tensor) -> torch.Tensor:
    """`torch.where` of tensors of one dtype. On the CPU that one branches at each element; this one computes on bits."""
    if mask.device.type != "cpu" or on_true.is_complex() or torch.compiler.is_compiling():
        return torch.where(mask, on_true, on_false)
    bits = _BITS[on_true.element_size()]
    off = on_false.view(bits)
    return (on_true.view(bits) ^ off).bitwise_and_(mask.to(bits).neg_()).bitwise_xor_(off).view(on_true.dtype)


_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@fresh
def select_and_scatter(select: Combiner, combine: Combiner, operand: torch.Tensor, source: torch.Tensor,
                       init: torch.Tensor | Number, window: Window, transitive: bool = False,
                       but_for_nan: bool = False, associative: bool = False, compares: str = "") -> torch.Tensor:
    """XLA's select-and-scatter: each source element is combined into the element that its window of the operand selects.

    `select(selected, candidate)` says whether the selected element stays, `combine(current, update)` gives the new value;
    each returns a tuple of one. A window's elements are looked at, and windows' updates combined, in row-major order, unless
    `select` is `transitive` (perhaps only `but_for_nan`) or `combine` is `associative`, which counts in windows of more than
    `IN_ORDER_IN_WINDOW` elements. Padding is never selected. `compares` is how C writes `select`, if it only compares, and
    `combine` adds.
    """
    call = _NativeCall.of(operand, source, window, compares) if compares else None
    if call is not None and call.native.is_ready():
        return call(operand, source, init)
    given = select, combine, operand, source, init, window, transitive, but_for_nan, associative
    return _selected_in_torch(*given) if call is None else call.native.timed(_selected_in_torch, *given)


class _NativeCall(NamedTuple):
    """A call of the native function for windows over few dimensions side by side."""

    native: Awaited
    rows: int
    inner: int
    geometry: tuple[int, ...]

    @classmethod
    def of(cls, operand: torch.Tensor, source: torch.Tensor, window: Window, compares: str) -> _NativeCall | None:
        """None where there is no such function."""
        reached = [d for d, dimension in enumerate(window) if not is_trivial(dimension)]
        if not reached or operand.dtype not in _NATIVE or source.dtype is not operand.dtype:
            return None
        if not (is_plain(operand) and is_plain(source)):
            return None
        first, last = reached[0], reached[-1] + 1
        if last - first > windows.SPATIAL or operand.numel() >= 1 << 31:
            return None
        geometry = [(1, 1, 1, 1, 0)] * (windows.SPATIAL - (last - first))
        for d in range(first, last):
            size, stride, low, *_ = window[d]
            geometry.append((operand.shape[d], source.shape[d], size, stride, low))
        return cls(_native(_NATIVE[operand.dtype], compares), math.prod(operand.shape[:first]), math.prod(operand.shape[last:]),
                   tuple(itertools.chain.from_iterable(geometry)))

    def __call__(self, operand: torch.Tensor, source: torch.Tensor, init: torch.Tensor | Number) -> torch.Tensor:
        operand, source = operand.contiguous(), source.contiguous()
        result = torch.empty_like(operand)
        result.fill_(init) if isinstance(init, Number) else result.copy_(init.expand_as(result))
        if operand.numel() and source.numel():
            run_on_threads(self.native.function, self.rows, source.numel() // self.rows, [
                operand.data_ptr(), source.data_ptr(), result.data_ptr(), self.inner, *self.geometry])
        return result


_NATIVE = {torch.float32: "f32", torch.float64: "f64"}


@functools.cache
def _native(name: str, compares: str) -> Awaited:
    return Awaited(windows.add_to_selected(name, compares), "a select-and-scatter")


def _selected_in_torch(select: Combiner, combine: Combiner, operand: torch.Tensor, source: torch.Tensor,
                       init: torch.Tensor | Number, window: Window, transitive: bool, but_for_nan: bool,
                       associative: bool) -> torch.Tensor:
    if math.prod([size for size, *_ in window]) > IN_ORDER_IN_WINDOW:
        if but_for_nan and not transitive and indexing.on_host(operand):
            transitive = not bool(operand.isnan().any())
        places = _selected_places(select, operand, window, transitive).reshape(-1)
        flat = filled(init, source, (operand.numel(),))
        result, = indexing.scatter_by_rounds(
            combine, [flat], places, [source.reshape(-1)], associative, update_window_dims=(), inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,), index_vector_dim=1)
        return result.reshape(operand.shape)
    # Negative padding shifts the windows, so that the elements that no window reaches stay where they are.
    outside = [(1, 1, max(low, 0), max(high, 0), 1, 1) for _, _, low, high, *_ in window]
    whole = padded(operand, 0, outside)
    present = padded(torch.ones_like(operand, dtype=torch.bool), False, outside) if has_padding(window) else None
    elements = [_element(k, source.shape, window) for k in itertools.product(*(range(size) for size, *_ in window))]
    chosen = _selected_elements(select, whole, present, elements)
    result = torch.empty(whole.shape, dtype=source.dtype, device=source.device)
    result.copy_(filled(init, source, whole.shape))
    # Of the windows that hold one element, the first in row-major order holds it at its latest place.
    for number, at in reversed(list(enumerate(elements))):
        current = result[at]
        current.copy_(choose(chosen == number, combine(current, source)[0], current))
    for d, size in enumerate(operand.shape):
        result = result.narrow(d, outside[d][2], size)
    return result.contiguous()


def _element(place: Sequence[int], counts: Sequence[int], window: Window) -> tuple[slice, ...]:
    """Where the element at this place of every window lies in the padded array."""
    starts = (k + max(-low, 0) for k, (_, _, low, *_) in zip(place, window, strict=True))
    return tuple(slice(start, start + max(0, (n - 1) * stride + 1), stride)
                 for start, n, (_, stride, *_) in zip(starts, counts, window, strict=True))


def _selected_elements(select: Combiner, whole: torch.Tensor, present: torch.Tensor | None,
                       elements: Sequence[tuple[slice, ...]]) -> torch.Tensor:
    """For each window the number, in row-major order, of the element that it selects; -1 where it has none."""
    best = whole[elements[0]]
    chosen = torch.zeros(best.shape, dtype=torch.int8, device=whole.device)
    if present is not None:
        chosen = present[elements[0]].to(torch.int8) - 1
    for number, at in enumerate(elements[1:], 1):
        stays = select(best, whole[at])[0]
        if present is not None:
            stays = (stays & (chosen >= 0)) | ~present[at]
        chosen = choose(stays, chosen, torch.full_like(chosen, number))
        if number + 1 < len(elements):
            best = choose(stays, best, whole[at])
    return chosen


def _selected_places(select: Combiner, operand: torch.Tensor, window: Window, transitive: bool) -> torch.Tensor:
    """For each window the row-major index of the element that it selects, -1 where it has none."""
    numbers = torch.arange(operand.numel(), device=operand.device).reshape(operand.shape)

    def better(best: torch.Tensor, place: torch.Tensor, candidate: torch.Tensor, at: torch.Tensor) -> Tensors:
        stays = (select(best, candidate)[0] & (place >= 0)) | (at < 0)
        return choose(stays, best, candidate), choose(stays, place, at)

    wholes = padded(operand, 0, window), padded(numbers, -1, window)
    if transitive:
        return _slide_all(better, wholes, window)[1]
    inside = [(size, stride, 0, 0, 1, dilation) for size, stride, *_, dilation in window]
    return reduce_windows_in_order(better, wholes, (0, -1), inside)[1]
