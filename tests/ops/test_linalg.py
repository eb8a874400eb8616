"""cholesky, triangular-solve and fft: against real XLA, the documents' examples, and refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.scaled_agreement import assert_agrees, random_array, run_one
from xla_torch import ops
from xla_torch.errors import InvalidArgument


def positive(shape: str) -> np.ndarray:
    """Hermitian positive definite matrices, well conditioned."""
    a = random_array(shape)
    return (a @ np.swapaxes(a.conj(), -1, -2) + a.shape[-1] * np.eye(a.shape[-1])).astype(a.dtype)


# --------------------------------------------------------------------------------------------- cholesky


@needs_xla
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", ["f32[2,5,5]", "f64[3,3]", "c64[2,4,4]", "c128[3,3]", "f32[0,0]", "f32[1,1]"])
def test_cholesky(shape: str, lower: bool) -> None:
    """The other triangle is not read: it holds rubbish."""
    a = positive(shape)
    rows, columns = np.indices(a.shape[-2:])
    a[..., (rows < columns) if lower else (rows > columns)] = 99
    assert_agrees(f"{shape} cholesky(p0), lower={str(lower).lower()}", shape, arrays=[a])


@needs_xla
@pytest.mark.parametrize("shape", ["f16[2,2]", "bf16[2,2]"])
def test_cholesky_of_small_floats(shape: str) -> None:
    a = random_array(shape)
    a = (a.astype("f") @ a.astype("f").T + 2 * np.eye(2)).astype(a.dtype)
    assert_agrees(f"{shape} cholesky(p0), lower=true", shape, arrays=[a])


@needs_xla
@pytest.mark.parametrize("lower", ["true", "false"])
def test_not_positive_definite_is_nan(lower: str) -> None:
    bad = np.array([[[1, 2], [2, 1]], [[4, 2], [2, 5]]], "f")
    assert_agrees(f"f32[2,2,2] cholesky(p0), lower={lower}", "f32[2,2,2]", arrays=[bad])
    got, = run_one(f"f32[2,2,2] cholesky(p0), lower={lower}", ["f32[2,2,2]"], bad)
    assert np.isnan(got[0]).all()
    assert not np.isnan(got[1]).any()


def test_cholesky_of_the_reference() -> None:
    assert ops.Cholesky(torch.tensor([[4.0, 99], [2, 5]]), True).tolist() == [[2, 0], [1, 2]]
    assert ops.Cholesky(torch.tensor([[4.0, 2], [99, 5]]), False).tolist() == [[2, 1], [0, 2]]


# --------------------------------------------------------------------------------------------- triangular solve

FLAGS = list(itertools.product(("true", "false"), ("true", "false"), ("true", "false"), ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")))


@needs_xla
@pytest.mark.parametrize("element_type", ["f32", "c128"])
@pytest.mark.parametrize(("left", "lower", "unit", "transpose"), FLAGS)
def test_triangular_solve(left: str, lower: str, unit: str, transpose: str, element_type: str) -> None:
    a = positive(f"{element_type}[2,4,4]") / 4
    b = f"{element_type}[2,4,3]" if left == "true" else f"{element_type}[2,3,4]"
    assert_agrees(f"{b} triangular-solve(p0, p1), left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose}",
                  f"{element_type}[2,4,4]", b, arrays=[a, random_array(b, 1)], relative=1e-4)


@needs_xla
@pytest.mark.parametrize("element_type", ["f16", "bf16", "f64", "c64"])
def test_triangular_solve_of_other_types(element_type: str) -> None:
    shape = f"{element_type}[3,3]"
    a = (random_array(shape).astype("c16" if element_type == "c64" else "f8") / 4 + np.eye(3)).astype(random_array(shape).dtype)
    assert_agrees(f"{shape} triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", shape, shape,
                  arrays=[a, random_array(shape, 1)])


def test_singular_matrices_do_not_raise() -> None:
    a, b = torch.tensor([[0.0, 5], [1, 1]]), torch.ones(2, 2)
    assert ops.TriangularSolve(a, b, True, True, False, "NO_TRANSPOSE").tolist() == [[math.inf] * 2, [-math.inf] * 2]


# --------------------------------------------------------------------------------------------- fft

TRANSFORMS = [
    ("FFT", "c64[3,8]", "c64[3,8]", "8"), ("FFT", "c64[3,4,6]", "c64[3,4,6]", "4,6"),
    ("FFT", "c128[2,3,4,6]", "c128[2,3,4,6]", "3,4,6"), ("IFFT", "c64[3,7]", "c64[3,7]", "7"),
    ("IFFT", "c64[3,4,7]", "c64[3,4,7]", "4,7"), ("RFFT", "f32[3,8]", "c64[3,5]", "8"), ("RFFT", "f32[3,7]", "c64[3,4]", "7"),
    ("RFFT", "f64[3,4,6]", "c128[3,4,4]", "4,6"), ("IRFFT", "c64[3,5]", "f32[3,8]", "8"), ("IRFFT", "c64[3,4]", "f32[3,7]", "7"),
    ("IRFFT", "c64[3,4,4]", "f32[3,4,6]", "4,6"), ("IRFFT", "c128[2,3,4,4]", "f64[2,3,4,6]", "3,4,6"),
    ("FFT", "c64[0,8]", "c64[0,8]", "8"), ("FFT", "c64[3,0]", "c64[3,0]", "0"), ("RFFT", "f32[3,0]", "c64[3,0]", "0"),
    ("RFFT", "f32[3,1]", "c64[3,1]", "1"), ("IRFFT", "c64[3,1]", "f32[3,1]", "1"), ("FFT", "c64[1]", "c64[1]", "1"),
]


@needs_xla
@pytest.mark.parametrize(("kind", "operand", "result", "length"), TRANSFORMS)
def test_fft(kind: str, operand: str, result: str, length: str) -> None:
    assert_agrees(f"{result} fft(p0), fft_type={kind}, fft_length={{{length}}}", operand)


def test_irfft_ignores_imaginary_ends() -> None:
    assert ops.Fft(torch.tensor([1 + 5j, 2 + 1j, 3 + 7j]), "IRFFT", [4]).tolist() == [2, -1, 0, 0]


# --------------------------------------------------------------------------------------------- refusals

REFUSED = [
    ("cholesky", ["s32[2,2]"], {}, "neither floating nor complex"),
    ("cholesky", ["f32[2]"], {}, "not a matrix"),
    ("cholesky", ["f32[2,3]"], {}, "not square"),
    ("triangular-solve", ["f32[2,2]", "f64[2,2]"], {"transpose_a": "NO_TRANSPOSE"}, "not of one floating or complex type"),
    ("triangular-solve", ["f32[2,2]", "f32[1,2,2]"], {"transpose_a": "NO_TRANSPOSE"}, "different numbers of dimensions"),
    ("triangular-solve", ["f32[2,3]", "f32[2,3]"], {"transpose_a": "NO_TRANSPOSE"}, "a is not square"),
    ("triangular-solve", ["f32[2,2]", "f32[3,2]"], {"transpose_a": "NO_TRANSPOSE", "left_side": True}, "a and b do not fit"),
    ("triangular-solve", ["f32[4,2,2]", "f32[3,2,2]"], {"transpose_a": "NO_TRANSPOSE"}, "batch dimensions differ"),
    ("triangular-solve", ["f32[2,2]", "f32[2,2]"], {"transpose_a": "TRANSPOSE_INVALID"}, "NO_TRANSPOSE"),
    ("fft", ["c64[8]"], {"fft_type": "FFT", "fft_length": ()}, "wrong number of entries"),
    ("fft", ["c64[2,2,2,2]"], {"fft_type": "FFT", "fft_length": (2, 2, 2, 2)}, "wrong number of entries"),
    ("fft", ["c64[8]"], {"fft_type": "FFT", "fft_length": (1, 8)}, "fewer dimensions than fft_length"),
    ("fft", ["f32[8]"], {"fft_type": "FFT", "fft_length": (8,)}, "does not take this element type"),
    ("fft", ["f16[8]"], {"fft_type": "RFFT", "fft_length": (8,)}, "does not take this element type"),
    ("fft", ["f32[8]"], {"fft_type": "RFFT", "fft_length": (7,)}, "does not fit the fft_length"),
    ("fft", ["c64[5]"], {"fft_type": "IRFFT", "fft_length": (7,)}, "does not fit the fft_length"),
]


@pytest.mark.parametrize(("opcode", "shapes", "attributes", "what"), REFUSED)
def test_refusals(opcode: str, shapes: list[str], attributes: dict, what: str) -> None:
    builder = xla_torch.XlaBuilder("refused")
    operands = [builder.parameter(k, xla_torch.Shape.parse(s)) for k, s in enumerate(shapes)]
    with pytest.raises(InvalidArgument, match=what):
        builder.add(opcode, operands, attributes)
