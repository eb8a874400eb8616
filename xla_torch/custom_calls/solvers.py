"""Routines of linear algebra in the libraries for GPUs (cuSOLVER, hipSOLVER, rocSOLVER, cuBLAS, hipBLAS, cuSPARSE, MAGMA), as
JAX calls them: LAPACK's routines, or Cholesky factors and triangular solves, which are ops.

There are two ways to call most of them. Newer programs (``cusolver_getrf_ffi``) have attributes in the configuration. Older ones
(``cusolver_getrf``) have a C struct in their opaque bytes, which begins with the element type and sizes, and give the routine's
workspaces as further results. Sources: jaxlib/gpu/solver_kernels.h, solver_kernels_ffi.cc, blas_kernels.h, sparse_kernels.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import PRED, S32, PrimitiveType
from ..functions.hlo_builder import XlaOp
from ..functions.lapack import lapack, real_type
from ..opcodes.contraction import DotDimensionNumbers
from .calls import Call, Meaning, adder, adjoint, broadcast_like, ones, parts, transposed, zeros

# ------------------------------------------------------------------------------------------- what a call says

_LOWER = {0: True, 1: False, 121: False, 122: True}
"""Values of cublasFillMode_t and hipsolverFillMode_t: whether the lower triangle is meant."""

_VECTORS = {0: False, 1: True, 201: False, 202: True}
"""Values of cusolverEigMode_t and hipsolverEigMode_t: whether vectors are wanted."""

_SIDES = {0: True, 1: False, 141: True, 142: False}
_OPERATIONS = {0: "NO_TRANSPOSE", 1: "TRANSPOSE", 2: "ADJOINT", 111: "NO_TRANSPOSE", 112: "TRANSPOSE", 113: "ADJOINT"}
_UNIT = {0: False, 1: True, 131: False, 132: True}


def _is_older(call: Call) -> bool:
    """Whether the call has a C struct for its configuration."""
    return not call.target.endswith("_ffi") and not call.config


def _flag(call: Call, values: Mapping[int, bool], value: int, what: str) -> bool:
    if value not in values:
        raise call.refused(f"{what} has a value that is not known", value, ", ".join(map(str, values)))
    return values[value]


def _is_lower(call: Call) -> bool:
    """Which triangle of a symmetric matrix is read: the second number of the struct."""
    if _is_older(call):
        return _flag(call, _LOWER, call.unpacked("5i" if "sytrd" not in call.target else "6i")[1], "the fill mode")
    return bool(call.config.get("lower", True))


def _batch(a: XlaOp) -> tuple[int, ...]:
    return a.shape.dimensions[:-2]


def _info(call: Call, a: XlaOp, value: XlaOp | None = None) -> XlaOp:
    return zeros(call.builder, Shape.array(S32, _batch(a))) if value is None else value


def _same(a: XlaOp, *dimensions: int, kind: PrimitiveType | None = None) -> Shape:
    """A shape with the batch dimensions of matrices."""
    return Shape.array(kind or a.element_type, (*_batch(a), *dimensions))


# ------------------------------------------------------------------------------------------- factors


def potrf(call: Call) -> Sequence[XlaOp]:
    """(the factor in one triangle and the operand's elements in the other, info)."""
    call.require_matrices()
    return cholesky_factor(call.operands[0], _is_lower(call))


def cholesky_factor(a: XlaOp, lower: bool) -> list[XlaOp]:
    """(the factor in one triangle and the operand's elements in the other, info) of matrices."""
    builder, size, rank = a.builder, a.shape.dimensions[-1], a.shape.rank
    factor = ops.Cholesky(a, lower)
    inside = np.tri(size, dtype=np.bool_)
    mask = builder.constant(np.ascontiguousarray(inside if lower else inside.T), PRED)
    kept = ops.Select(broadcast_like(mask, a.shape, (rank - 2, rank - 1)), factor, a)
    if not size:
        return [kept, zeros(builder, _same(a, kind=S32))]
    # A matrix that is not positive definite has a factor of NaN: info is whether its last element is.
    last = ops.SliceInDim(ops.SliceInDim(factor, size - 1, size, 1, rank - 1), size - 1, size, 1, rank - 2)
    last = ops.Reshape(last, _batch(a))
    if last.element_type.is_complex:
        last = ops.Real(last)
    return [kept, ops.ConvertElementType(ops.Ne(last, last), S32)]


def getrf(call: Call) -> Sequence[XlaOp]:
    """(L and U in one matrix, row swaps counted from 1, info)."""
    call.require_matrices()
    (a,) = call.operands[:1]
    m, n = a.shape.dimensions[-2:]
    return parts(lapack("getrf", [a], [_same(a, m, n), _same(a, min(m, n), kind=S32), _same(a, kind=S32)]))


def geqrf(call: Call) -> Sequence[XlaOp]:
    """(R above and reflectors below the diagonal, the reflectors' factors), and for older callers info."""
    call.require_matrices()
    (a,) = call.operands[:1]
    m, n = a.shape.dimensions[-2:]
    found = parts(lapack("geqrf", [a], [_same(a, m, n), _same(a, min(m, n))]))
    return [*found, _info(call, a)] if _is_older(call) and "batched" not in call.target else found


def geqp3(call: Call) -> Sequence[XlaOp]:
    """(R and reflectors, columns counted from 1, the reflectors' factors)."""
    call.require_matrices()
    call.require_operands(2)
    a, pivots = call.operands
    m, n = a.shape.dimensions[-2:]
    return parts(lapack("geqp3", [a, pivots], [_same(a, m, n), _same(a, n, kind=S32), _same(a, min(m, n))]))


def orgqr(call: Call) -> XlaOp | Sequence[XlaOp]:
    """Q from its reflectors, and for older callers info."""
    call.require_matrices()
    call.require_operands(2)
    a, tau = call.operands
    q = lapack("ungqr" if a.element_type.is_complex else "orgqr", [a, tau], _same(a, *a.shape.dimensions[-2:]))
    return [q, _info(call, a)] if _is_older(call) and len(call.results) > 1 else q


def ormqr(call: Call) -> XlaOp:
    """The product of a matrix with Q or its adjoint, on the left or right."""
    call.require_matrices()
    call.require_operands(3)
    a, tau, c = call.operands
    return lapack("unmqr" if a.element_type.is_complex else "ormqr", [a, tau, c], _same(c, *c.shape.dimensions[-2:]),
                  left=bool(call.config.get("left", True)), transpose=bool(call.config.get("transpose", False)))


def cholesky_update(call: Call) -> Sequence[XlaOp]:
    """The upper factor of ``r^T r + w w^T``. The vector's place holds the rotated vector, which nobody reads."""
    call.require_matrices()
    call.require_operands(2)
    r, w = call.operands
    rank, n = r.shape.rank, r.shape.dimensions[-1]
    _, rows = ops.QR(ops.ConcatInDim(r.builder, [r, ops.Reshape(w, (*_batch(r), 1, n))], rank - 2))
    diagonal = ops.Reduce(ops.Select(_identity(rows), rows, 0.0), 0.0, adder(r.element_type), [rank - 1])
    sign = ops.Select(ops.Lt(diagonal, 0.0), ops.Neg(ones(diagonal)), ones(diagonal))
    return [ops.Mul(rows, broadcast_like(sign, rows.shape, range(rank - 1))), zeros(call.builder, w.shape)]


def _identity(like: XlaOp) -> XlaOp:
    rank = like.shape.rank
    positions = Shape.array(S32, like.shape.dimensions)
    return ops.Eq(ops.Iota(like.builder, positions, rank - 2), ops.Iota(like.builder, positions, rank - 1))


# ------------------------------------------------------------------------------------------- eigenvalues


def syevd(call: Call) -> Sequence[XlaOp]:
    """(eigenvectors, eigenvalues in ascending order, info). A second operand of older programs is the size of the batch."""
    call.require_matrices()
    a, n = call.operands[0], call.operands[0].shape.dimensions[-1]
    return parts(lapack("heevd" if a.element_type.is_complex else "syevd", [a],
                        [_same(a, n, n), _same(a, n, kind=real_type(a.element_type)), _same(a, kind=S32)],
                        mode="V", uplo="L" if _is_lower(call) else "U"))


def sytrd(call: Call) -> Sequence[XlaOp]:
    """(tridiagonal form with reflectors, its diagonal, its other diagonal, the reflectors' factors, info)."""
    call.require_matrices()
    a, n = call.operands[0], call.operands[0].shape.dimensions[-1]
    real = real_type(a.element_type)
    return parts(lapack("hetrd" if a.element_type.is_complex else "sytrd", [a],
                        [_same(a, n, n), _same(a, n, kind=real), _same(a, n - 1, kind=real), _same(a, n - 1),
                         _same(a, kind=S32)], uplo="L" if _is_lower(call) else "U"))


def geev(call: Call) -> Sequence[XlaOp]:
    """(the operand, eigenvalues, left and right eigenvectors, info). Of a real matrix, the vectors of a pair of eigenvalues
    stand as a column of real and one of imaginary parts, as LAPACK writes them."""
    call.require_matrices()
    a = call.operands[0]
    values, left, right, info = _eigen(call, a)
    if not a.element_type.is_complex:
        left, right = (_packed_pairs(values, v) for v in (left, right))
    return [a, values, left, right, info]


def hybrid_eig(call: Call) -> Sequence[XlaOp]:
    """(eigenvalues, for real matrices as real and imaginary parts, left and right eigenvectors, info)."""
    call.require_matrices()
    a = call.operands[0]
    values, left, right, info = _eigen(call, a)
    found = [values] if a.element_type.is_complex else [ops.Real(values), ops.Imag(values)]
    return [*found, left, right, info]


def _eigen(call: Call, a: XlaOp) -> list[XlaOp]:
    kind, n = a.element_type, a.shape.dimensions[-1]
    real = not kind.is_complex
    vectors = _same(a, n, n, kind=next((r.element_type for r in call.results if r.element_type.is_complex), kind))
    values = [_same(a, n, kind=real_type(kind))] * 2 if real else [_same(a, n)]
    letters: dict[str, Any] = {f"compute_{side}": "V" if call.config.get(side, side == "right") else "N"
                               for side in ("left", "right")}
    found = parts(lapack("geev", [a], [*values, vectors, vectors, _same(a, kind=S32)], **letters))
    return [ops.Complex(found[0], found[1]), *found[2:]] if real else found


def _packed_pairs(values: XlaOp, vectors: XlaOp) -> XlaOp:
    """For a real eigenvalue the real column; for a pair, the first column's real part, then its imaginary part."""
    rank, n = vectors.shape.rank, vectors.shape.dimensions[-1]
    imaginary = ops.Imag(values)
    second = broadcast_like(ops.Lt(imaginary, 0.0), vectors.shape, [*range(rank - 2), rank - 1])
    if n < 2:
        return ops.Real(vectors)
    before = ops.PadInDim(ops.SliceInDim(ops.Imag(vectors), 0, n - 1, 1, rank - 1), 0.0, rank - 1, 1, 0)
    return ops.Select(second, before, ops.Real(vectors))


# ------------------------------------------------------------------------------------------- singular values


def gesvd(call: Call) -> Sequence[XlaOp]:
    """(the operand, singular values, U, V^H, info). A wide matrix is given as its transpose, and V^H then comes before U."""
    call.require_matrices()
    a = call.operands[0]
    swapped = _is_transposed(call, a)
    u, v = (3, 2) if swapped else (2, 3)
    values, left, right, info = _singular(call, a, call.results[u], transposed_shape(call.results[v]))
    return [a, values, right, left, info] if swapped else [a, values, left, right, info]


def _is_transposed(call: Call, a: XlaOp) -> bool:
    if _is_older(call):
        m, n = call.unpacked("5i2b2x")[2:4]
        return (m, n) != a.shape.dimensions[-2:]
    return bool(call.config.get("transposed", False))


def gesvdj(call: Call) -> Sequence[XlaOp]:
    """(the operand, singular values, U, V, info). U and V are whole unless the call is economical."""
    call.require_matrices()
    a = call.operands[0]
    values, left, right, info = _singular(call, a, call.results[2], call.results[3])
    return [a, values, left, adjoint(right) if _wants_vectors(call) else right, info]


def transposed_shape(shape: Shape) -> Shape:
    return shape if shape.rank < 2 else shape.with_dimensions((*shape.dimensions[:-2], shape.dimensions[-1],
                                                               shape.dimensions[-2]))


def _wants_vectors(call: Call) -> bool:
    if not _is_older(call):
        return bool(call.config.get("compute_uv", True))
    if "gesvdj" in call.target:
        return _flag(call, _VECTORS, call.unpacked("7i")[5], "the mode")
    return call.unpacked("5i2b2x")[5] != ord("N")


def _singular(call: Call, a: XlaOp, left: Shape, right: Shape) -> list[XlaOp]:
    """(values, U, V^H, info), where `left` and `right` are the shapes in which the call gives U and V."""
    kind, (m, n) = a.element_type, a.shape.dimensions[-2:]
    small = min(m, n)
    values, info = _same(a, small, kind=real_type(kind)), _same(a, kind=S32)
    if not _wants_vectors(call):
        found = parts(lapack("gesdd", [a], [_same(a, m, n), values, _same(a, m, small), _same(a, small, n), info], mode="N"))
        unused = [zeros(call.builder, s) for s in call.results[2:4]]
        return [found[1], *(unused if left == call.results[2] else unused[::-1]), found[4]]
    whole = max(m, n) > small and max(left.dimensions[-1], right.dimensions[-1]) == max(m, n)
    wide = (_same(a, m, m), _same(a, n, n)) if whole else (_same(a, m, small), _same(a, small, n))
    found = parts(lapack("gesdd", [a], [_same(a, m, n), values, *wide, info], mode="A" if whole else "S"))
    return found[1:]


# ------------------------------------------------------------------------------------------- systems and products


def gtsv2(call: Call) -> XlaOp | Sequence[XlaOp]:
    """The solution of a tridiagonal system, and for older callers a workspace."""
    call.require_operands(4)
    lower, diagonal, upper, b = call.operands
    batch = b.shape.rank - 2
    results = [lower.shape, diagonal.shape, upper.shape, b.shape, Shape.array(S32, b.shape.dimensions[:-2])]
    solution = parts(lapack("gtsv", call.operands, results, batch))[3]
    return [solution] if call.instruction.shape.is_tuple else solution


def gtsv_perturbed(call: Call) -> XlaOp:
    """The solution of a tridiagonal system that may be singular: JAX's own routine."""
    call.require_operands(4)
    return ops.CustomCall(call.builder, "tridiagonal_solve_perturbed_ffi", call.operands, call.operands[3].shape)


def trsm(call: Call) -> Sequence[XlaOp] | XlaOp:
    """The solution of triangular systems, and workspaces."""
    call.require_matrices()
    call.require_operands(2)
    side, uplo, operation, diagonal = call.unpacked("8i")[4:]
    if operation not in _OPERATIONS:
        raise call.refused("the operation has a value that is not known", operation, ", ".join(map(str, _OPERATIONS)))
    found = ops.TriangularSolve(*call.operands, _flag(call, _SIDES, side, "the side"), _flag(call, _LOWER, uplo, "the fill mode"),
                                _flag(call, _UNIT, diagonal, "the diagonal"), _OPERATIONS[operation])
    return [found] if call.instruction.shape.is_tuple else found


def triangular_solve(call: Call) -> Sequence[XlaOp]:
    """(the solution of triangular systems): what XLA itself writes for the op, with the op's own attributes."""
    call.require_matrices()
    call.require_operands(2)
    flags = [bool(call.config.get(name, False)) for name in ("left_side", "lower", "unit_diagonal")]
    operation = call.config.get("transpose_a")
    if operation not in _OPERATIONS.values():
        raise call.refused("the operation is not known", operation, ", ".join(sorted(set(_OPERATIONS.values()))))
    return [ops.TriangularSolve(*call.operands, *flags, operation)]


def xla_cholesky(call: Call) -> Sequence[XlaOp]:
    """(the factor, a workspace, info): what XLA itself writes for the op."""
    call.require_matrices()
    if not isinstance(call.config.get("lower"), bool) or len(call.results) != 3:
        raise call.refused("it does not say which triangle is wanted, or gives not three results", str(dict(call.config)))
    factor, info = cholesky_factor(call.operands[0], call.config["lower"])
    return [factor, zeros(call.builder, call.results[1]), info]


def syrk(call: Call) -> XlaOp:
    """``alpha a a^T + beta c``."""
    call.require_matrices()
    call.require_operands(4)
    a, c, alpha, beta = call.operands
    left, right = (transposed(a), a) if call.config.get("transpose", False) else (a, transposed(a))
    return ops.Add(_scaled(matmul(left, right), alpha), _scaled(c, beta))


def _scaled(x: XlaOp, factor: XlaOp) -> XlaOp:
    return ops.Mul(x, broadcast_like(ops.Reshape(factor, ()), x.shape, ()))


def matmul(left: XlaOp, right: XlaOp) -> XlaOp:
    """The product of matrices with equal batch dimensions, in full precision."""
    rank = left.shape.rank
    batch = tuple(range(rank - 2))
    numbers = DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch)
    return ops.DotGeneral(left, right, numbers, ["HIGHEST", "HIGHEST"])


