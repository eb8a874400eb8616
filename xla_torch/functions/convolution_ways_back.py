"""The convolutions that take a convolution's cotangent back to its image and to its kernel.

A convolution sums ``lhs[q] * rhs[k]`` into ``out[o]`` wherever ``o * stride + k * dilation - low == q * base``. The image's
cotangent solves this for q: the window is turned around, stride and base dilation change places. The kernel's solves it
for k: the result's cotangent is the window, stride and window dilation change places. Groups of features and of batches
stay groups, of one kind or the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.shape import Shape
from ..hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from .contraction import ConvGeneralDilated
from .hlo_builder import XlaOp
from .movement import Broadcast, Reshape, Rev, Transpose

__all__: list[str] = []

Window = Sequence[WindowDimension]


def dilated(size: int, dilation: int) -> int:
    """How long `size` elements are with holes between them."""
    return (size - 1) * dilation + 1 if size else 0


def backward_window(window: Window, base: Sequence[int], result: Sequence[int]) -> list[WindowDimension]:
    """The window that takes a result's cotangent back to the base.

    Result o and window element k meet at base position ``o * stride + k * dilation - low``. Read the other way round: the
    base dilation is the stride, the stride is the base dilation, and the window is turned around.
    """
    back: list[WindowDimension] = []
    for w, size, count in zip(window, base, result, strict=True):
        length = dilated(w.size, w.window_dilation)
        low = length - 1 - w.padding_low
        high = (size - 1) * w.base_dilation + length - low - dilated(count, w.stride)
        back.append(WindowDimension(w.size, w.base_dilation, low, high, w.stride, w.window_dilation, not w.reversal))
    return back


def image_cotangent(ct: XlaOp, image: Shape, rhs: XlaOp, window: Window, n: ConvolutionDimensionNumbers,
                    feature_group_count: int = 1, batch_group_count: int = 1) -> XlaOp:
    """The cotangent of an image of this shape, in the type of the convolution back."""
    if 0 in (*ct.shape.dimensions, *image.dimensions, *rhs.shape.dimensions):
        return _zeros(ct, image)
    back = backward_window(window, [image.dimensions[d] for d in n.input_spatial_dimensions],
                           [ct.shape.dimensions[d] for d in n.output_spatial_dimensions])
    groups = feature_group_count * batch_group_count
    # What was summed over is now made and the other way round; each group keeps its own.
    kernel = _move_groups(rhs, n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, groups)
    numbers = ConvolutionDimensionNumbers(
        n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions,
        n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, n.kernel_spatial_dimensions,
        n.input_batch_dimension, n.input_feature_dimension, n.input_spatial_dimensions)
    result = convolve(ct, kernel, back, numbers, feature_groups=groups)
    if batch_group_count > 1:
        result = _move_groups(result, n.input_feature_dimension, n.input_batch_dimension, batch_group_count)
    return result


def kernel_cotangent(ct: XlaOp, lhs: XlaOp, kernel: Shape, window: Window, n: ConvolutionDimensionNumbers,
                     feature_group_count: int = 1, batch_group_count: int = 1) -> XlaOp:
    """The cotangent of a kernel of this shape, in the type of the convolution back."""
    if 0 in (*ct.shape.dimensions, *lhs.shape.dimensions, *kernel.dimensions):
        return _zeros(ct, kernel)
    back: list[WindowDimension] = []
    for w, i, o in zip(window, n.input_spatial_dimensions, n.output_spatial_dimensions, strict=True):
        count, size = ct.shape.dimensions[o], lhs.shape.dimensions[i]
        high = (w.size - 1) * w.window_dilation + dilated(count, w.stride) - w.padding_low - dilated(size, w.base_dilation)
        back.append(WindowDimension(count, w.window_dilation, w.padding_low, high, w.base_dilation, w.stride))
    numbers = ConvolutionDimensionNumbers(
        n.input_feature_dimension, n.input_batch_dimension, n.input_spatial_dimensions,
        n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions,
        n.kernel_input_feature_dimension, n.kernel_output_feature_dimension, n.kernel_spatial_dimensions)
    result = convolve(lhs, ct, back, numbers, feature_groups=batch_group_count, batch_groups=feature_group_count)
    turned = [d for d, w in zip(n.kernel_spatial_dimensions, window, strict=True) if w.reversal]
    return Rev(result, turned) if turned else result


def convolve(lhs: XlaOp, rhs: XlaOp, window: Window, numbers: ConvolutionDimensionNumbers, feature_groups: int = 1,
             batch_groups: int = 1) -> XlaOp:
    """A convolution by its window."""
    return ConvGeneralDilated(
        lhs, rhs, [w.stride for w in window], [(w.padding_low, w.padding_high) for w in window],
        [w.base_dilation for w in window], [w.window_dilation for w in window], numbers, feature_groups, batch_groups,
        window_reversal=[w.reversal for w in window])


def _zeros(like: XlaOp, shape: Shape) -> XlaOp:
    return Broadcast(like.builder.constant(0, like.element_type), shape.dimensions)


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
    return Reshape(Transpose(Reshape(x, split), order), sizes)
