"""Op bodies: convolution.

One to three spatial dimensions of floats go to torch's convolutions; input dilation becomes a transposed convolution where no
stride stands against it, and windows larger than the result are the gradient of a weight. Everything else (integers, complex,
more dimensions) gathers windows and multiplies matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from ...hlo.attributes import ConvDims, Int, Precision, Raw, Window, WindowDimension
from ...hlo.ir import Instruction
from ...kernels import contraction as contractions
from ...kernels import convolution as kernels
from ...kernels import movement
from ...opcodes.contraction import highest_type
from ...storage.dtypes import storage_dtype
from .. import values
from ..body_table import body
from ..values import Value
from .contraction import compute_dtype, from_products, permuted, to_factors

_POINT = (WindowDimension(1),)
_FORWARD = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


# ------------------------------------------------------------------------------------------- body


@body("convolution")
def convolution(inst: Instruction, lhs: Value, rhs: Value, *, window: Window, dim_labels: ConvDims,
                feature_group_count: Int, batch_group_count: Int, operand_precision: Precision, convolution_kind: Raw,
                sparsity_config: Raw) -> Value:
    """Products and sums are of the precision of the compute type. float32 is never reduced to TF32 on CUDA but where
    `torch.set_float32_matmul_precision` allows it, and not there either if `operand_precision` says ``highest``."""
    image, kernel = (o.shape for o in inst.operands)
    if 0 in (*image.dimensions, *kernel.dimensions, *inst.shape.dimensions):
        return values.emit(torch.zeros, inst.shape.dimensions, dtype=storage_dtype(inst.shape.element_type),
                           device=values.device())
    factors = highest_type(image.element_type, kernel.element_type, inst.shape.element_type)
    dtype = compute_dtype(factors)
    x = permuted(to_factors(lhs, image.element_type, factors),
                 (dim_labels.input_batch_dimension, dim_labels.input_feature_dimension, *dim_labels.input_spatial_dimensions))
    weight = permuted(to_factors(rhs, kernel.element_type, factors),
                      (dim_labels.kernel_output_feature_dimension, dim_labels.kernel_input_feature_dimension,
                       *dim_labels.kernel_spatial_dimensions))
    if feature_group_count == 1 and _is_weight_gradient(window, dim_labels, inst, dtype):
        result = _weight_gradient(x, weight, window, [inst.shape.dimensions[d] for d in dim_labels.output_spatial_dimensions],
                                  batch_group_count)
        return from_products(_as_labelled(result, dim_labels), factors, inst.shape.element_type)
    if batch_group_count > 1:  # blocks of the batch become groups of features
        x = x.unflatten(0, (batch_group_count, -1)).transpose(0, 1).flatten(1, 2)
    groups = feature_group_count * batch_group_count
    highest = "highest" in operand_precision
    if not window:
        result = _convolve(x.unsqueeze(-1), weight.unsqueeze(-1), _POINT, groups, dtype, highest).squeeze(-1)
    else:
        result = _convolve(x, weight, window, groups, dtype, highest)
    return from_products(_as_labelled(result, dim_labels), factors, inst.shape.element_type)


def _as_labelled(result: Value, labels: ConvDims) -> Value:
    """[batch, features, spatial...] in the order that the op asks for."""
    made = (labels.output_batch_dimension, labels.output_feature_dimension, *labels.output_spatial_dimensions)
    return permuted(result, [made.index(d) for d in range(len(made))])


def _convolve(x: Value, weight: Value, window: Sequence[WindowDimension], groups: int, dtype: torch.dtype,
              highest: bool) -> Value:
    """[batch, features, spatial...] by [out features, features / groups, spatial...]."""
    if len(window) > 3 or not dtype.is_floating_point:
        return values.emit(contractions.unfolded_convolution, x, _flipped(weight, [w.reversal for w in window]),
                           [w.stride for w in window], [(w.padding_low, w.padding_high) for w in window],
                           [w.base_dilation for w in window], [w.window_dilation for w in window], groups)
    call = _call(dtype, highest)
    if all(w.base_dilation == 1 for w in window):
        return _forward(call, x, weight, window, groups)
    if all(w.stride == 1 for w in window):
        return _transposed(call, x, weight, window, groups)
    return _forward(call, values.emit(contractions.dilate, x, [w.base_dilation for w in window]), weight, window, groups)


def _is_weight_gradient(window: Sequence[WindowDimension], labels: ConvDims, inst: Instruction, dtype: torch.dtype) -> bool:
    """Whether this is how gradients of weights are written: the sum goes over what lies outermost, as batches do, and the window
    is larger than the result. torch's convolutions are made for small windows, and its gradients for this.

    One side at most has holes of its own: the image (base dilation, where the forward convolution was a transposed one) or the
    window. Its gradients know nothing of TF32, see `kernels.convolve`.
    """
    if not 1 <= len(window) <= 3 or not dtype.is_floating_point or any(w.reversal for w in window):
        return False
    if labels.input_feature_dimension > labels.input_batch_dimension:
        return False
    if dtype is torch.float32 and values.device().type == "cuda":
        return False
    sizes = [inst.shape.dimensions[d] for d in labels.output_spatial_dimensions]
    if math.prod(w.size for w in window) <= math.prod(sizes):
        return False
    return all(w.base_dilation == 1 for w in window) or all(w.window_dilation == 1 for w in window)


def _weight_gradient(x: Value, weight: Value, window: Sequence[WindowDimension], sizes: Sequence[int], groups: int) -> Value:
    """[batch, features, spatial...] by [out features, features, spatial...], of a result with these spatial sizes. Blocks of the
    batch and of the out features are groups."""
    x, ct = x.transpose(0, 1), weight.transpose(0, 1)
    dilation = [w.stride for w in window]
    if all(w.base_dilation == 1 for w in window):
        found = values.emit(kernels.weight_gradient, x, ct, sizes, [w.window_dilation for w in window],
                            [w.padding_low for w in window], dilation, groups)
        return found.transpose(0, 1)
    # The window is the image and the image its cotangent; seen from there result k lies at -k.
    padding = [(size - 1) * w.stride - w.padding_low for size, w in zip(sizes, window, strict=True)]
    found = values.emit(kernels.weight_gradient, ct, x, sizes, [w.base_dilation for w in window], padding, dilation, groups)
    found = found.flip(list(range(2, 2 + len(sizes))))
    return found if groups == 1 else found.unflatten(0, (groups, -1)).transpose(0, 1).flatten(1, 2)


def _call(dtype: torch.dtype, highest: bool) -> Callable[..., Any]:
    """torch's convolution ``(x, weight, stride, padding, dilation, groups, output_padding=None)``."""
    if dtype is torch.float32 and values.device().type == "cuda":
        asked = {"highest": True} if highest else {}
        return lambda *arguments, **more: values.emit(kernels.convolve, *arguments, **more, **asked)

    def plain(x: Value, weight: Value, stride: list[int], padding: list[int], dilation: list[int], groups: int,
              output_padding: list[int] | None = None) -> Value:
        if output_padding is None:
            return _FORWARD[len(stride)](x, weight, None, stride, padding, dilation, groups)
        return _TRANSPOSED[len(stride)](x, weight, None, stride, padding, output_padding, groups, dilation)

    return plain


