# pyright: reportCallIssue=false, reportArgumentType=false
"""Every name of the operation semantics documents exists and takes what the documents give it, and what compilers write in two
halves builds, prints and runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.document_signatures import FORMS, Arguments, parsed
from support.oracle import needs_xla, run_xla, xla_accepts
from xla_torch import F32, Layout, Shape, ops
from xla_torch.distributed import feeds

BUILT = [
    "Abs", "Add", "AddDependency", "AfterAll", "AllGather", "AllReduce", "AllToAll", "And", "Atan2", "BatchNormGrad",
    "BatchNormInference", "BatchNormTraining", "BitcastConvertType", "Broadcast", "BroadcastInDim", "BuildPartitionId",
    "Call", "Cbrt", "Ceil", "Cholesky", "Clamp", "Clz", "Collapse", "CollectiveBroadcast", "CollectivePermute", "Compare",
    "Complex", "CompositeCall", "ConcatInDim", "Concatenate", "Conditional", "ConstantLiteral", "Conv", "ConvGeneral",
    "ConvGeneralDilated", "ConvWithGeneralDimensions", "ConvWithGeneralPadding", "ConvertElementType", "Copy", "Cos",
    "Cosh", "CrossReplicaSum", "CustomCall", "Div", "Dot", "DotGeneral", "DynamicReshape", "DynamicSlice",
    "DynamicUpdateSlice", "Eq", "Erf", "Exp", "Expm1", "Fft", "Floor", "Gather", "Ge", "GetDimensionSize",
    "GetTupleElement", "Gt", "Imag", "Infeed", "Iota", "IsFinite", "Le", "Log", "Log1p", "LogicalAnd", "LogicalNot",
    "LogicalOr", "Logistic", "Lt", "Map", "Max", "Min", "Mul", "Ne", "Neg", "Not", "OptimizationBarrier", "Or", "Outfeed",
    "Pad", "Parameter", "PartitionId", "PopulationCount", "Pow", "RaggedAllToAll", "RaggedDot", "Real", "Recv", "Reduce",
    "ReducePrecision", "ReduceScatter", "ReduceWindow", "Rem", "ReplicaId", "Reshape", "Rev", "RngBitGenerator",
    "RngNormal", "RngUniform", "Round", "RoundNearestAfz", "RoundNearestEven", "Rsqrt", "ScaledDot", "Scan", "Scatter",
    "Select", "SelectAndScatter", "Send", "SetDimensionSize", "ShiftLeft", "ShiftRightArithmetic", "ShiftRightLogical",
    "Sign", "Sin", "Slice", "Sort", "Sqrt", "Sub", "Tan", "Tanh", "TopK", "Transpose", "TriangularSolve", "Tuple", "While",
    "Xor", "EqTotalOrder", "GeTotalOrder", "GtTotalOrder", "LeTotalOrder", "LtTotalOrder", "NeTotalOrder", "AllGatherTuple",
    "AllReduceTuple", "AllToAllTuple", "MultiCollectivePermute", "CustomCallWithComputation", "CustomCallWithLayout",
    "InfeedWithToken", "OutfeedWithToken", "RecvFromHost", "RecvWithToken", "SendToHost", "SendWithToken", "PartitionID",
    "RecvToHost", "RecvWithTokens", "SendWithTokens", "Constant", "CreateToken", "CustomCallWithConvDnums", "ReduceAll",
    "ReduceWindowWithGeneralPadding", "ReshapeWithInferredDimension", "SelectAndScatterWithGeneralPadding",
]
"""What the documents build programs with."""

COMPILED = [
    "AllGatherDone", "AllGatherStart", "AllReduceDone", "AllReduceStart", "AsyncDone", "AsyncStart", "AsyncUpdate",
    "Bitcast", "CollectivePermuteDone", "CollectivePermuteStart", "CopyDone", "CopyStart", "Domain", "Fusion", "RecvDone",
    "RngGetAndUpdateState", "SendDone",
]
"""What the documents say compiled programs contain."""

LIBRARY = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "ApproxTopK", "BesselI0e", "BesselI1e", "Digamma", "Eigh", "ErfInv",
    "Erfc", "Igamma", "IgammaGradA", "Igammac", "LU", "Lgamma", "NextAfter", "Polygamma", "QR", "RandomGammaGrad",
    "Reciprocal", "RegularizedIncompleteBeta", "RemoveDynamicDimension", "SVD", "Sinh", "Square", "Zeta",
]
"""What XLA's client library has beside the documents."""


@pytest.mark.parametrize("names", [BUILT, COMPILED, LIBRARY], ids=["built", "compiled", "library"])
def test_every_name_exists(names: list[str]) -> None:
    assert sorted(name for name in names if not callable(getattr(ops, name, None))) == []


def test_every_name_is_described() -> None:
    assert sorted(name for name in BUILT + COMPILED + LIBRARY if not getattr(ops, name).__doc__) == []


