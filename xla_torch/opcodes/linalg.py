"""Schemas: linalg (cholesky, triangular-solve, fft). Specification: hlo/SPEC.md, Linear algebra."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.shape import Shape
from ..core.types import C64, C128, F32, F64, complex_part
from ..hlo.attributes import Bool, Dims, FftType, TransposeKind
from ..hlo.schema import op
from .contraction import same_size
from .shapes import require, require_arrays

# ------------------------------------------------------------------------------------------- cholesky


def cholesky_shape(declared: Shape | None, a: Shape, **_: Any) -> Shape:
    """The shape of the operand: [..., n, n] of floats or complex."""
    require_arrays(a)
    require(a.element_type.is_differentiable, "the matrix is neither floating nor complex", a, "a floating or complex type")
    require(a.rank >= 2, "the operand is not a matrix", a, "2 dimensions or more")
    require(same_size(a.dimensions[-1], a.dimensions[-2]), "the matrix is not square", a, "equal last two dimensions")
    return a.without_layout()


@op("cholesky", infer=cholesky_shape, stablehlo="cholesky")
def cholesky(a, *, lower: Bool = False): ...


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
def triangular_solve(a, b, *, left_side: Bool = False, lower: Bool = False, unit_diagonal: Bool = False,
                     transpose_a: TransposeKind): ...


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
        expected[-1] = _half(fft_length[-1]) or min(operand.dimensions[-1], 1)  # nothing is made of one value, or of none
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
def fft(operand, *, fft_type: FftType, fft_length: Dims): ...
