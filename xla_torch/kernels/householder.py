"""Factorisations by Householder reflections, column by column over whole batches, in LAPACK's conventions.

A reflection is ``H = I - tau v v^H`` with ``v[0] = 1``; ``H^H`` takes a column to ``(beta, 0, ...)``, with beta real and of
the sign that avoids cancellation. Functions return matrices packed as LAPACK packs them: the reduced matrix, and in the
places of its zeros what follows the 1 in each v. Nothing is looked at on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad


def reflector(column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(v, tau, beta) for columns [..., n]; tau is 0 where a column is (beta, 0, ...) already, with a real beta."""
    alpha, tail = column[..., :1], column[..., 1:]
    real = alpha.real
    done = (tail == 0).all(-1, keepdim=True)
    if alpha.is_complex():
        done = done & (alpha.imag == 0)
    beta = torch.where(done, real, -torch.copysign(_norm(column), real))
    divisor = torch.where(done, 1, beta)
    tau = torch.where(done, 0, (divisor - alpha) / divisor)
    tail = tail / torch.where(done, 1, alpha - divisor)
    return torch.cat([torch.ones_like(alpha), tail], -1), tau[..., 0], beta[..., 0]


def _norm(x: Tensor) -> Tensor:
    """2-norms along the last dimension, which stays; squares neither overflow nor vanish."""
    largest = x.detach().abs().amax(-1, keepdim=True)
    scale = torch.where((largest > 0) & largest.isfinite(), largest, 1)
    return torch.linalg.vector_norm(x / scale, dim=-1, keepdim=True) * scale


def _column(v: Tensor, start: int, size: int) -> Tensor:
    """v as columns [..., size, 1], with its first element in row `start`."""
    return pad(v, (start, size - start - v.shape[-1])).unsqueeze(-1)


