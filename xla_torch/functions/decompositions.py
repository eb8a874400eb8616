"""Matrix decompositions and approximate TopK, as XLA's client library has them.

Decompositions call the LAPACK routines that JAX programs for the CPU call, under the same names and in the same form, so real
XLA runs them where JAX has registered these. They take matrices [..., m, n] of F32, F64, C64 or C128, and raise
InvalidArgument for others. Where a routine fails (say, for NaN), results are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import S32
from ..opcodes.shapes import require
from ._documented import documented
from .comparison import Eq, Ge, Gt, Select
from .control import GetTupleElement, Tuple
from .convert import ConvertElementType
from .elementwise import Conj
from .hlo_builder import Builder, Liftable, Region, XlaOp, lift
from .indexing import Gather, GatherDimensionNumbers
from .lapack import PREFIXES, lapack, real_type
from .movement import Broadcast, BroadcastInDim, ConcatInDim, Iota, PadInDim, Reshape, SliceInDim, Transpose
from .sorting import Sort

__all__ = ["LU", "QR", "SVD", "ApproxTopK", "Eigh"]


# ------------------------------------------------------------------------------------------- operands and failures


def _require_matrices(subject: str, a: XlaOp, square: bool = False) -> tuple[tuple[int, ...], int, int]:
    """(batch dimensions, rows, columns)."""
    shape = a.shape
    good = shape.is_array and shape.rank >= 2 and shape.is_static and shape.element_type in PREFIXES
    if not good or (square and shape.dimensions[-1] != shape.dimensions[-2]):
        raise InvalidArgument("the operand has no such decomposition", subject=subject, got=shape,
                              expected=f"{'square ' if square else ''}matrices of f32, f64, c64 or c128")
    return shape.dimensions[:-2], shape.dimensions[-2], shape.dimensions[-1]


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

    >>> a = torch.tensor([[3.0, 1.0], [4.0, 2.0]])
    >>> q, r = ops.QR(a)
    >>> torch.allclose(q @ r, a), torch.allclose(q.T @ q, torch.eye(2), atol=1e-6)
    (True, True)
    """
    batch, m, n = _require_matrices("QR", a)
    small, kind = min(m, n), a.element_type
    if not a.shape.element_count:
        return _nothing_in_qr(a, m if full_matrices else small)
    reflections = Shape.array(kind, (*batch, small))
    call = lapack("geqrf", [a], [Shape.array(kind, a.shape.dimensions), reflections])
    packed, tau = GetTupleElement(call, 0), GetTupleElement(call, 1)
    rank, width = a.shape.rank, m if full_matrices else small
    wide = PadInDim(packed, 0, rank - 1, 0, width - n) if width > n else SliceInDim(packed, 0, width, 1, rank - 1)
    q = lapack("ungqr" if kind.is_complex else "orgqr", [wide, tau], Shape.array(kind, (*batch, m, width)))
    r = SliceInDim(packed, 0, width, 1, rank - 2)
    positions = Shape.array(S32, r.shape.dimensions)
    below = Gt(Iota(a.builder, positions, rank - 2), Iota(a.builder, positions, rank - 1))
    return q, Select(below, 0.0, r)


def _nothing_in_qr(a: XlaOp, width: int) -> tuple[XlaOp, XlaOp]:
    """(ones in the diagonal, nothing): there is nothing to reflect."""
    *batch, m, n = a.shape.dimensions
    places = Shape.array(S32, (*batch, m, width))
    rank = a.shape.rank
    same = Eq(Iota(a.builder, places, rank - 2), Iota(a.builder, places, rank - 1))
    return ConvertElementType(same, a.element_type), Broadcast(lift(a.builder, 0, a), (*batch, width, n))


