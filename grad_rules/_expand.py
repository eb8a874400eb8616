"""Ops with an arbitrary reducer, composed of ops that have rules of their own: reduce and reduce-window in log-many steps.

The gradient of such an op is the gradient of its composition. The work is that of the op itself, a few times over; there
is no loop over elements, and the second derivative comes for free. Reducers that are not associative are composed in the
order in which the op itself combines elements.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from grad_rules._calculus import constant, others, reshape, size_of, transpose
from grad_rules._compositions import apply
from xla_torch.analysis.associativity import is_associative
from xla_torch.core.errors import DifferentiationError
from xla_torch.core.types import PRED
from xla_torch.functions import (
    Broadcast,
    BroadcastInDim,
    ConcatInDim,
    Gather,
    GetTupleElement,
    Or,
    Pad,
    Scan,
    Select,
    SliceInDim,
    Tuple,
)
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.attributes import WindowDimension
from xla_torch.hlo.ir import Computation
from xla_torch.opcodes.reduction_order import IN_ORDER_IN_WINDOW, ROW, SIDE, running_dimension

Arrays = list[XlaOp]


def reduce_by_halves(operands: Sequence[XlaOp], inits: Sequence[XlaOp], dimensions: Sequence[int], reducer: Computation,
                     present: XlaOp | None = None) -> Arrays:
    """reduce: join neighbours until one element is left, then combine with init, once; a reducer that is not associative in the
    op's own order. Where `present` is false there is no element."""
    shape = operands[0].shape
    kept = others(dimensions, shape.rank)
    sizes = [shape.dimensions[d] for d in kept]
    count, last = size_of(shape, dimensions), len(kept)
    if count == 0:
        return [Broadcast(init, sizes) for init in inits]
    if not is_associative(reducer):
        return _reduced_in_order(operands, inits, dimensions, reducer, present)
    inits = [Broadcast(init, sizes) for init in inits]
    masks = [] if present is None else [present]
    arrays = [_in_lines(x, dimensions) for x in (*operands, *masks)]
    lines, masks = arrays[:len(operands)], arrays[len(operands):]
    while count > 1:
        halves = [[SliceInDim(x, start, count - count % 2, 2, last) for x in (*lines, *masks)] for start in (0, 1)]
        joined = _joined(halves, len(lines), reducer)
        if count % 2:
            rest = [_cut(x, count - 1, count, last) for x in (*lines, *masks)]
            joined = [ConcatInDim(x.builder, [x, r], last) for x, r in zip(joined, rest, strict=True)]
        lines, masks, count = joined[:len(lines)], joined[len(lines):], count // 2 + count % 2
    one = [reshape(x, sizes) for x in lines]
    met = apply(reducer, [*inits, *one])
    return [Select(reshape(masks[0], sizes), m, i) for m, i in zip(met, inits, strict=True)] if masks else met


def _joined(sides: list[Arrays], count: int, reducer: Computation) -> Arrays:
    """Two sides combined: the first `count` arrays of each by the reducer; then there may be a mask of where elements are."""
    left, right = sides
    met = apply(reducer, [*left[:count], *right[:count]])
    if len(left) == count:
        return met
    here, there = left[-1], right[-1]
    return [*(Select(there, Select(here, m, b), a) for m, a, b in zip(met, left[:count], right[:count], strict=True)),
            Or(here, there)]


