"""Pieces of blocks at run time: native code once it is there, the same calls of torch until then and wherever it cannot be."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from ... import torch_private, tuning
from ...native.compiled import MachineCode, machine_code
from .native import options, told_once

Tensors = tuple[torch.Tensor, ...]

_FOR_A_THREAD = 1 << 15
"""Elements that are worth waking a thread for, as torch counts them."""


Role = Literal["whole", "row", "column", "scalar"]
"""What an input has a value for: each place of a grid, each row, each place of a row, or all of it."""


class NativePiece(torch.nn.Module):
    """A piece's source, and the same as calls of torch. `roles` are those of its inputs; each of `made` is the dtype of a result
    with how many dimensions less than the grid it has, if it has one value for each row, and else None. `kept` are the bytes that
    the code needs for each element of a row; where it `is_flat` there are no rows. It `waits` for its code where torch's calls
    have other bits."""

    def __init__(self, text: str, module: torch.nn.Module, roles: Sequence[Role], made: Sequence[tuple[torch.dtype, int | None]],
                 kept: int, is_flat: bool, waits: bool):
        super().__init__()
        self.text, self.module, self.roles, self.made = text, module, tuple(roles), tuple(made)
        self.kept, self.is_flat, self.waits = kept, is_flat, waits
        self.seconds = 0.0
        self.code: MachineCode | None = None
        self.refused = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}

    def begin(self) -> None:
        """Begin to compile, beside whatever comes next."""
        if not math.isinf(tuning.NATIVE_AFTER):
            self.code = machine_code(self.text, options())
            self.code.make()

    def is_ready(self) -> bool:
        """Whether there is native code. It is made when torch's calls have taken some time, if not before."""
        after = tuning.NATIVE_AFTER
        if self.refused or after == math.inf or torch.compiler.is_compiling() or torch_private.is_watched():
            return False
        if self.code is None:
            self.code = machine_code(self.text, options())
        if self.code.function is None and (self.waits or self.seconds >= after):
            self.code.make()
            if self.waits or after == 0:
                self.code.wait()
        if self.code.error:
            self.refused = told_once(self.code, "a chain of elementwise calls")
        return self.code.function is not None

    def fits(self, inputs: Tensors) -> torch.Tensor | None:
        """One of the whole arrays, if all inputs lie in memory as their roles say."""
        like = inputs[self.roles.index("whole")]
        for tensor, role in zip(inputs, self.roles, strict=True):
            if type(tensor) is not torch.Tensor or tensor.device.type != "cpu" or tensor.is_neg():
                return None
            if not _LIES[role](tensor, like):
                return None
        return like

    def new_results(self, like: torch.Tensor, into: tuple[torch.Tensor | None, ...]) -> Tensors | None:
        """The results, of which some stand in given arrays; None where these do not fit."""
        results: list[torch.Tensor] = []
        for target, (dtype, less) in zip(into, self.made, strict=True):
            dims = like.shape if less is None else like.shape[:-1] if less else (*like.shape[:-1], 1)
            if target is not None and not (target.is_contiguous() and target.shape == dims):
                return None
            results.append(torch.empty(dims, dtype=dtype) if target is None else target)
        return tuple(results)


def _is_row(tensor: torch.Tensor, like: torch.Tensor) -> bool:
    """One value for each row, also where it is spread over the row."""
    spread = tensor.shape == like.shape
    return tensor.select(-1, 0).is_contiguous() and tensor.stride(-1) == 0 if spread else tensor.is_contiguous()


def _is_column(tensor: torch.Tensor, like: torch.Tensor) -> bool:
    """One value for each place of a row, also where it is spread over the rows."""
    return tensor.stride(-1) == 1 and not any(s for s, n in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if n != 1)


_LIES: dict[Role, Callable[[torch.Tensor, torch.Tensor], bool]] = {
    "whole": lambda tensor, like: tensor.is_contiguous() and tensor.shape == like.shape,
    "row": _is_row, "column": _is_column, "scalar": lambda tensor, like: True}


def piece(module: NativePiece, inputs: Tensors, into: tuple[torch.Tensor | None, ...]) -> Tensors:
    """The results of a piece, in the arrays `into` where there are such."""
    like = module.fits(inputs) if module.is_ready() else None
    results = None if like is None else module.new_results(like, into)
    if like is None or results is None:
        return _in_torch(module, inputs, into)
    count = like.numel()
    n = 1 if module.is_flat else like.shape[-1]
    threads = min(torch.get_num_threads(), -(-count // _FOR_A_THREAD)) if _team() else 1
    kept = torch.empty(module.kept * n * threads, dtype=torch.uint8)
    addresses = (*[t.data_ptr() for t in inputs], *[r.data_ptr() for r in results], kept.data_ptr(), n, threads, *_team())
    assert module.code is not None
    assert module.code.function is not None
    module.code.function(count // max(n, 1), (ctypes.c_void_p * len(addresses))(*addresses))
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
