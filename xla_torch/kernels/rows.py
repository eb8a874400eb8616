"""Rows combined with rows of an array or with those before them, taken from them, or searched, each by one native function:
bounds, order and sums in one pass."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from ..codegen import rows as native_rows
from ..codegen.reductions import COLUMNS
from ..core import tuning
from ..opcodes.reducer_kinds import ReducerKind
from .native import Awaited, run_on_threads

_FOR_A_THREAD = 1 << 21
"""Elements that are worth waking a thread for: one adds as many in 0.4 ms, which waits for memory and not for arithmetic."""

INTEGERS = {torch.int8: "s8", torch.int16: "s16", torch.int32: "s32", torch.int64: "s64", torch.uint8: "u8"}
NAMES = {torch.float32: "f32", torch.float64: "f64", **INTEGERS}
BY_BYTES = {1: "u8", 2: "s16", 4: "s32", 8: "s64"}


def combine_(array: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, combiner: ReducerKind,
             in_torch: Callable[[], None]) -> None:
    """Combine with rows of a contiguous array those of `updates`, each with the row of its index, in order. `in_torch` does the
    same until there is native code, and wherever that cannot be."""
    name = BY_BYTES.get(array.element_size()) if combiner == ReducerKind.SECOND else NAMES.get(array.dtype)
    width = array.numel() // array.shape[0]
    is_number = not any(updates.stride())
    if not (name and updates.dtype is array.dtype and indices.dtype in INTEGERS and is_plain(updates) and all(
            is_plain(t) and t.is_contiguous() for t in ((array, indices) if is_number else (array, indices, updates)))):
        in_torch()
        return
    native = _native(name, INTEGERS[indices.dtype], combiner)
    if not native.is_ready():
        native.timed(in_torch)
        return
    parts = min(torch.get_num_threads(), -(-updates.numel() // _FOR_A_THREAD))
    given = updates.as_strided((width,), (0,)).contiguous() if is_number else updates
    places = [array.data_ptr(), indices.data_ptr(), given.data_ptr(), indices.numel(), width, array.shape[0], parts,
              int(not is_number)]
    run_on_threads(native.function, parts, -(-updates.numel() // parts), places, for_a_thread=_FOR_A_THREAD)


def take_or_fill(operand: torch.Tensor, indices: torch.Tensor, dimension: int, fill: float, shape: Sequence[int], is_along: bool,
                 wraps: bool, in_torch: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Slices at `indices` along a dimension, or a number where there is none; `is_along` if there are indices for each place of
    the dimensions before and behind, and negative ones count from the end if it `wraps`. `in_torch` does the same, as in
    `combine_`."""
    name, index = BY_BYTES.get(operand.element_size()), INTEGERS.get(indices.dtype)
    if not (name and index and operand.is_contiguous() and is_plain(operand) and is_plain(indices)):
        return in_torch()
    indices = indices.contiguous()
    native = _native_take(name, index, wraps)
    if not native.is_ready():
        return native.timed(in_torch)
    result = torch.empty(shape, dtype=operand.dtype)
    n, before = math.prod(operand.shape[dimension + 1:]), math.prod(operand.shape[:dimension])
    if result.numel():
        points = result.numel() // (before * n)
        number = torch.full((), fill, dtype=operand.dtype)
        arrays = [t.data_ptr() for t in (operand, indices, result, number)]
        steps = (points * n, n, 1) if is_along else (0, 1, 0)
        run_on_threads(native.function, before * points, n, [*arrays, operand.shape[dimension], points, *steps])
    return result


@functools.cache
def _native_take(name: str, index: str, wraps: bool) -> Awaited:
    return Awaited(native_rows.take_or_fill(name, index, wraps), "a gather of rows")


_SEARCHED = {torch.float16: "f16", torch.bfloat16: "bf16", **NAMES}


