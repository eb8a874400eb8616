"""Rows of linear algebra and Fourier transforms: documented ops, and the client library's factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.agreement import dtype_of
from support.oracle import HAS_XLA
from xla_torch import ops

from .drawn import Drawn, Row

if HAS_XLA:
    import jax

    jax.lax.linalg.lu(np.eye(2, dtype=np.float32))  # the first call registers LAPACK with XLA

TYPES = ("f32", "f64", "c64", "c128")


def _random(d: Drawn, dims: list[int], rng: np.random.Generator) -> np.ndarray:
    values = rng.normal(size=dims)
    return (values + 1j * rng.normal(size=dims) if d.kind in ("c64", "c128") else values).astype(dtype_of(d.kind))


def _cholesky(d: Drawn) -> Any:
    batch, n = d.dims(0, 2), d.integer(0, 5)

    def positive(rng: np.random.Generator) -> np.ndarray:
        a = _random(d, [*batch, n, n], rng)
        return a @ a.conj().swapaxes(-1, -2) + n * np.eye(n)

    return ops.Cholesky(d.array([*batch, n, n], domain=positive), d.flag())


def _triangular_solve(d: Drawn) -> Any:
    batch, n, columns = d.dims(0, 2), d.integer(1, 5), d.integer(0, 3)
    left = d.flag()
    a = d.array([*batch, n, n], domain=lambda rng: _random(d, [*batch, n, n], rng) + 3 * np.eye(n))
    b = d.array([*batch, n, columns] if left else [*batch, columns, n], domain="finite")
    return ops.TriangularSolve(a, b, left, d.flag(), d.flag(), d.choice("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))


def _fft(*forms: str) -> Any:
    def build(d: Drawn) -> Any:
        form, lengths, batch = d.choice(*forms), d.dims(1, 3, smallest=1), d.dims(0, 1)
        last = lengths[-1] // 2 + 1 if form == "IRFFT" else lengths[-1]
        return ops.Fft(d.array([*batch, *lengths[:-1], last], domain="finite"), form, lengths)
    return build


def _matrix(d: Drawn) -> Any:
    return d.array([*d.dims(0, 1, smallest=1), d.integer(1, 5), d.integer(1, 5)], domain="finite")


def _square(d: Drawn) -> Any:
    n = d.integer(1, 5)
    return d.array([*d.dims(0, 1, smallest=1), n, n], domain="finite")


def _approx_top_k(d: Drawn) -> Any:
    dims = d.dims(1, 2, smallest=1)
    at = d.integer(0, len(dims) - 1)
    return ops.ApproxTopK(d.builder, [d.array(dims, domain="small")], [d.constant(0)], d.integer(1, dims[at]), at,
                          d.region(ops.Gt))


ROWS: list[Row] = [
    Row("Cholesky", _cholesky, TYPES, ulps=64, of_largest=True),
    Row("TriangularSolve", _triangular_solve, TYPES, ulps=512, of_largest=True),
    Row("Fft", _fft("FFT", "IFFT", "IRFFT"), ("c64", "c128"), ulps=32, of_largest=True),
    Row("Fft", _fft("RFFT"), ("f32", "f64"), variant="of real arrays", ulps=32, of_largest=True),
    Row("QR", lambda d: ops.QR(_matrix(d), full_matrices=d.flag()), TYPES, ulps=128, of_largest=True),
    Row("LU", lambda d: ops.LU(_matrix(d)), TYPES, ulps=64, of_largest=True),
    # Vectors are known up to a sign or a phase only: test_decompositions.py puts the matrix together again.
    Row("Eigh", lambda d: ops.Eigh(_square(d), d.flag())[1], TYPES, variant="(values)", ulps=128, of_largest=True),
    Row("SVD", lambda d: ops.SVD(_matrix(d), d.flag())[1], TYPES, variant="(values)", ulps=128, of_largest=True),
    Row("ApproxTopK", _approx_top_k, ("s32", "f32", "f64")),
]