def _forward(call: Callable[..., Any], x: Value, weight: Value, window: Sequence[WindowDimension], groups: int) -> Value:
    """torch's convolution, which pads evenly; uneven and negative padding is done first."""
    even = [w.padding_low if w.padding_low == w.padding_high and w.padding_low > 0 else 0 for w in window]
    x = _padded(x, [(w.padding_low - p, w.padding_high - p) for w, p in zip(window, even, strict=True)])
    weight = _flipped(weight, [w.reversal for w in window])
    return call(x, weight, [w.stride for w in window], even, [w.window_dilation for w in window], groups)


def _transposed(call: Callable[..., Any], x: Value, weight: Value, window: Sequence[WindowDimension], groups: int) -> Value:
    """Input dilation d without a stride is the transposed convolution of stride d by the reversed window."""
    weight = _flipped(weight, [not w.reversal for w in window])
    if groups == 1:
        weight = weight.transpose(0, 1)
    else:
        weight = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    cut, extra, rest = [], [], []
    for w in window:
        # The full result overlaps the window by one element; XLA's padding says how much of it is not wanted.
        low, high = ((w.size - 1) * w.window_dilation - p for p in (w.padding_low, w.padding_high))
        more = low - high if 0 < low - high < max(w.base_dilation, w.window_dilation) and low >= 0 else 0
        even = low if more else max(0, min(low, high))
        cut.append(even)
        extra.append(more)
        rest.append((even - low, even - more - high))
    result = call(x, weight, [w.base_dilation for w in window], cut, [w.window_dilation for w in window], groups,
                  output_padding=extra)
    return _padded(result, rest)


def _padded(x: Value, padding: Sequence[tuple[int, int]]) -> Value:
    """Zeros added to (or, where negative, elements cut from) the last dimensions. torch cuts before it adds, so it cannot where
    more is cut at one end than there is, and the window goes on beyond the other."""
    if any(min(pair) < 0 < max(pair) for pair in padding):
        return values.emit(movement.pad, x, 0, [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in padding)])
    flat = [p for pair in reversed(padding) for p in pair]
    return functional.pad(x, flat) if any(flat) else x


def _flipped(weight: Value, reversal: Sequence[bool]) -> Value:
    dims = [position + 2 for position, flip in enumerate(reversal) if flip]
    return weight.flip(dims) if dims else weight
