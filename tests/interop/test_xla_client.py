"""The `ops` of `xla_torch.compat.xla_client`, and a program's ways to the host, as a script for jaxlib's client library calls
them. Values are NumPy's and SciPy's."""

from __future__ import annotations

import ctypes
import doctest
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import torch

import xla_torch
from support.client_scripts import (
    COUNTS,
    DEFINITE,
    F34,
    INTS,
    LOWER,
    POSITIVE,
    SMALL,
    SQUARE,
    A,
    B,
    C,
    F,
    N,
    add,
    build,
    dot_numbers,
    f32,
    k,
    key_order,
    ops,
    require_same,
    run,
    s32,
    shape,
)
from xla_torch.compat import xla_client

# ------------------------------------------------------------------------------------------- values

ONE: dict[str, tuple[np.ndarray, Callable[..., Any]]] = {
    "Abs": (A, np.abs), "Acos": (SMALL, np.arccos), "Acosh": (POSITIVE + 1, np.arccosh), "Asin": (SMALL, np.arcsin),
    "Asinh": (A, np.arcsinh), "Atan": (A, np.arctan), "Atanh": (SMALL, np.arctanh), "BesselI0e": (A, scipy.special.i0e),
    "BesselI1e": (A, scipy.special.i1e), "Cbrt": (A, np.cbrt), "Ceil": (A, np.ceil), "Conj": (C, np.conj), "Cos": (A, np.cos),
    "Clz": (COUNTS, lambda x: 31 - np.floor(np.log2(x)).astype(np.int32)),
    "Cosh": (A, np.cosh), "Digamma": (POSITIVE, scipy.special.psi), "Erf": (A, scipy.special.erf),
    "ErfInv": (SMALL, scipy.special.erfinv), "Erfc": (A, scipy.special.erfc), "Exp": (A, np.exp), "Expm1": (A, np.expm1),
    "Floor": (A, np.floor), "Imag": (C, np.imag), "IsFinite": (A, np.isfinite), "Lgamma": (A, scipy.special.gammaln),
    "Log": (POSITIVE, np.log), "Log1p": (POSITIVE, np.log1p), "Neg": (A, np.negative), "Not": (INTS, np.invert),
    "OptimizationBarrier": (A, np.positive), "PopulationCount": (COUNTS, np.bitwise_count), "Real": (C, np.real),
    "Reciprocal": (A, np.reciprocal), "Round": (A, lambda x: np.trunc(x + np.copysign(0.5, x))),
    "Rsqrt": (POSITIVE, lambda x: x**-0.5),
    "Sign": (A, np.sign), "Sin": (A, np.sin), "Sinh": (A, np.sinh), "Sqrt": (POSITIVE, np.sqrt), "Square": (A, np.square),
    "Tan": (A, np.tan), "Tanh": (A, np.tanh),
}
TWO: dict[str, tuple[np.ndarray, np.ndarray, Callable[..., Any]]] = {
    "Add": (A, B, np.add), "And": (INTS, COUNTS, np.bitwise_and), "Atan2": (A, B, np.arctan2),
    "Complex": (A, B, lambda x, y: x + 1j * y),
    "Div": (A, B, np.divide), "Eq": (INTS, COUNTS, np.equal), "Ge": (A, B, np.greater_equal), "Gt": (A, B, np.greater),
    "Le": (A, B, np.less_equal), "Lt": (A, B, np.less), "Max": (A, B, np.maximum), "Min": (A, B, np.minimum),
    "Mul": (A, B, np.multiply), "Ne": (INTS, COUNTS, np.not_equal), "Or": (INTS, COUNTS, np.bitwise_or),
    "Pow": (POSITIVE, B, np.power),
    "Rem": (A, B, np.fmod), "Sub": (A, B, np.subtract), "Xor": (INTS, COUNTS, np.bitwise_xor),
    "ShiftLeft": (INTS, COUNTS, np.left_shift),
    "ShiftRightArithmetic": (INTS, COUNTS, np.right_shift),
    "ShiftRightLogical": (INTS, COUNTS, lambda x, y: (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)),
}


def precision() -> Any:
    config = xla_client.PrecisionConfig()
    config.operand_precision.append(config.Precision.HIGH)
    config.operand_precision.append(config.Precision.HIGHEST)
    return config


