"""Differential tests on drawn programs: hypothesis draws shapes (0 and 1 among the sizes), element types and attributes, the
documented functions build a computation, and its HLO text runs here and on real XLA.

A row is an op: how it is built from what is drawn, the element types it is drawn with, and how close results must be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import xla_torch
from agreement import dtype_of
from contraction_rows import assert_close, random_array
from oracle import needs_xla, run_xla
from xla_torch import Shape, XlaBuilder, XlaOp, ops
from xla_torch.types import type_from_text

Draw = Callable[..., Any]
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
NUMBERS = (*INTEGERS, *FLOATS)
ALL = ("pred", *NUMBERS, "c64", "c128")


class Drawn:
    """A program being drawn: its builder and parameters, and what an op's row may draw."""

    def __init__(self, draw: Draw, element_type: str):
        self.draw, self.element_type = draw, element_type
        self.builder = XlaBuilder("drawn")
        self.shapes: list[str] = []

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def choice(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def dims(self, least: int = 0, most: int = 4, smallest: int = 0) -> list[int]:
        return self.draw(st.lists(st.sampled_from([n for n in (0, 1, 2, 3, 5) if n >= smallest]), min_size=least, max_size=most))

    def order(self, rank: int) -> list[int]:
        return self.draw(st.permutations(range(rank)))

    def some(self, rank: int) -> list[int]:
        """Some of the dimensions, ascending."""
        return [d for d in range(rank) if self.flag()]

    def array(self, dims: list[int], element_type: str = "") -> XlaOp:
        """A parameter of random values."""
        text = f"{element_type or self.element_type}[{','.join(map(str, dims))}]"
        self.shapes.append(text)
        return ops.Parameter(self.builder, len(self.shapes) - 1, Shape.parse(text), f"p{len(self.shapes) - 1}")

    def scalar(self, value: int = 0) -> XlaOp:
        kind = type_from_text(self.element_type)
        return self.builder.constant(value, kind)

    def limit(self, which: str) -> XlaOp:
        """0, 1, or the lowest or highest value of the type."""
        if which in "01":
            return self.scalar(int(which))
        kind = self.scalar().element_type
        if kind.is_floating:
            return self.builder.constant(np.array(-np.inf if which == "lowest" else np.inf), kind)
        limits = np.iinfo(dtype_of(self.element_type))
        return self.builder.constant(np.array(limits.min if which == "lowest" else limits.max, dtype_of(self.element_type)))

    def index(self, low: int, high: int) -> XlaOp:
        return ops.ConstantR0(self.builder, np.array(self.integer(low, high), np.int32))

    def reducer(self, function: Callable[[XlaOp, XlaOp], XlaOp]) -> Any:
        builder = XlaBuilder("reducer")
        shape = Shape.array(self.scalar().element_type)
        function(ops.Parameter(builder, 0, shape, "a"), ops.Parameter(builder, 1, shape, "b"))
        return builder.build()


def _broadcast(d: Drawn) -> XlaOp:
    out = d.dims(0, 4)
    kept = d.some(len(out))
    operand = [out[k] if d.flag() else 1 for k in kept]
    return ops.BroadcastInDim(d.array(operand), out, kept)


def _reshape(d: Drawn) -> XlaOp:
    dims = d.dims(1, 4, smallest=1)
    flat = ops.Reshape(d.array(dims), [int(np.prod(dims))])
    return ops.Reshape(flat, [*reversed(dims)])


def _transpose(d: Drawn) -> XlaOp:
    dims = d.dims()
    return ops.Transpose(d.array(dims), d.order(len(dims)))


def _reverse(d: Drawn) -> XlaOp:
    dims = d.dims(1)
    return ops.Rev(d.array(dims), d.some(len(dims)))


def _slice(d: Drawn) -> XlaOp:
    dims = d.dims(1)
    starts = [d.integer(0, n) for n in dims]
    limits = [d.integer(s, n) for s, n in zip(starts, dims, strict=True)]
    return ops.Slice(d.array(dims), starts, limits, [d.integer(1, 3) for _ in dims])


def _pad(d: Drawn) -> XlaOp:
    dims = d.dims(1, 3)
    config = []
    for n in dims:
        interior = d.integer(0, 2)
        size = n + max(n - 1, 0) * interior
        low = d.integer(-min(size, 3), 3)
        config.append((low, d.integer(-min(size + low, 2), 3), interior))
    return ops.Pad(d.array(dims), d.array([]), config)


def _concatenate(d: Drawn) -> XlaOp:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    parts = [d.array([*dims[:at], d.integer(0, 4), *dims[at + 1:]]) for _ in range(d.integer(1, 3))]
    return ops.ConcatInDim(d.builder, parts, at)


def _dynamic_slice(d: Drawn) -> XlaOp:
    dims = d.dims(1, 3)
    return ops.DynamicSlice(d.array(dims), [d.index(-2, 6) for _ in dims], [d.integer(0, n) for n in dims])


def _dynamic_update_slice(d: Drawn) -> XlaOp:
    dims = d.dims(1, 3)
    update = d.array([d.integer(0, n) for n in dims])
    return ops.DynamicUpdateSlice(d.array(dims), update, [d.index(-2, 6) for _ in dims])


def _take(d: Drawn) -> XlaOp:
    dims, points = d.dims(1, 3, smallest=1), d.dims(0, 2)
    axis = d.integer(0, len(dims) - 1)
    # Random indices are mostly out of bounds: that is the case to get right.
    indices = ops.Rem(d.array(points, "s32"), ops.ConstantR0(d.builder, np.array(7, np.int32)))
    offsets = [k for k in range(len(dims) + len(points) - 1) if not axis <= k < axis + len(points)]
    return ops.Gather(d.array(dims), indices, ops.GatherDimensionNumbers(
        offset_dims=offsets, collapsed_slice_dims=[axis], start_index_map=[axis], index_vector_dim=len(points)),
        [1 if k == axis else n for k, n in enumerate(dims)])


def _scatter(combine: Callable[[XlaOp, XlaOp], XlaOp]) -> Callable[[Drawn], XlaOp]:
    def build(d: Drawn) -> XlaOp:
        rows, width, count = d.integer(1, 5), d.integer(0, 3), d.integer(0, 6)
        indices = ops.Rem(d.array([count], "s32"), ops.ConstantR0(d.builder, np.array(7, np.int32)))
        return ops.Scatter(d.array([rows, width]), indices, d.array([count, width]), d.reducer(combine),
                           ops.ScatterDimensionNumbers(update_window_dims=[1], inserted_window_dims=[0],
                                                       scatter_dims_to_operand_dims=[0], index_vector_dim=1))
    return build


def _reduce(combine: Callable[[XlaOp, XlaOp], XlaOp], identity: str) -> Callable[[Drawn], XlaOp]:
    def build(d: Drawn) -> XlaOp:
        dims = d.dims(1)
        # Another init than the reducer's identity takes part as often as XLA likes.
        return ops.Reduce(d.array(dims), d.limit(identity), d.reducer(combine), d.some(len(dims)) or [0])
    return build


def _reduce_window(combine: Callable[[XlaOp, XlaOp], XlaOp]) -> Callable[[Drawn], XlaOp]:
    def build(d: Drawn) -> XlaOp:
        dims = d.dims(1, 3, smallest=1)
        each = [d.integer(1, 3) for _ in dims]
        return ops.ReduceWindowWithGeneralPadding(
            d.array(dims), d.scalar(0), d.reducer(combine), each, [d.integer(1, 2) for _ in dims],
            [d.integer(1, 2) for _ in dims], [d.integer(1, 2) for _ in dims], [(d.integer(0, 2), d.integer(0, 2)) for _ in dims])
    return build


def _sort(d: Drawn) -> XlaOp:
    dims = d.dims(1, 3)
    builder = XlaBuilder("less")
    shape = Shape.array(d.scalar().element_type)
    a, b = ops.Parameter(builder, 0, shape, "a"), ops.Parameter(builder, 1, shape, "b")
    (ops.Gt if d.flag() else ops.Lt)(a, b)
    return ops.Sort([d.array(dims)], builder.build(), d.integer(0, len(dims) - 1), is_stable=True)


def _dot(d: Drawn) -> XlaOp:
    batch, contract = d.dims(0, 2), d.dims(0, 2)
    free = [d.dims(0, 1), d.dims(0, 1)]
    sides = []
    for own in free:
        labels = [("b", k, n) for k, n in enumerate(batch)] + [("c", k, n) for k, n in enumerate(contract)] + \
                 [("f", k, n) for k, n in enumerate(own)]
        order = d.draw(st.permutations(labels))
        where = {label[:2]: place for place, label in enumerate(order)}
        sides.append(([label[2] for label in order], where))
    (lhs, left), (rhs, right) = sides
    numbers = ops.DotDimensionNumbers(
        lhs_contracting_dimensions=tuple(left["c", k] for k in range(len(contract))),
        rhs_contracting_dimensions=tuple(right["c", k] for k in range(len(contract))),
        lhs_batch_dimensions=tuple(left["b", k] for k in range(len(batch))),
        rhs_batch_dimensions=tuple(right["b", k] for k in range(len(batch))))
    return ops.DotGeneral(d.array(lhs), d.array(rhs), numbers)


def _convolution(d: Drawn) -> XlaOp:
    spatial = d.integer(1, 2)
    groups, per_group, out = d.integer(1, 2), d.integer(1, 2), d.integer(1, 2)
    size, window = [d.integer(1, 6) for _ in range(spatial)], [d.integer(1, 3) for _ in range(spatial)]
    lhs = d.array([d.integer(1, 2), groups * per_group, *size])
    rhs = d.array([groups * out, per_group, *window])
    first = list(range(2, 2 + spatial))
    numbers = ops.ConvolutionDimensionNumbers(0, 1, tuple(first), 1, 0, tuple(first), 0, 1, tuple(first))
    return ops.ConvGeneralDilated(
        lhs, rhs, [d.integer(1, 2) for _ in size], [(d.integer(-1, 2), d.integer(0, 2)) for _ in size],
        [d.integer(1, 2) for _ in size], [d.integer(1, 2) for _ in size], numbers, feature_group_count=groups,
        window_reversal=[d.flag() for _ in size])


def _unary(function: Callable[[XlaOp], XlaOp]) -> Callable[[Drawn], XlaOp]:
    return lambda d: function(d.array(d.dims()))


def _binary(function: Callable[[XlaOp, XlaOp], XlaOp]) -> Callable[[Drawn], XlaOp]:
    def build(d: Drawn) -> XlaOp:
        dims = d.dims()
        return function(d.array(dims), d.array([n if d.flag() else 1 for n in dims] if d.flag() else []))
    return build


def _convert(d: Drawn) -> XlaOp:
    kind = type_from_text(d.choice("pred", *NUMBERS))
    assert kind is not None
    return ops.ConvertElementType(d.array(d.dims()), kind)


def _select(d: Drawn) -> XlaOp:
    dims = d.dims()
    return ops.Select(d.array(dims if d.flag() else [], "pred"), d.array(dims), d.array(dims))


def _clamp(d: Drawn) -> XlaOp:
    dims = d.dims()
    return ops.Clamp(d.array([]), d.array(dims), d.array([]))


ROWS: dict[str, tuple[Callable[[Drawn], XlaOp], tuple[str, ...]]] = {
    "broadcast": (_broadcast, ALL), "reshape": (_reshape, ALL), "transpose": (_transpose, ALL), "reverse": (_reverse, ALL),
    "slice": (_slice, ALL), "pad": (_pad, ALL), "concatenate": (_concatenate, ALL), "dynamic-slice": (_dynamic_slice, ALL),
    "dynamic-update-slice": (_dynamic_update_slice, ALL), "gather": (_take, ALL),
    "scatter add": (_scatter(ops.Add), (*INTEGERS, "f32", "f64")), "scatter max": (_scatter(ops.Max), NUMBERS),
    "scatter min": (_scatter(ops.Min), NUMBERS), "scatter set": (_scatter(lambda a, b: ops.Add(b, b)), NUMBERS),
    "reduce add": (_reduce(ops.Add, "0"), (*INTEGERS, "f32", "f64", "c64")), "reduce max": (_reduce(ops.Max, "lowest"), NUMBERS),
    "reduce min": (_reduce(ops.Min, "highest"), NUMBERS), "reduce multiply": (_reduce(ops.Mul, "1"), (*INTEGERS, "f64")),
    "reduce-window add": (_reduce_window(ops.Add), (*INTEGERS, "f32", "f64")),
    "reduce-window max": (_reduce_window(ops.Max), NUMBERS),
    "sort": (_sort, NUMBERS), "dot": (_dot, (*INTEGERS, "f32", "f64", "c64")),
    "convolution": (_convolution, ("s32", "f32", "f64")), "convert": (_convert, ("pred", *NUMBERS)),
    "select": (_select, ALL), "clamp": (_clamp, NUMBERS), "negate": (_unary(ops.Neg), (*NUMBERS, "c64")),
    "abs": (_unary(ops.Abs), ("s8", "s16", "s32", "s64", *FLOATS)), "tanh": (_unary(ops.Tanh), ("f32", "f64")),
    "floor": (_unary(ops.Floor), FLOATS), "popcnt": (_unary(ops.PopulationCount), INTEGERS),
    "count-leading-zeros": (_unary(ops.Clz), INTEGERS), "add": (_binary(ops.Add), ALL), "multiply": (_binary(ops.Mul), ALL),
    "subtract": (_binary(ops.Sub), NUMBERS), "divide": (_binary(ops.Div), NUMBERS), "remainder": (_binary(ops.Rem), NUMBERS),
    "maximum": (_binary(ops.Max), NUMBERS), "minimum": (_binary(ops.Min), NUMBERS), "less": (_binary(ops.Lt), NUMBERS),
    "equal": (_binary(ops.Eq), ALL), "xor": (_binary(ops.Xor), ("pred", *INTEGERS)),
    "shift-left": (_binary(ops.ShiftLeft), INTEGERS), "shift-right-logical": (_binary(ops.ShiftRightLogical), INTEGERS),
}


@st.composite
def programs(draw: Draw, name: str) -> tuple[str, list[np.ndarray]]:
    build, types = ROWS[name]
    drawn = Drawn(draw, draw(st.sampled_from(types)))
    computation = drawn.builder.build(build(drawn))
    seed = draw(st.integers(0, 1000))
    return computation.to_hlo_text(), [random_array(s, seed + k) for k, s in enumerate(drawn.shapes)]


def check(name: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
              phases=(Phase.generate, Phase.shrink))
    @given(programs(name))
    def agrees(program: tuple[str, list[np.ndarray]]) -> None:
        text, arrays = program
        want = run_xla(text, *arrays)
        got = xla_torch.parse_hlo(text).run_numpy(*arrays)
        for g, w in zip(got, want, strict=True):
            assert_close(np.asarray(g), np.asarray(w))

    agrees()


@needs_xla
@pytest.mark.parametrize("name", ROWS)
def test_drawn_programs_agree_with_xla(name):
    check(name, examples=6)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_many_drawn_programs_agree_with_xla(name):
    check(name, examples=150)
