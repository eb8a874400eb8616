"""Arrays in tiles, and rows of what lies along the partitions' dimension, which is dimension 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import functions as ops
from ..core.errors import InvalidArgument
from ..core.types import S32
from ..functions.hlo_builder import XlaOp


def rows(value: XlaOp, places: Sequence[int] | np.ndarray) -> XlaOp:
    """These rows of dimension 0, in this order."""
    places, sizes = list(map(int, places)), value.shape.dimensions
    first, count = (places[0] if places else 0), len(places)
    if places == list(range(first, first + count)):
        whole = first == 0 and count == sizes[0]
        return value if whole else ops.SliceInDim(value, first, first + count, 1, 0)
    if len(set(places)) == 1:
        one = ops.Reshape(ops.SliceInDim(value, first, first + 1, 1, 0), sizes[1:])
        return ops.BroadcastInDim(one, [count, *sizes[1:]], range(1, len(sizes)))
    numbers = ops.GatherDimensionNumbers(tuple(range(1, len(sizes))), (0,), (0,), 1)
    index = value.builder.constant(np.array(places, np.int32)[:, None], S32)
    return ops.Gather(value, index, numbers, [1, *sizes[1:]])


def tiled(value: XlaOp, counts: Sequence[int], local: Sequence[int], batched: bool) -> XlaOp:
    """The tiles of an array, or of each array of a batch, along dimension 0; what sticks out at the end is filled with 0.

    Raises InvalidArgument where a tile does not have the size `local`.
    """
    first = value.shape.dimensions[:batched]
    sizes = value.shape.dimensions[batched:]
    if tuple(local) != tuple(-(-n // count) for n, count in zip(sizes, counts, strict=True)):
        raise InvalidArgument("a partition's array does not have the size of a tile", got=list(local),
                              expected=f"{list(sizes)} in {list(counts)} tiles")
    missing = [(0, n * count - size, 0) for n, count, size in zip(local, counts, sizes, strict=True)]
    if any(high for _, high, _ in missing):
        value = ops.Pad(value, value.builder.constant(0, value.element_type), [(0, 0, 0)] * batched + missing)
    cut = [n for pair in zip(counts, local, strict=True) for n in pair]
    value = ops.Reshape(value, [*first, *cut])
    at, rank = len(first), len(counts)
    order = [*range(at), *(at + 2 * d for d in range(rank)), *(at + 2 * d + 1 for d in range(rank))]
    return ops.Reshape(transposed(value, order), [math.prod(first) * math.prod(counts), *local])


def untiled(value: XlaOp, counts: Sequence[int], whole: Sequence[int], batch: int | None) -> XlaOp:
    """The inverse of `tiled`: the array of size `whole`, or a `batch` of them. Raises InvalidArgument."""
    first, local, rank = ([] if batch is None else [batch]), value.shape.dimensions[1:], len(counts)
    if any(not 0 <= n * count - size < max(count, 1) for n, count, size in zip(local, counts, whole, strict=True)):
        raise InvalidArgument("a partition's array does not have the size of a tile", got=list(local),
                              expected=f"{list(whole)} in {list(counts)} tiles")
    at = len(first)
    value = ops.Reshape(value, [*first, *counts, *local])
    order = [*range(at), *(at + d + part * rank for d in range(rank) for part in (0, 1))]
    full = [n * count for n, count in zip(local, counts, strict=True)]
    value = ops.Reshape(transposed(value, order), [*first, *full])
    for d, (have, want) in enumerate(zip(full, whole, strict=True)):
        value = value if have == want else ops.SliceInDim(value, 0, want, 1, at + d)
    return value


def transposed(value: XlaOp, order: Sequence[int]) -> XlaOp:
    """The dimensions in another order: a reshape where only dimensions of size 1 move."""
    sizes = value.shape.dimensions
    long = [d for d in order if sizes[d] != 1]
    return ops.Reshape(value, [sizes[d] for d in order]) if long == sorted(long) else ops.Transpose(value, order)
