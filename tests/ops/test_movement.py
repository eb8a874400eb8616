"""Data movement and constants: against real XLA for every element type, the documents' examples, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import ALL, INTS
from support.oracle import needs_xla, run_xla
from support.same_bits import assert_same, filled, program
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.shape import Shape
from xla_torch.types import BF16, F32, PRED, S32, U8

ops: Any = xla_torch.ops  # which take tensors for XlaOps

# --------------------------------------------------------------------------------------------- every type against real XLA

EVERY_TYPE = [
    ("[2,3]", "[2,4,3]", "broadcast(p), dimensions={0,2}"),
    ("[3]", "[2,4,3]", "broadcast(p), dimensions={2}"),
    ("[2,3]", "[3,4,2]", "broadcast(p), dimensions={2,0}"),
    ("[2,3]", "[3,2,1]", "reshape(p)"),
    ("[2,3,4]", "[4,2,3]", "transpose(p), dimensions={2,0,1}"),
    ("[2,3,4]", "[2,3,4]", "reverse(p), dimensions={0,2}"),
    ("[4,7]", "[2,3]", "slice(p), slice={[1:3], [0:6:2]}"),
    ("[2,3]", "[2,9]", "concatenate(p, p, p), dimensions={1}"),
    ("[2,3]", "[2,3]", "copy(p)"),
    ("[3,4]", "[5,4]", "pad(p, v), padding=1_1x1_-1"),
    ("[3,4]", "[6,11]", "pad(p, v), padding=0_1_1x-1_2_2"),
]


@needs_xla
@pytest.mark.parametrize(("given", "result", "body"), EVERY_TYPE, ids=[body for _, _, body in EVERY_TYPE])
def test_movement_of_every_type(given: str, result: str, body: str) -> None:
    """Real XLA moves the elements' positions, and for every type the elements must go the same ways."""
    dims = [int(n) for n in given[1:-1].split(",")]

    def text(element_type: str) -> str:
        return program(f"p = {element_type}{given} parameter(0)", f"v = {element_type}[] parameter(1)",
                       f"r = {element_type}{result} {body}")

    positions = np.arange(np.prod(dims), dtype=np.int32).reshape(dims)
    moved = run_xla(text("s32"), positions, np.int32(positions.size))[0]
    for element_type in ALL:
        values = filled(element_type, positions.size + 1)
        got = xla_torch.parse_hlo(text(element_type)).run_numpy(values[:-1].reshape(dims), values[-1])[0]
        assert got.tobytes() == values[moved].tobytes(), element_type


PADDINGS = ["1_2", "-1_2", "0_0_1", "-1_-1_1", "-4_0_1", "2_-3_2", "0_-7_2", "-6_8_1", "-2_-2_0", "-3_-2_3"]


@needs_xla
@pytest.mark.parametrize("value", ["v = f32[] constant(-0.5)", "v = f32[] parameter(1)"])
@pytest.mark.parametrize("config", PADDINGS)
def test_pad(config: str, value: str) -> None:
    text = program("p = f32[4] parameter(0)", value, f"r = f32[{_padded(4, config)}] pad(p, v), padding={config}")
    arguments = (np.arange(4, dtype=np.float32), np.float32(7))
    assert_same(text, *arguments[:1 + ("parameter" in value)])


def _padded(size: int, config: str) -> int:
    low, high, interior = ([int(x) for x in config.split("_")] + [0])[:3]
    return low + size + max(size - 1, 0) * interior + high


@needs_xla
def test_pad_of_nothing() -> None:
    text = program("p = s32[0] parameter(0)", "v = s32[] constant(9)", "r = s32[2] pad(p, v), padding=1_1_3")
    assert_same(text, np.zeros(0, np.int32))


@needs_xla
def test_pad_crops_what_it_pads() -> None:
    text = program("p = s32[0,2] parameter(0)", "v = s32[] constant(9)", "r = s32[0,3] pad(p, v), padding=1_-1x4_-3")
    assert_same(text, np.zeros((0, 2), np.int32))


