"""Exchanges that are watched: when a participant began each, when it asked for the result, and when it had it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator

from ..core.forks import Lock
from .exchange import Exchange, Result
from .participant import Participant


@dataclasses.dataclass
class Seen:
    """One exchange of one participant. Times are seconds of `time.perf_counter`, infinite for what has not been; `awaited` and
    `ended` are those of the first time that the result was asked for."""

    participant: int
    group: tuple[int, ...]
    kind: str
    subject: str
    bytes: int
    began: float
    begun: float = math.inf
    """When the participant went on to something else."""
    awaited: float = math.inf
    ended: float = math.inf


WATCHERS: list[list[Seen]] = []
"""Where exchanges of this process are noted, while somebody watches."""

_lock = Lock()


@contextlib.contextmanager
def watched(into: list[Seen]) -> Iterator[None]:
    """While this lasts, every exchange that a program of this process begins is noted, in whatever thread it runs. What is noted
    gets its later times as they come; they are infinite until then."""
    with _lock:
        WATCHERS.append(into)
    try:
        yield
    finally:
        with _lock:
            WATCHERS[:] = [one for one in WATCHERS if one is not into]


class Watched:
    """An exchange that is begun, and noted. A `Future`."""

    __slots__ = ("_future", "_seen")

    def __init__(self, participant: Participant, exchange: Exchange):
        size, kind = sum(v.nbytes for v in exchange.value), type(exchange).__name__
        self._seen = Seen(participant.number, exchange.group, kind, exchange.subject, size, time.perf_counter())
        for into in list(WATCHERS):
            into.append(self._seen)
        self._future = participant.begin(exchange)
        self._seen.begun = time.perf_counter()

    def result(self) -> Result:
        self._seen.awaited = min(self._seen.awaited, time.perf_counter())
        try:
            return self._future.result()
        finally:
            self._seen.ended = min(self._seen.ended, time.perf_counter())
