"""Schur decompositions by the QR algorithm: LAPACK's gees for batches of matrices, on any device.

Matrices are reduced to Hessenberg form, and then swept by reflections that chase a bulge down the diagonal, with LAPACK's
shifts, until their subdiagonals vanish (xLAHQR). Each matrix has its own active block, rows and columns `low` to `high`; a
sweep goes down all of them at once. Where the blocks are is asked once for each sweep.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import pad

from .householder import hessenberg, hessenberg_basis, reflector

_WIDTH = 3
"""Rows that a reflection takes at most."""

_PATIENCE = 10
"""After so many sweeps without progress a shift is exceptional."""


def schur(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(t, z, info) of ``a = z t z^H`` for square matrices [..., n, n].

    t is upper triangular; for real matrices with blocks of 2 rows on its diagonal, of equal diagonal elements and others of
    different signs, for each pair of complex eigenvalues. info (s32 [...]) is 0, or for matrices that did not converge a
    row from which on they did.
    """
    batch, size = a.shape[:-2], a.shape[-1]
    if not a.numel():
        return a.clone(), a.clone(), torch.zeros(batch, dtype=torch.int32, device=a.device)
    with torch.no_grad():
        flat, factor = _scaled(a.detach().reshape(-1, size, size))
        packed, taus = hessenberg(flat, 1, size)
        # A row and a column of zeros below let reflections of three rows reach over the end.
        wide = max(size, _WIDTH) + 1 - size
        state = _State(pad(packed.triu(-1), (0, wide, 0, wide)), pad(hessenberg_basis(packed, taus), (0, wide)))
        while state.advance():
            pass
        t = state.t[:, :size, :size] / factor
        return t.reshape(a.shape), state.z[..., :size].reshape(a.shape), state.info.reshape(batch)


def _scaled(a: Tensor) -> tuple[Tensor, Tensor]:
    """(matrices in the range where products of their elements are numbers, the factors that brought them there)."""
    limits = torch.finfo(a.dtype)
    least = limits.tiny ** 0.5 / limits.eps
    largest = a.abs().amax((-2, -1), keepdim=True)
    factor = torch.where((largest > 0) & largest.isfinite(), largest.clamp(least, 1 / least) / largest, 1)
    return a * factor, factor


def eigenvalues(t: Tensor) -> Tensor:
    """The complex eigenvalues on the diagonal of a Schur form."""
    diagonal = t.diagonal(dim1=-2, dim2=-1)
    if t.is_complex():
        return diagonal.contiguous()
    above, below = (t.diagonal(k, -2, -1) for k in (1, -1))
    imaginary = above.abs().sqrt() * below.abs().sqrt()
    return torch.complex(diagonal.contiguous(), pad(imaginary, (0, 1)) - pad(imaginary, (1, 0)))


