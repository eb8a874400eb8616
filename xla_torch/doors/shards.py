"""Whole arrays and what each of several partitions holds of them, for programs that are about one partition's.

A program with ``sharding=`` annotations comes in two states. Before XLA has partitioned it, it is about whole arrays, and runs
with that meaning on one participant (or on each of several, redundantly). Afterwards it is one partition's part of the work,
and runs as it is on as many participants; `shard_arguments` and `unshard` cut its arguments and put its results together::

    program = xla_torch.load("jit_step.cpu_after_optimizations.txt")     # partitioned: say 4
    results = xla_torch.run_replicas(program, xla_torch.shard_arguments(program, arguments), num_partitions=4)
    loss = xla_torch.unshard([r[0] for r in results], "{replicated}")
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..hlo.sharding import Sharding, ShardingKind
from ..running.computation import XlaComputation, require_computation

__all__ = ["Sharding", "shard", "shard_arguments", "unshard"]


def shard(array: Any, sharding: Sharding | str, partitions: int = 0) -> list[Any]:
    """What each partition holds of a tensor or NumPy array: a list of views, one for each partition.

    `sharding` may be given as HLO text. `partitions` is needed where it does not say how many there are. Where a dimension is
    no multiple of its number of tiles, tiles are as large as the first and filled with zeros, as XLA has them; where only one
    partition has the array, the others have zeros, and so have all but the first of those whose arrays are summands
    (``unreduced``). Raises InvalidArgument for a sharding that does not fit the array or does
    not say what each partition has.

    >>> xla_torch.shard(torch.arange(4), "{devices=[2]<=[2]}")
    [tensor([0, 1]), tensor([2, 3])]
    """
    _require_array(array, "shard")
    sharding = _fitting(sharding, len(array.shape), partitions)
    places = sharding.slices(tuple(array.shape), partitions)
    grid = sharding.grid(len(array.shape), len(places))
    return [_filled(array, place if grid.summands(k)[0] == k else None, size) for k, (place, size) in enumerate(places)]


def unshard(arrays: Sequence[Any], sharding: Sharding | str, sizes: Sequence[int] | None = None) -> Any:
    """The whole array from what each partition holds, the inverse of `shard`. Of what several hold, the first one's counts;
    summands (``unreduced``) are added up.

    `sizes` are those of the whole array, needed where they are no multiples of the numbers of tiles. Raises InvalidArgument.

    >>> xla_torch.unshard([torch.tensor([0, 1]), torch.tensor([2, 3])], "{devices=[2]<=[2]}")
    tensor([0, 1, 2, 3])
    """
    if not isinstance(arrays, (list, tuple)):
        raise InvalidArgument("not what each partition holds", subject="unshard", got=type(arrays).__name__,
                              expected="a list of arrays, one for each partition")
    for array in arrays:
        _require_array(array, "unshard")
    if not arrays:
        raise InvalidArgument("there are no arrays", subject="unshard")
    local = tuple(arrays[0].shape)
    sharding = _fitting(sharding, len(local), len(arrays))
    grid = sharding.grid(len(local), len(arrays))
    whole = tuple(n * count for n, count in zip(local, grid.counts, strict=True)) if sizes is None else tuple(sizes)
    places = sharding.slices(whole, len(arrays))
    if any(tuple(a.shape) != size for a, (_, size) in zip(arrays, places, strict=True)):
        raise InvalidArgument("the arrays are not the tiles of one of this size", subject="unshard",
                              got=", ".join(str(list(a.shape)) for a in arrays), expected=f"{sharding} of {list(whole)}")
    result = arrays[0].new_empty(whole) if isinstance(arrays[0], torch.Tensor) else np.empty(whole, arrays[0].dtype)
    first: dict[int, int] = {}
    for number, tile in enumerate(grid.tiles.tolist()):
        first.setdefault(tile, number)
    for number in (own for tile, own in first.items() if tile >= 0):
        place, _ = places[number]
        pieces = [arrays[k][tuple(slice(0, s.stop - s.start) for s in place or ())] for k in grid.summands(number)]
        result[place or ()] = functools.reduce(operator.add, pieces)
    return result


def shard_arguments(computation: XlaComputation, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The arguments of each partition of a partitioned program, from whole arrays, as its parameters' annotations say.

    A parameter without annotation is the same for all. Programs derived from this one have no annotations: cut their arguments
    with this one. Raises InvalidArgument for a program that has not been partitioned, and for arrays that do not fit.

    >>> program = xla_torch.parse_hlo('''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
    ...   ROOT y = f32[4] negate(x), sharding={devices=[2]<=[2]}
    ... }''')
    >>> xla_torch.shard_arguments(xla_torch.partition(program), [torch.arange(4.0)])
    [(tensor([0., 1.]),), (tensor([2., 3.]),)]
    """
    require_computation(computation, "shard_arguments")
    if not isinstance(arguments, (list, tuple)):
        raise InvalidArgument("not the arguments", subject="shard_arguments", got=type(arguments).__name__,
                              expected="a list or tuple, one for each parameter")
    partitioning = computation.partitioning
    if partitioning.is_whole:
        raise InvalidArgument("the program has not been partitioned", subject="shard_arguments", got=str(partitioning),
                              expected="a partitioned program", hint="it takes whole arrays; call it with them")
    parameters = computation.entry.parameters
    if len(arguments) != len(parameters):
        raise InvalidArgument("wrong number of arguments", subject="shard_arguments", got=len(arguments),
                              expected=len(parameters))
    partitions = max(partitioning.partitions, computation.module.num_partitions)
    columns = []
    for number, (value, parameter) in enumerate(zip(arguments, parameters, strict=True)):
        sharding = parameter.common.get("sharding") or Sharding(ShardingKind.REPLICATED)
        try:
            columns.append(_shard_tree(value, sharding, parameter.shape, partitions))
        except InvalidArgument as error:
            raise error.located(f"argument {number} ({parameter.name})") from None
    return list(zip(*columns, strict=True)) if columns else [()] * partitions


