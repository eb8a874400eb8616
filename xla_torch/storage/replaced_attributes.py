"""Attributes of torch's and Python's modules and classes that have other values for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Put = Callable[[Any, str, Any], None]


@contextlib.contextmanager
def replacing() -> Iterator[Put]:
    """A block with a function ``put(owner, name, value)``, whose changes end with the block."""
    kept = list[tuple[Any, str, Any]]()

    def put(owner: Any, name: str, value: Any) -> None:
        kept.append((owner, name, vars(owner).get(name, kept)))  # the list itself stands for nothing
        setattr(owner, name, value)

    try:
        yield put
    finally:
        for owner, name, value in reversed(kept):
            delattr(owner, name) if value is kept else setattr(owner, name, value)
