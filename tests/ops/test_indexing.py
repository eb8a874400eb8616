"""Dynamic slices, gather and scatter: against real XLA with many dimension numbers, types and combiners."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import FLOATS, INTS, dtype_of
from support.gathered_windows import Dimensions, braces, draw, indices_for
from support.oracle import needs_xla
from support.same_bits import assert_same, filled, plain, program
from xla_torch.builder import XlaBuilder
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels import indexing as kernels
from xla_torch.kernels import points as point_kernels
from xla_torch.shape import Shape
from xla_torch.types import F32, S32

ops: Any = xla_torch.ops  # which take tensors for XlaOps


@pytest.fixture(params=["host", "device"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels as they run on the CPU, and as they run where no tensor may be read."""
    if request.param == "device":
        monkeypatch.setattr(kernels, "on_host", lambda tensor: False)
    return request.param


def shape_text(element_type: str, dims) -> str:
    return f"{element_type}[{','.join(map(str, dims))}]"


# --------------------------------------------------------------------------------------------- dynamic slices

INDEX_VALUES = {"s32": [-5, 0, 2, 9], "u32": [0, 2, 4294967295, 2147483648], "u8": [0, 2, 200], "s8": [-128, 1], "s16": [1, -3],
                "u16": [2, 65535], "s64": [-(2**40), 2**40, 1], "u64": [1, 2**63, 2**64 - 1]}


@needs_xla
@pytest.mark.parametrize("index_type", INDEX_VALUES)
def test_dynamic_slice_and_update(index_type: str, reading: str) -> None:
    starts = "".join(f"{n} = {index_type}[] parameter({i})\n" for i, n in ((1, "i"), (2, "j"))).strip().split("\n")
    slice_text = program("p = f32[4,5] parameter(0)", *starts, "r = f32[2,3] dynamic-slice(p, i, j), dynamic_slice_sizes={2,3}")
    update_text = program("p = f32[4,5] parameter(0)", *starts, "u = f32[2,3] parameter(3)",
                          "r = f32[4,5] dynamic-update-slice(p, u, i, j)")
    values = [np.array(v, dtype_of(index_type)) for v in INDEX_VALUES[index_type]]
    for k, i in enumerate(values):
        j = values[(k + 1) % len(values)]
        assert_same(slice_text, plain("f32", 4, 5), i, j)
        assert_same(update_text, plain("f32", 4, 5), i, j, -plain("f32", 2, 3))


@needs_xla
@pytest.mark.parametrize("element_type", ["pred", "s8", "u32", "bf16", "f64", "c64"])
def test_dynamic_slices_of_types(element_type: str, reading: str) -> None:
    starts = ["i = s32[] parameter(2)", "z = s32[] constant(0)"]
    operand, update = filled(element_type, 4, 2, 5), filled(element_type, 4, 1, 2, seed=1)
    for index in (-1, 1, 7):
        assert_same(program(f"p = {element_type}[4,2,5] parameter(0)", f"u = {element_type}[4,1,2] parameter(1)", *starts,
                            f"r = {element_type}[4,2,5] dynamic-update-slice(p, u, z, z, i)"), operand, update, np.int32(index))
        assert_same(program(f"p = {element_type}[4,2,5] parameter(0)", f"u = {element_type}[4,1,2] parameter(1)", *starts,
                            f"r = {element_type}[4,1,2] dynamic-slice(p, z, i, i), dynamic_slice_sizes={{4,1,2}}"),
                    operand, update, np.int32(index))


@needs_xla
@pytest.mark.parametrize("start", [-3, 1, 100])
def test_constant_starts_are_clamped(start: int) -> None:
    lines = ("p = f32[4,3] parameter(0)", f"i = s32[] constant({start})", "z = s32[] constant(0)")
    text = program(*lines, "r = f32[2,3] dynamic-slice(p, i, z), dynamic_slice_sizes={2,3}")
    assert "kernels" not in xla_torch.parse_hlo(text).python_code()
    assert_same(text, plain("f32", 4, 3))
    assert_same(program(*lines, "u = f32[2,3] parameter(1)", "r = f32[4,3] dynamic-update-slice(p, u, i, z)"),
                plain("f32", 4, 3), -plain("f32", 2, 3))