def _shard_tree(value: Any, sharding: Sharding, shape: Shape, partitions: int) -> list[Any]:
    """A value of a parameter's shape, which may be a tuple, as each partition has it."""
    rest = iter(sharding.leaves(shape))

    def cut(part: Any, own: Shape) -> list[Any]:
        if own.is_tuple:
            columns = [cut(p, s) for p, s in zip(part, own.tuple_shapes, strict=True)]
            return [tuple(row) for row in zip(*columns, strict=True)] if columns else [()] * partitions
        tiles = shard(part, next(rest), partitions)
        if tuple(tiles[0].shape) != own.dimensions:
            raise InvalidArgument("the tiles of the whole array have another size", got=list(part.shape),
                                  expected=f"an array whose tiles are {own}")
        return tiles

    return cut(value, shape)


def _require_array(value: Any, subject: str) -> None:
    if not isinstance(value, (torch.Tensor, np.ndarray, np.generic)):  # NumPy makes numbers of arrays without dimensions
        raise InvalidArgument("not an array", subject=subject, got=type(value).__name__, expected="a tensor or a NumPy array")


def _fitting(sharding: Sharding | str, rank: int, partitions: int) -> Sharding:
    sharding = Sharding.parse(sharding) if isinstance(sharding, str) else sharding
    sharding.check_rank(rank)
    sharding.check_devices(partitions)
    return sharding


def _filled(array: Any, place: tuple[slice, ...] | None, size: tuple[int, ...]) -> Any:
    """A tile of the array, with zeros behind it up to a size."""
    tile = None if place is None else array[place]
    if tile is not None and tuple(tile.shape) == size:
        return tile
    whole = array.new_zeros(size) if isinstance(array, torch.Tensor) else np.zeros(size, array.dtype)
    if tile is not None:
        whole[tuple(slice(0, n) for n in tile.shape)] = tile
    return whole
