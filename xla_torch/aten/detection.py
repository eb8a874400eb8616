"""Operators of torchvision about boxes. Their rules say nothing where torchvision is not installed."""

from __future__ import annotations

import numpy as np

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import PRED, S64
from ..functions.hlo_builder import XlaOp
from .chosen import chosen
from .indexing import indexed
from .operator_rules import rule
from .sorting import ordered
from .values import filled, full, iota, least, reduced, size_of, wide


@rule("torchvision.nms.default")
def _nms(dets: XlaOp, scores: XlaOp, iou_threshold: float) -> XlaOp:
    """The places of boxes that no box of a higher score covers which is kept itself, by score."""
    boxes, scores = filled(dets, [0]), _with_least(scores)
    count = boxes.shape.dimensions[0]
    if not count:
        return full(dets.builder, 0, Shape.array(S64, [0]))
    at = ordered(scores, 0, True)[1]
    size = size_of(dets, 0)
    is_there = full(dets.builder, True, Shape.array(PRED, [count]))
    if isinstance(size, XlaOp):
        is_there = ops.Lt(iota(boxes, [count], 0), ops.Broadcast(size, [count]))
    covered = _covered(indexed(wide(boxes), [at]), iou_threshold)
    return indexed(at, [chosen(_kept(is_there, covered))])


def _with_least(scores: XlaOp) -> XlaOp:
    """The scores, with the least of all for boxes beyond a size that depends on values."""
    size, plain = size_of(scores, 0), filled(scores, [0])
    if not isinstance(size, XlaOp):
        return plain
    is_there = ops.Lt(iota(plain, plain.shape.dimensions, 0), ops.Broadcast(size, plain.shape.dimensions))
    return ops.Select(is_there, plain, full(plain.builder, least(plain.element_type), plain.shape))


def _covered(boxes: XlaOp, threshold: float) -> XlaOp:
    """[i, j]: whether box i comes before box j and the share that both have in what either has is above the threshold."""
    count, t = boxes.shape.dimensions[0], boxes.element_type

    def corner(number: int, dim: int) -> XlaOp:
        column = ops.Reshape(ops.SliceInDim(boxes, number, number + 1, 1, 1), [count])
        return ops.BroadcastInDim(column, [count, count], [dim])

    def length(low: int, high: int, dim: int) -> XlaOp:
        return ops.Sub(corner(high, dim), corner(low, dim))

    def common(low: int, high: int) -> XlaOp:
        found = ops.Sub(ops.Min(corner(high, 0), corner(high, 1)), ops.Max(corner(low, 0), corner(low, 1)))
        return ops.Max(found, full(boxes.builder, 0, found.shape))

    both = ops.Mul(common(0, 2), common(1, 3))
    areas = [ops.Mul(length(0, 2, dim), length(1, 3, dim)) for dim in (0, 1)]
    share = ops.Div(both, ops.Sub(ops.Add(*areas), both))
    # torch compares with a number of double precision.
    bound = np.array(threshold, t.numpy)
    bound = np.nextafter(bound, np.array(-np.inf, t.numpy)) if float(bound) > threshold else bound
    later = ops.Lt(iota(boxes, [count, count], 0), iota(boxes, [count, count], 1))
    return ops.And(later, ops.Gt(share, full(boxes.builder, float(bound), share.shape)))


def _kept(is_there: XlaOp, covered: XlaOp) -> XlaOp:
    """The boxes that no kept one covers: from all on, until nothing changes. Each step settles one box at least, in order."""

    def kept_of(kept: XlaOp, covered: XlaOp, is_there: XlaOp) -> XlaOp:
        covering = ops.And(covered, ops.BroadcastInDim(kept, covered.shape.dimensions, [0]))
        return ops.And(is_there, ops.Not(reduced(covering, "Or", False, [0])))

    def body(state: tuple[XlaOp, ...]) -> tuple[XlaOp, ...]:
        _, kept, covered, is_there = state
        found = kept_of(kept, covered, is_there)
        return reduced(ops.Ne(found, kept), "Or", False, [0]), found, covered, is_there

    first = (is_there.builder.constant(True, PRED), is_there, covered, is_there)
    return ops.GetTupleElement(ops.While(lambda t: t[0], body, first), 1)
