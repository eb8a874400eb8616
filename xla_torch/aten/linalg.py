"""Linear algebra by the documented decompositions. What torch would raise for (a matrix that is singular, or not positive
definite) is NaN or infinite, and `info` says so where torch gives one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import S32, PrimitiveType
from ..functions.contraction import DotDimensionNumbers
from ..functions.decompositions import factorised, permutation
from ..functions.hlo_builder import XlaOp
from ..functions.lapack import lapack, real_type
from .indexing import taken_along
from .operator_rules import rule
from .values import broadcast_sizes, cast, full, iota, reduced, spread

# ------------------------------------------------------------------------------------------- matrices


def _transposed(x: XlaOp) -> XlaOp:
    rank = x.shape.rank
    return ops.Transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _adjoint(x: XlaOp) -> XlaOp:
    return ops.Conj(_transposed(x)) if x.element_type.is_complex else _transposed(x)


def _product(lhs: XlaOp, rhs: XlaOp) -> XlaOp:
    batch = tuple(range(lhs.shape.rank - 2))
    return ops.DotGeneral(lhs, rhs, DotDimensionNumbers((len(batch) + 1,), (len(batch),), batch, batch))


def _where(x: XlaOp, comparison: str, offset: int = 0) -> XlaOp:
    """Whether an element's row is related like that to its column."""
    sizes, rank = x.shape.dimensions, x.shape.rank
    return getattr(ops, comparison)(iota(x, sizes, rank - 2) + offset, iota(x, sizes, rank - 1))


def _triangle(x: XlaOp, upper: bool) -> XlaOp:
    return ops.Select(_where(x, "Le" if upper else "Ge"), x, full(x.builder, 0, x.shape))


def _identity(like: XlaOp, rows: int, columns: int) -> XlaOp:
    """Ones in the diagonal of matrices in the batch of others."""
    zeros = full(like.builder, 0, Shape.array(like.element_type, (*like.shape.dimensions[:-2], rows, columns)))
    return ops.Select(_where(zeros, "Eq"), full(like.builder, 1, zeros.shape), zeros)


def _diagonal(x: XlaOp) -> XlaOp:
    """[..., min(m, n)]."""
    *batch, m, n = x.shape.dimensions
    kept = ops.Select(_where(x, "Eq"), x, full(x.builder, 0, x.shape))
    return ops.SliceInDim(reduced(kept, "Add", 0, [x.shape.rank - 2]), 0, min(m, n), 1, len(batch))


def _rows(x: XlaOp, places: XlaOp) -> XlaOp:
    """The rows of matrices at these places, [..., m]."""
    if not x.shape.element_count:
        return x
    sizes = [*places.shape.dimensions, x.shape.dimensions[-1]]
    return taken_along(x, ops.BroadcastInDim(places, sizes, range(len(sizes) - 1)), x.shape.rank - 2)


def _together(*matrices: XlaOp) -> list[XlaOp]:
    """The matrices in one batch."""
    batch = broadcast_sizes(*(m.shape.dimensions[:-2] for m in matrices))
    return [spread(m, [*batch, *m.shape.dimensions[-2:]]) for m in matrices]


def _solved(a: XlaOp, b: XlaOp, *choices: Any) -> XlaOp:
    """`TriangularSolve`, which XLA does not compile for nothing."""
    return ops.TriangularSolve(a, b, *choices) if b.shape.element_count else b


def _factor(a: XlaOp, lower: bool) -> XlaOp:
    return ops.Cholesky(a, lower) if a.shape.element_count else a


def _unset(result: Shape, like: XlaOp) -> XlaOp:
    """A result that was not asked for, which torch leaves empty."""
    return full(like.builder, 0, result)


# ------------------------------------------------------------------------------------------- eigenvalues, singular values


@rule("_linalg_eigh")
def _eigh(A: XlaOp, UPLO: str, compute_v: bool, result: Sequence[Shape]) -> list[XlaOp]:  # noqa: N803
    vectors, values = ops.Eigh(A, UPLO.upper() == "L")
    return [values, vectors if compute_v else _unset(result[1], A)]


