"""`xla_torch.compat.xla_client`: jaxlib's client library, as a script for it calls it. Values are NumPy's and SciPy's."""

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
from xla_torch.compat import xla_client

ops: Any = xla_client.ops
rng = np.random.RandomState(0)

A, B = rng.randn(2, 3, 4).astype(np.float32)
POSITIVE, SMALL = np.abs(A) + np.float32(0.5), np.clip(A / 3, -0.9, 0.9)
SQUARE = rng.randn(4, 4).astype(np.float32)
DEFINITE = (SQUARE @ SQUARE.T + 4 * np.eye(4)).astype(np.float32)
LOWER = np.tril(DEFINITE)
I, J = rng.randint(-9, 9, (3, 4)).astype(np.int32), rng.randint(1, 5, (3, 4)).astype(np.int32)
C = (A + 1j * B).astype(np.complex64)
F, N = np.float32(0), np.int32(0)


def build(make: Callable[..., Any], *parameters: Any, name: str = "test") -> Any:
    """The computation that a function of a builder and parameters of these arrays' shapes makes."""
    builder = xla_client.XlaBuilder(name)
    make(builder, *(ops.Parameter(builder, n, xla_client.shape_from_pyval(p)) for n, p in enumerate(parameters)))
    return builder.build()


def run(make: Callable[..., Any], *parameters: Any) -> list[np.ndarray]:
    client = xla_client.make_cpu_client()
    return xla_client.execute_with_python_values(client.compile(build(make, *parameters)), parameters, client)


def add() -> Any:
    return build(lambda _, p, q: ops.Add(p, q), F, F)


def key_order() -> Any:
    return build(lambda _, p, q, i, j: ops.Gt(p, q), F, F, N, N)


def shape(kind: str, *dims: int) -> Any:
    return xla_client.Shape.array_shape(getattr(xla_client.PrimitiveType, kind), dims)


# ------------------------------------------------------------------------------------------- values

ONE: dict[str, tuple[np.ndarray, Callable[..., Any]]] = {
    "Abs": (A, np.abs), "Acos": (SMALL, np.arccos), "Acosh": (POSITIVE + 1, np.arccosh), "Asin": (SMALL, np.arcsin),
    "Asinh": (A, np.arcsinh), "Atan": (A, np.arctan), "Atanh": (SMALL, np.arctanh), "BesselI0e": (A, scipy.special.i0e),
    "BesselI1e": (A, scipy.special.i1e), "Cbrt": (A, np.cbrt), "Ceil": (A, np.ceil), "Conj": (C, np.conj), "Cos": (A, np.cos),
    "Clz": (J, lambda x: 31 - np.floor(np.log2(x)).astype(np.int32)),
    "Cosh": (A, np.cosh), "Digamma": (POSITIVE, scipy.special.psi), "Erf": (A, scipy.special.erf),
    "ErfInv": (SMALL, scipy.special.erfinv), "Erfc": (A, scipy.special.erfc), "Exp": (A, np.exp), "Expm1": (A, np.expm1),
    "Floor": (A, np.floor), "Imag": (C, np.imag), "IsFinite": (A, np.isfinite), "Lgamma": (A, scipy.special.gammaln),
    "Log": (POSITIVE, np.log), "Log1p": (POSITIVE, np.log1p), "Neg": (A, np.negative), "Not": (I, np.invert),
    "OptimizationBarrier": (A, np.positive), "PopulationCount": (J, np.bitwise_count), "Real": (C, np.real),
    "Reciprocal": (A, np.reciprocal), "Round": (A, lambda x: np.trunc(x + np.copysign(0.5, x))), "Rsqrt": (POSITIVE, lambda x: x**-0.5),
    "Sign": (A, np.sign), "Sin": (A, np.sin), "Sinh": (A, np.sinh), "Sqrt": (POSITIVE, np.sqrt), "Square": (A, np.square),
    "Tan": (A, np.tan), "Tanh": (A, np.tanh),
}
TWO: dict[str, tuple[np.ndarray, np.ndarray, Callable[..., Any]]] = {
    "Add": (A, B, np.add), "And": (I, J, np.bitwise_and), "Atan2": (A, B, np.arctan2), "Complex": (A, B, lambda x, y: x + 1j * y),
    "Div": (A, B, np.divide), "Eq": (I, J, np.equal), "Ge": (A, B, np.greater_equal), "Gt": (A, B, np.greater),
    "Le": (A, B, np.less_equal), "Lt": (A, B, np.less), "Max": (A, B, np.maximum), "Min": (A, B, np.minimum),
    "Mul": (A, B, np.multiply), "Ne": (I, J, np.not_equal), "Or": (I, J, np.bitwise_or), "Pow": (POSITIVE, B, np.power),
    "Rem": (A, B, np.fmod), "Sub": (A, B, np.subtract), "Xor": (I, J, np.bitwise_xor), "ShiftLeft": (I, J, np.left_shift),
    "ShiftRightArithmetic": (I, J, np.right_shift),
    "ShiftRightLogical": (I, J, lambda x, y: (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)),
}


def dot_numbers() -> Any:
    numbers = xla_client.DotDimensionNumbers()
    numbers.lhs_contracting_dimensions.append(1)
    numbers.rhs_contracting_dimensions.append(1)
    return numbers


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


