"""Schemas: dynamic sizes.

At run time a tensor has its actual size; the bound stands in the Shape only.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

import math

from ..core.shape import UNBOUNDED, Shape
from ..core.types import S32
from ..hlo.attributes import Dims
from ..hlo.schema import Trait, op
from .shapes import require, require_arrays, require_declared_array

INT32_MAX = 2**31 - 1


def get_dimension_size_shape(declared: Shape | None, operand: Shape, *, dimensions: tuple[int, ...]) -> Shape:
    """s32[]; the size must fit."""
    require_arrays(operand)
    _require_one_dimension(operand, dimensions)
    require(operand.dimensions[dimensions[0]] <= INT32_MAX, "the dimension's size does not fit in s32", got=operand)
    return Shape(S32)


def set_dimension_size_shape(declared: Shape | None, operand: Shape, val: Shape, *, dimensions: tuple[int, ...]) -> Shape:
    """The operand with a dynamic dimension, or, where the declared shape says so, with a static one."""
    require_arrays(operand, val)
    require(val.is_scalar and val.element_type is S32, "the new size is not an s32 scalar", got=val, expected="s32[]")
    _require_one_dimension(operand, dimensions)
    dimension = dimensions[0]
    flags = list(operand.dynamic_flags)
    flags[dimension] = declared.dynamic_flags[dimension] if declared is not None and declared.rank == operand.rank else True
    return operand.with_dimensions(operand.dimensions, flags)


def dynamic_reshape_shape(declared: Shape | None, operand: Shape, *dim_sizes: Shape) -> Shape:
    """The declared bounds, as many elements as the operand; one s32 scalar for each dimension."""
    shape = require_declared_array(declared)
    require_arrays(operand, *dim_sizes)
    require(len(dim_sizes) == shape.rank, "one size is needed for each dimension", got=f"{len(dim_sizes)} for {shape}")
    for size in dim_sizes:
        require(size.is_scalar and size.element_type is S32, "a size is not an s32 scalar", got=size, expected="s32[]")
    unbounded = UNBOUNDED in operand.dimensions or UNBOUNDED in shape.dimensions
    require(unbounded or math.prod(shape.dimensions) == operand.element_count, "mismatched element counts",
            got=f"{operand} to bounds {list(shape.dimensions)}")
    return shape.with_element_type(operand.element_type).without_layout()


def _require_one_dimension(operand: Shape, dimensions: tuple[int, ...]) -> None:
    require(len(dimensions) == 1 and 0 <= dimensions[0] < operand.rank, "the dimension is out of range",
            got=f"{list(dimensions)} for {operand}", expected="one dimension of the operand")


@op("get-dimension-size", infer=get_dimension_size_shape, stablehlo="get_dimension_size")
def get_dimension_size(operand, *, dimensions: Dims): ...


@op("set-dimension-size", infer=set_dimension_size_shape, stablehlo="set_dimension_size", traits=Trait.MOVES_DATA)
def set_dimension_size(operand, val, *, dimensions: Dims): ...


@op("dynamic-reshape", infer=dynamic_reshape_shape, stablehlo="dynamic_reshape", traits=Trait.MOVES_DATA,
    inferable=False)
def dynamic_reshape(operand, *dim_sizes): ...