@rule("linalg_eig")
def _eig(self: XlaOp, result: Sequence[Shape]) -> list[XlaOp]:
    kind, (values, vectors) = self.element_type, result
    info = Shape.array(S32, self.shape.dimensions[:-2])
    parts = [values] if kind.is_complex else [values.with_element_type(real_type(values.element_type))] * 2
    call = lapack("geev", [self], [*parts, vectors, vectors, info], compute_left="N", compute_right="V")
    found = [ops.GetTupleElement(call, k) for k in range(len(parts) + 2)]
    return [found[0] if kind.is_complex else ops.Complex(*found[:2]), found[-1]]


@rule("_linalg_eigvals", "linalg_eigvals")
def _eigvals(self: XlaOp, result: Shape) -> XlaOp:
    return _eig(self, [result, result.with_dimensions(self.shape.dimensions)])[0]


@rule("_linalg_svd")
def _svd(A: XlaOp, full_matrices: bool, compute_uv: bool, result: Sequence[Shape]) -> list[XlaOp]:  # noqa: N803
    left, values, right = _singular(A, full_matrices and compute_uv)
    return [left, values, _adjoint(right)] if compute_uv else [_unset(result[0], A), values, _unset(result[2], A)]


def _singular(matrices: XlaOp, full_matrices: bool = False) -> list[XlaOp]:
    """Left vectors, values, right vectors as columns. LAPACK takes no matrices without rows or columns."""
    rows, columns = matrices.shape.dimensions[-2:]
    if rows and columns:
        return list(ops.SVD(matrices, full_matrices))
    none = Shape.array(real_type(matrices.element_type), (*matrices.shape.dimensions[:-2], 0))
    left, right = ((n, n if full_matrices else 0) for n in (rows, columns))
    return [_identity(matrices, *left), full(matrices.builder, 0, none), _identity(matrices, *right)]


@rule("linalg_pinv.atol_rtol_tensor")
def _pinv(self: XlaOp, atol: XlaOp | None, rtol: XlaOp | None, hermitian: bool) -> XlaOp:
    """By the singular values above the tolerances; `rtol` is that of rounding, unless there is an `atol`."""
    if hermitian:
        left, signed = ops.Eigh(self, True)
        right, sizes = left, ops.Abs(signed)
    else:
        left, signed, right = _singular(self)
        sizes = signed
    greatest = reduced(sizes, "Max", 0, [sizes.shape.rank - 1], keepdim=True)

    def each(tolerance: XlaOp) -> XlaOp:
        wide = cast(tolerance, sizes.element_type)
        return spread(ops.Reshape(wide, [*wide.shape.dimensions, 1]), greatest.shape.dimensions)

    rounding = full(self.builder, _epsilon(sizes.element_type) * max(self.shape.dimensions[-2:]), greatest.shape)
    absolute = full(self.builder, 0, greatest.shape) if atol is None else each(atol)
    relative = ops.Select(ops.Gt(absolute, 0), full(self.builder, 0, greatest.shape), rounding) if rtol is None else each(rtol)
    kept = ops.Gt(sizes, spread(ops.Max(absolute, relative * greatest), sizes.shape.dimensions))
    one = full(self.builder, 1, sizes.shape)
    inverse = ops.Select(kept, one / ops.Select(kept, signed, one), full(self.builder, 0, sizes.shape))
    scaled = ops.Mul(right, ops.BroadcastInDim(cast(inverse, self.element_type), right.shape.dimensions,
                                               [*range(right.shape.rank - 2), right.shape.rank - 1]))
    return _product(scaled, _adjoint(left))


def _epsilon(element_type: PrimitiveType) -> float:
    return math.ldexp(1.0, -52 if element_type.bits == 64 else -23)


# ------------------------------------------------------------------------------------------- Cholesky factors


@rule("linalg_cholesky_ex")
def _cholesky_ex(self: XlaOp, upper: bool) -> list[XlaOp]:
    return [_factor(self, not upper), _first_indefinite(self, upper)]


@rule("cholesky")
def _cholesky(self: XlaOp, upper: bool) -> XlaOp:
    return _factor(self, not upper)


