"""Participants that processes run: one in each, or several as threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .backend import as_bytes
from .exchange import Completed, Exchange, Future, Given, Result
from .exchanges import General
from .executor import SerialExecutor
from .participant import Participant
from .placement import Placement
from .process_exchanges import ProcessExchanges
from .rendezvous import Rendezvous
from .threads import ThreadParticipant
from .transfers import Transfers


class ProcessParticipant(Participant):
    """One participant, the only one that its process runs."""

    share_memory = False

    def __init__(self, exchanges: ProcessExchanges, transfers: Transfers, placement: Placement, number: int):
        self._exchanges, self._transfers = exchanges, transfers
        self.replica_id, self.partition_id = divmod(number, placement.num_partitions)
        self.replica_count, self.partition_count = placement.num_replicas, placement.num_partitions
        self._executor = SerialExecutor(f"xla_torch exchanges {number}")

    def begin(self, exchange: Exchange) -> Future:
        if len(exchange.group) == 1:
            return Completed(exchange.for_all([exchange])[0])
        if exchange.value[0].is_cuda:
            return self._exchanges.begin_on_device(self._executor, self.number, exchange)
        return self._executor.submit(lambda: self._exchanges.perform(self.number, exchange))

    def perform(self, exchange: Exchange) -> Result:
        if len(exchange.group) > 1 and self._executor.idle and not exchange.value[0].is_cuda:
            return self._exchanges.perform(self.number, exchange)
        return self.begin(exchange).result()

    def send(self, channel: int, target: int, tensor: torch.Tensor) -> None:
        self._transfers.send(channel, self.number, target, tensor)

    def receive(self, channel: int, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._transfers.receive(channel, source, self.number, dims, dtype)

    def close(self) -> None:
        """End, after what was begun."""
        self._executor.shutdown()


class ColocatedParticipant(ThreadParticipant):
    """One of several participants that this process runs, each in a thread.

    Members of a group that share a process meet there. The first of them, their leader, then exchanges what all of them give
    with the leaders of the other processes, and hands out the results.
    """

    share_memory = False

    def __init__(self, exchanges: ProcessExchanges, transfers: Transfers, placement: Placement, rendezvous: Rendezvous,
                 number: int):
        super().__init__(rendezvous, number, placement.num_replicas, placement.num_partitions)
        self._exchanges, self._transfers, self._placement = exchanges, transfers, placement

    def send(self, channel: int, target: int, tensor: torch.Tensor) -> None:
        self._transfers.send(channel, self.number, target, tensor)

    def receive(self, channel: int, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._transfers.receive(channel, source, self.number, dims, dtype)

    def begin(self, exchange: Exchange) -> Future:
        rank_of = self._placement.rank_of
        local = tuple(n for n in exchange.group if rank_of(n) == rank_of(self.number))
        if len(local) == len(exchange.group):
            return super().begin(exchange)
        if len({rank_of(n) for n in exchange.group}) == len(exchange.group):
            return Completed(self._exchanges.perform(self.number, exchange))
        given = super().begin(General(exchange.site, local, exchange.value, lambda values, place: list(values),
                                      *exchange.signature[:4])).result()
        results: tuple[Any, ...] = ()
        if local[0] == self.number:
            values = self._gather(exchange, given)
            results = tuple(exchange.combine(values, [exchange.group.index(n) for n in local]))
        return super().begin(_Handout(exchange.site, local, results))

    def _gather(self, exchange: Exchange, given: Sequence[Any]) -> list[Any]:
        """What all members of the group give, in its order. `given` is what those of this process give."""
        device = exchange.value[0].device
        hosts: dict[int, list[int]] = {}
        for number in exchange.group:
            hosts.setdefault(self._placement.rank_of(number), []).append(number)
        own = torch.cat([as_bytes(v).cpu() for value in given for v in value])
        size = sum(v.nbytes for v in exchange.value)
        members = list(hosts.values())
        gathered = self._exchanges.gather_bytes(exchange, self.number, [m[0] for m in members],
                                                [len(m) * size for m in members], own)
        values: dict[int, Any] = {}
        for numbers, data in zip(members, gathered, strict=True):
            for number, part in zip(numbers, data.split(size), strict=True):
                pieces = part.split([v.nbytes for v in exchange.value])
                values[number] = tuple(piece.clone().view(v.dtype).view(v.shape).to(device)
                                       for piece, v in zip(pieces, exchange.value, strict=True))
        return [values[number] for number in exchange.group]


class _Handout(Exchange):
    """The leader's results for the members at its process."""

    __slots__ = ()

    @property
    def signature(self) -> tuple[Any, ...]:
        return type(self), self.site[1], self.group

    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        return [values[0][place] for place in places]

    def __str__(self) -> str:
        return f"the end of {self.subject} in group {list(self.group)}"