def _size(x: Tensor) -> Tensor:
    """The size of numbers as LAPACK weighs them here."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


class _State:
    """Batches of Hessenberg matrices on their way to Schur form: `t` [b, w, w] and `z` [b, n, w], zero beyond n."""

    def __init__(self, t: Tensor, z: Tensor):
        self.t, self.z = t, z
        count, self.n = z.shape[:2]
        self.each = torch.arange(count, device=t.device)
        self.place = torch.arange(self.n, device=t.device)
        self.high = torch.full_like(self.each, self.n - 1)
        self.low = torch.zeros_like(self.each)
        self.sweeps = torch.zeros_like(self.each)
        self.info = torch.zeros_like(self.each, dtype=torch.int32)

    def at(self, row: Tensor, column: Tensor) -> Tensor:
        """An element of each matrix; places out of the matrix count from its end, and nobody asks for them."""
        return self.t[self.each, row, column]

    def put(self, row: Tensor, column: Tensor, value: Tensor | int, where: Tensor) -> None:
        self.t[self.each, row, column] = torch.where(where, value, self.at(row, column))

    # ---------------------------------------------------------------------------------------- progress

    def advance(self) -> bool:
        """Split off what has converged, and sweep the other blocks once. False where nothing is left."""
        self.low = torch.where(self._negligible() & (self.place <= self.high[:, None]), self.place, 0).amax(-1)
        self.put(self.low, self.low - 1, 0, (self.low > 0) & (self.high >= 0))
        small = self.low >= self.high - (0 if self.t.is_complex() else 1)
        converged = small & (self.high >= 0)
        if not self.t.is_complex():
            self._standardise(converged & (self.low == self.high - 1))
        self.high = torch.where(converged, self.low - 1, self.high)
        self.sweeps = torch.where(converged, 0, self.sweeps + 1)
        active = ~small & (self.high >= 0)
        hopeless = active & (self.sweeps > 30 * max(10, self.n))
        sweep = _complex_start(self) if self.t.is_complex() else _real_start(self)
        hopeless = hopeless | active & ~sweep.v.isfinite().all(-1)
        self.info = torch.where(hopeless, self.high + 1, self.info).to(torch.int32)
        self.high = torch.where(hopeless, -1, self.high)
        facts = torch.stack([self.high, sweep.start, self.low, (active & ~hopeless).long()]).tolist()
        blocks = [(start, high, low) for high, start, low, live in zip(*facts, strict=True) if live]
        if blocks:
            self._sweep(sweep, active & ~hopeless, min(b[0] for b in blocks), max(b[1] for b in blocks),
                        {start for start, _, low in blocks if start > low})
        return any(high >= 0 for high in facts[0])

    def _negligible(self) -> Tensor:
        """[b, n]: whether the element left of each diagonal element may count as 0."""
        t = self.t[:, :self.n, :self.n]
        limits = torch.finfo(t.dtype)
        diagonal = t.diagonal(dim1=-2, dim2=-1)
        below, above = (_size(t.diagonal(k, -2, -1)) for k in (-1, 1))
        here, before = _size(diagonal[:, 1:]), _size(diagonal[:, :-1])
        scale = here + before
        neighbours = pad(below[:, :-1], (1, 0)) + pad(below[:, 1:], (0, 1)) if self.n > 1 else below
        scale = torch.where(scale == 0, neighbours, scale)
        difference = _size(diagonal[:, :-1] - diagonal[:, 1:])
        larger, smaller = torch.maximum(below, above), torch.minimum(below, above)
        wide, narrow = torch.maximum(here, difference), torch.minimum(here, difference)
        total = wide + larger
        total = torch.where(total == 0, 1, total)
        least = limits.tiny * (self.n / limits.eps)
        fine = smaller * (larger / total) <= (limits.eps * (narrow * (wide / total))).clamp(min=least)
        return pad((below <= least) | ((below <= limits.eps * scale) & fine), (1, 0))

    # ---------------------------------------------------------------------------------------- sweeping

    def _sweep(self, sweep: _Sweep, active: Tensor, first: int, last: int, inner: set[int]) -> None:
        """Reflect rows and columns k to ``k + r`` for k from the start of each block to its end."""
        t, width = self.t, sweep.v.shape[-1]
        for k in range(first, last):
            begins, live = sweep.start == k, active & (sweep.start <= k) & (self.high > k)
            column = sweep.v
            if k > first:
                column = torch.where(begins[:, None], column, t[:, k:k + width, k - 1])
            v, tau, beta = reflector(torch.where(live[:, None], column, 0))
            if k > first:
                t[:, k, k - 1] = torch.where(live & ~begins, beta.to(t.dtype), t[:, k, k - 1])
                t[:, k + 1:k + width, k - 1].masked_fill_((live & ~begins)[:, None], 0)
            if k in inner and not t.is_complex():
                t[:, k, k - 1] *= torch.where(begins & live & (self.low < k), 1 - tau, 1)
            _reflect(t, self.z, k, v, tau[:, None])
            if k in inner and t.is_complex():
                self._keep_real(k, tau, begins & live & (self.low < k))
        if t.is_complex():
            self._make_real(active)

    def _keep_real(self, start: int, tau: Tensor, where: Tensor) -> None:
        """After a reflection that begins within a block: phases that leave the subdiagonal real."""
        phase = torch.where(where, torch.sgn(1 - tau), 1)[:, None]
        inside = (self.place >= start) & (self.place <= self.high[:, None]) & (self.place != start + 1)
        left = self.t[:, start, start - 1].clone()
        self._rephase(torch.where(inside, phase, 1))
        self.t[:, start, start - 1] = left

    def _make_real(self, active: Tensor) -> None:
        """The last subdiagonal element of each block made real."""
        last = self.at(self.high, self.high - 1)
        phase = torch.where(active & (last.imag != 0), torch.sgn(last).conj(), 1)[:, None]
        self._rephase(torch.where(self.place == self.high[:, None], phase, 1))
        self.put(self.high, self.high - 1, last.abs().to(last.dtype), active & (last.imag != 0))

    def _rephase(self, phases: Tensor) -> None:
        phases = pad(phases, (0, self.t.shape[-1] - self.n), value=1)
        self.t *= phases[:, :, None] * phases.conj()[:, None, :]
        self.z *= phases.conj()[:, None, :]

    # ---------------------------------------------------------------------------------------- blocks of two rows

    def _standardise(self, where: Tensor) -> None:
        """Bring the block of the last two active rows to standard form (xLANV2), by a rotation of all of the matrix."""
        i, j = self.high - 1, self.high
        block = [self.at(*at) for at in ((i, i), (i, j), (j, i), (j, j))]
        *standard, cosine, sine = _standard(*block)
        cosine, sine = torch.where(where, cosine, 1)[:, None], torch.where(where, sine, 0)[:, None]
        place = torch.arange(self.t.shape[-1], device=self.t.device)
        after = place > j[:, None]
        rows = self.t[self.each, i], self.t[self.each, j]
        turned = cosine * rows[0] + sine * rows[1], cosine * rows[1] - sine * rows[0]
        for at, new, old in zip((i, j), turned, rows, strict=True):
            self.t[self.each, at] = torch.where(after, new, old)
        before = place < i[:, None]
        for matrix, part in ((self.t, before), (self.z, torch.ones_like(before[:, :self.n]))):
            columns = matrix[self.each, :, i], matrix[self.each, :, j]
            turned = cosine * columns[0] + sine * columns[1], cosine * columns[1] - sine * columns[0]
            for at, new, old in zip((i, j), turned, columns, strict=True):
                matrix[self.each, :, at] = torch.where(part & where[:, None], new, old)
        for at, value in zip(((i, i), (i, j), (j, i), (j, j)), standard, strict=True):
            self.put(*at, value, where)


def _reflect(t: Tensor, z: Tensor, k: int, v: Tensor, tau: Tensor) -> None:
    """Rows and columns from k on, in place."""
    width = v.shape[-1]
    across, down = v.conj().unsqueeze(1), v.unsqueeze(-1)
    rows = t[:, k:k + width, k:]
    rows -= (tau.conj() * v).unsqueeze(-1) @ (across @ rows)
    for columns in (t[:, :k + width + 1, k:k + width], z[:, :, k:k + width]):
        columns -= (columns @ down) @ (tau.unsqueeze(1) * across)


# ------------------------------------------------------------------------------------------- shifts


@dataclasses.dataclass(slots=True)
class _Sweep:
    """Where in its block each matrix's sweep starts, and the column that its first reflection takes [b, width]."""

    start: Tensor
    v: Tensor


