"""Python's search for cycles of garbage, put off while a program is made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Within the block Python does not search for cycles of garbage.

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
        gc.enable()
