"""Schema: convolution. Specification: hlo/SPEC.md, Convolution."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.shape import UNBOUNDED, Shape
from ..core.types import preserves_values
from ..hlo.attributes import ConvDims, ConvolutionDimensionNumbers, Int, Precision, Raw, Window, WindowDimension
from ..hlo.schema import Trait, op
from .contraction import contraction_type, same_size
from .shapes import require, require_arrays

# ------------------------------------------------------------------------------------------- shape


def convolution_shape(declared: Shape | None, lhs: Shape, rhs: Shape, *, window: Sequence[WindowDimension] = (),
                      dim_labels: ConvolutionDimensionNumbers, feature_group_count: int = 1, batch_group_count: int = 1,
                      **_: Any) -> Shape:
    """[batch / batch groups, output features, W1 sizes], in the order of the dimension numbers."""
    require_arrays(lhs, rhs)
    types = lhs.element_type, rhs.element_type
    require(preserves_values(*types) or preserves_values(*reversed(types)), "lhs and rhs have different element types",
            f"{lhs} and {rhs}", "one of which holds all values of the other")
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
    """How many places a window has along a dimension (hlo/SPEC.md, Windows); unbounded for an unbounded dimension."""
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


@op("convolution", infer=convolution_shape, stablehlo="convolution", traits=Trait.MIXED_PRECISION)
def convolution(lhs, rhs, *, window: Window = (), dim_labels: ConvDims, feature_group_count: Int = 1,
                batch_group_count: Int = 1, operand_precision: Precision = (), convolution_kind: Raw = "",
                sparsity_config: Raw = ""): ...