def _phase_of(state: _State) -> tuple[Tensor, Tensor]:
    """(whether the shift is exceptional and taken from the block's end, or from its beginning)."""
    at_end = state.sweeps % (2 * _PATIENCE) == 0
    return at_end, (state.sweeps % _PATIENCE == 0) & ~at_end


def _latest(good: Tensor, low: Tensor, last: Tensor) -> Tensor:
    """The last place between `low` and `last` that is good, else `low`."""
    place = torch.arange(good.shape[-1], device=good.device)
    inside = (place > low[:, None]) & (place <= last[:, None])
    return torch.maximum(torch.where(good & inside, place, 0).amax(-1), low)


def _real_start(state: _State) -> _Sweep:
    """Two shifts: the eigenvalues of the last block of two rows, or the nearer one twice if they are real."""
    i, low = state.high.clamp(min=2), state.low
    low = torch.minimum(low, i - 2)
    at = state.at
    at_end, at_start = _phase_of(state)
    ends = at(i, i - 1).abs() + at(i - 1, i - 2).abs()
    starts = at(low + 1, low).abs() + at(low + 2, low + 1).abs()
    unusual, s = at_end | at_start, torch.where(at_end, ends, starts)
    corner = 0.75 * s + torch.where(at_end, at(i, i), at(low, low))
    h11, h12 = torch.where(unusual, corner, at(i - 1, i - 1)), torch.where(unusual, -0.4375 * s, at(i - 1, i))
    h21, h22 = torch.where(unusual, s, at(i, i - 1)), torch.where(unusual, corner, at(i, i))
    total = h11.abs() + h12.abs() + h21.abs() + h22.abs()
    s = torch.where(total == 0, 1, total)
    h11, h12, h21, h22 = h11 / s, h12 / s, h21 / s, h22 / s
    middle = (h11 + h22) / 2
    determinant = (h11 - middle) * (h22 - middle) - h12 * h21
    root = determinant.abs().sqrt()
    nearer = torch.where((middle + root - h22).abs() <= (middle - root - h22).abs(), middle + root, middle - root)
    real = (torch.where(determinant >= 0, middle, nearer) * s)[:, None]
    imaginary = (torch.where(determinant >= 0, root, 0) * s)[:, None]

    t, n = state.t, state.t.shape[-1] - 1
    diagonal, below = t.diagonal(dim1=-2, dim2=-1), t.diagonal(-1, -2, -1)
    above = t.diagonal(1, -2, -1)
    here, after, down = diagonal[:, :n - 1], diagonal[:, 1:n], below[:, :n - 1]
    scale = (here - real).abs() + imaginary.abs() + down.abs()
    scale = torch.where(scale == 0, 1, scale)
    ratio = down / scale
    v = torch.stack([
        ratio * above[:, :n - 1] + (here - real) * ((here - real) / scale) + imaginary * (imaginary / scale),
        ratio * (here + after - 2 * real), ratio * below[:, 1:n]], -1)
    v = v / v.abs().sum(-1, keepdim=True).clamp(min=torch.finfo(t.dtype).tiny)
    previous, left = pad(diagonal[:, :n - 2], (1, 0)), pad(down[:, :-1], (1, 0))
    eps = torch.finfo(t.dtype).eps
    fits = left.abs() * (v[..., 1].abs() + v[..., 2].abs()) <= eps * v[..., 0].abs() * (
        previous.abs() + here.abs() + after.abs())
    start = _latest(fits, low, i - 2)
    return _Sweep(start, v[state.each, start])


