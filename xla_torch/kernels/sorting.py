"""Kernels of sort and top-k."""

from __future__ import annotations

import array
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..codegen import rows as native_rows
from ..codegen import sorting as native_sorting
from ..core import tuning
from .calls import fresh_tuple
from .indexing import on_host
from .native import Awaited, run_on_threads
from .rows import is_plain

Tensors = tuple[torch.Tensor, ...]
Comparator = Callable[..., Tensors]
Carried = Sequence[torch.Tensor | torch.dtype | None]
"""What a sort carries along: an array, the elements' own places as integers of some type, or the keys themselves, only once."""


@fresh_tuple
def sort_rows(keys: torch.Tensor, dimension: int, descending: bool, carried: Carried) -> Tensors:
    """What is carried, in the stable order of keys along a dimension: -0 like 0, NaN above all."""
    if not _is_for_native_code(keys, dimension, carried):
        return _sort_in_torch(keys, dimension, descending, carried)
    native = _native_sort(*_KEYS[keys.dtype], any(one is not None for one in carried))
    if not native.is_ready():
        return native.timed(_sort_in_torch, keys, dimension, descending, carried)
    if dimension == keys.dim() - 1:
        return _sort_natively(native, keys, descending, carried)
    along = [one if one is None or isinstance(one, torch.dtype) else one.movedim(dimension, -1) for one in carried]
    found = _sort_natively(native, keys.movedim(dimension, -1), descending, along)
    return tuple(one.movedim(-1, dimension).contiguous() for one in found)


def _sort_in_torch(keys: torch.Tensor, dimension: int, descending: bool, carried: Carried) -> Tensors:
    if keys.dim() == 1 and keys.shape[0] >= tuning.RADIX_SORTED_IN_TORCH:
        values, order = _sort_vector(keys, descending)
    else:
        values, order = torch.sort(keys, dim=dimension, descending=descending, stable=True)
    return tuple(values if one is None else order.to(one, copy=True) if isinstance(one, torch.dtype)
                 else torch.gather(one, dimension, order) for one in carried)


