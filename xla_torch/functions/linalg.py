"""Cholesky, TriangularSolve and Fft under their documented names.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..hlo.choices import FftType, TriangularSolveTranspose
from ..opcodes import linalg
from ._documented import documented
from .hlo_builder import XlaOp

__all__ = ["Cholesky", "Fft", "FftType", "TriangularSolve", "TriangularSolveTranspose"]


@documented
def Cholesky(a: XlaOp, lower: bool = False) -> XlaOp:
    """The factor of Hermitian positive definite matrices [..., n, n]: ``a = l l^H`` if `lower`, else ``a = u^H u``.

    Only that triangle of `a` is read, and the other one of the result is zero. A matrix that is not positive definite gives
    NaN. Raises InvalidArgument unless `a` is floating or complex and its last two dimensions are equal.

    >>> ops.Cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]), lower=True)
    tensor([[2., 0.],
            [1., 2.]])
    """
    return a.builder.add(linalg.cholesky, [a], {"lower": lower})


@documented
def TriangularSolve(a: XlaOp, b: XlaOp, left_side: bool, lower: bool, unit_diagonal: bool,
                    transpose_a: TriangularSolveTranspose | str) -> XlaOp:
    """The solution of ``op(a) x = b`` (`left_side`) or ``x op(a) = b`` with triangular matrices a [..., n, n].

    `lower` says which triangle of `a` is read; with `unit_diagonal` its diagonal is taken as 1 and not read. `transpose_a` is
    "NO_TRANSPOSE", "TRANSPOSE" or "ADJOINT". b is [..., n, k] (`left_side`) or [..., k, n], with a's leading dimensions and
    its floating or complex element type; x has b's shape. Raises InvalidArgument for anything else.

    >>> a, b = torch.tensor([[2.0, 0.0], [1.0, 4.0]]), torch.tensor([[2.0], [9.0]])
    >>> ops.TriangularSolve(a, b, True, True, False, "NO_TRANSPOSE")
    tensor([[1.],
            [2.]])
    """
    flags = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal, "transpose_a": transpose_a}
    return a.builder.add(linalg.triangular_solve, [a, b], flags)


@documented
def Fft(operand: XlaOp, fft_type: FftType | str, fft_length: Sequence[int]) -> XlaOp:
    """The Fourier transform over the last ``len(fft_length)`` (1 to 3) dimensions.

    `fft_type` is "FFT" or "IFFT" (complex to complex), "RFFT" (real to the half of the spectrum that is independent) or
    "IRFFT" (back; scaled by 1/N as IFFT is). Raises InvalidArgument where the operand does not fit the lengths.

    >>> ops.Fft(torch.tensor([1.0, 0.0, 0.0, 0.0]), "RFFT", [4])
    tensor([1.+0.j, 1.+0.j, 1.+0.j])
    """
    return operand.builder.add(linalg.fft, [operand], {"fft_type": fft_type, "fft_length": tuple(fft_length)})
