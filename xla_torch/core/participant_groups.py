"""Replica groups: what their numbers mean, and which participants are in one. Free of torch, as HLO text is."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import assert_never

from .errors import ExecutionError

HINT_PARTICIPANTS = ("run one participant per process with distributed.run_on_processes(program, [arguments]), or all in threads "
                     "with run_replicas(..., num_replicas=, num_partitions=)")

Groups = Sequence[Sequence[int]]
"""Groups of numbers as an instruction lists them; none stand for one group of everybody."""


class GroupMode(enum.StrEnum):
    """What the numbers in replica groups are, and who else is in a group: XLA's CollectiveOpGroupMode, with its texts."""

    CROSS_REPLICA = "cross_replica"
    """Replicas; a group for each partition."""
    CROSS_PARTITION = "cross_partition"
    """Partitions; a group for each replica."""
    CROSS_BOTH = "cross_replica_and_partition"
    """Replicas; all partitions of them are one group."""
    FLATTENED = "flattened_id"
    """Participants, replica-major."""


def members(groups: Groups, mode: GroupMode, replica: int, partition: int, replicas: int,
            partitions: int) -> tuple[int, ...] | None:
    """The participants, replica-major, in the group of this replica's partition, or None where it is in none.

    Raises ExecutionError for a group that names a participant which does not exist.
    """
    match mode:
        case GroupMode.CROSS_REPLICA:
            found = _group_of(groups, replica, replicas, "replica")
            return found and tuple(r * partitions + partition for r in found)
        case GroupMode.CROSS_PARTITION:
            found = _group_of(groups, partition, partitions, "partition")
            return found and tuple(replica * partitions + p for p in found)
        case GroupMode.CROSS_BOTH:
            found = _group_of(groups, replica, replicas, "replica")
            return found and tuple(r * partitions + p for r in found for p in range(partitions))
        case GroupMode.FLATTENED:
            return _group_of(groups, replica * partitions + partition, replicas * partitions, "participant")
        case _:
            assert_never(mode)


def _group_of(groups: Groups, own: int, count: int, kind: str) -> tuple[int, ...] | None:
    if not groups:
        return tuple(range(count))
    for group in groups:
        for number in group:
            if not 0 <= number < count:
                raise ExecutionError(f"a replica group names {kind} {number}, and there are {count}",
                                     got=[list(g) for g in groups], expected=f"numbers from 0 to {count - 1}",
                                     hint=HINT_PARTICIPANTS)
    return next((tuple(g) for g in groups if own in g), None)
