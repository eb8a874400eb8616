"""Op bodies: linalg (cholesky, triangular-solve, fft). Specification: hlo/SPEC.md, Linear algebra."""

from __future__ import annotations

import math

import torch

from ...core.types import PrimitiveType
from ...hlo.attributes import Bool, Dims, FftType, TransposeKind
from ...hlo.ir import Instruction
from ...kernels import linalg as kernels
from ...storage.dtypes import storage_dtype
from .. import values
from ..body_table import body
from ..values import Value


def _wide(value: Value, element_type: PrimitiveType) -> Value:
    """torch factorises float32, float64 and complex only: smaller floats are computed in float32."""
    return value.to(torch.float32) if element_type.bits < 32 and storage_dtype(element_type) is not torch.float32 else value


def _back(value: Value, element_type: PrimitiveType) -> Value:
    narrow = element_type.bits < 32 and storage_dtype(element_type) is not torch.float32
    return value.to(storage_dtype(element_type)) if narrow else value


@body("cholesky")
def cholesky(inst: Instruction, a: Value, *, lower: Bool) -> Value:
    element_type = inst.shape.element_type
    # The factor of a matrix that is not positive definite is NaN, decided on the device.
    factor = torch.linalg.cholesky_ex(_wide(a, element_type), upper=not lower)
    failed = (factor[1] != 0).unsqueeze(-1).unsqueeze(-1)
    return _back(torch.where(failed, math.nan, factor[0]), element_type)


@body("triangular-solve")
def triangular_solve(inst: Instruction, a: Value, b: Value, *, left_side: Bool, lower: Bool, unit_diagonal: Bool,
                     transpose_a: TransposeKind) -> Value:
    element_type = inst.shape.element_type
    a, b = _wide(a, element_type), _wide(b, element_type)
    if transpose_a == "NO_TRANSPOSE":
        upper = not lower
    else:
        upper, a = lower, a.transpose(-2, -1)
        if transpose_a == "ADJOINT" and element_type.is_complex:
            a = a.conj()
    return _back(torch.linalg.solve_triangular(a, b, upper=upper, left=left_side, unitriangular=unit_diagonal), element_type)


@body("fft")
def fft(inst: Instruction, operand: Value, *, fft_type: FftType, fft_length: Dims) -> Value:
    if 0 in inst.shape.dimensions or 0 in inst.operands[0].shape.dimensions:
        return values.emit(torch.zeros, inst.shape.dimensions, dtype=storage_dtype(inst.shape.element_type),
                           device=values.device())
    dims = list(range(-len(fft_length), 0))
    if fft_type == "FFT":
        return torch.fft.fftn(operand, dim=dims)
    if fft_type == "IFFT":
        return torch.fft.ifftn(operand, dim=dims)
    if fft_type == "RFFT":
        return torch.fft.rfftn(operand, dim=dims)
    if values.device().type != "cpu":
        return values.emit(kernels.inverse_real_fft, operand, tuple(fft_length))
    return torch.fft.irfftn(operand, s=list(fft_length), dim=dims)