def first_extreme(keys: torch.Tensor, largest: bool, in_torch: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The place (int64) of the largest or smallest element of each row of a contiguous array, of equal ones the first. NaN beats
    all. `in_torch` does the same, as in `combine_`."""
    if not (is_plain(keys) and keys.dtype in _SEARCHED and keys.numel() >= tuning.SEARCHED_FROM
            and keys.shape[-1] >= tuning.SEARCHED_ROW):
        return in_torch()
    native = _native_first_extreme(keys.dtype, largest)
    if not native.is_ready():
        return native.timed(in_torch)
    *rows, n = keys.shape
    places = torch.empty(rows, dtype=torch.int64)
    run_on_threads(native.function, places.numel(), n, [keys.data_ptr(), places.data_ptr()])
    return places


def first_extreme_along(keys: torch.Tensor, dim: int, largest: bool, in_torch: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The same along a dimension of a contiguous array that is not the last."""
    size, (*before, _), behind = keys.shape[dim], keys.shape[:dim + 1], keys.shape[dim + 1:]
    inner = math.prod(behind)
    if not (is_plain(keys) and keys.dtype in _SEARCHED and keys.is_contiguous() and keys.numel() >= tuning.SEARCHED_FROM
            and inner >= tuning.RUNNING_COLUMNS and size < 1 << 31):
        return in_torch()
    native = _native_first_extreme_along(keys.dtype, largest)
    if not native.is_ready():
        return native.timed(in_torch)
    places = torch.empty((*before, *behind), dtype=torch.int64)
    run_on_threads(native.function, math.prod(before) * -(-inner // COLUMNS), size * min(inner, COLUMNS),
                   [keys.data_ptr(), places.data_ptr(), size, inner])
    return places


@functools.cache
def _native_first_extreme_along(dtype: torch.dtype, largest: bool) -> Awaited:
    return Awaited(native_rows.first_extreme_along(_SEARCHED[dtype], largest), "a search of columns")


@functools.cache
def _native_first_extreme(dtype: torch.dtype, largest: bool) -> Awaited:
    return Awaited(native_rows.first_extreme(_SEARCHED[dtype], largest), "a search of rows")


def running(operand: torch.Tensor, dim: int, combiner: ReducerKind, in_torch: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What elements combine to so far along a dimension of a contiguous array, in the bits of torch, which is slow along all
    dimensions but the last. `in_torch` does the same, as in `combine_`."""
    inner = math.prod(operand.shape[dim % operand.dim() + 1:]) if operand.dim() else 1
    if not (is_plain(operand) and operand.dtype in _TOTALS and operand.is_contiguous() and inner >= tuning.RUNNING_COLUMNS
            and operand.numel() >= tuning.RUNNING_FROM):
        return in_torch()
    native = _native_running(operand.dtype, combiner)
    if not native.is_ready():
        return native.timed(in_torch)
    size, result = operand.shape[dim], torch.empty_like(operand)
    tiles, wide = -(-inner // COLUMNS), min(inner, COLUMNS)
    run_on_threads(native.function, operand.numel() // (size * inner) * tiles, size * wide,
                   [operand.data_ptr(), result.data_ptr(), size, inner])
    return result


_TOTALS = {torch.float32: "f64", torch.float64: "f64"} | dict.fromkeys(INTEGERS, "s64")
"""What torch holds a running result of a type as."""


@functools.cache
def _native_running(dtype: torch.dtype, combiner: ReducerKind) -> Awaited:
    return Awaited(native_rows.running(NAMES[dtype], _TOTALS[dtype], combiner), "a running result")


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether this is a plain tensor in the CPU's memory; none is while torch's compiler looks at a program."""
    if torch.compiler.is_compiling():
        return False
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and not tensor.is_neg() and not tensor.is_conj()


@functools.cache
def _native(name: str, index: str, combiner: ReducerKind) -> Awaited:
    return Awaited(native_rows.combine_rows(name, index, combiner), "a scatter of rows")