def _complex_start(state: _State) -> _Sweep:
    """One shift: the eigenvalue of the last block of two rows that is nearer to its last element."""
    i = state.high.clamp(min=1)
    low, at = torch.minimum(state.low, i - 1), state.at
    corner, before = at(i, i), at(i - 1, i - 1)
    u = at(i - 1, i).sqrt() * at(i, i - 1).sqrt()
    x = (before - corner) / 2
    s = torch.maximum(_size(u), _size(x))
    divisor = torch.where(s == 0, 1, s)
    y = s * ((x / divisor) ** 2 + (u / divisor) ** 2).sqrt()
    along = x / torch.where(_size(x) == 0, 1, _size(x))
    y = torch.where(along.real * y.real + along.imag * y.imag < 0, -y, y)
    sum_of = torch.where(x + y == 0, 1, x + y)
    shift = torch.where(_size(u) == 0, corner, corner - u * (u / sum_of))
    at_end, at_start = _phase_of(state)
    shift = torch.where(at_end, corner + 0.75 * at(i, i - 1).real.abs(), shift)
    shift = torch.where(at_start, at(low, low) + 0.75 * at(low + 1, low).real.abs(), shift)

    t, n = state.t, state.t.shape[-1] - 1
    diagonal, down = t.diagonal(dim1=-2, dim2=-1), t.diagonal(-1, -2, -1)[:, :n - 1].real
    here, after = diagonal[:, :n - 1], diagonal[:, 1:n]
    shifted = here - shift[:, None]
    scale = _size(shifted) + down.abs()
    scale = torch.where(scale == 0, 1, scale)
    shifted, ratio = shifted / scale, down / scale
    left = pad(down[:, :-1], (1, 0))
    fits = left.abs() * ratio.abs() <= torch.finfo(t.dtype).eps * (_size(shifted) * (_size(here) + _size(after)))
    start = _latest(fits, low, i - 1)
    return _Sweep(start, torch.stack([shifted, ratio.to(t.dtype)], -1)[state.each, start])


