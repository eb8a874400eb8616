"""Matrix decompositions and approximate TopK, as XLA's client library has them.

Decompositions call the LAPACK routines that JAX programs for the CPU call, under the same names and in the same form, so real
XLA runs them where JAX has registered these. They take matrices [..., m, n] of F32, F64, C64 or C128, and raise
InvalidArgument for others. Where a routine fails (say, for NaN), results are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..builder import Liftable, XlaBuilder, XlaOp, documented, lift
from ..errors import InvalidArgument
from ..opcodes.shapes import require
from ..shape import Layout, Shape
from ..types import C64, C128, F32, F64, S32, PrimitiveType
from .comparison import Eq, Ge, Gt, Select
from .control import GetTupleElement, Tuple, While
from .elementwise import Add, Conj
from .indexing import DynamicSliceInDim
from .movement import Broadcast, BroadcastInDim, Iota, PadInDim, SliceInDim, Transpose
from .reduction import Reduce
from .sorting import Sort

__all__ = ["LU", "QR", "SVD", "ApproxTopK", "Eigh"]


# ------------------------------------------------------------------------------------------- calling LAPACK

_PREFIX = {F32: "s", F64: "d", C64: "c", C128: "z"}


def _require_matrices(subject: str, a: XlaOp, square: bool = False) -> tuple[tuple[int, ...], int, int]:
    """(batch dimensions, rows, columns)."""
    shape = a.shape
    good = shape.is_array and shape.rank >= 2 and shape.is_static and shape.element_type in _PREFIX
    if not good or (square and shape.dimensions[-1] != shape.dimensions[-2]):
        raise InvalidArgument("the operand has no such decomposition", subject=subject, got=shape,
                              expected=f"{'square ' if square else ''}matrices of f32, f64, c64 or c128")
    return shape.dimensions[:-2], shape.dimensions[-2], shape.dimensions[-1]


def _matrices(element_type: PrimitiveType, dimensions: Sequence[int]) -> Shape:
    """The shape of matrices as LAPACK has them: column by column."""
    rank = len(dimensions)
    return Shape.array(element_type, dimensions, layout=Layout((rank - 2, rank - 1, *range(rank - 3, -1, -1))))


def _arrays(element_type: PrimitiveType, dimensions: Sequence[int]) -> Shape:
    return Shape.array(element_type, dimensions, layout=Layout(tuple(range(len(dimensions) - 1, -1, -1))))


def _lapack(routine: str, operands: Sequence[XlaOp], given: Sequence[Shape], result: Shape, **letters: str) -> XlaOp:
    """Call a routine with operands in the layouts of `given`."""
    builder, prefix = operands[0].builder, _PREFIX[operands[0].element_type]
    config = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in letters.items())
    constraints = ", ".join(shape.to_text() for shape in given)
    return builder.add("custom-call", operands, {
        "custom_call_target": f"lapack_{prefix}{routine}_ffi", "operand_layout_constraints": "{" + constraints + "}",
        "api_version": "API_VERSION_TYPED_FFI"}, result, common={"backend_config": "{" + config + "}"})


def _unless_failed(good: XlaOp, value: XlaOp) -> XlaOp:
    """The value, or NaN for matrices that are not good."""
    builder, dims, batch = value.builder, value.shape.dimensions, good.shape.rank
    nan = complex(math.nan, math.nan) if value.element_type.is_complex else math.nan
    spread = BroadcastInDim(good, dims, range(batch))
    return Select(spread, value, Broadcast(lift(builder, nan, value), dims))


def _adjoint(a: XlaOp) -> XlaOp:
    rank = a.shape.rank
    swapped = Transpose(a, [*range(rank - 2), rank - 1, rank - 2])
    return Conj(swapped) if a.element_type.is_complex else swapped


# ------------------------------------------------------------------------------------------- decompositions


@documented
def QR(a: XlaOp, full_matrices: bool = False) -> tuple[XlaOp, XlaOp]:
    """(q, r) with ``a = q r``, where the columns of q are orthonormal and r is upper triangular.

    q is [..., m, k] and r [..., k, n], where k is m with `full_matrices`, else the smaller of m and n.
    """
    batch, m, n = _require_matrices("QR", a)
    small, kind = min(m, n), a.element_type
    reflections = _arrays(kind, (*batch, small))
    call = _lapack("geqrf", [a], [_matrices(kind, a.shape.dimensions)],
                   Shape.tuple([_matrices(kind, a.shape.dimensions), reflections]))
    packed, tau = GetTupleElement(call, 0), GetTupleElement(call, 1)
    rank, width = a.shape.rank, m if full_matrices else small
    wide = PadInDim(packed, 0, rank - 1, 0, width - n) if width > n else SliceInDim(packed, 0, width, 1, rank - 1)
    matrices = _matrices(kind, (*batch, m, width))
    routine = "ungqr" if kind.is_complex else "orgqr"
    q = _lapack(routine, [wide, tau], [matrices, reflections], matrices)
    r = SliceInDim(packed, 0, width, 1, rank - 2)
    positions = Shape.array(S32, r.shape.dimensions)
    below = Gt(Iota(a.builder, positions, rank - 2), Iota(a.builder, positions, rank - 1))
    return q, Select(below, 0.0, r)


@documented
def Eigh(a: XlaOp, lower: bool = True) -> tuple[XlaOp, XlaOp]:
    """(v, w): eigenvectors, in columns, and eigenvalues in ascending order of Hermitian matrices: ``a v = v w``.

    Only the lower (or upper) triangle is read.
    """
    batch, n, _ = _require_matrices("Eigh", a, square=True)
    kind = a.element_type
    matrices = _matrices(kind, a.shape.dimensions)
    result = Shape.tuple([matrices, _arrays(_real(kind), (*batch, n)), _arrays(S32, batch)])
    call = _lapack("heevd" if kind.is_complex else "syevd", [a], [matrices], result, mode="V", uplo="L" if lower else "U")
    good = Eq(GetTupleElement(call, 2), 0)
    return _unless_failed(good, GetTupleElement(call, 0)), _unless_failed(good, GetTupleElement(call, 1))


def _real(kind: PrimitiveType) -> PrimitiveType:
    return {C64: F32, C128: F64}.get(kind, kind)


@documented
def SVD(a: XlaOp, full_matrices: bool = False) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(u, d, v) with ``a = u diag(d) v^H``: singular vectors, in columns, and singular values in descending order.

    With k the smaller of m and n, d is [..., k], u [..., m, k] and v [..., n, k]; with `full_matrices` they are square.
    """
    batch, m, n = _require_matrices("SVD", a)
    kind, small = a.element_type, min(m, n)
    left, right = (m, n) if full_matrices else (small, small)
    matrices = _matrices(kind, a.shape.dimensions)
    result = Shape.tuple([matrices, _arrays(_real(kind), (*batch, small)), _matrices(kind, (*batch, m, left)),
                          _matrices(kind, (*batch, right, n)), _arrays(S32, batch)])
    call = _lapack("gesdd", [a], [matrices], result, mode="A" if full_matrices else "S")
    good = Eq(GetTupleElement(call, 4), 0)
    d, u, v = (_unless_failed(good, GetTupleElement(call, k)) for k in (1, 2, 3))
    return u, d, _adjoint(v)


