"""Op definitions: linalg (cholesky, triangular-solve, fft). Document: spec `ops.md`, section 7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..lowering import values
from ..lowering.kernels import linalg as kernels
from ..shape import Shape
from ..types import C64, C128, F32, F64, PrimitiveType, complex_part
from .attributes import Bool, Dims, FftType, TransposeKind
from .contraction import same_size
from .definition import op
from .shapes import require, require_arrays


def _wide(value: Any, element_type: PrimitiveType) -> Any:
    """torch factorises float32, float64 and complex only: smaller floats are computed in float32."""
    return value.to(torch.float32) if element_type.bits < 32 and element_type.carrier is not torch.float32 else value


def _back(value: Any, element_type: PrimitiveType) -> Any:
    return value.to(element_type.carrier) if element_type.bits < 32 and element_type.carrier is not torch.float32 else value


# ------------------------------------------------------------------------------------------- cholesky


def cholesky_shape(declared: Shape | None, a: Shape, **_: Any) -> Shape:
    """The shape of the operand: [..., n, n] of floats or complex."""
    require_arrays(a)
    require(a.element_type.is_differentiable, "the matrix is neither floating nor complex", a, "a floating or complex type")
    require(a.rank >= 2, "the operand is not a matrix", a, "2 dimensions or more")
    require(same_size(a.dimensions[-1], a.dimensions[-2]), "the matrix is not square", a, "equal last two dimensions")
    return a.without_layout()


@op("cholesky", infer=cholesky_shape, stablehlo="cholesky")
def cholesky(inst, a, *, lower: Bool = False):
    element_type = inst.shape.element_type
    # The factor of a matrix that is not positive definite is NaN, decided on the device.
    factor = torch.linalg.cholesky_ex(_wide(a, element_type), upper=not lower)
    failed = (factor[1] != 0).unsqueeze(-1).unsqueeze(-1)
    return _back(torch.where(failed, math.nan, factor[0]), element_type)


# ------------------------------------------------------------------------------------------- triangular solve


def triangular_solve_shape(declared: Shape | None, a: Shape, b: Shape, *, left_side: bool = False, transpose_a: str,
                           **_: Any) -> Shape:
    """The shape of `b`."""
    require_arrays(a, b)
    require(a.element_type is b.element_type and a.element_type.is_differentiable,
            "the operands are not of one floating or complex type", f"{a} and {b}", "equal floating or complex types")
    require(a.rank >= 2, "a is not a matrix", a, "2 dimensions or more")
    require(a.rank == b.rank, "a and b have different numbers of dimensions", f"{a} and {b}", "equal numbers")
    require(same_size(a.dimensions[-1], a.dimensions[-2]), "a is not square", a, "equal last two dimensions")
    shared = b.dimensions[-2 if left_side else -1]
    require(same_size(a.dimensions[-1], shared), "a and b do not fit", f"{a} and {b}",
            f"b with {a.dimensions[-1]} {'rows' if left_side else 'columns'}")
    require(all(map(same_size, a.dimensions[:-2], b.dimensions[:-2])), "batch dimensions differ", f"{a} and {b}", "equal sizes")
    require(transpose_a != "TRANSPOSE_INVALID", "invalid transpose_a", transpose_a, "NO_TRANSPOSE, TRANSPOSE or ADJOINT")
    return b.without_layout()


@op("triangular-solve", infer=triangular_solve_shape, stablehlo="triangular_solve")
def triangular_solve(inst, a, b, *, left_side: Bool = False, lower: Bool = False, unit_diagonal: Bool = False,
                     transpose_a: TransposeKind):
    element_type = inst.shape.element_type
    a, b = _wide(a, element_type), _wide(b, element_type)
    if transpose_a == "NO_TRANSPOSE":
        upper = not lower
    else:
        upper, a = lower, a.transpose(-2, -1)
        if transpose_a == "ADJOINT" and element_type.is_complex:
            a = a.conj()
    return _back(torch.linalg.solve_triangular(a, b, upper=upper, left=left_side, unitriangular=unit_diagonal), element_type)


# ------------------------------------------------------------------------------------------- fft


_REAL_TO_COMPLEX = {F32: C64, F64: C128}


def fft_shape(declared: Shape | None, operand: Shape, *, fft_type: str, fft_length: Sequence[int]) -> Shape:
    """The operand's shape; RFFT halves the last dimension (plus one) and IRFFT restores it."""
    require_arrays(operand)
    count = len(fft_length)
    require(1 <= count <= 3, "fft_length has the wrong number of entries", list(fft_length), "1 to 3")
    require(operand.rank >= count, "the operand has fewer dimensions than fft_length",
            f"{operand}, fft_length {list(fft_length)}", f"{count} dimensions or more")
    require(min(fft_length) >= 0, "a length is negative", list(fft_length))
    real_input = fft_type == "RFFT"
    fitting = operand.element_type in _REAL_TO_COMPLEX if real_input else operand.element_type.is_complex
    require(fitting, f"{fft_type} does not take this element type", operand, "f32 or f64" if real_input else "c64 or c128")
    expected = list(fft_length)
    if fft_type == "IRFFT":
        expected[-1] = _half(fft_length[-1])
    require(all(map(same_size, operand.dimensions[-count:], expected)), f"the operand does not fit the fft_length of {fft_type}",
            f"{operand}, fft_length {list(fft_length)}", f"last dimensions {expected}")
    element_type, dims = operand.element_type, list(operand.dimensions)
    if fft_type == "RFFT":
        element_type, dims[-1] = _REAL_TO_COMPLEX[element_type], _half(fft_length[-1])
    elif fft_type == "IRFFT":
        element_type, dims[-1] = complex_part(element_type), fft_length[-1]
    return Shape.array(element_type, dims, operand.dynamic_flags)


def _half(length: int) -> int:
    """Independent values of the transform of so many real numbers."""
    return length // 2 + 1 if length else 0


@op("fft", infer=fft_shape, stablehlo="fft")
def fft(inst, operand, *, fft_type: FftType, fft_length: Dims):
    if 0 in inst.shape.dimensions or 0 in inst.operands[0].shape.dimensions:
        return values.emit(torch.zeros, inst.shape.dimensions, dtype=inst.shape.element_type.carrier, device=values.device())
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
