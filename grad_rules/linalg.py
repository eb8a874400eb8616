"""Gradients of cholesky, triangular-solve and fft."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from grad_rules._calculus import conj, constant
from grad_rules._matrices import adjoint, halved_diagonal, matmul, mirrored, triangle, turned
from grad_rules._table import vjp
from xla_torch.functions import BroadcastInDim, Fft, Neg, TriangularSolve
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Instruction

# ------------------------------------------------------------------------------------------------------- cholesky


def _cholesky(ct: XlaOp, out: XlaOp, lower: bool) -> XlaOp:
    """A = L L^H gives ``S = L^-H tril'(L^H ct) L^-1``, tril' with half the diagonal. The op reads one triangle of A and
    takes the other one as its mirror image, so that triangle receives both halves of the symmetric cotangent."""
    factor, ct = (out, ct) if lower else (adjoint(out), adjoint(ct))
    factor, ct = triangle(factor, True), triangle(ct, True)
    inner = halved_diagonal(triangle(matmul(adjoint(factor), ct), True))
    left = TriangularSolve(factor, inner, True, True, False, "ADJOINT")
    whole = TriangularSolve(factor, left, False, True, False, "NO_TRANSPOSE")
    found = mirrored(whole, True)
    return found if lower else adjoint(found)


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
    product = matmul(right, adjoint(out)) if left_side else matmul(adjoint(out), right)
    undone = {"NO_TRANSPOSE": product, "TRANSPOSE": turned(product), "ADJOINT": adjoint(product)}[transpose_a]
    return triangle(Neg(undone), lower, diagonal=not unit_diagonal)


vjp("triangular-solve", a=_matrix, b=_right_side)

# ------------------------------------------------------------------------------------------------------------ fft


def _fft(ct: XlaOp, inst: Instruction, fft_type: str, fft_length: Sequence[int]) -> XlaOp:
    """The adjoint of each transform. Half a spectrum stands for a whole one, in which all but its ends count twice."""
    count = float(max(math.prod(fft_length), 1))
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