def gather_numbers() -> Any:
    numbers = xla_client.GatherDimensionNumbers()
    numbers.offset_dims.append(1)
    numbers.collapsed_slice_dims.append(0)
    numbers.start_index_map.append(0)
    numbers.index_vector_dim = 1
    return numbers


def scatter_numbers() -> Any:
    numbers = xla_client.ScatterDimensionNumbers()
    numbers.update_window_dims.append(1)
    numbers.inserted_window_dims.append(0)
    numbers.scatter_dims_to_operand_dims.append(0)
    numbers.index_vector_dim = 1
    return numbers


def groups() -> Any:
    return xla_client.make_replica_groups([[0]])


def start(builder: Any, *numbers: int) -> Any:
    return [ops.Constant(builder, np.int32(n)) for n in numbers]


def result_of(builder: Any, parts: Any) -> Any:
    return ops.Tuple(builder, list(parts))


def target(name: str, function: Callable[..., Any]) -> bytes:
    xla_client.register_custom_call_target(name.encode(), function)
    return name.encode()


def doubled(operand: torch.Tensor) -> torch.Tensor:
    return operand * 2


SCATTERED = A + np.stack([B[1], 0 * B[0], B[0]])
RAW_LU: Any = scipy.linalg.lu_factor(DEFINITE)[0]
RAW_QR: Any = scipy.linalg.qr(SQUARE, mode="raw")[0]
LAST_AT = np.argsort(-A, 1, kind="stable")[:, :2].astype(np.int32)
LAST = np.take_along_axis(A, LAST_AT, 1)

