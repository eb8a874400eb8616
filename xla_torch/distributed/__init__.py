"""Participants of a program: replicas and partitions, their groups, and the queues that link a program with its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .local import run_replicas

if TYPE_CHECKING:
    from .processes import Processes, of_process_group, run_on_processes

__all__ = ["Processes", "of_process_group", "run_on_processes", "run_replicas"]


def __getattr__(name: str) -> Any:
    """What needs torch.distributed, which some builds of torch lack, is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import processes

    return getattr(processes, name)
