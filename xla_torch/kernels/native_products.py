"""Two products with what stands between them at run time: native code, and blocks of torch's calls elsewhere."""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..storage import torch_private
from .blocked import blocked
from .calls import fresh
from .native import Awaited, is_readable, run_on_threads

Tensors = tuple[torch.Tensor, ...]


class NativeProducts(torch.nn.Module, Awaited):
    """The source for two products and what stands between (`codegen/products.py`). `order` are the numbers, among the
    tensors that blocks are given, of both factors, of the second product's right factor, and of what else is read,
    which has so many bytes for each of the columns. The first product is of `dims`; a tile has so many `rows`, with
    `kept` bytes for each column. The code is waited for: it sums up in another order than torch's calls."""

    def __init__(self, text: str, order: Sequence[int], columns: Sequence[int], dims: tuple[int, ...], rows: int, kept: int):
        torch.nn.Module.__init__(self)
        Awaited.__init__(self, text, "attention", waits=True)
        self.order, self.columns, self.dims = tuple(order), tuple(columns), dims
        self.rows, self.kept = rows, kept

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}


@fresh
def products(native: NativeProducts, body: torch.nn.Module, cut: tuple[tuple[int, ...], int],
             results: tuple[tuple[tuple[int, ...], torch.dtype], ...], arrays: Tensors, scalars: Tensors,
             kept: int = 0) -> Tensors:
    """What `blocked` gives for these arguments."""
    given = (*arrays, *scalars)
    if not (all(map(is_readable, given)) and native.is_ready()):
        return blocked(body, cut, results, arrays, scalars, kept=kept)
    *batch, rows, n = native.dims
    left, right, values, *others = (given[k] for k in native.order)
    left, right = (_shown(t, batch, _is_matrix) for t in (left, right))
    values = _shown(values, batch, _has_rows)
    others = [t.expand(native.dims) for t in others]
    others = [t.contiguous() if width and t.stride(-1) != 1 else t for t, width in zip(others, native.columns, strict=True)]
    made = torch.empty(results[0][0], dtype=results[0][1])
    operands = (left, right, values, *others, made)
    steps = [0 if t is right or t is values else t.stride(-2) * t.element_size() for t in operands]
    sizes = array.array("q", [rows, native.rows, left.shape[-1], values.shape[-1], *left.stride()[-2:], *right.stride()[-2:],
                              values.stride(-2), made.stride(-2), *steps])
    addresses = array.array("q", [a for member in zip(*(_addresses(t, batch) for t in operands), strict=True) for a in member])
    blocks = math.prod(batch) * -(-rows // native.rows)
    places = [sizes.buffer_info()[0], addresses.buffer_info()[0], torch_private.blas()["sgemm"]]
    run_on_threads(native.function, blocks, n, places, native.kept, for_a_thread=1)
    return (made,)


def _shown(tensor: torch.Tensor, batch: Sequence[int], lies: Any) -> torch.Tensor:
    """A matrix for each member of the batch, as BLAS reads them."""
    found = tensor if lies(tensor) else tensor.contiguous()
    return found.expand(*batch, *found.shape[-2:])


def _has_rows(tensor: torch.Tensor) -> bool:
    return tensor.stride(-1) == 1 and tensor.stride(-2) >= tensor.shape[-1]


def _is_matrix(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) or (tensor.stride(-1) != 1 and _has_rows(tensor.mT))


def _addresses(tensor: torch.Tensor, batch: Sequence[int]) -> list[int]:
    """Where the matrix of each member of the batch begins."""
    offsets = [0]
    for n, step in zip(batch, tensor.stride(), strict=False):
        offsets = [o + k * step for o in offsets for k in range(n)]
    return [tensor.data_ptr() + o * tensor.element_size() for o in offsets]
