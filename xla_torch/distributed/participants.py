"""Participants of a program: who runs it, which of them form groups, and what they do together.

A program has ``replica_count x partition_count`` participants, numbered replica-major. The collectives ask one interface,
`Participants`, for who they are and to carry out an `Exchange` with a group. Its implementations are the single participant
here, threads of one process (`local.py`), and processes joined by torch.distributed (`processes.py`).
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from ..errors import ExecutionError, InvalidArgument

CROSS_REPLICA = "cross_replica"
CROSS_PARTITION = "cross_partition"
CROSS_BOTH = "cross_replica_and_partition"
FLATTENED = "flattened_id"

Groups = Sequence[Sequence[int]]
Site = tuple[str, int]
"""Where in a program an exchange stands: the instruction as errors name it, and its channel or 0."""
NOWHERE: Site = ("collective", 0)

TIMEOUT = 60.0
"""Seconds that a participant waits for the others of its group."""


class Aborted(ExecutionError):
    """Raised in the participants that waited for one that failed."""


class Exchange(abc.ABC):
    """What the members of a group do together once, as one of them sees it.

    `group` lists participants by number, this one among them; `value` are the tensors that this one gives. `detail` is what
    else all members must agree on. `narrow` names the element type where it is a float of 8 bits or fewer in a wider carrier
    and the exchange only moves elements. Until the exchange has ended nobody writes to `value`.
    """

    __slots__ = ("detail", "group", "narrow", "site", "value")

    def __init__(self, site: Site, group: tuple[int, ...], value: tuple[torch.Tensor, ...], *detail: Any):
        self.site, self.group, self.value, self.detail = site, group, value, detail
        self.narrow = ""

    @abc.abstractmethod
    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """The results of the members at these places of the group, from what all of them gave, in the group's order.

        Results are tensors or tuples of tensors that share memory with nothing.
        """

    def for_all(self, given: Sequence[Exchange]) -> list[Any]:
        """The results of all members, from the exchange as each of them sees it."""
        return self.combine([exchange.value for exchange in given], range(len(given)))

    @property
    def signature(self) -> tuple[Any, ...]:
        """What all members must agree on, cheap to make and to compare."""
        return (type(self), self.site[1], self.group, self.detail, *((v.dtype, v.shape) for v in self.value))

    @property
    def subject(self) -> str:
        """For error messages: ``all-reduce (%r), channel 3``."""
        name, channel = self.site
        return f"{name}, channel {channel}" if channel else name

    def __str__(self) -> str:
        detail = "".join(f" {d}" for d in self.detail if d != "")
        arrays = ", ".join(f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for v in self.value)
        return f"{type(self).__name__}{detail} of {arrays} in group {list(self.group)}, channel {self.site[1]}"

    def clash(self, others: Sequence[tuple[int, str]]) -> ExecutionError:
        """The error where these members, here with what they do, do something else."""
        theirs = "; ".join(f"participant {number}: {text}" for number, text in others)
        return ExecutionError(f"participants {[number for number, _ in others]} are at another exchange", subject=self.subject,
                              got=theirs, expected=str(self),
                              hint="all members must run the same collectives, of the same shapes, in the same order")

    def missing(self, absent: Sequence[int], seconds: float, where: str = "") -> ExecutionError:
        """The error where members have not come in time. `where` says what they do instead, if that is known."""
        return ExecutionError(f"participants {list(absent)} did not come within {seconds:g} seconds", subject=self.subject,
                              got=where or str(self), expected=f"every member of the group {list(self.group)}",
                              hint="all members must run the same collectives in the same order")


class Pending(Protocol):
    """An exchange that was begun."""

    def wait(self) -> Any:
        """This participant's result. Raises ExecutionError where a member fails, does not come or does something else."""


class Done:
    """An exchange that has ended already."""

    __slots__ = ("result",)

    def __init__(self, result: Any):
        self.result = result

    def wait(self) -> Any:
        return self.result


class Participants(abc.ABC):
    """One participant's view of all of them."""

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
        return self.replica_count * self.partition_count

    @abc.abstractmethod
    def begin(self, exchange: Exchange) -> Pending:
        """Begin an exchange, without waiting for the others. Every member begins the same ones in the same order."""

    def meet(self, exchange: Exchange) -> Any:
        """Begin an exchange and wait for its end."""
        return self.begin(exchange).wait()

    def post(self, site: Site, target: int, tensor: torch.Tensor) -> None:
        """Send a tensor on the site's channel to another participant, without waiting for it to be taken. Not for
        participants that share memory: their messages go through the queues of `feeds`."""
        raise NotImplementedError

    def take(self, site: Site, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What another participant posted on the site's channel. Raises ExecutionError where it does not come in time, or
        has another shape."""
        raise NotImplementedError

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


def check_counts(computation: Any, num_replicas: int, num_partitions: int, where: str = "", hint: str = "") -> None:
    """Raise InvalidArgument where a program says that it is for other numbers of replicas and partitions than there are."""
    said: dict[str, int] = getattr(computation, "participants", {})
    replicas, partitions = said.get("replica_count", num_replicas), said.get("num_partitions", num_partitions)
    if (replicas, partitions) != (num_replicas, num_partitions):
        raise InvalidArgument(
            "the program is made for other numbers of participants", subject=computation.name,
            got=f"{num_replicas} replicas x {num_partitions} partitions{where}",
            expected=f"{replicas} replicas x {partitions} partitions, {replicas * partitions} participants", hint=hint)


class Solo(Participants):
    """A program that runs alone."""

    def begin(self, exchange: Exchange) -> Pending:
        return Done(exchange.for_all([exchange])[0])


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
