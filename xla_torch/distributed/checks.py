"""Check participants before a program runs on several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument


def check_counts(computation: Any, num_replicas: int, num_partitions: int, where: str = "", hint: str = "") -> None:
    """Raise InvalidArgument where a program says that it is for other numbers of replicas and partitions than there are."""
    stated: dict[str, int] = getattr(computation, "participants", {})
    replicas, partitions = stated.get("replica_count", num_replicas), stated.get("num_partitions", num_partitions)
    if (replicas, partitions) != (num_replicas, num_partitions):
        raise InvalidArgument(
            "the program is made for other numbers of participants", subject=computation.name,
            got=f"{num_replicas} replicas x {num_partitions} partitions{where}",
            expected=f"{replicas} replicas x {partitions} partitions, {replicas * partitions} participants", hint=hint)


def check_arguments(arguments: Sequence[Any], subject: str) -> None:
    """Raise InvalidArgument where a participant's arguments are no tuple: of a tensor, the rows would be taken for them."""
    for place, given in enumerate(arguments):
        if not isinstance(given, (tuple, list)):
            raise InvalidArgument("a participant's arguments are not a tuple", subject=subject,
                                  got=f"{type(given).__name__} at place {place}", expected="one tuple for each participant",
                                  hint="write (x,) for a single argument")


def entry_point(computation: Any, arguments: Sequence[Sequence[Any]]) -> Any:
    """What of a program to call with these arguments: `run_numpy` where some of them are NumPy's."""
    in_numpy = any(isinstance(a, (np.ndarray, np.generic)) for given in arguments for a in given)
    return computation.run_numpy if in_numpy else computation
