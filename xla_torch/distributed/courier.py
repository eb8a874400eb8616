"""A thread that carries out exchanges one after another, while the thread that began them goes on computing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class Ticket:
    """Something that the courier will have done."""

    __slots__ = ("_done", "_error", "_result", "_task")

    def __init__(self, task: Callable[[], Any]):
        self._task: Callable[[], Any] | None = task
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def run(self) -> None:
        assert self._task is not None
        try:
            self._result = self._task()
        except BaseException as error:  # raised where the result is asked for
            self._error = error
        finally:
            self._task = None
            self._done.set()

    def wait(self) -> Any:
        """The task's result; raises what the task raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


class Courier:
    """Runs tasks in the order in which they are submitted, in a thread that starts with the first of them."""

    def __init__(self, name: str):
        self._name = name
        self._tasks: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Ticket | None = None

    @property
    def idle(self) -> bool:
        """Whether all that was submitted is done: then its owner may do a task itself."""
        return self._last is None or self._last.done

    def submit(self, task: Callable[[], Any]) -> Ticket:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        ticket = self._last = Ticket(task)
        self._tasks.put(ticket)
        return ticket

    def _work(self) -> None:
        while (ticket := self._tasks.get()) is not None:
            ticket.run()

    def close(self, wait: bool = True) -> None:
        """End the thread, after what was submitted. Without `wait` it may still be at that."""
        if self._thread is not None:
            self._tasks.put(None)
            if wait:
                self._thread.join()
            self._thread = None
