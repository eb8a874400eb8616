"""Provide the `ops` of XLA's client library with its names, argument orders and defaults.

Most are the functions of `xla_torch.ops`, which use the same names and orders. `_same` converts their arguments to records of
xla_torch. Functions that differ are written out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import ops
from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import Shape as OwnShape
from ..functions.hlo_builder import XlaOp
from ..functions.lapack import PREFIXES, lapack
from .computations import XlaBuilder
from .errors import raising
from .records import CustomCallApiVersion, CustomCallSchedule, RandomAlgorithm, TriangularSolveOptions_Transpose  # noqa: F401
from .shapes import given

Ops = Sequence[XlaOp]

_ORIGINAL, _NONE = CustomCallApiVersion.API_VERSION_ORIGINAL, CustomCallSchedule.SCHEDULE_NONE


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with arguments of the client library's classes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(given, args), **{name: given(value) for name, value in kwargs.items()})

    return raising(call)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two operands, where None stands for no dimensions."""

    @functools.wraps(function)
    def call(lhs: XlaOp, rhs: XlaOp, broadcast_dimensions: Sequence[int] | None = None) -> Any:
        return function(lhs, rhs, () if broadcast_dimensions is None else broadcast_dimensions)

    return raising(call)


# ------------------------------------------------------------------------------------------- of one operand

Abs, Acos, Acosh, Asin, Asinh = map(_same, (ops.Abs, ops.Acos, ops.Acosh, ops.Asin, ops.Asinh))
Atan, Atanh, BesselI0e, BesselI1e = map(_same, (ops.Atan, ops.Atanh, ops.BesselI0e, ops.BesselI1e))
Cbrt, Ceil, Clz, Conj, Cos, Cosh = map(_same, (ops.Cbrt, ops.Ceil, ops.Clz, ops.Conj, ops.Cos, ops.Cosh))
Digamma, Erf, ErfInv, Erfc, Exp = map(_same, (ops.Digamma, ops.Erf, ops.ErfInv, ops.Erfc, ops.Exp))
Expm1, Floor, Imag, IsFinite, Lgamma = map(_same, (ops.Expm1, ops.Floor, ops.Imag, ops.IsFinite, ops.Lgamma))
Log, Log1p, Neg, Not, OptimizationBarrier = map(_same, (ops.Log, ops.Log1p, ops.Neg, ops.Not, ops.OptimizationBarrier))
PopulationCount, Real, Reciprocal, Round = map(_same, (ops.PopulationCount, ops.Real, ops.Reciprocal, ops.Round))
Rsqrt, Sign, Sin, Sinh, Sqrt, Square = map(_same, (ops.Rsqrt, ops.Sign, ops.Sin, ops.Sinh, ops.Sqrt, ops.Square))
Tan, Tanh = map(_same, (ops.Tan, ops.Tanh))

# ------------------------------------------------------------------------------------------- of two

Add, And, Atan2, Complex, Div, Eq = map(_binary, (ops.Add, ops.And, ops.Atan2, ops.Complex, ops.Div, ops.Eq))
Ge, Gt, Le, Lt, Max, Min, Mul = map(_binary, (ops.Ge, ops.Gt, ops.Le, ops.Lt, ops.Max, ops.Min, ops.Mul))
Ne, Or, Pow, Rem, Sub, Xor = map(_binary, (ops.Ne, ops.Or, ops.Pow, ops.Rem, ops.Sub, ops.Xor))
ShiftLeft, ShiftRightArithmetic, ShiftRightLogical = map(
    _binary, (ops.ShiftLeft, ops.ShiftRightArithmetic, ops.ShiftRightLogical))
Igamma, IgammaGradA, Igammac = map(_same, (ops.Igamma, ops.IgammaGradA, ops.Igammac))
NextAfter, RandomGammaGrad, Zeta = map(_same, (ops.NextAfter, ops.RandomGammaGrad, ops.Zeta))

# ------------------------------------------------------------------------------------------- the same in other classes

