"""A backend carries exchanges out by one process group of torch.distributed; here is what is the same for all backends."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .exchange import Exchange, Result
from .exchanges import (
    AllGather,
    AllReduce,
    AllToAll,
    AllToAllTuple,
    AllToAllV,
    Permute,
    ReduceScatter,
    ReduceToFirst,
)
from .reductions import Reducer, fold


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bytes, flat. Shares memory with a contiguous tensor."""
    return plain(tensor).view(-1).view(torch.uint8)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, dense, with its elements as they are in memory."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def from_bytes(payload: bytes, like: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Tensors of these types and shapes out of their bytes."""
    data = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else torch.empty(0, dtype=torch.uint8)
    parts = data.split([t.nbytes for t in like])
    # A part that does not begin at a multiple of its element's size cannot be viewed as it lies.
    return tuple(part.clone().view(t.dtype).view(t.shape) for part, t in zip(parts, like, strict=True))


class Backend(abc.ABC):
    """The process group `group` of `size` members, of which this process is the one at `place`."""

    def __init__(self, group: Any, size: int, place: int):
        self._group, self.size, self.place = group, size, place

    def perform(self, exchange: Exchange) -> Result:
        """This member's result of an exchange; all members perform the same."""
        known = _PERFORMED.get(type(exchange))
        if known is not None:
            return known(self, exchange)
        return self.from_all(exchange)

    def from_all(self, exchange: Exchange) -> Result:
        """The result by the exchange's formula, from everything that all give."""
        return exchange.combine(self.gather_all(exchange.value), [self.place])[0]

    def all_to_all_v(self, exchange: AllToAllV) -> torch.Tensor:
        """The result of an exchange of pieces. Sizes that only a device knows make it an exchange of everything."""
        return self.from_all(exchange)

    @abc.abstractmethod
    def _finish(self, work: Any) -> None:
        """Wait until the tensors of an operation may be used."""

    @abc.abstractmethod
    def gather_bytes(self, own: torch.Tensor) -> torch.Tensor:
        """Every member's bytes, of equal number, as [members, bytes]."""

    def all_gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Every member's tensor, one after another along `dim`."""
        parts = self.gather_bytes(as_bytes(tensor)).view(tensor.dtype).view(self.size, *tensor.shape)
        return parts.flatten(0, 1) if dim == 0 else torch.cat(parts.unbind(0), dim)

    def all_to_all(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Block i of the tensor along `dim` goes to member i; what comes is put one after another."""
        blocks = self._swap(self._of_members(tensor, dim))
        return blocks.flatten(0, 1) if dim == 0 else torch.cat(blocks.unbind(0), dim)

    def all_to_all_tuple(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Tensor i goes to member i; tensor j comes from member j."""
        return self._swap(torch.stack(tensors)).unbind(0)

    @abc.abstractmethod
    def all_reduce(self, tensor: torch.Tensor, reducer: Reducer, overwrite: bool = False) -> torch.Tensor:
        """The members' tensors reduced. With `overwrite` the result may be stored in the tensor's memory."""

    def reduce_scatter(self, tensor: torch.Tensor, reducer: Reducer, dim: int) -> torch.Tensor:
        """This member's block along `dim` of the members' tensors reduced."""
        return fold(self._swap(self._of_members(tensor, dim)).unbind(0), reducer)

    def _of_members(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """[members, block]: what of the tensor along `dim` is each member's."""
        return tensor.unflatten(dim, (self.size, -1)).movedim(dim, 0)

    def _swap(self, blocks: torch.Tensor) -> torch.Tensor:
        """``blocks[i]``, dimension 0 being the members', goes to member i; what came, in the same form."""
        own = as_bytes(blocks)
        result = torch.empty_like(own)
        self._finish(self._group.alltoall_base(result, own, [], []))
        return result.view(blocks.dtype).view(blocks.shape)

    @abc.abstractmethod
    def permute(self, tensor: torch.Tensor, sources: tuple[int, ...]) -> torch.Tensor:
        """The tensor of the member at place ``sources[own place]``, zeros for -1."""

    def gather_uneven(self, own: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
        """Every member's bytes; `counts` says how many each has."""
        if len(set(counts)) == 1:
            return list(self.gather_bytes(own).unbind(0))
        results = [own if place == self.place else own.new_empty(count) for place, count in enumerate(counts)]
        for place, result in enumerate(results):
            self._broadcast(result, place)
        return results

    def _broadcast(self, tensor: torch.Tensor, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self._finish(self._group.broadcast([tensor], options))

    def gather_all(self, value: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
        """What every member gives, in the group's order."""
        gathered = [self.gather_bytes(as_bytes(v)) for v in value]
        return [tuple(g[place].view(v.dtype).view(v.shape) for g, v in zip(gathered, value, strict=True))
                for place in range(self.size)]


def _reduce_to_first(backend: Backend, exchange: Any) -> torch.Tensor:
    total = backend.all_reduce(exchange.value[0], exchange.reducer)
    return torch.zeros_like(total) if backend.place else total


_PERFORMED: dict[type, Callable[[Backend, Any], Any]] = {
    AllGather: lambda backend, exchange: backend.all_gather(exchange.value[0], *exchange.detail),
    AllReduce: lambda backend, exchange: backend.all_reduce(exchange.value[0], exchange.reducer, exchange.overwrite),
    ReduceScatter: lambda backend, exchange: backend.reduce_scatter(exchange.value[0], exchange.reducer, exchange.detail[1]),
    AllToAll: lambda backend, exchange: backend.all_to_all(exchange.value[0], *exchange.detail),
    AllToAllTuple: lambda backend, exchange: backend.all_to_all_tuple(exchange.value),
    Permute: lambda backend, exchange: backend.permute(exchange.value[0], *exchange.detail),
    ReduceToFirst: _reduce_to_first,
    AllToAllV: lambda backend, exchange: backend.all_to_all_v(exchange),
}
