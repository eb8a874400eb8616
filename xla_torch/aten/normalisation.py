"""Normalisations: of batches, with what they keep of their statistics, of layers and of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from .operator_rules import rule
from .reductions import variance
from .values import Number, cast, full, wide


def _along(x: XlaOp, like: XlaOp, dims: Sequence[int]) -> XlaOp:
    """`x` in the type and the shape of `like`, of which its dimensions are `dims`."""
    return ops.BroadcastInDim(cast(x, like.element_type), like.shape.dimensions, dims)


def _affine(x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, dims: Sequence[int]) -> XlaOp:
    x = x if weight is None else ops.Mul(x, _along(weight, x, dims))
    return x if bias is None else ops.Add(x, _along(bias, x, dims))


def _normalised(x: XlaOp, mean: XlaOp, rstd: XlaOp, dims: Sequence[int]) -> XlaOp:
    return ops.Mul(ops.Sub(x, _along(mean, x, dims)), _along(rstd, x, dims))


def _rstd(var: XlaOp, eps: float) -> XlaOp:
    return ops.Rsqrt(ops.Add(var, full(var.builder, eps, var.shape)))


# ------------------------------------------------------------------------------------------- batches


def _of_batch(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, eps: float) -> tuple[XlaOp, XlaOp, XlaOp, XlaOp]:
    """(Result, mean, reciprocal deviation, variance) by the batch's own statistics."""
    x = wide(input)
    var, mean = variance(x, [d for d in range(x.shape.rank) if d != 1], 0, False)
    rstd = _rstd(var, eps)
    return cast(_affine(_normalised(x, mean, rstd, [1]), weight, bias, [1]), input.element_type), mean, rstd, var


def _by_statistics(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, mean: XlaOp, var: XlaOp, eps: float) -> XlaOp:
    x = wide(input)
    rstd = _rstd(cast(var, x.element_type), eps)
    return cast(_affine(_normalised(x, mean, rstd, [1]), weight, bias, [1]), input.element_type)


def _empty(like: XlaOp, shape: Shape | None) -> XlaOp:
    assert shape is not None
    return full(like.builder, 0, shape)


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, training: bool, eps: float, momentum: float,
                         result: Sequence[Shape]) -> list[XlaOp]:
    out, mean, rstd, _ = _of_batch(input, weight, bias, eps)
    return [out, cast(mean, result[1].element_type), cast(rstd, result[2].element_type)]


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_inference(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, running_mean: XlaOp, running_var: XlaOp,
                          eps: float, momentum: float, result: Sequence[Shape]) -> list[XlaOp]:
    out = _by_statistics(input, weight, bias, running_mean, running_var, eps)
    return [out, _empty(input, result[1]), _empty(input, result[2])]


@rule("native_batch_norm")
def _batch_norm(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, running_mean: XlaOp | None, running_var: XlaOp | None,
                training: bool, momentum: float, eps: float, result: Sequence[Shape]) -> list[XlaOp]:
    """What it writes into the running statistics is left out: graphs of derivatives have it, where nobody reads them."""
    if training or running_mean is None or running_var is None:
        return _batch_norm_no_stats(input, weight, bias, training, eps, momentum, result)
    return _batch_norm_inference(input, weight, bias, running_mean, running_var, eps, momentum, result)


@rule("_native_batch_norm_legit_functional")
def _batch_norm_functional(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, running_mean: XlaOp, running_var: XlaOp,
                           training: bool, momentum: float, eps: float, result: Sequence[Shape]) -> list[XlaOp]:
    """The running statistics as they are afterwards are results; of the variance that is the unbiased one."""
    if not training:
        out = _by_statistics(input, weight, bias, running_mean, running_var, eps)
        return [out, _empty(input, result[1]), _empty(input, result[2]), running_mean, running_var]
    out, mean, rstd, var = _of_batch(input, weight, bias, eps)
    count = math.prod(n for d, n in enumerate(input.shape.dimensions) if d != 1)
    unbiased = ops.Mul(var, full(var.builder, count / (count - 1) if count > 1 else math.nan, var.shape))
    return [out, cast(mean, result[1].element_type), cast(rstd, result[2].element_type),
            _moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)]


def _moved(running: XlaOp, new: XlaOp, momentum: float) -> XlaOp:
    def times(x: XlaOp, number: Number) -> XlaOp:
        return ops.Mul(x, full(x.builder, number, x.shape))

    return ops.Add(times(cast(new, running.element_type), momentum), times(running, 1 - momentum))


# ------------------------------------------------------------------------------------------- layers and groups


@rule("native_layer_norm")
def _layer_norm(input: XlaOp, normalized_shape: Sequence[int], weight: XlaOp | None, bias: XlaOp | None, eps: float,
                result: Sequence[Shape]) -> list[XlaOp]:
    x = wide(input)
    first = x.shape.rank - len(normalized_shape)
    inner, every = list(range(first, x.shape.rank)), range(x.shape.rank)
    var, mean = variance(x, inner, 0, True)
    rstd = _rstd(var, eps)
    out = _affine(_normalised(x, mean, rstd, every), weight, bias, inner)
    return [cast(out, input.element_type), cast(mean, result[1].element_type), cast(rstd, result[2].element_type)]


@rule("native_group_norm")
def _group_norm(input: XlaOp, weight: XlaOp | None, bias: XlaOp | None, N: int, C: int, HxW: int, group: int,  # noqa: N803
                eps: float, result: Sequence[Shape]) -> list[XlaOp]:
    x = ops.Reshape(wide(input), [N, group, C // group * HxW])
    var, mean = variance(x, [2], 0, False)
    rstd = _rstd(var, eps)
    out = ops.Reshape(_normalised(x, mean, rstd, [0, 1]), list(input.shape.dimensions))
    out = _affine(out, weight, bias, [1])
    return [cast(out, input.element_type), cast(mean, result[1].element_type), cast(rstd, result[2].element_type)]