def test_old_index_vector() -> None:
    text = program("p = s32[4,3] parameter(0)", "i = s32[2] parameter(1)",
                   "r = s32[2,2] dynamic-slice(p, i), dynamic_slice_sizes={2,2}")
    got = xla_torch.parse_hlo(text).run_numpy(np.arange(12, dtype=np.int32).reshape(4, 3), np.array([2, 1], np.int32))[0]
    assert got.tolist() == [[7, 8], [10, 11]]


_ROWS = torch.arange(12).reshape(4, 3)

EXAMPLES = [
    (lambda: ops.DynamicSlice(torch.arange(5.0), [torch.tensor(2)], [2]), [2.0, 3.0]),
    (lambda: ops.DynamicSlice(_ROWS, [torch.tensor(2), torch.tensor(1)], [2, 2]), [[7, 8], [10, 11]]),
    (lambda: ops.DynamicSlice(_ROWS, [2, 1], [2, 2]), [[7, 8], [10, 11]]),
    (lambda: ops.DynamicSlice(_ROWS, torch.tensor([2, 1]), [2, 0]), [[], []]),
    (lambda: ops.DynamicSliceInDim(_ROWS, torch.tensor(1), 1, 0), [[3, 4, 5]]),
    (lambda: ops.DynamicUpdateSlice(torch.arange(5), torch.tensor([5, 6]), [torch.tensor(2)]), [0, 1, 5, 6, 4]),
    (lambda: ops.DynamicUpdateSlice(_ROWS, torch.tensor([[12, 13], [14, 15], [16, 17]]), [torch.tensor(1), torch.tensor(1)]),
     [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]]),
    (lambda: ops.DynamicUpdateSliceInDim(torch.arange(4), torch.tensor([9]), torch.tensor(7), 0), [0, 1, 2, 9]),
]


@pytest.mark.parametrize(("call", "want"), EXAMPLES)
def test_examples(call, want, reading: str) -> None:
    assert call().tolist() == want


def test_updates_in_place_are_the_same() -> None:
    operand, update = torch.randn(4, 5), torch.randn(2, 3)
    for starts in ((1, 1), (9, -9), (torch.tensor(1), 2), (torch.tensor(3), torch.tensor(0))):
        buffer = operand.clone()
        want = kernels.dynamic_update_slice(operand, update, starts)
        assert kernels.dynamic_update_slice_(buffer, update, starts) is buffer
        assert torch.equal(buffer, want)


# --------------------------------------------------------------------------------------------- gather


@needs_xla
@pytest.mark.parametrize("seeds", [range(k, k + 10) for k in range(0, 80, 10)], ids=str)
def test_gather(seeds: range) -> None:
    for seed in seeds:
        dims = draw(seed)
        index_type = ("s32", "s64", "u8", "u32", "s8")[seed % 5]
        text = program(
            f"p = {shape_text('f32', dims.operand)} parameter(0)", f"i = {shape_text(index_type, dims.indices)} parameter(1)",
            f"r = {shape_text('f32', dims.result)} gather(p, i), {dims.attributes(True)}, slice_sizes={braces(dims.window)}")
        assert_same(text, plain("f32", *dims.operand), indices_for(dims, seed, index_type))


GATHERS = {
    # name: operand, indices, result, attributes, call in the program
    "rows": ((4, 3), (3, 1), (3, 3), "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
             "slice_sizes={1,3}", "take"),
    "rows-2d": ((4, 3), (2, 3), (2, 3, 3), "offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, "
                "slice_sizes={1,3}", "take"),
    "columns": ((4, 3), (5, 1), (4, 5), "offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, "
                "slice_sizes={4,1}", "take"),
    "scalar": ((4, 3), (1,), (3,), "offset_dims={0}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, "
               "slice_sizes={1,3}", "take"),
    "points": ((4, 3), (6, 2), (6,), "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, "
               "slice_sizes={1,1}", "gather"),
    "windows": ((16, 11), (5, 2), (5, 8, 6), "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, "
                "index_vector_dim=1, slice_sizes={8,6}", "gather"),
    "along": ((4, 3), (4, 2, 1), (4, 2), "offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=2, "
              "slice_sizes={1,1}, operand_batching_dims={0}, start_indices_batching_dims={0}", "gather"),
    "nothing": ((4, 3), (0, 1), (0, 3), "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
                "slice_sizes={1,3}", "take"),
}


