"""Whole arrays and what each of several partitions holds of them, for programs that are about one partition's.

A program with ``sharding=`` annotations comes in two states. Before XLA has partitioned it, it is about whole arrays, and runs
with that meaning on one participant (or on each of several, redundantly). Afterwards it is one partition's part of the work,
and runs as it is on as many participants; `shard_arguments` and `unshard` cut its arguments and put its results together::

    program = xla_torch.load("jit_step.cpu_after_optimizations.txt")     # partitioned: say 4
    results = xla_torch.run_replicas(program, xla_torch.shard_arguments(program, arguments), num_partitions=4)
    whole = xla_torch.unshard(results, program)
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
from ..hlo.tree import arrays as arrays_of
from ..hlo.tree import from_arrays
from ..partitioning.annotations import whole_shape
from ..runtime.computation import XlaComputation
from ..runtime.steps import require_computation
from .tree_function import TreeFunction

__all__ = ["Sharding", "shard", "shard_arguments", "unshard"]


def shard(array: Any, sharding: Sharding | str, partitions: int = 0) -> list[Any]:
    """Split a tensor or NumPy array into the views that each partition holds.

    `sharding` may be HLO text. `partitions` is needed if the sharding doesn't state their number. If a dimension is no multiple
    of its number of tiles, the last tiles are padded with zeros, as in XLA. If only one partition has the array, the others
    have zeros; for partial sums (``unreduced``), so have all but the first. Raises InvalidArgument for a sharding that doesn't
    fit the array or doesn't determine the tiles.

    >>> xla_torch.shard(torch.arange(4), "{devices=[2]<=[2]}")
    [tensor([0, 1]), tensor([2, 3])]
    """
    _require_array(array, "shard")
    sharding = _fitting(sharding, len(array.shape), partitions)
    places = sharding.slices(tuple(array.shape), partitions)
    grid = sharding.grid(len(array.shape), len(places))
    return [_filled(array, place if grid.summands(k)[0] == k else None, size) for k, (place, size) in enumerate(places)]


def unshard(arrays: Sequence[Any], sharding: Sharding | str | XlaComputation, sizes: Sequence[Any] | None = None) -> Any:
    """Reassemble the whole array from each partition's part; inverts `shard`.

    For replicated parts the first counts; partial sums (``unreduced``) are added. `sharding` may be a result of `partition`,
    which knows the sharding and size of each result. Tuples take a tuple sharding and `sizes` for each array. `sizes` are those
    of the whole array, needed for tiled dimensions because the last tile may be padded. Raises InvalidArgument.

    >>> xla_torch.unshard([torch.tensor([0, 1]), torch.tensor([2, 0])], "{devices=[2]<=[2]}", sizes=[3])
    tensor([0, 1, 2])
    """
    if not isinstance(arrays, (list, tuple)):
        raise InvalidArgument("not a list of arrays, one for each partition", subject="unshard", got=type(arrays).__name__,
                              expected="a list of arrays, one for each partition")
    if not arrays:
        raise InvalidArgument("there are no arrays", subject="unshard")
    if not isinstance(sharding, (Sharding, str)):
        require_computation(sharding, "unshard")
        return _unshard_results(arrays, sharding)
    sharding = Sharding.parse(sharding) if isinstance(sharding, str) else sharding
    if sharding.kind == ShardingKind.TUPLE:
        return _unshard_each(arrays, sharding.elements, sizes)
    for array in arrays:
        _require_array(array, "unshard")
    local = tuple(arrays[0].shape)
    sharding = _fitting(sharding, len(local), len(arrays))
    grid = sharding.grid(len(local), len(arrays))
    if sizes is None and any(count > 1 for count in grid.counts):
        raise InvalidArgument("sizes of the whole array are missing: the last tiles may be padded", subject="unshard",
                              got=f"tiles of {list(local)} by {sharding}", expected="the sizes of the whole array",
                              hint="pass sizes=, or the partitioned program instead of the sharding")
    whole = local if sizes is None else tuple(sizes)
    places = sharding.slices(whole, len(arrays))
    if any(tuple(a.shape) != size for a, (_, size) in zip(arrays, places, strict=True)):
        raise InvalidArgument("the arrays are not the tiles of an array of this size", subject="unshard",
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


def _unshard_each(arrays: Sequence[Any], shardings: Sequence[Sharding], sizes: Sequence[Any] | None) -> tuple[Any, ...]:
    """The whole of each array of a tuple, from the tuple that each partition holds."""
    if any(not isinstance(one, (tuple, list)) or len(one) != len(shardings) for one in arrays) or (
            sizes is not None and len(sizes) != len(shardings)):
        raise InvalidArgument("the numbers of arrays and shardings differ", subject="unshard",
                              got=", ".join(map(_listed, arrays)),
                              expected=f"from each partition a tuple of {len(shardings)}, and sizes for each")
    wholes = [None] * len(shardings) if sizes is None else sizes
    return tuple(unshard(column, sharding, whole)
                 for column, sharding, whole in zip(zip(*arrays, strict=True), shardings, wholes, strict=True))


def _listed(value: Any) -> str:
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list)) else type(value).__name__


def _unshard_results(results: Sequence[Any], program: XlaComputation) -> Any:
    """What a partitioned program computes, whole, from what it gave each partition."""
    root, partitioning = program.entry.root, program.partitioning
    if partitioning.is_whole or "sharding" not in root.common:
        raise InvalidArgument("the program has no shardings of its results", subject="unshard",
                              got=str(partitioning) or "a program without shardings", expected="what partition gives",
                              hint="give the sharding of each array, and its sizes")
    stated = whole_shape(program.module)
    lie = [(sharding, leaf.is_array) for sharding, leaf in zip(root.common["sharding"].leaves(root.shape), root.shape.leaves(),
                                                               strict=True)]
    shardings = tuple(sharding for sharding, is_array in lie if is_array)
    sizes = None if stated is None else [leaf.dimensions for leaf in stated.result.leaves() if leaf.is_array]
    if all(isinstance(r, tuple) and all(isinstance(a, (np.ndarray, np.generic)) for a in r) for r in results):
        return _unshard_each(results, shardings, sizes)  # as `run_numpy` gives them
    return _in_form(program, _unshard_each([_leaves_of(program, r) for r in results], shardings, sizes))


@functools.singledispatch
def _leaves_of(program: XlaComputation, result: Any) -> list[Any]:
    """The arrays of what a call gives."""
    return [leaf for leaf, _ in arrays_of(result, program.entry.root.shape)]


@_leaves_of.register
def _(program: TreeFunction, result: Any) -> list[Any]:
    return program.out_tree.flatten(result)


@functools.singledispatch
def _in_form(program: XlaComputation, arrays: Sequence[Any]) -> Any:
    """What a call gives with these arrays."""
    return from_arrays(arrays, program.entry.root.shape)


@_in_form.register
def _(program: TreeFunction, arrays: Sequence[Any]) -> Any:
    return program.out_tree.unflatten(arrays)


def shard_arguments(computation: XlaComputation, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Split whole arrays into each partition's arguments, by the parameters' shardings.

    Parameters without a sharding are replicated. Programs derived from this one have no shardings: split their arguments with
    this one. Raises InvalidArgument for a program that is not partitioned, and for arrays that don't fit.

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
                              expected="a partitioned program", hint="call it with whole arrays")
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