def k(builder: Any, value: Any) -> Any:
    return ops.Constant(builder, value)


def result_of(builder: Any, parts: Any) -> Any:
    return ops.Tuple(builder, list(parts))


def target(name: str, function: Callable[..., Any]) -> bytes:
    xla_client.register_custom_call_target(name.encode(), function)
    return name.encode()


def doubled(operand: torch.Tensor) -> torch.Tensor:
    return operand * 2


SCATTERED = A + np.stack([B[1], 0 * B[0], B[0]])
F34 = ("F32", 3, 4)
LAST = np.take_along_axis(A, np.argsort(-A, 1, kind="stable")[:, :2], 1)

ROWS: list[tuple[str, Callable[..., Any], list[Any]]] = [
    ("AfterAll", lambda b, x: ops.GetTupleElement(result_of(b, [ops.AfterAll(b, [ops.CreateToken(b)]), x]), 1), [A]),
    ("AllGather", lambda b, x: ops.AllGather(x, 0, 1, groups(), None, None, None), [A]),
    ("AllReduce", lambda b, x: ops.AllReduce(x, add(), groups()), [A]),
    ("AllToAll", lambda b, x: ops.AllToAll(x, 0, 0, 1, groups()), [A]),
    ("ApproxTopK", lambda b, x: ops.ApproxTopK(b, [x, ops.Iota(b, shape("S32", 3, 4), 1)], [k(b, F), k(b, N)], 2, 1, key_order(),
                                              recall_target=0.95), [LAST, np.argsort(-A, 1, kind="stable")[:, :2].astype(np.int32)]),
    ("ApproxTopKFallback", lambda b, x: ops.ApproxTopKFallback(
        b, [x, ops.Iota(b, shape("S32", 3, 4), 1)], [k(b, F), k(b, N)], 2, 1, key_order(), 0.95, True, -1),
     [LAST, np.argsort(-A, 1, kind="stable")[:, :2].astype(np.int32)]),
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
        ops.Reshape(x, [3, 1, 4]), k(b, np.float32([[[1, 10]]])), [1], [(0, 1)], [1], [1],
        xla_client.make_convolution_dimension_numbers(None, 1), precision_config=precision()),
     [(A + 10 * np.pad(A, ((0, 0), (0, 1)))[:, 1:]).reshape(3, 1, 4)]),
    ("ConvGeneralDilated", lambda b, x: ops.ConvGeneralDilated(
        ops.Reshape(x, [3, 4, 1]), k(b, np.float32([[[1, 10]]])), [1], [(0, 1)], [1], [1],
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
    ("DynamicReshape", lambda b, x: ops.DynamicReshape(x, [k(b, np.int32(3)), k(b, np.int32(2))], [3, 4], [False, True]), [A[:, :2]]),
    ("DynamicSlice", lambda b, x: ops.DynamicSlice(x, start(b, 1, 2), [2, 2]), [A[1:, 2:]]),
    ("DynamicSlice", lambda b, x: ops.DynamicSlice(x, [k(b, np.int32([1, 2]))], [2, 2]), [A[1:, 2:]]),
    ("DynamicUpdateSlice", lambda b, x: ops.DynamicUpdateSlice(x, k(b, B[:, 3:]), start(b, 0, 3)), [np.hstack([A[:, :3], B[:, 3:]])]),
    ("Eigh", lambda b, x: ops.Eigh(k(b, LOWER), lower=True, max_iter=15, epsilon=1e-5, sort_eigenvalues=True)[1],
     [np.linalg.eigvalsh(DEFINITE)]),
    ("Fft", lambda b, x: ops.Fft(x, xla_client.FftType.RFFT, [4]), [np.fft.rfft(A)]),
    ("Fft", lambda b, x: ops.Fft(k(b, C), xla_client.FftType.IRFFT, [6]), [np.fft.irfft(C, 6)]),
    ("Gather", lambda b, x: ops.Gather(x, k(b, np.int32([2, 0])), gather_numbers(), slice_sizes=[1, 4]), [A[[2, 0]]]),
    ("GetDimensionSize", lambda b, x: ops.GetDimensionSize(x, 1), [np.int32(4)]),
    ("GetTupleElement", lambda b, x: ops.GetTupleElement(ops.Tuple(b, (x, k(b, B))), 1), [B]),
    ("Igamma", lambda b, x: ops.Igamma(k(b, POSITIVE), k(b, POSITIVE + 1)), [scipy.special.gammainc(POSITIVE, POSITIVE + 1)]),
    ("IgammaGradA", lambda b, x: ops.IgammaGradA(k(b, np.float64(2)), k(b, np.float64(3))),
     [(scipy.special.gammainc(2 + 1e-6, 3) - scipy.special.gammainc(2 - 1e-6, 3)) / 2e-6]),
    ("Igammac", lambda b, x: ops.Igammac(k(b, POSITIVE), k(b, POSITIVE + 1)), [scipy.special.gammaincc(POSITIVE, POSITIVE + 1)]),
    ("Iota", lambda b, x: ops.Iota(b, xla_client.PrimitiveType.F32, 5), [np.arange(5, dtype=np.float32)]),
    ("Iota", lambda b, x: ops.Iota(b, type=xla_client.PrimitiveType.S32, size=5), [np.arange(5, dtype=np.int32)]),
    ("Iota", lambda b, x: ops.Iota(b, shape("S32", 2, 3), 1), [np.int32([[0, 1, 2], [0, 1, 2]])]),
    ("LU", lambda b, x: ops.LU(k(b, DEFINITE))[0], [np.tril(scipy.linalg.lu(DEFINITE)[1], -1) + scipy.linalg.lu(DEFINITE)[2]]),
    ("Map", lambda b, x: ops.Map(b, [x, k(b, B)], add(), [0, 1]), [A + B]),
    ("NextAfter", lambda b, x: ops.NextAfter(x, k(b, B)), [np.nextafter(A, B)]),
    ("Pad", lambda b, x: ops.Pad(x, k(b, F), xla_client.make_padding_config([(1, 0, 0), (0, -1, 0)])),
     [np.vstack([np.zeros((1, 3)), A[:, :3]]).astype(np.float32)]),
    ("ProductOfElementaryHouseholderReflectors", lambda b, x: ops.DotGeneral(
        ops.ProductOfElementaryHouseholderReflectors(*ops.QrDecomposition(k(b, SQUARE))), k(b, SQUARE), (([0], [0]), ([], []))),
     [scipy.linalg.qr(SQUARE)[1]]),
    ("QR", lambda b, x: result_of(b, map(ops.Abs, ops.QR(k(b, A.T), full_matrices=False))), list(map(np.abs, np.linalg.qr(A.T)))),
    ("QrDecomposition", lambda b, x: result_of(b, ops.QrDecomposition(k(b, SQUARE))),
     [np.asarray(scipy.linalg.qr(SQUARE, mode="raw")[0][0]), scipy.linalg.qr(SQUARE, mode="raw")[0][1]]),
    ("RandomGammaGrad", lambda b, x: ops.RandomGammaGrad(k(b, np.float64(2)), k(b, np.float64(1.5))),
     [-(scipy.special.gammainc(2 + 1e-6, 1.5) - scipy.special.gammainc(2 - 1e-6, 1.5)) / 2e-6 / (1.5 * np.exp(-1.5))]),
    ("Reduce", lambda b, x: ops.Reduce(b, operands=[x], init_values=[k(b, F)], computation=add(), dimensions_to_reduce=[1]),
     [A.sum(1)]),
    ("ReducePrecision", lambda b, x: ops.ReducePrecision(k(b, np.float32([float.fromhex("0x1.32fffep-3")])), exponent_bits=8,
                                                         mantissa_bits=7), [np.float32([float.fromhex("0x1.32p-3")])]),
    ("ReduceScatter", lambda b, x: ops.ReduceScatter(x, add(), 0, 1, groups()), [A]),
    ("ReduceWindowWithGeneralPadding", lambda b, x: ops.ReduceWindowWithGeneralPadding(
        operand=x, init_value=k(b, F), computation=add(), window_dimensions=(2, 1), window_strides=(1, 2), base_dilations=[],
        window_dilations=[], padding=xla_client.window_padding_type_to_pad_values("same", A.shape, (2, 1), (1, 2))),
     [(A + np.vstack([A[1:], 0 * A[:1]]))[:, ::2]]),
    ("RegularizedIncompleteBeta", lambda b, x: ops.RegularizedIncompleteBeta(k(b, POSITIVE), k(b, POSITIVE + 1), k(b, np.abs(SMALL))),
     [scipy.special.betainc(POSITIVE, POSITIVE + 1, np.abs(SMALL))]),
    ("RemoveDynamicDimension", lambda b, x: ops.RemoveDynamicDimension(ops.SetDimensionSize(x, k(b, np.int32(3)), 0), 0), [A]),
    ("ReplicaId", lambda b, x: ops.ReplicaId(b), [np.uint32(0)]),
    ("Reshape", lambda b, x: ops.Reshape(x, dimensions=[1, 0], new_sizes=[2, 6]), [A.T.reshape(2, 6)]),
    ("Reshape", lambda b, x: ops.Reshape(x, [2, 6]), [A.reshape(2, 6)]),
    ("Rev", lambda b, x: ops.Rev(x, dimensions=[1]), [A[:, ::-1]]),
    ("SVD", lambda b, x: ops.SVD(x, max_iter=100, epsilon=1e-6)[1], [np.linalg.svd(A)[1]]),
    ("Scatter", lambda b, x: ops.Scatter(x, k(b, np.int32([2, 0])), k(b, B[:2]), add(), scatter_numbers()), [SCATTERED]),
    ("Select", lambda b, x: ops.Select(k(b, A > 0), x, k(b, B)), [np.where(A > 0, A, B)]),
    ("SelectAndScatterWithGeneralPadding", lambda b, x: ops.SelectAndScatterWithGeneralPadding(
        x, select=build(lambda _, p, q: ops.Ge(p, q), F, F), window_dimensions=(3, 1), window_strides=(1, 1),
        padding=xla_client.window_padding_type_to_pad_values(xla_client.PaddingType.VALID, A.shape, (3, 1), (1, 1)),
        source=k(b, B[:1]), init_value=k(b, F), scatter=add()), [np.where(A == A.max(0), B[:1], 0)]),
    ("SetDimensionSize", lambda b, x: ops.SetDimensionSize(x, k(b, np.int32(2)), 0), [A[:2]]),
    ("Slice", lambda b, x: ops.Slice(x, [1, 0], [3, 4], [1, 2]), [A[1:, ::2]]),
    ("SliceInDim", lambda b, x: ops.SliceInDim(x, start_index=0, limit_index=3, stride=2, dimno=0), [A[::2]]),
    ("Sort", lambda b, x: ops.Sort(b, [x]), [np.sort(A)]),
    ("Sort", lambda b, x: ops.Sort(b, (x, k(b, I)), dimension=0),
     [np.sort(A, 0), np.take_along_axis(I, np.argsort(A, 0), 0)]),
    ("Sort", lambda b, x: ops.Sort(b, [x, k(b, I)], comparator=key_order(), is_stable=True),
     [-np.sort(-A), np.take_along_axis(I, np.argsort(-A, kind="stable"), 1)]),
    ("TopK", lambda b, x: ops.GetTupleElement(ops.TopK(x, k=2), 0), [LAST]),
    ("Transpose", lambda b, x: ops.Transpose(x, [1, 0]), [A.T]),
    ("TriangularSolve", lambda b, x: ops.TriangularSolve(
        k(b, LOWER), x, left_side=False, lower=True, transpose_a=ops.TriangularSolveOptions_Transpose.TRANSPOSE, unit_diagonal=False),
     [scipy.linalg.solve_triangular(LOWER, A.T, lower=True).T]),
    ("Tuple", lambda b, x: ops.Tuple(b, [x, k(b, B)]), [A, B]),
    ("While", lambda b, x: ops.While(build(lambda c, p: ops.Lt(p, k(c, np.float32(10))), F),
                                     build(lambda c, p: ops.Mul(p, k(c, np.float32(2))), F), k(b, np.float32(1))), [np.float32(16)]),
    ("Zeta", lambda b, x: ops.Zeta(k(b, POSITIVE + 1), k(b, POSITIVE)), [scipy.special.zeta(POSITIVE + 1, POSITIVE)]),
]
OF_THEIR_OWN = {"InfeedWithToken", "OutfeedWithToken", "RecvFromHost", "SendToHost", "RngBitGenerator", "RngNormal", "RngUniform"}
"""Functions with tests below."""


def require_same(found: list[np.ndarray], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for result, wanted in zip(found, expected, strict=True):
        assert result.shape == np.shape(wanted)
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-6)


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


def test_sorted_by_default_in_total_order() -> None:
    (found,) = run(lambda b, x: ops.Sort(b, [x]), np.float32([0.0, np.nan, -0.0, -np.inf]))
    require_same([found, np.signbit(found[:3])], [np.float32([-np.inf, -0.0, 0.0, np.nan]), [True, True, False]])
    require_same(run(lambda b, x: ops.Sort(b, [x]), np.uint32([2**31 + 5, 3, 1])), [np.uint32([1, 3, 2**31 + 5])])


def test_singular_vectors_are_square() -> None:
    shapes = [r.shape for r in run(lambda b, x: result_of(b, ops.SVD(x)), A)]
    assert shapes == [(3, 3), (3,), (4, 4)]


def test_random_numbers() -> None:
    found = run(lambda b, lo, hi: ops.RngUniform(lo, hi, shape=shape("F32", 100)), np.float32(2), np.float32(4))[0]
    assert (found >= 2).all()
    assert (found < 4).all()
    assert run(lambda b, m, s: ops.RngNormal(m, s, shape=shape("F32", 2, 3)), F, np.float32(1))[0].shape == (2, 3)
    state, bits = run(lambda b, s: ops.RngBitGenerator(ops.RandomAlgorithm.RNG_THREE_FRY, s, shape("U32", 4)), np.uint64([1, 2]))
    assert (state.dtype, bits.dtype, bits.shape) == (np.uint64, np.uint32, (4,))


# ------------------------------------------------------------------------------------------- the three ways to the host


def test_feeds() -> None:
    given = (np.int32([1, 2]), np.float32([[7]]))
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
    op, kept = client.emit_python_callback(function, builder, [x, ops.CreateToken(builder)], [token, by_columns], [by_columns, token])
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


# ------------------------------------------------------------------------------------------- records, shapes, builders


@pytest.mark.parametrize("record", [
    "ConvolutionDimensionNumbers", "DotDimensionNumbers", "GatherDimensionNumbers", "ScatterDimensionNumbers", "PaddingConfig",
    "PaddingConfigDimension", "ReplicaGroup", "OpMetadata", "OpSharding", "PrecisionConfig", "ResultAccuracy", "ChannelHandle",
    "CompileOptions", "HloPrintOptions"])
def test_records_are_made_empty_and_filled(record: str) -> None:
    made, other = getattr(xla_client, record)(), getattr(xla_client, record)()
    assert made == other
    for name in made.__dataclass_fields__:
        value = getattr(made, name)
        if isinstance(value, list):
            value.append(1)
        else:
            setattr(made, name, not value if isinstance(value, bool) else 3)
        assert made != other
    with pytest.raises(AttributeError):
        made.no_such_field = 1
        raise AttributeError  # protos of OpSharding take any name


def test_what_a_record_holds_when_it_is_used_counts() -> None:
    numbers = dot_numbers()
    found = []

    def make(b: Any, x: Any, y: Any) -> None:
        found.append(ops.DotGeneral(x, y, numbers).shape.dimensions)
        numbers.lhs_batch_dimensions.append(0)
        numbers.rhs_batch_dimensions.append(0)
        found.append(ops.DotGeneral(x, y, numbers).shape.dimensions)

    build(make, A, B)
    assert found == [(3, 3), (3,)]


def test_numbers_of_words() -> None:
    assert (int(xla_client.PrimitiveType.F32), xla_client.PrimitiveType(16)) == (11, xla_client.PrimitiveType.BF16)
    assert int(ops.TriangularSolveOptions_Transpose.ADJOINT) == 3
    assert int(ops.CustomCallApiVersion.API_VERSION_ORIGINAL) == 1
    assert xla_client.XLA_ELEMENT_TYPE_TO_DTYPE[xla_client.PrimitiveType.BF16] == np.dtype(xla_client.bfloat16)
    assert xla_client.dtype_to_etype(np.bool_) is xla_client.PrimitiveType.PRED
    with pytest.raises(KeyError):
        xla_client.dtype_to_etype(np.datetime64)
    with pytest.raises(xla_client.XlaRuntimeError, match="PRIMITIVE_TYPE_INVALID"):
        xla_client.Shape.array_shape(xla_client.PrimitiveType.PRIMITIVE_TYPE_INVALID, (2,))


def test_shapes() -> None:
    array = xla_client.Shape.array_shape(np.dtype(np.float32), (2, 3), (0, 1))
    assert (repr(array), str(array), array.rank(), array.dimensions()) == ("f32[2,3]{0,1}", "f32[2,3]{0,1}", 2, (2, 3))
    assert (array.element_type(), array.xla_element_type()) == (np.float32, xla_client.PrimitiveType.F32)
    assert (array.layout().minor_to_major(), hash(array.layout())) == ((0, 1), hash(xla_client.Layout((0, 1))))
    assert array != xla_client.Shape("f32[2,3]{1,0}") == xla_client.Shape.array_shape(xla_client.PrimitiveType.F32, (2, 3))
    assert (array.is_array(), array.is_tuple(), array.is_static(), array.leaf_count()) == (True, False, True, 1)
    pair = xla_client.shape_from_pyval((A, (N,)))
    assert (repr(pair), len(pair.tuple_shapes()), pair.leaf_count()) == ("(f32[3,4]{1,0}, (s32[]))", 2, 2)
    assert pair.numpy_dtype() == np.dtype(np.object_)
    assert repr(xla_client.Shape.token_shape()) == "token[]"
    dynamic = xla_client.Shape.array_shape(np.dtype(np.float32), dims=[5], dynamic_dimensions=[True])
    assert (repr(dynamic), dynamic.is_dynamic(), dynamic.is_dynamic_dimension(0)) == ("f32[<=5]{0}", True, True)
    dynamic.set_dynamic_dimension(0, False)
    assert dynamic == xla_client.Shape("f32[5]").with_major_to_minor_layout_if_absent()
    assert xla_client.ShapeIndex([1, 2]) == xla_client.ShapeIndex((1, 2)) != xla_client.ShapeIndex((2, 3))
    assert xla_torch.Shape.parse("f32[5]{0}") == dynamic.of_xla_torch()
    assert dynamic.to_serialized_proto().startswith(b"\x10\x0b\x1a\x01\x05")
    for wrong in (pair.dimensions, pair.layout, array.tuple_shapes, lambda: array.set_dynamic_dimension(2, True)):
        with pytest.raises(xla_client.XlaRuntimeError):
            wrong()
    with pytest.raises(NotImplementedError):
        xla_client.shape_from_pyval((A,), [0, 1])


@pytest.mark.parametrize(("kind", "expected"), [("VALID", [(0, 0), (0, 0)]), ("same", [(0, 1), (0, 0)])])
def test_padding_words(kind: str, expected: list[tuple[int, int]]) -> None:
    assert xla_client.window_padding_type_to_pad_values(kind, (3, 4), (2, 1), (1, 2)) == expected
    word = xla_client.PaddingType[kind.upper()]
    assert xla_client.window_padding_type_to_pad_values(word, (3, 4), (2, 1), (1, 2)) == expected
    with pytest.raises(ValueError, match="Unknown"):
        xla_client.window_padding_type_to_pad_values("half", (3,), (2,), (1,))
    with pytest.raises(TypeError):
        xla_client.window_padding_type_to_pad_values(3, (3,), (2,), (1,))  # pyright: ignore[reportArgumentType]


# Of XLA's builder, by jaxlib 0.4.38: ops of constants alone.
CONSTANT: list[tuple[bool, Callable[..., Any]]] = [
    (True, lambda b, c: ops.Neg(c)), (True, lambda b, c: ops.Iota(b, shape("F32", 2), 0)), (True, lambda b, c: ops.ReplicaId(b)),
    (True, lambda b, c: ops.Reduce(b, [c], [k(b, F)], add(), [0])), (True, lambda b, c: ops.OptimizationBarrier(c)),
    (True, lambda b, c: ops.AllGather(c, 0, 1)), (True, lambda b, c: ops.Sort(b, [c])), (True, lambda b, c: ops.CreateToken(b)),
    (True, lambda b, c: ops.Conditional(k(b, N), [build(lambda _, p: ops.Neg(p), A)], [c])),
    (True, lambda b, c: ops.GetDimensionSize(ops.Parameter(b, 0, xla_client.shape_from_pyval(A)), 0)),
    (False, lambda b, c: ops.Sub(c, ops.Parameter(b, 0, xla_client.shape_from_pyval(A)))),
    (False, lambda b, c: ops.Call(b, build(lambda _, p: ops.Neg(p), A), [c])),
    (False, lambda b, c: ops.While(build(lambda d, p: k(d, False), A), build(lambda _, p: p, A), c)),
    (False, lambda b, c: ops.RngUniform(k(b, F), k(b, F), shape("F32", 2))),
    (False, lambda b, c: ops.CustomCall(b, b"x", [c], shape(*F34))), (False, lambda b, c: ops.CrossReplicaSum(c)),
    (False, lambda b, c: ops.ReduceScatter(c, add(), 0, 1)), (False, lambda b, c: ops.InfeedWithToken(ops.CreateToken(b), shape(*F34))),
]


@pytest.mark.parametrize(("expected", "make"), CONSTANT)
def test_is_constant(expected: bool, make: Callable[..., Any]) -> None:
    builder = xla_client.XlaBuilder("constants")
    assert builder.is_constant(make(builder, k(builder, A))) is expected


def test_builders() -> None:
    builder = xla_client.XlaBuilder("named")
    x = ops.Parameter(builder, 0, xla_client.shape_from_pyval(A))
    first = ops.Neg(x)
    second = ops.Exp(first)
    assert first == first  # noqa: PLR0124 (an op and not a comparison would be wrong)
    assert first != second
    assert second in [first, second]
    assert builder.get_shape(first) == builder.GetShape(second) == shape(*F34)
    assert repr(builder.get_program_shape()) == "((unknown): f32[3,4]) -> f32[3,4]"
    by_root, whole = builder.Build(first), builder.build()
    assert "exponential" not in by_root.as_hlo_text()
    assert "exponential" in whole.as_hlo_text()
    assert whole.name() == "named"
    assert whole.program_shape().parameter_shapes() == [whole.program_shape().result_shape()] == [shape(*F34)]
    with pytest.raises(xla_client.XlaRuntimeError, match="not an op of this builder"):
        builder.get_shape(ops.Parameter(xla_client.XlaBuilder("other"), 0, shape(*F34)))


def test_what_a_builder_notes() -> None:
    builder = xla_client.XlaBuilder("noted")
    builder.set_op_metadata(xla_client.CurrentSourceInfoMetadata("kind", "my/op"))
    x = ops.Parameter(builder, 0, shape(*F34))
    builder.clear_op_metadata()
    sharding = xla_client.OpSharding()
    sharding.type = xla_client.OpSharding.Type.OTHER
    sharding.tile_assignment_dimensions, sharding.tile_assignment_devices = [2, 1], [0, 1]
    builder.set_sharding(sharding)
    both = ops.Tuple(builder, [ops.Neg(x), x])
    builder.clear_sharding()
    builder.set_frontend_attributes({"a": "b"})
    ops.GetTupleElement(both, 0)
    builder.clear_frontend_attributes()
    builder.setup_alias([], 0, [])
    lines = builder.build().as_hlo_text().splitlines()
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in lines[0]
    assert 'metadata={op_type="kind" op_name="my/op" source_file="test_xla_client.py" source_line=' in lines[3]
    assert lines[4].endswith("sharding={devices=[2,1]0,1}")
    assert lines[5].endswith("sharding={{devices=[2,1]0,1}, {devices=[2,1]0,1}}")
    assert lines[6].endswith('frontend_attributes={a="b"}')
    read = xla_client.OpSharding()
    read.ParseFromString(sharding.SerializeToString())
    assert read == sharding == sharding.clone()
    assert sharding.SerializeToString() == b'\x08\x03\x1a\x02\x02\x01"\x02\x00\x01'


def test_computations_go_out_and_come_back() -> None:
    computation = build(lambda b, x: ops.Add(x, k(b, np.arange(12, dtype=np.float32).reshape(3, 4))), A, name="sum")
    assert "constant({...})" in computation.as_hlo_text()
    assert "{ 8, 9, 10, 11 }" in computation.as_hlo_text(print_large_constants=True)
    data = computation.as_serialized_hlo_module_proto()
    again = xla_client.XlaComputation(data)
    assert again.hash() == computation.hash() != add().hash()
    module = again.get_hlo_module()
    assert (module.name, [c.name for c in module.computations()]) == ("sum", ["sum"])
    options = xla_client.HloPrintOptions()
    options.print_large_constants = True
    for other in (xla_client._xla.hlo_module_from_text(module.to_string(options)),
                  xla_client.HloModule.from_serialized_hlo_module_proto(module.as_serialized_hlo_module_proto())):
        assert other.to_string() == module.to_string()
    assert xla_client.hlo_module_cost_analysis(None, module)["flops"] == 12
    assert computation.as_hlo_dot_graph() == xla_client.hlo_module_to_dot_graph(module)
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    client = xla_client.make_cpu_client()
    for program in (computation, data, text, text.encode(), computation.as_hlo_text(True), module, computation.computation):
        found = xla_client.execute_with_python_values(client.compile(program), [A], client)
        require_same(found, [A + np.arange(12, dtype=np.float32).reshape(3, 4)])


@pytest.mark.parametrize("tuples", [(True, False), (False, True), (True, True)])
def test_mlir_with_tuples(tuples: tuple[bool, bool]) -> None:
    text = xla_client.mlir.xla_computation_to_mlir_module(build(lambda _, x, y: ops.Sub(x, y), A, B))
    made = xla_client.mlir.mlir_module_to_xla_computation(text, *tuples)
    assert [p.is_tuple() for p in made.program_shape().parameter_shapes()] == ([True] if tuples[0] else [False, False])
    assert made.program_shape().result_shape().is_tuple() is tuples[1]
    client = xla_client.make_cpu_client()
    require_same(xla_client.execute_with_python_values(client.compile(made), [A, B], client), [A - B])


# ------------------------------------------------------------------------------------------- clients and buffers


def test_buffers() -> None:
    client = xla_client.make_cpu_client()
    array = A.copy()
    copied = client.buffer_from_pyval(array)
    shared = client.buffer_from_pyval(array, host_buffer_semantics=xla_client.HostBufferSemantics.ZERO_COPY)
    assert shared.unsafe_buffer_pointer() == array.__array_interface__["data"][0] != copied.unsafe_buffer_pointer()
    array[:] = 0
    require_same([np.asarray(copied)], [A])
    assert not np.asarray(copied).flags.writeable
    assert (copied.shape, copied.dtype, copied.ndim, copied.size) == ((3, 4), np.float32, 2, 12)
    assert (copied.nbytes, copied.on_device_size_in_bytes(), copied.platform()) == (48, 48, "cpu")
    assert (copied.xla_shape(), copied.device(), copied.client) == (shape(*F34), client.devices()[0], client)
    assert copied.clone().unsafe_buffer_pointer() == copied.unsafe_buffer_pointer()
    assert copied.block_until_ready() is copied
    assert np.asarray(copied, np.float64).dtype == np.float64
    capsule = xla_client._xla.buffer_to_dlpack_managed_tensor(copied)
    require_same([np.asarray(xla_client._xla.dlpack_managed_tensor_to_buffer(capsule, client, None))], [A])
    require_same([torch.from_dlpack(copied).numpy()], [A])
    copied.delete()
    assert copied.is_deleted()
    for use in (copied.is_ready, copied.block_until_ready, lambda: np.asarray(copied)):
        with pytest.raises(xla_client.XlaRuntimeError, match="deleted"):
            use()


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint16, np.uint32, np.uint64, np.float16, np.float64,
                                   np.complex128, xla_client.bfloat16, xla_client.float8_e4m3fn])
