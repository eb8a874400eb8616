"""Chains of elementwise calls on large arrays, run block by block so that intermediate results stay in the cache."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import torch

from ... import tuning

Tensors = tuple[torch.Tensor, ...]

_PAGE = 1 << 21
_ADVICE = 14  # MADV_HUGEPAGE


def blocked(body: torch.nn.Module, cut: tuple[int, int, int], results: tuple[tuple[tuple[int, ...], torch.dtype], ...],
            arrays: Tensors, scalars: Tensors, into: tuple[int | None, ...] = ()) -> Tensors:
    """Run `body(*arrays, *scalars, *results)` on blocks; it writes its results into the last arguments.

    `cut` is (dimension, its size, rows of a block), `results` the dimensions and dtype of each result and `into` the number
    of the array that it is written over, if any. All arrays and results have the same dimensions; scalars are 0-dimensional.
    """
    dimension, size, rows = cut
    run, device = body.forward, arrays[0].device
    made = tuple([_empty(dims, dtype, device) if over is None else arrays[over]
                  for (dims, dtype), over in zip(results, into or (None,) * len(results), strict=True)])
    for start in range(0, size, rows):
        count = min(rows, size - start)
        run(*[a.narrow(dimension, start, count) for a in arrays], *scalars,
            *[m.narrow(dimension, start, count) for m in made])
    return made


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