ROWS: list[tuple[str, Callable[..., Any], list[Any]]] = [
    ("AfterAll", lambda b, x: ops.GetTupleElement(result_of(b, [ops.AfterAll(b, [ops.CreateToken(b)]), x]), 1), [A]),
    ("AllGather", lambda b, x: ops.AllGather(x, 0, 1, groups(), None, None, None), [A]),
    ("AllReduce", lambda b, x: ops.AllReduce(x, add(), groups()), [A]),
    ("AllToAll", lambda b, x: ops.AllToAll(x, 0, 0, 1, groups()), [A]),
    ("ApproxTopK", lambda b, x: ops.ApproxTopK(b, [x, ops.Iota(b, shape("S32", 3, 4), 1)], [k(b, F), k(b, N)], 2, 1, key_order(),
                                              recall_target=0.95), [LAST, LAST_AT]),
    ("ApproxTopKFallback", lambda b, x: ops.ApproxTopKFallback(
        b, [x, ops.Iota(b, shape("S32", 3, 4), 1)], [k(b, F), k(b, N)], 2, 1, key_order(), 0.95, True, -1),
     [LAST, LAST_AT]),
    ("BitcastConvertType", lambda b, x: ops.BitcastConvertType(x, xla_client.PrimitiveType.S32), [A.view(np.int32)]),
    ("Broadcast", lambda b, x: ops.Broadcast(x, sizes=(2,)), [np.stack([A, A])]),
    ("BroadcastInDim", lambda b, x: ops.BroadcastInDim(x, shape=[3, 2, 4], broadcast_dimensions=[0, 2]), [np.stack([A, A], 1)]),
    ("Call", lambda b, x: ops.Call(b, build(lambda _, p: ops.Neg(p), A), operands=(x,)), [-A]),
    ("Cholesky", lambda b, x: ops.Cholesky(k(b, LOWER)), [np.linalg.cholesky(DEFINITE)]),
    ("Cholesky", lambda b, x: ops.Cholesky(k(b, LOWER.T), lower=False), [np.linalg.cholesky(DEFINITE).T]),
    ("Clamp", lambda b, x: ops.Clamp(k(b, np.float32(-0.5)), x, k(b, np.float32(0.5))), [np.clip(A, -0.5, 0.5)]),
    ("Collapse", lambda b, x: ops.Collapse(x, dimensions=[0, 1]), [A.reshape(-1)]),
    ("CollectivePermute", lambda b, x: ops.CollectivePermute(x, [(0, 0)]), [A]),
    ("ConcatInDim", lambda b, x: ops.ConcatInDim(b, (x, k(b, B)), dimension=0), [np.concatenate([A, B])]),
    ("Conditional", lambda b, x: ops.Conditional(k(b, True), x, build(lambda _, p: ops.Neg(p), A), x,
                                                 build(lambda _, p: ops.Exp(p), A)), [-A]),
    ("Conditional", lambda b, x: ops.Conditional(k(b, np.int32(1)), [build(lambda _, p: ops.Neg(p), A),
                                                                     build(lambda _, p: ops.Exp(p), A)], [x, x]), [np.exp(A)]),
    ("Constant", lambda b, x: k(b, 1.1), [np.float64(1.1)]),
    ("Constant", lambda b, x: k(b, 3), [np.int64(3)]),
    ("ConstantLiteral", lambda b, x: ops.ConstantLiteral(b, 1.1), [np.float64(1.1)]),
    ("ConstantLiteral", lambda b, x: ops.ConstantLiteral(b, 1j), [np.complex128(1j)]),
    ("ConvGeneralDilated", lambda b, x: ops.ConvGeneralDilated(
        ops.Reshape(x, [3, 1, 4]), k(b, f32([[[1, 10]]])), [1], [(0, 1)], [1], [1],
        xla_client.make_convolution_dimension_numbers(None, 1), precision_config=precision()),
     [(A + 10 * np.pad(A, ((0, 0), (0, 1)))[:, 1:]).reshape(3, 1, 4)]),
    ("ConvGeneralDilated", lambda b, x: ops.ConvGeneralDilated(
        ops.Reshape(x, [3, 4, 1]), k(b, f32([[[1, 10]]])), [1], [(0, 1)], [1], [1],
        xla_client.make_convolution_dimension_numbers(("NWC", "OIW", "CWN"), 1), window_reversal=[True]),
     [(10 * A + np.pad(A, ((0, 0), (0, 1)))[:, 1:]).T.reshape(1, 4, 3)]),
    ("ConvertElementType", lambda b, x: ops.ConvertElementType(x, xla_client.dtype_to_etype(np.int64)), [A.astype(np.int64)]),
    ("CreateToken", lambda b, x: (ops.CreateToken(b), ops.Neg(x)), [-A]),
    ("CrossReplicaSum", lambda b, x: ops.CrossReplicaSum(x), [A]),
    ("CustomCall", lambda b, x: ops.CustomCall(b, target("test.doubled", doubled), [x], shape(*F34)), [2 * A]),
    ("CustomCallWithAliasing", lambda b, x: ops.CustomCallWithAliasing(
        b, target("test.doubled", doubled), [x], shape(*F34), [shape(*F34)], output_operand_aliasing=[([], (0, []))]), [2 * A]),
    ("CustomCallWithComputation", lambda b, x: ops.CustomCallWithComputation(
        b, target("test.doubled", doubled), [x], add(), shape(*F34)), [2 * A]),
    ("CustomCallWithLayout", lambda b, x: ops.CustomCallWithLayout(
        b, target("test.doubled", doubled), operands=(x,), shape_with_layout=shape(*F34),
        operand_shapes_with_layout=[shape(*F34)], opaque=b"foo"), [2 * A]),
    ("Dot", lambda b, x: ops.Dot(x, k(b, B.T)), [A @ B.T]),
    ("DotGeneral", lambda b, x: ops.DotGeneral(x, k(b, B), dot_numbers(), precision_config=precision()), [A @ B.T]),
    ("DotGeneral", lambda b, x: ops.DotGeneral(x, k(b, B), xla_client.make_dot_dimension_numbers((([1], [1]), ([0], [0])))),
     [(A * B).sum(1)]),
    ("DynamicReshape", lambda b, x: ops.DynamicReshape(x, start(b, 3, 2), [3, 4], [False, True]), [A[:, :2]]),
    ("DynamicSlice", lambda b, x: ops.DynamicSlice(x, start(b, 1, 2), [2, 2]), [A[1:, 2:]]),
    ("DynamicSlice", lambda b, x: ops.DynamicSlice(x, [k(b, s32([1, 2]))], [2, 2]), [A[1:, 2:]]),
    ("DynamicUpdateSlice", lambda b, x: ops.DynamicUpdateSlice(x, k(b, B[:, 3:]), start(b, 0, 3)),
     [np.hstack([A[:, :3], B[:, 3:]])]),
    ("Eigh", lambda b, x: ops.Eigh(k(b, LOWER), lower=True, max_iter=15, epsilon=1e-5, sort_eigenvalues=True)[1],
     [np.linalg.eigvalsh(DEFINITE)]),
    ("Fft", lambda b, x: ops.Fft(x, xla_client.FftType.RFFT, [4]), [np.fft.rfft(A)]),
    ("Fft", lambda b, x: ops.Fft(k(b, C), xla_client.FftType.IRFFT, [6]), [np.fft.irfft(C, 6)]),
    ("Gather", lambda b, x: ops.Gather(x, k(b, s32([2, 0])), gather_numbers(), slice_sizes=[1, 4]), [A[[2, 0]]]),
    ("GetDimensionSize", lambda b, x: ops.GetDimensionSize(x, 1), [np.int32(4)]),
    ("GetTupleElement", lambda b, x: ops.GetTupleElement(ops.Tuple(b, (x, k(b, B))), 1), [B]),
    ("Igamma", lambda b, x: ops.Igamma(k(b, POSITIVE), k(b, POSITIVE + 1)), [scipy.special.gammainc(POSITIVE, POSITIVE + 1)]),
    ("IgammaGradA", lambda b, x: ops.IgammaGradA(k(b, np.float64(2)), k(b, np.float64(3))),
     [(scipy.special.gammainc(2 + 1e-6, 3) - scipy.special.gammainc(2 - 1e-6, 3)) / 2e-6]),
    ("Igammac", lambda b, x: ops.Igammac(k(b, POSITIVE), k(b, POSITIVE + 1)), [scipy.special.gammaincc(POSITIVE, POSITIVE + 1)]),
    ("Iota", lambda b, x: ops.Iota(b, xla_client.PrimitiveType.F32, 5), [np.arange(5, dtype=np.float32)]),
    ("Iota", lambda b, x: ops.Iota(b, type=xla_client.PrimitiveType.S32, size=5), [np.arange(5, dtype=np.int32)]),
    ("Iota", lambda b, x: ops.Iota(b, shape("S32", 2, 3), 1), [s32([[0, 1, 2], [0, 1, 2]])]),
    ("LU", lambda b, x: ops.LU(k(b, DEFINITE))[0], [RAW_LU]),
    ("Map", lambda b, x: ops.Map(b, [x, k(b, B)], add(), [0, 1]), [A + B]),
    ("NextAfter", lambda b, x: ops.NextAfter(x, k(b, B)), [np.nextafter(A, B)]),
    ("Pad", lambda b, x: ops.Pad(x, k(b, F), xla_client.make_padding_config([(1, 0, 0), (0, -1, 0)])),
     [np.vstack([np.zeros((1, 3)), A[:, :3]]).astype(np.float32)]),
    ("ProductOfElementaryHouseholderReflectors", lambda b, x: ops.DotGeneral(
        ops.ProductOfElementaryHouseholderReflectors(*ops.QrDecomposition(k(b, SQUARE))), k(b, SQUARE), (([0], [0]), ([], []))),
     [np.triu(RAW_QR[0])]),
    ("QR", lambda b, x: result_of(b, map(ops.Abs, ops.QR(k(b, A.T), full_matrices=False))), list(map(np.abs, np.linalg.qr(A.T)))),
    ("QrDecomposition", lambda b, x: result_of(b, ops.QrDecomposition(k(b, SQUARE))),
     [RAW_QR[0], RAW_QR[1]]),
    ("RandomGammaGrad", lambda b, x: ops.RandomGammaGrad(k(b, np.float64(2)), k(b, np.float64(1.5))),
     [-(scipy.special.gammainc(2 + 1e-6, 1.5) - scipy.special.gammainc(2 - 1e-6, 1.5)) / 2e-6 / (1.5 * np.exp(-1.5))]),
    ("Reduce", lambda b, x: ops.Reduce(b, operands=[x], init_values=[k(b, F)], computation=add(), dimensions_to_reduce=[1]),
     [A.sum(1)]),
    ("ReducePrecision", lambda b, x: ops.ReducePrecision(k(b, f32([float.fromhex("0x1.32fffep-3")])), exponent_bits=8,
                                                         mantissa_bits=7), [f32([float.fromhex("0x1.32p-3")])]),
    ("ReduceScatter", lambda b, x: ops.ReduceScatter(x, add(), 0, 1, groups()), [A]),
    ("ReduceWindowWithGeneralPadding", lambda b, x: ops.ReduceWindowWithGeneralPadding(
        operand=x, init_value=k(b, F), computation=add(), window_dimensions=(2, 1), window_strides=(1, 2), base_dilations=[],
        window_dilations=[], padding=xla_client.window_padding_type_to_pad_values("same", A.shape, (2, 1), (1, 2))),
     [(A + np.vstack([A[1:], 0 * A[:1]]))[:, ::2]]),
    ("RegularizedIncompleteBeta", lambda b, x: ops.RegularizedIncompleteBeta(
        k(b, POSITIVE), k(b, POSITIVE + 1), k(b, np.abs(SMALL))),
     [scipy.special.betainc(POSITIVE, POSITIVE + 1, np.abs(SMALL))]),
    ("RemoveDynamicDimension", lambda b, x: ops.RemoveDynamicDimension(ops.SetDimensionSize(x, k(b, np.int32(3)), 0), 0), [A]),
    ("ReplicaId", lambda b, x: ops.ReplicaId(b), [np.uint32(0)]),
    ("Reshape", lambda b, x: ops.Reshape(x, dimensions=[1, 0], new_sizes=[2, 6]), [A.T.reshape(2, 6)]),
    ("Reshape", lambda b, x: ops.Reshape(x, [2, 6]), [A.reshape(2, 6)]),
    ("Rev", lambda b, x: ops.Rev(x, dimensions=[1]), [A[:, ::-1]]),
    ("SVD", lambda b, x: ops.SVD(x, max_iter=100, epsilon=1e-6)[1], [np.linalg.svd(A)[1]]),
    ("Scatter", lambda b, x: ops.Scatter(x, k(b, s32([2, 0])), k(b, B[:2]), add(), scatter_numbers()), [SCATTERED]),
    ("Select", lambda b, x: ops.Select(k(b, A > 0), x, k(b, B)), [np.where(A > 0, A, B)]),
    ("SelectAndScatterWithGeneralPadding", lambda b, x: ops.SelectAndScatterWithGeneralPadding(
        x, select=build(lambda _, p, q: ops.Ge(p, q), F, F), window_dimensions=(3, 1), window_strides=(1, 1),
        padding=xla_client.window_padding_type_to_pad_values(xla_client.PaddingType.VALID, A.shape, (3, 1), (1, 1)),
        source=k(b, B[:1]), init_value=k(b, F), scatter=add()), [np.where(A.max(0) == A, B[:1], 0)]),
    ("SetDimensionSize", lambda b, x: ops.SetDimensionSize(x, k(b, np.int32(2)), 0), [A[:2]]),
    ("Slice", lambda b, x: ops.Slice(x, [1, 0], [3, 4], [1, 2]), [A[1:, ::2]]),
    ("SliceInDim", lambda b, x: ops.SliceInDim(x, start_index=0, limit_index=3, stride=2, dimno=0), [A[::2]]),
    ("Sort", lambda b, x: ops.Sort(b, [x]), [np.sort(A)]),
    ("Sort", lambda b, x: ops.Sort(b, (x, k(b, INTS)), dimension=0),
     [np.sort(A, 0), np.take_along_axis(INTS, np.argsort(A, 0), 0)]),
    ("Sort", lambda b, x: ops.Sort(b, [x, k(b, INTS)], comparator=key_order(), is_stable=True),
     [-np.sort(-A), np.take_along_axis(INTS, np.argsort(-A, kind="stable"), 1)]),
    ("TopK", lambda b, x: ops.GetTupleElement(ops.TopK(x, k=2), 0), [LAST]),
    ("Transpose", lambda b, x: ops.Transpose(x, [1, 0]), [A.T]),
    ("TriangularSolve", lambda b, x: ops.TriangularSolve(
        k(b, LOWER), x, left_side=False, lower=True, unit_diagonal=False,
        transpose_a=ops.TriangularSolveOptions_Transpose.TRANSPOSE),
     [scipy.linalg.solve_triangular(LOWER, A.T, lower=True).T]),
    ("Tuple", lambda b, x: ops.Tuple(b, [x, k(b, B)]), [A, B]),
    ("While", lambda b, x: ops.While(build(lambda c, p: ops.Lt(p, k(c, np.float32(10))), F),
                                     build(lambda c, p: ops.Mul(p, k(c, np.float32(2))), F), k(b, np.float32(1))),
     [np.float32(16)]),
    ("Zeta", lambda b, x: ops.Zeta(k(b, POSITIVE + 1), k(b, POSITIVE)), [scipy.special.zeta(POSITIVE + 1, POSITIVE)]),
]
OF_THEIR_OWN = {"ApproxTopKReductionOutputSize", "InfeedWithToken", "OutfeedWithToken", "RecvFromHost", "SendToHost",
                "RngBitGenerator", "RngNormal", "RngUniform"}
