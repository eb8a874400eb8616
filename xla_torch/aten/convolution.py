"""Convolutions, those that torch calls transposed, and their ways back."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..functions.convolution_ways_back import convolve, image_cotangent, kernel_cotangent
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from .operator_rules import rule
from .values import cast, spatial, summed, wide


@rule("convolution", shown="output_padding")
def _convolution(input: XlaOp, weight: XlaOp, bias: XlaOp | None, stride: Sequence[int], padding: Sequence[int],
                 dilation: Sequence[int], transposed: bool, groups: int, result: Shape) -> XlaOp:
    window = _window(weight, stride, padding, dilation)
    if transposed:
        # The image whose convolution would have been `input`.
        found = image_cotangent(input, result, weight, window, _numbers(input), groups)
    else:
        found = convolve(input, weight, window, _numbers(input), groups)
    return found if bias is None else ops.Add(found, ops.BroadcastInDim(bias, found.shape.dimensions, [1]))


def _window(weight: XlaOp, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> list[WindowDimension]:
    sizes = weight.shape.dimensions[2:]
    given = (spatial(values, len(sizes)) for values in (stride, padding, dilation))
    return [WindowDimension(n, s, p, p, 1, d, False) for n, s, p, d in zip(sizes, *given, strict=True)]


def _numbers(like: XlaOp) -> ConvolutionDimensionNumbers:
    inner = tuple(range(2, like.shape.rank))
    return ConvolutionDimensionNumbers(0, 1, inner, 1, 0, inner, 0, 1, inner)


@rule("convolution_backward", shown="bias_sizes output_padding")
def _convolution_backward(grad_output: XlaOp, input: XlaOp, weight: XlaOp, stride: Sequence[int], padding: Sequence[int],
                          dilation: Sequence[int], transposed: bool, groups: int,
                          output_mask: Sequence[bool]) -> list[XlaOp | None]:
    window, numbers = _window(weight, stride, padding, dilation), _numbers(input)
    image = kernel = bias = None
    if output_mask[0] and transposed:
        image = convolve(grad_output, weight, window, numbers, groups)
    elif output_mask[0]:
        image = image_cotangent(grad_output, input.shape, weight, window, numbers, groups)
    if output_mask[1]:
        ct, lhs = (input, grad_output) if transposed else (grad_output, input)
        kernel = kernel_cotangent(ct, lhs, weight.shape, window, numbers, groups)
    if output_mask[2]:
        dims = [d for d in range(grad_output.shape.rank) if d != 1]
        bias = cast(summed(wide(grad_output), dims), grad_output.element_type)
    return [image, kernel, bias]
