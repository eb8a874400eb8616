"""Files of whole arrays for the processes that run a partitioned program together: each takes its part of the arguments, and the
first has the whole results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch.distributed as dist

from ..core.errors import InvalidArgument
from ..distributed.processes import Processes
from ..partitioning.annotations import whole_shape
from ..runtime.computation import XlaComputation
from .shards import shard_arguments, unshard


def are_whole(computation: XlaComputation, arrays: Sequence[np.ndarray]) -> bool:
    """Whether arguments of a partitioned program are the whole arrays that it says it is about, and not one participant's."""
    stated = whole_shape(computation.module) if _is_partitioned(computation) else None
    if stated is None:
        return False
    given, own = [a.shape for a in arrays], [p.dimensions for p in computation.program_shape.parameters]
    return given != own and given == [p.dimensions for p in stated.parameters]


def own_part(computation: XlaComputation, arrays: Sequence[np.ndarray], session: Processes | None) -> list[np.ndarray]:
    """What this process's participant has of whole arguments. Raises InvalidArgument where they do not fit."""
    return list(shard_arguments(computation, list(arrays))[0 if session is None else session.participants[0].partition_id])


def own_path(path: Path, number: int) -> Path:
    """The file of a participant, whose number stands for ``{participant}``."""
    return Path(str(path).replace("{participant}", str(number)))


def save(path: Path, computation: XlaComputation, results: Sequence[np.ndarray], session: Processes | None) -> None:
    """Write each participant's results where the file's name says whose they are, else the whole ones, by the first process."""
    own = own_path(path, 0 if session is None else session.numbers[0])
    kept = results if own != path or session is None else _gathered(computation, results, session)
    if kept is not None:
        np.savez(own, allow_pickle=False, **{f"out{n}": result for n, result in enumerate(kept)})


def _gathered(computation: XlaComputation, results: Sequence[np.ndarray], session: Processes) -> list[np.ndarray] | None:
    """The whole results in the first process, None in the others, which all have to call this. Raises InvalidArgument for a
    program that does not say how its results lie."""
    root = computation.entry.root
    if dist.get_world_size() == 1:
        return list(results)
    if not _is_partitioned(computation) or "sharding" not in root.common:
        raise InvalidArgument("several processes would write one file: the program has no shardings of its results",
                              subject="--save", got=computation.name, expected="a name with {participant}")
    every: list[tuple[int, list[np.ndarray]]] = [(0, [])] * dist.get_world_size()
    dist.gather_object((session.numbers[0], list(results)), every if session.rank == 0 else None)
    if session.rank != 0:
        return None
    first = [own for _, own in sorted(every, key=lambda of: of[0])][:session.num_partitions]  # the first replica's
    try:
        return list(unshard([tuple(own) for own in first], computation))
    except InvalidArgument as error:
        error.hint = "save each participant's results: a name with {participant}"
        raise


def _is_partitioned(computation: XlaComputation) -> bool:
    return bool(computation.partitioning.about) and not computation.partitioning.is_whole