"""Functions with tests below."""


@pytest.mark.parametrize("name", ONE)
def test_of_one_operand(name: str) -> None:
    x, function = ONE[name]
    require_same(run(lambda _, p: getattr(ops, name)(p), x), [function(x)])


@pytest.mark.parametrize("name", TWO)
def test_of_two_operands(name: str) -> None:
    x, y, function = TWO[name]
    require_same(run(lambda _, p, q: getattr(ops, name)(p, q, None), x, y), [function(x, y)])
    require_same(run(lambda _, p, q: getattr(ops, name)(p, q, broadcast_dimensions=(1,)), x, y[0]), [function(x, y[0])])
    require_same(run(lambda _, p, q: getattr(ops, name)(p, q, [0]), x, y[:, 0]), [function(x, y[:, :1])])


@pytest.mark.parametrize(("name", "make", "expected"), ROWS)
def test_values(name: str, make: Callable[..., Any], expected: list[Any]) -> None:
    found = run(make, A)
    require_same(found, expected)
    if name in ("Constant", "ConstantLiteral", "Iota", "ReplicaId", "GetDimensionSize"):
        assert [f.dtype for f in found] == [e.dtype for e in expected]


def test_every_function_has_a_row() -> None:
    there = {name for name, value in vars(xla_client.ops).items()
             if name[0].isupper() and callable(value) and not isinstance(value, type) and hasattr(value, "__wrapped__")}
    assert there - {*ONE, *TWO, *(row[0] for row in ROWS)} == OF_THEIR_OWN | {"Parameter"}
    assert there >= {*ONE, *TWO, *(row[0] for row in ROWS)}


