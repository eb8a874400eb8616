# pyright: reportCallIssue=false, reportArgumentType=false
"""Numbers, element types, names and layouts are taken where they are exact, and refused in words where they are not: on tensors,
in builders and as arguments. The rule about numbers is written in `hlo/numbers.py`."""

# pyright: reportArgumentType=false
# What is given here is wrong on purpose.

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla, xla_accepts
from xla_torch import BF16, C64, F16, F32, PRED, S4, S8, S32, U8, U32, U64, PrimitiveType, Shape, XlaBuilder, XlaOp, ops
from xla_torch.errors import InvalidArgument, XlaError
from xla_torch.types import F4E2M1FN, F8E4M3FN, F8E5M2, F8E8M0FNU

# ------------------------------------------------------------------------------------------- numbers

TAKEN: list[tuple[PrimitiveType, Any, Any]] = [  # type, number, what it is there
    (S32, 3, 3), (S32, True, 1), (S32, np.int64(-7), -7), (S8, -128, -128), (S8, 127, 127), (U8, 255, 255),
    (U64, 2**64 - 1, 2**64 - 1),
    (S4, -8, -8), (S4, 7, 7), (PRED, True, True), (PRED, 0, False), (PRED, 1, True), (S32, np.array([1, 2]), [1, 2]),
    (F32, 0.1, np.float32(0.1)), (F32, 2**24, 2.0**24), (F32, np.float64(0.1), np.float32(0.1)), (F32, True, 1.0),
    (F32, math.inf, math.inf), (F32, math.nan, math.nan), (F32, 1e-60, 0.0), (BF16, 0.1, 0.10009765625), (BF16, 256, 256),
    (BF16, 257.0, 256), (F16, 65504, 65504), (F16, 65519.0, 65504), (F8E4M3FN, 448, 448), (F8E5M2, math.inf, math.inf),
    (F4E2M1FN, 0.3, 0.5), (F8E8M0FNU, 0.5, 0.5), (C64, 1, 1), (C64, 0.5, 0.5), (C64, 1 + 2j, 1 + 2j),
    (F32, np.array([0.5, 0.25]), [0.5, 0.25]), (BF16, np.arange(3), [0, 1, 2]),
]

REFUSED: list[tuple[PrimitiveType, Any, str]] = [
    (S32, 1.5, "another kind of number"), (S32, 2.0, "another kind of number"), (S32, np.float32(1), "another kind of number"),
    (S32, 2**31, "out of range"), (S8, 300, "out of range"), (S8, -129, "out of range"), (U8, -1, "out of range"),
    (U32, -1, "out of range"), (U64, 2**64, "out of range"), (S4, 8, "out of range"), (PRED, 2, "out of range"),
    (PRED, 0.5, "another kind of number"), (S32, 1j, "another kind of number"), (F32, 1j, "another kind of number"),
    (F32, 2**24 + 1, "not exact"), (F32, 10**400, "not exact"), (BF16, 257, "not exact"), (F32, 1e300, "out of range"),
    (F16, 65520.0, "out of range"), (F8E4M3FN, 500.0, "out of range"), (F8E4M3FN, math.inf, "out of range"),
    (F4E2M1FN, 7.0, "out of range"), (F4E2M1FN, math.nan, "out of range"), (F8E8M0FNU, 0.0, "out of range"),
    (F8E8M0FNU, -1.0, "out of range"), (C64, 1e300j, "out of range"), (S8, np.array([1, 300]), "out of range"),
    (S32, np.array([0.5]), "another kind of number"), (F32, np.array([2**24 + 1]), "not exact"),
    (F32, np.array([1e300]), "out of range"), (F32, None, "None"), (F32, "1", "'1'"), (F32, [1.0], "sequence|kind"),
    (S32, np.array(["a"]), "NumPy dtype"), (S32, np.array([None]), "NumPy dtype"),
]