def _first_indefinite(a: XlaOp, upper: bool) -> XlaOp:
    """The order of the first leading minor that is not positive, by elimination; 0 where all are."""
    builder, size, rank = a.builder, a.shape.dimensions[-1], a.shape.rank
    batch, real = a.shape.dimensions[:-2], real_type(a.element_type)
    info, lower = full(builder, 0, Shape.array(S32, batch)), _adjoint(a) if upper else a
    if not size:
        return info

    def body(carry: tuple[XlaOp, ...]) -> tuple[XlaOp, ...]:
        k, x, info = carry
        zero = x.builder.constant(0, S32)
        own = ops.DynamicSlice(x, [*[zero] * (rank - 1), k], [*batch, size, 1])
        at = ops.Eq(iota(own, own.shape.dimensions, rank - 2, S32), ops.Broadcast(k, own.shape.dimensions))
        pivot = reduced(ops.Select(at, own, full(x.builder, 0, own.shape)), "Add", 0, [rank - 2], keepdim=True)
        length = cast(pivot, real)
        fails = ops.Reshape(ops.Not(ops.Gt(length, 0)), batch)
        info = ops.Select(ops.And(ops.Eq(info, 0), fails), ops.Broadcast(k + 1, batch), info)
        scaled = own / spread(cast(length, a.element_type), own.shape.dimensions)
        return k + 1, x - _product(scaled, _adjoint(own)), info

    found = ops.While(lambda carry: ops.Lt(carry[0], size), body, (builder.constant(0, S32), lower, info))
    return ops.GetTupleElement(found, 2)


@rule("cholesky_solve", "_cholesky_solve_helper")
def _cholesky_solve(self: XlaOp, upper: bool, input2: XlaOp | None = None, A: XlaOp | None = None) -> XlaOp:  # noqa: N803
    given = input2 if A is None else A
    assert given is not None
    factor, right = _together(given, self)
    first = _solved(factor, right, True, not upper, False, "ADJOINT" if upper else "NO_TRANSPOSE")
    return _solved(factor, first, True, not upper, False, "NO_TRANSPOSE" if upper else "ADJOINT")


@rule("cholesky_inverse")
def _cholesky_inverse(self: XlaOp, upper: bool) -> XlaOp:
    size = self.shape.dimensions[-1]
    return _cholesky_solve(_identity(self, size, size), upper, self)


@rule("linalg_solve_triangular")
def _solve_triangular(self: XlaOp, B: XlaOp, upper: bool, left: bool, unitriangular: bool) -> XlaOp:  # noqa: N803
    a, b = _together(self, B)
    return _solved(a, b, left, not upper, unitriangular, "NO_TRANSPOSE")


@rule("triangular_solve")
def _triangular_solve(self: XlaOp, A: XlaOp, upper: bool, transpose: bool, unitriangular: bool) -> list[XlaOp]:  # noqa: N803
    a, b = _together(A, self)
    return [_solved(a, b, True, not upper, unitriangular, "TRANSPOSE" if transpose else "NO_TRANSPOSE"), a]


# ------------------------------------------------------------------------------------------- LU


def _factors(a: XlaOp, pivot: bool = True, turned: bool = False) -> list[XlaOp]:
    """(the factors in one, the rows exchanged from 1 on, the place of the first pivot that is 0), of the transposed matrix if
    `turned`: so torch does for determinants of what lies in memory by rows, and shows it."""
    if not pivot:
        raise UnsupportedError("a decomposition without pivots", subject="LU", got="pivot=False", expected="pivot=True")
    lu, pivots, info = factorised(_transposed(a) if turned else a)
    return [lu, pivots + 1, info]


