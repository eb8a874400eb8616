"""The exchanges that programs ask for, each with its formula: every member's result from what all members gave.

Threads of one process evaluate the formula as it stands. Between processes most kinds have a way of their own (`group.py`),
which moves no more than it must; all others gather what was given and evaluate the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .buffers import BUFFERS
from .participants import Exchange, Site

Region = Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]
Reducer = str | Region
"""The name of a reducer that torch has a function for, or the region as a function that returns a tuple of one."""

FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "multiply": torch.mul, "minimum": torch.minimum, "maximum": torch.maximum,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
}
"""What each named reducer calls. With ``unsigned `` before its name a reducer orders signed carriers by their bits."""

Plans = Sequence[tuple[torch.Tensor, ...]]
"""For each member of a group the tensors that say what it sends."""

SMALL = 1 << 14
"""Elements up to which copies for all members are made in one call."""

BLOCK = 1 << 15
"""Elements that stay in the processor's cache while they are reduced and copied; too few for torch to wake its threads."""


def top_bit(dtype: torch.dtype) -> int:
    """The number whose only bit is the sign: XOR with it puts unsigned numbers in signed carriers into their order."""
    return torch.iinfo(dtype).min


def fold(parts: Sequence[torch.Tensor], reducer: Reducer) -> torch.Tensor:
    """The parts reduced from first to last, in memory of its own."""
    if len(parts) == 1:
        return parts[0].clone(memory_format=torch.contiguous_format)
    if isinstance(reducer, str):
        return _fold_named(parts, reducer)
    result = parts[0]
    for part in parts[1:]:
        result = reducer(result, part)[0]
    # A reducer may return one of its parameters as it is.
    return result.clone() if any(result is part for part in parts) else result


def _fold_named(parts: Sequence[torch.Tensor], reducer: str) -> torch.Tensor:
    unsigned, _, name = reducer.rpartition(" ")
    if unsigned:
        bit = top_bit(parts[0].dtype)
        return _fold_named([part ^ bit for part in parts], name).bitwise_xor_(bit)
    function = FUNCTIONS[name]
    result = function(parts[0], parts[1])
    for part in parts[2:]:
        function(result, part, out=result)
    return result


def fold_into(out: torch.Tensor, parts: Sequence[torch.Tensor], reducer: Reducer, own: int) -> None:
    """`fold`, stored in `out`, which may be the memory of ``parts[own]``. The other parts may be overwritten."""
    if not isinstance(reducer, str) or reducer not in FUNCTIONS:
        out.copy_(fold(parts, reducer))
        return
    function = FUNCTIONS[reducer]
    total, *rest, last = parts
    for part in rest:
        total = function(total, part, out=parts[0 if own else 1])
    function(total, last, out=out)


