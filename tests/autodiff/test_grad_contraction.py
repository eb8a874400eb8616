"""Gradients of dots, convolutions, factorisations and Fourier transforms: against JAX, and to second order."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

import xla_torch
from support.gradient_checks import Row, built, check_first, check_second, complexes, row, twice, values
from support.jax_oracle import to_torch
from xla_torch import ops


def dots(contracting, batch=((), ())):
    return lambda x, y: lax.dot_general(x, y, (contracting, batch))


DOTS = [
    row("dot", dots(((1,), (0,))), values(2, 3), values(3, 4, seed=1)),
    row("dot", dots(((0,), (1,))), values(3, 2), values(4, 3, seed=1)),
    row("dot", dots(((0,), (0,))), values(3), values(3, seed=1)),
    row("dot", dots(((), ())), values(2), values(3, seed=1)),
    row("dot", dots(((2,), (1,)), ((0,), (0,))), values(2, 2, 3), values(2, 3, 2, seed=1)),
    row("dot", dots(((0,), (2,)), ((2, 1), (0, 1))), values(3, 2, 2), values(2, 2, 3, 4, seed=1)),
    row("dot", dots(((0, 2), (2, 0))), values(3, 2, 2), values(2, 2, 3, seed=1)),
    row("dot", dots(((1,), (0,))), complexes(2, 3), complexes(3, 2, seed=5)),
    row("dot", dots(((1,), (0,))), np.zeros((2, 0)), np.zeros((0, 3)), order=0,
        build=ops.Dot),
]


def ragged_row(equation, contracting, batch, ragged_dims, groups, *arguments):
    """`equation` multiplies lhs, rhs and the mask of which element of the ragged dimension is in which group."""
    def dense(x, y, g):
        size = x.shape[ragged_dims[0]]
        limits = jnp.cumsum(g, -1)
        places = jnp.arange(size)[:, None]
        members = (places < limits[..., None, :]) & (places >= (limits - g)[..., None, :])
        return jnp.einsum(equation, x, y, members.astype(x.dtype))

    numbers = ops.RaggedDotDimensionNumbers(ops.DotDimensionNumbers(*contracting, *batch), ragged_dims, groups)
    # XLA's own CPU backend does not execute ragged-dot.
    return row("ragged-dot", dense, *arguments, build=lambda x, y, g: ops.RaggedDot(x, y, g, numbers), on_xla=False)


G = np.array([2, 0, 3], np.int32)
G2 = np.array([[1, 2, 1], [0, 1, 2]], np.int32)
RAGGED = [
    ragged_row("mk,gnk,mg->mn", ((1,), (2,)), ((), ()), (0,), (0,), values(6, 2), values(3, 2, 2, seed=1), G),
    ragged_row("mk,mn,mg->gkn", ((0,), (0,)), ((), ()), (0,), (), values(6, 2), values(6, 3, seed=1), G),
    ragged_row("bmk,gbkn,bmg->bmn", ((2,), (2,)), ((0,), (1,)), (1,), (0,), values(2, 4, 2), values(3, 2, 2, 2, seed=1), G2),
    ragged_row("bkm,bkn,bkg->gbmn", ((1,), (1,)), ((0,), (0,)), (1,), (), values(2, 4, 2), values(2, 4, 3, seed=1), G2),
    ragged_row("xmk,gkn,xmg->xmn", ((2,), (1,)), ((), ()), (1,), (0,), values(2, 4, 2), values(3, 2, 2, seed=1), G2),
    ragged_row("bmk,bkn,bg->bmn", ((2,), (1,)), ((0,), (0,)), (0,), (), values(6, 2, 2), values(6, 2, 3, seed=1), G),
]


def conv(strides=(1,), padding=((0, 0),), lhs_dilation=None, rhs_dilation=None, numbers=None, features=1, batches=1):
    return lambda x, k: lax.conv_general_dilated(
        x, k, strides, padding, lhs_dilation, rhs_dilation, numbers, features, batches)


NHWC = ("NHWC", "HWIO", "NHWC")
CONVOLUTIONS = [
    row("convolution", conv(), values(2, 3, 5), values(2, 3, 3, seed=1)),
    row("convolution", conv((2,), ((1, 2),)), values(2, 3, 5), values(2, 3, 3, seed=1)),
    row("convolution", conv((2,), ((-1, 1),)), values(1, 2, 7), values(2, 2, 2, seed=1)),
    row("convolution", conv((3,), ((2, 0),), (2,), (2,)), values(1, 2, 5), values(2, 2, 3, seed=1)),
    row("convolution", conv((2,), ((1, -2),), (3,), (1,)), values(1, 1, 4), values(1, 1, 2, seed=1)),
    row("convolution", conv((1, 2), ((1, 0), (0, 1)), (1, 2), (2, 1), NHWC), values(2, 4, 3, 2), values(2, 2, 2, 3, seed=1)),
    row("convolution", conv((12,), ((10, 0),)), values(1, 1, 1), values(1, 1, 2, seed=1)),  # nothing of the image is seen
    row("convolution", conv((12, 3), ((10, 0), (-4, 6))), values(1, 2, 3, 2), values(1, 2, 4, 2, seed=1)),
    row("convolution", conv((1,), ((-7, 8),), (2,)), values(1, 1, 3), values(1, 1, 2, seed=1)),
    row("convolution", conv((1,), ((1, 1),), features=2), values(2, 4, 4), values(4, 2, 3, seed=1)),
    row("convolution", conv((1, 1), ((0, 0), (1, 1)), numbers=NHWC, features=3), values(1, 2, 3, 3), values(2, 2, 1, 6, seed=1)),
    row("convolution", conv((2,), ((0, 1),), batches=2), values(4, 3, 4), values(4, 3, 2, seed=1)),
    row("convolution", conv((1,), ((1, 0),), numbers=("HCN", "IOH", "CNH"), batches=2), values(4, 3, 4), values(3, 4, 2, seed=1)),
    row("convolution", conv((), (), numbers=("NC", "OI", "NC")), values(2, 3), values(4, 3, seed=1)),
    row("convolution", conv(), complexes(1, 2, 4), complexes(2, 2, 2, seed=5)),
    row("convolution", conv(), values(1, 1, 2), values(1, 1, 4, seed=1), order=0,
        build=lambda x, k: ops.ConvWithGeneralPadding(x, k, [1], [(0, 0)])),
    row("convolution", conv(), np.zeros((0, 2, 3)), values(2, 2, 2), order=0,
        build=lambda x, k: ops.ConvWithGeneralPadding(x, k, [1], [(0, 0)])),
]


def reversed_conv(x, k):
    """A window read backwards in its second dimension, with everything else on as well."""
    numbers = ops.ConvolutionDimensionNumbers(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
    return ops.ConvGeneralDilated(x, k, (2, 1), ((1, 0), (0, 1)), (1, 2), (1, 2), numbers, window_reversal=(False, True))


CONVOLUTIONS.append(row(
    "convolution", lambda x, k: lax.conv_general_dilated(x, k[:, :, :, ::-1], (2, 1), ((1, 0), (0, 1)), (1, 2), (1, 2)),
    values(1, 2, 4, 3), values(2, 2, 2, 2, seed=1), build=reversed_conv))


def definite(*batch: int, complex_: bool = False) -> np.ndarray:
    """Hermitian positive definite 3x3 matrices."""
    a = (complexes if complex_ else values)(*batch, 3, 3)
    return a @ np.conj(np.swapaxes(a, -1, -2)) + 2 * np.eye(3)


def mirrored(lower):
    """A matrix from one triangle of the argument, as the op reads it, then JAX's factor."""
    def factor(a):
        n = a.shape[-1]
        kept = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
        diagonal = jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1))[..., None] * jnp.eye(n)
        whole = kept + jnp.conj(jnp.swapaxes(kept, -1, -2)) + diagonal
        low = lax.linalg.cholesky(whole)
        return low if lower else jnp.conj(jnp.swapaxes(low, -1, -2))
    return factor