@needs_xla
@pytest.mark.parametrize("element_type", ["f32", "pred", "u16", "bf16", "c128"])
@pytest.mark.parametrize("form", GATHERS)
def test_known_gathers(form: str, element_type: str) -> None:
    operand, indices, result, attributes, call = GATHERS[form]
    text = program(f"p = {shape_text(element_type, operand)} parameter(0)", f"i = {shape_text('s32', indices)} parameter(1)",
                   f"r = {shape_text(element_type, result)} gather(p, i), {attributes}")
    assert f"indexing.{call}(" in xla_torch.parse_hlo(text).python_code()
    assert_same(text, filled(element_type, *operand), np.random.default_rng(0).integers(-2, 12, indices, np.int32))


# --------------------------------------------------------------------------------------------- scatter


def combiner(element_type: str, body: str) -> str:
    return (f"combine {{\n  a = {element_type}[] parameter(0)\n  b = {element_type}[] parameter(1)\n"
            + "\n".join("  " + line.strip() for line in body.format(t=element_type).strip().splitlines()) + "\n}\n")


SIMPLE = {name: f"ROOT r = {{t}}[] {name}(a, b)" for name in
          ("add", "multiply", "minimum", "maximum", "and", "or", "xor", "subtract")}
SIMPLE |= {"second": "ROOT r = {t}[] copy(b)", "first": "ROOT r = {t}[] copy(a)"}
ODD = {
    "twice-a-plus-b": "s = {t}[] add(a, a)\nROOT r = {t}[] add(s, b)",
    "b-minus-a": "ROOT r = {t}[] subtract(b, a)",
    "forgets-both": "ROOT r = {t}[] constant(1)",
}


def scatter_program(dims: Dimensions, element_type: str, body: str, index_type: str = "s32", options: str = "") -> str:
    return program(
        f"p = {shape_text(element_type, dims.operand)} parameter(0)", f"i = {shape_text(index_type, dims.indices)} parameter(1)",
        f"u = {shape_text(element_type, dims.result)} parameter(2)",
        f"r = {shape_text(element_type, dims.operand)} scatter(p, i, u), {dims.attributes(False)}, to_apply=combine{options}",
        regions=combiner(element_type, body))


@needs_xla
@pytest.mark.parametrize("name", ["add", "second", "twice-a-plus-b"])
@pytest.mark.parametrize("seeds", [range(k, k + 16) for k in range(0, 48, 16)], ids=str)
def test_scatter_dimension_numbers(seeds: range, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        dims, index_type = draw(seed), ("s32", "s64", "u8", "u32", "s8")[seed % 5]
        text = scatter_program(dims, "s32", (SIMPLE | ODD)[name], index_type)
        arguments = plain("s32", *dims.operand), indices_for(dims, seed, index_type), 100 * plain("s32", *dims.result)
        assert_same(text, *arguments)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "on_host", lambda tensor: False)
            assert_same(text, *arguments)


ROWS = Dimensions([5, 3], [1, 3], [0], [], [0], [9, 1], 1, [], [1])
POINTS = Dimensions([40], [1], [0], [], [0], [60, 1], 1, [], [])
COMBINATIONS = [(t, c) for t in [*INTS, *FLOATS, "pred", "c64", "s4", "u4", "f8e5m2"] for c in SIMPLE
                if not (c in ("and", "or", "xor") and t in (*FLOATS, "c64", "f8e5m2"))
                and not (c == "subtract" and t == "pred") and not (c in ("minimum", "maximum") and t == "c64")
                and not (c == "xor" and t in ("s8", "u16", "s64"))]


@needs_xla
@pytest.mark.parametrize(("element_type", "name"), COMBINATIONS, ids=[f"{t}-{c}" for t, c in COMBINATIONS])
def test_combiners(element_type: str, name: str, reading: str) -> None:
    text = scatter_program(POINTS, element_type, SIMPLE[name])
    values = filled(element_type, 100)
    if name in ("add", "multiply", "subtract") and element_type in (*FLOATS, "c64"):
        values = (np.random.default_rng(5).integers(-6, 7, 100) / 4).astype(values.dtype)
        values[:7] *= -0.0
    assert_same(text, values[:40], np.random.default_rng(6).integers(-3, 43, (60, 1), np.int32), values[40:])


