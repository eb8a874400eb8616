"""Files of whole arrays for the processes that run a partitioned program together: each takes its part of the arguments, and the
first has the whole results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch.distributed as dist

from ..core.errors import InvalidArgument
from ..distributed.processes import Processes
from ..partitioning.annotations import whole_shape
from ..running.computation import XlaComputation
from .shards import shard_arguments, unshard


def are_whole(computation: XlaComputation, arrays: Sequence[np.ndarray]) -> bool:
    """Whether arguments of a partitioned program that says which whole arrays it is about are those, and not one participant's."""
    stated = whole_shape(computation.module) if _is_partitioned(computation) else None
    if stated is None:
        return False
    given, own = [a.shape for a in arrays], [p.dimensions for p in computation.program_shape.parameters]
    return given != own and given == [p.dimensions for p in stated.parameters]


def own_part(computation: XlaComputation, arrays: Sequence[np.ndarray], session: Processes | None) -> list[np.ndarray]:
    """What this process's participant has of whole arguments. Raises InvalidArgument where they do not fit."""
    return list(shard_arguments(computation, list(arrays))[0 if session is None else session.participants[0].partition_id])


def gathered(computation: XlaComputation, results: Sequence[np.ndarray], session: Processes) -> list[np.ndarray] | None:
    """The whole results in the first process, None in the others, which all have to call this. Raises InvalidArgument for a
    program that does not say how its results lie."""
    root = computation.entry.root
    if dist.get_world_size() == 1:
        return list(results)
    if not _is_partitioned(computation) or "sharding" not in root.common:
        raise InvalidArgument("several processes would write one file, and the program does not say how its results lie",
                              subject="--save", got=computation.name, expected="a name with {participant}")
    every: list[tuple[int, list[np.ndarray]]] = [(0, [])] * dist.get_world_size()
    dist.gather_object((session.numbers[0], list(results)), every if session.rank == 0 else None)
    if session.rank != 0:
        return None
    first = [own for _, own in sorted(every, key=lambda of: of[0])][:session.num_partitions]  # the first replica's
    shapes, stated = [s for s in root.shape.leaves() if s.is_array], whole_shape(computation.module)
    sizes = [None] * len(shapes) if stated is None else [s.dimensions for s in stated.result.leaves() if s.is_array]
    lies = [sharding for sharding, s in zip(root.common["sharding"].leaves(root.shape), root.shape.leaves(), strict=True) if s.is_array]
    return [unshard([own[k] for own in first], sharding, size) for k, (sharding, size) in enumerate(zip(lies, sizes, strict=True))]


def _is_partitioned(computation: XlaComputation) -> bool:
    return bool(computation.partitioning.about) and not computation.partitioning.is_whole
