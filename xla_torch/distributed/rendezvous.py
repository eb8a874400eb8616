"""Where the threads of one process exchange values: the last to come computes the results of all."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import torch

from ..core import tuning
from ..participants.exchange import Aborted, Exchange, Result


class Round:
    """One exchange while its members come: what each gave, later the results, and who sleeps until then."""

    __slots__ = ("asleep", "clash", "ended", "error", "given", "results")

    def __init__(self) -> None:
        self.given: dict[int, Exchange] = {}
        self.results: dict[int, Any] = {}
        self.asleep: list[Any] = []
        self.ended = False
        self.clash = False
        self.error: tuple[int, BaseException] | None = None


class Rendezvous:
    """Where the threads of a program meet. `timeout` is in seconds.

    The last member to come computes the results of all while the others sleep. So nothing has to be copied on the way in,
    and a small exchange costs each participant one sleep at most.
    """

    def __init__(self, timeout: float = tuning.EXCHANGE_TIMEOUT):
        self.timeout = timeout
        self._lock = threading.Lock()
        self._open: dict[tuple[tuple[int, ...], int], Round] = {}
        self._waiting: dict[int, tuple[Exchange, Round]] = {}
        self._failure: tuple[int, BaseException] | None = None

    def begin(self, member: int, turn: int, exchange: Exchange) -> Round:
        """Give what a member gives to its group's exchange number `turn`."""
        group = exchange.group
        key = (group, turn)
        with self._lock:
            self._check(exchange)
            current = self._open.get(key)
            if current is None:
                current = self._open[key] = Round()
            given = current.given
            if given and next(iter(given.values())).signature != exchange.signature:
                current.clash = True
            given[member] = exchange
            complete = len(given) == len(group) and not current.clash
            if complete:
                del self._open[key]
        if complete:
            self._compute(current, member, exchange)
        elif current.clash:
            self._end(current)
        return current

    def wait(self, begun: Round, member: int, exchange: Exchange) -> Result:
        """The member's result of an exchange that it began."""
        if not begun.ended:
            self._sleep(begun, member, exchange)
        if begun.clash:
            own = exchange.signature
            raise exchange.clash([(n, str(e)) for n, e in begun.given.items() if e.signature != own])
        if begun.error is not None:
            number, cause = begun.error
            if number == member:
                raise cause
            raise Aborted(f"participant {number} failed: {cause}", subject=exchange.subject) from cause
        return begun.results.pop(member)

    def _sleep(self, begun: Round, member: int, exchange: Exchange) -> None:
        alarm = _thread.allocate_lock()
        alarm.acquire()
        with self._lock:
            if begun.ended:
                return
            self._check(exchange)
            other = self._elsewhere(begun, member, exchange)
            if other is not None:
                raise exchange.clash([other])
            begun.asleep.append(alarm)
            self._waiting[member] = exchange, begun
        awake = alarm.acquire(timeout=self.timeout)
        with self._lock:
            self._waiting.pop(member, None)
            if begun.ended:
                return
            self._check(exchange)
            if not awake:
                raise exchange.missing([n for n in exchange.group if n not in begun.given], self.timeout)

    def _elsewhere(self, begun: Round, member: int, exchange: Exchange) -> tuple[int, str] | None:
        """A member that sleeps until this one comes to another exchange: then neither would ever come."""
        for number in exchange.group:
            if number not in begun.given and number in self._waiting:
                theirs, where = self._waiting[number]
                if member in theirs.group and member not in where.given:
                    return number, str(theirs)
        return None

    def _compute(self, begun: Round, member: int, exchange: Exchange) -> None:
        try:
            with torch.no_grad():
                results = exchange.for_all([begun.given[n] for n in exchange.group])
            begun.results.update(zip(exchange.group, results, strict=True))
        except BaseException as error:  # every member raises it
            begun.error = member, error
        finally:
            self._end(begun)

    def _end(self, begun: Round) -> None:
        with self._lock:
            begun.ended = True
            for alarm in begun.asleep:
                alarm.release()
            begun.asleep.clear()

    def _check(self, exchange: Exchange) -> None:
        if self._failure is not None:
            number, cause = self._failure
            raise Aborted(f"participant {number} failed: {cause}", subject=exchange.subject) from cause

    def fail(self, member: int, cause: BaseException) -> None:
        """Wake everybody who waits: `member` will not come any more."""
        with self._lock:
            self._failure = self._failure or (member, cause)
            for _, begun in self._waiting.values():
                for alarm in begun.asleep:
                    alarm.release()
                begun.asleep.clear()