def beside(element_type: PrimitiveType, value: Any) -> XlaOp:
    x = XlaBuilder("b").parameter(0, Shape.array(element_type, np.shape(value)))
    return ops.Max(x, value)


def value_of(op: XlaOp) -> np.ndarray:
    return op.instruction.operands[1].attributes["literal"].array


@pytest.mark.parametrize(("element_type", "value", "want"), TAKEN)
def test_numbers_that_a_type_holds(element_type: PrimitiveType, value: Any, want: Any) -> None:
    got = value_of(beside(element_type, value))
    assert got.dtype == element_type.numpy
    np.testing.assert_array_equal(np.real(got) if np.isrealobj(want) else got, np.asarray(want))
    constant = ops.Constant(XlaBuilder("c"), value, element_type)
    assert constant.instruction.attributes["literal"].array.tobytes() == got.tobytes()


@pytest.mark.parametrize(("element_type", "value", "what"), REFUSED)
def test_numbers_that_a_type_does_not_hold(element_type: PrimitiveType, value: Any, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what) as caught:
        beside(element_type, value)
    assert caught.value.got != ""
    assert caught.value.expected != ""
    if value is not None and not isinstance(value, (str, list)):
        with pytest.raises(InvalidArgument):
            ops.Constant(XlaBuilder("c"), value, element_type)


@pytest.mark.parametrize("build", [
    lambda x: ops.Add(x, 1.5), lambda x: ops.Add(2**40, x), lambda x: x + 1.5, lambda x: 1.5 * x, lambda x: x < 0.5,
    lambda x: ops.Select(ops.Gt(x, 0), x, 0.5), lambda x: ops.Clamp(0.5, x, 3), lambda x: ops.Pad(x, 0.5, [(1, 1, 0)]),
    lambda x: ops.DynamicUpdateSlice(x, np.array([0.5]), [0]), lambda x: ops.DynamicSlice(x, [2**40], [1]),
    lambda x: ops.SetDimensionSize(x, 2**31, 0), lambda x: ops.RngUniform(0.5, 3, Shape.array(S32, [2])),
    lambda x: ops.Atan2(x, 0.5), lambda x: ops.NextAfter(0.5, x), lambda x: ops.Compare(x, 0.5, "LT"),
])
def test_every_place_for_a_number_has_the_rule(build: Callable[[Any], Any]) -> None:
    """On an op and on a tensor, s32[2]."""
    for x in (XlaBuilder("b").parameter(0, Shape.array(S32, [2])), torch.ones(2, dtype=torch.int32)):
        if isinstance(x, XlaOp) or re.search(r"ops\.", inspect.getsource(build).splitlines()[0]) is None:
            with pytest.raises((InvalidArgument, TypeError)):
                build(x)


def test_a_cached_number_is_not_another_kind_of_number() -> None:
    x = torch.ones(2, dtype=torch.int32)
    assert ops.Add(x, 2).tolist() == ops.Add(x, np.int32(2)).tolist() == [3, 3]
    for other in (2.0, np.float32(2), 2 + 0j):
        with pytest.raises(InvalidArgument):
            ops.Add(x, other)


def _short_name(value: object) -> str:
    return "object" if type(value) is object else str(value)[:40]


CONSTANTS_REFUSED = [2**64, [1, 2**40], 1e300, [1.0, 1e300], [[1], [2, 3]], "a", None, ["a"], object(), {1: 2}, 10**400, 1e300j]


@pytest.mark.parametrize("value", CONSTANTS_REFUSED, ids=_short_name)
def test_constants_out_of_range_are_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        ops.Constant(value)
    assert ops.Constant(2**40).dtype == torch.int64


ARGUMENTS_REFUSED = [("s32[]", 1.5), ("s8[]", 300), ("f32[]", 1e300), ("pred[]", 2),
                     ("s4[2]", torch.tensor([1, 100], dtype=torch.int8)), ("u2[1]", torch.tensor([4], dtype=torch.uint8)),
                     ("f4e2m1fn[2]", torch.tensor([1.0, 7.0])), ("f8e4m3[1]", torch.tensor([500.0])),
                     ("s1[]", torch.tensor(1, dtype=torch.int8)), ("s4[]", 8)]


