"""Which process runs which participants, and how a process group or a mesh of devices says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ..core.errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Placement:
    """The process of each participant, as its rank among those of the session; participants are numbered replica-major."""

    ranks: tuple[int, ...]
    num_replicas: int
    num_partitions: int

    @property
    def processes(self) -> int:
        """How many processes there are."""
        return len(set(self.ranks))

    def rank_of(self, number: int) -> int:
        """The process that runs a participant."""
        return self.ranks[number]

    def numbers_on(self, ranks: Collection[int]) -> list[int]:
        """The participants that these processes run."""
        return [number for number, rank in enumerate(self.ranks) if rank in ranks]


def placement_of(group: Any, num_replicas: int | None, num_partitions: int,
                 device_assignment: Sequence[Any] | None) -> tuple[tuple[int, ...], Placement]:
    """The global ranks of a session's processes, and the placement of participants on them.

    `group` is a process group or a DeviceMesh. Raises InvalidArgument where processes and participants do not fit.
    """
    members, ranks, num_partitions = _ranks(group, num_partitions, device_assignment)
    if num_replicas is None:
        num_replicas = max(1, len(ranks) // num_partitions)
    if num_replicas * num_partitions != len(ranks) or set(ranks) != set(range(len(members))):
        raise InvalidArgument("processes and participants do not fit", subject="of_process_group",
                              got=f"{len(members)} processes, participants on ranks {list(ranks)}",
                              expected=f"{num_replicas} replicas x {num_partitions} partitions = "
                                       f"{num_replicas * num_partitions} participants, and one or more on each rank",
                              hint="name the rank of each participant with device_assignment=")
    return members, Placement(ranks, num_replicas, num_partitions)


def _ranks(group: Any, num_partitions: int, assignment: Sequence[Any] | None) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The global ranks of the group's processes, the process of each participant as its place among them, and the number
    of partitions."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("there is no process group", subject="of_process_group",
                              hint="call torch.distributed.init_process_group first")
    mesh = getattr(group, "mesh", None)
    if isinstance(mesh, torch.Tensor):
        if mesh.dim() > 2:
            raise InvalidArgument("a mesh of processes has too many dimensions", subject="of_process_group",
                                  got=list(mesh.shape), expected="[replicas] or [replicas, partitions]")
        numbers = mesh.reshape(-1).tolist()
        members = tuple(sorted(numbers))
        return members, tuple(members.index(n) for n in numbers), mesh.shape[1] if mesh.dim() == 2 else num_partitions
    members = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
    if assignment is None:
        return members, tuple(range(len(members))), num_partitions
    return members, tuple(int(rank) for rank in np.asarray(assignment).reshape(-1)), num_partitions
