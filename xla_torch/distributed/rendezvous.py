"""Where the threads of one process exchange values: the last to come computes the results of all."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterable
from typing import Any

import torch

from ..core import tuning
from ..core.errors import ExecutionError
from .exchange import Aborted, Exchange, Result


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
        self._left: set[int] = set()
        self._in_vain: dict[int, ExecutionError] = {}
        """What those raise who wait for members that never come."""
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
            begun.asleep.append(alarm)
            self._waiting[member] = exchange, begun
            if any(n in self._left or n in self._waiting for n in _missing(exchange, begun)):
                self._find_in_vain()
        awake = alarm.acquire(timeout=self.timeout)
        with self._lock:
            self._waiting.pop(member, None)
            if begun.ended:
                return
            if member in self._in_vain:
                raise self._in_vain[member]
            self._check(exchange)
            if not awake:
                raise exchange.missing(_missing(exchange, begun), self.timeout)

    def _find_in_vain(self) -> None:
        """Wake those who wait for members that have ended, or that wait in vain themselves, as all do who wait for each other."""
        vain = {number for number, (_, begun) in self._waiting.items() if not (begun.ended or begun.clash)}
        while come := {n for n in vain if not any(m in self._left or m in vain for m in _missing(*self._waiting[n]))}:
            vain -= come
        for number in vain - self._in_vain.keys():
            exchange, begun = self._waiting[number]
            others = [(n, str(self._waiting[n][0])) for n in sorted(vain) if self._waiting[n][1] is not begun]
            left = [n for n in _missing(exchange, begun) if n in self._left]
            self._in_vain[number] = exchange.ended(left, others) if left else exchange.clash(others)
        for number in vain:
            self._wake(self._waiting[number][1])

    @staticmethod
    def _wake(begun: Round) -> None:
        for alarm in begun.asleep:
            alarm.release()
        begun.asleep.clear()

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
            self._wake(begun)

    def _check(self, exchange: Exchange) -> None:
        if self._failure is not None:
            number, cause = self._failure
            raise Aborted(f"participant {number} failed: {cause}", subject=exchange.subject) from cause

    def start(self, members: Iterable[int]) -> None:
        """These members run, and may come."""
        with self._lock:
            self._left.difference_update(members)

    def leave(self, member: int) -> None:
        """`member` has ended, and will not come any more: wake those who wait for it."""
        with self._lock:
            self._left.add(member)
            self._find_in_vain()

    def fail(self, member: int, cause: BaseException) -> None:
        """Wake everybody who waits: `member` will not come any more."""
        with self._lock:
            self._failure = self._failure or (member, cause)
            for _, begun in self._waiting.values():
                self._wake(begun)


def _missing(exchange: Exchange, begun: Round) -> list[int]:
    return [n for n in exchange.group if n not in begun.given]
