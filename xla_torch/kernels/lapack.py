"""The routines that JAX programs for the CPU call: LAPACK's, under its names, and those of JAX's and XLA's own.

LAPACK's are ``lapack_{s,d,c,z}NAME_ffi``. Each takes tensors with any batch dimensions in front and gives what the routine
writes: overwritten arguments, results, and ``info`` (s32, 0 for success). No failure raises: its results are NaN, and its info
says so. Cholesky factors and triangular solves are not here: they are XLA ops (see `transform/expand_custom_calls.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..hlo.custom_calls import CustomCall
from . import householder, schur, tridiagonal
from .elementwise import is_finite
from .indexing import on_host

# ------------------------------------------------------------------------------------------- failures


def _info(failed: Tensor, code: int = 1) -> Tensor:
    return failed.to(torch.int32) * code


def _failed(a: Tensor) -> Tensor:
    """Which matrices have an element that is not finite: torch's eigenvalue routines raise for these."""
    return ~a.isfinite().all(-1).all(-1)


def _sound(a: Tensor, code: int = 1) -> tuple[Tensor, Tensor | None, Tensor]:
    """(the matrices with zeros in place of those that fail, which fail, info). Fast where none is seen to fail: None fails."""
    if on_host(a) and is_finite(a):
        return a, None, a.new_zeros(a.shape[:-2], dtype=torch.int32)
    failed = _failed(a)
    return torch.where(failed[..., None, None], 0, a), failed, _info(failed, code)


def _unless(failed: Tensor | None, *values: Tensor) -> tuple[Tensor, ...]:
    """The values of each matrix, NaN where it failed."""
    if failed is None:
        return values
    return tuple(torch.where(failed.reshape(*failed.shape, *[1] * (v.dim() - failed.dim())), torch.nan, v) for v in values)


# ------------------------------------------------------------------------------------------- QR


def _geqrf(a: Tensor, *, call: CustomCall) -> Any:
    """(R above and reflectors below the diagonal, the reflectors' factors)."""
    return tuple(torch.geqrf(a))


def _geqp3(a: Tensor, pivots: Tensor, *, call: CustomCall) -> Any:
    """(R above and reflectors below the diagonal, columns counted from 1, the reflectors' factors)."""
    return householder.pivoted_qr(a, pivots)


def _orgqr(a: Tensor, tau: Tensor, *, call: CustomCall) -> Any:
    """Q from its reflectors."""
    return torch.linalg.householder_product(a, tau)


def _ormqr(a: Tensor, tau: Tensor, c: Tensor, *, call: CustomCall) -> Any:
    """The product of c with Q or its adjoint, on the left or right."""
    left, adjoint = call.config.get("left", True), call.config.get("transpose", False)
    return torch.ormqr(a[..., :tau.shape[-1]], tau, c, left=left, transpose=adjoint)


# ------------------------------------------------------------------------------------------- LU, SVD


def _getrf(a: Tensor, *, call: CustomCall) -> Any:
    """(L and U in one matrix, row swaps counted from 1, info: 0, or the row of the first pivot that is 0)."""
    factors, pivots, info = torch.linalg.lu_factor_ex(a)
    return factors, pivots, info


def _gesdd(a: Tensor, *, call: CustomCall) -> Any:
    """(a overwritten, singular values, U, V^H, info). The mode says whether U and V are whole, thin or not wanted."""
    mode = call.letter("mode", "S")
    sound, failed, info = _sound(a, -4)
    if mode == "N":
        (values,) = _unless(failed, torch.linalg.svdvals(sound))
        # For a gradient the call is the gradient's, whose shape says nothing of U and V.
        unused = [a.new_zeros(part.dimensions) for part in call.shape.tuple_shapes[2:4]] or [torch.zeros_like(a)] * 2
        return a, values, *unused, info
    left, values, right = _unless(failed, *torch.linalg.svd(sound, full_matrices=mode == "A"))
    return a, values, left, right, info


# ------------------------------------------------------------------------------------------- eigenvalues


def _syevd(a: Tensor, *, call: CustomCall) -> Any:
    """(eigenvectors, eigenvalues in ascending order, info) of a Hermitian matrix of which one triangle is read."""
    uplo = call.letter("uplo", "L")
    sound, failed, info = _sound(a)
    if failed is not None:
        failed = _failed(a.tril() if uplo == "L" else a.triu())
        sound, info = torch.where(a.isfinite() & ~failed[..., None, None], a, 0), _info(failed)
    if call.letter("mode", "V") == "N":
        return a, *_unless(failed, torch.linalg.eigvalsh(sound, UPLO=uplo)), info
    values, vectors = torch.linalg.eigh(sound, UPLO=uplo)
    return *_unless(failed, vectors, values), info