@pytest.mark.parametrize("element_type", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "multiply"])
def test_half_precision(name: str, element_type: str) -> None:
    """Whether each step rounds or only the last is open; an upcast in the combiner is no reason to go another way."""
    rng = np.random.default_rng(8)
    updates = (1 + rng.random((9, 3)) / 8).astype(dtype_of(element_type))
    indices = rng.integers(0, 3, (9, 1), np.int32)
    want = np.ones((5, 3))
    for row, update in zip(indices[:, 0], updates.astype(np.float64), strict=True):
        want[row] = want[row] + update if name == "add" else want[row] * update
    wide = f"x = f32[] convert(a)\ny = f32[] convert(b)\ns = f32[] {name}(x, y)\nROOT r = {{t}}[] convert(s)"
    for body in (SIMPLE[name], wide):
        computation = xla_torch.parse_hlo(scatter_program(ROWS, element_type, body))
        assert "scatter_by_rounds" not in computation.python_code()
        got = computation.run_numpy(np.ones((5, 3), updates.dtype), indices, updates)[0]
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0.02 if element_type == "bf16" else 0.002)


@needs_xla
@pytest.mark.parametrize("name", [*SIMPLE, *ODD])
def test_combiners_on_windows(name: str, reading: str) -> None:
    rng = np.random.default_rng(7)
    text = scatter_program(ROWS, "s32", (SIMPLE | ODD)[name])
    assert_same(text, rng.integers(0, 99, (5, 3), np.int32), rng.integers(-1, 6, (9, 1), np.int32),
                rng.integers(0, 99, (9, 3), np.int32))


def test_updates_of_one_element_come_in_order(reading: str) -> None:
    count = 30_000
    dims = Dimensions([7, 2], [1, 2], [0], [], [0], [count, 1], 1, [], [1])
    indices = np.random.default_rng(9).integers(0, 7, (count, 1), np.int32)
    updates = np.arange(2 * count, dtype=np.int32).reshape(count, 2)
    computation = xla_torch.parse_hlo(scatter_program(dims, "s32", SIMPLE["second"]))
    got = computation.run_numpy(np.zeros((7, 2), np.int32), indices, updates)[0]
    last = {int(i): k for k, i in enumerate(indices[:, 0])}
    assert got.tolist() == [updates[last[row]].tolist() for row in range(7)]


@needs_xla
def test_promises_change_nothing(reading: str) -> None:
    dims = dataclasses.replace(ROWS, indices=[3, 1])
    for options in (", unique_indices=true", ", indices_are_sorted=true, unique_indices=true"):
        for indices in ([[0], [2], [4]], [[0], [3], [7]]):
            text = scatter_program(dims, "f32", SIMPLE["second"], options=options)
            assert_same(text, plain("f32", 5, 3), np.array(indices, np.int32), -plain("f32", 3, 3))


@needs_xla
def test_a_window_partly_outside_writes_nothing(reading: str) -> None:
    dims = Dimensions([4, 3], [2, 2], [], [], [0, 1], [2], 0, [], [0, 1])
    for start in ([3, 2], [2, 1], [-1, 0], [0, 0]):
        text = scatter_program(dims, "s32", SIMPLE["add"])
        assert_same(text, plain("s32", 4, 3), np.array(start, np.int32), plain("s32", 2, 2))


def test_empty_index_vectors_mean_the_start(reading: str) -> None:
    dims = Dimensions([4], [1], [0], [], [], [3, 0], 1, [], [])
    text = scatter_program(dims, "s32", SIMPLE["add"])
    arguments = plain("s32", 4), np.zeros((3, 0), np.int32), plain("s32", 3)
    assert xla_torch.parse_hlo(text).run_numpy(*arguments)[0].tolist() == [7, 2, 3, 4]


_EXAMPLE_INDICES = [[[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]], [[[0, 0], [2, 1], [2, 2]], [[1, 2], [0, 1], [1, 0]]]]


@pytest.mark.parametrize(("window", "first_rows"), [
    ((1, 2), [[3, 4], [4, 5], [5, 6], [7, 8]]), ((2, 2), [[3, 4], [6, 7], [6, 7], [7, 8]])])
