"""Gathers of elements along a dimension, and those with a number for indices out of bounds, which read each index once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import rows
from .calls import fresh


@fresh
def take_or_fill(operand: torch.Tensor, indices: torch.Tensor, dimension: int, fill: float, wraps: bool = False) -> torch.Tensor:
    """The operand's slices at `indices` along a dimension, which the dimensions of `indices` replace; for an index out of bounds
    one of a number. Indices are signed; negative ones count from the end if it `wraps`."""
    sizes = operand.shape
    shape = sizes[:dimension] + indices.shape + sizes[dimension + 1:]

    def in_torch() -> torch.Tensor:
        places = counted(indices, sizes[dimension]) if wraps else indices
        inside = ((places >= 0) & (places < sizes[dimension])).reshape(indices.shape + (1,) * (len(sizes) - dimension - 1))
        at = places.reshape(-1).clamp(0, sizes[dimension] - 1)
        return torch.where(inside, operand.index_select(dimension, at).reshape(shape), fill)

    return rows.take_or_fill(operand, indices, dimension, fill, shape, False, wraps, in_torch)


@fresh
def gather_along_or_fill(operand: torch.Tensor, indices: torch.Tensor, dimension: int, fill: float,
                         wraps: bool = False) -> torch.Tensor:
    """``torch.gather`` with a number for indices out of bounds. The last dimension of `indices` may be one of size 1 behind
    those of the operand; negative ones count from the end if it `wraps`."""
    at = indices.reshape(indices.shape[:operand.dim()])

    def in_torch() -> torch.Tensor:
        places = counted(at, operand.shape[dimension]) if wraps else at
        inside = (places >= 0) & (places < operand.shape[dimension])
        return torch.where(inside, elements_along(operand, dimension, places), fill)

    return rows.take_or_fill(operand, at, dimension, fill, at.shape, True, wraps, in_torch)


def counted(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Indices of which negative ones count from the end."""
    return torch.where(indices < 0, indices + size, indices)


def elements_along(operand: torch.Tensor, dimension: int, indices: torch.Tensor) -> torch.Tensor:
    """``torch.gather`` with clamped indices, also of floats of 8 bits."""
    held = operand.view(torch.uint8) if operand.is_floating_point() and operand.element_size() == 1 else operand
    return held.gather(dimension, indices.clamp(0, operand.shape[dimension] - 1).to(torch.int64)).view(operand.dtype)


def dimension_along(sizes: Sequence[int], index_sizes: Sequence[int], *, offset_dims: Sequence[int],
                    collapsed_slice_dims: Sequence[int], start_index_map: Sequence[int], index_vector_dim: int,
                    slice_sizes: Sequence[int], operand_batching_dims: Sequence[int] = (),
                    start_indices_batching_dims: Sequence[int] = ()) -> int | None:
    """The dimension d if a gather takes elements along it as ``torch.gather`` does: with indices for each place of the others."""
    if len(start_index_map) != 1 or tuple(collapsed_slice_dims) != tuple(start_index_map) or len(offset_dims):
        return None
    along, rank = start_index_map[0], len(sizes)
    others = tuple(d for d in range(rank) if d != along)
    points = tuple(index_sizes[:-1]) if index_vector_dim == len(index_sizes) - 1 else None
    in_place = tuple(operand_batching_dims) == tuple(start_indices_batching_dims) == others
    if points is None or len(points) != rank or not in_place or any(size != 1 for size in slice_sizes):
        return None
    return along if index_sizes[-1] == 1 and sizes[along] > 0 else None