AfterAll, Call, CreateToken, ReplicaId, Tuple = map(_same, (ops.AfterAll, ops.Call, ops.CreateToken, ops.ReplicaId, ops.Tuple))
AllReduce, AllToAll, CollectivePermute = map(_same, (ops.AllReduce, ops.AllToAll, ops.CollectivePermute))
CrossReplicaSum, ReduceScatter = map(_same, (ops.CrossReplicaSum, ops.ReduceScatter))
BitcastConvertType, ConvertElementType = map(_same, (ops.BitcastConvertType, ops.ConvertElementType))
Broadcast, BroadcastInDim, Collapse = map(_same, (ops.Broadcast, ops.BroadcastInDim, ops.Collapse))
Clamp, Select, ConcatInDim, Pad, Parameter = map(_same, (ops.Clamp, ops.Select, ops.ConcatInDim, ops.Pad, ops.Parameter))
Conditional, GetTupleElement, While, Map = map(_same, (ops.Conditional, ops.GetTupleElement, ops.While, ops.Map))
ConvGeneralDilated, Dot, DotGeneral = map(_same, (ops.ConvGeneralDilated, ops.Dot, ops.DotGeneral))
DynamicReshape, DynamicSlice, DynamicUpdateSlice = map(_same, (ops.DynamicReshape, ops.DynamicSlice, ops.DynamicUpdateSlice))
Fft, TriangularSolve, TopK = map(_same, (ops.Fft, ops.TriangularSolve, ops.TopK))
GetDimensionSize, RemoveDynamicDimension = map(_same, (ops.GetDimensionSize, ops.RemoveDynamicDimension))
SetDimensionSize, RegularizedIncompleteBeta = map(_same, (ops.SetDimensionSize, ops.RegularizedIncompleteBeta))
InfeedWithToken, OutfeedWithToken = map(_same, (ops.InfeedWithToken, ops.OutfeedWithToken))
RecvFromHost, SendToHost = map(_same, (ops.RecvFromHost, ops.SendToHost))
Reduce, ReducePrecision = map(_same, (ops.Reduce, ops.ReducePrecision))
ReduceWindowWithGeneralPadding, Scatter = map(_same, (ops.ReduceWindowWithGeneralPadding, ops.Scatter))
SelectAndScatterWithGeneralPadding = _same(ops.SelectAndScatterWithGeneralPadding)
Reshape, Rev, Transpose, Slice, SliceInDim = map(_same, (ops.Reshape, ops.Rev, ops.Transpose, ops.Slice, ops.SliceInDim))
RngBitGenerator, RngNormal, RngUniform = map(_same, (ops.RngBitGenerator, ops.RngNormal, ops.RngUniform))

# ------------------------------------------------------------------------------------------- what differs


