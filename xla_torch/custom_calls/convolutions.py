"""Convolutions of cuDNN (and MIOpen, which XLA calls by the same targets): forward, back to the image and to the kernel, and
forward with what is fused behind them.

The window, dimension labels and groups of all of them are those of the convolution forward. Sources:
xla/service/gpu/transforms/conv_rewriter.cc, cudnn_fused_conv_rewriter.cc, backend_configs.proto (CudnnConvBackendConfig).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from .. import functions as ops
from ..core.types import PrimitiveType
from ..functions.convolution_ways_back import image_cotangent, kernel_cotangent
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from .arithmetic import elu, leaky_relu, relu, relu6, same, saturated, scaled, wide_type
from .calls import Call, Meaning, broadcast_like, converted, maximum

# ------------------------------------------------------------------------------------------- the three convolutions


def _facts(call: Call) -> tuple[tuple[WindowDimension, ...], ConvolutionDimensionNumbers, int, int]:
    """(window, dimension numbers, groups of features, groups of the batch)."""
    given = call.instruction.attributes
    numbers = given.get("dim_labels")
    window = tuple(given.get("window", ()))
    if not isinstance(numbers, ConvolutionDimensionNumbers) or len(window) != len(numbers.input_spatial_dimensions):
        raise call.refused("it has not the window and the dimension labels of a convolution")
    if len(call.operands) < 2 or any(o.shape.rank != len(window) + 2 for o in call.operands[:2]):
        raise call.refused("its arrays have other dimensions than its labels, as those of vectorized layouts have",
                           ", ".join(str(o.shape) for o in call.operands))
    return window, numbers, given.get("feature_group_count", 1), given.get("batch_group_count", 1)


def _convolved(call: Call, kind: PrimitiveType) -> XlaOp:
    """The convolution of the first two operands, summed in the wide type of the result."""
    window, numbers, features, batches = _facts(call)
    lhs, rhs = call.operands[:2]
    wide = wide_type(kind) if kind.is_floating or not lhs.element_type.is_floating else wide_type(lhs.element_type)
    if kind.is_floating and not lhs.element_type.is_floating:
        wide = kind  # integers whose sums are given as floats
        lhs, rhs = converted(lhs, kind), converted(rhs, kind)
    return ops.ConvGeneralDilated(
        lhs, rhs, [w.stride for w in window], [(w.padding_low, w.padding_high) for w in window],
        [w.base_dilation for w in window], [w.window_dilation for w in window], numbers, features, batches,
        preferred_element_type=None if lhs.element_type is rhs.element_type is wide else wide,
        window_reversal=[w.reversal for w in window])


def _factor(call: Call) -> float:
    """What the convolution is multiplied by, which a configuration may leave out."""
    value = call.section("cudnn_conv_backend_config").get("conv_result_scale", 1)
    if not isinstance(value, (int, float)):
        raise call.refused("conv_result_scale is no number", value)
    return value


def forward(call: Call) -> Sequence[XlaOp]:
    """(the convolution of an image with a kernel)."""
    call.require_operands(2)
    kind = call.results[0].element_type
    return [saturated(scaled(_convolved(call, kind), _factor(call)), kind)]


def backward_input(call: Call) -> Sequence[XlaOp]:
    """(the image's cotangent) of the result's cotangent and the kernel."""
    call.require_operands(2)
    window, numbers, features, batches = _facts(call)
    result = call.results[0]
    ct, kernel = (converted(o, wide_type(o.element_type)) for o in call.operands)
    found = image_cotangent(ct, result, kernel, window, numbers, features, batches)
    return [saturated(scaled(found, _factor(call)), result.element_type)]


def backward_filter(call: Call) -> Sequence[XlaOp]:
    """(the kernel's cotangent) of the image and the result's cotangent."""
    call.require_operands(2)
    window, numbers, features, batches = _facts(call)
    result = call.results[0]
    image, ct = (converted(o, wide_type(o.element_type)) for o in call.operands)
    found = kernel_cotangent(ct, image, result, window, numbers, features, batches)
    return [saturated(scaled(found, _factor(call)), result.element_type)]


# ------------------------------------------------------------------------------------------- with what is fused behind


def bias_activation_forward(call: Call) -> Sequence[XlaOp]:
    """(activation(scale convolution + side scale side + bias)). The bias is a vector of output features."""
    call.require_operands(3, 4)
    config = call.section("cudnn_conv_backend_config")
    bias, kind = call.operands[2], call.results[0].element_type
    numbers = _facts(call)[1]
    inner = bias.element_type if bias.element_type.is_floating and bias.element_type.bits >= 32 else wide_type(kind)
    whole = converted(_convolved(call, inner), inner)
    whole = scaled(whole, _factor(call))
    if len(call.operands) == 4:
        side = call.operands[3]
        if side.shape.dimensions != whole.shape.dimensions:
            raise call.refused("the side input has another shape than the convolution", f"{side.shape} to {whole.shape}")
        whole = ops.Add(whole, scaled(converted(side, inner), _number(call, config.get("side_input_scale", 0))))
    if bias.shape.rank != 1:
        raise call.refused("the bias is no vector", bias.shape)
    whole = ops.Add(whole, broadcast_like(converted(bias, inner), whole.shape, (numbers.output_feature_dimension,)))
    return [saturated(_activation(call)(whole), kind)]


def _number(call: Call, value: object) -> float:
    if not isinstance(value, (int, float)):
        raise call.refused("a factor is no number", value)
    return value


def _activation(call: Call) -> Callable[[XlaOp], XlaOp]:
    config = call.section("cudnn_conv_backend_config")
    mode = config.get("activation_mode", "kNone")
    mode = _MODES.get(mode, mode)
    if mode == "kLeakyRelu":
        return leaky_relu(_number(call, config.get("leakyrelu_alpha", 0)))
    if mode not in _ACTIVATIONS:
        raise call.refused("its activation is not known", mode, ", ".join(_ACTIVATIONS))
    return _ACTIVATIONS[mode]


_ACTIVATIONS: dict[str, Callable[[XlaOp], XlaOp]] = {
    "kNone": same, "kRelu": relu, "kRelu6": relu6, "kElu": elu, "kSigmoid": ops.Logistic, "kTanh": ops.Tanh}
"""The activations of se::dnn::ActivationMode, by name."""

_MODES = {0: "kNone", 1: "kSigmoid", 2: "kRelu", 3: "kRelu6", 5: "kTanh", 7: "kElu", 8: "kLeakyRelu"}
"""Their numbers, which are written where names are not."""


# ------------------------------------------------------------------------------------------- graphs

_NODE = re.compile(r"(?<!\d)(\d++):\[(\w+)\](\w+)\((\d*)\)")


def forward_graph(call: Call) -> Sequence[XlaOp]:
    """(the last of the ops behind a convolution, and the others whose results are wanted).

    The configuration lists them: ``5:[f32]conv();6:[f32]scale(5);8:[f32]relu(6);``. An op's first operand is an op before it,
    and a second one the next operand of the call. Largest magnitudes are given behind the result.
    """
    text = str(call.section("cudnn_conv_backend_config").get("serialized_graph", ""))
    nodes = [m.groups() for m in _NODE.finditer(text)]
    if not nodes or nodes[0][2] != "conv" or _NODE.sub("", text).strip("; "):
        raise call.refused("its graph is not known", repr(text), "a list of ops that begins with a convolution")
    wide = wide_type(call.results[0].element_type)
    values = {nodes[0][0]: _convolved(call, wide)}
    last, largest, others = values[nodes[0][0]], [], list(call.operands[2:])
    for uid, _, name, source in nodes[1:]:
        if source not in values:
            raise call.refused("its graph names an op that is not before it", source)
        x = values[source]
        if name == "amax":
            largest.append(maximum(ops.Abs(x), range(x.shape.rank)))
            continue
        values[uid] = last = _graph_op(call, name, x, others)
    if others:
        raise call.refused("it has more operands than its graph takes", len(others))
    found = [saturated(last, call.results[0].element_type)]
    for result, value in zip(call.results[1:], largest, strict=False):
        found.append(ops.Reshape(converted(value, result.element_type), result.dimensions))
    if len(found) != 1 + len(largest):
        raise call.refused("it gives fewer results than its graph has", len(call.results))
    return found


def _graph_op(call: Call, name: str, x: XlaOp, others: list[XlaOp]) -> XlaOp:
    if name == "relu":
        return relu(x)
    if name not in ("add", "scale", "invscale") or not others:
        raise call.refused("its graph has an op that is not known, or no operand is left for it", name)
    other = converted(others.pop(0), x.element_type)
    if name == "add":
        other = _matched(call, other, x)
        return ops.Add(x, other)
    factor = ops.Reciprocal(other) if name == "invscale" else other
    return scaled(x, factor)


def _matched(call: Call, other: XlaOp, x: XlaOp) -> XlaOp:
    """What is added: of the convolution's shape, a number, or a vector of output features."""
    if other.shape.dimensions == x.shape.dimensions:
        return other
    feature = _facts(call)[1].output_feature_dimension
    if other.shape.rank == 0:
        return broadcast_like(other, x.shape, ())
    if other.shape.dimensions == (x.shape.dimensions[feature],):
        return broadcast_like(other, x.shape, (feature,))
    raise call.refused("what its graph adds has another shape than the convolution", f"{other.shape} to {x.shape}")


MEANINGS: dict[str, Meaning] = {
    "__cudnn$convForward": forward, "__cudnn$convBackwardInput": backward_input,
    "__cudnn$convBackwardFilter": backward_filter, "__cudnn$convBiasActivationForward": bias_activation_forward,
    "__cudnn$convForwardGraph": forward_graph}
"""The convolutions by target."""