@pytest.mark.parametrize(("shape", "value"), ARGUMENTS_REFUSED)
def test_arguments_out_of_range_are_refused(shape: str, value: Any) -> None:
    program = xla_torch.parse_hlo(f"ENTRY e {{ ROOT p = {shape} parameter(0) }}")
    with pytest.raises(InvalidArgument):
        program(value)


def test_arguments_in_range_are_taken() -> None:
    program = xla_torch.parse_hlo("ENTRY e { p = s4[2] parameter(0) ROOT r = s4[2] add(p, p) }")
    assert program(torch.tensor([-4, 3], dtype=torch.int8)).tolist() == [-8, 6]


    program = xla_torch.parse_hlo("ENTRY e { ROOT p = f8e4m3[3] parameter(0) }")
    assert program(torch.tensor([0.5, 240.0, math.inf])).tolist() == [0.5, 240.0, math.inf]


@pytest.mark.parametrize("sizes", [(0, 3), (2, 0), (0,)])
def test_empty_batches_warn_of_nothing(sizes: tuple[int, ...]) -> None:
    feature = len(sizes) - 1
    ones = torch.ones(sizes[feature])
    out, mean, variance = ops.BatchNormTraining(torch.zeros(sizes), ones, ones, 0.5, feature)
    assert (out.shape, mean.shape, variance.shape) == (sizes, ones.shape, ones.shape)
    assert mean.isnan().all()
    assert variance.isnan().all()


# ------------------------------------------------------------------------------------------- mixed floating types

MIXED: list[tuple[Callable[..., Any], bool]] = [  # of x: f32[2,2] and y: bf16[2,2], and whether XLA has it
    *((getattr(ops, name), False) for name in ("Add", "Sub", "Mul", "Div", "Rem", "Max", "Min", "Pow", "Atan2", "Eq", "Lt",
                                               "NeTotalOrder")),
    (lambda x, y: ops.Select(ops.Eq(x, x), x, y), False), (lambda x, y: ops.Clamp(x, y, x), False),
    (lambda x, y: ops.ConcatInDim([x, y], 0), False),
    (lambda x, y: ops.Pad(x, ops.Constant(x.builder, 0.0, BF16), [(0, 1, 0)] * 2), False),
    (lambda x, y: ops.DynamicUpdateSlice(x, y, [0, 0]), False),
    (lambda x, y: ops.TriangularSolve(x, y, True, True, False, "TRANSPOSE"), False),
    (lambda x, y: ops.BatchNormTraining(x, *[ops.Reshape(ops.SliceInDim(y, 0, 1, 1, 0), [2])] * 2, 0.5, 1), False),
    (ops.Dot, True), (lambda x, y: ops.Tuple([x, y]), True), (lambda x, y: ops.Sort([x, y], less(F32, BF16)), True),
    (lambda x, y: ops.Conv(ops.Reshape(x, [1, 2, 2]), ops.Reshape(y, [1, 2, 2]), [1], ops.Padding.VALID), True),
]