def _unpacked(lu: XlaOp, pivots: XlaOp) -> list[XlaOp]:
    """(P, L, U) with ``a = P L U``."""
    *batch, m, n = lu.shape.dimensions
    small, order = min(m, n), permutation(pivots - 1, m)
    rank = lu.shape.rank
    shape = Shape.array(S32, (*batch, m, m))
    at = ops.Eq(ops.Iota(lu.builder, shape, rank - 2), ops.BroadcastInDim(order, shape.dimensions, [*range(rank - 2), rank - 1]))
    tall, flat = ops.SliceInDim(lu, 0, small, 1, rank - 1), ops.SliceInDim(lu, 0, small, 1, rank - 2)
    below = ops.Select(_where(tall, "Gt"), tall, _identity(tall, m, small))
    return [cast(at, lu.element_type), below, _triangle(flat, upper=True)]


@rule("linalg_lu_factor_ex")
def _lu_factor_ex(A: XlaOp, pivot: bool) -> list[XlaOp]:  # noqa: N803
    return _factors(A, pivot)


@rule("linalg_lu")
def _lu(A: XlaOp, pivot: bool) -> list[XlaOp]:  # noqa: N803
    return _unpacked(*_factors(A, pivot)[:2])


@rule("lu_unpack")
def _lu_unpack(LU_data: XlaOp, LU_pivots: XlaOp, unpack_data: bool, unpack_pivots: bool,  # noqa: N803
               result: Sequence[Shape]) -> list[XlaOp]:
    order, *factors = _unpacked(LU_data, LU_pivots)
    return [order if unpack_pivots else _unset(result[0], order),
            *(factors if unpack_data else [_unset(shape, order) for shape in result[1:]])]


@rule("linalg_lu_solve")
def _lu_solve(LU: XlaOp, pivots: XlaOp, B: XlaOp, left: bool, adjoint: bool) -> XlaOp:  # noqa: N803
    if not left:
        return _adjoint(_lu_solve(LU, pivots, _adjoint(B), True, not adjoint))
    lu, b = _together(LU, B)
    order = permutation(pivots - 1, lu.shape.dimensions[-1])
    order = spread(order, lu.shape.dimensions[:-1])
    if adjoint:
        first = _solved(lu, b, True, False, False, "ADJOINT")
        return _rows(_solved(lu, first, True, True, True, "ADJOINT"), _inverse(order))
    first = _solved(lu, _rows(b, order), True, True, True, "NO_TRANSPOSE")
    return _solved(lu, first, True, False, False, "NO_TRANSPOSE")


def _inverse(order: XlaOp) -> XlaOp:
    """The permutation that takes another one back."""
    last = order.shape.rank - 1
    places = ops.Iota(order.builder, order.shape, last)
    return ops.GetTupleElement(ops.Sort([order, places], lambda a, b, *_: ops.Lt(a, b), last), 1)


@rule("_linalg_solve_ex")
def _solve_ex(A: XlaOp, B: XlaOp, left: bool, result: Sequence[Shape]) -> list[XlaOp]:  # noqa: N803
    lu, pivots, info = _factors(A)
    is_vector = result[0].rank == A.shape.rank - 1 and B.shape.rank < A.shape.rank
    b = ops.Reshape(B, [*B.shape.dimensions, 1]) if is_vector else B
    return [ops.Reshape(_lu_solve(lu, pivots, b, left, False), result[0].dimensions), lu, pivots, info]


@rule("linalg_inv_ex")
def _inv_ex(A: XlaOp) -> list[XlaOp]:  # noqa: N803
    lu, pivots, info = _factors(A)
    size = A.shape.dimensions[-1]
    return [_lu_solve(lu, pivots, _identity(A, size, size), True, False), info]


def _exchanges(pivots: XlaOp) -> XlaOp:
    """Whether so many rows were exchanged that a determinant has the other sign."""
    last = pivots.shape.rank - 1
    moved = ops.Ne(pivots, ops.Iota(pivots.builder, pivots.shape, last) + 1)
    return reduced(moved, "Xor", False, [last])


@rule("_linalg_det")
def _det(A: XlaOp, is_contiguous: bool) -> list[XlaOp]:  # noqa: N803
    lu, pivots, _ = _factors(A, turned=is_contiguous and not A.element_type.is_complex)
    found = reduced(_diagonal(lu), "Mul", 1, [A.shape.rank - 2])
    return [ops.Select(_exchanges(pivots), -found, found), lu, pivots]