def _geev(a: Tensor, *, call: CustomCall) -> Any:
    """(eigenvalues (for real matrices as real and imaginary parts), left and right eigenvectors, info)."""
    sound, failed, info = _sound(a, -4)
    if call.letter("compute_right", "V") == call.letter("compute_left", "N") == "N":
        values = torch.linalg.eigvals(sound)
        left = right = torch.zeros_like(sound, dtype=values.dtype)
    else:
        values, right = torch.linalg.eig(sound)
        left = _left_eigenvectors(right) if call.letter("compute_left", "N") == "V" else torch.zeros_like(right)
    values, left, right = _unless(failed, values, left, right)
    parts = (values,) if a.is_complex() else (values.real.contiguous(), values.imag.contiguous())
    return *parts, left, right, info


def _left_eigenvectors(right: Tensor) -> Tensor:
    """From all right eigenvectors: the conjugate rows of their inverse, in LAPACK's form: of length 1, and with a positive
    number where the largest element is."""
    left = torch.linalg.inv_ex(right)[0].mH
    largest = left.gather(-2, left.detach().abs().argmax(-2, keepdim=True))
    return left * torch.sgn(largest).conj() / torch.linalg.vector_norm(left, dim=-2, keepdim=True)


def _gees(a: Tensor, *, call: CustomCall) -> Any:
    """(Schur form, Schur vectors, eigenvalues (for real matrices as real and imaginary parts), how many were selected, info)."""
    form, vectors, info = schur.schur(a)
    values = schur.eigenvalues(form)
    parts = (values,) if a.is_complex() else (values.real.contiguous(), values.imag.contiguous())
    return form, vectors, *parts, torch.zeros_like(info), info


# ------------------------------------------------------------------------------------------- reductions, systems


def _gehrd(a: Tensor, *, call: CustomCall) -> Any:
    """(Hessenberg form with reflectors below it, the reflectors' factors, info)."""
    form, taus = householder.hessenberg(a, call.config.get("low", 1), call.config.get("high", a.shape[-1]))
    return form, taus, _info(torch.zeros_like(a[..., 0, 0], dtype=torch.bool))


def _sytrd(a: Tensor, *, call: CustomCall) -> Any:
    """(tridiagonal form with reflectors, its diagonal, its other diagonal, the reflectors' factors, info)."""
    parts = householder.tridiagonal(a, call.letter("uplo", "L") == "L")
    return *parts, _info(torch.zeros_like(a[..., 0, 0], dtype=torch.bool))


def _gtsv(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor, *, call: CustomCall) -> Any:
    """(the factor's diagonals in place of the three given, the solution, info) of a tridiagonal system."""
    second, pivots, above, solution, info = tridiagonal.solve(lower, diagonal, upper, b)
    kept = torch.cat([lower[..., :1], second[..., :-2], lower[..., 1:][..., -1:]], -1)
    return kept, pivots, torch.cat([above[..., :-1], upper[..., -1:]], -1), solution, info


def _gtsv_perturbed(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor, *, call: CustomCall) -> Any:
    """The solution of a tridiagonal system that may be singular."""
    return tridiagonal.solve_perturbed(lower, diagonal, upper, b)


def _csr_times_dense(data: Tensor, starts: Tensor, columns: Tensor, dense: Tensor, *, call: CustomCall) -> Any:
    """The product of a sparse matrix in rows (CSR) with a vector or a matrix. What stands after the last row is not read."""
    place = torch.arange(data.shape[0], device=data.device)
    rows = torch.searchsorted(starts, place.to(starts.dtype), right=True) - 1
    inside = (rows >= 0) & (place < starts[-1])
    rows, columns = (torch.where(inside, x, 0) for x in (rows, columns.long()))
    terms = data.reshape(-1, *[1] * (dense.dim() - 1)) * dense[columns]
    terms = torch.where(inside.reshape(-1, *[1] * (dense.dim() - 1)), terms, 0)
    return dense.new_zeros((starts.shape[0] - 1, *dense.shape[1:])).index_add(0, rows, terms)


ROUTINES: dict[str, Callable[..., Any]] = {
    "geqrf": _geqrf, "geqp3": _geqp3, "orgqr": _orgqr, "ungqr": _orgqr, "ormqr": _ormqr, "unmqr": _ormqr, "getrf": _getrf,
    "gesdd": _gesdd, "gesvd": _gesdd, "syevd": _syevd, "heevd": _syevd, "geev": _geev, "gees": _gees, "gehrd": _gehrd,
    "sytrd": _sytrd, "hetrd": _sytrd, "gtsv": _gtsv, "tridiagonal_solve_perturbed_ffi": _gtsv_perturbed,
    "cpu_csr_sparse_dense_ffi": _csr_times_dense, "Qr": _geqrf, "ProductOfElementaryHouseholderReflectors": _orgqr,
}
"""The functions of `hlo.custom_calls.ROUTINES`, by name."""