def test_documented_scatter(window: tuple[int, int], first_rows: list[list[int]]) -> None:
    builder = XlaBuilder("add")
    a, b = (builder.parameter(k, Shape(S32)) for k in range(2))
    numbers = ops.ScatterDimensionNumbers(
        update_window_dims=(3, 4), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(2, 1), index_vector_dim=3,
        input_batching_dims=(0,), scatter_indices_batching_dims=(1,))
    operand = torch.arange(1, 49, dtype=torch.int32).reshape(2, 3, 4, 2)
    updates = torch.ones(2, 2, 3, *window, dtype=torch.int32)
    got: Any = ops.Scatter(operand, torch.tensor(_EXAMPLE_INDICES), updates, builder.build(a + b), numbers)
    assert got[0, 0].tolist() == first_rows


@needs_xla
@pytest.mark.parametrize("known", [True, False])
def test_several_operands(known: bool, reading: str) -> None:
    second = "t1 = f32[] copy(b1)" if known else "t1 = f32[] select(greater, b1, a1)"
    region = f"""combine {{
  a0 = s32[] parameter(0)
  a1 = f32[] parameter(1)
  b0 = s32[] parameter(2)
  b1 = f32[] parameter(3)
  greater = pred[] compare(b0, a0), direction=GT
  t0 = s32[] maximum(a0, b0)
  {second}
  ROOT t = (s32[], f32[]) tuple(t0, t1)
}}
"""
    text = program("p = s32[6] parameter(0)", "q = f32[6] parameter(1)", "i = s32[20,1] parameter(2)", "u = s32[20] parameter(3)",
                   "v = f32[20] parameter(4)", "r = (s32[6], f32[6]) scatter(p, q, i, u, v), update_window_dims={}, "
                   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=combine",
                   regions=region)
    rng = np.random.default_rng(11)
    assert_same(text, np.zeros(6, np.int32), np.zeros(6, np.float32), rng.integers(-1, 7, (20, 1), np.int32),
                rng.integers(-5, 50, 20, np.int32), rng.normal(size=20).astype(np.float32))


def documented_scatter(operand: torch.Tensor, indices: np.ndarray, updates: torch.Tensor, dims: Dimensions, function: Any,
                       whole: bool) -> torch.Tensor:
    """The documents' formula, index by index: dropped is what is out of bounds, or with `whole` the window that sticks out."""
    if dims.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    window_of = [d for d in range(operand.dim()) if d not in dims.absent + dims.batching]
    scatter_dims = [d for d in range(updates.dim()) if d not in dims.window_dims]
    order = [*scatter_dims, *dims.window_dims]
    index_places = [d - (d > dims.index_vector_dim) for d in dims.index_batching]
    for at in np.ndindex(*(updates.shape[d] for d in order)):
        point, offset = at[:len(scatter_dims)], at[len(scatter_dims):]
        vector = np.moveaxis(indices, dims.index_vector_dim, -1)[point]
        start = [0] * operand.dim()
        for place, component in zip(dims.index_map, vector, strict=True):
            start[place] = int(component)
        for place, d in zip(dims.batching, index_places, strict=True):
            start[place] = point[d]
        full = list(start)
        for place, n in zip(window_of, offset, strict=True):
            full[place] += n
        ends = [s + w for s, w in zip(start, dims.window, strict=True)]
        inside = (all(s >= 0 for s in start) and all(e <= n for e, n in zip(ends, operand.shape, strict=True)) if whole
                  else all(0 <= k < n for k, n in zip(full, operand.shape, strict=True)))
        if inside:
            update = updates[tuple(at[order.index(d)] for d in range(updates.dim()))]
            operand = operand.index_put(tuple(torch.tensor(k) for k in full), function(operand[tuple(full)], update))
    return operand


FUNCTIONS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b, "second": lambda a, b: b}


