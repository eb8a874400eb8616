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

from xla_torch.builder import XlaBuilder, XlaOp
from xla_torch.errors import DifferentiationError
from xla_torch.hlo.ir import Computation
from xla_torch.lowering.associative import is_associative
from xla_torch.lowering.kernels.reduction import IN_ORDER
from xla_torch.lowering.kernels.window import FEW, SIDE
from xla_torch.opcodes.attributes import WindowDimension
from xla_torch.ops import Broadcast, BroadcastInDim, ConcatInDim, GetTupleElement, Pad, Scan, Select, SliceInDim, Tuple

from ._calculus import constant, others, reshape, size_of, transpose
from ._regions import apply

Arrays = list[XlaOp]


def reduce_by_halves(operands: Sequence[XlaOp], inits: Sequence[XlaOp], dimensions: Sequence[int],
                     reducer: Computation) -> Arrays:
    """reduce: join neighbours until one element is left, then combine with init, once."""
    shape = operands[0].shape
    kept = others(dimensions, shape.rank)
    sizes = [shape.dimensions[d] for d in kept]
    count, last = size_of(shape, dimensions), len(kept)
    inits = [Broadcast(init, sizes) for init in inits]
    if count == 0:
        return inits
    lines = [reshape(transpose(x, [*kept, *sorted(dimensions)]), [*sizes, count]) for x in operands]
    if not is_associative(reducer):
        in_pieces = len(operands) == 1 and any(shape.dimensions[d] > SIDE for d in dimensions)
        return _folded(lines, inits, reducer, count > IN_ORDER or in_pieces)
    while count > 1:
        pairs = [SliceInDim(x, start, count - count % 2, 2, last) for start in (0, 1) for x in lines]
        joined = apply(reducer, pairs)
        if count % 2:
            rest = [_cut(x, count - 1, count, last) for x in lines]
            joined = [ConcatInDim(x.builder, [x, r], last) for x, r in zip(joined, rest, strict=True)]
        lines, count = joined, count // 2 + count % 2
    return apply(reducer, [*inits, *(reshape(x, sizes) for x in lines)])


def _folded(lines: Arrays, inits: Arrays, reducer: Computation, in_pieces: bool) -> Arrays:
    """Elements along the last dimension combined one after another, from the inits on. `in_pieces` if the op does not do
    that for so many."""
    if in_pieces:
        raise DifferentiationError("a reduction of so many elements by a computation that is not associative has no gradient",
                                   got=f"{lines[0].shape.dimensions[-1]} elements", expected="an associative computation",
                                   hint="write it as a scan that carries the result")
    builder, shapes = XlaBuilder("step"), [i.shape for i in inits]
    values = [builder.parameter(k, s) for k, s in enumerate([*shapes, *shapes])]
    step = builder.finish(Tuple(builder, apply(reducer, [*values[len(inits):], *values[:len(inits)]])))
    found = Scan(lines, inits, step, lines[0].shape.rank - 1)
    return [GetTupleElement(found, k) for k in range(len(inits))]


def reduce_window_by_doubling(operands: Sequence[XlaOp], inits: Sequence[XlaOp], window: Sequence[WindowDimension],
                              sizes: Sequence[int], reducer: Computation) -> Arrays:
    """reduce-window: windows of 1, 2, 4, ... elements, joined as the binary digits of the size say, one dimension at a time.

    `sizes` are the result's. Padding and the holes of a dilated base are no elements: a mask keeps them out, so that init
    counts once for each window whatever it is.
    """
    inits = [Broadcast(init, sizes) for init in inits]
    if 0 in sizes:
        return inits
    if math.prod(w.size for w in window) <= FEW and not is_associative(reducer):
        return _windows_in_order(operands, inits, window, sizes, reducer)
    arrays, somewhere = list(operands), np.ones((1,) * len(sizes), bool)
    for dimension, w in reversed(list(enumerate(window))):  # the last one first: that keeps the order of elements
        arrays, present = _windows_along(arrays, dimension, w, sizes[dimension], reducer)
        somewhere = somewhere & np.expand_dims(present, tuple(others([dimension], len(sizes))))
    combined = apply(reducer, [*inits, *arrays])
    if somewhere.all():
        return combined
    mask = constant(arrays[0], np.broadcast_to(somewhere, sizes).copy())
    return [Select(mask, c, i) for c, i in zip(combined, inits, strict=True)]


def _windows_in_order(operands: Sequence[XlaOp], inits: Arrays, window: Sequence[WindowDimension], sizes: Sequence[int],
                      reducer: Computation) -> Arrays:
    """The windows' elements combined one after another, from the inits on."""
    arrays, everywhere = list(operands), []
    for dimension, w in enumerate(window):
        arrays, present = _spread_out(arrays, dimension, w)
        everywhere.append(present)
    results = inits
    for place in itertools.product(*(range(w.size) for w in window)):
        pieces, masks = arrays, []
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
    if config[dimension] == (0, 0, 0):
        return arrays, present
    # What fills the rest is combined and then left out: 1 keeps quotients and logarithms finite, whose NaN would not stay out.
    return [Pad(x, x.builder.constant(1, x.element_type), config) for x in arrays], present


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