@documented
def Eigh(a: XlaOp, lower: bool = True) -> tuple[XlaOp, XlaOp]:
    """(v, w): eigenvectors, in columns, and eigenvalues in ascending order of Hermitian matrices: ``a v = v w``.

    Only the lower (or upper) triangle is read.

    The sign of each vector (its phase, of complex ones) is that of torch's LAPACK, and may differ from XLA's.

    >>> v, w = ops.Eigh(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> w
    tensor([1., 3.])
    """
    batch, n, _ = _require_matrices("Eigh", a, square=True)
    kind = a.element_type
    results = [Shape.array(kind, a.shape.dimensions), Shape.array(real_type(kind), (*batch, n)), Shape.array(S32, batch)]
    call = lapack("heevd" if kind.is_complex else "syevd", [a], results, mode="V", uplo="L" if lower else "U")
    good = Eq(GetTupleElement(call, 2), 0)
    return _unless_failed(good, GetTupleElement(call, 0)), _unless_failed(good, GetTupleElement(call, 1))


@documented
def SVD(a: XlaOp, full_matrices: bool = False) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(u, d, v) with ``a = u diag(d) v^H``: singular vectors, in columns, and singular values in descending order.

    With k the smaller of m and n, d is [..., k], u [..., m, k] and v [..., n, k]; with `full_matrices` they are square.

    The sign of each vector (its phase, of complex ones) is that of torch's LAPACK, and may differ from XLA's.

    >>> a = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    >>> u, d, v = ops.SVD(a)
    >>> d, torch.allclose(u @ d.diag() @ v.T, a)
    (tensor([4., 3.]), True)
    """
    batch, m, n = _require_matrices("SVD", a)
    kind, small = a.element_type, min(m, n)
    left, right = (m, n) if full_matrices else (small, small)
    results = [Shape.array(kind, a.shape.dimensions), Shape.array(real_type(kind), (*batch, small)),
               Shape.array(kind, (*batch, m, left)), Shape.array(kind, (*batch, right, n)), Shape.array(S32, batch)]
    call = lapack("gesdd", [a], results, mode="A" if full_matrices else "S")
    good = Eq(GetTupleElement(call, 4), 0)
    d, u, v = (_unless_failed(good, GetTupleElement(call, k)) for k in (1, 2, 3))
    return u, d, _adjoint(v)


@documented
def LU(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(lu, pivots, permutation) with ``a[permutation] = l u``, by rows in which the largest elements were looked for.

    lu holds u, and below its diagonal l, of which the diagonal is 1. Row i was exchanged with row ``pivots[..., i]`` in turn
    (s32 [..., min(m, n)]); `permutation` (s32 [..., m]) is what comes of that.

    >>> a = torch.tensor([[1.0, 2.0], [4.0, 2.0]])
    >>> lu, pivots, permutation = ops.LU(a)
    >>> lu, pivots, permutation
    (tensor([[4.0000, 2.0000],
            [0.2500, 1.5000]]), tensor([1, 1], dtype=torch.int32), tensor([1, 0], dtype=torch.int32))
    """
    lu, pivots, _ = factorised(a)
    return lu, pivots, permutation(pivots, a.shape.dimensions[-2])