@pytest.mark.parametrize("sizes", [(), (2, 0), (2, 3)])
def test_values_of_buffers(dtype: Any, sizes: tuple[int, ...]) -> None:
    array = (rng.rand(*sizes) * 9 + np.zeros(sizes)).astype(dtype)
    found = np.asarray(xla_client.make_cpu_client().buffer_from_pyval(array))
    assert (found.dtype, found.shape) == (array.dtype, sizes)
    assert np.array_equal(found, array)
    assert [r.dtype for r in run(lambda b, p: ops.Reshape(p, sizes), array)] == [array.dtype]


def test_live_buffers() -> None:
    client = xla_client.make_cpu_client()
    first, second = client.buffer_from_pyval(A), client.buffer_from_pyval(B)
    assert client.live_buffers() == client.devices()[0].live_buffers() == [second, first]
    second.delete()
    assert client.live_buffers() == [first]
    del first
    gc.collect()
    assert client.live_buffers() == []


def test_ways_to_execute() -> None:
    client = xla_client.make_cpu_client()
    executable = client.compile_and_load(build(lambda b, x: ops.Tuple(b, [x, ops.Neg(x)]), A), client.devices())
    buffer = client.buffer_from_pyval(A)
    results, token = executable.execute_with_token([buffer])
    token.block_until_ready()
    sharded = executable.execute_sharded([[buffer]], with_tokens=True)
    sharded.consume_token().block_until_ready()
    on_devices, tokens = executable.execute_sharded_on_local_devices_with_tokens([[buffer]])
    tokens.get_token(0).block_until_ready()
    flat = [results, executable.execute([buffer], client.devices()[0]),
            *([part[0] for part in parts] for parts in (sharded.disassemble_into_single_device_arrays(), on_devices,
                                                        executable.execute_sharded_on_local_devices([[buffer]])))]
    for found in flat:
        assert all(isinstance(r, xla_client.ArrayImpl) for r in found)
        require_same(list(map(np.asarray, found)), [A, -A])
    assert len(sharded) == 2
    require_same(sharded.consume_with_handlers([lambda parts: np.asarray(parts[0])] * 2), [A, -A])
    assert [layout.minor_to_major() for layout in executable.get_parameter_layouts()] == [(1, 0)]
    assert [layout.minor_to_major() for layout in executable.get_output_layouts()] == [(1, 0), (1, 0)]
    assert executable.cost_analysis()["flops"] == 12
    assert (executable.fingerprint, executable.hlo_modules()[0].name) == (None, "test")
    assert xla_client.execute_with_python_values_replicated(executable, [[A]], client)[0][1][0, 0] == -A[0, 0]
    executable.delete()
    with pytest.raises(xla_client.XlaRuntimeError, match="deleted"):
        executable.execute([buffer])


