"""What is being done, on a terminal: bars for long loads and loops, and the name of what takes long otherwise.

Library code reports through `steps`, `meter` and `doing`, which cost nothing until a caller asks for bars, and has rich::

    with progress.shown():
        computation = load("large.hlo")
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

DELAY = 0.7
"""Seconds before something is shown; what is done sooner stays silent."""

_PAUSE = 0.1
"""Seconds between two changes of a bar."""

_bars: Any = None
"""rich's Progress, while bars are shown."""


@contextmanager
def shown() -> Iterator[None]:
    """Show bars for what runs inside, if standard error is a terminal and rich is installed. All are gone at the end,
    also after an error."""
    global _bars  # noqa: PLW0603 - one terminal, one switch
    before, _bars = _bars, _made() if sys.stderr.isatty() else None
    try:
        yield
    finally:
        if _bars is not None:
            _bars.stop()
        _bars = before


def steps(items: Iterable[T], label: str) -> Iterable[T]:
    """`items` to iterate over, with a bar if bars are shown; a count where they have no length."""
    return items if _bars is None else _stepped(items, _Bar(_bars, label, len(items) if hasattr(items, "__len__") else None))  # type: ignore[arg-type]


def meter(total: int, label: str) -> Callable[[int], None]:
    """A function that takes how far something has come, out of `total`."""
    return _silent if _bars is None else _Bar(_bars, label, total).reached


@contextmanager
def doing(label: str) -> Iterator[None]:
    """Say what is being done, where it takes long and nobody can tell how far it is."""
    if _bars is None:
        yield
        return
    bar = _Bar(_bars, label, None)
    late = threading.Timer(DELAY, bar.reached, (0,))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
        bar.close()


def _silent(position: int) -> None:
    """Nobody watches."""


def _stepped(items: Iterable[T], bar: _Bar) -> Iterator[T]:
    try:
        for number, item in enumerate(items):
            bar.reached(number)
            yield item
    finally:
        bar.close()


class _Bar:
    """One line of the terminal, from `DELAY` seconds on."""

    def __init__(self, bars: Any, label: str, total: int | None):
        self._bars, self._label, self._total = bars, label, total
        self._due, self._task, self._closed, self._lock = time.monotonic() + DELAY, None, False, threading.Lock()

    def reached(self, position: int) -> None:
        """So far it has come. It closes itself at its total."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _PAUSE
            self._show(position)
        if position == self._total:
            self.close()

    def _show(self, position: int) -> None:
        done = f"{position:,}" if position else ""
        done = f"{position / self._total:.0%}" if self._total else done
        with self._lock:
            if self._closed:
                return
            if self._task is None:
                self._task = self._bars.add_task(self._label, total=self._total, done=done)
                self._bars.start()
            self._bars.update(self._task, completed=position, done=done)

    def close(self) -> None:
        """Nothing stays on the terminal: what is printed next begins there."""
        with self._lock, contextlib.suppress(KeyError):
            self._closed = True
            if self._task is not None:
                self._bars.remove_task(self._task)
                self._bars.refresh()
                self._task = None


def _made() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn()
    return Progress(*columns, console=Console(file=sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False)