def triangular(left, lower, unit, transposed):
    """The solution by a general inverse of the triangle that the op reads."""
    def solve(a, b):
        n = a.shape[-1]
        matrix = jnp.tril(a) if lower else jnp.triu(a)
        if unit:
            matrix = matrix - matrix * jnp.eye(n) + jnp.eye(n)
        matrix = {"NO_TRANSPOSE": matrix, "TRANSPOSE": jnp.swapaxes(matrix, -1, -2),
                  "ADJOINT": jnp.conj(jnp.swapaxes(matrix, -1, -2))}[transposed]
        return jnp.linalg.inv(matrix) @ b if left else b @ jnp.linalg.inv(matrix)
    return solve


def solves():
    for left, lower, unit, transposed in itertools.product((True, False), (True, False), (False, True),
                                                           ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")):
        make = complexes if (left ^ lower ^ unit) else values
        a, b = make(2, 3, 3) + 3 * np.eye(3), make(2, 3, 2) if left else make(2, 2, 3)
        flags = (left, lower, unit, transposed)
        yield row("triangular-solve", triangular(*flags), a, b, order=2 if lower and not unit else 0, on_xla=lower,
                  rtol=1e-8, build=lambda a, b, flags=flags: ops.TriangularSolve(a, b, *flags))


def fourier(kind, *length):
    shape = tuple(range(-len(length), 0))
    transform = {"FFT": jnp.fft.fftn, "IFFT": jnp.fft.ifftn, "RFFT": jnp.fft.rfftn, "IRFFT": jnp.fft.irfftn}[kind]
    return (lambda x: transform(x, s=length, axes=shape)), (lambda x: ops.Fft(x, kind, length))


LINALG = [
    *(row("cholesky", mirrored(lower), a, build=lambda a, lower=lower: ops.Cholesky(a, lower), rtol=1e-8)
      for lower in (True, False) for a in (definite(), definite(2), definite(complex_=True))),
    *solves(),
    *(row("fft", f, x, build=b) for x, (f, b) in (
        (complexes(2, 4), fourier("FFT", 4)), (complexes(2, 3), fourier("IFFT", 2, 3)),
        (values(2, 6), fourier("RFFT", 6)), (values(2, 5), fourier("RFFT", 5)), (values(2, 3, 4), fourier("RFFT", 3, 4)),
        (values(2, 1), fourier("RFFT", 1)), (values(2, 2), fourier("RFFT", 2)),
        (complexes(2, 4), fourier("IRFFT", 6)), (complexes(2, 3), fourier("IRFFT", 5)), (complexes(3, 3), fourier("IRFFT", 3, 4)),
        (complexes(2, 2), fourier("IRFFT", 2)), (complexes(2, 1), fourier("IRFFT", 1)))),
]


@pytest.mark.parametrize("row", [*DOTS, *RAGGED, *CONVOLUTIONS, *LINALG], ids=str)
def test_rows(row: Row) -> None:
    check_first(row)


@pytest.mark.parametrize("row", twice([*DOTS, *RAGGED, *CONVOLUTIONS, *LINALG]), ids=str)
def test_rows_twice(row: Row) -> None:
    check_second(row)


def test_scaled_dot() -> None:
    """The gradient goes through the scaled operands; a scale in a wide type has one too."""
    x, y, s, t = values(4, 8), values(8, 2, seed=1), values(4, 2, seed=2), values(1, 2, seed=3)
    numbers = ops.DotDimensionNumbers((1,), (0,))
    program = built(lambda x, y, s, t: ops.ScaledDot(x, s, y, t, numbers), x, y, s, t)
    tensors = [to_torch(a).requires_grad_() for a in (x, y, s, t)]
    assert torch.autograd.gradcheck(program, tensors, fast_mode=True)
    want = jax.grad(lambda x, y, s, t: ((x * jnp.repeat(s, 4, 1)) @ (y * t)).sum(), (0, 1, 2, 3))(x, y, s, t)
    for got, expected in zip(xla_torch.grad(program, (0, 1, 2, 3))(*map(to_torch, (x, y, s, t))), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_scale_in_eight_bits_is_constant() -> None:
    """Powers of two have no gradient, the operands beside them have."""
    scale = np.ones((4, 2), ml_dtypes.float8_e8m0fnu)
    program = built(lambda x, y, s, t: ops.ScaledDot(x, s, y, t, ops.DotDimensionNumbers((1,), (1,)), (), xla_torch.types.F32),
                    *(values(4, 8).astype(np.float32),) * 2, scale, scale)
    assert str(xla_torch.vjp(program, (0, 1)).program_shape.result) == "(f32[4,8], f32[4,8])"
    found = xla_torch.vjp(program)
    assert [s.element_type.text for s in found.program_shape.result.tuple_shapes] == ["f32", "f32", "f8e8m0fnu", "f8e8m0fnu"]


@pytest.mark.parametrize("element_type", [ml_dtypes.bfloat16, np.float16])
def test_wide_results_of_narrow_operands(element_type) -> None:
    """preferred_element_type: the cotangent comes in the result's type and leaves in the operands'."""
    x, y = values(2, 3).astype(element_type), values(3, 2).astype(element_type)
    numbers = ops.DotDimensionNumbers((1,), (0,))
    found = xla_torch.vjp(built(lambda x, y: ops.DotGeneral(x, y, numbers, None, xla_torch.types.F32), x, y))
    assert [s.element_type.numpy for s in found.program_shape.result.tuple_shapes] == [np.dtype(element_type)] * 2