def test_approximate_answers_are_aggregated() -> None:
    assert ops.ApproxTopKReductionOutputSize(3000, 2, 10, 0.95) == (10, -1)
    with pytest.raises(xla_client.XlaRuntimeError, match="must be True"):
        ops.ApproxTopKReductionOutputSize(3000, 2, 10, 0.95, False)
    with pytest.raises(xla_client.XlaRuntimeError, match="must be True"):
        run(lambda b, x: ops.ApproxTopK(b, [x, x], [k(b, F), k(b, F)], 2, 1, key_order(), aggregate_to_topk=False), A)


def test_sorted_by_default_in_total_order() -> None:
    (found,) = run(lambda b, x: ops.Sort(b, [x]), f32([0.0, np.nan, -0.0, -np.inf]))
    require_same([found, np.signbit(found[:3])], [f32([-np.inf, -0.0, 0.0, np.nan]), [True, True, False]])
    (found,) = run(lambda b, x: ops.Sort(b, [x]), np.array([2**31 + 5, 3, 1], np.uint32))
    assert found.tolist() == [1, 3, 2**31 + 5]


def test_singular_vectors_are_square() -> None:
    shapes = [r.shape for r in run(lambda b, x: result_of(b, ops.SVD(x)), A)]
    assert shapes == [(3, 3), (3,), (4, 4)]


