"""A thread that does tasks one after another, while the thread that submitted them goes on computing."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_Task = tuple[Future[Any], Callable[[], Any]]


class SerialExecutor:
    """Runs tasks in the order in which they are submitted, in a thread that starts with the first of them.

    `concurrent.futures.ThreadPoolExecutor` would do, but that Python waits for its threads before it exits: a process whose
    peers hang could not end.
    """

    def __init__(self, name: str):
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # Weak: a result is its future's, not ours to keep.
        self._last: Callable[[], Future[Any] | None] = lambda: None

    @property
    def idle(self) -> bool:
        """Whether all that was submitted is done: then its owner may do a task itself."""
        last = self._last()
        return last is None or last.done()

    def submit(self, task: Callable[[], Any]) -> Future[Any]:
        """The future of a task's result, which raises what the task raised."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        future: Future[Any] = Future()
        self._last = weakref.ref(future)
        self._tasks.put((future, task))
        return future

    def _work(self) -> None:
        while (item := self._tasks.get()) is not None:
            _run(*item)
            del item  # while it waits the thread keeps no operands and no result

    def shutdown(self, wait: bool = True) -> None:
        """End the thread, after what was submitted. Without `wait` it may still be at that."""
        if self._thread is not None:
            self._tasks.put(None)
            if wait:
                self._thread.join()
            self._thread = None


def _run(future: Future[Any], task: Callable[[], Any]) -> None:
    try:
        result = task()
    except BaseException as error:  # raised where the result is asked for
        future.set_exception(error)
        del future, task  # the error's traceback keeps this frame
    else:
        future.set_result(result)
