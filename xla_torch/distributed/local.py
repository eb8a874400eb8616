"""Replicas and partitions as threads of one process: an eight-replica program runs on a laptop with real values."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import DifferentiationError, InvalidArgument
from .buffers import BUFFERS
from .participants import TIMEOUT, Aborted, Exchange, Participants, check_counts, installed


class _Slot:
    """One exchange while its members come: what each gave, later the results, and who sleeps until then."""

    __slots__ = ("asleep", "clash", "ended", "error", "given", "results", "turn")

    def __init__(self, turn: int):
        self.turn = turn
        self.given: dict[int, Exchange] = {}
        self.results: dict[int, Any] = {}
        self.asleep: list[Any] = []
        self.ended = False
        self.clash = False
        self.error: tuple[int, BaseException] | None = None


class Meeting:
    """Where the threads of a program exchange values. `timeout` is in seconds.

    The last member to come computes the results of all while the others sleep. So nothing has to be copied on the way in,
    and a small exchange costs each participant one sleep at most.
    """

    def __init__(self, timeout: float = TIMEOUT):
        self.timeout = timeout
        self._lock = threading.Lock()
        self._open: dict[tuple[tuple[int, ...], int], _Slot] = {}
        self._waiting: dict[int, tuple[Exchange, _Slot]] = {}
        self._failure: tuple[int, BaseException] | None = None

    def begin(self, member: int, turn: int, exchange: Exchange) -> _Slot:
        """Give what a member gives to its group's exchange number `turn`."""
        group = exchange.group
        key = (group, turn)
        with self._lock:
            self._check(exchange)
            slot = self._open.get(key)
            if slot is None:
                slot = self._open[key] = _Slot(turn)
            given = slot.given
            if given and next(iter(given.values())).signature != exchange.signature:
                slot.clash = True
            given[member] = exchange
            complete = len(given) == len(group) and not slot.clash
            if complete:
                del self._open[key]
        if complete:
            self._compute(slot, member, exchange)
        elif slot.clash:
            self._end(slot)
        return slot

    def wait(self, slot: _Slot, member: int, exchange: Exchange) -> Any:
        """The member's result of an exchange that it began."""
        if not slot.ended:
            self._sleep(slot, member, exchange)
        if slot.clash:
            own = exchange.signature
            raise exchange.clash([(n, str(e)) for n, e in slot.given.items() if e.signature != own])
        if slot.error is not None:
            number, cause = slot.error
            if number == member:
                raise cause
            raise Aborted(f"participant {number} failed: {cause}", subject=exchange.subject) from cause
        return slot.results.pop(member)

    def _sleep(self, slot: _Slot, member: int, exchange: Exchange) -> None:
        alarm = _thread.allocate_lock()
        alarm.acquire()
        with self._lock:
            if slot.ended:
                return
            self._check(exchange)
            other = self._elsewhere(slot, member, exchange)
            if other is not None:
                raise exchange.clash([other])
            slot.asleep.append(alarm)
            self._waiting[member] = exchange, slot
        awake = alarm.acquire(timeout=self.timeout)
        with self._lock:
            self._waiting.pop(member, None)
            if slot.ended:
                return
            self._check(exchange)
            if not awake:
                raise exchange.missing([n for n in exchange.group if n not in slot.given], self.timeout)

    def _elsewhere(self, slot: _Slot, member: int, exchange: Exchange) -> tuple[int, str] | None:
        """A member that sleeps until this one comes to another exchange: then neither would ever come."""
        for number in exchange.group:
            if number not in slot.given and number in self._waiting:
                theirs, where = self._waiting[number]
                if member in theirs.group and member not in where.given:
                    return number, str(theirs)
        return None

    def _compute(self, slot: _Slot, member: int, exchange: Exchange) -> None:
        try:
            with torch.no_grad():
                results = exchange.for_all([slot.given[n] for n in exchange.group])
            slot.results.update(zip(exchange.group, results, strict=True))
        except BaseException as error:  # every member raises it
            slot.error = member, error
        finally:
            self._end(slot)

    def _end(self, slot: _Slot) -> None:
        with self._lock:
            slot.ended = True
            for alarm in slot.asleep:
                alarm.release()
            slot.asleep.clear()

    def _check(self, exchange: Exchange) -> None:
        if self._failure is not None:
            number, cause = self._failure
            raise Aborted(f"participant {number} failed: {cause}", subject=exchange.subject) from cause

    def fail(self, member: int, cause: BaseException) -> None:
        """Wake everybody who waits: `member` will not come any more."""
        with self._lock:
            self._failure = self._failure or (member, cause)
            for _, slot in self._waiting.values():
                for alarm in slot.asleep:
                    alarm.release()
                slot.asleep.clear()


