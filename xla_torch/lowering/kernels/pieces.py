"""Pieces of blocks at run time: native code once it is there, the same calls of torch until then and wherever it cannot be."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

import torch

from ... import torch_private, tuning
from ...native.compiled import MachineCode, machine_code
from .native import options, told_once

Tensors = tuple[torch.Tensor, ...]

_FOR_A_THREAD = 1 << 15
"""Elements that are worth waking a thread for, as torch counts them."""


class NativePiece(torch.nn.Module):
    """A piece's source, and the same as calls of torch. `arrays` says which inputs are arrays, and not scalars."""

    def __init__(self, text: str, module: torch.nn.Module, arrays: Sequence[bool], dtypes: Sequence[torch.dtype]):
        super().__init__()
        self.text, self.module, self.arrays, self.dtypes = text, module, tuple(arrays), tuple(dtypes)
        self.seconds = 0.0
        self.code: MachineCode | None = None
        self.refused = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}

    def is_ready(self) -> bool:
        """Whether there is native code. It is made when torch's calls have taken some time."""
        after = tuning.NATIVE_AFTER
        if self.refused or after == math.inf or torch.compiler.is_compiling() or torch_private.is_watched():
            return False
        if self.code is None:
            self.code = machine_code(self.text, options())
        if self.code.function is None and self.seconds >= after:
            self.code.make()
            if after == 0:
                self.code.wait()
        if self.code.error:
            self.refused = told_once(self.code, "a chain of elementwise calls")
        return self.code.function is not None

    def fits(self, inputs: Tensors) -> torch.Tensor | None:
        """One of the arrays, if all of them are dense and in one order."""
        first: torch.Tensor | None = None
        for tensor, is_array in zip(inputs, self.arrays, strict=True):
            if type(tensor) is not torch.Tensor or tensor.device.type != "cpu" or tensor.is_neg():
                return None
            if is_array:
                first = tensor if first is None else first
                if not tensor.is_contiguous() or tensor.shape != first.shape:
                    return None
        return first


def piece(module: NativePiece, inputs: Tensors, into: tuple[torch.Tensor | None, ...]) -> Tensors:
    """The results of a piece, in the arrays `into` where there are such."""
    like = module.fits(inputs) if module.is_ready() else None
    if like is None or any(t is not None and not (t.is_contiguous() and t.shape == like.shape) for t in into):
        return _in_torch(module, inputs, into)
    results = tuple([torch.empty_like(like, dtype=d) if t is None else t for t, d in zip(into, module.dtypes, strict=True)])
    count = like.numel()
    threads = min(torch.get_num_threads(), -(-count // _FOR_A_THREAD)) if _team() else 1
    addresses = (*[t.data_ptr() for t in inputs], *[r.data_ptr() for r in results], threads, *_team())
    assert module.code is not None
    assert module.code.function is not None
    module.code.function(count, (ctypes.c_void_p * len(addresses))(*addresses))
    return results


def _in_torch(module: NativePiece, inputs: Tensors, into: tuple[torch.Tensor | None, ...]) -> Tensors:
    begun = time.perf_counter()
    made = module.module(*inputs)
    for result, target in zip(made, into, strict=True):
        if target is not None:
            target.copy_(result)
    module.seconds += time.perf_counter() - begun
    return tuple([m if t is None else t for m, t in zip(made, into, strict=True)])


@functools.cache
def _team() -> tuple[int, ...]:
    """The functions of the OpenMP library that torch itself computes with: start its threads, a thread's number, how many there
    are. Empty where it is another library; pieces then run on one thread."""
    library = ctypes.CDLL(None)
    try:
        found = [getattr(library, name) for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")]
    except AttributeError:
        return ()
    return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found)