@rule("_linalg_slogdet")
def _slogdet(A: XlaOp, is_contiguous: bool) -> list[XlaOp]:  # noqa: N803
    lu, pivots, _ = _factors(A, turned=is_contiguous and not A.element_type.is_complex)
    diagonal, last = _diagonal(lu), [A.shape.rank - 2]
    sign = reduced(ops.Sign(diagonal), "Mul", 1, last)
    return [ops.Select(_exchanges(pivots), -sign, sign), reduced(ops.Log(ops.Abs(diagonal)), "Add", 0, last), lu, pivots]


# ------------------------------------------------------------------------------------------- QR


@rule("linalg_qr")
def _qr(A: XlaOp, mode: str, result: Sequence[Shape]) -> list[XlaOp]:  # noqa: N803
    q, r = ops.QR(A, mode == "complete")
    return [_unset(result[0], A) if mode == "r" else q, r]


@rule("geqrf")
def _geqrf(self: XlaOp, result: Sequence[Shape]) -> list[XlaOp]:
    call = lapack("geqrf", [self], result)
    return [ops.GetTupleElement(call, k) for k in (0, 1)]


@rule("linalg_householder_product")
def _householder_product(input: XlaOp, tau: XlaOp) -> XlaOp:
    return lapack("ungqr" if input.element_type.is_complex else "orgqr", [input, tau], input.shape)


@rule("ormqr")
def _ormqr(self: XlaOp, input2: XlaOp, input3: XlaOp, left: bool, transpose: bool) -> XlaOp:
    return lapack("unmqr" if self.element_type.is_complex else "ormqr", [self, input2, input3], input3.shape, left=left,
                  transpose=transpose)


# ------------------------------------------------------------------------------------------- the exponential

_DEGREE, _BLOCK = 20, 5


@rule("linalg_matrix_exp")
def _matrix_exp(self: XlaOp) -> XlaOp:
    """By the series of a matrix that is so often halved that its norm is at most 1, and then squared as often: a batch as often
    as the one of its matrices that needs it most."""
    size, rank, builder = self.shape.dimensions[-1], self.shape.rank, self.builder
    if size == 0:
        return self
    real = real_type(self.element_type)
    norm = reduced(reduced(ops.Abs(self), "Add", 0, [rank - 2]), "Max", 0, [rank - 2])
    halvings = ops.Max(ops.Ceil(ops.Log(norm) * (1 / math.log(2))), 0)
    # Infinities and NaN are as they come.
    halvings = ops.Select(ops.IsFinite(norm), halvings, full(builder, 0, halvings.shape))
    scale = ops.Exp(halvings * -math.log(2))
    small = self * cast(ops.BroadcastInDim(scale, self.shape.dimensions, range(rank - 2)), self.element_type)
    found = _series(small)
    most, counts = reduced(halvings, "Max", 0, list(range(rank - 2))), cast(halvings, real)

    def body(carry: tuple[XlaOp, ...]) -> tuple[XlaOp, ...]:
        k, x, most, counts = carry
        more = ops.Lt(ops.Broadcast(k, counts.shape.dimensions), counts)
        more = ops.BroadcastInDim(more, x.shape.dimensions, range(rank - 2))
        return k + 1, ops.Select(more, _product(x, x), x), most, counts

    found = ops.While(lambda carry: ops.Lt(carry[0], carry[2]), body, (builder.constant(0, real), found, most, counts))
    return ops.GetTupleElement(found, 1)


def _series(x: XlaOp) -> XlaOp:
    """The first terms of the exponential's, in blocks of as many as powers are at hand."""
    size = x.shape.dimensions[-1]
    powers = [_identity(x, size, size), x]
    for _ in range(_BLOCK - 1):
        powers.append(_product(powers[-1], x))
    found: XlaOp | None = None
    for block in reversed(range(0, _DEGREE, _BLOCK)):
        found = None if found is None else _product(found, powers[_BLOCK])
        for k in range(_BLOCK):
            term = powers[k] * (1 / math.factorial(block + k))
            found = term if found is None else found + term
    assert found is not None
    return found
