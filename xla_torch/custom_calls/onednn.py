"""Kernels of oneDNN that XLA's compiler for CPUs calls: products, convolutions, normalizations and softmax, with fused ops.

Sources: xla/backends/cpu/onednn_config.proto; xla/service/cpu/onednn_contraction_rewriter.cc, onednn_ops_rewriter.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import functions as ops
from ..core.types import PrimitiveType
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import ConvolutionDimensionNumbers
from ..opcodes.contraction import DotDimensionNumbers
from .arithmetic import elu, gelu_erf, gelu_tanh, product, relu, relu6, saturated, scaled, silu, wide_type
from .calls import Call, Meaning, broadcast_like, converted, maximum, total, transposed

_ACTIVATIONS: dict[str, Callable[[XlaOp], XlaOp]] = {
    "RELU": relu, "TANH": ops.Tanh, "GELU_ERF": gelu_erf, "GELU_TANH": gelu_tanh, "ELU": elu, "RELU6": relu6,
    "SIGMOID": ops.Logistic, "SWISH": silu}
"""Fused ops of one operand (OnednnFusionConfig.FusionKind)."""


def _fused(call: Call, config: Mapping[str, Any], x: XlaOp, operands: list[XlaOp], column: int) -> XlaOp:
    """The value after its fused ops, which take the remaining operands in order."""
    fusions = config.get("fusions", {})
    names = [str(n) for n in fusions.get("ops", ())]
    for name in names:
        if name in ("BIAS", "BINARY_ADD", "SUM"):
            if not operands:
                raise call.refused("no operand is left for a fused op", name)
            x = ops.Add(x, _matched(call, converted(operands.pop(0), x.element_type), x, column))
        elif name == "LINEAR":
            x = scaled(x, _linear(call, fusions))
        elif name in _ACTIVATIONS:
            x = _ACTIVATIONS[name](x)
        else:
            raise call.refused("a fused op is not known", name, ", ".join(["BIAS", "BINARY_ADD", "SUM", "LINEAR", *_ACTIVATIONS]))
    if operands:
        raise call.refused("it has more operands than its fused ops take", len(call.operands))
    return x


def _linear(call: Call, fusions: Mapping[str, Any]) -> float:
    """The factor of a LINEAR op, which is written as the integer of its bits."""
    alpha = fusions.get("alpha")
    if isinstance(alpha, (int, float)):
        return float(alpha)
    bits = fusions.get("alpha_typecast")
    if not isinstance(bits, int):
        raise call.refused("the factor of a fused op is missing", alpha)
    return _from_bits(bits)


def _matched(call: Call, other: XlaOp, x: XlaOp, column: int) -> XlaOp:
    """What is added, broadcast: of the result's shape, a vector of its columns, or with dimensions of size 1."""
    sizes, own = x.shape.dimensions, other.shape.dimensions
    if own == sizes:
        return other
    if own == (sizes[column],):
        return broadcast_like(other, x.shape, (column,))
    first = len(sizes) - len(own)
    if first < 0 or any(n not in (1, m) for n, m in zip(own, sizes[first:], strict=True)):
        raise call.refused("what is added does not fit the result", f"{other.shape} to {x.shape}")
    kept = [d for d, n in enumerate(own) if n == sizes[first + d]]
    return ops.BroadcastInDim(ops.Reshape(other, [own[d] for d in kept]), sizes, [first + d for d in kept])


def _finished(call: Call, value: XlaOp) -> Sequence[XlaOp]:
    """The result in the declared type, and in the declared shape where only sizes of 1 differ."""
    result = call.results[0]
    if value.shape.dimensions != result.dimensions and value.shape.element_count == result.element_count:
        value = ops.Reshape(value, result.dimensions)
    return [saturated(value, result.element_type)]


def matmul(call: Call) -> Sequence[XlaOp]:
    """(the product of matrices, and its fused ops)."""
    config = call.section("onednn_matmul_config")
    if config.get("weights_prepacked", False) or len(call.operands) < 2:
        raise call.refused("its weights are packed in oneDNN's own order", "weights_prepacked")
    lhs, rhs = call.operands[:2]
    lhs = transposed(lhs) if config.get("transpose_a", False) else lhs
    rhs = transposed(rhs) if config.get("transpose_b", False) else rhs
    rank = lhs.shape.rank
    if rank < 2 or rhs.shape.rank != rank:
        raise call.refused("its operands are not matrices of one rank", f"{lhs.shape} and {rhs.shape}")
    batch = tuple(range(rank - 2))
    kind = wide_type(call.results[0].element_type)
    found = product(lhs, rhs, DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch), kind)
    return _finished(call, _fused(call, config, found, list(call.operands[2:]), rank - 1))


