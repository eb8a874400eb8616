"""Factors of complex matrices whose vectors have a phase of their own, with gradients.

torch refuses a cotangent that asks for the phase, which is right for a whole loss. Here it may be a part of one: in tangents,
and where a gradient is differentiated again, the parts that ask for it cancel later. So what a phase is asked is left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def eigh(a: Tensor, uplo: str) -> tuple[Tensor, Tensor]:
    """The eigenvalues, ascending, and the eigenvectors of Hermitian matrices of which one triangle is read."""
    return _Eigh.apply(a, uplo) if _is_recorded(a) else tuple(torch.linalg.eigh(a, UPLO=uplo))  # pyright: ignore[reportReturnType]


def svd(a: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(U, singular values, V^H), of which U and V are thin or square."""
    if _is_recorded(a) and not (full and a.shape[-1] != a.shape[-2]):
        return _Svd.apply(a)  # pyright: ignore[reportReturnType]
    return tuple(torch.linalg.svd(a, full_matrices=full))


def _is_recorded(a: Tensor) -> bool:
    return a.is_complex() and a.requires_grad and torch.is_grad_enabled()


def _differences(values: Tensor) -> Tensor:
    """``v_j - v_i``, and 1 on the diagonal."""
    found = values[..., None, :] - values[..., None]
    return found + torch.eye(values.shape[-1], dtype=values.dtype, device=values.device)


def _on_diagonal(matrices: Tensor, diagonal: Tensor) -> Tensor:
    """The matrices with another diagonal."""
    one = torch.eye(matrices.shape[-1], dtype=torch.bool, device=matrices.device)
    return torch.where(one, torch.diag_embed(diagonal).to(matrices.dtype), matrices)


class _Eigh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, uplo: str) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a, UPLO=uplo)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, ct_values: Tensor, ct_vectors: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, vectors = ctx.saved_tensors
        inner = _on_diagonal(vectors.mH @ ct_vectors / _differences(values), ct_values)
        return vectors @ inner @ vectors.mH, None


class _Svd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, values, right = torch.linalg.svd(a, full_matrices=False)
        ctx.save_for_backward(left, values, right)
        return left, values, right

    @staticmethod
    def backward(ctx: Any, ct_left: Tensor, ct_values: Tensor, ct_right: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, values, right = ctx.saved_tensors
        from_left, from_right = left.mH @ ct_left, right @ ct_right.mH
        apart = _differences(values * values)
        turned = (from_left - from_left.mH) / apart * values[..., None, :]
        turned = turned + values[..., None] * ((from_right - from_right.mH) / apart)
        phase = (from_left - from_right).diagonal(dim1=-2, dim2=-1).imag / (2 * values)
        inner = _on_diagonal(turned, torch.complex(ct_values, phase))
        found = left @ inner @ right
        found = found + (ct_left - left @ from_left) / values[..., None, :] @ right
        return found + left @ ((ct_right - from_right.mH @ right) / values[..., None])