def _in_lines(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """The array with these dimensions as one, the last, in row-major order."""
    kept = others(dimensions, x.shape.rank)
    return reshape(transpose(x, [*kept, *sorted(dimensions)]),
                   [*(x.shape.dimensions[d] for d in kept), size_of(x.shape, dimensions)])


def _reduced_in_order(operands: Sequence[XlaOp], inits: Sequence[XlaOp], dimensions: Sequence[int], reducer: Computation,
                      present: XlaOp | None) -> Arrays:
    """reduce as XLA's CPU code does it: element after element, but one array along more than `SIDE` elements in pieces of so
    many, whose results replace it, until no dimension is longer."""
    arrays = list(operands)
    while len(arrays) == 1 and any(arrays[0].shape.dimensions[d] > SIDE for d in dimensions):
        if present is not None:
            raise DifferentiationError(
                "a reduction of a dynamic dimension by a computation that is not associative has no gradient",
                got=f"up to {max(arrays[0].shape.dimensions)} elements", expected=f"an associative computation, or up to {SIDE}",
                hint="write it as a scan that carries the result")
        arrays = [_pieces_folded(arrays[0], inits[0], dimensions, reducer)]
    lines, masks = ([_in_lines(x, dimensions) for x in group] for group in (arrays, [] if present is None else [present]))
    return _folded(lines, masks, [Broadcast(init, lines[0].shape.dimensions[:-1]) for init in inits], reducer)


def _pieces_folded(array: XlaOp, init: XlaOp, dimensions: Sequence[int], reducer: Computation) -> XlaOp:
    """The array cut along these dimensions into pieces of up to `SIDE`, each of them reduced."""
    sizes, present = array.shape.dimensions, np.ones((), bool)
    config: list[tuple[int, int, int]] = []
    pieces: list[int] = []
    split: list[int] = []
    for d, n in enumerate(sizes):
        side = min(n, SIDE) if d in dimensions else 1
        spare = -n % side
        config.append((spare // 2, spare - spare // 2, 0))
        split += [(n + spare) // side, side]
        pieces.append((n + spare) // side)
        places = np.arange(n + spare) - spare // 2
        present = np.logical_and.outer(present, (places >= 0) & (places < n))
    inner = range(1, 2 * len(sizes), 2)
    line = _in_lines(reshape(_padded(array, config), split), inner)
    mask = [] if present.all() else [_in_lines(reshape(constant(array, present), split), inner)]
    result, = _folded([line], mask, [Broadcast(init, pieces)], reducer)
    return result


def _padded(array: XlaOp, config: Sequence[tuple[int, int, int]]) -> XlaOp:
    """With ones where there is no element: what fills the rest is combined and then left out, and 1 keeps quotients and
    logarithms finite, whose NaN would not stay out."""
    return array if not any(map(any, config)) else Pad(array, array.builder.constant(1, array.element_type), config)


def _folded(lines: Arrays, masks: Arrays, inits: Arrays, reducer: Computation) -> Arrays:
    """Elements along the last dimension combined one after another, from the inits on; where there is a mask, those in it."""
    builder, count = Builder("step"), len(inits)
    carried = [i.shape for i in inits]
    shapes = [*carried, *(s.with_element_type(PRED) for s in carried[:len(masks)]), *carried]
    values = [builder.parameter(k, s) for k, s in enumerate(shapes)]
    new, present, old = values[:count], values[count:-count], values[-count:]
    results = apply(reducer, [*old, *new])
    if present:
        results = [Select(present[0], r, o) for r, o in zip(results, old, strict=True)]
    found = Scan([*lines, *masks], inits, builder.finish(Tuple(builder, results)), lines[0].shape.rank - 1)
    return [GetTupleElement(found, k) for k in range(len(inits))]


def scan_by_pairs(x: XlaOp, dimension: int, reducer: Computation) -> XlaOp:
    """All elements up to each one combined, by an associative reducer: pairs of neighbours first, what they give is scanned, and
    every second result joined with the element after it. (So does JAX's `associative_scan`: where elements tie, and share, which
    pairs are formed decides their shares.)"""
    count = x.shape.dimensions[dimension]
    if count < 2:
        return x
    (joined,) = apply(reducer, [SliceInDim(x, 0, count - 1, 2, dimension), SliceInDim(x, 1, count, 2, dimension)])
    odd, even = scan_by_pairs(joined, dimension, reducer), [_cut(x, 0, 1, dimension)]
    if count > 2:
        before = _cut(odd, 0, (count - 1) // 2, dimension)
        even += apply(reducer, [before, SliceInDim(x, 2, count, 2, dimension)])
    return _interleaved(ConcatInDim(x.builder, even, dimension), odd, dimension)


def _interleaved(even: XlaOp, odd: XlaOp, dimension: int) -> XlaOp:
    """The elements of two arrays in turns; the first one may have one more."""
    sizes, rest = list(odd.shape.dimensions), even.shape.dimensions[dimension] - odd.shape.dimensions[dimension]
    apart = [*sizes[:dimension + 1], 1, *sizes[dimension + 1:]]
    pairs = [reshape(x, apart) for x in (_cut(even, 0, sizes[dimension], dimension), odd)]
    sizes[dimension] *= 2
    turns = reshape(ConcatInDim(even.builder, pairs, dimension + 1), sizes)
    if not rest:
        return turns
    return ConcatInDim(even.builder, [turns, _cut(even, sizes[dimension] // 2, sizes[dimension] // 2 + 1, dimension)], dimension)


def reduce_window_by_doubling(operands: Sequence[XlaOp], inits: Sequence[XlaOp], window: Sequence[WindowDimension],
                              sizes: Sequence[int], reducer: Computation) -> Arrays:
    """reduce-window: windows of 1, 2, 4, ... elements, joined as the binary digits of the size say, one dimension at a time.

    `sizes` are the result's. Padding and the holes of a dilated base are no elements: a mask keeps them out, so that init
    counts once for each window whatever it is.
    """
    if 0 in sizes:
        return [Broadcast(init, sizes) for init in inits]
    if not is_associative(reducer):
        along = running_dimension(operands[0].shape, window)
        if along is None:
            return _windows_in_order(operands, inits, window, sizes, reducer)
        return _running_in_order(list(operands), list(inits), *along, reducer)
    inits = [Broadcast(init, sizes) for init in inits]
    arrays, somewhere = list(operands), np.ones((1,) * len(sizes), bool)
    for dimension, w in reversed(list(enumerate(window))):  # the last one first: that keeps the order of elements
        arrays, present = _windows_along(arrays, dimension, w, sizes[dimension], reducer)
        somewhere = somewhere & np.expand_dims(present, tuple(others([dimension], len(sizes))))
    combined = apply(reducer, [*inits, *arrays])
    if somewhere.all():
        return combined
    mask = constant(arrays[0], np.broadcast_to(somewhere, sizes).copy())
    return [Select(mask, c, i) for c, i in zip(combined, inits, strict=True)]


def _running_in_order(operands: Arrays, inits: Arrays, dimension: int, reverse: bool, exclusive: bool,
                      reducer: Computation) -> Arrays:
    """A running reduction as the op does it (`lowering/kernels/window.py`): rows, each of whose results meets those before it."""
    sizes = operands[0].shape.dimensions
    count, last = sizes[dimension], len(sizes) - 1
    if count <= ROW:
        outside = (0, count - 1 + exclusive) if reverse else (count - 1 + exclusive, 0)
        window = [WindowDimension(1)] * len(sizes)
        window[dimension] = WindowDimension(count, 1, *outside)
        results = [*sizes[:dimension], count + exclusive, *sizes[dimension + 1:]]
        return _windows_in_order(operands, inits, window, results, reducer)

    def filled_up(arrays: Arrays, low: int, high: int) -> Arrays:
        config = [(low, high, 0) if d == dimension else (0, 0, 0) for d in range(last + 1)]
        return [Pad(x, init, config) for x, init in zip(arrays, inits, strict=True)] if low or high else arrays

    number = -(-count // ROW)
    tiled = [*sizes[:dimension], number, ROW, *sizes[dimension + 1:]]
    rows = [reshape(x, tiled) for x in filled_up(operands, 0, number * ROW - count)]
    within = _running_in_order(rows, inits, dimension + 1, reverse, False, reducer)
    end = 0 if reverse else ROW - 1
    ends = [reshape(_cut(x, end, end + 1, dimension + 1), [*sizes[:dimension], number, *sizes[dimension + 1:]]) for x in within]
    before = [BroadcastInDim(_cut(x, int(reverse), int(reverse) + number, dimension), tiled, others([dimension + 1], last + 2))
              for x in _running_in_order(ends, inits, dimension, reverse, True, reducer)]
    whole = [*sizes[:dimension], number * ROW, *sizes[dimension + 1:]]
    results = [_cut(reshape(x, whole), 0, count, dimension) for x in apply(reducer, [*within, *before])]
    return filled_up(results, int(not reverse), int(reverse)) if exclusive else results


def _windows_in_order(operands: Sequence[XlaOp], inits: Sequence[XlaOp], window: Sequence[WindowDimension], sizes: Sequence[int],
                      reducer: Computation) -> Arrays:
    """The windows' elements combined one after another, from the inits on."""
    arrays, everywhere = list(operands), list[np.ndarray]()
    for dimension, w in enumerate(window):
        arrays, present = _spread_out(arrays, dimension, w)
        everywhere.append(present)
    if math.prod(w.size for w in window) > IN_ORDER_IN_WINDOW:
        return _windows_folded(arrays, everywhere, inits, window, sizes, reducer)
    results = [Broadcast(init, sizes) for init in inits]
    for place in itertools.product(*(range(w.size) for w in window)):
        pieces, masks = arrays, list[np.ndarray]()
        for d, (k, w, count) in enumerate(zip(place, window, sizes, strict=True)):
            start, limit = k * w.window_dilation, k * w.window_dilation + (count - 1) * w.stride + 1
            pieces = [SliceInDim(x, start, limit, w.stride, d) for x in pieces]
            masks.append(everywhere[d][start:limit:w.stride])
        present = np.asarray(functools.reduce(np.logical_and, np.meshgrid(*masks, indexing="ij"), np.True_))
        if not present.any():
            continue
        met = apply(reducer, [*results, *pieces])
        results = met if present.all() else [Select(constant(m, present), m, r) for m, r in zip(met, results, strict=True)]
    return results


def _windows_folded(arrays: Arrays, everywhere: Sequence[np.ndarray], inits: Sequence[XlaOp], window: Sequence[WindowDimension],
                    sizes: Sequence[int], reducer: Computation) -> Arrays:
    """As `_windows_in_order`, of windows too large to be written out: their elements are gathered into lines."""
    present, inner = np.ones((), bool), range(1, 2 * len(sizes), 2)
    for dimension, (w, count, elements) in enumerate(zip(window, sizes, everywhere, strict=True)):
        places = np.add.outer(np.arange(count) * w.stride, np.arange(w.size) * w.window_dilation)
        arrays = [_gathered(x, places, 2 * dimension) for x in arrays]
        present = np.logical_and.outer(present, elements[places])
    mask = [] if present.all() else [_in_lines(constant(arrays[0], present), inner)]
    return _folded([_in_lines(x, inner) for x in arrays], mask, [Broadcast(init, sizes) for init in inits], reducer)


def _gathered(x: XlaOp, places: np.ndarray, dimension: int) -> XlaOp:
    """The array with the elements at these places along a dimension, which become two dimensions."""
    rank = x.shape.rank
    slices = [1 if d == dimension else n for d, n in enumerate(x.shape.dimensions)]
    return Gather(x, constant(x, places.astype(np.int32)), slice_sizes=slices, start_index_map=(dimension,), index_vector_dim=2,
                  offset_dims=tuple(others([dimension, dimension + 1], rank + 1)), collapsed_slice_dims=(dimension,))


def _windows_along(arrays: Arrays, dimension: int, w: WindowDimension, count: int,
                   reducer: Computation) -> tuple[Arrays, np.ndarray]:
    """The combined windows along one dimension, and where a window has an element at all."""
    arrays, present = _spread_out(arrays, dimension, w)
    needed = (count - 1) * w.stride + 1
    joined: tuple[Arrays, np.ndarray] | None = None
    covered, length, power = 0, w.size, (arrays, present)
    step = 1
    while length:
        if length & 1:
            piece = _shifted(power, covered * w.window_dilation, needed, dimension)
            joined = piece if joined is None else _combined(joined, piece, dimension, reducer)
            covered += step
        length >>= 1
        if length:
            reach = len(power[1]) - step * w.window_dilation
            power = _combined(_shifted(power, 0, reach, dimension), _shifted(power, step * w.window_dilation, reach, dimension),
                              dimension, reducer)
            step *= 2
    assert joined is not None
    results, present = joined
    if w.stride > 1:
        results = [SliceInDim(x, 0, needed, w.stride, dimension) for x in results]
    return results, present[::w.stride]


def _spread_out(arrays: Arrays, dimension: int, w: WindowDimension) -> tuple[Arrays, np.ndarray]:
    """The base with padding and dilation holes written out, and where real elements stand."""
    size = arrays[0].shape.dimensions[dimension]
    config = [(0, 0, 0)] * arrays[0].shape.rank
    config[dimension] = (w.padding_low, w.padding_high, w.base_dilation - 1)
    places = np.arange(size) * w.base_dilation + w.padding_low
    total = w.padding_low + ((size - 1) * w.base_dilation + 1 if size else 0) + w.padding_high
    present = np.zeros(total, bool)
    present[places[(places >= 0) & (places < total)]] = True
    return [_padded(x, config) for x in arrays], present


def _shifted(piece: tuple[Arrays, np.ndarray], start: int, count: int, dimension: int) -> tuple[Arrays, np.ndarray]:
    arrays, present = piece
    return [_cut(x, start, start + count, dimension) for x in arrays], present[start:start + count]


def _combined(left: tuple[Arrays, np.ndarray], right: tuple[Arrays, np.ndarray], dimension: int,
              reducer: Computation) -> tuple[Arrays, np.ndarray]:
    """Both sides combined where both have an element, else the side that has one."""
    (a, in_a), (b, in_b) = left, right
    results = apply(reducer, [*a, *b])
    if not in_a.all() or not in_b.all():
        results = [_where(in_b, _where(in_a, r, y, dimension), x, dimension) for r, x, y in zip(results, a, b, strict=True)]
    return results, in_a | in_b


def _where(mask: np.ndarray, on_true: XlaOp, on_false: XlaOp, dimension: int) -> XlaOp:
    if mask.all():
        return on_true
    return Select(BroadcastInDim(constant(on_true, mask), on_true.shape.dimensions, [dimension]), on_true, on_false)


def _cut(x: XlaOp, start: int, limit: int, dimension: int) -> XlaOp:
    if (start, limit) == (0, x.shape.dimensions[dimension]):
        return x
    return SliceInDim(x, start, limit, 1, dimension)
