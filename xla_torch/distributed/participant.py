"""Who runs a program, as the program sees it: one participant of several, or the only one.

A program has ``replica_count x partition_count`` participants, numbered replica-major. Kernels ask the current one who it is,
and let it carry out an `Exchange` with a group.
"""

from __future__ import annotations

import abc
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

import torch

from ..core.errors import ExecutionError
from ..core.forks import in_child
from ..core.participant_groups import GroupMode, Groups, members
from .exchange import Completed, Exchange, Future, Result


class Participant(abc.ABC):
    """One participant of a program."""

    replica_id: int = 0
    partition_id: int = 0
    replica_count: int = 1
    partition_count: int = 1
    share_memory: bool = True
    """Whether all participants run in this process."""

    @property
    def number(self) -> int:
        """This participant's number among all, replica-major."""
        return self.replica_id * self.partition_count + self.partition_id

    @property
    def count(self) -> int:
        """How many participants there are."""
        return self.replica_count * self.partition_count

    @abc.abstractmethod
    def begin(self, exchange: Exchange) -> Future:
        """Begin an exchange, without waiting for the others. Every member begins the same ones in the same order."""

    def perform(self, exchange: Exchange) -> Result:
        """Begin an exchange and wait for its result."""
        return self.begin(exchange).result()

    def send(self, channel: int, target: int, tensor: torch.Tensor) -> None:
        """Send a tensor on a channel to another participant, without waiting for it to be taken. Not for participants that
        share memory: their messages go through the queues of `feeds`."""
        raise NotImplementedError

    def receive(self, channel: int, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What another participant sent on the channel. Raises ExecutionError where it does not come in time, or has another
        shape."""
        raise NotImplementedError

    def group(self, groups: Groups, mode: GroupMode) -> tuple[int, ...] | None:
        """The numbers of the participants in this one's group, or None where it is in none. No groups means one of all.

        Raises ExecutionError for a group that names a participant which does not exist.
        """
        return members(groups, mode, self.replica_id, self.partition_id, self.replica_count, self.partition_count)


class SingleParticipant(Participant):
    """A program that runs alone."""

    def begin(self, exchange: Exchange) -> Future:
        return Completed(exchange.for_all([exchange])[0])


_SINGLE = SingleParticipant()


class _Forked(Participant):
    """A participant in a process that was forked from its own: it knows who it is, and the others do not know it."""

    def __init__(self, of: Participant):
        self.replica_id, self.partition_id = of.replica_id, of.partition_id
        self.replica_count, self.partition_count, self.share_memory = of.replica_count, of.partition_count, of.share_memory

    def begin(self, exchange: Exchange) -> Future:
        raise self._refused()

    def send(self, channel: int, target: int, tensor: torch.Tensor) -> None:
        raise self._refused()

    def receive(self, channel: int, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        raise self._refused()

    def _refused(self) -> ExecutionError:
        return ExecutionError("this process was forked from a participant and cannot take part",
                              got=f"process {os.getpid()}, forked from participant {self.number}",
                              hint="exchange data in the process that joined, or start processes by 'spawn'")


class _OfThread(threading.local):
    participant: Participant = _SINGLE


_of_thread = _OfThread()
_of_process: list[Participant] = []
"""The participants that this process has been made, the newest last. Global, as the thread's own: a lowered program is plain
torch calls, and none of them is handed who runs it."""


@in_child
def _forked() -> None:
    _of_process[:] = map(_Forked, _of_process)
    if _of_thread.participant is not _SINGLE:
        _of_thread.participant = _Forked(_of_thread.participant)


def current_participant() -> Participant:
    """The participant that this thread runs: the thread's own, else the process's, else the only one."""
    mine = _of_thread.participant
    return _of_process[-1] if mine is _SINGLE and _of_process else mine


@contextlib.contextmanager
def installed(participant: Participant) -> Iterator[Participant]:
    """Let this thread run as `participant` within the block."""
    before, _of_thread.participant = _of_thread.participant, participant
    try:
        yield participant
    finally:
        _of_thread.participant = before


def again_as(participant: Participant) -> contextlib.AbstractContextManager[object]:
    """Let what belongs to an earlier run, such as its way back, run as the participant that this was, whoever runs it."""
    return contextlib.nullcontext() if current_participant() is participant else installed(participant)


@contextlib.contextmanager
def installed_for_process(participant: Participant) -> Iterator[Participant]:
    """Let every thread of this process that is no participant of its own run as `participant` within the block."""
    _of_process.append(participant)
    try:
        yield participant
    finally:
        with contextlib.suppress(ValueError):  # in a forked process it is another
            _of_process.remove(participant)
