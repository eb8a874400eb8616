"""Gradients of cholesky, triangular-solve and fft."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xla_torch.builder import XlaOp
from xla_torch.hlo.ir import Instruction
from xla_torch.ops import BroadcastInDim, DotDimensionNumbers, DotGeneral, Fft, Ge, Gt, Neg, TriangularSolve

from ._calculus import conj, constant, iota, masked, transpose
from ._table import vjp

# ------------------------------------------------------------------------------------------------------- matrices


def _matmul(x: XlaOp, y: XlaOp) -> XlaOp:
    """The product of the matrices in the last two dimensions."""
    rank = x.shape.rank
    batch = tuple(range(rank - 2))
    return DotGeneral(x, y, DotDimensionNumbers((rank - 1,), (rank - 2,), batch, batch))


def _turned(x: XlaOp) -> XlaOp:
    """The matrices transposed."""
    rank = x.shape.rank
    return transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _adjoint(x: XlaOp) -> XlaOp:
    return conj(_turned(x))


def _triangle(x: XlaOp, lower: bool, diagonal: bool = True) -> XlaOp:
    """One triangle of the matrices, zeros elsewhere."""
    rank = x.shape.rank
    rows, columns = (iota(x, x.shape.dimensions, d) for d in (rank - 2, rank - 1))
    inner, outer = (rows, columns) if lower else (columns, rows)
    return masked(Ge(inner, outer) if diagonal else Gt(inner, outer), x)


# ------------------------------------------------------------------------------------------------------- cholesky


def _cholesky(ct: XlaOp, out: XlaOp, lower: bool) -> XlaOp:
    """A = L L^H gives ``S = L^-H tril'(L^H ct) L^-1``, tril' with half the diagonal. The op reads one triangle of A and
    takes the other one as its mirror image, so that triangle receives both halves of the symmetric cotangent."""
    factor, ct = (out, ct) if lower else (_adjoint(out), _adjoint(ct))
    factor, ct = _triangle(factor, True), _triangle(ct, True)
    inner = _halved_diagonal(_triangle(_matmul(_adjoint(factor), ct), True))
    left = TriangularSolve(factor, inner, True, True, False, "ADJOINT")
    whole = TriangularSolve(factor, left, False, True, False, "NO_TRANSPOSE")
    mirrored = _halved_diagonal(_triangle(whole + _adjoint(whole), True))
    return mirrored if lower else _adjoint(mirrored)


def _halved_diagonal(x: XlaOp) -> XlaOp:
    size = x.shape.dimensions[-1]
    weights = (np.ones((size, size)) - np.eye(size) / 2).astype(x.element_type.numpy)
    rank = x.shape.rank
    return x * BroadcastInDim(constant(x, weights), x.shape.dimensions, [rank - 2, rank - 1])


vjp("cholesky", a=_cholesky)

# ----------------------------------------------------------------------------------------------- triangular solve


def _right_side(ct: XlaOp, a: XlaOp, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> XlaOp:
    """The solution with the adjoint matrix: (A^T)^H is the conjugate of A."""
    matrix = conj(a) if transpose_a == "TRANSPOSE" else a
    adjoint = "ADJOINT" if transpose_a == "NO_TRANSPOSE" else "NO_TRANSPOSE"
    return TriangularSolve(matrix, ct, left_side, lower, unit_diagonal, adjoint)


def _matrix(ct: XlaOp, out: XlaOp, a: XlaOp, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> XlaOp:
    """op(A) X = B gives op(A) the cotangent -B' X^H, B' the right side's; the op reads one triangle of A."""
    right = _right_side(ct, a, left_side, lower, unit_diagonal, transpose_a)
    product = _matmul(right, _adjoint(out)) if left_side else _matmul(_adjoint(out), right)
    undone = {"NO_TRANSPOSE": product, "TRANSPOSE": _turned(product), "ADJOINT": _adjoint(product)}[transpose_a]
    return _triangle(Neg(undone), lower, diagonal=not unit_diagonal)


vjp("triangular-solve", a=_matrix, b=_right_side)

# ------------------------------------------------------------------------------------------------------------ fft


def _fft(ct: XlaOp, inst: Instruction, fft_type: str, fft_length: Sequence[int]) -> XlaOp:
    """The adjoint of each transform. Half a spectrum stands for a whole one, in which all but its ends count twice."""
    count = max(math.prod(fft_length), 1)
    if fft_type == "FFT":
        return Fft(ct, "IFFT", fft_length) * count
    if fft_type == "IFFT":
        return Fft(ct, "FFT", fft_length) / count
    if fft_type == "RFFT":
        return Fft(ct / _times_counted(ct, fft_length[-1]), "IRFFT", fft_length) * count
    spectrum = Fft(ct, "RFFT", fft_length)
    return spectrum * _times_counted(spectrum, fft_length[-1]) / count


def _times_counted(spectrum: XlaOp, length: int) -> XlaOp:
    """How often each entry of half a spectrum stands in the whole: the first, and the last of an even length, once."""
    size, last = spectrum.shape.dimensions[-1], spectrum.shape.rank - 1
    weights = np.full(size, 2, spectrum.element_type.numpy)
    weights[:1] = 1
    if length % 2 == 0:
        weights[-1:] = 1
    return BroadcastInDim(constant(spectrum, weights), spectrum.shape.dimensions, [last])


vjp("fft", operand=_fft)
