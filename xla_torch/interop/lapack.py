"""The LAPACK routines that JAX programs for the CPU call, by torch.linalg.

A target is ``lapack_{s,d,c,z}NAME_ffi``. Each routine takes tensors with any batch dimensions in front and gives what the
LAPACK routine writes: overwritten arguments, results, and ``info`` (s32, 0 for success), which no failure raises.
Cholesky factors and triangular solves are not here: they are XLA ops (see `transform/expand_custom_calls.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from .custom_calls import CustomCall

_TARGET = re.compile(r"lapack_[sdcz](\w+?)_ffi")


def routine(target: str) -> Callable[..., Any] | None:
    """The function for a target, or None."""
    match = _TARGET.fullmatch(target)
    return _ROUTINES.get(match.group(1)) if match else None


def is_differentiable(target: str) -> bool:
    """Whether torch differentiates the routine of a target (a factorisation whose factors are packed, it does not)."""
    match = _TARGET.fullmatch(target)
    return match is not None and match.group(1) in _ROUTINES and match.group(1) != "geqrf"


def _info(like: torch.Tensor, failed: torch.Tensor | None = None) -> torch.Tensor:
    """An info for each matrix of `like`: 0, or 1 where it failed."""
    batch = like.shape[:-2]
    return torch.zeros(batch, dtype=torch.int32, device=like.device) if failed is None else failed.to(torch.int32)


def _geqrf(a: torch.Tensor, *, call: CustomCall) -> Any:
    """(R above and reflectors below the diagonal, the reflectors' factors)."""
    return tuple(torch.geqrf(a))


def _orgqr(a: torch.Tensor, tau: torch.Tensor, *, call: CustomCall) -> Any:
    """Q from its reflectors."""
    return torch.linalg.householder_product(a, tau)


def _getrf(a: torch.Tensor, *, call: CustomCall) -> Any:
    """(L and U in one matrix, row swaps counted from 1, info)."""
    factors, pivots, info = torch.linalg.lu_factor_ex(a)
    return factors, pivots, info


def _gesdd(a: torch.Tensor, *, call: CustomCall) -> Any:
    """(a overwritten, singular values, U, V^H, info). The mode says whether U and V are whole, thin or not wanted."""
    mode = call.letter("mode", "S")
    if mode == "N":
        values = torch.linalg.svdvals(a)
        # For a gradient the call is the gradient's, whose shape says nothing of U and V.
        unused = [a.new_zeros(part.dimensions) for part in call.shape.tuple_shapes[2:4]] or [torch.zeros_like(a)] * 2
        return a, values, *unused, _info(a, _not_finite(values))
    left, values, right = torch.linalg.svd(a, full_matrices=mode == "A")
    return a, values, left, right, _info(a, _not_finite(values))


def _syevd(a: torch.Tensor, *, call: CustomCall) -> Any:
    """(eigenvectors, eigenvalues in ascending order, info) of a Hermitian matrix of which one triangle is read."""
    uplo = call.letter("uplo", "L")
    if call.letter("mode", "V") == "N":
        values = torch.linalg.eigvalsh(a, UPLO=uplo)
        return a, values, _info(a, _not_finite(values))
    values, vectors = torch.linalg.eigh(a, UPLO=uplo)
    return vectors, values, _info(a, _not_finite(values))


def _geev(a: torch.Tensor, *, call: CustomCall) -> Any:
    """(eigenvalues (for real matrices as real and imaginary parts), left and right eigenvectors, info)."""
    values, right = torch.linalg.eig(a)
    left = torch.zeros_like(right)
    if call.letter("compute_left", "N") == "V":
        # Rows of the inverse are left eigenvectors: the conjugate columns, of length 1 as LAPACK has them.
        left = torch.linalg.inv_ex(right)[0].mH
        left = left / torch.linalg.vector_norm(left, dim=-2, keepdim=True)
    parts = (values,) if a.is_complex() else (values.real.contiguous(), values.imag.contiguous())
    return (*parts, left, right, _info(a, _not_finite(torch.view_as_real(values).flatten(-2))))


def _gtsv(lower: torch.Tensor, diagonal: torch.Tensor, upper: torch.Tensor, b: torch.Tensor, *, call: CustomCall) -> Any:
    """(the three diagonals, the solution, info) of a tridiagonal system; the diagonals' unused ends are not read."""
    matrix = torch.diag_embed(diagonal) + torch.diag_embed(lower[..., 1:], -1) + torch.diag_embed(upper[..., :-1], 1)
    solution, info = torch.linalg.solve_ex(matrix, b)
    return lower, diagonal, upper, solution, info


def _not_finite(values: torch.Tensor) -> torch.Tensor:
    return ~values.isfinite().all(-1)


_ROUTINES: dict[str, Callable[..., Any]] = {
    "geqrf": _geqrf, "orgqr": _orgqr, "ungqr": _orgqr, "getrf": _getrf, "gesdd": _gesdd, "syevd": _syevd, "heevd": _syevd,
    "geev": _geev, "gtsv": _gtsv,
}
