"""Chains of elementwise calls on large arrays, run block by block so that intermediate results stay in the cache."""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable

import torch

from ..core import tuning
from .calls import fresh
from .native import Awaited

Tensors = tuple[torch.Tensor, ...]

_PAGE = 1 << 21
_ADVICE = 14  # MADV_HUGEPAGE


@fresh
def blocked(body: torch.nn.Module, cut: tuple[tuple[int, ...], int], results: tuple[tuple[tuple[int, ...], torch.dtype], ...],
            arrays: Tensors, scalars: Tensors, into: tuple[int | None, ...] = (), kept: int = 0,
            is_fusion: bool = False) -> Tensors:
    """Run `body(*arrays, *scalars, *results)` on blocks; it writes its results into the last arguments.

    `cut` is (sizes of the first dimensions, rows of a block): a block has so many places of the last of these and one of each
    before it, so that it lies in one piece of memory where the array does. `results` are the dimensions and dtype of each result
    and `into` the number of the array that it may be written over, if any. Arrays and results have these first dimensions, or 1
    in their places; of the last `kept` arrays a block has all places of the last of these dimensions. A result that has as many
    places there as there are blocks gets one of each. `scalars` are given to each block as they are. A body that `is_fusion` and
    nothing else takes dense arrays whole once it is native: it goes by rows itself, and shares them among threads.
    """
    (*before, size), rows = cut
    run, device = body.forward, arrays[0].device
    # An array whose rows do not lie one after the other, as a transpose's do not, is slower to write over than a new one.
    made = tuple([_empty(dims, dtype, device) if over is None or not arrays[over].is_contiguous() else arrays[over]
                  for (dims, dtype), over in zip(results, into or (None,) * len(results), strict=True)])
    if not before and (size <= rows or (is_fusion and _takes_whole(body, arrays))):
        run(*arrays, *scalars, *made)
        return made
    cuts, cut_arrays = (*arrays, *made), len(arrays) - kept
    for place in itertools.product(*map(range, before)):
        parts = functools.reduce(_parts, enumerate(place), cuts) if before else cuts
        for start in range(0, size, rows):
            blocks = [part if cut_arrays <= k < len(arrays) else _narrowed(part, len(before), start, min(rows, size - start))
                      if k < len(arrays) or part.shape[len(before)] == size else _narrowed(part, len(before), start // rows, 1)
                      for k, part in enumerate(parts)]
            run(*blocks[:len(arrays)], *scalars, *blocks[len(arrays):])
    return made


def _takes_whole(body: torch.nn.Module, arrays: Tensors) -> bool:
    """Whether native code runs on these arrays, of which it would copy others first: parts of them at a time are in the cache."""
    native, = body.children()
    return isinstance(native, Awaited) and native.is_ready() and all(
        a.is_contiguous() or 0 in a.stride() or a.stride(-1) == 1 for a in arrays)


def _parts(arrays: Tensors, at: tuple[int, int]) -> Tensors:
    return tuple([_narrowed(a, *at, 1) for a in arrays])


def _narrowed(array: torch.Tensor, dimension: int, start: int, count: int) -> torch.Tensor:
    return array if array.shape[dimension] == 1 else array.narrow(dimension, start, count)


def _empty(dims: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A new array. Large ones ask for large pages: a fresh page costs as much to be given as to be computed."""
    array = torch.empty(dims, dtype=dtype, device=device)
    if (array.nbytes < tuning.LARGE_PAGES_FROM or type(array) is not torch.Tensor or device.type != "cpu"
            or torch.compiler.is_compiling()):
        return array
    advise = _madvise()
    if advise is not None:
        begin = -(-array.data_ptr() // _PAGE) * _PAGE
        advise(begin, (array.data_ptr() + array.nbytes) // _PAGE * _PAGE - begin, _ADVICE)
    return array


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The system's call that says how memory will be used; None where it knows no large pages."""
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return function