@pytest.mark.parametrize("value", ["(-inf, nan)", "(-0.0, 1)", "(1, -0.0)", "(2, -inf)"])
@pytest.mark.parametrize("config", ["1_0", "-1_2", "1_1_2"])
def test_pad_with_odd_complex_numbers(value: str, config: str) -> None:
    text = program("p = c64[4] parameter(0)", f"v = c64[] constant({value})",
                   f"r = c64[{_padded(4, config)}] pad(p, v), padding={config}")
    p = np.array([1 + 2j, -0.0, 3, 4j], np.complex64)
    (got,), (want,) = xla_torch.parse_hlo(text).run_numpy(p), run_xla(text, p)
    assert got.view(np.uint32).tolist() == want.view(np.uint32).tolist()


def test_pad_keeps_large_integers() -> None:
    text = program("p = s64[1] parameter(0)", "v = s64[] constant(4611686018427387905)", "r = s64[2] pad(p, v), padding=1_0")
    assert xla_torch.parse_hlo(text).run_numpy(np.array([3]))[0].tolist() == [2**62 + 1, 3]


@needs_xla
@pytest.mark.parametrize("element_type", [*INTS, "s4", "u4", "f16", "bf16", "f32", "f64", "f8e5m2", "c64"])
def test_iota(element_type: str) -> None:
    for shape, dimension in (("[4,8]", 0), ("[4,8]", 1), ("[300]", 0), ("[2,3000]", 1)):
        assert_same(program(f"r = {element_type}{shape} iota(), iota_dimension={dimension}"))


@needs_xla
def test_large_iota_is_made_at_run_time() -> None:
    assert_same(program("r = u8[300,300] iota(), iota_dimension=1"))
    assert_same(program("r = bf16[70000] iota(), iota_dimension=0"))


@needs_xla
@pytest.mark.parametrize("text", [
    program("p = f32[2,3] parameter(0)", "r = f32[2,3] slice(p), slice={[0:2], [0:3]}"),
    program("p = f32[2,3] parameter(0)", "r = f32[0,3] slice(p), slice={[1:1], [0:3]}"),
    program("p = f32[2,3] parameter(0)", "r = f32[2,3] transpose(p), dimensions={0,1}"),
    program("p = f32[2,3] parameter(0)", "r = f32[2,3] reverse(p), dimensions={}"),
    program("p = f32[2,3] parameter(0)", "r = f32[2,3] broadcast(p), dimensions={0,1}"),
    program("p = f32[2,3] parameter(0)", "q = f32[2,0] slice(p), slice={[0:2], [0:0]}",
            "r = f32[2,3] concatenate(q, p), dimensions={1}"),
    program("p = f32[2,3] parameter(0)", "t = f32[3,2] transpose(p), dimensions={1,0}", "r = f32[6] reshape(t)"),
], ids=["slice-all", "slice-nothing", "identity", "reverse-nothing", "broadcast-nothing", "concatenate-empty", "strided-reshape"])
def test_corners(text: str) -> None:
    assert_same(text, np.arange(6, dtype=np.float32).reshape(2, 3))


# --------------------------------------------------------------------------------------------- the documents' examples

_V = torch.tensor([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]], [[30, 31, 32], [35, 36, 37]],
                   [[40, 41, 42], [45, 46, 47]]], dtype=torch.float32)
_OLD = [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47]
_ROWS = torch.arange(12).reshape(4, 3)