def test_random_numbers() -> None:
    found = run(lambda b, lo, hi: ops.RngUniform(lo, hi, shape=shape("F32", 100)), np.float32(2), np.float32(4))[0]
    assert (found >= 2).all()
    assert (found < 4).all()
    assert run(lambda b, m, s: ops.RngNormal(m, s, shape=shape("F32", 2, 3)), F, np.float32(1))[0].shape == (2, 3)
    state, bits = run(lambda b, s: ops.RngBitGenerator(ops.RandomAlgorithm.RNG_THREE_FRY, s, shape("U32", 4)),
                      np.array([1, 2], np.uint64))
    assert (state.dtype, bits.dtype, bits.shape) == (np.uint64, np.uint32, (4,))


# ------------------------------------------------------------------------------------------- the three ways to the host


def test_feeds() -> None:
    given = (s32([1, 2]), f32([[7]]))
    whole = xla_client.shape_from_pyval(given)

    def make(b: Any) -> None:
        both = ops.InfeedWithToken(ops.CreateToken(b), whole)
        ops.OutfeedWithToken(ops.GetTupleElement(both, 0), ops.GetTupleElement(both, 1), whole)

    client = xla_client.make_cpu_client()
    executable, device = client.compile(build(make)), client.local_devices()[0]
    running = threading.Thread(target=lambda: executable.execute([]))
    running.start()
    device.transfer_to_infeed(given)
    found = device.transfer_from_outfeed(whole)
    running.join()
    require_same(list(found), list(given))