# ------------------------------------------------------------------------------------------- targets

_SOLVER: dict[str, Meaning] = {
    "potrf": potrf, "getrf": getrf, "geqrf": geqrf, "orgqr": orgqr, "ormqr": ormqr, "syevd": syevd, "syevj": syevd,
    "sytrd": sytrd, "geev": geev, "gesvd": gesvd, "gesdd": gesvd, "gesvdj": gesvdj, "gesvdp": gesvdj, "syrk": syrk,
}
_BLAS: dict[str, Meaning] = {"getrf_batched": getrf, "geqrf_batched": geqrf, "trsm_batched": trsm}
_JAX: dict[str, Meaning] = {
    "cholesky_update": cholesky_update, "householder_product": orgqr, "tridiagonal_solve_perturbed": gtsv_perturbed,
}
_HYBRID: dict[str, Meaning] = {"eig_real": hybrid_eig, "eig_comp": hybrid_eig, "geqp3": geqp3}

MEANINGS: dict[str, Meaning] = {
    f"{library}{routine}{version}": meaning
    for library, routines in [
        *((f"{maker}solver_", _SOLVER) for maker in ("cu", "hip", "roc")), ("cublas_", _BLAS), ("hipblas_", _BLAS),
        ("rocblas_", {**_BLAS, "trsm": trsm}), *((f"{maker}_", _JAX) for maker in ("cu", "hip")),
        *((f"{maker}hybrid_", _HYBRID) for maker in ("cu", "hip")),
        *((f"{maker}sparse_", {"gtsv2": gtsv2, "gtsv2_f32": gtsv2, "gtsv2_f64": gtsv2}) for maker in ("cu", "hip"))]
    for routine, meaning in routines.items() for version in ("", "_ffi")}
"""The routines by target."""

MEANINGS.update({"__cublas$triangularSolve": triangular_solve, "__cusolver$cholesky": xla_cholesky})