EXAMPLES = [
    (lambda: ops.Broadcast(torch.tensor(2.0), [2, 3]), [[2.0] * 3] * 2),
    (lambda: ops.BroadcastInDim(torch.tensor([1, 2]), [2, 2], [0]), [[1, 1], [2, 2]]),
    (lambda: ops.BroadcastInDim(torch.tensor([1, 2]), [2, 2], [1]), [[1, 2], [1, 2]]),
    (lambda: ops.BroadcastInDim(torch.tensor([[1, 2]]), [3, 2], [0, 1]), [[1, 2]] * 3),
    (lambda: ops.Reshape(_V, [24]), _V.flatten().tolist()),
    (lambda: ops.Reshape(_V, [8, 3]), _V.reshape(8, 3).tolist()),
    (lambda: ops.Reshape(_V, [1, 2, 0], [24]), _OLD),
    (lambda: ops.Reshape(_V, [1, 2, 0], [8, 3]), np.reshape(_OLD, (8, 3)).tolist()),
    (lambda: ops.Reshape(_V, [1, 2, 0], [2, 6, 2]), np.reshape(_OLD, (2, 6, 2)).tolist()),
    (lambda: ops.Reshape(Shape.array(F32, [3, 8]), _V), _V.reshape(3, 8).tolist()),
    (lambda: ops.Reshape(torch.tensor([[5.0]]), []), 5.0),
    (lambda: ops.Reshape(torch.tensor(5.0), [1, 1]), [[5.0]]),
    (lambda: ops.ReshapeWithInferredDimension(_V, [-1, 3], 0), _V.reshape(8, 3).tolist()),
    (lambda: ops.Collapse(_V, [0, 1]), _V.reshape(8, 3).tolist()),
    (lambda: ops.Collapse(_V, [1, 2]), _V.reshape(4, 6).tolist()),
    (lambda: ops.Collapse(_V, [0, 1, 2]), _V.flatten().tolist()),
    (lambda: ops.Collapse(_V, [1]), _V.tolist()),
    (lambda: ops.Transpose(_ROWS, [1, 0]), _ROWS.T.tolist()),
    (lambda: ops.Rev(_ROWS, [0]), _ROWS.flip(0).tolist()),
    (lambda: ops.Slice(torch.arange(5.0), [2], [4]), [2.0, 3.0]),
    (lambda: ops.Slice(_ROWS, [2, 1], [4, 3]), [[7, 8], [10, 11]]),
    (lambda: ops.Slice(torch.arange(6), [1], [6], [2]), [1, 3, 5]),
    (lambda: ops.SliceInDim(_ROWS, 1, 3, 1, 0), [[3, 4, 5], [6, 7, 8]]),
    (lambda: ops.ConcatInDim(None, [torch.tensor([2, 3]), torch.tensor([4, 5]), torch.tensor([6, 7])], 0), [2, 3, 4, 5, 6, 7]),
    (lambda: ops.Concatenate(None, [torch.tensor([[1, 2], [3, 4], [5, 6]]), torch.tensor([[7, 8]])], 0),
     [[1, 2], [3, 4], [5, 6], [7, 8]]),
    (lambda: ops.Pad(torch.tensor([1, 2, 3, 4]), 0, [(-1, 2, 0)]), [2, 3, 4, 0, 0]),
    (lambda: ops.Pad(torch.tensor([1, 2, 3, 4]), 9, [(0, 0, 1)]), [1, 9, 2, 9, 3, 9, 4]),
    (lambda: ops.Pad(torch.tensor([1, 2, 3, 4]), 9, [(-1, -1, 1)]), [9, 2, 9, 3, 9]),
    (lambda: ops.Pad(torch.tensor([1, 2, 3, 4]), 9, [(-4, 0, 1)]), [3, 9, 4]),
    (lambda: ops.PadInDim(torch.tensor([[1], [2]]), 0, 1, 1, 2), [[0, 1, 0, 0], [0, 2, 0, 0]]),
    (lambda: ops.Copy(torch.tensor([1, 2])), [1, 2]),
]


@pytest.mark.parametrize(("call", "want"), EXAMPLES)
def test_examples(call, want) -> None:
    assert call().tolist() == want