def less(*types: PrimitiveType) -> Any:
    builder = XlaBuilder("less")
    taken = [builder.parameter(k, Shape(types[k // 2])) for k in range(2 * len(types))]
    return builder.build(ops.Lt(taken[0], taken[1]))


@needs_xla
@pytest.mark.parametrize(("build", "has"), MIXED)
def test_different_floating_types_meet_only_where_xla_has_it(build: Callable[..., Any], has: bool) -> None:
    builder = XlaBuilder("mixed")
    x, y = builder.parameter(0, Shape.array(F32, [2, 2])), builder.parameter(1, Shape.array(BF16, [2, 2]))
    if has:
        assert xla_accepts(builder.build(build(x, y)).to_hlo_text()) is None
        return
    with pytest.raises(XlaError, match=r"floating (or complex )?type|element type|expected  f32"):
        build(x, y)


def test_different_floating_types_are_refused_at_once_too() -> None:
    x, y = torch.ones(2), torch.ones(2, dtype=torch.bfloat16)
    for function in (ops.Add, ops.Max, ops.Eq, ops.Atan2):
        with pytest.raises(InvalidArgument, match="different floating types") as caught:
            function(x, y)
        assert "ConvertElementType" in caught.value.hint
    assert ops.Dot(x, y).dtype == torch.float32


# ------------------------------------------------------------------------------------------- element types

SPELLINGS = [
    (S32, [torch.int32, np.int32, np.dtype("int32"), "s32", "S32", "int32", "torch.int32", jnp.int32, S32]),
    (BF16, [torch.bfloat16, ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), "bf16", "bfloat16", jnp.bfloat16]),
    (F8E4M3FN, [torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, "f8e4m3fn", "float8_e4m3fn"]),
    (PRED, [torch.bool, np.bool_, bool, "pred", "bool", jnp.bool_]), (S4, [ml_dtypes.int4, "s4", "int4"]),
    (C64, [torch.complex64, np.complex64, "c64", "complex64"]), (U8, [torch.uint8, np.uint8, "u8", "uint8"]),
]


@pytest.mark.parametrize(("element_type", "spelling"), [(t, s) for t, spellings in SPELLINGS for s in spellings], ids=str)
def test_element_types_in_any_spelling(element_type: PrimitiveType, spelling: Any) -> None:
    assert Shape.array(spelling, [2]) == Shape.array(element_type, [2])
    builder = XlaBuilder("b")
    x = builder.parameter(0, Shape.array(S32, [2]))
    assert ops.ConvertElementType(x, spelling).element_type is element_type
    assert ops.Constant(builder, 0, spelling).element_type is element_type


@pytest.mark.parametrize("spelling", [int, float, complex, "f33", "int", "tuple", "token", xla_torch.types.TUPLE, np.object_,
                                      np.dtype("O"), np.number, torch.qint8, 3, None, torch.ones(2), np.ones(2), np.str_,
                                      "f32[2]", ["f32"]], ids=str)
def test_what_is_no_element_type(spelling: Any) -> None:
    for make in (lambda: Shape.array(spelling, [2]), lambda: ops.ConvertElementType(torch.ones(2), spelling)):
        with pytest.raises(InvalidArgument):
            make()


# ------------------------------------------------------------------------------------------- names and forms

A, B = np.arange(4, dtype=np.float32).reshape(2, 2), np.ones((2, 2), np.float32)


def sum_of() -> Any:
    builder = XlaBuilder("sum")
    return builder.build(ops.Add(builder.parameter(0, Shape(F32)), builder.parameter(1, Shape(F32))))


def sums_of() -> Any:
    builder = XlaBuilder("sums")
    a, b, c, d = (builder.parameter(k, Shape(F32)) for k in range(4))
    return builder.build(ops.Tuple(ops.Add(a, c), ops.Max(b, d)))


def whole() -> Any:
    builder = XlaBuilder("whole")
    return builder.build(ops.Sub(*(builder.parameter(k, Shape.array(F32, [2, 2])) for k in range(2))))


FORMS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [  # of x and y, f32[2,2]: another form, and the one that it means
    (lambda x, y: ops.ConcatInDim(x, y, 0), lambda x, y: ops.ConcatInDim([x, y], 0)),
    (lambda x, y: ops.ConcatInDim(x, y, dimension=1), lambda x, y: ops.ConcatInDim([x, y], 1)),
    (lambda x, y: ops.Concatenate(x, y, x, 0), lambda x, y: ops.Concatenate([x, y, x], 0)),
    (lambda x, y: ops.ConcatInDim(x, 0), lambda x, y: ops.ConcatInDim([x], 0)),
    (ops.Tuple, lambda x, y: ops.Tuple([x, y])), (lambda x, y: ops.Tuple(x), lambda x, y: ops.Tuple([x])),
    (lambda x, y: ops.Tuple(x, (y, x)), lambda x, y: ops.Tuple([x, (y, x)])),
    (lambda x, y: ops.Call(whole(), x, y), lambda x, y: ops.Call(whole(), [x, y])),
    (lambda x, y: ops.Map(x, y, sum_of(), [0, 1]), lambda x, y: ops.Map([x, y], sum_of(), [0, 1])),
    (lambda x, y: ops.Map(x, 2.0, sum_of(), [0, 1]), lambda x, y: ops.Map([x, 2.0], sum_of(), [0, 1])),
    (lambda x, y: ops.Sort(x, y, less(F32, F32)), lambda x, y: ops.Sort([x, y], less(F32, F32))),
    (lambda x, y: ops.Sort(x, less(F32), 0), lambda x, y: ops.Sort([x], less(F32), 0)),
    (lambda x, y: ops.Reduce(x, y, 0.0, 1.0, sums_of(), [0]), lambda x, y: ops.Reduce([x, y], [0.0, 1.0], sums_of(), [0])),
    (lambda x, y: ops.Reduce(x, 0.0, sum_of(), [0]), lambda x, y: ops.Reduce([x], [0.0], sum_of(), [0])),
    (lambda x, y: ops.ReduceWindow(x, y, 0.0, 1.0, sums_of(), [2, 2], [1, 1], "VALID"),
     lambda x, y: ops.ReduceWindow([x, y], [0.0, 1.0], sums_of(), [2, 2], [1, 1], ops.Padding.VALID)),
    (lambda x, y: ops.AddDependency(x, ops.AfterAll(ops.CreateToken(x.builder), ops.CreateToken(x.builder))),
     lambda x, y: ops.AddDependency(x, ops.AfterAll([ops.CreateToken(x.builder), ops.CreateToken(x.builder)]))),
    (lambda x, y: ops.CustomCall("f", x, y, x.shape, "o"), lambda x, y: ops.CustomCall(x.builder, "f", [x, y], x.shape, "o")),
    (lambda x, y: ops.Add(x, y, broadcast_dimension=[0, 1]), lambda x, y: ops.Add(x, y, broadcast_dimensions=[0, 1])),
    (lambda x, y: ops.BroadcastInDim(x, (3, 2, 2), broadcast_dimension=(1, 2)),
     lambda x, y: ops.BroadcastInDim(x, (3, 2, 2), (1, 2))),
    (lambda x, y: ops.BroadcastInDim(x, shape=(3, 2, 2), broadcast_dimensions=(1, 2)),
     lambda x, y: ops.BroadcastInDim(x, (3, 2, 2), (1, 2))),
    (lambda x, y: ops.Broadcast(x, sizes=(3,)), lambda x, y: ops.Broadcast(x, (3,))),
    (lambda x, y: ops.Sort(x.builder, [x], less(F32), 0), lambda x, y: ops.Sort([x], less(F32), 0)),
    (lambda x, y: ops.TopK(input=x, k=1), lambda x, y: ops.TopK(x, 1)),
    (lambda x, y: ops.NextAfter(**{"from": x, "to": y}), ops.NextAfter),
    (lambda x, y: ops.Iota(builder=x.builder, type=F32, size=3), lambda x, y: ops.Iota(x.builder, F32, 3)),
    (lambda x, y: ops.Gather(a=x, start_indices=ops.Constant(x.builder, [[1]]), dimension_numbers=numbers(), slice_sizes=(1, 2)),
     lambda x, y: ops.Gather(x, ops.Constant(x.builder, [[1]]), numbers(), (1, 2))),
    (lambda x, y: ops.Pad(x, 0.0, ops.PaddingConfig([(1, 0), ops.PaddingConfigDimension(0, 1, 1)])),
     lambda x, y: ops.Pad(x, 0.0, [(1, 0, 0), (0, 1, 1)])),
    (lambda x, y: ops.Dot(x, y, ops.PrecisionConfig([ops.Precision.HIGHEST, "HIGH"])),
     lambda x, y: ops.Dot(x, y, ["highest", "high"])),
    (lambda x, y: ops.Dot(x, y, preferred_element_type=torch.float64), lambda x, y: ops.Dot(x, y, None, xla_torch.F64)),
    (lambda x, y: ops.Fft(ops.Complex(x, y), ops.FftType.IFFT, [2]), lambda x, y: ops.Fft(ops.Complex(x, y), "IFFT", [2])),
    (lambda x, y: ops.RngBitGenerator(ops.RandomAlgorithm.RNG_PHILOX, state(x), Shape.array(U32, [2])),
     lambda x, y: ops.RngBitGenerator("rng_philox", state(x), Shape.array(U32, [2]))),
    (lambda x, y: ops.AllReduce(x, sum_of(), [ops.ReplicaGroup([0])]), lambda x, y: ops.AllReduce(x, sum_of(), [[0]])),
    (lambda x, y: ops.Exp(x, "highest"), lambda x, y: ops.Exp(x, ops.ResultAccuracy("highest"))),
    (lambda x, y: ops.Exp(x, ops.ResultAccuracy(ulps=2)), lambda x, y: ops.Exp(x, ops.ResultAccuracy("tolerance", ulps=2))),
    *((lambda x, y, p=p: ops.Conv(ops.Reshape(x, [1, 2, 2]), ops.Reshape(y, [1, 2, 2]), [1], p),
       lambda x, y: ops.Conv(ops.Reshape(x, [1, 2, 2]), ops.Reshape(y, [1, 2, 2]), [1], ops.Padding.SAME))
      for p in ("SAME", "same", "kSame", ops.Padding.kSame)),
]


def numbers() -> Any:
    return ops.GatherDimensionNumbers([1], [0], [0], 1)


def state(x: XlaOp) -> XlaOp:
    return ops.Constant(x.builder, np.array([1, 2], np.uint64))


@pytest.mark.parametrize(("form", "meant"), FORMS)
def test_forms_and_names_mean_the_same(form: Callable[..., Any], meant: Callable[..., Any]) -> None:
    texts = []
    for build in (form, meant):
        builder = XlaBuilder("b")
        x, y = (builder.parameter(k, Shape.array(F32, [2, 2])) for k in range(2))
        texts.append(builder.build(build(x, y)).to_hlo_text())
    assert texts[0] == texts[1]


def test_scaled_dot_takes_the_newest_documents_order() -> None:
    x, y = torch.ones(2, 4), torch.ones(4, 3)
    s, t = torch.full((2, 1), 2.0), torch.full((1, 3), 5.0)
    assert ops.ScaledDot(x, s, y, t, ops.DotDimensionNumbers((1,), (0,))).unique().tolist() == [40.0]


# ------------------------------------------------------------------------------------------- halves, classes, custom calls

def test_second_halves_at_once() -> None:
    x = torch.tensor([1.0, 2.0])
    ends = [ops.CopyDone(ops.CopyStart(x)), ops.AllReduceDone(ops.AllReduceStart(x, sum_of())),
            ops.AllGatherDone(ops.AllGatherStart(x, 0, 1)), ops.CollectivePermuteDone(ops.CollectivePermuteStart(x, [(0, 0)]))]
    assert [end.tolist() for end in ends] == [[1, 2]] * 4
    with pytest.raises(InvalidArgument, match="not what the operation's first half gives"):
        ops.CopyDone(x)
    op = XlaBuilder("b").parameter(0, Shape.parse("(f32[2], f32[2], u32[])"))
    with pytest.raises(InvalidArgument, match="is not the operation's first half"):
        ops.CopyDone(op)


CLASSES: list[tuple[Callable[..., Any], str]] = [
    (lambda: xla_torch.grad(lambda x: x), "grad"), (lambda: xla_torch.value_and_grad(lambda x: x), "value_and_grad"),
    (lambda: xla_torch.vjp(torch.sin), "vjp"), (lambda: xla_torch.jvp(3), "jvp"), (lambda: xla_torch.vmap(torch.sin, 3), "vmap"),
    (lambda: xla_torch.rebatch(torch.sin, 0, 3), "rebatch"), (lambda: xla_torch.compile(torch.sin), "compile"),
    (lambda: xla_torch.nn.XlaModule(torch.sin), "XlaModule"),
    (lambda: xla_torch.training_step(torch.sin, xla_torch.training.sgd(0.1)), "training_step"),
    (lambda: ops.DotGeneral(torch.ones(2), torch.ones(2), (0, 0)), "DotGeneral"),
    (lambda: ops.Gather(torch.ones(2), torch.ones(2), (1, 2, 3), [1]), "Gather"),
    (lambda: XlaOp(XlaBuilder("b"), torch.ones(2)), "XlaOp"), (lambda: ops.Exp(torch.ones(2), torch.ones(2)), "Exp"),
    (lambda: ops.Add(torch.ones(2), XlaBuilder("b").parameter(0, Shape.array(F32, [2]))), "Add"),
    (lambda: XlaBuilder("b").parameter(0, "f32[2]"), "parameter"),
    (lambda: XlaBuilder("b").parameter(0.5, Shape(F32)), "an integer"),
    (lambda: ops.DotDimensionNumbers((0.5,), (0,)), "DotDimensionNumbers"), (lambda: ops.ChannelHandle("a"), "attribute"),
    (lambda: ops.PaddingConfig([1]), "attribute"), (lambda: ops.ResultAccuracy("best"), "ResultAccuracy"),
    (lambda: ops.PrecisionConfig(["best"]), "attribute"), (lambda: ops.Neg(torch.ones(2), torch.ones(2)), "Neg"),
    (ops.Neg, "Neg"), (lambda: ops.Neg(operands=torch.ones(2)), "did you mean 'operand'"),
]


@pytest.mark.parametrize(("make", "who"), CLASSES)
def test_wrong_classes_are_refused_in_words(make: Callable[..., Any], who: str) -> None:
    with pytest.raises(XlaError) as caught:
        make()
    assert who in str(caught.value)
    assert caught.value.got != ""


BYTES = bytes(range(256))


def test_opaque_bytes_schedule_and_version_are_kept() -> None:
    """Through the builder, text, protos and gradients' own reading, to the function that is called."""
    builder = XlaBuilder("calls")
    x = builder.parameter(0, Shape.array(F32, [2]))
    program = builder.build(ops.CustomCall(builder, "strict.bytes", [x], x.shape, BYTES, schedule="SCHEDULE_LATEST",
                                           api_version="API_VERSION_STATUS_RETURNING"))
    seen = []

    def called(operand: torch.Tensor, *, call: Any) -> torch.Tensor:
        seen.append(call.opaque_bytes)
        return operand + 1

    xla_torch.register_custom_call("strict.bytes", called)
    for again in (program, xla_torch.parse_hlo(program.to_hlo_text()), xla_torch.from_hlo_proto(program.to_hlo_proto())):
        assert again(torch.zeros(2)).tolist() == [1, 1]
        attributes = again.entry.root.attributes
        assert (attributes["schedule"], attributes["api_version"]) == ("SCHEDULE_LATEST", "API_VERSION_STATUS_RETURNING")
    assert seen == [BYTES] * 3
    assert ops.CustomCall("strict.bytes", [torch.zeros(2)], Shape.array(F32, [2]), b"\xff\x00").tolist() == [1, 1]
    assert seen[-1] == b"\xff\x00"
