"""Op definition: convolution.

Document: spec `ops.md`, sections 8 and W1. One to three spatial dimensions of floats go to torch's convolutions; input
dilation becomes a transposed convolution where no stride stands against it. Everything else (integers, complex, more
dimensions) gathers windows and multiplies matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from ..lowering import values
from ..lowering.kernels import contraction as contractions
from ..lowering.kernels import convolution as kernels
from ..shape import UNBOUNDED, Shape
from .attributes import ConvDims, ConvolutionDimensionNumbers, Int, Precision, Raw, Window, WindowDimension
from .contraction import compute_dtype, contraction_type, from_compute, permuted, same_size, to_compute
from .definition import op
from .shapes import require, require_arrays

_POINT = (WindowDimension(1),)
_FORWARD = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


# ------------------------------------------------------------------------------------------- shape


def convolution_shape(declared: Shape | None, lhs: Shape, rhs: Shape, *, window: Sequence[WindowDimension] = (),
                      dim_labels: ConvolutionDimensionNumbers, feature_group_count: int = 1, batch_group_count: int = 1,
                      **_: Any) -> Shape:
    """[batch / batch groups, output features, W1 sizes], in the order of the dimension numbers."""
    require_arrays(lhs, rhs)
    _check_numbers(lhs, rhs, dim_labels)
    spatial = dim_labels.input_spatial_dimensions
    require(len(window) == len(spatial), "the window has another number of dimensions than there are spatial ones",
            f"{len(window)} window dimensions", f"{len(spatial)}")
    _check_window(window, [rhs.dimensions[d] for d in dim_labels.kernel_spatial_dimensions])
    _check_groups(lhs, rhs, dim_labels, feature_group_count, batch_group_count)
    features = dim_labels.kernel_output_feature_dimension
    require(not rhs.dynamic_flags[features] or rhs.dimensions[features] == UNBOUNDED,
            "the number of output features is dynamic", rhs, f"a static dimension {features}")
    sizes, flags = [0] * lhs.rank, [False] * lhs.rank
    batch = lhs.dimensions[dim_labels.input_batch_dimension]
    sizes[dim_labels.output_batch_dimension] = batch if batch == UNBOUNDED else batch // batch_group_count
    flags[dim_labels.output_batch_dimension] = lhs.dynamic_flags[dim_labels.input_batch_dimension]
    sizes[dim_labels.output_feature_dimension] = rhs.dimensions[features]
    flags[dim_labels.output_feature_dimension] = rhs.dynamic_flags[features]
    for source, target, dimension in zip(spatial, dim_labels.output_spatial_dimensions, window, strict=True):
        sizes[target] = window_output_size(lhs.dimensions[source], dimension)
        flags[target] = lhs.dynamic_flags[source]
    return Shape.array(contraction_type(declared, lhs, rhs), sizes, flags)


def window_output_size(size: int, window: WindowDimension) -> int:
    """How many places a window has along a dimension (W1); unbounded for an unbounded dimension."""
    if size == UNBOUNDED:
        return UNBOUNDED
    padded = window.padding_low + _dilated(size, window.base_dilation) + window.padding_high
    extent = _dilated(window.size, window.window_dilation)
    return 0 if padded < extent else (padded - extent) // window.stride + 1


def _dilated(size: int, dilation: int) -> int:
    return (size - 1) * dilation + 1 if size else 0


def _check_numbers(lhs: Shape, rhs: Shape, numbers: ConvolutionDimensionNumbers) -> None:
    require(lhs.rank == rhs.rank, "lhs and rhs have different numbers of dimensions", f"{lhs} and {rhs}", "equal numbers")
    require(lhs.rank >= 2, "a convolution needs a batch and a feature dimension", lhs, "2 dimensions or more")
    for name, listed in (
            ("input", (numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions)),
            ("kernel", (numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension,
                        *numbers.kernel_spatial_dimensions)),
            ("output", (numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions))):
        require(sorted(listed) == list(range(lhs.rank)), f"the {name} dimension numbers do not name every dimension once",
                list(listed), f"each of 0 to {lhs.rank - 1}")


def _check_window(window: Sequence[WindowDimension], kernel: Sequence[int]) -> None:
    for position, (dimension, size) in enumerate(zip(window, kernel, strict=True)):
        require(dimension.size > 0, f"window dimension {position} is not positive", dimension.size, "1 or more")
        require(same_size(dimension.size, size), f"window dimension {position} differs from the kernel's",
                f"window {dimension.size}, kernel {size}", "equal sizes")
        require(dimension.stride > 0, f"the stride of window dimension {position} is not positive", dimension.stride, "1 or more")
        require(dimension.base_dilation > 0 and dimension.window_dilation > 0,
                f"a dilation of window dimension {position} is not positive",
                f"base {dimension.base_dilation}, window {dimension.window_dilation}", "1 or more")


def _check_groups(lhs: Shape, rhs: Shape, numbers: ConvolutionDimensionNumbers, features: int, batches: int) -> None:
    require(features > 0 and batches > 0, "a group count is not positive",
            f"feature_group_count {features}, batch_group_count {batches}", "1 or more")
    require(features == 1 or batches == 1, "feature groups and batch groups exclude each other",
            f"feature_group_count {features}, batch_group_count {batches}", "one of them 1")
    batch = lhs.dimensions[numbers.input_batch_dimension]
    taken = lhs.dimensions[numbers.input_feature_dimension]
    wanted = rhs.dimensions[numbers.kernel_input_feature_dimension]
    made = rhs.dimensions[numbers.kernel_output_feature_dimension]
    require(taken == UNBOUNDED or (taken % features == 0 and same_size(taken // features, wanted)),
            "input features do not fit the kernel", f"{taken} input features in {features} groups, kernel takes {wanted}",
            "input features = kernel input features * feature_group_count")
    require(made == UNBOUNDED or made % features == 0, "output features cannot be split into feature groups",
            f"{made} in {features}", "a multiple")
    require(made == UNBOUNDED or made % batches == 0, "output features cannot be split into batch groups",
            f"{made} in {batches}", "a multiple")
    require(batch == UNBOUNDED or batch % batches == 0, "the batch cannot be split into batch groups", f"{batch} in {batches}",
            "a multiple")


# ------------------------------------------------------------------------------------------- body


@op("convolution", infer=convolution_shape, stablehlo="convolution")
def convolution(inst, lhs, rhs, *, window: Window = (), dim_labels: ConvDims, feature_group_count: Int = 1,
                batch_group_count: Int = 1, operand_precision: Precision = (), convolution_kind: Raw = "",
                sparsity_config: Raw = ""):
    """Products and sums are of the precision of the compute type. float32 is never reduced to TF32 on CUDA but where
    `torch.set_float32_matmul_precision` allows it, and not there either if `operand_precision` says ``highest``."""
    image, kernel = (o.shape for o in inst.operands)
    if 0 in (*image.dimensions, *kernel.dimensions, *inst.shape.dimensions):
        return values.emit(torch.zeros, inst.shape.dimensions, dtype=inst.shape.element_type.carrier, device=values.device())
    dtype = compute_dtype(inst.shape.element_type, image.element_type, kernel.element_type)
    x = permuted(to_compute(lhs, image.element_type, dtype),
                 (dim_labels.input_batch_dimension, dim_labels.input_feature_dimension, *dim_labels.input_spatial_dimensions))
    weight = permuted(to_compute(rhs, kernel.element_type, dtype),
                      (dim_labels.kernel_output_feature_dimension, dim_labels.kernel_input_feature_dimension,
                       *dim_labels.kernel_spatial_dimensions))
    if batch_group_count > 1:  # blocks of the batch become groups of features
        x = x.unflatten(0, (batch_group_count, -1)).transpose(0, 1).flatten(1, 2)
    groups = feature_group_count * batch_group_count
    highest = "highest" in operand_precision
    if not window:
        result = _convolve(x.unsqueeze(-1), weight.unsqueeze(-1), _POINT, groups, dtype, highest).squeeze(-1)
    else:
        result = _convolve(x, weight, window, groups, dtype, highest)
    made = (dim_labels.output_batch_dimension, dim_labels.output_feature_dimension, *dim_labels.output_spatial_dimensions)
    return from_compute(permuted(result, [made.index(d) for d in range(len(made))]), dtype, inst.shape.element_type)


def _convolve(x: Any, weight: Any, window: Sequence[WindowDimension], groups: int, dtype: torch.dtype,
              highest: bool) -> Any:
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


def _call(dtype: torch.dtype, highest: bool) -> Callable[..., Any]:
    """torch's convolution ``(x, weight, stride, padding, dilation, groups, output_padding=None)``."""
    if dtype is torch.float32 and values.device().type == "cuda":
        asked = {"highest": True} if highest else {}
        return lambda *arguments, **more: values.emit(kernels.convolve, *arguments, **more, **asked)

    def plain(x: Any, weight: Any, stride: list[int], padding: list[int], dilation: list[int], groups: int,
              output_padding: list[int] | None = None) -> Any:
        if output_padding is None:
            return _FORWARD[len(stride)](x, weight, None, stride, padding, dilation, groups)
        return _TRANSPOSED[len(stride)](x, weight, None, stride, padding, output_padding, groups, dilation)

    return plain


def _forward(call: Callable[..., Any], x: Any, weight: Any, window: Sequence[WindowDimension], groups: int) -> Any:
    """torch's convolution, which pads evenly; uneven and negative padding is done first."""
    even = [w.padding_low if w.padding_low == w.padding_high and w.padding_low > 0 else 0 for w in window]
    x = _padded(x, [(w.padding_low - p, w.padding_high - p) for w, p in zip(window, even, strict=True)])
    weight = _flipped(weight, [w.reversal for w in window])
    return call(x, weight, [w.stride for w in window], even, [w.window_dilation for w in window], groups)


def _transposed(call: Callable[..., Any], x: Any, weight: Any, window: Sequence[WindowDimension], groups: int) -> Any:
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


def _padded(x: Any, padding: Sequence[tuple[int, int]]) -> Any:
    """Zeros added to (or, where negative, elements cut from) the last dimensions."""
    flat = [p for pair in reversed(padding) for p in pair]
    return functional.pad(x, flat) if any(flat) else x


def _flipped(weight: Any, reversal: Sequence[bool]) -> Any:
    dims = [position + 2 for position, flip in enumerate(reversal) if flip]
    return weight.flip(dims) if dims else weight
