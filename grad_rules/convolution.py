"""Gradients of convolution: with respect to the image, and with respect to the kernel. Both are convolutions, which
`functions/convolution_ways_back.py` makes. Windows count up to the bounds of dynamic sizes, so zeros fill these up."""

from __future__ import annotations

from collections.abc import Sequence

from grad_rules._calculus import at_bounds, conj, convert, cut_like
from grad_rules._table import vjp
from xla_torch.functions.convolution_ways_back import image_cotangent, kernel_cotangent
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from xla_torch.hlo.ir import Instruction

Window = Sequence[WindowDimension]


def _image(ct: XlaOp, inst: Instruction, lhs: XlaOp, rhs: XlaOp, window: Window, dim_labels: ConvolutionDimensionNumbers,
           feature_group_count: int, batch_group_count: int) -> XlaOp:
    shape = inst.operands[0].shape
    found = image_cotangent(at_bounds(ct), shape, conj(at_bounds(rhs)), window, dim_labels, feature_group_count,
                            batch_group_count)
    return cut_like(convert(found, shape.element_type), lhs)


def _kernel(ct: XlaOp, inst: Instruction, lhs: XlaOp, rhs: XlaOp, window: Window, dim_labels: ConvolutionDimensionNumbers,
            feature_group_count: int, batch_group_count: int) -> XlaOp:
    shape = inst.operands[1].shape
    found = kernel_cotangent(at_bounds(ct), conj(at_bounds(lhs)), shape, window, dim_labels, feature_group_count,
                             batch_group_count)
    return cut_like(convert(found, shape.element_type), rhs)


vjp("convolution", lhs=_image, rhs=_kernel)