@raising
def AllGather(operand: XlaOp, all_gather_dimension: int, shard_count: int, replica_groups: Sequence[Any] = (),
              channel_id: Any = None, shape_with_layout: Any = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """As `xla_torch.ops.AllGather`; what is named `shape_with_layout` is a Layout."""
    return ops.AllGather(operand, all_gather_dimension, shard_count, given(replica_groups), given(channel_id),
                         given(shape_with_layout), use_global_device_ids)


@raising
def ApproxTopK(builder: XlaBuilder, operands: Ops, init_values: Ops, top_k: int, reduction_dim: int, comparator: Any,
               recall_target: float = 0.9, aggregate_to_topk: bool = True, reduction_input_size_override: int = -1) -> XlaOp:
    """As `xla_torch.ops.ApproxTopK`, which is exact. Raises UnsupportedError for results that are not aggregated, of which there
    would be more than `top_k`."""
    _require_aggregated("ApproxTopK", aggregate_to_topk)
    return ops.ApproxTopK(builder, list(operands), list(init_values), top_k, reduction_dim, comparator, recall_target)


ApproxTopKFallback = ApproxTopK


@raising
def ApproxTopKReductionOutputSize(input_size: int, rank: int, top_k: int, recall_target: float, aggregate_to_topk: bool = True,
                                  input_size_override: int = -1) -> tuple[int, int]:
    """(elements that `ApproxTopK` gives, -1). Raises UnsupportedError as it does."""
    _require_aggregated("ApproxTopKReductionOutputSize", aggregate_to_topk)
    return top_k, -1


def _require_aggregated(subject: str, aggregated: bool) -> None:
    if not aggregated:
        raise UnsupportedError("aggregate_to_topk must be True", subject=subject, got="aggregate_to_topk=False",
                               hint="leave it out: the result is exact, and has top_k elements")


@raising
def Cholesky(a: XlaOp, lower: bool = True) -> XlaOp:
    """As `xla_torch.ops.Cholesky`, by default of the lower triangle."""
    return ops.Cholesky(a, lower)


@raising
def Constant(builder: XlaBuilder, literal: Any) -> XlaOp:
    """A constant in NumPy's type for the value: a Python float is F64, an int S64, a complex number C128."""
    return ops.ConstantLiteral(builder, np.asarray(literal))


ConstantLiteral = Constant


@raising
def Eigh(a: XlaOp, lower: bool = True, max_iter: int = 15, epsilon: float = 1e-5,
         sort_eigenvalues: bool = True) -> tuple[XlaOp, XlaOp]:
    """Eigenvectors, in columns, and eigenvalues, always in ascending order and as exactly as LAPACK finds them: nothing iterates
    that `max_iter` and `epsilon` could stop."""
    return ops.Eigh(a, lower)


@raising
def Gather(a: XlaOp, start_indices: XlaOp, dimension_numbers: Any, slice_sizes: Sequence[int],
           indices_are_sorted: bool = False) -> XlaOp:
    """As `xla_torch.ops.Gather`."""
    return ops.Gather(a, start_indices, given(dimension_numbers), slice_sizes, indices_are_sorted)


@raising
def Iota(builder: XlaBuilder, *args: Any, **kwargs: Any) -> XlaOp:
    """``Iota(builder, shape, iota_dimension)`` or ``Iota(builder, type, size)``."""
    older = {"type": "shape", "size": "iota_dimension"}
    return ops.Iota(builder, *map(given, args), **{older.get(name, name): given(value) for name, value in kwargs.items()})


@raising
def LU(operand: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """As `xla_torch.ops.LU`."""
    return ops.LU(operand)


@raising
def QR(operand: XlaOp, full_matrices: bool) -> tuple[XlaOp, XlaOp]:
    """As `xla_torch.ops.QR`."""
    return ops.QR(operand, full_matrices)


@raising
def QrDecomposition(operand: XlaOp) -> tuple[XlaOp, XlaOp]:
    """(packed, taus): R in the upper triangle of `packed`, and below it the Householder vectors that `taus` scales."""
    shape = _matrices("QrDecomposition", operand)
    taus = (*shape.dimensions[:-2], min(shape.dimensions[-2:]))
    results = [OwnShape.array(shape.element_type, dims) for dims in (shape.dimensions, taus)]
    call = lapack("geqrf", [operand], results)
    return ops.GetTupleElement(call, 0), ops.GetTupleElement(call, 1)


@raising
def ProductOfElementaryHouseholderReflectors(a: XlaOp, taus: XlaOp) -> XlaOp:
    """The matrix with orthonormal columns that `QrDecomposition` gives in parts."""
    shape = _matrices("ProductOfElementaryHouseholderReflectors", a)
    routine = "ungqr" if shape.element_type.is_complex else "orgqr"
    return lapack(routine, [a, taus], OwnShape.array(shape.element_type, shape.dimensions))


def _matrices(subject: str, a: XlaOp) -> OwnShape:
    if a.shape.element_type not in PREFIXES or a.shape.rank < 2 or not a.shape.is_static:
        raise InvalidArgument("not matrices that LAPACK knows", subject=subject, got=a.shape,
                              expected="matrices of f32, f64, c64 or c128")
    return a.shape


@raising
def SVD(a: XlaOp, max_iter: int = 100, epsilon: float = 1e-6) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(u, d, v) with ``a = u diag(d) v^H`` and square u and v, as exactly as LAPACK finds them: nothing iterates that `max_iter`
    and `epsilon` could stop."""
    return ops.SVD(a, True)


@raising
def Sort(builder: XlaBuilder, operands: Ops, comparator: Any = None, dimension: int = -1, is_stable: bool = False) -> XlaOp:
    """Sort arrays together, by default in ascending total order of the first."""
    return ops.Sort(list(operands), comparator or _ascending, dimension, is_stable)


def _ascending(lhs: XlaOp, rhs: XlaOp, *_: XlaOp) -> XlaOp:
    return ops.LtTotalOrder(lhs, rhs)


@raising
def CustomCall(builder: XlaBuilder, call_target_name: bytes | str, operands: Ops, shape: Any, opaque: bytes = b"",
               has_side_effect: bool = False, schedule: Any = _NONE, api_version: Any = _ORIGINAL) -> XlaOp:
    """A call of a function by its name, in bytes or as a text."""
    return ops.CustomCall(builder, _text(call_target_name), list(operands), given(shape), opaque, has_side_effect,
                          schedule=given(schedule), api_version=given(api_version))


@raising
def CustomCallWithLayout(builder: XlaBuilder, call_target_name: bytes | str, operands: Ops, shape_with_layout: Any,
                         operand_shapes_with_layout: Sequence[Any], opaque: bytes = b"", has_side_effect: bool = False,
                         schedule: Any = _NONE, api_version: Any = _ORIGINAL) -> XlaOp:
    """`CustomCall` with the layouts that operands and result must have."""
    return ops.CustomCallWithLayout(builder, _text(call_target_name), list(operands), given(shape_with_layout),
                                    given(list(operand_shapes_with_layout)), opaque, has_side_effect,
                                    schedule=given(schedule), api_version=given(api_version))


@raising
def CustomCallWithAliasing(builder: XlaBuilder, call_target_name: bytes | str, operands: Ops, shape_with_layout: Any,
                           operand_shapes_with_layout: Sequence[Any], opaque: bytes = b"", has_side_effect: bool = False,
                           output_operand_aliasing: Sequence[Any] = (), literal: Any = None, schedule: Any = _NONE,
                           api_version: Any = _ORIGINAL) -> XlaOp:
    """`CustomCallWithLayout` that says which result may take which operand's memory."""
    return ops.CustomCallWithLayout(builder, _text(call_target_name), list(operands), given(shape_with_layout),
                                    given(list(operand_shapes_with_layout)), opaque, has_side_effect,
                                    output_operand_aliasing, literal, given(schedule), given(api_version))


@raising
def CustomCallWithComputation(builder: XlaBuilder, call_target_name: bytes | str, operands: Ops, computation: Any, shape: Any,
                              opaque: bytes = b"", has_side_effect: bool = False, schedule: Any = _NONE,
                              api_version: Any = _ORIGINAL) -> XlaOp:
    """`CustomCall` of a function that is given a computation."""
    return ops.CustomCallWithComputation(builder, _text(call_target_name), list(operands), computation, given(shape), opaque,
                                         has_side_effect, given(schedule), given(api_version))


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
