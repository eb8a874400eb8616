"""Gathers and scatters whose windows begin anywhere, each by one native function: torch takes a call for each step from an index
to an element, and a pass over all points in each of them."""

from __future__ import annotations

import array
import functools
import itertools
import math
from collections.abc import Callable

import torch

from ..codegen import points as native_points
from ..opcodes.reducer_kinds import ReducerKind
from .native import Awaited, run_on_threads
from .rows import BY_BYTES, INTEGERS, NAMES, is_plain

Dims = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_OFFSETS = 1 << 12
"""Rows of a window up to which they are in a table, which is kept with the program's shapes."""

_FOR_A_THREAD = 1 << 17
"""Elements that are worth waking a thread for."""


def gather(operand: torch.Tensor, indices: torch.Tensor, *, window: Dims, index_vector_dim: int, start_index_map: Dims,
           collapsed: Dims, offset_dims: Dims, batching: Pairs, in_torch: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The windows of all points; `window` has a size for each dimension of the operand. `collapsed` ones the result has not, and
    the others are its `offset_dims`. `batching` are pairs of dimensions of operand and indices, of which the operand's are
    collapsed. `in_torch` does the same until there is native code, and wherever that cannot be."""
    name, index = BY_BYTES.get(operand.element_size()), INTEGERS.get(indices.dtype)
    if not (name and index and is_plain(operand) and is_plain(indices)):
        return in_torch()
    native = _native_gather(name, index)
    if not native.is_ready():
        return native.timed(in_torch)
    dims, of_points, of_window = _result(window, tuple(indices.shape), index_vector_dim, collapsed, offset_dims)
    table = _table(tuple(operand.shape), operand.stride(), tuple(indices.shape), indices.stride(), window, index_vector_dim,
                   start_index_map, batching, of_points, of_window)
    if table is None:
        return in_torch()
    result = torch.empty(dims, dtype=operand.dtype)
    each = math.prod(window)
    if result.numel():
        run_on_threads(native.function, result.numel() // each, 1, _places(operand, indices, result, table),
                       for_a_thread=max(1, _FOR_A_THREAD // each))
    return result


def scatter_(operand: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, combiner: ReducerKind, *, window: Dims,
             window_dims: Dims, index_vector_dim: int, indexed: Dims, batching: Pairs, in_torch: Callable[[], None]) -> None:
    """Combine each element of the windows of all points with its update, in the order of the points. `window` has a size for each
    dimension of the operand, and `window_dims` the dimension of the updates that it is, or -1 for one that these have not."""
    if operand.dtype is torch.bool and updates.dtype is torch.bool:
        operand, updates = operand.view(torch.uint8), updates.view(torch.uint8)
    name = BY_BYTES.get(operand.element_size()) if combiner == ReducerKind.SECOND else NAMES.get(operand.dtype)
    index = INTEGERS.get(indices.dtype)
    if not (name and index and updates.dtype is operand.dtype and all(map(is_plain, (operand, indices, updates)))):
        in_torch()
        return
    native = _native_scatter(name, index, combiner)
    if not native.is_ready():
        native.timed(in_torch)
        return
    steps = updates.stride()
    of_points = tuple(step for d, step in enumerate(steps) if d not in window_dims)
    table = _table(tuple(operand.shape), operand.stride(), tuple(indices.shape), indices.stride(), window, index_vector_dim,
                   indexed, batching, of_points, tuple(0 if d < 0 else steps[d] for d in window_dims))
    if table is None:
        in_torch()
        return
    count = math.prod(n for d, n in enumerate(indices.shape) if d != index_vector_dim)
    run_on_threads(native.function, count, 1, _places(operand, indices, updates, table), for_a_thread=max(count, 1))


def _places(operand: torch.Tensor, indices: torch.Tensor, other: torch.Tensor, table: array.array[int]) -> list[int]:
    return [operand.data_ptr(), indices.data_ptr(), other.data_ptr(), table.buffer_info()[0]]


@functools.lru_cache(maxsize=1024)
def _result(window: Dims, index_sizes: Dims, vector_dim: int, collapsed: Dims, offset_dims: Dims) -> tuple[Dims, Dims, Dims]:
    """The dimensions of a gather's result, and how far apart in it neighbours are in each dimension of points
    and window."""
    points = iter([n for d, n in enumerate(index_sizes) if d != vector_dim])
    kept = iter([n for d, n in enumerate(window) if d not in collapsed])
    rank = len(index_sizes) - (vector_dim < len(index_sizes)) + len(offset_dims)
    dims = tuple(next(kept) if d in offset_dims else next(points) for d in range(rank))
    steps = [math.prod(dims[d + 1:]) for d in range(rank)]
    own = iter(offset_dims)
    return (dims, tuple(step for d, step in enumerate(steps) if d not in offset_dims),
            tuple(0 if d in collapsed else steps[next(own)] for d in range(len(window))))


@functools.lru_cache(maxsize=1024)
def _table(sizes: Dims, steps: Dims, index_sizes: Dims, index_steps: Dims, window: Dims, vector_dim: int, indexed: Dims,
           batching: Pairs, point_steps: Dims, window_steps: Dims) -> array.array[int] | None:
    """What native code is told of a gather or scatter (`codegen/points.py`); None where windows have too many rows."""
    own = [d for d in range(len(index_sizes)) if d != vector_dim]
    of_batch = {index_dim: d for d, index_dim in batching}
    axes = [(index_sizes[d], index_steps[d], steps[of_batch[d]] if d in of_batch else 0, beside)
            for d, beside in zip(own, point_steps, strict=True)]
    whole = [(n, along, beside) for n, along, beside in zip(window, steps, window_steps, strict=True) if n != 1]
    n, along, beside = whole.pop() if whole else (1, 1, 1)
    while whole and whole[-1][1:] == (n * along, n * beside):
        n *= whole.pop()[0]
    if math.prod(count for count, _, _ in whole) > _OFFSETS:
        return None
    rows = [tuple(sum(i * step[k] for i, step in zip(place, whole, strict=True)) for k in (1, 2))
            for place in itertools.product(*(range(step[0]) for step in whole))]
    dims = [(sizes[d] - window[d], steps[d]) for d in indexed]
    apart = index_steps[vector_dim] if vector_dim < len(index_sizes) else 0
    return array.array("q", [len(axes), len(dims), len(rows), n, along, beside, apart,
                             *(number for group in (axes, dims, rows) for one in group for number in one)])


@functools.cache
def _native_gather(name: str, index: str) -> Awaited:
    return Awaited(native_points.gather_points(name, index), "a gather")


@functools.cache
def _native_scatter(name: str, index: str, combiner: ReducerKind) -> Awaited:
    return Awaited(native_points.scatter_points(name, index, combiner), "a scatter")
