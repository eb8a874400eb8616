"""Participants of a program: who runs it, which of them form groups, and how they exchange values.

A program has ``replica_count x partition_count`` participants, numbered replica-major. The collectives ask one interface,
`Participants`, for who they are and to exchange with a group. Its implementations are the single participant here, threads
in one process (`local.py`), and whatever else installs itself with `installed`.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import ExecutionError

CROSS_REPLICA = "cross_replica"
CROSS_PARTITION = "cross_partition"
CROSS_BOTH = "cross_replica_and_partition"
FLATTENED = "flattened_id"

Groups = Sequence[Sequence[int]]


class Participants(abc.ABC):
    """One participant's view of all of them."""

    replica_id: int = 0
    partition_id: int = 0
    replica_count: int = 1
    partition_count: int = 1

    @property
    def number(self) -> int:
        """This participant's number among all, replica-major."""
        return self.replica_id * self.partition_count + self.partition_id

    @property
    def count(self) -> int:
        return self.replica_count * self.partition_count

    @abc.abstractmethod
    def exchange(self, group: Sequence[int], value: Any) -> list[Any]:
        """Give `value` (a tensor or tuple of tensors) to the group and take what each member gave, in the group's order.

        `group` lists participant numbers, this one among them; all members call with the same group, in the same order
        of calls. What is received must not be written to. Raises ExecutionError where a member fails or does not come.
        """

    def group(self, groups: Groups, mode: str) -> tuple[int, ...] | None:
        """The numbers of the participants in this one's group, or None where it is in none. No groups means one of all.

        Raises ExecutionError for a group that names a participant which does not exist.
        """
        if mode == CROSS_REPLICA:
            ids = _find(groups, self.replica_id, self.replica_count, "replica")
            return ids and tuple(i * self.partition_count + self.partition_id for i in ids)
        if mode == CROSS_PARTITION:
            ids = _find(groups, self.partition_id, self.partition_count, "partition")
            return ids and tuple(self.replica_id * self.partition_count + i for i in ids)
        if mode == CROSS_BOTH:
            ids = _find(groups, self.replica_id, self.replica_count, "replica")
            return ids and tuple(i * self.partition_count + p for i in ids for p in range(self.partition_count))
        return _find(groups, self.number, self.count, "participant")


def _find(groups: Groups, own: int, count: int, kind: str) -> tuple[int, ...] | None:
    if not groups:
        return tuple(range(count))
    for group in groups:
        for number in group:
            if not 0 <= number < count:
                raise ExecutionError(f"a replica group names {kind} {number}, and there are {count}",
                                     got=[list(g) for g in groups], expected=f"numbers from 0 to {count - 1}",
                                     hint="run the program with run_replicas(..., num_replicas=, num_partitions=)")
    return next((tuple(g) for g in groups if own in g), None)


class Solo(Participants):
    """A program that runs alone."""

    def exchange(self, group: Sequence[int], value: Any) -> list[Any]:
        return [value]


_SOLO = Solo()


class _Current(threading.local):
    participant: Participants = _SOLO


_current = _Current()
_process: list[Participants] = []


def current() -> Participants:
    """The participant that this thread runs: the thread's own, else the process's, else the only one."""
    mine = _current.participant
    return _process[-1] if mine is _SOLO and _process else mine


@contextlib.contextmanager
def installed(participant: Participants) -> Iterator[Participants]:
    """Let this thread run as `participant` within the block."""
    before, _current.participant = _current.participant, participant
    try:
        yield participant
    finally:
        _current.participant = before


@contextlib.contextmanager
def installed_for_process(participant: Participants) -> Iterator[Participants]:
    """Let every thread of this process that is no participant of its own run as `participant` within the block."""
    _process.append(participant)
    try:
        yield participant
    finally:
        _process.remove(participant)
