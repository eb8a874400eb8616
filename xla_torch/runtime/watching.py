"""Whether programs are watched: then they are evaluated one instruction after another, and somebody sees each value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch

from ..core.forks import Lock
from ..hlo.ir import Computation

Run: TypeAlias = Callable[[str, Computation, Sequence[torch.Tensor], torch.device], tuple[torch.Tensor, ...]]
"""What runs a watched program: its name, its canonical entry, flat arguments and their device to the flat results."""

_lock = Lock()
_run: list[Run] = []


def watching() -> Run | None:
    """What runs programs while they are watched; None while they are not."""
    return _run[-1] if _run else None


@contextlib.contextmanager
def installed(run: Run) -> Iterator[None]:
    """While this lasts, every program of this process goes through `run`: also those of other threads, since participants and
    torch's backward passes have threads of their own."""
    with _lock:
        _run.append(run)
    try:
        yield
    finally:
        with _lock:
            _run.remove(run)
