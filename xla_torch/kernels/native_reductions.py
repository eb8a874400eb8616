"""Reductions by regions at run time as one native function: one pass over the arrays, where torch halves them again and again."""

from __future__ import annotations

from typing import Any

import torch

from ..codegen.reductions import COLUMNS
from .native import Awaited, is_readable, run_on_threads

Tensors = tuple[torch.Tensor, ...]


class NativeReduction(torch.nn.Module, Awaited):
    """A reducer's source. It is waited for, as it rounds in another order than torch's calls."""

    def __init__(self, text: str):
        torch.nn.Module.__init__(self)
        Awaited.__init__(self, text, "a reduction by a region", waits=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}


def reduced(native: NativeReduction, blocks: Tensors) -> Tensors | None:
    """Tensors [outer, size, inner], of at least one element, reduced to [outer, inner]; None where torch has to do it."""
    if not (all(map(is_readable, blocks)) and native.is_ready()):
        return None
    outer, size, inner = blocks[0].shape
    # Where all rows are one and the same, one is read: of a splat few bytes.
    repeats = [outer > 1 and b.stride(0) == 0 for b in blocks]
    blocks = tuple((b[:1] if same else b).contiguous() for b, same in zip(blocks, repeats, strict=True))
    results = tuple(torch.empty((outer, inner), dtype=b.dtype) for b in blocks)
    wide = min(inner, COLUMNS)
    run_on_threads(native.function, outer * -(-inner // COLUMNS), size * wide,
                   [*(t.data_ptr() for t in (*blocks, *results)), size, inner,
                    *(0 if same else size * inner for same in repeats)])
    return results
