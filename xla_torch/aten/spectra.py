"""Fourier transforms, and complex numbers as pairs of real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from .operator_rules import rule
from .values import aligned, cast, full, place

# ------------------------------------------------------------------------------------------- complex numbers


@rule("complex")
def _complex(real: XlaOp, imag: XlaOp, result: Shape) -> XlaOp:
    return ops.Complex(*aligned(real.element_type, real, imag, sizes=result.dimensions))


@rule("view_as_real")
def _as_real(self: XlaOp) -> XlaOp:
    sizes = [*self.shape.dimensions, 1]
    parts = [ops.Reshape(part, sizes) for part in (ops.Real(self), ops.Imag(self))]
    return ops.ConcatInDim(self.builder, parts, self.shape.rank)


@rule("view_as_complex")
def _as_complex(self: XlaOp, result: Shape) -> XlaOp:
    last = self.shape.rank - 1
    return ops.Complex(*(ops.Reshape(ops.SliceInDim(self, k, k + 1, 1, last), list(result.dimensions)) for k in (0, 1)))


@rule("_conj", "_conj_physical", "conj_physical")
def _conj(self: XlaOp) -> XlaOp:
    return ops.Conj(self) if self.element_type.is_complex else self


# ------------------------------------------------------------------------------------------- transforms

_UNSCALED, _BY_ROOT, _BY_COUNT = 0, 1, 2
"""What torch calls normalization."""


def _along(x: XlaOp, dim: int, kind: str, length: int) -> XlaOp:
    """A transform along one dimension, which is the last one for XLA."""
    order = [d for d in range(x.shape.rank) if d != dim] + [dim]
    found = ops.Fft(ops.Transpose(x, order), kind, [length])
    return ops.Transpose(found, [order.index(d) for d in range(x.shape.rank)])


def _scaled(x: XlaOp, count: int, normalization: int, inverted: int) -> XlaOp:
    """Normalised as torch says; `inverted` is the number of elements by whose count XLA's inverse transforms have divided."""
    factor = {_UNSCALED: 1.0, _BY_ROOT: 1 / math.sqrt(count), _BY_COUNT: 1 / count}[normalization] * inverted
    return x if factor == 1.0 else ops.Mul(x, full(x.builder, factor, x.shape))


@rule("_fft_c2c")
def _fft(self: XlaOp, dim: Sequence[int], normalization: int, forward: bool) -> XlaOp:
    dims = [place(d, self.shape.rank) for d in dim]
    found = self
    for d in dims:
        found = _along(found, d, "fft" if forward else "ifft", found.shape.dimensions[d])
    count = math.prod(self.shape.dimensions[d] for d in dims)
    return _scaled(found, count, normalization, 1 if forward else count)


@rule("_fft_r2c")
def _rfft(self: XlaOp, dim: Sequence[int], normalization: int, onesided: bool, result: Shape) -> XlaOp:
    dims = [place(d, self.shape.rank) for d in dim]
    if not onesided:
        return _fft(cast(self, result.element_type), dims, normalization, True)
    found = _along(self, dims[-1], "rfft", self.shape.dimensions[dims[-1]])
    for d in dims[:-1]:
        found = _along(found, d, "fft", found.shape.dimensions[d])
    return _scaled(found, math.prod(self.shape.dimensions[d] for d in dims), normalization, 1)


@rule("_fft_c2r")
def _irfft(self: XlaOp, dim: Sequence[int], normalization: int, last_dim_size: int) -> XlaOp:
    *dims, last = [place(d, self.shape.rank) for d in dim]
    found = self
    for d in dims:
        found = _along(found, d, "ifft", found.shape.dimensions[d])
    found = _along(found, last, "irfft", last_dim_size)
    count = math.prod(found.shape.dimensions[d] for d in (*dims, last))
    return _scaled(found, count, normalization, count)
