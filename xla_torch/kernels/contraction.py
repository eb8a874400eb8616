"""Kernels of the contraction family: products by the library that is the faster one, and those that torch has no routine for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from ..storage.torch_private import int8_products, onednn_linear
from .calls import fresh
from .movement import pad
from .rows import is_plain

_LIMB = 16
_CHUNK = 1 << 20


_faster: dict[tuple[Any, ...], Callable[..., torch.Tensor]] = {}
"""The fastest way for products of a class of sizes and layouts, once one of them has been made."""


def measured_matmul(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """``lhs @ rhs`` in the way that was faster when a product of this class was first made: float32 by torch's BLAS or by
    oneDNN, narrower floats by torch or in float32. ``lhs: [..., rows, summed]``, ``rhs: [summed, columns]``, or
    ``[..., summed, columns]`` for as many, one after another."""
    product = _faster.get(key := _class_of(lhs, rhs))
    if product is None:  # where threads come here at once, the last one decides
        ways = (_in_torch, _in_onednn if lhs.dtype is torch.float32 else float32_matmul)
        sample = _sample(lhs, rhs)
        product = _faster[key] = min(ways, key=lambda make: _seconds(make, *sample))
    return product(lhs, rhs)


def _class_of(lhs: torch.Tensor, rhs: torch.Tensor) -> tuple[Any, ...]:
    """What decides how long a product takes: powers of two of its sizes, which dimensions lie side by side, and threads."""
    return (lhs.dtype, torch.get_num_threads(), rhs.dim(), lhs.shape[:-2].numel().bit_length(),
            lhs.shape[-2:].numel().bit_length(), lhs.shape[-1].bit_length(), rhs.shape[-1].bit_length(),
            lhs.stride(-1) == 1, rhs.stride(-1) == 1)


_SAMPLED = 1 << 25


def _sample(lhs: torch.Tensor, rhs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Some rows and columns of the factors, as they lie: a product that takes a millisecond."""
    rows, columns = lhs.shape[-2] if lhs.dim() > 1 else 1, rhs.shape[-1] if rhs.dim() > 1 else 1
    while rows * columns * lhs.shape[-1] * lhs.shape[:-2].numel() > _SAMPLED and max(rows, columns) > 64:
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
    return lhs[..., :rows, :] if lhs.dim() > 1 else lhs, rhs[..., :columns] if rhs.dim() > 1 else rhs


def _seconds(make: Callable[..., torch.Tensor], lhs: torch.Tensor, rhs: torch.Tensor) -> float:
    """What a product takes after a first one, which prepares code: the less of two."""
    make(lhs, rhs)
    seconds = math.inf
    for _ in range(2):
        begin = time.perf_counter()
        make(lhs, rhs)
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds


def _in_torch(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    return lhs @ rhs


def _in_onednn(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    assert onednn_linear is not None
    lhs = lhs if lhs.stride(-1) == 1 else lhs.contiguous()  # its own code for others is slow
    if rhs.dim() == 2:
        return onednn_linear(lhs, rhs.t(), None, "none", [], "")
    pairs = zip(lhs.flatten(0, -3), rhs.flatten(0, -3), strict=True)
    products = [onednn_linear(one, other.t(), None, "none", [], "") for one, other in pairs]
    return torch.stack(products).view(*lhs.shape[:-1], rhs.shape[-1])


def float32_matmul(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """``lhs @ rhs`` of a narrower floating type, multiplied and added up in float32 and rounded once."""
    return (lhs.float() @ rhs.float()).to(lhs.dtype)


@fresh
def byte_matmul(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """``lhs @ rhs`` of int8 or uint8 tensors in int32, modulo its width: by oneDNN, else in float32, which is exact for sums of
    so many products as stay within its 24 bits. torch's own products of integers are loops."""
    if not (is_plain(lhs) and is_plain(rhs)):
        return lhs.to(torch.int32) @ rhs.to(torch.int32)
    matrices = rhs.dim() == 2 and lhs.dim() >= 2 and lhs.numel() and rhs.numel()
    if int8_products is not None and matrices and lhs.dtype is rhs.dtype is torch.int8:
        right = rhs if rhs.t().is_contiguous() and not rhs.is_contiguous() else _row_major(rhs)
        return int8_products(_row_major(lhs.reshape(-1, lhs.shape[-1])), right).reshape(*lhs.shape[:-1], rhs.shape[-1])
    exact = (1 << 24) >> sum(7 if t.dtype is torch.int8 else 8 for t in (lhs, rhs))
    parts = zip(lhs.split(exact, -1), rhs.split(exact, -2 if rhs.dim() > 1 else 0), strict=True)
    products = [(left.float() @ right.float()).to(torch.int32) for left, right in parts]
    return sum(products[1:], products[0])


def _row_major(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix with the strides of its sizes, also where a size of 1 leaves one of them open: `_int_mm` reads them all."""
    return matrix.contiguous().as_strided(matrix.shape, (matrix.shape[1], 1))


def integer_matmul(lhs: torch.Tensor, rhs: torch.Tensor, bits: int = 64) -> torch.Tensor:
    """``lhs @ rhs`` of int32 or int64 tensors modulo the dtype's width, for devices without integer matrix products.

    `bits` is the width of the widest element type that the factors have values of. They are cut into limbs of 16 bits, whose
    products are exact in float64 (sums of up to 2^20 of them are).
    """
    dtype = lhs.dtype
    width = torch.iinfo(dtype).bits
    total: torch.Tensor | None = None
    for left, right in zip(lhs.split(_CHUNK, -1), rhs.split(_CHUNK, -2 if rhs.dim() > 1 else 0), strict=True):
        lows, highs = _limbs(left, min(bits, width)), _limbs(right, min(bits, width))
        for i, low in enumerate(lows):
            for j, high in enumerate(highs[:width // _LIMB - i]):
                part = (low @ high).to(torch.int64) << (_LIMB * (i + j))
                total = part if total is None else total + part
    assert total is not None
    return total.to(dtype)


def _limbs(value: torch.Tensor, bits: int) -> list[torch.Tensor]:
    """Low limbs first; the last one has the sign."""
    last = -(-bits // _LIMB) - 1
    parts = [(value >> (_LIMB * i)) & 0xFFFF for i in range(last)]
    return [part.to(torch.float64) for part in (*parts, value >> (_LIMB * last))]


def integer_einsum(equation: str, lhs: torch.Tensor, rhs: torch.Tensor, bits: int = 64) -> torch.Tensor:
    """``torch.einsum`` of two tensors by `integer_matmul`. The result's letters are those of both operands, then those of
    the lhs only, then those of the rhs only."""
    given, result = equation.split("->")
    left, right = given.split(",")
    sizes = dict(zip(left, lhs.shape, strict=True)) | dict(zip(right, rhs.shape, strict=True))
    batch = [c for c in result if c in left and c in right]
    summed = [c for c in left if c not in result]
    rows, columns = ([c for c in result if c in own and c not in batch] for own in (left, right))

    def matrices(value: torch.Tensor, letters: str, first: list[str], second: list[str]) -> torch.Tensor:
        ordered = value.permute([letters.index(c) for c in (*batch, *first, *second)])
        return ordered.reshape([math.prod(sizes[c] for c in part) for part in (batch, first, second)])

    product = integer_matmul(matrices(lhs, left, rows, summed), matrices(rhs, right, summed, columns), bits)
    return product.reshape([sizes[c] for c in result])


def group_members(group_sizes: torch.Tensor, size: int) -> torch.Tensor:
    """PRED [..., groups, size]: which of `size` rows in sequence belong to which group. Rows beyond the last have none."""
    ends = group_sizes.cumsum(-1).unsqueeze(-1)
    rows = torch.arange(size, device=group_sizes.device)
    return (rows >= ends - group_sizes.unsqueeze(-1)) & (rows < ends)


def dilate(x: torch.Tensor, factors: Sequence[int]) -> torch.Tensor:
    """Put ``factor - 1`` zeros between the elements of each of the last ``len(factors)`` dimensions."""
    for dim, factor in zip(range(-len(factors), 0), factors, strict=True):
        if factor > 1 and x.shape[dim] > 0:
            stuffed = functional.pad(x.movedim(dim, -1).unsqueeze(-1), (0, factor - 1)).flatten(-2)
            x = stuffed[..., : stuffed.shape[-1] - factor + 1].movedim(-1, dim)
    return x


def unfolded_convolution(x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[tuple[int, int]],
                         base_dilation: Sequence[int], window_dilation: Sequence[int], groups: int) -> torch.Tensor:
    """Convolution by gathering every window and one matrix product: any number of spatial dimensions, any element type.

    `x` is [batch, features, spatial...], `weight` [out features, features / groups, spatial...]; the result is
    [batch, out features, spatial...]. Negative padding crops.
    """
    x = pad(x, 0, [(0, 0, 0), (0, 0, 0), *((low, high, d - 1) for (low, high), d in zip(padding, base_dilation, strict=True))])
    for dim, (step, spread) in enumerate(zip(stride, window_dilation, strict=True), start=2):
        x = x.unfold(dim, (weight.shape[dim] - 1) * spread + 1, step)[..., ::spread]
    rank = len(stride)
    spatial = range(3, 3 + rank)
    sizes = x.shape[2: 2 + rank]
    # [batch, group, feature, out..., window...] -> [group, batch and out, feature and window]
    windows = x.unflatten(1, (groups, -1)).permute(1, 0, *spatial, 2, *range(3 + rank, 3 + 2 * rank))
    rows = windows.reshape(groups, x.shape[0] * sizes.numel(), -1)
    columns = weight.reshape(groups, weight.shape[0] // groups, -1).transpose(1, 2)
    exact = rows.dtype.is_floating_point or rows.dtype.is_complex or rows.device.type == "cpu"
    product = rows @ columns if exact else integer_matmul(rows, columns)
    result = product.reshape(groups, x.shape[0], *sizes, -1)
    return result.permute(1, 0, 2 + rank, *range(2, 2 + rank)).flatten(1, 2)
