"""Kernels of the contraction family: integer products and convolutions that torch has no routine for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional

_LIMB = 16
_CHUNK = 1 << 20


def integer_matmul(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """``lhs @ rhs`` of int32 or int64 tensors modulo the type's width, for devices without integer matrix products.

    The factors are cut into limbs of 16 bits whose products are exact in float64 (sums of up to 2^20 of them are).
    """
    dtype = lhs.dtype
    limbs = torch.iinfo(dtype).bits // _LIMB
    total: torch.Tensor | None = None
    for left, right in zip(lhs.split(_CHUNK, -1), rhs.split(_CHUNK, -2 if rhs.dim() > 1 else 0), strict=True):
        lows, highs = _limbs(left, limbs), _limbs(right, limbs)
        for i in range(limbs):
            for j in range(limbs - i):
                part = (lows[i] @ highs[j]).to(torch.int64) << (_LIMB * (i + j))
                total = part if total is None else total + part
    assert total is not None
    return total.to(dtype)


def _limbs(value: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [((value >> (_LIMB * i)) & 0xFFFF).to(torch.float64) for i in range(count)]


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
    x = functional.pad(dilate(x, base_dilation), [p for pair in reversed(padding) for p in pair])
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