# ------------------------------------------------------------------------------------------- what functions take


def built(form: str, by_name: bool, without: tuple[str, ...] = ()) -> str:
    """The program that a form makes, as text."""
    made = Arguments(parsed(form))
    given = {name: made.value(name) for name in made.form.parameters}
    kept = {name: value for name, value in given.items() if name not in without}
    call = getattr(ops, made.function)
    builder = {} if made.builder.instructions else {"builder": made.builder}
    result = call(**builder, **kept) if by_name else call(*(made.builder for _ in builder), *kept.values())
    return made.builder.build(result).to_hlo_text()


@pytest.mark.parametrize("form", FORMS)
def test_every_documented_form_builds(form: str) -> None:
    """In the documents' order and by the documents' names, which give the same program."""
    text = built(form, True)
    if not parsed(form).by_name:
        assert built(form, False) == text
    assert xla_torch.parse_hlo(text).program_shape


@pytest.mark.parametrize("form", [f for f in FORMS if parsed(f).defaults])
def test_what_may_be_left_out_may_and_has_the_documented_default(form: str) -> None:
    function, _, defaults, _ = parsed(form)
    parameters = inspect.signature(getattr(ops, function)).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
    built(form, True, tuple(defaults))


def test_every_documented_function_has_its_form() -> None:
    compiled = {"BuildPartitionId", "Compare", "PartitionId", "Parameter"}  # Parameter and ids have no operands to vary
    variants = re.compile("Tuple$|^Multi|^CustomCallWith|FromHost$|WithToken$|^ReduceAll$|InferredDimension$")
    assert sorted(set(BUILT) - {parsed(f).function for f in FORMS} - compiled) == sorted(
        name for name in BUILT if variants.search(name) and name not in {parsed(f).function for f in FORMS})


def test_an_older_name_beside_the_new_one_is_an_error() -> None:
    with pytest.raises(TypeError, match="'size' is its older name"):
        ops.SetDimensionSize(torch.zeros(3), val=2, size=2, dimension=0)


AT_ONCE: dict[str, tuple[Callable[[], Any], Any]] = {
    "Iota": (lambda: ops.Iota(Shape.parse("s32[2,3]"), 1), [[0, 1, 2], [0, 1, 2]]),
    "Iota of a size": (lambda: ops.Iota(None, F32, 3), [0.0, 1.0, 2.0]),
    "Constant": (lambda: ops.Constant([1.5, 2.5]), [1.5, 2.5]),
    "ConstantLiteral": (lambda: ops.ConstantLiteral(np.arange(2)), [0, 1]),
    "ConstantR0": (lambda: ops.ConstantR0(None, 5), 5),
    "ConstantR1": (lambda: ops.ConstantR1(2, 7.0), [7.0, 7.0]),
    "ConstantR2": (lambda: ops.ConstantR2([[1], [2]]), [[1], [2]]),
    "RngUniform": (lambda: ops.RngUniform(2, 3, Shape.parse("s32[2]")), [2, 2]),
    "RngNormal": (lambda: ops.RngNormal(0.5, 0.0, Shape.parse("f32[2]")), [0.5, 0.5]),
    "ReplicaId": (ops.ReplicaId, 0),
    "PartitionId": (lambda: ops.PartitionId(None), 0),
    "AfterAll": (lambda: ops.AddDependency(torch.tensor(3), ops.AfterAll([ops.CreateToken(), ops.CreateToken()])), 3),
}
"""Functions without operands run at once where no builder is given."""


@pytest.mark.parametrize("name", AT_ONCE)
def test_without_builder_and_operands_functions_run_at_once(name: str) -> None:
    call, want = AT_ONCE[name]
    assert call().tolist() == want


TUPLES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "GetTupleElement": lambda x, y: [ops.GetTupleElement((y, x), 1), ops.GetTupleElement([y, (x, y)], 1)[1]],
    "Tuple": lambda x, y: ops.Tuple([x, y]),
    "Select": lambda x, y: ops.Select(torch.tensor(False), (-x, -y), (x, y)),
    "OptimizationBarrier": lambda x, y: ops.OptimizationBarrier((x, y)),
    "AllReduce": lambda x, y: ops.AllReduce((x, y), added("f32[]", "f32[]")),
    "CrossReplicaSum": lambda x, y: ops.CrossReplicaSum([x, y]),
    "ReduceScatter": lambda x, y: ops.ReduceScatter((x, y), added("f32[]", "f32[]"), 0, 1),
}
"""Functions that take tuples take Python tuples; all of these give the arguments back."""


@pytest.mark.parametrize("name", TUPLES)
def test_python_tuples_stand_for_tuples(name: str) -> None:
    x, y = torch.tensor([1.0, 2]), torch.tensor([3.0])
    assert [t.tolist() for t in TUPLES[name](x, y)] == [[1, 2], [3]]


