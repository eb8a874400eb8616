"""Gradients of windows: reduce-window and select-and-scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grad_rules._calculus import iota, masked, reshape, scalar_computation, sum_all, zeros
from grad_rules._compositions import Cotangents, derived
from grad_rules._expand import reduce_window_by_doubling, scan_by_pairs
from grad_rules._table import vjp
from xla_torch.analysis.reducers import reducer_kind, reducer_kinds
from xla_torch.core.shape import Shape
from xla_torch.core.types import S32, PrimitiveType
from xla_torch.functions import (
    And,
    Broadcast,
    Call,
    Eq,
    Gather,
    GatherDimensionNumbers,
    Ge,
    GetTupleElement,
    Lt,
    Not,
    Or,
    ReduceWindowWithGeneralPadding,
    Rev,
    Scatter,
    Select,
    SelectAndScatterWithGeneralPadding,
    Tuple,
)
from xla_torch.functions.convolution_ways_back import backward_window
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.attributes import WindowDimension
from xla_torch.hlo.inference import splat_of
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.opcodes.reducer_kinds import ReducerKind

Window = Sequence[WindowDimension]

# ------------------------------------------------------------------------------------------------- reduce-window


def _reduce_window(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, window: Window,
                   to_apply: Computation) -> Cotangents:
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    kinds = reducer_kinds(to_apply)
    if count == 1 and not inst.shape.is_tuple:
        if kinds[0] is ReducerKind.ADD:
            return [_window_sum(ct, window, arrays[0].shape), sum_all(ct)]
        running = _running(window, arrays[0].shape)
        if kinds[0] in (ReducerKind.MAXIMUM, ReducerKind.MINIMUM) and running and _is_infinite(inst.operands[1]):
            def scanned(x: XlaOp) -> list[XlaOp]:
                return [_scanned(x, *running, to_apply)]

            return [*derived(scanned, arrays, [ct]), None]
        if kinds[0] in (ReducerKind.MAXIMUM, ReducerKind.MINIMUM) and _selects(window):
            return _window_extreme(ct, out, arrays[0], inits[0], window, "Ge" if kinds[0] is ReducerKind.MAXIMUM else "Le",
                                   _is_infinite(inst.operands[1]))
    cts = ct if inst.shape.is_tuple else (ct,)
    sizes = (inst.shape.tuple_shapes or (inst.shape,))[0].dimensions
    return derived(lambda *values: reduce_window_by_doubling(values[:count], values[count:], window, sizes, to_apply),
                   operands, cts)


def _selects(window: Window) -> bool:
    """Whether select-and-scatter can say where the extremes stood: it has no dilations, and it looks at every element of
    every window, which is too much where large windows overlap (a running maximum)."""
    return all(w.base_dilation == w.window_dilation == 1 and (w.stride >= w.size or w.size <= 64) for w in window)


def _running(window: Window, base: Shape) -> tuple[int, bool] | None:
    """The dimension along which each window reaches from the first element to its own, or, if the flag is set, from its own to
    the last one; None for other windows."""
    long = [d for d, w in enumerate(window) if w != WindowDimension(1)]
    if len(long) != 1:
        return None
    (d,), w, reach = long, window[long[0]], base.dimensions[long[0]] - 1
    pads = w.padding_low, w.padding_high
    if pads not in ((reach, 0), (0, reach)) or w != WindowDimension(reach + 1, padding_low=pads[0], padding_high=pads[1]):
        return None
    return d, pads[0] == 0


def _scanned(x: XlaOp, dimension: int, backwards: bool, reducer: Computation) -> XlaOp:
    if backwards:
        return Rev(_scanned(Rev(x, [dimension]), dimension, False, reducer), [dimension])
    return scan_by_pairs(x, dimension, reducer)


def _window_sum(ct: XlaOp, window: Window, base: Shape) -> XlaOp:
    """Each base element collects the cotangents of the windows it is in: a sum over the turned-around windows."""
    if 0 in ct.shape.dimensions or 0 in base.dimensions:
        return zeros(ct, base.without_layout())
    back = backward_window(window, base.dimensions, ct.shape.dimensions)
    return ReduceWindowWithGeneralPadding(
        ct, zeros(ct, Shape.array(ct.element_type)), scalar_computation("Add", ct.element_type), [w.size for w in back],
        [w.stride for w in back], [w.base_dilation for w in back], [w.window_dilation for w in back],
        [(w.padding_low, w.padding_high) for w in back])


def _window_extreme(ct: XlaOp, out: XlaOp, array: XlaOp, init: XlaOp, window: Window, compare: str,
                    init_is_limit: bool) -> Cotangents:
    """To the first element of each window that is the extreme; to init where no element is as extreme."""
    from_init = Eq(out, init)
    to_array = SelectAndScatterWithGeneralPadding(
        array, scalar_computation(compare, array.element_type), [w.size for w in window], [w.stride for w in window],
        [(w.padding_low, w.padding_high) for w in window], ct if init_is_limit else masked(Not(from_init), ct),
        zeros(init), scalar_computation("Add", array.element_type))
    return [to_array, None if init_is_limit else sum_all(masked(from_init, ct))]


def _is_infinite(init: Instruction) -> bool:
    """A constant that no element exceeds: the usual init of max and min, which then never is the result."""
    literal = splat_of(init)
    return literal is not None and bool(np.isinf(literal.array.astype(np.float64)))


vjp("reduce-window", operands=_reduce_window)

# -------------------------------------------------------------------------------------------- select-and-scatter


def _places(operand: XlaOp, window: Window, select: Computation) -> XlaOp:
    """Which element of the flat operand each window selected; below zero where it selected none."""
    count = operand.shape.element_count
    places = reshape(iota(operand, [count], 0), operand.shape.dimensions)
    none = operand.builder.constant(-1)
    found = ReduceWindowWithGeneralPadding(
        [operand, places], [zeros(operand, Shape.array(operand.element_type)), none],
        _selecting(select, operand.element_type), [w.size for w in window], [w.stride for w in window], (), (),
        [(w.padding_low, w.padding_high) for w in window])
    return GetTupleElement(found, 1)


def _selecting(select: Computation, element_type: PrimitiveType) -> Computation:
    """The reducer of (value, place) pairs that keeps the selected pair; a place below zero is no element."""
    builder = Builder(f"{select.name}_with_place")
    types = (element_type, S32, element_type, S32)
    value, place, new_value, new_place = (builder.parameter(i, Shape.array(t)) for i, t in enumerate(types))
    stays = And(Ge(place, zeros(place)), Or(Lt(new_place, zeros(new_place)), Call(builder, select, [value, new_value])))
    return builder.finish(Tuple(builder, [Select(stays, value, new_value), Select(stays, place, new_place)]))


def _source(ct: XlaOp, operand: XlaOp, source: XlaOp, init_value: XlaOp, window: Window, select: Computation,
            scatter: Computation) -> XlaOp | None:
    """Of a sum, what the cotangent is at the element that each window selected; zero where a window selected none."""
    place = _places(operand, window, select)
    if reducer_kind(scatter) is not ReducerKind.ADD:
        return _scattered(ct, source, init_value, place, scatter)[0]
    numbers = GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,),
                                     index_vector_dim=place.shape.rank)
    return masked(Ge(place, zeros(place)), Gather(reshape(ct, [ct.shape.element_count]), place, numbers, (1,)))


def _start(ct: XlaOp, operand: XlaOp, source: XlaOp, init_value: XlaOp, window: Window, select: Computation,
           scatter: Computation) -> XlaOp | None:
    if reducer_kind(scatter) is not ReducerKind.ADD:
        return _scattered(ct, source, init_value, _places(operand, window, select), scatter)[1]
    return sum_all(ct)


def _scattered(ct: XlaOp, source: XlaOp, init_value: XlaOp, place: XlaOp, scatter: Computation) -> Cotangents:
    """Of any other computation: select-and-scatter is a scatter to the places that were selected."""
    def composed(source: XlaOp, init: XlaOp, place: XlaOp) -> list[XlaOp]:
        whole = Scatter(Broadcast(init, [ct.shape.element_count]), place, source, scatter, update_window_dims=(),
                        inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=place.shape.rank)
        return [reshape(whole, ct.shape.dimensions)]

    return derived(composed, [source, init_value, place], [ct])


vjp("select-and-scatter", source=_source, init_value=_start)
