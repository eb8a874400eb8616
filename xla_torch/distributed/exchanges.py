"""The exchanges that programs ask for, each with its formula: every member's result from what all members gave.

Threads of one process evaluate the formula as it stands. Between processes most kinds have a way of their own, which moves no
more than it must; all others gather what was given and evaluate the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core import tuning
from .buffers import BUFFERS
from .exchange import Exchange, Given, Result, Site
from .reductions import Reducer, Reduction, fold, fold_blocks, named

Plans = Sequence[Given]
"""For each member of a group the tensors that say what it sends."""


def copies(tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    """A tensor that is ours as `count` equal ones, none of which shares elements with another."""
    if count == 1:
        return [tensor]
    if tensor.numel() <= tuning.COPIED_AT_ONCE:
        return list(tensor.expand(count, *tensor.shape).clone(memory_format=torch.contiguous_format).unbind(0))
    return [tensor, *(tensor.clone() for _ in range(count - 1))]


def _joined(parts: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Equal parts one after another."""
    dims = list(parts[0].shape)
    dims[dim] *= len(parts)
    return torch.cat(list(parts), dim, out=BUFFERS.empty(dims, parts[0].dtype, parts[0].device))


class AllGather(Exchange):
    """The members' tensors one after another. `detail`: the dimension."""

    __slots__ = ()

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        parts = [v[0] for v in values]
        if parts[0].numel() <= tuning.COPIED_AT_ONCE:
            return copies(torch.cat(parts, self.detail[0]), len(places))
        return [_joined(parts, self.detail[0]) for _ in places]


class AllReduce(Exchange):
    """The members' tensors reduced. `detail`: the reducer's name, "" for a region. With `overwrite` this member's result may
    be stored in the memory of its tensor."""

    __slots__ = ("overwrite", "reducer")

    def __init__(self, site: Site, group: tuple[int, ...], value: Given, reducer: Reducer,
                 overwrite: bool = False):
        super().__init__(site, group, value, named(reducer))
        self.reducer, self.overwrite = reducer, overwrite

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        return self._reduced([v[0] for v in values], [None] * len(places))

    def for_all(self, given: Sequence[Exchange]) -> list[Result]:
        parts = [exchange.value[0] for exchange in given]
        over = [part if getattr(exchange, "overwrite", False) else None for exchange, part in zip(given, parts, strict=True)]
        return parts if len(parts) == 1 and over[0] is not None else self._reduced(parts, over)

    def _reduced(self, parts: Sequence[torch.Tensor], over: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """A result for each of `over`, stored in the memory that is given there."""
        part = parts[0]
        small = len(parts) == 1 or part.numel() <= tuning.COPIED_AT_ONCE
        if small or part.device.type != "cpu" or not isinstance(self.reducer, Reduction):
            return copies(fold(parts, self.reducer), len(over))
        results = [BUFFERS.like(part) if place is None or not place.is_contiguous() else place for place in over]
        fold_blocks(parts, results, self.reducer)
        return results


class ReduceScatter(Exchange):
    """Each member's shard of the members' tensors reduced. `detail`: the reducer's name, "" for a region; the dimension."""

    __slots__ = ("reducer",)

    def __init__(self, site: Site, group: tuple[int, ...], value: Given, reducer: Reducer, dim: int):
        super().__init__(site, group, value, named(reducer), dim)
        self.reducer = reducer

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        dim = self.detail[1]
        width = self.value[0].shape[dim] // len(self.group)
        return [fold([v[0].narrow(dim, place * width, width) for v in values], self.reducer).contiguous() for place in places]


class AllToAll(Exchange):
    """Block i of each member's tensor goes to member i; what comes is put one after another. `detail`: the dimension."""

    __slots__ = ()

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        dim = self.detail[0]
        width = self.value[0].shape[dim] // len(self.group)
        return [_joined([v[0].narrow(dim, place * width, width) for v in values], dim) for place in places]


class Permute(Exchange):
    """Each member gets the tensor of another, or zeros. `detail`: for each place the place of its source, or -1."""

    __slots__ = ()

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        sources = [self.detail[0][place] for place in places]
        return [torch.zeros_like(self.value[0]) if source < 0 else values[source][0].clone(memory_format=torch.contiguous_format)
                for source in sources]


class AllToAllTuple(Exchange):
    """Tensor i of each member goes to member i, whose tensor j came from member j."""

    __slots__ = ()

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        return [tuple(v[place].clone() for v in values) for place in places]


class ReduceToFirst(AllReduce):
    """The members' tensors reduced for the first; zeros for the others."""

    __slots__ = ()
    for_all = Exchange.for_all

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        return [torch.zeros_like(self.value[0]) if place else fold([v[0] for v in values], self.reducer) for place in places]


class General(Exchange):
    """Each member computes its own result from all that was given: ``result_of(values, place)``. `detail`: words."""

    __slots__ = ("result_of",)

    def __init__(self, site: Site, group: tuple[int, ...], value: Given,
                 result_of: Callable[[Sequence[Given], int], Result], *detail: Any):
        super().__init__(site, group, value, *detail)
        self.result_of = result_of

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        return [self.result_of(values, place) for place in places]

    def for_all(self, given: Sequence[Exchange]) -> list[Result]:
        values = [exchange.value for exchange in given]
        return [result for place, exchange in enumerate(given) for result in exchange.combine(values, [place])]


class AllToAllV(General):
    """A `General` exchange in which each member needs only pieces of what the others give, of any number and sizes, which is
    all that has to travel (as in MPI_Alltoallv).

    ``given(plans, k)`` are the pieces for the member at place k, ``dims(plans, k)`` the sizes of those that come from it, and
    ``put(plans, pieces)`` makes the result of every member's pieces. `plans` are the last `planned` tensors of every member's
    value, which all must know first.
    """

    __slots__ = ("dims", "given", "planned", "put")

    def __init__(self, site: Site, group: tuple[int, ...], value: Given,
                 result_of: Callable[[Sequence[Given], int], Result], given: Callable[[Plans, int], list[torch.Tensor]],
                 dims: Callable[[Plans, int], list[tuple[int, ...]]],
                 put: Callable[[Plans, list[list[torch.Tensor]]], torch.Tensor],
                 *detail: Any, planned: int = 0):
        super().__init__(site, group, value, result_of, *detail)
        self.given, self.dims, self.put, self.planned = given, dims, put, planned
