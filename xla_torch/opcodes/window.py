"""Schemas: reduce-window and select-and-scatter."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence

from ..core.shape import UNBOUNDED, Shape
from ..core.types import PRED
from ..hlo.attributes import Region, Window, WindowDimension
from ..hlo.ir import Computation
from ..hlo.schema import Trait, op
from .reduction import check_reducer, check_reduction_operands, reduction_result
from .shapes import require, require_arrays

# ------------------------------------------------------------------------------------------------ shapes


def window_output(operand: Shape, window: Sequence[WindowDimension]) -> Shape:
    """The shape of an array's window positions (Operation Semantics, ReduceWindow)."""
    require(len(window) == operand.rank, "the window has another number of dimensions than the operand", got=len(window),
            expected=f"{operand.rank} for {operand}")
    sizes = [window_positions(n, w, d) for d, (n, w) in enumerate(zip(operand.dimensions, window, strict=True))]
    return operand.with_dimensions(sizes, operand.dynamic_flags)


def window_positions(size: int, window: WindowDimension, dimension: int) -> int:
    """How many positions a window has along a dimension of an array."""
    for value, what in ((window.size, "size"), (window.stride, "stride"), (window.base_dilation, "base dilation"),
                        (window.window_dilation, "window dilation")):
        require(value >= 1, f"the window's {what} in dimension {dimension} is not positive", got=value, expected="1 or more")
    if size == UNBOUNDED:
        return UNBOUNDED
    padded = window.padding_low + dilated(size, window.base_dilation) + window.padding_high
    reach = dilated(window.size, window.window_dilation)
    return 0 if padded < reach else (padded - reach) // window.stride + 1


def dilated(size: int, dilation: int) -> int:
    """The extent of `size` elements with holes between them."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def _reduce_window_shape(declared: Shape | None, *operands: Shape, to_apply: Computation,
                         window: Sequence[WindowDimension] = ()) -> Shape:
    arrays, inits = check_reduction_operands(operands)
    for k, init in enumerate(inits):
        require(init.is_scalar, f"init value {k} is not a scalar", got=init)
    types = check_reducer(to_apply, arrays, inits)
    shape = window_output(arrays[0], window)
    return reduction_result([shape.with_element_type(t) for t in types], to_apply)


def _select_and_scatter_shape(declared: Shape | None, operand: Shape, source: Shape, init_value: Shape, *, select: Computation,
                              scatter: Computation, window: Sequence[WindowDimension] = ()) -> Shape:
    require_arrays(operand, source, init_value)
    chooser = select.program_shape
    require(len(chooser.parameters) == 2, "the select computation does not take two parameters", got=len(chooser.parameters))
    require(chooser.result.is_scalar and chooser.result.element_type is PRED, "the select computation does not return PRED",
            got=chooser.result, expected="pred[]")
    for k, parameter in enumerate(chooser.parameters):
        require(parameter.compatible(Shape.array(operand.element_type)), f"parameter {k} of the select computation does not fit",
                got=parameter, expected=f"elements of {operand}")
    check_reducer(scatter, [source], [init_value])
    for d, w in enumerate(window):
        require(w.base_dilation == w.window_dilation == 1, f"dimension {d} of the window is dilated", got=w)
    positions = window_output(operand, window)
    require(source.compatible(positions), "the source does not have one element for each window", got=source, expected=positions)
    return operand.without_layout()


# ------------------------------------------------------------------------------------------------ reduce-window


@op("reduce-window", infer=_reduce_window_shape, stablehlo="reduce_window", traits=Trait.MIXED_PRECISION,
    element_region=1)
def reduce_window(*operands, to_apply: Region, window: Window = ()): ...


# ------------------------------------------------------------------------------------------------ select-and-scatter


@op("select-and-scatter", infer=_select_and_scatter_shape, stablehlo="select_and_scatter", element_region=0)
def select_and_scatter(operand, source, init_value, *, select: Region, scatter: Region, window: Window = ()): ...