def test_compile_options() -> None:
    client, computation = xla_client.make_cpu_client(), build(lambda _, x: ops.Neg(x), N)
    options = xla_client.CompileOptions()
    options.argument_layouts = [xla_client.Shape.array_shape(np.dtype(np.float32), [])]
    with pytest.raises(RuntimeError, match=r"Invalid argument shape.*expected s32\[\], got f32\[\]"):
        client.compile(computation, options)
    options.argument_layouts = [shape("S32")]
    assert client.compile(computation, options).compile_options() == options
    options.argument_layouts = []
    with pytest.raises(xla_client.XlaRuntimeError, match="another number"):
        client.compile(computation, options)
    several = xla_client.CompileOptions()
    several.executable_build_options.num_partitions = several.num_replicas = 2
    with pytest.raises(xla_client.XlaRuntimeError, match="run_replicas"):
        client.compile(computation, several)
    with pytest.raises(xla_client.XlaRuntimeError, match="channels"):
        client.compile(computation, host_callbacks=[1])


WRONG: list[tuple[str, Callable[[], Any], type[Exception]]] = [
    ("incompatible shapes", lambda: build(lambda _, x, y: ops.Add(x, y), A, B[:2]), xla_torch.errors.InvalidArgument),
    ("belongs to another builder", lambda: build(lambda b, x: ops.Add(x, ops.Constant(xla_client.XlaBuilder("o"), F)), A),
     xla_torch.errors.InvalidArgument),
    ("parameter numbers", lambda: build(lambda b: ops.Parameter(b, 1, shape(*F34))), xla_torch.errors.InvalidArgument),
    ("wrong shape or dtype", lambda: _run_with(np.int32(1)), xla_torch.errors.InvalidArgument),
    ("wrong shape or dtype", lambda: _run_with(np.float32([1])), xla_torch.errors.InvalidArgument),
    ("another number of buffers", lambda: _run_with(F, F), xla_torch.errors.InvalidArgument),
    ("transpose_a", lambda: build(lambda b, x: ops.TriangularSolve(
        x, x, True, True, False, ops.TriangularSolveOptions_Transpose.TRANSPOSE_INVALID), SQUARE), xla_torch.errors.InvalidArgument),
    ("not matrices", lambda: build(lambda b, x: ops.QrDecomposition(x), I), xla_torch.errors.InvalidArgument),
    ("neither text nor", lambda: xla_client.make_cpu_client().compile(b"\xff\x00\x01"), xla_torch.errors.InvalidArgument),
    ("HLO proto|several|says", lambda: xla_client.XlaComputation(b"nothing"), xla_torch.errors.XlaError),
    ("one process", lambda: xla_client.make_cpu_client(num_nodes=2), xla_torch.errors.UnsupportedError),
    ("no CUDA device", lambda: xla_client.make_gpu_client(mock=True), xla_torch.errors.DeviceError),
    ("made of a program", xla_client.HloModule, xla_torch.errors.UnsupportedError),
]


