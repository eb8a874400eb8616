"""Exchanges of CUDA tensors by NCCL, with its own collectives: it knows the way between the devices.

Whatever only moves travels as bytes. Reductions that NCCL lacks travel in a form that it has, if there is one that gives the
same result, or else are scattered, folded in the group's order, and gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ..storage.torch_private import all_gather_into
from .backend import Backend, as_bytes, plain
from .reductions import Reducer, Reduction, fold, top_bit

_OPERATIONS = {Reduction.ADD: dist.ReduceOp.SUM, Reduction.MULTIPLY: dist.ReduceOp.PRODUCT,
               Reduction.MINIMUM: dist.ReduceOp.MIN, Reduction.MAXIMUM: dist.ReduceOp.MAX}
_OF_BOOLS = {Reduction.ADD: dist.ReduceOp.MAX, Reduction.OR: dist.ReduceOp.MAX, Reduction.MAXIMUM: dist.ReduceOp.MAX,
             Reduction.MULTIPLY: dist.ReduceOp.MIN, Reduction.AND: dist.ReduceOp.MIN, Reduction.MINIMUM: dist.ReduceOp.MIN}
_KEYS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}


class NcclBackend(Backend):
    """A process group of NCCL. Its operations are only put into the current stream."""

    def _finish(self, work: Any) -> None:
        work.wait()

    def abort(self) -> None:
        """Give up the group's operations."""
        self._group.abort()

    # ------------------------------------------------------------------------------------------- movement

    def gather_bytes(self, own: torch.Tensor) -> torch.Tensor:
        result = own.new_empty(self.size, own.numel())
        self._finish(all_gather_into(self._group, result.reshape(-1), own))
        return result

    def permute(self, tensor: torch.Tensor, sources: tuple[int, ...]) -> torch.Tensor:
        own, source = as_bytes(tensor), sources[self.place]
        if len(set(sources)) == 1 and source >= 0:
            result = own.clone() if source == self.place else torch.empty_like(own)
            self._broadcast(result, source)
            return result.view(tensor.dtype).view(tensor.shape)
        size = own.numel()
        given = [size if s == self.place else 0 for s in sources]
        taken = [size if place == source else 0 for place in range(self.size)]
        result = torch.zeros_like(own) if source < 0 else torch.empty_like(own)
        self._finish(self._group.alltoall_base(result[:sum(taken)], own.repeat(sum(g > 0 for g in given)), taken, given))
        return result.view(tensor.dtype).view(tensor.shape)

    # ------------------------------------------------------------------------------------------- reductions

    def all_reduce(self, tensor: torch.Tensor, reducer: Reducer, overwrite: bool = False) -> torch.Tensor:
        own = plain(tensor)
        if not isinstance(reducer, Reduction) or not has_form(own.dtype, reducer):
            return self._fold_all(own, reducer)
        buffer, operation, back = form_of(own, reducer, own if overwrite else torch.empty_like(own))
        options = dist.AllreduceOptions()
        options.reduceOp = operation
        self._finish(self._group.allreduce([buffer], options))
        return back(buffer)

    def _fold_all(self, tensor: torch.Tensor, reducer: Reducer) -> torch.Tensor:
        """Each member folds one block, in the group's order, and all gather the blocks."""
        flat = tensor.reshape(-1)
        width = -(-flat.numel() // self.size)
        # What fills up the last block is some element, not a zero that the reducer might divide by.
        filled = torch.cat([flat, flat[:1].expand(width * self.size - flat.numel())])
        block = fold(self._swap(filled.reshape(self.size, width)).unbind(0), reducer)
        return self.all_gather(block, 0)[:flat.numel()].reshape(tensor.shape)


def has_form(dtype: torch.dtype, reducer: Reduction) -> bool:
    """Whether a reduction of NCCL gives what the reducer gives, in some form."""
    if dtype is torch.bool:
        return reducer.signed in _OF_BOOLS
    return reducer is Reduction.ADD if dtype.is_complex else reducer.signed in _OPERATIONS


def form_of(own: torch.Tensor, reducer: Reduction, out: torch.Tensor) -> tuple[torch.Tensor, Any, Callable[[Any], torch.Tensor]]:
    """An array as a tensor that NCCL can reduce in place, the operation, and the way back to the array's type. `out` is
    memory that may be used, perhaps the array's own."""
    dtype = own.dtype
    if dtype is torch.bool:
        return own.to(torch.uint8), _OF_BOOLS[reducer.signed], lambda t: t.to(torch.bool)
    operation = _OPERATIONS[reducer.signed]
    if dtype.is_complex:
        return torch.view_as_real(out.copy_(own)), operation, torch.view_as_complex
    if dtype.is_floating_point and reducer in (Reduction.MINIMUM, Reduction.MAXIMUM):
        # NCCL lets a NaN lose. Integers in the numbers' order do not.
        keys = _ordered(own, largest=reducer is Reduction.MAXIMUM)
        return _wide(keys), operation, lambda t: _flipped(t.to(keys.dtype)).view(dtype)
    if reducer.is_unsigned:
        bit = top_bit(dtype)
        return _wide(own ^ bit), operation, lambda t: t.to(dtype) ^ bit
    if dtype is torch.int16:
        return _wide(own), operation, lambda t: t.to(dtype)
    return out.copy_(own), operation, lambda t: t


def _wide(own: torch.Tensor) -> torch.Tensor:
    """NCCL has no 16-bit integers: the 32-bit result wraps to the same."""
    return own.to(torch.int32) if own.dtype is torch.int16 else own


def _flipped(bits: torch.Tensor) -> torch.Tensor:
    """A float's bits to an integer in the floats' order, and back."""
    width = bits.element_size() * 8
    return bits ^ ((bits >> (width - 1)) & torch.iinfo(bits.dtype).max)


def _ordered(tensor: torch.Tensor, largest: bool) -> torch.Tensor:
    """Integers in the floats' order, with NaN before all others: above them if the largest is looked for."""
    keys = _flipped(tensor.view(_KEYS[tensor.dtype]))
    limits = torch.iinfo(keys.dtype)
    return keys.masked_fill_(tensor.isnan(), limits.max if largest else limits.min)
