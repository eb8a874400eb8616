"""Progress bars for long loads and loops: on a terminal, where tqdm is installed and the caller asked for them.

Library code reports through `steps` and `meter`, which cost nothing while no bars are shown::

    with progress.shown():
        computation = load("large.hlo")
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

DELAY = 0.7
"""Seconds before a bar appears; what is done sooner stays silent."""

_tqdm: Callable[..., Any] | None = None
"""Makes a bar while bars are shown."""

_open: weakref.WeakSet[Any] = weakref.WeakSet()


@contextmanager
def shown() -> Iterator[None]:
    """Show bars for what runs inside, if standard error is a terminal and tqdm is installed. All are gone at the end,
    also after an error."""
    global _tqdm  # noqa: PLW0603 - one terminal, one switch
    before, _tqdm = _tqdm, _installed() if sys.stderr.isatty() else None
    try:
        yield
    finally:
        _tqdm = before
        for bar in list(_open):
            bar.close()


def steps(items: Iterable[T], label: str) -> Iterable[T]:
    """`items` to iterate over, with a bar if bars are shown; a count where they have no length."""
    return items if _tqdm is None else _bar(_tqdm, label, iterable=items)


def meter(total: int, label: str) -> Callable[[int], None]:
    """A function that takes how far something has come, out of `total`."""
    if _tqdm is None:
        return _silent
    bar = _bar(_tqdm, label, total=total, unit="B", unit_scale=True)

    def reached(position: int) -> None:
        bar.update(position - bar.n)
        if position >= total:
            bar.close()

    return reached


def _silent(position: int) -> None:
    """Nobody watches."""


def _bar(tqdm: Callable[..., Any], label: str, **options: Any) -> Any:
    bar = tqdm(desc=label, leave=False, delay=DELAY, **options)
    _open.add(bar)
    return bar


def _installed() -> Callable[..., Any] | None:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
