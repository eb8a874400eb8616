"""Op definitions: reduce-window and select-and-scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..hlo.ir import Computation, Instruction
from ..lowering.associative import is_associative
from ..lowering.kernels import reduction
from ..lowering.kernels import window as kernels
from ..lowering.monoids import kind_of_reducer, monoid
from ..lowering.values import apply_region, emit
from ..shape import UNBOUNDED, Shape
from ..transform.recognise import reducer_kinds
from ..types import PRED
from .attributes import Region, Window, WindowDimension
from .definition import op
from .reduction import check_reducer, check_reduction_operands, converted, init_tensor, reduction_result, split_operands
from .shapes import require, require_arrays

# ------------------------------------------------------------------------------------------------ shapes


def window_output(operand: Shape, window: Sequence[WindowDimension]) -> Shape:
    """Rule W1: the shape of an array's window positions."""
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
    positions = window_output(operand, window).with_element_type(source.element_type)
    require(source.compatible(positions), "the source does not have one element for each window", got=source, expected=positions)
    return operand.without_layout()


# ------------------------------------------------------------------------------------------------ reduce-window


@op("reduce-window", infer=_reduce_window_shape, numbers="operands", stablehlo="reduce_window")
def reduce_window(inst: Instruction, *operands: Any, to_apply: Region, window: Window = ()) -> Any:
    values, inits = split_operands(operands)
    results = list(inst.shape.leaves())
    sources = [o.shape.element_type for o in inst.operands]
    values = [converted(v, s, r.element_type) for v, s, r in zip(values, sources, results, strict=False)]
    inits = [converted(init_tensor(v, s), s, r.element_type)
             for v, s, r in zip(inits, sources[len(values):], results, strict=True)]
    reduced = _reduced_windows(inst, values, inits, window, to_apply)
    return tuple(reduced) if inst.shape.is_tuple else reduced[0]


def _reduced_windows(inst: Instruction, values: list[Any], inits: list[Any], window: Sequence[WindowDimension],
                     to_apply: Computation) -> list[Any]:
    results = list(inst.shape.leaves())
    plain = geometry(window)
    if all(kernels.is_trivial(d) for d in plain):
        return apply_region(to_apply, [*inits, *values], results[0].dimensions)
    kinds = (kind_of_reducer(to_apply),) if len(values) == 1 else reducer_kinds(to_apply)
    known = [monoid(kind, r.element_type) for kind, r in zip(kinds, results, strict=True)]
    along = _running_dimension(inst.operands[0].shape, window)
    if all(m is not None for m in known):
        folded = [m.reduce_windows(v, plain) if along is None else m.running(v, *along)
                  for m, v in zip(known, values, strict=True) if m is not None]
        if all(m.ignores(init) for m, init in zip(known, inits, strict=True) if m is not None):
            return folded
        return apply_region(to_apply, [*inits, *folded], results[0].dimensions)
    from ..lowering.regions import function

    combine = function(to_apply)
    in_order = math.prod([size for size, *_ in plain]) <= kernels.FEW and not is_associative(to_apply)
    if along is not None and not in_order:
        found = emit(reduction.running, combine, tuple(values), *along)
        return apply_region(to_apply, [*inits, *(found[k] for k in range(len(values)))], results[0].dimensions)
    kernel = kernels.reduce_windows_in_order if in_order else kernels.reduce_windows_by
    found = emit(kernel, combine, tuple(values), tuple(inits), plain)
    return [found[k] for k in range(len(values))]


def geometry(window: Sequence[WindowDimension]) -> tuple[tuple[int, ...], ...]:
    """The window in the form that kernels take."""
    return tuple((w.size, w.stride, w.padding_low, w.padding_high, w.base_dilation, w.window_dilation) for w in window)


def _running_dimension(operand: Shape, window: Sequence[WindowDimension]) -> tuple[int, bool] | None:
    """The dimension of a running reduction, written as a window as long as the array and padded on one side only, and
    whether it runs from the end; None for other windows."""
    plain = geometry(window)
    wide = [d for d, w in enumerate(plain) if not kernels.is_trivial(w)]
    if len(wide) != 1 or operand.dynamic_flags[wide[0]]:
        return None
    d, n = wide[0], operand.dimensions[wide[0]]
    if plain[d] == (n, 1, n - 1, 0, 1, 1):
        return d, False
    return (d, True) if plain[d] == (n, 1, 0, n - 1, 1, 1) else None


# ------------------------------------------------------------------------------------------------ select-and-scatter


@op("select-and-scatter", infer=_select_and_scatter_shape, numbers="init_value", stablehlo="select_and_scatter")
def select_and_scatter(inst: Instruction, operand: Any, source: Any, init_value: Any, *, select: Region, scatter: Region,
                       window: Window = ()) -> Any:
    from ..lowering.regions import function

    init, plain = init_tensor(init_value, inst.operands[2].shape.element_type), geometry(window)
    wide = {"associative": True} if math.prod([size for size, *_ in plain]) > kernels.FEW and is_associative(scatter) else {}
    return emit(kernels.select_and_scatter, function(select), function(scatter), operand, source, init, plain, **wide)