def _run_with(*values: Any) -> None:
    client = xla_client.make_cpu_client()
    client.compile(build(lambda _, x: ops.Neg(x), F)).execute([client.buffer_from_pyval(v) for v in values])


@pytest.mark.parametrize(("message", "wrong", "kind"), WRONG)
def test_errors_are_of_both_libraries(message: str, wrong: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(xla_client.XlaRuntimeError, match=message) as caught:
        wrong()
    assert isinstance(caught.value, kind)
    assert isinstance(caught.value, RuntimeError)


def test_what_is_not_there_says_why() -> None:
    with pytest.raises(AttributeError, match=r"XLA's runtime \(xla_torch.debug"):
        _ = xla_client.profiler
    with pytest.raises(AttributeError, match="'no_such_name'$"):
        _ = xla_client.no_such_name


def test_device_assignments() -> None:
    made = xla_client.DeviceAssignment.create(np.arange(4).reshape(2, 2))
    assert (made.replica_count(), made.computation_count()) == (2, 2)
    assert made.serialize() == b"\x08\x02\x10\x02\x1a\x04\n\x02\x00\x02\x1a\x04\n\x02\x01\x03"


def test_gradients_through_what_was_built() -> None:
    computation = build(lambda b, x: ops.Reduce(b, [ops.Mul(x, x)], [k(b, F)], add(), [0, 1]), A).computation
    require_same([xla_torch.grad(computation)(torch.from_numpy(A)).numpy()], [2 * A])


def test_the_example_runs() -> None:
    assert doctest.testmod(xla_client).failed == 0