def _sort_vector(vector: torch.Tensor, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.sort(vector, descending=descending, stable=True)`` for long vectors on the CPU, where torch has a fast (radix)
    sort for ascending integers only."""
    keys = order_key(vector) if vector.is_floating_point() else vector
    order = torch.sort(~keys if descending else keys, stable=True)[1]
    return vector.index_select(0, order), order


_KEYS = {torch.float16: ("f16", 16), torch.bfloat16: ("bf16", 16), torch.float32: ("f32", 32), torch.float64: ("f64", 64),
         torch.bool: ("u8", 8), torch.uint8: ("u8", 8), torch.int8: ("s8", 8), torch.int16: ("s16", 16), torch.int32: ("s32", 32),
         torch.int64: ("s64", 64)}


def _is_for_native_code(keys: torch.Tensor, dimension: int, carried: Carried) -> bool:
    """Whether native code knows the type of the keys, may go by the memory of all of these, and counts so far."""
    return on_host(keys) and keys.dtype in _KEYS and keys.numel() > 0 and keys.shape[dimension] < 1 << 31 and all(
        is_plain(t) for t in (keys, *carried) if isinstance(t, torch.Tensor))


@functools.cache
def _native_sort(name: str, bits: int, carries: bool) -> Awaited:
    return Awaited(native_sorting.sort_rows(name, bits, carries), "a sort")


_COUNTED_BYTES = 8 * 1024 + 64
"""What a thread counts, at most."""


def _sort_natively(native: Awaited, keys: torch.Tensor, descending: bool, carried: Carried) -> Tensors:
    keys, n = keys.contiguous(), keys.shape[-1]
    given = [one if one is None or isinstance(one, torch.dtype) else one.contiguous() for one in carried]
    results = [torch.empty_like(keys) if one is None else torch.empty(keys.shape, dtype=one) if isinstance(one, torch.dtype)
               else torch.empty_like(one) for one in given]
    values = next((result.data_ptr() for one, result in zip(given, results, strict=True) if one is None), 0)
    along = [(one.data_ptr() if isinstance(one, torch.Tensor) else 0, result.data_ptr(), result.element_size())
             for one, result in zip(given, results, strict=True) if one is not None]
    arrays = array.array("q", [number for one in along for number in one])
    # An array of short elements goes with the keys, and is not taken from its places.
    is_beside = len(along) == 1 and along[0][0] != 0 and max(along[0][2], keys.element_size()) <= 4
    record = native_sorting.record_bytes(8 * keys.element_size(), bool(along))
    rows, threads = keys.numel() // n, torch.get_num_threads()
    # Fewer rows than threads are sorted one after another, each by all threads.
    shared = torch.empty(2 * n * record + threads * _COUNTED_BYTES, dtype=torch.uint8) if rows < threads else None
    records = 0 if shared is None else shared.data_ptr()
    run_on_threads(native.function, rows, n, [
        keys.data_ptr(), values, -int(descending), records, records + 2 * n * record, int(is_beside), len(along),
        arrays.buffer_info()[0]], kept=0 if records else 2 * record)
    return tuple(results)


def order_key(x: torch.Tensor) -> torch.Tensor:
    """Integers in the order in which torch sorts floats on the CPU: -0 like 0, NaN last. On CUDA torch may put a NaN with the
    sign bit first."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    limits = torch.iinfo(bits)
    raw = torch.where(x == 0, 0, x.contiguous().view(bits))
    return torch.where(x.isnan(), limits.max, raw ^ ((raw >> (limits.bits - 1)) & limits.max))


def sort_by_comparator(less: Comparator, operands: Sequence[torch.Tensor], dimension: int) -> Tensors:
    """Sort operands together along a dimension by any strict weak order.

    `less` takes (left, right) of every operand and tells where left comes before right. Elements that it does not tell apart
    stay in order; if it says of these that each comes before the other, as "less or equal" does, they come in reverse
    order, as they do from the merges of XLA's CPU code. Whatever it says, the result has the operands' elements.
    """
    size = operands[0].shape[dimension]
    if size < 2 or operands[0].numel() == 0:
        return tuple(operands)
    last = [o.movedim(dimension, -1) for o in operands]
    # Partitions are read back in every round, which a compiler and torch.vmap cannot do.
    sort = _sort_by_exchange if size <= tuning.SORTED_BY_NETWORK or not all(map(on_host, operands)) else _sort_by_partition
    return tuple(c.movedim(-1, dimension) for c in sort(less, last))


# ------------------------------------------------------------------------------------------------ partition


class _Parts(NamedTuple):
    """Unsorted parts of flat columns, one after another. For each of their elements: which `element` it is, its `slot` in
    the result, and the `start` (a slot) and `length` of its part."""

    element: torch.Tensor
    slot: torch.Tensor
    start: torch.Tensor
    length: torch.Tensor


def _sort_by_partition(less: Comparator, columns: Sequence[torch.Tensor]) -> Tensors:
    """Sort the last dimension by splitting all parts at once, each at one of its elements, until none is left (quicksort):
    about 1.4 log2(n) comparisons of each element, in about 3 log2(n) rounds."""
    size, flat = columns[0].shape[-1], [c.reshape(-1) for c in columns]
    order = torch.arange(flat[0].numel(), device=flat[0].device)
    parts = _Parts(order, order, order - order % size, torch.full_like(order, size))
    order, rounds = order.clone(), 0
    while parts.slot.numel():
        # The element to split at is drawn: no order that data is likely to be in makes the parts uneven.
        drawn = ((parts.start + rounds) * _ODD >> 32) & 0x7FFFFFFF
        pivot = order[parts.start + drawn % parts.length]
        left, right = ([f[at] for f in flat] for at in (parts.element, pivot))
        forward, backward = _both_ways(less, left, right)
        parts = _split(parts, order, forward, backward)
        rounds += 1
    return tuple(f[order].reshape(columns[0].shape) for f in flat)


_ODD = 0x9E3779B97F4A7C15 - (1 << 64)
"""Multiplying by this number scatters integers (2**64 over the golden ratio)."""


def _split(parts: _Parts, order: torch.Tensor, forward: torch.Tensor, backward: torch.Tensor) -> _Parts:
    """Elements before each part's pivot, then its equals, then those after it. Writes `order`, in which its equals are
    then in place; returns the other parts that are not yet sorted."""
    element, slot, start, length = parts
    within = slot - start
    first = torch.arange(slot.numel(), device=slot.device) - within
    last = first + length - 1
    before, after = forward & ~backward, backward & ~forward
    (place_before, before_count), (place_after, after_count) = (_places(mask, first, last) for mask in (before, after))
    equal_count = length - before_count - after_count
    place_equal = within - place_before - place_after
    place_equal = torch.where(forward, equal_count - 1 - place_equal, place_equal)
    target = torch.where(before, place_before, before_count + torch.where(after, equal_count + place_after, place_equal))

    source = torch.empty_like(slot)
    source[first + target] = torch.arange(slot.numel(), device=slot.device)
    element = element[source]
    order[slot] = element
    length = torch.where(before, before_count, torch.where(after, after_count, 1))[source]
    kept = (length > 1).nonzero().squeeze(1)
    source = source[kept]
    start = (start + torch.where(after, before_count + equal_count, 0))[source]
    return _Parts(element[kept], slot[kept], start, length[kept])


def _places(mask: torch.Tensor, first: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each element how many marked ones of its part, which lies from `first` to `last`, come before it; and how many
    there are in the part."""
    until = mask.cumsum(0)
    earlier = torch.where(mask, until - 1, until)
    outside = earlier[first]
    return earlier - outside, until[last] - outside


def _both_ways(less: Comparator, left: Sequence[torch.Tensor],
               right: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether left comes before right, and whether right comes before left."""
    forward, backward = (less(*(x for pair in zip(one, other, strict=True) for x in pair))[0]
                         for one, other in ((left, right), (right, left)))
    return forward.expand(left[0].shape), backward.expand(left[0].shape)


# ------------------------------------------------------------------------------------------------ exchange


def _sort_by_exchange(less: Comparator, columns: Sequence[torch.Tensor]) -> Tensors:
    """Sort the last dimension by a bitonic network of log2(n)^2 / 2 rounds, each of which compares half of all elements with
    the other half at once; where the comparator leaves it open, an element's place decides."""
    size = columns[0].shape[-1]
    width = 1 << (size - 1).bit_length()
    places = torch.arange(width, device=columns[0].device)
    # Places from `size` on are padding, which stays behind all elements.
    values = [c.index_select(-1, places.clamp(max=size - 1)) for c in columns]
    found = (*values, places.expand_as(values[0]))
    block = 2
    while block <= width:
        found = _exchange(less, found, block, size, mirrored=True)
        step = block // 2
        while step >= 2:
            found = _exchange(less, found, step, size, mirrored=False)
            step //= 2
        block *= 2
    return tuple(c[..., :size] for c in found[:-1])


def _exchange(less: Comparator, columns: Tensors, block: int, size: int, mirrored: bool) -> Tensors:
    """Compare the first half of each block with its second half (read backwards if `mirrored`) and put the earlier element
    into the first half."""
    shape = columns[0].shape
    halves = [c.reshape(*shape[:-1], -1, 2, block // 2) for c in columns]
    first = [h[..., 0, :] for h in halves]
    second = [h[..., 1, :].flip(-1) if mirrored else h[..., 1, :] for h in halves]
    *left, left_place = first
    *right, right_place = second
    forward, backward = _both_ways(less, left, right)
    later = right_place < left_place
    padded = torch.maximum(left_place, right_place) >= size
    swap = torch.where(padded, later, torch.where(forward == backward, later ^ forward, backward))
    result = []
    for a, b in zip(first, second, strict=True):
        low, high = torch.where(swap, b, a), torch.where(swap, a, b)
        result.append(torch.stack((low, high.flip(-1) if mirrored else high), dim=-2).reshape(shape))
    return tuple(result)


# ------------------------------------------------------------------------------------------------ top k


@fresh_tuple
def top_k(x: torch.Tensor, k: int, largest: bool, hides_sign: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest (or smallest) elements of each row in their total order, and their places; of equal ones the first.
    Integers that hide their sign are unsigned ones."""
    if on_host(x) and not x.is_neg() and x.numel() and 0 < k <= tuning.TOP_OF_A_HEAP:
        native = _native_top_k(x.dtype, hides_sign)
        if native.is_ready():
            return _top_k_of_heaps(native, x, k, largest)
        return native.timed(_top_k_in_torch, x, k, largest, hides_sign)
    return _top_k_in_torch(x, k, largest, hides_sign)


@functools.cache
def _native_top_k(dtype: torch.dtype, hides_sign: bool) -> Awaited:
    bits = 8 * dtype.itemsize
    name = f"u{bits}" if dtype in (torch.bool, torch.uint8) else f"s{bits}"
    order = "float" if dtype.is_floating_point else "unsigned" if hides_sign else "plain"
    return Awaited(native_rows.top_k(name, bits, order), "the largest elements of rows")


def _top_k_of_heaps(native: Awaited, x: torch.Tensor, k: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.contiguous()
    values, places = x.new_empty((*x.shape[:-1], k)), x.new_empty((*x.shape[:-1], k), dtype=torch.int32)
    run_on_threads(native.function, x.numel() // x.shape[-1], x.shape[-1],
                   [x.data_ptr(), values.data_ptr(), places.data_ptr(), k, 0 if largest else -1])
    return values, places


def _top_k_in_torch(x: torch.Tensor, k: int, largest: bool, hides_sign: bool) -> tuple[torch.Tensor, torch.Tensor]:
    keys = x
    if x.is_floating_point() or hides_sign:
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
        limits, raw = torch.iinfo(bits), x.contiguous().view(bits)
        keys = raw ^ limits.min if hides_sign else raw ^ ((raw >> (limits.bits - 1)) & limits.max)
    places = _top_places(keys, k, largest)
    return torch.gather(x, -1, places), places.to(torch.int32)


def _top_places(keys: torch.Tensor, k: int, largest: bool) -> torch.Tensor:
    """Places of the k largest (or smallest) integer or bool keys along the last dimension, in order; of equal keys the
    first ones."""
    if keys.dtype is torch.int64:
        return torch.sort(keys, dim=-1, descending=largest, stable=True)[1][..., :k]
    # Key and place in one number: torch.topk leaves open which of equal elements it takes.
    size = keys.shape[-1]
    places = torch.arange(size, device=keys.device)
    unique = (keys.to(torch.int64) << 32) | (size - 1 - places if largest else places)
    return torch.topk(unique, k, dim=-1, largest=largest, sorted=True)[1]