def _standard(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
    """(a, b, c, d, cosine, sine): the standard form of real blocks ((a, b), (c, d)) and the rotation that gives it."""
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    eps = torch.finfo(a.dtype).eps
    half = (a - d) / 2
    larger = torch.maximum(b.abs(), c.abs())
    smaller = torch.minimum(b.abs(), c.abs()) * torch.copysign(one, b) * torch.copysign(one, c)
    scale = torch.maximum(half.abs(), larger)
    scale = torch.where(scale == 0, 1, scale)
    z = (half / scale) * half + (larger / scale) * smaller

    root = half + torch.copysign(scale.sqrt() * z.clamp(min=0).sqrt(), half)
    root = torch.where(root == 0, 1, root)
    length = torch.hypot(c, root)
    real = (d + root, b - c, zero, d - (larger / root) * smaller, root / length, c / length)

    sigma = b + c
    length = torch.hypot(sigma, a - d)
    length = torch.where(length == 0, 1, length)
    cosine = (0.5 * (1 + sigma.abs() / length)).sqrt()
    sine = -(half / (length * cosine)) * torch.copysign(one, sigma)
    top, right = a * cosine + b * sine, -a * sine + b * cosine
    left, bottom = c * cosine + d * sine, -c * sine + d * cosine
    middle = (top * cosine + left * sine - right * sine + bottom * cosine) / 2
    upper, lower = right * cosine + bottom * sine, -top * sine + left * cosine
    # Rounding may have left a pair that is real after all.
    product = torch.copysign(upper.abs().sqrt() * lower.abs().sqrt(), lower)
    total = (upper + lower).abs()
    factor = torch.where(total == 0, 1, total).rsqrt()
    cosine_1, sine_1 = upper.abs().sqrt() * factor, lower.abs().sqrt() * factor
    same = (lower != 0) & (upper != 0) & (torch.signbit(upper) == torch.signbit(lower))
    turned = (lower != 0) & (upper == 0)
    pair = (middle, upper, lower, middle, cosine, sine)
    pair = _chosen(same, (middle + product, upper - lower, zero, middle - product, cosine * cosine_1 - sine * sine_1,
                          cosine * sine_1 + sine * cosine_1), pair)
    pair = _chosen(turned, (middle, -lower, zero, middle, -sine, cosine), pair)

    found = _chosen(z >= 4 * eps, real, pair)
    found = _chosen((a == d) & (torch.signbit(b) != torch.signbit(c)), (a, b, c, d, one, zero), found)
    found = _chosen(b == 0, (d, -c, zero, a, zero, one), found)
    return _chosen(c == 0, (a, b, c, d, one, zero), found)


def _chosen(where: Tensor, yes: tuple[Tensor, ...], no: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.where(where, y, n) for y, n in zip(yes, no, strict=True))
