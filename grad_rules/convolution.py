"""Gradients of convolution: with respect to the image, and with respect to the kernel. Both are convolutions.

A convolution sums ``lhs[q] * rhs[k]`` into ``out[o]`` wherever ``o * stride + k * dilation - low == q * base``. The image's
cotangent solves this for q: the window is turned around, stride and base dilation change places. The kernel's solves it
for k: the result's cotangent is the window, stride and window dilation change places. Groups of features and of batches
stay groups, of one kind or the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from xla_torch.builder import XlaOp
from xla_torch.hlo.ir import Instruction
from xla_torch.opcodes.attributes import ConvolutionDimensionNumbers, WindowDimension
from xla_torch.ops import ConvGeneralDilated, Rev
from xla_torch.shape import Shape

from ._calculus import conj, convert, reshape, transpose, zeros
from ._table import vjp
from .window import backward_window, dilated

Window = Sequence[WindowDimension]


def _image(ct: XlaOp, inst: Instruction, rhs: XlaOp, window: Window, dim_labels: ConvolutionDimensionNumbers,
           feature_group_count: int, batch_group_count: int) -> XlaOp:
    n, shape = dim_labels, inst.operands[0].shape
    if _nothing(inst):
        return zeros(ct, Shape.array(shape.element_type, shape.dimensions))
    back = backward_window(window, [shape.dimensions[d] for d in n.input_spatial_dimensions],
                           [ct.shape.dimensions[d] for d in n.output_spatial_dimensions])
    groups = feature_group_count * batch_group_count
    # What was summed over is now made and the other way round; each group keeps its own.
    kernel = _move_groups(conj(rhs), n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, groups)
    numbers = ConvolutionDimensionNumbers(
        n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions,
        n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, n.kernel_spatial_dimensions,
        n.input_batch_dimension, n.input_feature_dimension, n.input_spatial_dimensions)
    result = _convolve(ct, kernel, back, numbers, feature_groups=groups)
    if batch_group_count > 1:
        result = _move_groups(result, n.input_feature_dimension, n.input_batch_dimension, batch_group_count)
    return convert(result, shape.element_type)


def _kernel(ct: XlaOp, inst: Instruction, lhs: XlaOp, window: Window, dim_labels: ConvolutionDimensionNumbers,
            feature_group_count: int, batch_group_count: int) -> XlaOp:
    n, shape = dim_labels, inst.operands[1].shape
    if _nothing(inst):
        return zeros(ct, Shape.array(shape.element_type, shape.dimensions))
    back = []
    for w, i, o in zip(window, n.input_spatial_dimensions, n.output_spatial_dimensions, strict=True):
        count, size = ct.shape.dimensions[o], lhs.shape.dimensions[i]
        high = (w.size - 1) * w.window_dilation + dilated(count, w.stride) - w.padding_low - dilated(size, w.base_dilation)
        back.append(WindowDimension(count, w.window_dilation, w.padding_low, high, w.base_dilation, w.stride))
    numbers = ConvolutionDimensionNumbers(
        n.input_feature_dimension, n.input_batch_dimension, n.input_spatial_dimensions,
        n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions,
        n.kernel_input_feature_dimension, n.kernel_output_feature_dimension, n.kernel_spatial_dimensions)
    result = _convolve(conj(lhs), ct, back, numbers, feature_groups=batch_group_count, batch_groups=feature_group_count)
    turned = [d for d, w in zip(n.kernel_spatial_dimensions, window, strict=True) if w.reversal]
    return convert(Rev(result, turned) if turned else result, shape.element_type)


def _nothing(inst: Instruction) -> bool:
    """No element anywhere, or no window inside the image: every product is empty."""
    return 0 in (*inst.shape.dimensions, *inst.operands[0].shape.dimensions, *inst.operands[1].shape.dimensions)


def _move_groups(x: XlaOp, source: int, target: int, groups: int) -> XlaOp:
    """Split groups off the front of dimension `source` and put them in front of dimension `target`."""
    if groups == 1:
        return x
    sizes = list(x.shape.dimensions)
    split = [*sizes[:source], groups, sizes[source] // groups, *sizes[source + 1:]]
    at = target + (target > source)
    order = [d for d in range(len(split)) if d != source]
    order.insert(order.index(at), source)
    sizes[source] //= groups
    sizes[target] *= groups
    return reshape(transpose(reshape(x, split), order), sizes)


def _convolve(lhs: XlaOp, rhs: XlaOp, window: Window, numbers: ConvolutionDimensionNumbers, feature_groups: int = 1,
              batch_groups: int = 1) -> XlaOp:
    return ConvGeneralDilated(
        lhs, rhs, [w.stride for w in window], [(w.padding_low, w.padding_high) for w in window],
        [w.base_dilation for w in window], [w.window_dilation for w in window], numbers, feature_groups, batch_groups,
        window_reversal=[w.reversal for w in window])


vjp("convolution", lhs=_image, rhs=_kernel)
