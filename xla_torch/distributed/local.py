"""Replicas and partitions as threads of one process: an eight-replica program runs on a laptop with real values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import DifferentiationError, ExecutionError, InvalidArgument, XlaError
from .participants import Participants, installed

TIMEOUT = 60.0
"""Seconds that a participant waits for the others of its group."""


class _Aborted(ExecutionError):
    """Raised in the participants that waited for one that failed."""


class Meeting:
    """Where the threads of a program exchange values. `timeout` is in seconds."""

    def __init__(self, timeout: float = TIMEOUT):
        self.timeout = timeout
        self._changed = threading.Condition()
        self._given: dict[tuple[tuple[int, ...], int], dict[int, Any]] = {}
        self._taken: dict[tuple[tuple[int, ...], int], int] = {}
        self._failure: tuple[int, BaseException] | None = None

    def exchange(self, group: tuple[int, ...], turn: int, member: int, value: Any) -> list[Any]:
        """All members' values of this turn in the group's order; waits for them."""
        key = (group, turn)
        with self._changed:
            given = self._given.setdefault(key, {})
            given[member] = value
            self._changed.notify_all()
            complete = self._changed.wait_for(lambda: len(given) == len(group) or self._failure is not None, self.timeout)
            if self._failure is not None and len(given) < len(group):
                number, cause = self._failure
                raise _Aborted(f"participant {number} failed: {cause}") from cause
            if not complete:
                missing = [n for n in group if n not in given]
                raise ExecutionError(f"participants {missing} did not come within {self.timeout:g} seconds",
                                     got=f"group {list(group)}, exchange {turn}", expected="every member of the group",
                                     hint="all members must run the same collectives in the same order")
            values = [given[n] for n in group]
            self._taken[key] = self._taken.get(key, 0) + 1
            if self._taken[key] == len(group):
                del self._given[key], self._taken[key]
            return values

    def fail(self, member: int, cause: BaseException) -> None:
        """Wake everybody who waits: `member` will not come any more."""
        with self._changed:
            self._failure = self._failure or (member, cause)
            self._changed.notify_all()


class ThreadParticipant(Participants):
    """One participant, run by one thread."""

    def __init__(self, meeting: Meeting, number: int, replica_count: int, partition_count: int):
        self.meeting = meeting
        self.replica_id, self.partition_id = divmod(number, partition_count)
        self.replica_count, self.partition_count = replica_count, partition_count
        self._turns: dict[tuple[int, ...], int] = {}

    def exchange(self, group: Sequence[int], value: Any) -> list[Any]:
        members = tuple(group)
        turn = self._turns[members] = self._turns.get(members, -1) + 1
        # A copy is given away: the program may overwrite its own tensor while others still read.
        return self.meeting.exchange(members, turn, self.number, _copied(value))


def _copied(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_copied(v) for v in value)
    return value.detach().clone()


def run_replicas(computation: Any, arguments: Sequence[Sequence[Any]], *, num_replicas: int = 1, num_partitions: int = 1,
                 timeout: float = TIMEOUT) -> list[Any]:
    """Run a program on ``num_replicas * num_partitions`` participants, each a thread of this process.

    `arguments` holds one tuple of arguments for each participant, replica-major (r0p0, r0p1, r1p0, ...). Results come in
    the same order: tensors as calling `computation` gives them or, where the arguments are NumPy arrays, the tuples of
    arrays that `run_numpy` gives. A participant without arguments counts as NumPy if another one has NumPy arguments.

    For gradients run `value_and_grad(computation)`: results carry no autograd history, because torch would run the
    participants' backward passes one after another, and they have to meet.

    Raises InvalidArgument for another number of argument tuples, DifferentiationError for arguments that require grad (unless
    in `torch.no_grad()`), and otherwise the error of the participant that failed first, ExecutionError where one waited
    longer than `timeout` seconds for the others.
    """
    count = num_replicas * num_partitions
    if num_replicas < 1 or num_partitions < 1 or len(arguments) != count:
        raise InvalidArgument("wrong number of participants", subject="run_replicas", got=f"{len(arguments)} tuples of arguments",
                              expected=f"num_replicas * num_partitions = {count}, one tuple for each")
    if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for given in arguments for a in given):
        raise DifferentiationError("autograd does not go through run_replicas", subject="run_replicas",
                                   hint="run value_and_grad(computation) with run_replicas, or call it in torch.no_grad()")
    in_numpy = any(isinstance(a, (np.ndarray, np.generic)) for given in arguments for a in given)
    call = computation.run_numpy if in_numpy else computation
    meeting = Meeting(timeout)
    participants = [ThreadParticipant(meeting, number, num_replicas, num_partitions) for number in range(count)]
    return _in_threads(call, arguments, participants, meeting)


def _in_threads(call: Callable[..., Any], arguments: Sequence[Sequence[Any]], participants: Sequence[ThreadParticipant],
                meeting: Meeting) -> list[Any]:
    results: list[Any] = [None] * len(participants)
    failures: list[tuple[int, BaseException]] = []

    def run(participant: ThreadParticipant) -> None:
        number = participant.number
        try:
            with installed(participant), torch.no_grad():
                results[number] = call(*arguments[number])
        except BaseException as error:  # handed to the caller's thread
            failures.append((number, error))
            meeting.fail(number, error)

    threads = [threading.Thread(target=run, args=(p,), name=f"xla_torch participant {p.number}", daemon=True)
               for p in participants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        number, error = next(((n, e) for n, e in failures if not isinstance(e, _Aborted)), failures[0])
        if isinstance(error, XlaError):
            error.add_note(f"raised by participant {number} of {len(participants)}")
        raise error
    return results