class _Begun:
    """An exchange that a thread has begun."""

    __slots__ = ("exchange", "meeting", "member", "slot")

    def __init__(self, meeting: Meeting, member: int, slot: _Slot, exchange: Exchange):
        self.meeting, self.member, self.slot, self.exchange = meeting, member, slot, exchange

    def wait(self) -> Any:
        return self.meeting.wait(self.slot, self.member, self.exchange)


class ThreadParticipant(Participants):
    """One participant, run by one thread."""

    def __init__(self, meeting: Meeting, number: int, replica_count: int, partition_count: int):
        self.meeting = meeting
        self.replica_id, self.partition_id = divmod(number, partition_count)
        self.replica_count, self.partition_count = replica_count, partition_count
        self._number = number
        self._turns: dict[tuple[int, ...], int] = {}

    def begin(self, exchange: Exchange) -> _Begun:
        turn = self._turns[exchange.group] = self._turns.get(exchange.group, -1) + 1
        return _Begun(self.meeting, self._number, self.meeting.begin(self._number, turn, exchange), exchange)


def run_replicas(computation: Any, arguments: Sequence[Sequence[Any]], *, num_replicas: int = 1, num_partitions: int = 1,
                 timeout: float = TIMEOUT) -> list[Any]:
    """Run a program on ``num_replicas * num_partitions`` participants, each a thread of this process.

    `arguments` holds one tuple of arguments for each participant, replica-major (r0p0, r0p1, r1p0, ...). Results come in
    the same order: tensors as calling `computation` gives them or, where the arguments are NumPy arrays, the tuples of
    arrays that `run_numpy` gives. A participant without arguments counts as NumPy if another one has NumPy arguments.

    For gradients run `value_and_grad(computation)`: results carry no autograd history, because torch would run the
    participants' backward passes one after another, and they have to meet.

    Raises InvalidArgument for another number of argument tuples and for a program that says that it is for other numbers of
    replicas or partitions, DifferentiationError for arguments that require grad (unless
    in `torch.no_grad()`), and otherwise the error of the participant that failed first, ExecutionError where one waited
    longer than `timeout` seconds for the others.
    """
    count = num_replicas * num_partitions
    if not callable(computation):
        raise InvalidArgument("not a program", subject="run_replicas", got=type(computation).__name__,
                              expected="one program, which all participants run")
    if num_replicas < 1 or num_partitions < 1 or len(arguments) != count:
        raise InvalidArgument("wrong number of participants", subject="run_replicas", got=f"{len(arguments)} tuples of arguments",
                              expected=f"num_replicas * num_partitions = {count}, one tuple for each")
    check_arguments(arguments, "run_replicas")
    check_counts(computation, num_replicas, num_partitions, hint="say as many with num_replicas= and num_partitions=")
    if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for given in arguments for a in given):
        raise DifferentiationError("autograd does not go through run_replicas", subject="run_replicas",
                                   hint="run value_and_grad(computation) with run_replicas, or call it in torch.no_grad()")
    in_numpy = any(isinstance(a, (np.ndarray, np.generic)) for given in arguments for a in given)
    call = computation.run_numpy if in_numpy else computation
    meeting = Meeting(timeout)
    participants = [ThreadParticipant(meeting, number, num_replicas, num_partitions) for number in range(count)]
    try:
        return in_threads(call, arguments, participants, meeting.fail)
    finally:
        BUFFERS.clear()


def check_arguments(arguments: Sequence[Any], subject: str) -> None:
    """Raise InvalidArgument where a participant's arguments are no tuple: of a tensor, the rows would be taken for them."""
    for place, given in enumerate(arguments):
        if not isinstance(given, (tuple, list)):
            raise InvalidArgument("a participant's arguments are not a tuple", subject=subject,
                                  got=f"{type(given).__name__} at place {place}", expected="one tuple for each participant",
                                  hint="write (x,) for a single argument")


def in_threads(call: Callable[..., Any], arguments: Sequence[Sequence[Any]], participants: Sequence[Participants],
               fail: Callable[[int, BaseException], None]) -> list[Any]:
    """Call a program as each of these participants, each in a thread; `fail` tells the others of one that raised."""
    results: list[Any] = [None] * len(participants)
    failures: list[tuple[int, BaseException]] = []

    def run(place: int, participant: Participants) -> None:
        number = participant.number
        try:
            with installed(participant), torch.no_grad():
                results[place] = call(*arguments[place])
        except BaseException as error:  # handed to the caller's thread
            failures.append((number, error))
            fail(number, error)

    threads = [threading.Thread(target=run, args=(place, p), name=f"xla_torch participant {p.number}", daemon=True)
               for place, p in enumerate(participants)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        number, error = next(((n, e) for n, e in failures if not isinstance(e, Aborted)), failures[0])
        error.add_note(f"raised by participant {number} of {participants[0].count}")
        raise error
    return results
