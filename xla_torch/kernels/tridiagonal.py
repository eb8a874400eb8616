"""Tridiagonal systems by elimination with row exchanges, row by row over whole batches: gtsv, and its way with singular matrices.

Diagonals are [..., n], all of the same length: the lower one's first element and the upper one's last are not read. Right
sides are [..., n, k]. Both functions are differentiable, and nothing is looked at on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def solve(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """gtsv: (second upper diagonal, diagonal and upper diagonal of the factor, solution, info).

    info (s32 [...]) is 0, or the row, from 1, of the first pivot that is 0; then there is no solution.
    """
    size = diagonal.shape[-1]
    if not size:
        return lower, diagonal, upper, b, torch.zeros(diagonal.shape[:-1], dtype=torch.int32, device=b.device)

    def exchanged(row: _Row, below: _Row) -> Tensor:
        return _weight(row.diagonal) < _weight(below.lower)

    rows = _eliminated(_rows(lower, diagonal, upper, b), exchanged)
    pivots = torch.stack([row.diagonal for row in rows], -1)
    singular = pivots == 0
    first = torch.where(singular, torch.arange(1, size + 1, device=b.device), size + 1).amin(-1)
    solution = _substituted(rows, lambda rest, pivot: rest / pivot[..., None])
    second, above = (torch.stack(parts, -1) for parts in zip(*((row.second, row.upper) for row in rows), strict=True))
    return second, pivots, above, solution, torch.where(first > size, 0, first).to(torch.int32)


def solve_perturbed(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Tensor:
    """The solution with pivots so small that it would overflow moved away from 0, as in inverse iteration (xLAGTS)."""
    if not b.numel():
        return b
    lower, upper = torch.cat([torch.zeros_like(lower[..., :1]), lower[..., 1:]], -1), upper.clone()
    upper[..., -1] = 0
    scales = (lower.abs() + diagonal.abs() + upper.abs()).unbind(-1)
    current = [scales[0]]

    def exchanged(row: _Row, below: _Row) -> Tensor:
        own, other = current[-1], scales[len(current)]
        swap = below.lower.abs() / _or_one(other) > row.diagonal.abs() / _or_one(own)
        factor = row.diagonal / _or_one(below.lower)
        left = (row.upper - factor * below.diagonal).abs() + (factor * below.upper).abs()
        current.append(torch.where(swap, left, other))
        return swap

    rows = _eliminated(_rows(lower, diagonal, upper, b), exchanged)
    limits = torch.finfo(b.dtype)
    largest = torch.stack([torch.stack([row.diagonal, row.upper, row.second], -1).detach().abs().amax(-1) for row in rows], -1)
    unit = (limits.eps * largest.amax(-1)).clamp(min=limits.tiny)

    def divided(rest: Tensor, pivot: Tensor) -> Tensor:
        size = pivot.detach().abs()
        needed = limits.tiny * rest.detach().abs().amax(-1)
        # Doubled from one unit on, the smallest sum of perturbations that takes the pivot there.
        steps = torch.ceil(torch.log2(((needed - size) / unit).clamp(min=0) + 1)).clamp(min=1)
        step = torch.where((size == 0) | (size < needed) & (size < 1), unit * (torch.exp2(steps) - 1), 0)
        return rest / (pivot + torch.copysign(step, pivot.detach().real))[..., None]

    return _substituted(rows, divided)


def _or_one(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1, x)


def _weight(x: Tensor) -> Tensor:
    """The size of numbers as LAPACK compares pivots."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


# ------------------------------------------------------------------------------------------- elimination


class _Row:
    """A row of the system: what is left of the diagonal, the elements from it on, and the right side."""

    __slots__ = ("b", "diagonal", "lower", "second", "upper")

    def __init__(self, lower: Tensor, diagonal: Tensor, upper: Tensor, second: Tensor, b: Tensor):
        self.lower, self.diagonal, self.upper, self.second, self.b = lower, diagonal, upper, second, b


def _rows(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> list[_Row]:
    none = torch.zeros_like(diagonal[..., 0])
    uppers = [*upper.unbind(-1)[:-1], none]
    return [_Row(*parts) for parts in zip(lower.unbind(-1), diagonal.unbind(-1), uppers, [none] * len(uppers), b.unbind(-2),
                                          strict=True)]


def _eliminated(rows: Sequence[_Row], exchanged: Callable[[_Row, _Row], Tensor]) -> list[_Row]:
    """Rows of an upper triangular system. `exchanged` says where a row changes places with the one below."""
    done, row = [], rows[0]
    for below in rows[1:]:
        swap = exchanged(row, below)
        wide = swap.unsqueeze(-1)
        pivot = torch.where(swap, below.lower, row.diagonal)
        factor = torch.where(swap, row.diagonal, below.lower) / _or_one(pivot)
        upper, second = torch.where(swap, below.diagonal, row.upper), torch.where(swap, below.upper, row.second)
        other, further = torch.where(swap, row.upper, below.diagonal), torch.where(swap, row.second, below.upper)
        mine, theirs = torch.where(wide, below.b, row.b), torch.where(wide, row.b, below.b)
        done.append(_Row(row.lower, pivot, upper, second, mine))
        row = _Row(row.lower, other - factor * upper, further - factor * second, torch.zeros_like(second),
                   theirs - factor.unsqueeze(-1) * mine)
    return [*done, row]


def _substituted(rows: Sequence[_Row], divided: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The solution of an upper triangular system, last row first; `divided` divides what is left of a row by its pivot."""
    found: list[Tensor] = []
    for row in reversed(rows):
        rest = row.b
        for coefficient, value in zip((row.upper, row.second), found[:-3:-1], strict=False):
            rest = rest - coefficient.unsqueeze(-1) * value
        found.append(divided(rest, row.diagonal))
    return torch.stack(found[::-1], -2)