def convolution(call: Call) -> Sequence[XlaOp]:
    """(the convolution, and its fused ops). Dimensions and sizes are written one larger, and strides and paddings too."""
    config = call.section("onednn_conv_config")
    if len(call.operands) < 2:
        raise call.refused("it has fewer operands than two", len(call.operands))
    try:
        numbers, window = _conv_numbers(config), config["window"]
        count = len(numbers.kernel_spatial_dimensions)
        lists = [[int(v) - 1 for v in window[name]] for name in ("strides", "pad_left", "pad_right", "window_dilations")]
        strides, low, high, spread_by = lists
        groups = int(config.get("feature_groups", 1))
    except (KeyError, TypeError, ValueError):
        raise call.refused("it has not the window and the dimensions of a convolution", dict(config)) from None
    if any(len(found) != count for found in lists):
        raise call.refused("its window has another number of dimensions than its kernel", lists)
    lhs, rhs = call.operands[:2]
    kind: PrimitiveType = wide_type(call.results[0].element_type)
    found = ops.ConvGeneralDilated(lhs, rhs, [s or 1 for s in strides], list(zip(low, high, strict=True)), [],
                                   [d or 1 for d in spread_by], numbers, groups,
                                   preferred_element_type=None if lhs.element_type is rhs.element_type is kind else kind)
    return _finished(call, _fused(call, config, found, list(call.operands[2:]), numbers.output_feature_dimension))


def _conv_numbers(config: Mapping[str, Any]) -> ConvolutionDimensionNumbers:
    """Raises KeyError and ValueError for a configuration that lacks a part."""
    def place(part: Mapping[str, Any], form: str, name: str) -> int:
        return int(part[form].get(name, 0))

    def spatial(part: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(int(d) - 1 for d in part["spatial_dims"])

    data, kernel, output = config["input"], config["kernel"], config["output"]
    return ConvolutionDimensionNumbers(
        place(data, "data", "batch_dim"), place(data, "data", "feature_dim"), spatial(data["data"]),
        place(kernel, "filter", "input_feature_dim"), place(kernel, "filter", "output_feature_dim"), spatial(kernel["filter"]),
        place(output, "data", "batch_dim"), place(output, "data", "feature_dim"), spatial(output["data"]))


def layer_norm(call: Call) -> Sequence[XlaOp]:
    """(x normalized over its last dimension, times the scale, plus the shift; either may be missing)."""
    config = call.section("onednn_layer_norm_config")
    epsilon = config.get("epsilon")
    if epsilon is None and isinstance(config.get("epsilon_typecast"), int):
        epsilon = _from_bits(config["epsilon_typecast"])
    if not isinstance(epsilon, (int, float)) or not 1 <= len(call.operands) <= 3:
        raise call.refused("it has no epsilon, or not one to three operands", epsilon)
    kind = wide_type(call.operands[0].element_type)
    x, *others = (converted(o, kind) for o in call.operands)
    last, n = x.shape.rank - 1, float(x.shape.dimensions[-1])
    rows = tuple(range(last))
    centred = ops.Sub(x, broadcast_like(ops.Div(total(x, [last]), n), x.shape, rows))
    variance = ops.Div(total(ops.Square(centred), [last]), n)
    found = ops.Mul(centred, broadcast_like(ops.Rsqrt(ops.Add(variance, float(epsilon))), x.shape, rows))
    if others and config.get("rescale") != "SHIFT":
        found = ops.Mul(found, _matched(call, others.pop(0), x, last))
    if others:
        found = ops.Add(found, _matched(call, others.pop(0), x, last))
    return _finished(call, found)


def _from_bits(bits: int) -> float:
    """The F32 with these bits."""
    return struct.unpack("<f", struct.pack("<i", bits))[0]


def softmax(call: Call) -> Sequence[XlaOp]:
    """(the softmax along an axis)."""
    call.require_operands(1)
    config = call.section("onednn_softmax_config")
    (x,) = call.operands
    axis = config.get("softmax_axis", -1)
    if not isinstance(axis, int) or not -x.shape.rank <= axis < x.shape.rank:
        raise call.refused("its axis is out of range", axis)
    axis %= x.shape.rank
    others = tuple(d for d in range(x.shape.rank) if d != axis)
    wide = converted(x, wide_type(x.element_type))
    powers = ops.Exp(ops.Sub(wide, broadcast_like(maximum(wide, [axis]), x.shape, others)))
    return _finished(call, ops.Div(powers, broadcast_like(total(powers, [axis]), x.shape, others)))


MEANINGS: dict[str, Meaning] = {
    "__onednn$matmul": matmul, "__onednn$convolution": convolution, "__onednn$layernorm": layer_norm,
    "__onednn$softmax": softmax}
"""The kernels by target."""
