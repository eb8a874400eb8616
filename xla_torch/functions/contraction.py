"""Matrix products and convolutions under their documented names.

Documents: operation semantics, the sections of the functions' own names. `precision_config` holds a word for each operand,
"default", "high" or "highest"; it is a hint.
"""

# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from ..hlo.canonical_values import integers_of
from ..hlo.choices import Precision, PrecisionConfig
from ..opcodes import contraction, convolution
from ..opcodes.contraction import DotDimensionNumbers, dot_shape, ragged_dot_shape, scaled_dot_shape
from ..opcodes.convolution import convolution_shape
from ..opcodes.shapes import require
from ._documented import documented, renamed
from .dimension_numbers import (
    ConvolutionNumbers,
    DotNumbers,
    make_convolution_dimension_numbers,
    make_dot_dimension_numbers,
)
from .hlo_builder import XlaOp
from .window import MakePadding, Padding

__all__ = ["Conv", "ConvGeneral", "ConvGeneralDilated", "ConvWithGeneralDimensions", "ConvWithGeneralPadding",
           "ConvolutionDimensionNumbers", "Dot", "DotDimensionNumbers", "DotGeneral", "Precision", "PrecisionConfig", "RaggedDot",
           "RaggedDotDimensionNumbers",
           "ScaledDot"]


