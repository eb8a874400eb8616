"""Every name of the operation semantics documents exists, and what compilers write in two halves builds, prints and runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from oracle import needs_xla, run_xla, xla_accepts
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
    "InfeedWithToken", "OutfeedWithToken", "RecvFromHost", "RecvWithToken", "SendToHost", "SendWithToken",
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