# ------------------------------------------------------------------------------------------- what compilers write


def region(name: str, *shapes: str) -> tuple[xla_torch.XlaBuilder, list[Any]]:
    builder = xla_torch.XlaBuilder(name)
    return builder, [builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes)]


def added(*shapes: str) -> Any:
    builder, (x, y) = region("added", *shapes)
    return builder.build(ops.Add(x, y))


def asynchronous(x: Any) -> Any:
    begun = ops.AsyncStart(x.builder, [x, x], added("f32[2,3]", "f32[2,3]"))
    return ops.AsyncDone(ops.AsyncUpdate(begun))


def fused(x: Any) -> Any:
    return ops.Fusion(x.builder, "kLoop", [x, x], added("f32[2,3]", "f32[2,3]"))


ONE: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "AsyncDone": (asynchronous, lambda x: x + x),
    "Bitcast": (lambda x: ops.Bitcast(x, Shape.array(F32, (3, 2), layout=Layout((1, 0)))), lambda x: x.reshape(3, 2)),
    "CopyDone": (lambda x: ops.CopyDone(ops.CopyStart(x)), lambda x: x),
    "CopyStart": (lambda x: ops.CopyDone(ops.CopyStart(x, cross_program_prefetch_index=0)), lambda x: x),
    "Domain": (lambda x: ops.Domain(x, "{maximal device=1}", "{maximal device=0}"), lambda x: x),
    "Fusion": (fused, lambda x: x + x),
    "AllGatherDone": (lambda x: ops.AllGatherDone(ops.AllGatherStart(x, 0, 1)), lambda x: x),
    "AllReduceDone": (lambda x: ops.AllReduceDone(ops.AllReduceStart(x, added("f32[]", "f32[]"))), lambda x: x),
    "CollectivePermuteDone": (lambda x: ops.CollectivePermuteDone(ops.CollectivePermuteStart(x, [(0, 0)])), lambda x: x),
    "AllGatherStart": (
        lambda x: ops.GetTupleElement(ops.AllGatherDone(ops.AllGatherStart([x, x * 2.0], 1, 1)), 1), lambda x: x * 2),
    "AllReduceStart": (
        lambda x: ops.GetTupleElement(ops.AllReduceDone(ops.AllReduceStart([x, x * 2.0], added("f32[]", "f32[]"))), 1),
        lambda x: x * 2),
    "CollectivePermuteStart": (
        lambda x: ops.GetTupleElement(ops.CollectivePermuteDone(ops.CollectivePermuteStart([x, x * 2.0], [(0, 0)])), 1),
        lambda x: x * 2),
}
"""What is built of an f32[2,3], and what it gives with one participant."""


@needs_xla
@pytest.mark.parametrize("name", ONE)
def test_built_printed_parsed_and_run(name: str) -> None:
    build, want = ONE[name]
    builder, (x,) = region("program", "f32[2,3]")
    program = builder.build(build(x))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = program.to_hlo_text()
    assert xla_accepts(text) is None
    for again in (program, xla_torch.parse_hlo(text)):
        np.testing.assert_array_equal(again.run_numpy(array)[0], want(array))


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "timeout", 5.0)
    feeds.clear()


@pytest.mark.usefixtures("channels")
def test_halves_of_send_and_receive() -> None:
    """A participant that sends to itself."""
    builder, (x,) = region("program", "f32[3]")
    sent = ops.SendDone(ops.SendStart(x, ops.CreateToken(builder), 1))
    received = ops.RecvDone(ops.RecvStart(sent, Shape.parse("f32[3]"), 1))
    program = builder.build(ops.GetTupleElement(received, 0))
    assert program(torch.tensor([1.0, 2, 3])).tolist() == [1, 2, 3]


@pytest.mark.usefixtures("channels")
def test_halves_of_talk_with_the_host() -> None:
    builder = xla_torch.XlaBuilder("program")
    received = ops.RecvDone(ops.RecvStart(ops.CreateToken(builder), Shape.parse("f32[2]"), 1, True))
    data, token = (ops.GetTupleElement(received, k) for k in range(2))
    ops.SendDone(ops.SendStart(data * 2.0, token, 2, True))
    feeds.send(1, torch.tensor([1.0, 2]))
    assert builder.build(data)().tolist() == [1, 2]
    assert feeds.receive(2).tolist() == [2, 4]


@needs_xla
def test_the_state_of_random_numbers_moves_on() -> None:
    builder = xla_torch.XlaBuilder("program")
    program = builder.build(ops.RngGetAndUpdateState(builder, 3))
    first, second = (program.run_numpy()[0] for _ in range(2))
    assert (first.dtype, first.shape) == (np.uint64, (2,))
    assert int(second[0]) - int(first[0]) == 3
    assert run_xla(program.to_hlo_text())[0].shape == (2,)
