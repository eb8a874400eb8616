"""Python's search for cycles of garbage, put off while a program is made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from . import tuning


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Within the block Python does not search for cycles of garbage, and behind it once at most for what the block made.

    Loading and lowering make hundreds of thousands of objects that all stay, and each search walks through these and through
    all modules: a third of the time that a program takes to load and lower, for nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _search_once()
        gc.enable()


def _search_once() -> None:
    """Search what was made, where that is much. Python would do so two or three times, in the middle of the program's first call:
    objects grow old by being searched twice, and then all there are may be. All are searched here where most of them are new, so
    that many programs do not make it walk through all of them for each."""
    made = gc.get_count()[0]
    if made >= tuning.COLLECTED_FROM:
        gc.collect(2 if made > 4 * len(gc.get_objects(generation=2)) else 1)
