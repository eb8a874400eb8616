"""Kernels of sort and top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensors = tuple[torch.Tensor, ...]
Comparator = Callable[..., Tensors]


def sort_vector(vector: torch.Tensor, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.sort(vector, descending=descending, stable=True)`` for long vectors on the CPU, where torch has a fast (radix)
    sort for ascending integers only."""
    keys = vector
    if vector.is_floating_point():
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[vector.element_size()]
        limits = torch.iinfo(bits)
        raw = torch.where(vector == 0, 0, vector.view(bits))
        keys = torch.where(vector.isnan(), limits.max, raw ^ ((raw >> (limits.bits - 1)) & limits.max))
    order = torch.sort(~keys if descending else keys, stable=True)[1]
    return vector.index_select(0, order), order


def sort_by_comparator(less: Comparator, operands: Sequence[torch.Tensor], dimension: int) -> Tensors:
    """Sort operands together along a dimension, stably, by any strict weak order.

    `less` takes (left, right) of every operand and tells where left comes before right. Elements go through a bitonic
    network of log2(n)^2 / 2 rounds, each of which compares half of all elements with the other half at once; that an
    element's place breaks ties makes it stable.
    """
    size = operands[0].shape[dimension]
    if size < 2 or operands[0].numel() == 0:
        return tuple(operands)
    width = 1 << (size - 1).bit_length()
    places = torch.arange(width, device=operands[0].device)
    # Places from `size` on are padding, which stays behind all elements.
    values = [o.movedim(dimension, -1).index_select(-1, places.clamp(max=size - 1)) for o in operands]
    columns = (*values, places.expand_as(values[0]))
    block = 2
    while block <= width:
        columns = _exchange(less, columns, block, size, mirrored=True)
        step = block // 2
        while step >= 2:
            columns = _exchange(less, columns, step, size, mirrored=False)
            step //= 2
        block *= 2
    return tuple(c[..., :size].movedim(-1, dimension) for c in columns[:-1])


def _exchange(less: Comparator, columns: Tensors, block: int, size: int, mirrored: bool) -> Tensors:
    """Compare the first half of each block with its second half (read backwards if `mirrored`) and put the earlier element
    into the first half."""
    shape = columns[0].shape
    halves = [c.reshape(*shape[:-1], -1, 2, block // 2) for c in columns]
    first = [h[..., 0, :] for h in halves]
    second = [h[..., 1, :].flip(-1) if mirrored else h[..., 1, :] for h in halves]
    *left, left_place = first
    *right, right_place = second
    forward = less(*(x for pair in zip(left, right, strict=True) for x in pair))[0]
    backward = less(*(x for pair in zip(right, left, strict=True) for x in pair))[0]
    later = right_place < left_place
    padded = torch.maximum(left_place, right_place) >= size
    swap = torch.where(padded, later, backward | (~forward & later))
    result = []
    for a, b in zip(first, second, strict=True):
        low, high = torch.where(swap, b, a), torch.where(swap, a, b)
        result.append(torch.stack((low, high.flip(-1) if mirrored else high), dim=-2).reshape(shape))
    return tuple(result)


def top_positions(keys: torch.Tensor, k: int, largest: bool) -> torch.Tensor:
    """Places of the k largest (or smallest) integer or bool keys along the last dimension, in order; of equal keys the
    first ones."""
    if keys.dtype is torch.int64:
        return torch.sort(keys, dim=-1, descending=largest, stable=True)[1][..., :k]
    # Key and place in one number: torch.topk leaves open which of equal elements it takes.
    size = keys.shape[-1]
    places = torch.arange(size, device=keys.device)
    unique = (keys.to(torch.int64) << 32) | (size - 1 - places if largest else places)
    return torch.topk(unique, k, dim=-1, largest=largest, sorted=True)[1]