@dataclasses.dataclass(frozen=True, slots=True)
class RaggedDotDimensionNumbers:
    """A dot's dimension numbers (`dot_dimension_numbers`), the one ragged dimension of the lhs (`lhs_ragged_dimensions`), and the
    rhs dimension that counts the groups (`rhs_group_dimensions`, for a ragged dimension that is neither contracting nor batch).
    Raises InvalidArgument for what is no DotDimensionNumbers and no integer.

    >>> numbers = ops.RaggedDotDimensionNumbers(ops.DotDimensionNumbers((1,), (1,)), (0,), (0,))
    >>> rows, weights = torch.ones(3, 2), torch.stack([torch.eye(2), 5 * torch.eye(2)])
    >>> ops.RaggedDot(rows, weights, torch.tensor([2, 1], dtype=torch.int32), numbers)    # two rows, and one
    tensor([[1., 1.],
            [1., 1.],
            [5., 5.]])
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: tuple[int, ...]
    rhs_group_dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.dot_dimension_numbers, DotDimensionNumbers):
            raise InvalidArgument("no dot dimension numbers", subject="RaggedDotDimensionNumbers",
                                  got=type(self.dot_dimension_numbers).__name__, expected="a DotDimensionNumbers")
        object.__setattr__(self, "lhs_ragged_dimensions", integers_of(self.lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", integers_of(self.rhs_group_dimensions))


Precisions = Precision | str | PrecisionConfig | Sequence[Precision | str] | None
"""A word for each operand, or one for both."""


def _attributes(dimension_numbers: DotNumbers, precision_config: Precisions) -> dict[str, Any]:
    numbers = make_dot_dimension_numbers(dimension_numbers)
    given = {"lhs_contracting_dims": numbers.lhs_contracting_dimensions,
             "rhs_contracting_dims": numbers.rhs_contracting_dimensions,
             "lhs_batch_dims": numbers.lhs_batch_dimensions, "rhs_batch_dims": numbers.rhs_batch_dimensions,
             "operand_precision": _for_both(precision_config)}
    return {name: tuple(value) for name, value in given.items() if value}


def _for_both(precision_config: Precisions) -> tuple[str, ...]:
    """The precision of each operand; one word is for both."""
    return (precision_config,) * 2 if isinstance(precision_config, str) else tuple(precision_config or ())


def _preferred(shape: Shape, element_type: PrimitiveType | None) -> Shape | None:
    """The declared shape, where an element type for the result is asked for."""
    return None if element_type is None else shape.with_element_type(element_type)


@documented
def Dot(lhs: XlaOp, rhs: XlaOp, precision_config: Precisions = None,
        preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """The product of vectors and matrices: [n]·[n] -> [], [m,k]·[k] -> [m], [m,k]·[k,n] -> [m,n].

    Contracts dimension 1 of the lhs (0 of a vector) with dimension 0 of the rhs. The result has the higher precision of the
    operands, or `preferred_element_type`. Raises InvalidArgument where the contracted sizes differ.

    >>> ops.Dot(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    numbers = DotDimensionNumbers((0 if lhs.shape.rank == 1 else 1,), (0,))
    return DotGeneral(lhs, rhs, numbers, precision_config, preferred_element_type)


@documented
def DotGeneral(lhs: XlaOp, rhs: XlaOp, dimension_numbers: DotNumbers, precision_config: Precisions = None,
               preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """The sum of products over the contracting dimensions, for each index of the batch dimensions.

    The result has the batch dimensions, the lhs's other dimensions, then the rhs's. Raises InvalidArgument for dimension
    numbers that are out of range, repeated, or of different sizes in lhs and rhs.

    >>> ops.DotGeneral(torch.ones(5, 2, 3), torch.ones(5, 3, 4), (([2], [1]), ([0], [0]))).shape
    torch.Size([5, 2, 4])
    """
    attributes = _attributes(dimension_numbers, precision_config)
    declared = preferred_element_type and _preferred(dot_shape(None, lhs.shape, rhs.shape, **attributes), preferred_element_type)
    return lhs.builder.add(contraction.dot, [lhs, rhs], attributes, declared)


@documented
def RaggedDot(lhs: XlaOp, rhs: XlaOp, group_sizes: XlaOp, dimension_numbers: RaggedDotDimensionNumbers,
              precision_config: Precisions = None, preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """A dot in which consecutive blocks of one lhs dimension, of the sizes in `group_sizes`, belong to different groups.

    A ragged free dimension, [m,k]·[g,k,n] -> [m,n]: each row is multiplied by its group's matrix, rows beyond the groups
    give 0. A ragged contracting dimension, [m,k]·[k,n] -> [g,m,n]: one sum for each group. A ragged batch dimension is an
    ordinary dot. Raises InvalidArgument for anything but one ragged dimension and for sizes that do not fit.

    >>> rows, matrices = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[[10.0]], [[100.0]]])
    >>> dims = ops.RaggedDotDimensionNumbers(ops.make_dot_dimension_numbers(([1], [1])), [0], [0])
    >>> ops.RaggedDot(rows, matrices, torch.tensor([1, 2], dtype=torch.int32), dims)
    tensor([[ 10.],
            [200.],
            [300.]])
    """
    numbers = dimension_numbers
    attributes = _attributes(numbers.dot_dimension_numbers, precision_config)
    attributes["lhs_ragged_dims"] = tuple(numbers.lhs_ragged_dimensions)
    if numbers.rhs_group_dimensions:
        attributes["rhs_group_dims"] = tuple(numbers.rhs_group_dimensions)
    shapes = (lhs.shape, rhs.shape, group_sizes.shape)
    declared = preferred_element_type and _preferred(ragged_dot_shape(None, *shapes, **attributes), preferred_element_type)
    return lhs.builder.add(contraction.ragged_dot, [lhs, rhs, group_sizes], attributes, declared)


@renamed(dimension_numbers="dimension_number")
@documented
def ScaledDot(lhs: XlaOp, lhs_scale: XlaOp, rhs: XlaOp, rhs_scale: XlaOp, dimension_number: DotNumbers,
              precision_config: Precisions = None, preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """The dot of ``lhs * lhs_scale`` and ``rhs * rhs_scale``.

    A scale has its operand's rank; each of its entries stands for a block of the operand, so its sizes divide the operand's.
    A scalar scale is for the whole operand. The operands stand in the newest document's order; in HLO they are
    (lhs, rhs, lhs_scale, rhs_scale). Raises InvalidArgument where a scale does not fit its operand, and as `DotGeneral` does.

    >>> lhs, rhs = torch.ones(2, 4), torch.ones(4, 1)
    >>> ops.ScaledDot(lhs, torch.tensor([[1.0, 10.0], [2.0, 20.0]]), rhs, torch.tensor(1.0), ([1], [0]))
    tensor([[22.],
            [44.]])
    """
    attributes = _attributes(dimension_number, precision_config)
    operands = [lhs, rhs, lhs_scale, rhs_scale]
    shape = scaled_dot_shape(None, *(o.shape for o in operands), **attributes)
    return lhs.builder.add(contraction.scaled_dot, operands, attributes, _preferred(shape, preferred_element_type) or shape)


# ------------------------------------------------------------------------------------------- convolution


def _default_numbers(lhs: XlaOp, rhs: XlaOp) -> ConvolutionDimensionNumbers:
    """[batch, feature, spatial...], [output feature, input feature, spatial...], [batch, feature, spatial...]."""
    require(lhs.shape.rank == rhs.shape.rank >= 3, "wrong number of dimensions for a convolution", f"{lhs.shape} and {rhs.shape}",
            "equal numbers, 3 or more")
    spatial = tuple(range(2, lhs.shape.rank))
    return ConvolutionDimensionNumbers(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)


def _made_padding(lhs: XlaOp, rhs: XlaOp, window_strides: Sequence[int], padding: Padding,
                  numbers: ConvolutionDimensionNumbers) -> list[tuple[int, int]]:
    def sizes(operand: XlaOp, spatial: Sequence[int]) -> list[int]:
        require(all(0 <= d < operand.shape.rank for d in spatial), "a spatial dimension is out of range", list(spatial),
                f"0 to {operand.shape.rank - 1}")
        return [operand.shape.dimensions[d] for d in spatial]

    return MakePadding(sizes(lhs, numbers.input_spatial_dimensions), sizes(rhs, numbers.kernel_spatial_dimensions),
                       window_strides, padding)


@documented
def Conv(lhs: XlaOp, rhs: XlaOp, window_strides: Sequence[int], padding: Padding, feature_group_count: int = 1,
         batch_group_count: int = 1, precision_config: Precisions = None,
         preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """Convolution of [batch, feature, spatial...] by [output feature, input feature, spatial...], padded VALID or SAME.

    The result is [batch, output feature, spatial...]. This and the next three raise InvalidArgument as `ConvGeneralDilated`.

    >>> ops.Conv(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), torch.tensor([[[1.0, 1.0]]]), [1], "VALID")
    tensor([[[3., 5., 7.]]])
    """
    numbers = _default_numbers(lhs, rhs)
    return ConvWithGeneralDimensions(lhs, rhs, window_strides, padding, numbers, feature_group_count, batch_group_count,
                                     precision_config, preferred_element_type)


@documented
def ConvWithGeneralPadding(lhs: XlaOp, rhs: XlaOp, window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
                           feature_group_count: int = 1, batch_group_count: int = 1,
                           precision_config: Precisions = None,
                           preferred_element_type: PrimitiveType | None = None, *, lhs_dilation: Sequence[int] = (),
                           rhs_dilation: Sequence[int] = ()) -> XlaOp:
    """`Conv` with low and high padding for each spatial dimension; negative padding crops.

    Older documents list dilations among its parameters; newer ones have `ConvGeneralDilated` for them.

    >>> ops.ConvWithGeneralPadding(torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[[1.0, 1.0]]]), [1], [(1, 0)])
    tensor([[[1., 3., 5.]]])
    """
    numbers = _default_numbers(lhs, rhs)
    return ConvGeneralDilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, numbers, feature_group_count,
                              batch_group_count, precision_config, preferred_element_type)


@documented
def ConvWithGeneralDimensions(lhs: XlaOp, rhs: XlaOp, window_strides: Sequence[int], padding: Padding,
                              dimension_numbers: ConvolutionNumbers, feature_group_count: int = 1,
                              batch_group_count: int = 1, precision_config: Precisions = None,
                              preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """`Conv` with dimensions in any order, which `dimension_numbers` gives for lhs, rhs and result.

    >>> image, kernel = torch.ones(1, 4, 4, 3), torch.ones(2, 2, 3, 8)
    >>> ops.ConvWithGeneralDimensions(image, kernel, [1, 1], "SAME", ("NHWC", "HWIO", "NHWC")).shape
    torch.Size([1, 4, 4, 8])
    """
    numbers = make_convolution_dimension_numbers(dimension_numbers)
    pairs = _made_padding(lhs, rhs, window_strides, padding, numbers)
    return ConvGeneral(lhs, rhs, window_strides, pairs, numbers, feature_group_count, batch_group_count,
                       precision_config, preferred_element_type)


@documented
def ConvGeneral(lhs: XlaOp, rhs: XlaOp, window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
                dimension_numbers: ConvolutionNumbers, feature_group_count: int = 1, batch_group_count: int = 1,
                precision_config: Precisions = None, preferred_element_type: PrimitiveType | None = None) -> XlaOp:
    """`ConvWithGeneralPadding` with dimensions in any order, which `dimension_numbers` gives for lhs, rhs and result.

    >>> image, kernel = torch.ones(1, 4, 4, 3), torch.ones(2, 2, 3, 8)
    >>> ops.ConvGeneral(image, kernel, [2, 2], [(0, 0), (1, 1)], ("NHWC", "HWIO", "NHWC")).shape
    torch.Size([1, 2, 3, 8])
    """
    return ConvGeneralDilated(lhs, rhs, window_strides, padding, (), (), dimension_numbers, feature_group_count,
                              batch_group_count, precision_config, preferred_element_type)


@documented
def ConvGeneralDilated(lhs: XlaOp, rhs: XlaOp, window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
                       lhs_dilation: Sequence[int], rhs_dilation: Sequence[int],
                       dimension_numbers: ConvolutionNumbers, feature_group_count: int = 1,
                       batch_group_count: int = 1, precision_config: Precisions = None,
                       preferred_element_type: PrimitiveType | None = None,
                       window_reversal: Sequence[bool] | None = None) -> XlaOp:
    """The general convolution: a sliding sum of products, without turning the window round unless `window_reversal` says so.

    Strides, padding (low, high) and dilations are given for each spatial dimension; empty dilations mean 1. With feature
    groups, each block of input features goes to its own block of output features; with batch groups, each block of the
    batch does. Raises InvalidArgument for lists of another length and for sizes and groups that do not fit.

    >>> image, kernel = torch.ones(1, 1, 3), torch.ones(1, 1, 2)
    >>> ops.ConvGeneralDilated(image, kernel, [1], [(1, 1)], [2], [1], ("NCW", "OIW", "NCW"))
    tensor([[[1., 1., 1., 1., 1., 1.]]])
    """
    numbers = make_convolution_dimension_numbers(dimension_numbers)
    spatial = numbers.kernel_spatial_dimensions
    count = len(spatial)
    lists = {"window_strides": list(window_strides), "padding": list(padding), "lhs_dilation": list(lhs_dilation) or [1] * count,
             "rhs_dilation": list(rhs_dilation) or [1] * count, "window_reversal": list(window_reversal or ()) or [False] * count}
    for name, given in lists.items():
        require(len(given) == count, f"{name} has another length than there are spatial dimensions", len(given), str(count))
    require(all(0 <= d < rhs.shape.rank for d in spatial), "a kernel spatial dimension is out of range", list(spatial),
            f"0 to {rhs.shape.rank - 1}")
    sizes = [rhs.shape.dimensions[d] for d in spatial]
    window = tuple(WindowDimension(size, stride, low, high, base, spread, bool(turned))
                   for size, stride, (low, high), base, spread, turned in zip(sizes, *lists.values(), strict=True))
    attributes: dict[str, Any] = {"window": window, "dim_labels": numbers, "feature_group_count": feature_group_count,
                                  "batch_group_count": batch_group_count}
    if precision_config:
        attributes["operand_precision"] = _for_both(precision_config)
    declared = preferred_element_type and _preferred(convolution_shape(None, lhs.shape, rhs.shape, **attributes),
                                                     preferred_element_type)
    return lhs.builder.add(convolution.convolution, [lhs, rhs], attributes, declared)