BUILDER_EXAMPLES = [
    (lambda b: ops.Iota(b, Shape.array(S32, [4, 8]), 0), [[row] * 8 for row in range(4)]),
    (lambda b: ops.Iota(b, Shape.array(S32, [4, 8]), 1), [list(range(8))] * 4),
    (lambda b: ops.Iota(b, U8, 300), [i % 256 for i in range(300)]),
    (lambda b: ops.Constant(b, [1, 2]), [1, 2]),
    (lambda b: ops.Constant(b, 3, F32), 3.0),
    (lambda b: ops.ConstantLiteral(b, np.array([True, False])), [True, False]),
    (lambda b: ops.ConstantR0(b, 1.5), 1.5),
    (lambda b: ops.ConstantR1(b, [1, 2, 3]), [1, 2, 3]),
    (lambda b: ops.ConstantR1(b, 3, 7), [7, 7, 7]),
    (lambda b: ops.ConstantR2(b, [[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (lambda b: ops.ConstantR3(b, [[[1]]]), [[[1]]]),
    (lambda b: ops.ConstantR4(b, [[[[1.0]]]], BF16), [[[[1.0]]]]),
]


@pytest.mark.parametrize(("build", "want"), BUILDER_EXAMPLES)
def test_constants(build, want) -> None:
    builder = XlaBuilder("constants")
    assert builder.build(build(builder))().tolist() == want


@pytest.mark.parametrize(("value", "kind"), [
    (True, "pred"), (3, "s32"), (2**31, "s64"), (2**63, "u64"), (1.5, "f32"), (1j, "c64"), (np.uint8(3), "u8"),
    (np.float64(3), "f64"), (np.float16(2), "f16"), (np.bool_(1), "pred"), (np.array(3, np.uint16), "u16"),
    (np.complex128(1j), "c128"),
], ids=repr)
@pytest.mark.parametrize("function", [ops.Constant, ops.ConstantR0])
def test_types_of_constants(function, value, kind) -> None:
    assert function(XlaBuilder("constants"), value).shape.element_type.text == kind


def test_parameters() -> None:
    builder = XlaBuilder("parameters")
    y = ops.Parameter(builder, 1, Shape.array(F32, [2]), "y", replicated_at_leaf_buffers=[True])
    x = ops.Parameter(builder, 0, Shape.array(F32, [2]), "x")
    with pytest.raises(InvalidArgument, match="parameter 1 already registered"):
        ops.Parameter(builder, 1, Shape.array(F32, [2]), "z")
    computation = builder.build(x - y)
    assert computation.program_shape.parameter_names == ("x", "y")
    assert computation(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 1.0])).tolist() == [2.0, 3.0]


def test_views_do_not_copy() -> None:
    text = program("p = f32[2,3] parameter(0)", "b = f32[4,2,3] broadcast(p), dimensions={1,2}",
                   "s = f32[4,2,2] slice(b), slice={[0:4], [0:2], [1:3]}", "r = f32[2,4,2] transpose(s), dimensions={1,0,2}")
    code = xla_torch.parse_hlo(text).python_code()
    assert ".expand(" in code
    assert ".permute(" in code
    assert "kernels" not in code


# --------------------------------------------------------------------------------------------- refusals


def _p(*dims: int, element_type=F32) -> XlaOp:
    builder = XlaBuilder("refused")
    return builder.parameter(0, Shape.array(element_type, dims))


REFUSALS = [
    (lambda: ops.Broadcast(_p(2), [-1]), "a size is negative"),
    (lambda: ops.BroadcastInDim(_p(2), [2, 3], []), "one entry of broadcast_dimensions"),
    (lambda: ops.BroadcastInDim(_p(2), [2, 3], [2]), "out of range"),
    (lambda: ops.BroadcastInDim(_p(2, 3), [3, 2], [1, 0]), "not strictly increasing"),
    (lambda: ops.BroadcastInDim(_p(2), [2, 3], [1]), "does not fit the result"),
    (lambda: ops.Reshape(_p(2, 3), [7]), "mismatched element counts"),
    (lambda: ops.Collapse(_p(2, 3, 4), [0, 2]), "not a run"),
    (lambda: ops.Collapse(_p(2, 3), [1, 2]), "not a run"),
    (lambda: ops.Collapse(_p(2, 3), [2]), "not a run"),
    (lambda: ops.Collapse(_p(2, 3), [-1]), "not a run"),
    (lambda: ops.Transpose(_p(2, 3), [0]), "permutation"),
    (lambda: ops.Transpose(_p(2, 3), [0, 0]), "permutation"),
    (lambda: ops.Rev(_p(2, 3), [0, 0]), "twice"),
    (lambda: ops.Rev(_p(2, 3), [2]), "out of range"),
    (lambda: ops.Slice(_p(5), [-1], [3]), "start index is negative"),
    (lambda: ops.Slice(_p(5), [0], [6]), "limit index is beyond"),
    (lambda: ops.Slice(_p(5), [3], [2]), "beyond the limit"),
    (lambda: ops.Slice(_p(5), [0], [2], [0]), "stride is not positive"),
    (lambda: ops.Slice(_p(5), [0, 0], [2, 2]), "one \\[start:limit:stride\\]"),
    (lambda: ops.Slice(_p(5), [0], [2, 2]), "differ in number"),
    (lambda: ops.SliceInDim(_p(5), 0, 1, 1, 1), "out of range"),
    (lambda: ops.ConcatInDim(XlaBuilder("none"), [], 0), "at least one operand"),
    (lambda: ops.ConcatInDim((x := _p()).builder, [x, x], 0), "out of range"),
    (lambda: ops.ConcatInDim((x := _p(2, 3)).builder, [x, ops.Reshape(x, [6])], 0), "ranks differ"),
    (lambda: ops.ConcatInDim((x := _p(2, 3)).builder, [x, ops.Reshape(x, [3, 2])], 0), "sizes differ in dimension 1"),
    (lambda: ops.ConcatInDim((x := _p(2)).builder, [x, ops.ConstantR1(x.builder, [1, 2])], 0), "element types differ"),
    (lambda: ops.Pad(_p(2), 0.0, [(0, 0, -1)]), "interior padding is negative"),
    (lambda: ops.Pad(_p(2), 0.0, [(-3, 0, 0)]), "padded size is negative"),
    (lambda: ops.Pad(_p(2), 0.0, []), "one low_high_interior"),
    (lambda: ops.Pad(_p(2), 0.0, [(0, 0)]), "not \\(low, high, interior\\)"),
    (lambda: ops.Pad((x := _p(2)), x, [(0, 0, 0)]), "not a scalar"),
    (lambda: ops.Pad((x := _p(2)), ops.ConstantR0(x.builder, 1), [(0, 0, 0)]), "different element types"),
    (lambda: ops.PadInDim(_p(2), 0.0, 1, 0, 0), "out of range"),
    (lambda: ops.Iota(XlaBuilder("iota"), Shape.array(S32, []), 0), "out of range"),
    (lambda: ops.Iota(XlaBuilder("iota"), Shape.array(S32, [2]), 1), "out of range"),
    (lambda: ops.Iota(XlaBuilder("iota"), Shape.array(PRED, [2]), 0), "PRED"),
    (lambda: ops.Iota(XlaBuilder("iota"), Shape.array(S32, [2], [True]), 0), "dynamic"),
    (lambda: ops.ConstantR1(XlaBuilder("constant"), [[1]]), "another rank"),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=[m for _, m in REFUSALS])
def test_refusals(call, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        call()
    assert str(caught.value).split(":", 1)[0].split(" ")[0]


@pytest.mark.parametrize(("text", "message"), [
    (program("p = f32[2,3] parameter(0)", "r = f32[2,3] broadcast(p), dimensions={0}"), "one entry of dimensions"),
    (program("p = f32[2] parameter(0)", "r = f32[3] broadcast(p), dimensions={0}"), "sizes differ"),
    (program("p = f32[2,2] parameter(0)", "r = f32[2,2] broadcast(p), dimensions={0,0}"), "twice"),
])
def test_raw_broadcast_is_exact(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        xla_torch.parse_hlo(text)


# --------------------------------------------------------------------------------------------- dynamic sizes


def _summed(*body: str) -> str:
    add = "add {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT s = s32[] add(a, b)\n}\n"
    return program(*body, regions=add)


@needs_xla
@pytest.mark.parametrize("size", [0, 5, 6, 10])
def test_set_dimension_size_then_reduce(size: int) -> None:
    text = _summed("p = s32[10] parameter(0)", "n = s32[] parameter(1)",
                   "d = s32[<=10] set-dimension-size(p, n), dimensions={0}", "z = s32[] constant(0)",
                   "r = s32[] reduce(d, z), dimensions={0}, to_apply=add")
    assert_same(text, np.arange(1, 11, dtype=np.int32), np.int32(size))


DYNAMIC = [
    ("twice = s32[<=6] concatenate(d, d), dimensions={0}", "s32[<=6]", [1, 2, 1, 2]),
    ("c = s32[<=3] slice(d), slice={[0:3]}", "s32[<=3]", [1, 2]),
    ("c = s32[<=3] reverse(d), dimensions={0}", "s32[<=3]", [2, 1]),
    ("c = s32[<=3,2] broadcast(d), dimensions={0}", "s32[<=3,2]", [[1, 1], [2, 2]]),
    ("c = s32[2,<=3] broadcast(d), dimensions={1}", "s32[2,<=3]", [[1, 2], [1, 2]]),
    ("c = s32[<=3,1] reshape(d)", "s32[<=3,1]", [[1], [2]]),
    ("c = s32[] get-dimension-size(d), dimensions={0}", "s32[]", 2),
    ("e = s32[<=4] pad(d, n), padding=1_0", "s32[<=4]", [2, 1, 2]),
    ("e = s32[3] set-dimension-size(d, three), dimensions={0}", "s32[3]", [1, 2, 0]),
]


@pytest.mark.parametrize(("line", "shape", "want"), DYNAMIC, ids=[line for line, _, _ in DYNAMIC])
def test_dynamic_sizes_at_run_time(line: str, shape: str, want) -> None:
    text = program("p = s32[3] parameter(0)", "n = s32[] parameter(1)", "three = s32[] constant(3)",
                   "d = s32[<=3] set-dimension-size(p, n), dimensions={0}", line)
    assert str(xla_torch.parse_hlo(text).program_shape.result) == shape
    got = xla_torch.parse_hlo(text)(torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor(2, dtype=torch.int32))
    assert got.tolist() == want


def test_dynamic_reshape_takes_the_first_elements() -> None:
    got: Any = ops.DynamicReshape(torch.arange(6), [torch.tensor(2, dtype=torch.int32), 2], [2, 3], [False, True])
    assert got.tolist() == [[0, 1], [2, 3]]


def test_several_dynamic_dimensions_reshape() -> None:
    text = program("p = s32[4,6] parameter(0)", "n = s32[] constant(2)", "m = s32[] constant(3)",
                   "d = s32[<=4,6] set-dimension-size(p, n), dimensions={0}",
                   "e = s32[<=4,<=6] set-dimension-size(d, m), dimensions={1}", "r = s32[<=4,1,<=6] reshape(e)")
    got = xla_torch.parse_hlo(text)(torch.arange(24, dtype=torch.int32).reshape(4, 6))
    assert got.tolist() == [[[0, 1, 2]], [[6, 7, 8]]]


def test_dimension_size_functions() -> None:
    x: Any = torch.arange(1, 11, dtype=torch.int32)
    run: Any = ops
    assert run.GetDimensionSize(x, 0).tolist() == 10
    assert run.SetDimensionSize(x, 5, 0).tolist() == [1, 2, 3, 4, 5]
    builder = XlaBuilder("sizes")
    v = builder.parameter(0, Shape.array(S32, [10]))
    assert ops.SetDimensionSize(v, 10, 0).shape.is_static
    dynamic = ops.SetDimensionSize(v, 4, 0)
    assert str(dynamic.shape) == "s32[<=10]"
    assert str(ops.RemoveDynamicDimension(dynamic, 0).shape) == "s32[10]"


@pytest.mark.parametrize(("call", "message"), [
    (lambda: ops.GetDimensionSize(_p(2), 1), "out of range"),
    (lambda: ops.SetDimensionSize(_p(2), 1, 1), "out of range"),
    (lambda: ops.SetDimensionSize((x := _p(2)), x, 0), "not an s32 scalar"),
    (lambda: ops.DynamicReshape(_p(6), [2], [2, 3], [True, True]), "differ in number"),
    (lambda: ops.DynamicReshape(_p(6), [2, 3], [2, 4], [True, True]), "mismatched element counts"),
])
def test_dynamic_refusals(call, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        call()