def factorised(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """(lu, pivots, info) as `LU` has them; info (s32) is 0, or the number from 1 on of the first pivot that is 0."""
    batch, m, n = _require_matrices("LU", a)
    if not a.shape.element_count:
        return a, *(Broadcast(lift(a.builder, 0, S32), dims) for dims in ((*batch, min(m, n)), batch))
    call = lapack("getrf", [a], [Shape.array(a.element_type, a.shape.dimensions), Shape.array(S32, (*batch, min(m, n))),
                                 Shape.array(S32, batch)])
    pivots, info = GetTupleElement(call, 1) - 1, GetTupleElement(call, 2)
    # A positive info tells of a singular matrix, which has a decomposition.
    return _unless_failed(Ge(info, 0), GetTupleElement(call, 0)), pivots, info


def permutation(pivots: XlaOp, rows: int) -> XlaOp:
    """What becomes of so many rows where row i is exchanged with row ``pivots[..., i]``, for one i after another.

    Exchanges are put together by twos, by fours and so on: a logarithm of steps, each for as many numbers as the matrix has.
    """
    builder, (*batch, count) = pivots.builder, pivots.shape.dimensions
    rank = pivots.shape.rank + 1
    each = Shape.array(S32, (*batch, count, rows))
    row, number = Iota(builder, each, rank - 1), Iota(builder, each, rank - 2)
    other = BroadcastInDim(pivots, each.dimensions, range(rank - 1))
    orders = Select(Eq(row, number), other, Select(Eq(row, other), number, row))
    while count > 1:
        if count % 2:  # then the last one waits
            orders = ConcatInDim(builder, [orders, Iota(builder, Shape.array(S32, (*batch, 1, rows)), rank - 1)], rank - 2)
        count = (count + 1) // 2
        first, then = (SliceInDim(orders, start, 2 * count, 2, rank - 2) for start in (0, 1))
        orders = _at_places(first, then)
    if not count:
        return Iota(builder, Shape.array(S32, (*batch, rows)), rank - 2)
    return Reshape(orders, (*batch, rows))


def _at_places(x: XlaOp, places: XlaOp) -> XlaOp:
    """The elements at these places of the last dimension."""
    if not places.shape.element_count:
        return places
    last = x.shape.rank - 1
    batch = tuple(range(last))
    return Gather(x, places, GatherDimensionNumbers((), (last,), (last,), last + 1, batch, batch), (1,) * (last + 1))


# ------------------------------------------------------------------------------------------- approximate TopK


@documented
def ApproxTopK(builder: Builder, operands: Sequence[XlaOp], init_values: Sequence[XlaOp | Liftable], top_k: int,
               reduction_dim: int, comparator: Region, recall_target: float = 0.9, aggregate_to_topk: bool = True,
               reduction_input_size_override: int = -1) -> XlaOp:
    """The first `top_k` elements of each operand along a dimension, in the order of the first operand: a tuple.

    Here the answer is exact: the operands are sorted together by `comparator` (see `Sort`), and all of what is found is what
    was wanted. So `recall_target` is always met, there is nothing left to aggregate (`aggregate_to_topk` and
    `reduction_input_size_override` have no effect), and `init_values`, with which approximate algorithms fill up, are not
    needed. Raises InvalidArgument for a dimension, count, target or number of init values out of range, and for an init value
    that is no scalar of its operand's type.

    >>> ops.ApproxTopK([torch.tensor([1.0, 4.0, 2.0, 3.0])], [float("-inf")], 2, 0, ops.Gt)
    (tensor([4., 3.]),)
    """
    operands = list(operands)
    require(0 < len(operands) == len(init_values), "one init value is needed for each operand", len(init_values), len(operands))
    for k, (operand, given) in enumerate(zip(operands, init_values, strict=True)):
        init = lift(operand.builder, given, operand)
        require(init.shape.compatible(Shape(operand.element_type)), f"init value {k} does not fit its operand", init.shape,
                Shape(operand.element_type))
    shape = operands[0].shape
    require(0 <= reduction_dim < shape.rank, "the dimension is out of range", f"{reduction_dim} for {shape}",
            f"0 to {shape.rank - 1}")
    require(0 < top_k <= shape.dimensions[reduction_dim], "top_k is out of range", top_k,
            f"1 to {shape.dimensions[reduction_dim]}")
    require(0.0 < recall_target <= 1.0, "the recall target is out of range", recall_target, "more than 0, up to 1")
    result = Sort(operands, comparator, reduction_dim, is_stable=True)
    parts = [result] if len(operands) == 1 else [GetTupleElement(result, k) for k in range(len(operands))]
    return Tuple(builder, [SliceInDim(part, 0, top_k, 1, reduction_dim) for part in parts])
