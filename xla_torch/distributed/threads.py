"""Replicas and partitions as threads of one process: an eight-replica program runs on a laptop with real values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core import tuning
from ..core.errors import DifferentiationError, InvalidArgument
from .buffers import BUFFERS
from .checks import check_arguments, check_counts, entry_point
from .exchange import Aborted, Exchange, Future, Result
from .participant import Participant, installed
from .rendezvous import Rendezvous, Round


class ThreadParticipant(Participant):
    """One participant, run by one thread."""

    def __init__(self, rendezvous: Rendezvous, number: int, replica_count: int, partition_count: int):
        self.rendezvous = rendezvous
        self.replica_id, self.partition_id = divmod(number, partition_count)
        self.replica_count, self.partition_count = replica_count, partition_count
        self._number = number
        self._turns: dict[tuple[int, ...], int] = {}

    def begin(self, exchange: Exchange) -> Future:
        turn = self._turns[exchange.group] = self._turns.get(exchange.group, -1) + 1
        return _Begun(self.rendezvous, self._number, self.rendezvous.begin(self._number, turn, exchange), exchange)


class _Begun:
    """An exchange that a thread has begun. A `Future`."""

    __slots__ = ("exchange", "member", "rendezvous", "round")

    def __init__(self, rendezvous: Rendezvous, member: int, begun: Round, exchange: Exchange):
        self.rendezvous, self.member, self.round, self.exchange = rendezvous, member, begun, exchange

    def result(self) -> Result:
        return self.rendezvous.wait(self.round, self.member, self.exchange)


def run_replicas(computation: Any, arguments: Sequence[Sequence[Any]], *, num_replicas: int = 1, num_partitions: int = 1,
                 timeout: float = tuning.EXCHANGE_TIMEOUT) -> list[Any]:
    """Run a program on ``num_replicas * num_partitions`` participants, each a thread.

    `arguments` holds one tuple of arguments for each participant, replica-major (r0p0, r0p1, r1p0, ...). Results have the same
    order: tensors, or tuples of arrays like those of `run_numpy` if the arguments are NumPy arrays. A participant without
    arguments counts as NumPy if another one has NumPy arguments.

    Results carry no autograd history, because torch would run the backward passes one after another, and they contain
    collectives. Run `value_and_grad(computation)` for gradients.

    Raises InvalidArgument for a wrong number of argument tuples and for a program that states other numbers of replicas or
    partitions. Raises DifferentiationError for arguments that require grad (unless in `torch.no_grad()`). Otherwise raises the
    error of the participant that failed first; ExecutionError if one waited longer than `timeout` seconds.

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> run_replicas(lambda x: ops.CrossReplicaSum(x), [one, two], num_replicas=2)
    [tensor([3.]), tensor([3.])]
    """
    count = num_replicas * num_partitions
    if not callable(computation):
        raise InvalidArgument("not a program", subject="run_replicas", got=type(computation).__name__,
                              expected="one program, which all participants run")
    if num_replicas < 1 or num_partitions < 1 or len(arguments) != count:
        raise InvalidArgument("wrong number of participants", subject="run_replicas", got=f"{len(arguments)} tuples of arguments",
                              expected=f"num_replicas * num_partitions = {count}, one tuple for each")
    check_arguments(arguments, "run_replicas")
    check_counts(computation, num_replicas, num_partitions, hint="pass the same numbers as num_replicas= and num_partitions=")
    if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for given in arguments for a in given):
        raise DifferentiationError("run_replicas does not support autograd", subject="run_replicas",
                                   hint="run value_and_grad(computation) with run_replicas, or call it in torch.no_grad()")
    rendezvous = Rendezvous(timeout)
    participants = [ThreadParticipant(rendezvous, number, num_replicas, num_partitions) for number in range(count)]
    try:
        return in_threads(entry_point(computation, arguments), arguments, participants, rendezvous, rendezvous.fail)
    finally:
        BUFFERS.clear()


def in_threads(call: Callable[..., Any], arguments: Sequence[Sequence[Any]], participants: Sequence[Participant],
               rendezvous: Rendezvous, fail: Callable[[int, BaseException], None]) -> list[Any]:
    """Call a program as each of these participants, each in a thread, which meet at `rendezvous`; `fail` tells the others of one
    that raised."""
    results: list[Any] = [None] * len(participants)
    failures: list[tuple[int, BaseException]] = []

    def run(place: int, participant: Participant) -> None:
        number = participant.number
        try:
            with installed(participant), torch.no_grad():
                results[place] = call(*arguments[place])
        except BaseException as error:  # handed to the caller's thread
            failures.append((number, error))
            fail(number, error)
        else:
            rendezvous.leave(number)

    rendezvous.start(p.number for p in participants)
    threads = [threading.Thread(target=run, args=(place, p), name=f"xla_torch participant {p.number}", daemon=True)
               for place, p in enumerate(participants)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        number, error = next(((n, e) for n, e in failures if not (isinstance(e, Aborted) and e.is_notified)), failures[0])
        error.add_note(f"raised by participant {number} of {participants[0].count}")
        raise error
    return results