@pytest.mark.slow
@pytest.mark.parametrize("out_of_bounds", ["window", "element"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_scatter_drops(name: str, out_of_bounds: str) -> None:
    """Windows that stick out, or only their elements outside: values, gradients, and what real XLA makes of the program."""
    builder = XlaBuilder("combine")
    combine = builder.build(FUNCTIONS[name](*(builder.parameter(k, Shape(F32)) for k in range(2))))
    for seed in range(24):
        dims, index_type = draw(seed), ("s32", "s64", "u8", "u32", "s8")[seed % 5]
        numbers = ops.ScatterDimensionNumbers(dims.window_dims, dims.absent, dims.index_map, dims.index_vector_dim, dims.batching,
                                              dims.index_batching)
        indices = indices_for(dims, seed, index_type)
        torch.manual_seed(seed)
        operand, updates = (torch.randn(n).requires_grad_() for n in (dims.operand, dims.result))
        got = ops.Scatter(operand, torch.from_numpy(indices), updates, combine, numbers, out_of_bounds=out_of_bounds)
        want = documented_scatter(operand, indices, updates, dims, FUNCTIONS[name], out_of_bounds == "window")
        torch.testing.assert_close(got, want)
        ct = torch.randn_like(want)
        for found, expected in zip(torch.autograd.grad(got, (operand, updates), ct, allow_unused=True),
                                   torch.autograd.grad((want * ct).sum() + 0 * updates.sum(), (operand, updates)), strict=True):
            torch.testing.assert_close(torch.zeros_like(expected) if found is None else found, expected)


@needs_xla
def test_a_scatter_that_drops_elements_is_a_program_of_xla() -> None:
    builder = XlaBuilder("p")
    shapes = ("s32[4,3]", "u32[5,2]", "s32[5,2,2]")
    operand, indices, updates = (builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes))
    numbers = ops.ScatterDimensionNumbers((1, 2), (), (0, 1), 1)
    built = ops.Scatter(operand, indices, updates, lambda a, b: a + b, numbers, out_of_bounds="element")
    text = builder.build(built).to_hlo_text()
    places = np.array([[3, 2], [0, 0], [2**32 - 1, 0], [2, 2**31], [1, 1]], np.uint32)
    assert_same(text, plain("s32", 4, 3), places, 100 * plain("s32", 5, 2, 2))


NATIVE = [(t, c) for t, c in COMBINATIONS
          if c in ("add", "subtract", "multiply", "minimum", "maximum", "second") and t not in ("s4", "u4", "f8e5m2", "pred")]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not is_available():
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))


@needs_xla
@pytest.mark.parametrize(("element_type", "name"), NATIVE, ids=[f"{t}-{c}" for t, c in NATIVE])
def test_combiners_in_native_code(element_type: str, name: str, at_once: None) -> None:
    test_combiners(element_type, name, "host")


@pytest.fixture
def not_in_torch(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (point_kernels.gather, point_kernels.scatter_):
        monkeypatch.setattr(point_kernels, function.__name__,
                            functools.partial(lambda f, *args, in_torch, **given: f(*args, in_torch=_fail, **given), function))


def _fail() -> Any:
    pytest.fail("in torch")


@needs_xla
def test_gathers_in_native_code(not_in_torch: None) -> None:
    for seed in range(48):
        test_gather(range(seed, seed + 1))


@needs_xla
def test_dimension_numbers_in_native_code(not_in_torch: None) -> None:
    for seed in range(48):
        dims, index_type = draw(seed), ("s32", "s64", "u8", "u32", "s8")[seed % 5]
        assert_same(scatter_program(dims, "s32", SIMPLE["add"], index_type), plain("s32", *dims.operand),
                    indices_for(dims, seed, index_type), 100 * plain("s32", *dims.result))


@needs_xla
@pytest.mark.parametrize("update", [
    "r = s64[4] scatter(y, i, y), update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=0, to_apply=second",
    "r = s64[4] scatter(y, i, s), update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=0, to_apply=second",
    "r = s64[4] dynamic-update-slice(y, s, z)"])
def test_an_update_by_what_it_writes_over(update: str) -> None:
    """The operand dies here, but is read beside it."""
    second = "second {\n  a = s64[] parameter(0)\n  ROOT b = s64[] parameter(1)\n}"
    text = program("x = s64[4] parameter(0)", "i = s32[1] parameter(1)", "z = s32[] constant(1)", "y = s64[4] add(x, x)",
                   "s = s64[3] slice(y), slice={[0:3]}", update, regions=second)
    assert_same(text, plain("s64", 4), np.zeros(1, np.int32))


def test_scatter_in_place_is_the_same() -> None:
    operand, indices, updates = torch.randn(5, 6), torch.tensor([[1], [4], [1]]), torch.randn(3, 6)
    dims: Any = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
                 "index_vector_dim": 1}
    for name in sorted(kernels.COMBINERS):
        for buffer in (operand.clone(), operand.t().contiguous().t()):
            want = kernels.scatter(operand, indices, updates, name, **dims)
            assert kernels.scatter_(buffer, indices, updates, name, **dims) is buffer
            assert torch.equal(buffer, want)
