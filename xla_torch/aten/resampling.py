"""Images made smaller without aliasing: each row and each column of the result is a mean of those near it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..functions.contraction import DotDimensionNumbers
from ..functions.hlo_builder import XlaOp
from .operator_rules import rule
from .values import cast, wide

Filter = Callable[[np.ndarray], np.ndarray]


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0))


def _shares(size: int, count: int, support: float, filter_: Filter, align_corners: bool, factor: float | None) -> np.ndarray:
    """[count, size]: the share that each element has in each element of the result."""
    if align_corners:
        scale = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = 1 / factor if factor else size / count
    stretch = max(scale, 1.0)
    centre = scale * (np.arange(count)[:, None] + 0.5)
    at = np.arange(size)[None, :]
    first = np.maximum((centre - support * stretch + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support * stretch + 0.5).astype(np.int64), size)
    found = np.where((at >= first) & (at < end), filter_((at - centre + 0.5) / stretch), 0)
    total = found.sum(1, keepdims=True)
    return found / np.where(total == 0, 1, total)


def _contracted(x: XlaOp, matrices: Sequence[np.ndarray], dim: int) -> XlaOp:
    """An image whose last dimensions are contracted with a dimension of matrices."""
    if not x.element_type.is_floating:
        raise UnsupportedError("an image of whole numbers, which torch rounds on the way", got=x.shape, expected="floats")
    inner = wide(x)
    for matrix in matrices:
        constant = inner.builder.constant(matrix.astype(inner.element_type.numpy), inner.element_type)
        inner = ops.DotGeneral(inner, constant, DotDimensionNumbers((2,), (dim,), (), ()))
    return cast(inner, x.element_type)


def _upsampling(name: str, support: float, filter_: Filter) -> None:
    def matrices(sizes: Sequence[int], counts: Sequence[int], align_corners: bool, *factors: float | None) -> list[np.ndarray]:
        return [_shares(size, count, support, filter_, align_corners, factor)
                for size, count, factor in zip(sizes[-2:], counts[-2:], factors, strict=True)]

    @rule(name)
    def forward(self: XlaOp, output_size: Sequence[int], align_corners: bool, scales_h: float | None,
                scales_w: float | None) -> XlaOp:
        """What keeps its size stays as it is, whatever the factor: to torch on the way forward, and not on the way back."""
        sizes = self.shape.dimensions[-2:]
        factors = [None if n == m else factor for n, m, factor in zip(sizes, output_size, (scales_h, scales_w), strict=True)]
        return _contracted(self, matrices(sizes, output_size, align_corners, *factors), 1)

    @rule(f"{name}_backward")
    def back(grad_output: XlaOp, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool,
             scales_h: float | None, scales_w: float | None) -> XlaOp:
        return _contracted(grad_output, matrices(input_size, output_size, align_corners, scales_h, scales_w), 0)


_upsampling("_upsample_bilinear2d_aa", 1, _triangle)
_upsampling("_upsample_bicubic2d_aa", 2, _cubic)
