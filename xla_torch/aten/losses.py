"""Losses that torch's own decompositions give wrong values of."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import S64
from ..functions.hlo_builder import XlaOp
from .indexing import taken_along
from .operator_rules import rule
from .values import cast, full, greatest, iota, reduced, summed, wide

_MEAN, _SUM = 1, 2


class _Labels:
    """Rows of classes, and for each pair of a target and a class of a row whether the class is the target (`hits`), how far the
    class falls `short` of the target by less than 1, and whether that `counts`: it does for classes that are no target.
    Targets end at the first that is negative."""

    def __init__(self, x: XlaOp, target: XlaOp):
        classes = x.shape.dimensions[-1] if x.shape.rank else 1
        sizes = [x.shape.element_count // classes, classes]
        x, target = ops.Reshape(wide(x), sizes), ops.Reshape(cast(target, S64), sizes)
        self.pairs, self.classes, self.rows = [*sizes, classes], classes, sizes[0]
        place = iota(x, sizes, 1)
        end = ops.Select(ops.Lt(target, 0), place, full(x.builder, classes, place.shape))
        end = reduced(end, "Min", greatest(S64), [1], True)
        given = ops.Lt(place, ops.BroadcastInDim(end, sizes, [0, 1]))
        chosen = taken_along(x, ops.Select(given, target, full(x.builder, 0, target.shape)), 1)
        self.hits = ops.And(self._of_targets(given), ops.Eq(self._of_targets(target), iota(x, self.pairs, 2)))
        self.is_target = reduced(self.hits, "Or", False, [1])
        one = full(x.builder, 1, x.shape.with_dimensions(self.pairs))
        self.short = ops.Add(ops.Sub(one, self._of_targets(chosen)), self._of_classes(x))
        counts = ops.And(self._of_targets(given), ops.Not(self._of_classes(self.is_target)))
        self.counts = ops.And(counts, ops.Gt(self.short, 0))

    def _of_targets(self, x: XlaOp) -> XlaOp:
        return ops.BroadcastInDim(x, self.pairs, [0, 1])

    def _of_classes(self, x: XlaOp) -> XlaOp:
        return ops.BroadcastInDim(x, self.pairs, [0, 2])


@rule("multilabel_margin_loss_forward")
def _multilabel_margin_loss(self: XlaOp, target: XlaOp, reduction: int, result: Sequence[Shape]) -> list[XlaOp]:
    labels = _Labels(self, target)
    loss = summed(ops.Select(labels.counts, labels.short, full(self.builder, 0, labels.short.shape)), [1, 2])
    loss = ops.Div(loss, full(self.builder, labels.classes, loss.shape))
    if reduction in (_MEAN, _SUM):
        loss = summed(loss, [0])
    if reduction == _MEAN:
        loss = ops.Div(loss, full(self.builder, labels.rows, loss.shape))
    return [ops.Reshape(cast(part, shape.element_type), list(shape.dimensions))
            for part, shape in zip((loss, labels.is_target), result, strict=True)]


@rule("multilabel_margin_loss_backward", shown="is_target")
def _multilabel_margin_loss_back(grad_output: XlaOp, self: XlaOp, target: XlaOp, reduction: int, result: Shape) -> XlaOp:
    labels = _Labels(self, target)
    count = labels.classes * (labels.rows if reduction == _MEAN else 1)
    ct = ops.Div(wide(grad_output), full(self.builder, count, wide(grad_output).shape))
    each = reduction not in (_MEAN, _SUM)
    rows = ops.Reshape(ct, [labels.rows]) if each else ops.BroadcastInDim(ops.Reshape(ct, []), [labels.rows], [])
    shares = ops.BroadcastInDim(rows, labels.pairs, [0])
    nothing = full(self.builder, 0, shares.shape)
    shares = ops.Select(labels.counts, shares, nothing)
    of_targets = ops.Select(labels.hits, ops.BroadcastInDim(summed(shares, [2]), labels.pairs, [0, 1]), nothing)
    found = summed(ops.Sub(shares, of_targets), [1])
    return ops.Reshape(cast(found, result.element_type), list(result.dimensions))
