"""Reducing what the members of a group give, in the group's order: by a function of torch, or by a region."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core import tuning


class Reduction(enum.StrEnum):
    """A reducer that torch has a function for. The unsigned ones order signed storage dtypes by their bits."""

    ADD = enum.auto()
    MULTIPLY = enum.auto()
    MINIMUM = enum.auto()
    MAXIMUM = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    UNSIGNED_MINIMUM = enum.auto()
    UNSIGNED_MAXIMUM = enum.auto()

    @property
    def is_unsigned(self) -> bool:
        return self in _SIGNED

    @property
    def signed(self) -> Reduction:
        """The same in the storage dtype's own order."""
        return _SIGNED.get(self, self)


_SIGNED = {Reduction.UNSIGNED_MINIMUM: Reduction.MINIMUM, Reduction.UNSIGNED_MAXIMUM: Reduction.MAXIMUM}

Region = Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]
"""A reducer as a function of two tensors that returns a tuple of one."""

Reducer = Reduction | Region

_FUNCTIONS: dict[Reduction, Callable[..., torch.Tensor]] = {
    Reduction.ADD: torch.add, Reduction.MULTIPLY: torch.mul, Reduction.MINIMUM: torch.minimum, Reduction.MAXIMUM: torch.maximum,
    Reduction.AND: torch.bitwise_and, Reduction.OR: torch.bitwise_or, Reduction.XOR: torch.bitwise_xor,
}


def named(reducer: Reducer) -> str:
    """What members can compare of a reducer: its name, "" for a region."""
    return reducer if isinstance(reducer, Reduction) else ""


def top_bit(dtype: torch.dtype) -> int:
    """The number whose only bit is the sign: XOR with it puts unsigned numbers in signed storage into their order."""
    return torch.iinfo(dtype).min


def fold(parts: Sequence[torch.Tensor], reducer: Reducer) -> torch.Tensor:
    """The parts reduced from first to last, in memory of its own."""
    if len(parts) == 1:
        return parts[0].clone(memory_format=torch.contiguous_format)
    if isinstance(reducer, Reduction):
        return _fold_named(parts, reducer)
    result = parts[0]
    for part in parts[1:]:
        result = reducer(result, part)[0]
    # A region may return one of its parameters as it is.
    return result.clone() if any(result is part for part in parts) else result


def _fold_named(parts: Sequence[torch.Tensor], reducer: Reduction) -> torch.Tensor:
    if reducer.is_unsigned:
        bit = top_bit(parts[0].dtype)
        return _fold_named([part ^ bit for part in parts], reducer.signed).bitwise_xor_(bit)
    function = _FUNCTIONS[reducer]
    result = function(parts[0], parts[1])
    for part in parts[2:]:
        function(result, part, out=result)
    return result


def fold_into(out: torch.Tensor, parts: Sequence[torch.Tensor], reducer: Reducer, own: int) -> None:
    """`fold`, stored in `out`, which may be the memory of ``parts[own]``. The other parts may be overwritten."""
    function: Any = _FUNCTIONS.get(reducer) if isinstance(reducer, Reduction) else None
    if function is None:
        out.copy_(fold(parts, reducer))
        return
    total, *rest, last = parts
    for part in rest:
        total = function(total, part, out=parts[0 if own else 1])
    function(total, last, out=out)


def fold_blocks(parts: Sequence[torch.Tensor], results: Sequence[torch.Tensor], reducer: Reduction) -> None:
    """Store the parts reduced in each of the results, which may lie where parts do: each element is read once, and written
    once to each result."""
    size = tuning.REDUCED_AT_ONCE
    given, taken = [part.reshape(-1).split(size) for part in parts], [result.view(-1).split(size) for result in results]
    for blocks, places in zip(zip(*given, strict=True), zip(*taken, strict=True), strict=True):
        total = fold(blocks, reducer)
        for place in places:
            place.copy_(total)