def from_left(a: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """H^H a, for v [..., m, 1]. With a tau of 0 it is a, even where that is not finite."""
    tau = tau[..., None, None]
    return torch.where(tau == 0, a, a - (tau.conj() * v) @ (v.mH @ a))


def from_right(a: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """a H, for v [..., n, 1]. With a tau of 0 it is a, even where that is not finite."""
    tau = tau[..., None, None]
    return torch.where(tau == 0, a, a - (a @ v) @ (tau * v.mH))


def _stacked(scalars: Sequence[Tensor], like: Tensor) -> Tensor:
    """Scalars of each matrix as a vector [..., k]."""
    return torch.stack(list(scalars), -1) if scalars else like.new_zeros((*like.shape[:-2], 0))


def _packed(reduced: Tensor, vectors: Sequence[Tensor], below: int) -> Tensor:
    """A reduced matrix with so many diagonals below the main one, and under them what follows the 1 of each vector."""
    upper = reduced.triu(-below)
    if not vectors:
        return upper
    kept = torch.cat(list(vectors), -1).tril(-below - 1)
    return upper + pad(kept, (0, upper.shape[-1] - kept.shape[-1]))


# ------------------------------------------------------------------------------------------- QR


def pivoted_qr(a: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """geqp3: (r with the reflections below it, the columns' places in `a` from 1, taus) of ``a[:, p] = q r``.

    Columns whose entry in `pivots` (s32 [..., n]) is not 0 come first. Of the others, each step takes the one of which most
    is left. As in LAPACK, norms are carried from step to step, and computed anew where too little of them is certain.
    """
    order, fixed = _fixed_first(pivots != 0)
    reduced = _in_order(a, order)
    place = torch.arange(a.shape[-1], device=a.device)
    remaining = reference = a.new_zeros(order.shape).real
    vectors: list[Tensor] = []
    taus: list[Tensor] = []
    for k in range(min(a.shape[-2:])):
        fresh = _norm(reduced.detach()[..., k:, :].mT)[..., 0]
        if k:
            left, certain = _what_is_left(remaining, reference, reduced.detach()[..., k - 1, :])
            reference = torch.where(certain, reference, fresh)
            remaining = torch.where(certain, left, fresh)
        remaining, reference = (torch.where(fixed >= k, fresh, x) for x in (remaining, reference))
        best = torch.where(place >= k, remaining, -1).argmax(-1, keepdim=True)
        best = torch.where(fixed > k, k, best)
        swap = torch.where(place == k, best, torch.where(place == best, k, place))
        order, remaining, reference = (x.gather(-1, swap) for x in (order, remaining, reference))
        reduced = _qr_step(_in_order(reduced, swap), k, vectors, taus)
    return _packed(reduced, vectors, 0), (order + 1).to(torch.int32), _stacked(taus, a)


def _qr_step(reduced: Tensor, k: int, vectors: list[Tensor], taus: list[Tensor]) -> Tensor:
    """Column k reduced; its reflection joins the others."""
    v, tau, _ = reflector(reduced[..., k:, k])
    vectors.append(_column(v, k, reduced.shape[-2]))
    taus.append(tau)
    return from_left(reduced, vectors[-1], tau)


def _in_order(a: Tensor, order: Tensor) -> Tensor:
    return a.gather(-1, order.unsqueeze(-2).expand(a.shape))


def _fixed_first(fixed: Tensor) -> tuple[Tensor, Tensor]:
    """(columns in the order in which fixed ones, each swapped to the front, come first; how many those are, [..., 1])."""
    place = torch.arange(fixed.shape[-1], device=fixed.device)
    order = place.expand(fixed.shape)
    count = fixed.new_zeros((*fixed.shape[:-1], 1), dtype=torch.int64)
    for k in range(fixed.shape[-1]):
        here = fixed[..., k:k + 1]
        swap = torch.where(place == k, count, torch.where(place == count, k, place))
        order = torch.where(here, order.gather(-1, swap), order)
        count = count + here
    return order, count


def _what_is_left(remaining: Tensor, reference: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """(norms of columns without their elements in a row, where enough of them is certain).

    `reference` are the norms as last computed. A norm of 0 stays 0.
    """
    one = torch.ones_like(remaining)
    share = (1 - (row.abs() / torch.where(remaining > 0, remaining, one)) ** 2).clamp(min=0)
    certainty = share * (remaining / torch.where(reference > 0, reference, one)) ** 2
    doubt = (torch.finfo(remaining.dtype).eps / 2) ** 0.5
    return remaining * share.sqrt(), (certainty > doubt) | (remaining == 0)


# ------------------------------------------------------------------------------------------- similarity transforms


def hessenberg(a: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    """gehrd: (h with the reflections below its subdiagonal, taus [..., n - 1]) of ``a = q h q^H``.

    Rows and columns `low` to `high`, counted from 1, are reduced; a is upper triangular in the others, and their taus are 0.
    """
    size = a.shape[-1]
    vectors: list[Tensor] = []
    taus: list[Tensor] = []
    reduced = a
    for k in range(size - 1):
        if low - 1 <= k < high - 1:
            v, tau, _ = reflector(reduced[..., k + 1:high, k])
            reduced = from_left(from_right(reduced, _column(v, k + 1, size), tau), _column(v, k + 1, size), tau)
        else:
            v, tau = torch.zeros_like(a[..., k + 1:, k]), torch.zeros_like(a[..., 0, 0])
        vectors.append(_column(v, k + 1, size))
        taus.append(tau)
    return _packed(reduced, vectors, 1), _stacked(taus, a)


def hessenberg_basis(packed: Tensor, taus: Tensor) -> Tensor:
    """The unitary q of `hessenberg`."""
    inner = torch.linalg.householder_product(packed[..., 1:, :-1], taus)
    corner = torch.ones_like(packed[..., :1, :1])
    return pad(inner, (1, 0, 1, 0)) + pad(corner, (0, packed.shape[-1] - 1, 0, packed.shape[-1] - 1))


def tridiagonal(a: Tensor, lower: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sytrd and hetrd: (packed, diagonal, off-diagonal, taus) of ``a = q t q^H`` for Hermitian a, of which one triangle is read.

    The triangle holds t and the reflections: from the first column on if it is the lower one, else from the last column back.
    The other one is as it was. Both diagonals are real.
    """
    size = a.shape[-1]
    half = a.tril(-1) if lower else a.triu(1)
    reduced = half + half.mH + torch.diag_embed(a.diagonal(dim1=-2, dim2=-1).real)
    parts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    for k in range(size - 1) if lower else range(size - 2, -1, -1):
        if lower:
            v, tau, beta = reflector(reduced[..., k + 1:, k])
            v = _column(v, k + 1, size)
        else:
            v, tau, beta = reflector(reduced[..., :k + 1, k + 1].flip(-1))
            v = _column(v.flip(-1), 0, size)
        parts[k] = v, tau, beta
        factor = tau[..., None, None]
        w = factor * (reduced @ v)
        w = w - 0.5 * factor * (w.mH @ v) * v
        reduced = torch.where(factor == 0, reduced, reduced - v @ w.mH - w @ v.mH)
    diagonal = reduced.diagonal(dim1=-2, dim2=-1).real
    off = _stacked([parts[k][2] for k in range(size - 1)], a.real)
    kept = torch.cat([*(parts[k][0] for k in range(size - 1)), a.new_zeros((*a.shape[:-1], 1))], -1)
    kept = a.triu(1) + kept.tril(-2) if lower else a.tril(-1) + kept.roll(1, -1).triu(2)
    packed = kept + torch.diag_embed(diagonal) + torch.diag_embed(off, -1 if lower else 1)
    return packed, diagonal.contiguous(), off, _stacked([parts[k][1] for k in range(size - 1)], a)
