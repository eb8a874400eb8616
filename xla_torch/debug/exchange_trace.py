"""Who waited for whom: every exchange of every participant, when it was begun, when its result was wanted and when it was there.

Programs run as they do, lowered, with what they compute beside their exchanges; only clocks are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..core.errors import ExecutionError
from ..core.printable import printable
from ..distributed.watched import Seen, watched
from .profile_pages import aligned, time_of, write_trace

_NAME = 120
"""Characters of a name that are shown."""


@dataclasses.dataclass(frozen=True)
class ExchangeEvent:
    """Describe one collective as one participant saw it, with times in seconds since 1970.

    `participant` is its number, `group` the numbers of all members, and `turn` counts the group's collectives. `kind` is the
    kind of collective, `subject` the instruction, and `bytes` the size of this participant's contribution. `began` is the time
    of the contribution, `begun` the time the participant continued, `awaited` the time it asked for the result, and `ended` the
    time it had it. A time that was not observed is infinite. Times of several machines are as comparable as their clocks.

    >>> builder = XlaBuilder("total")
    >>> total = builder.build(ops.CrossReplicaSum(builder.parameter(0, Shape.parse("f32[2]"))))
    >>> with xla_torch.debug.exchanges() as found:
    ...     results = run_replicas(total, [(torch.ones(2),), (torch.ones(2),)], num_replicas=2)
    >>> event = found.events[0]
    >>> event.participant, event.group, event.kind, event.bytes, event.waited >= 0
    (0, (0, 1), 'AllReduce', 8, True)
    """

    participant: int
    group: tuple[int, ...]
    turn: int
    kind: str
    subject: str
    bytes: int
    began: float
    begun: float
    awaited: float
    ended: float

    @property
    def waited(self) -> float:
        """Return the seconds the participant was idle; 0 if it never asked for the result."""
        return self.ended - self.awaited if self.ended < math.inf else 0.0


@dataclasses.dataclass(frozen=True)
class Waiting:
    """Describe a participant's wait in one `event`.

    `last` is the number of the last member to begin, if it began while this one waited, and `late` the seconds until then. The
    rest of the wait is data transfer. `last` is None if all had begun, or if the trace lacks some members.

    >>> builder = XlaBuilder("total")
    >>> total = builder.build(ops.CrossReplicaSum(builder.parameter(0, Shape.parse("f32[2]"))))
    >>> with xla_torch.debug.exchanges() as found:
    ...     results = run_replicas(total, [(torch.ones(2),), (torch.ones(2),)], num_replicas=2)
    >>> all(0 <= wait.late <= wait.event.waited for wait in found.waits())
    True
    """

    event: ExchangeEvent
    last: int | None
    late: float


class ExchangeTrace:
    """Hold the observed collectives: `events`, sorted by participant and time.

    `print` shows them as a table.

    >>> builder = XlaBuilder("total")
    >>> total = builder.build(ops.CrossReplicaSum(builder.parameter(0, Shape.parse("f32[2]"))))
    >>> with xla_torch.debug.exchanges() as found:
    ...     results = run_replicas(total, [(torch.ones(2),), (torch.ones(2),)], num_replicas=2)
    >>> len(found.waits()), found.table(rows=1).startswith("2 exchanges of 2 participants")
    (2, True)
    >>> found.to_chrome_trace("exchanges.json")

    Of several processes, each of which calls it, `gathered` is the trace of all:

    >>> dist = torch.distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> len(found.gathered().events)
    2
    >>> dist.destroy_process_group()
    """

    def __init__(self, events: Sequence[ExchangeEvent] = ()):
        self.events = sorted(events, key=lambda event: (event.participant, event.began))

    def waits(self) -> list[Waiting]:
        """Return the wait of each event, in the order of `events`."""
        members: dict[tuple[tuple[int, ...], int], list[ExchangeEvent]] = {}
        for event in self.events:
            members.setdefault((event.group, event.turn), []).append(event)
        found = []
        for event in self.events:
            together = members[event.group, event.turn]
            last = max(together, key=lambda one: one.began)
            late = min(last.began, event.ended) - event.awaited
            is_known = len(together) == len(event.group) and late > 0
            found.append(Waiting(event, last.participant if is_known else None, late if is_known else 0.0))
        return found

    def __str__(self) -> str:
        return self.table()

    def table(self, rows: int = 30) -> str:
        """Return the longest waits over all participants and runs as text."""
        sites: dict[tuple[str, str], list[Waiting]] = {}
        for wait in self.waits():
            sites.setdefault((wait.event.kind, wait.event.subject), []).append(wait)
        head = ("waited", "for others", "beside", "runs", "bytes", "last to come", "exchange")
        dearest = sorted(sites.values(), key=lambda waits: -sum(wait.event.waited for wait in waits))
        lines = aligned([head, *map(_cells, dearest[:rows])], right=5)
        waited = sum(event.waited for event in self.events)
        people = len({event.participant for event in self.events})
        lines.insert(0, f"{len(self.events)} exchanges of {people} participants, which waited {time_of(waited)} in sum\n")
        return "\n".join([*lines, *([f"... and {len(dearest) - rows} more"] if len(dearest) > rows else [])])

    def to_chrome_trace(self, path: Any) -> None:
        """Write the trace for chrome://tracing and Perfetto.

        Each participant is a process with one line for its waits and one for its collectives in flight. Arrows lead from the
        last member of a group to those that waited for it.
        """
        write_trace(_chrome_events(self.waits()), path)

    def gathered(self) -> ExchangeTrace:
        """Return the trace of all torch.distributed processes, each of which must call this.

        Only this trace knows which member was last. Raises ExecutionError if torch.distributed is not initialised.
        """
        groups = torch.distributed
        if not groups.is_available() or not groups.is_initialized():
            raise ExecutionError("there are no processes to gather traces from", subject="ExchangeTrace.gathered",
                                 got="no process group", expected="torch.distributed.init_process_group was called",
                                 hint="use the trace itself, which has all participants of run_replicas")
        parts: list[Any] = [None] * groups.get_world_size()
        groups.all_gather_object(parts, self.events)
        return ExchangeTrace([event for events in parts for event in events])


def _cells(waits: Sequence[Waiting]) -> tuple[str, ...]:
    events = [wait.event for wait in waits]
    last = Counter(wait.last for wait in waits if wait.last is not None)
    beside = sum(min(event.awaited, event.ended) - event.begun for event in events if event.awaited < math.inf)
    return (time_of(sum(event.waited for event in events)), time_of(sum(wait.late for wait in waits)), time_of(beside),
            str(len(events)), str(sum(event.bytes for event in events)),
            ", ".join(f"{who} ({count})" for who, count in last.most_common(3)), printable(events[0].subject, _NAME))


def _chrome_events(waits: Sequence[Waiting]) -> list[dict[str, Any]]:
    start = min((wait.event.began for wait in waits), default=0.0)
    began = {(wait.event.participant, wait.event.group, wait.event.turn): wait.event.began for wait in waits}
    found: list[dict[str, Any]] = []
    for number, who in enumerate(sorted({wait.event.participant for wait in waits})):
        found.append({"ph": "M", "name": "process_name", "pid": who, "args": {"name": f"participant {who}"}})
        found.append({"ph": "M", "name": "process_sort_index", "pid": who, "args": {"sort_index": number}})
        found.append({"ph": "M", "name": "thread_name", "pid": who, "tid": 0, "args": {"name": "begins and waits"}})
    for number, wait in enumerate(waits):
        event = wait.event
        name, place = printable(event.subject, _NAME), {"pid": event.participant, "tid": 0, "cat": "exchange"}
        stated = {"kind": event.kind, "group": list(event.group), "turn": event.turn, "bytes": event.bytes}
        found.append({"ph": "X", "name": f"begin {name}", "args": stated, **place, **_span(event.began, event.begun, start)})
        if event.ended == math.inf:
            continue
        details = stated | {"waited for": wait.last, "of that, ms": wait.late * 1e3}
        found.append({"ph": "X", "name": f"wait {name}", "args": details, **place, **_span(event.awaited, event.ended, start)})
        for phase, at in (("b", event.began), ("e", event.ended)):
            found.append({"ph": phase, "name": name, "id": number, **place, "ts": (at - start) * 1e6})
        if wait.last is not None:
            arrow = {"name": "waited for", "id": number, "cat": "waited for", "tid": 0}
            came = began[wait.last, event.group, event.turn]
            found.append({"ph": "s", "pid": wait.last, "ts": (came - start) * 1e6, **arrow})
            found.append({"ph": "f", "bp": "e", "pid": event.participant, "ts": (event.ended - start) * 1e6, **arrow})
    return found


def _span(begin: float, end: float, start: float) -> dict[str, float]:
    return {"ts": (begin - start) * 1e6, "dur": (end - begin) * 1e6 if end < math.inf else 0.0}


@contextlib.contextmanager
def exchanges() -> Iterator[ExchangeTrace]:
    """Record the collectives of all programs that run in this block, in all threads.

    Backward passes are included. ``print(found)`` shows a table, and ``found.to_chrome_trace("exchanges.json")`` writes a file
    for Perfetto:

    >>> import torch, xla_torch
    >>> builder = xla_torch.XlaBuilder("total")
    >>> x = builder.parameter(0, xla_torch.Shape.parse("f32[2]"))
    >>> total = builder.build(xla_torch.ops.CrossReplicaSum(x))
    >>> with xla_torch.debug.exchanges() as found:
    ...     results = xla_torch.run_replicas(total, [(torch.ones(2),), (torch.ones(2),)], num_replicas=2)
    >>> sorted((event.participant, event.kind, event.bytes) for event in found.events)
    [(0, 'AllReduce', 8), (1, 'AllReduce', 8)]

    The trace is filled when the block ends. Over several processes each enters the block at the same place of its program, so
    that turns count alike, and then calls ``found.gathered()``, of which one writes the file.
    """
    found, seen = ExchangeTrace(), list[Seen]()
    since = time.time() - time.perf_counter()
    try:
        with watched(seen):
            yield found
    finally:
        turns: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for one in seen:
            key = one.participant, one.group
            found.events.append(ExchangeEvent(
                one.participant, one.group, turns[key], one.kind, one.subject, one.bytes, one.began + since, one.begun + since,
                one.awaited + since, one.ended + since))
            turns[key] += 1
        found.events.sort(key=lambda event: (event.participant, event.began))
