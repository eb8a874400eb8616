"""Attention. Fused kernels give it other strides than its products would have, and modules view it as these stand, so it has a
rule of its own."""

from __future__ import annotations

import math

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import PRED
from ..functions.contraction import DotDimensionNumbers
from ..functions.hlo_builder import XlaOp
from .operator_rules import rule
from .values import cast, full, iota, least, reduced, spread, summed, wide


@rule("scaled_dot_product_attention")
def _attention(query: XlaOp, key: XlaOp, value: XlaOp, attn_mask: XlaOp | None, dropout_p: float, is_causal: bool,
               scale: float | None, enable_gqa: bool, result: Shape) -> XlaOp:
    if dropout_p:
        raise UnsupportedError("a draw without a state", got=f"dropout_p={dropout_p}", expected="0")
    batch = list(result.dimensions[:-2])
    if enable_gqa:
        key, value = (_repeated(x, query.shape.dimensions[-3]) for x in (key, value))
    query, key, value = (spread(wide(x), [*batch, *x.shape.dimensions[-2:]]) for x in (query, key, value))
    scale = 1 / math.sqrt(query.shape.dimensions[-1] or 1) if scale is None else scale
    weights = _product(ops.Mul(query, full(query.builder, scale, query.shape)), key, query.shape.rank - 1)
    if is_causal:
        sizes = weights.shape.dimensions[-2:]
        weights = _only(weights, ops.Ge(iota(weights, sizes, 0), iota(weights, sizes, 1)))
    if attn_mask is not None and attn_mask.element_type is PRED:
        weights = _only(weights, attn_mask)
    elif attn_mask is not None:
        weights = ops.Add(weights, spread(cast(attn_mask, weights.element_type), weights.shape.dimensions))
    return cast(_product(_softmax(weights), value, value.shape.rank - 2), result.element_type)


def _repeated(x: XlaOp, heads: int) -> XlaOp:
    """Each head several times, one after another, so that there are so many."""
    *batch, own, rows, width = x.shape.dimensions
    times = heads // own
    found = ops.BroadcastInDim(x, [*batch, own, times, rows, width], [d for d in range(x.shape.rank + 1) if d != len(batch) + 1])
    return ops.Reshape(found, [*batch, heads, rows, width])


def _product(lhs: XlaOp, rhs: XlaOp, contracted: int) -> XlaOp:
    """The last dimension of the left with one of the right, for each element of the batch."""
    batch = tuple(range(lhs.shape.rank - 2))
    return ops.DotGeneral(lhs, rhs, DotDimensionNumbers((lhs.shape.rank - 1,), (contracted,), batch, batch))


def _only(weights: XlaOp, mask: XlaOp) -> XlaOp:
    """The weights where a mask says so, and elsewhere -inf."""
    sizes = weights.shape.dimensions
    return ops.Select(spread(mask, sizes), weights, full(weights.builder, -math.inf, weights.shape))


def _softmax(weights: XlaOp) -> XlaOp:
    """Of a row that is masked as a whole it is 0."""
    last, sizes = [weights.shape.rank - 1], weights.shape.dimensions
    highest = reduced(weights, "Max", least(weights.element_type), last, True)
    highest = ops.Select(ops.Eq(highest, -math.inf), full(weights.builder, 0, highest.shape), highest)
    powers = ops.Exp(ops.Sub(weights, spread(highest, sizes)))
    total = summed(powers, last, True)
    total = ops.Select(ops.Eq(total, 0), full(weights.builder, 1, total.shape), total)
    return ops.Div(powers, spread(total, sizes))
