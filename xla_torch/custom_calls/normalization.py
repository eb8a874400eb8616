"""Normalizations over layers that cuDNN has in one kernel: forward, forward with what the way back needs, and the way back.

Arrays have four dimensions; the scale's that are not 1 are those that are normalized over. Sources:
xla/service/gpu/transforms/cudnn_norm_rewriter.cc, backend_configs.proto (CudnnNormBackendConfig).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from .arithmetic import saturated, wide_type
from .calls import Call, Meaning, converted, total


def norm(call: Call) -> Sequence[XlaOp]:
    """What the kind in the configuration says: (y), (y, mean, 1 / deviation), or (dx, dscale, dbias)."""
    config = call.section("cudnn_norm_backend_config")
    kind, epsilon = config.get("kind"), config.get("epsilon", 0)
    if not isinstance(epsilon, (int, float)):
        raise call.refused("epsilon is no number", epsilon)
    if kind in ("LAYER_FWD_INFER", "LAYER_FWD_TRAIN"):
        return _forward(call, float(epsilon), kind == "LAYER_FWD_TRAIN")
    if kind == "LAYER_BWD":
        return _backward(call)
    raise call.refused("its kind is not known", kind, "LAYER_FWD_INFER, LAYER_FWD_TRAIN or LAYER_BWD")


def _normalized(call: Call) -> tuple[XlaOp, XlaOp, list[int]]:
    """(x and the scale in the wide type, the dimensions that are normalized over)."""
    x, scale = (converted(o, wide_type(o.element_type)) for o in call.operands[:2])
    sizes, own = x.shape.dimensions, scale.shape.dimensions
    over = [d for d in range(len(sizes)) if d > 0] if len(own) == len(sizes) else []
    fits = len(own) == len(sizes) and own[0] == 1 and all(n in (1, m) for n, m in zip(own, sizes, strict=True))
    if not fits or math.prod(own) != math.prod(sizes[1:]):
        raise call.refused("the scale does not have the normalized dimensions", f"{scale.shape} for {x.shape}")
    return x, converted(scale, x.element_type), over


def _stretched(x: XlaOp, like: XlaOp) -> XlaOp:
    """Dimensions of size 1 broadcast."""
    kept = [d for d, n in enumerate(x.shape.dimensions) if n != 1 or like.shape.dimensions[d] == 1]
    flat = ops.Reshape(x, [x.shape.dimensions[d] for d in kept])
    return ops.BroadcastInDim(flat, like.shape.dimensions, kept)


def _forward(call: Call, epsilon: float, training: bool) -> Sequence[XlaOp]:
    call.require_operands(3)
    x, scale, over = _normalized(call)
    bias = converted(call.operands[2], x.element_type)
    count = math.prod(x.shape.dimensions[d] for d in over)
    narrow = [1 if d in over else n for d, n in enumerate(x.shape.dimensions)]
    mean = ops.Reshape(ops.Div(total(x, over), float(count)), narrow)
    centred = ops.Sub(x, _stretched(mean, x))
    variance = ops.Reshape(ops.Div(total(ops.Square(centred), over), float(count)), narrow)
    factor = ops.Rsqrt(ops.Add(variance, epsilon))
    y = ops.Add(ops.Mul(ops.Mul(centred, _stretched(factor, x)), _stretched(scale, x)), _stretched(bias, x))
    found = [saturated(y, call.results[0].element_type)]
    if training:
        found += [_shaped(call, v, k) for k, v in ((1, mean), (2, factor))]
    return found


def _shaped(call: Call, value: XlaOp, number: int) -> XlaOp:
    """A result in the shape that the call declares for it."""
    if number >= len(call.results):
        raise call.refused("it has fewer results than its kind gives", len(call.results), number + 1)
    result: Shape = call.results[number]
    return ops.Reshape(converted(value, result.element_type), result.dimensions)


def _backward(call: Call) -> Sequence[XlaOp]:
    """Of (x, scale, dy, mean, 1 / deviation)."""
    call.require_operands(5)
    x, scale, over = _normalized(call)
    dy, mean, factor = (converted(o, x.element_type) for o in call.operands[2:])
    narrow = [1 if d in over else n for d, n in enumerate(x.shape.dimensions)]
    count = float(math.prod(x.shape.dimensions[d] for d in over))
    factor = _stretched(ops.Reshape(factor, narrow), x)
    unit = ops.Mul(ops.Sub(x, _stretched(ops.Reshape(mean, narrow), x)), factor)
    inner = ops.Mul(dy, _stretched(scale, x))

    def averaged(value: XlaOp) -> XlaOp:
        return _stretched(ops.Reshape(ops.Div(total(value, over), count), narrow), x)

    dx = ops.Mul(ops.Sub(ops.Sub(inner, averaged(inner)), ops.Mul(unit, averaged(ops.Mul(inner, unit)))), factor)
    others = [d for d in range(x.shape.rank) if d not in over]
    return [saturated(dx, call.results[0].element_type), _shaped(call, total(ops.Mul(dy, unit), others), 1),
            _shaped(call, total(dy, others), 2)]


MEANINGS: dict[str, Meaning] = {"__cudnn$norm": norm}
"""The normalizations by target."""