def copies(tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    """A tensor that is ours as `count` equal ones, none of which shares elements with another."""
    if count == 1:
        return [tensor]
    if tensor.numel() <= SMALL:
        return list(tensor.expand(count, *tensor.shape).clone(memory_format=torch.contiguous_format).unbind(0))
    return [tensor, *(tensor.clone() for _ in range(count - 1))]


def _joined(parts: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Equal parts one after another."""
    dims = list(parts[0].shape)
    dims[dim] *= len(parts)
    return torch.cat(list(parts), dim, out=BUFFERS.empty(dims, parts[0].dtype, parts[0].device))


def reduce_blocks(parts: Sequence[torch.Tensor], results: Sequence[torch.Tensor], reducer: str) -> None:
    """Store the parts reduced in each of the results, which may lie where parts do: each element is read once, and written
    once to each result."""
    given, taken = [part.reshape(-1).split(BLOCK) for part in parts], [result.view(-1).split(BLOCK) for result in results]
    for blocks, places in zip(zip(*given, strict=True), zip(*taken, strict=True), strict=True):
        total = fold(blocks, reducer)
        for place in places:
            place.copy_(total)


class AllGather(Exchange):
    """The members' tensors one after another. `detail`: the dimension."""

    __slots__ = ()

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        parts = [v[0] for v in values]
        if parts[0].numel() <= SMALL:
            return copies(torch.cat(parts, self.detail[0]), len(places))
        return [_joined(parts, self.detail[0]) for _ in places]


class AllReduce(Exchange):
    """The members' tensors reduced. `detail`: the reducer's name, "" for a region. With `overwrite` this member's result may
    be stored in the memory of its tensor."""

    __slots__ = ("overwrite", "reducer")

    def __init__(self, site: Site, group: tuple[int, ...], value: tuple[torch.Tensor, ...], reducer: Reducer,
                 overwrite: bool = False):
        super().__init__(site, group, value, reducer if isinstance(reducer, str) else "")
        self.reducer, self.overwrite = reducer, overwrite

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        return self._reduced([v[0] for v in values], [None] * len(places))

    def for_all(self, given: Sequence[Exchange]) -> list[Any]:
        parts = [exchange.value[0] for exchange in given]
        over = [part if getattr(exchange, "overwrite", False) else None for exchange, part in zip(given, parts, strict=True)]
        return parts if len(parts) == 1 and over[0] is not None else self._reduced(parts, over)

    def _reduced(self, parts: Sequence[torch.Tensor], over: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """A result for each of `over`, stored in the memory that is given there."""
        part = parts[0]
        if not isinstance(self.reducer, str) or len(parts) == 1 or part.device.type != "cpu" or part.numel() <= SMALL:
            return copies(fold(parts, self.reducer), len(over))
        results = [BUFFERS.like(part) if place is None or not place.is_contiguous() else place for place in over]
        reduce_blocks(parts, results, self.reducer)
        return results


class ReduceScatter(Exchange):
    """Each member's shard of the members' tensors reduced. `detail`: the reducer's name, "" for a region; the dimension."""

    __slots__ = ("reducer",)

    def __init__(self, site: Site, group: tuple[int, ...], value: tuple[torch.Tensor, ...], reducer: Reducer, dim: int):
        super().__init__(site, group, value, reducer if isinstance(reducer, str) else "", dim)
        self.reducer = reducer

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        dim = self.detail[1]
        width = self.value[0].shape[dim] // len(self.group)
        return [fold([v[0].narrow(dim, place * width, width) for v in values], self.reducer).contiguous() for place in places]


class AllToAll(Exchange):
    """Block i of each member's tensor goes to member i; what comes is put one after another. `detail`: the dimension."""

    __slots__ = ()

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        dim = self.detail[0]
        width = self.value[0].shape[dim] // len(self.group)
        return [_joined([v[0].narrow(dim, place * width, width) for v in values], dim) for place in places]


class Permute(Exchange):
    """Each member gets the tensor of another, or zeros. `detail`: for each place the place of its source, or -1."""

    __slots__ = ()

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        sources = [self.detail[0][place] for place in places]
        return [torch.zeros_like(self.value[0]) if source < 0 else values[source][0].clone(memory_format=torch.contiguous_format)
                for source in sources]


class AllToAllTuple(Exchange):
    """Tensor i of each member goes to member i, whose tensor j came from member j."""

    __slots__ = ()

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        return [tuple(v[place].clone() for v in values) for place in places]


class ReduceToFirst(AllReduce):
    """The members' tensors reduced for the first; zeros for the others."""

    __slots__ = ()
    for_all = Exchange.for_all

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        return [torch.zeros_like(self.value[0]) if place else fold([v[0] for v in values], self.reducer) for place in places]


class General(Exchange):
    """Each member computes its own result from all that was given: ``result_of(values, place)``. `detail`: words."""

    __slots__ = ("result_of",)

    def __init__(self, site: Site, group: tuple[int, ...], value: tuple[torch.Tensor, ...],
                 result_of: Callable[[Sequence[Any], int], Any], *detail: Any):
        super().__init__(site, group, value, *detail)
        self.result_of = result_of

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        return [self.result_of(values, place) for place in places]

    def for_all(self, given: Sequence[Exchange]) -> list[Any]:
        values = [exchange.value for exchange in given]
        return [result for place, exchange in enumerate(given) for result in exchange.combine(values, [place])]


class Pieces(General):
    """A `General` exchange in which each member needs only pieces of what the others give, which is all that has to travel.

    ``given(plans, k)`` are the pieces for the member at place k, ``dims(plans, k)`` the sizes of those that come from it, and
    ``put(plans, pieces)`` makes the result of every member's pieces. `plans` are the last `planned` tensors of every member's
    value, which all must know first.
    """

    __slots__ = ("dims", "given", "planned", "put")

    def __init__(self, site: Site, group: tuple[int, ...], value: tuple[torch.Tensor, ...],
                 result_of: Callable[[Sequence[Any], int], Any], given: Callable[[Plans, int], list[torch.Tensor]],
                 dims: Callable[[Plans, int], list[tuple[int, ...]]],
                 put: Callable[[Plans, list[list[torch.Tensor]]], torch.Tensor],
                 *detail: Any, planned: int = 0):
        super().__init__(site, group, value, result_of, *detail)
        self.given, self.dims, self.put, self.planned = given, dims, put, planned