@documented
def LU(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(lu, pivots, permutation) with ``a[permutation] = l u``, by rows in which the largest elements were looked for.

    lu holds u, and below its diagonal l, of which the diagonal is 1. Row i was exchanged with row ``pivots[..., i]`` in turn
    (s32 [..., min(m, n)]); `permutation` (s32 [..., m]) is what comes of that.
    """
    batch, m, n = _require_matrices("LU", a)
    matrices = _matrices(a.element_type, a.shape.dimensions)
    result = Shape.tuple([matrices, _arrays(S32, (*batch, min(m, n))), _arrays(S32, batch)])
    call = _lapack("getrf", [a], [matrices], result)
    pivots = GetTupleElement(call, 1) - 1
    # A positive info tells of a singular matrix, which has a decomposition.
    lu = _unless_failed(Ge(GetTupleElement(call, 2), 0), GetTupleElement(call, 0))
    return lu, pivots, _permutation(pivots, m)


def _permutation(pivots: XlaOp, rows: int) -> XlaOp:
    """The rows after the exchanges, one after another."""
    builder, dimension, rounds = pivots.builder, pivots.shape.rank - 1, pivots.shape.dimensions[-1]
    positions = Shape.array(S32, (*pivots.shape.dimensions[:-1], rows))
    init = Tuple(builder, [builder.constant(0), Iota(builder, positions, dimension), pivots])
    condition, body, sum_of = XlaBuilder("rows_left"), XlaBuilder("exchange"), XlaBuilder("sum")
    going_on = GetTupleElement(condition.parameter(0, init.shape), 0) < rounds
    Add(sum_of.parameter(0, Shape(S32)), sum_of.parameter(1, Shape(S32)))

    carry = body.parameter(0, init.shape)
    row, order, pivots = (GetTupleElement(carry, k) for k in range(3))
    columns = Iota(body, positions, dimension)
    is_row, is_other = Eq(columns, row), Eq(columns, DynamicSliceInDim(pivots, row, 1, dimension))

    def at(place: XlaOp) -> XlaOp:
        found = Reduce(Select(place, order, 0), 0, sum_of.finish(), [dimension])
        return BroadcastInDim(found, positions.dimensions, range(dimension))

    exchanged = Select(is_row, at(is_other), Select(is_other, at(is_row), order))
    Tuple(body, [row + 1, exchanged, pivots])
    return GetTupleElement(While(condition.finish(going_on), body.finish(), init), 1)


# ------------------------------------------------------------------------------------------- approximate TopK


@documented
def ApproxTopK(builder: XlaBuilder, operands: Sequence[XlaOp], init_values: Sequence[XlaOp | Liftable], top_k: int,
               reduction_dim: int, comparator: Any, recall_target: float = 0.9, aggregate_to_topk: bool = True,
               reduction_input_size_override: int = -1) -> XlaOp:
    """The first `top_k` elements of each operand along a dimension, in the order of the first operand: a tuple.

    Here the answer is exact: the operands are sorted together by `comparator` (see `Sort`), and all of what is found is what
    was wanted. So `recall_target` is always met, there is nothing left to aggregate (`aggregate_to_topk` and
    `reduction_input_size_override` have no effect), and `init_values`, with which approximate algorithms fill up, are not
    needed. Raises InvalidArgument for a dimension, count, target or number of init values out of range.
    """
    operands = list(operands)
    require(0 < len(operands) == len(init_values), "one init value is needed for each operand", len(init_values), len(operands))
    shape = operands[0].shape
    require(0 <= reduction_dim < shape.rank, "the dimension is out of range", f"{reduction_dim} for {shape}",
            f"0 to {shape.rank - 1}")
    require(0 < top_k <= shape.dimensions[reduction_dim], "top_k is out of range", top_k,
            f"1 to {shape.dimensions[reduction_dim]}")
    require(0.0 < recall_target <= 1.0, "the recall target is out of range", recall_target, "more than 0, up to 1")
    result = Sort(operands, comparator, reduction_dim, is_stable=True)
    parts = [result] if len(operands) == 1 else [GetTupleElement(result, k) for k in range(len(operands))]
    return Tuple(builder, [SliceInDim(part, 0, top_k, 1, reduction_dim) for part in parts])