def test_channels_are_those_of_feeds() -> None:
    sending, receiving = xla_client.ChannelHandle(), xla_client.ChannelHandle()
    sending.handle, sending.type = 91, xla_client.ChannelHandle_ChannelType.DEVICE_TO_HOST
    receiving.handle, receiving.type = 92, xla_client.ChannelHandle_ChannelType.HOST_TO_DEVICE

    def make(b: Any, x: Any) -> None:
        ops.SendToHost(x, ops.CreateToken(b), shape_with_layout=shape(*F34), handle=sending)
        ops.GetTupleElement(ops.RecvFromHost(ops.CreateToken(b), shape=shape(*F34), handle=receiving), 0)

    xla_torch.distributed.feeds.send(92, torch.from_numpy(B))
    require_same(run(make, A), [B])
    require_same([xla_torch.distributed.feeds.receive(91).numpy()], [A])


def test_callbacks() -> None:
    client, seen = xla_client.make_cpu_client(), []
    by_columns = xla_client.Shape.array_shape(np.dtype(np.float32), A.shape, layout=(0, 1))

    def function(x: np.ndarray, token: None) -> tuple[Any, ...]:
        seen.append((x.flags.f_contiguous, token))
        return None, x * 2

    builder = xla_client.XlaBuilder("callback")
    x = ops.Parameter(builder, 0, xla_client.shape_from_pyval(A))
    token = xla_client.Shape.token_shape()
    op, kept = client.emit_python_callback(function, builder, [x, ops.CreateToken(builder)], [token, by_columns],
                                           [by_columns, token])
    ops.GetTupleElement(op, 1)
    executable = client.compile(builder.build())
    require_same(xla_client.execute_with_python_values(executable, [A], client), [2 * A])
    assert seen == [(True, None)]
    del kept
    gc.collect()
    with pytest.raises(xla_client.XlaRuntimeError, match="callback"):
        xla_client.execute_with_python_values(executable, [A], client)


def test_callbacks_that_fail() -> None:
    client, builder = xla_client.make_cpu_client(), xla_client.XlaBuilder("callback")

    def function(x: np.ndarray) -> tuple[Any, ...]:
        raise ValueError("it was raised")

    x = ops.Parameter(builder, 0, xla_client.shape_from_pyval(A))
    _, kept = client.emit_python_callback(function, builder, [x], [shape(*F34)], has_side_effects=True)
    with pytest.raises(xla_client.XlaRuntimeError, match="ValueError: it was raised"):
        xla_client.execute_with_python_values(client.compile(builder.build()), [A], client)
    assert kept


def test_custom_calls_in_c() -> None:
    signature = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.POINTER(ctypes.c_float)))

    @signature
    def subtract(out: Any, inputs: Any) -> None:
        out[0] = inputs[0][0] - inputs[1][0]

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.cast(subtract, ctypes.c_void_p), b"xla._CUSTOM_CALL_TARGET", None)
    xla_client.register_custom_call_target(b"test.subtract", capsule, platform="cpu")
    scalar = xla_client.Shape.array_shape(np.dtype(np.float32), (), ())
    found = run(lambda b, p, q: ops.CustomCallWithLayout(b, b"test.subtract", [p, q], scalar, [scalar, scalar]),
                np.float32(1.25), np.float32(0.5))
    require_same(found, [np.float32(0.75)])
    with pytest.raises(xla_client.XlaRuntimeError, match="of this kind"):
        xla_client.register_custom_call_target("test.ffi", capsule, api_version=1)
    with pytest.raises(xla_client.XlaRuntimeError, match="of this kind"):
        xla_client.register_custom_call_target("test.gpu", capsule, platform="gpu")


def test_the_example_runs() -> None:
    assert doctest.testmod(xla_client).failed == 0
