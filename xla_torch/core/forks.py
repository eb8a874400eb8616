"""What a forked process has anew. Of its parent's threads it has the one alone that forked: a lock that another one held would be
held for ever, and a program that another one was making would never be made.

So all that waits for threads of this package goes by the classes here, but for what belongs to a session of participants, which
a forked process cannot use (`distributed/participant.py`).
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Lock:
    """A lock that its owner may take again. In a forked process nobody holds it but the thread that forked."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        self._lock = _taken_by_nobody_else(self._lock)


class cached_property(functools.cached_property[_T]):
    """Python's, which before 3.12 has one lock for all objects of a class, and holds it while a value is made."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        super().__init__(function)
        if hasattr(self, "lock"):
            _properties.append(self)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_properties: list[Any] = []
_in_child: list[Callable[[], None]] = []


def in_child(run: Callable[[], None]) -> Callable[[], None]:
    """What a module does in a forked process."""
    _in_child.append(run)
    return run


def _taken_by_nobody_else(lock: threading.RLock) -> threading.RLock:
    """The lock, or a new one where a thread has it that this process has not."""
    if not lock.acquire(blocking=False):
        return threading.RLock()
    lock.release()
    return lock


unforked = Lock()
"""Nobody forks while a thread holds this: for what starts processes, whose pipes a forked process would hold open."""


def _forked() -> None:
    unforked.release()
    for lock in tuple(_locks):
        lock.after_fork()
    for made in _properties:
        made.lock = _taken_by_nobody_else(made.lock)
    for run in _in_child:
        run()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=unforked.acquire, after_in_parent=unforked.release, after_in_child=_forked)
