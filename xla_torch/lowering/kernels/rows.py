"""Rows added to rows of an array, by one native function: bounds, order and sums in one pass over the updates."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from ...native import rows as native_rows
from .native import Awaited, is_readable, run_on_threads

_FOR_A_THREAD = 1 << 21
"""Elements that are worth waking a thread for: one adds as many in 0.4 ms, which waits for memory and not for arithmetic."""

_INTEGERS = {torch.int8: "s8", torch.int16: "s16", torch.int32: "s32", torch.int64: "s64", torch.uint8: "u8"}
_NAMES = {torch.float32: "f32", torch.float64: "f64", **_INTEGERS}


def add_(array: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, negated: bool, in_torch: Callable[[], None]) -> None:
    """Add to the rows of a contiguous array those of `updates`, each to the row of its index, in order. `in_torch` does the same
    until there is native code, and wherever that cannot be."""
    if torch.compiler.is_compiling() or not (updates.dtype is array.dtype in _NAMES and indices.dtype in _INTEGERS
                                             and all(map(_lies_plainly, (array, indices, updates)))):
        in_torch()
        return
    native = _native(array.dtype, indices.dtype, negated)
    if not native.is_ready():
        begun = time.perf_counter()
        in_torch()
        native.seconds += time.perf_counter() - begun
        return
    parts = min(torch.get_num_threads(), -(-updates.numel() // _FOR_A_THREAD))
    places = [array.data_ptr(), indices.data_ptr(), updates.data_ptr(), indices.numel(), array[0].numel(), array.shape[0], parts]
    run_on_threads(native.function, parts, -(-updates.numel() // parts), places, for_a_thread=_FOR_A_THREAD)


def _lies_plainly(tensor: torch.Tensor) -> bool:
    """Whether native code may go by the tensor's memory, and it is contiguous."""
    return is_readable(tensor) and tensor.is_contiguous()


@functools.cache
def _native(dtype: torch.dtype, index: torch.dtype, negated: bool) -> Awaited:
    text = native_rows.add_rows(_NAMES[dtype], _INTEGERS[index], "-" if negated else "+")
    return Awaited(text, "a scatter that adds rows")
