"""How arrays lie on a mesh, in the words that people have for it: torch's placements, tuples of axis names as JAX's
PartitionSpec, and HLO's shardings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.ir import Module
from ..hlo.mesh_sharding import Axis, Mesh, MeshSharding
from ..hlo.replica_groups import MOST_DEVICES
from ..hlo.sharding import Sharding, ShardingKind
from ..partitioning.annotations import meshes_of
from ..stablehlo.tilings import tiling

_EXPECTED = "(None, 'model'), [Shard(0), Replicate()], a Sharding or its HLO text, or None"


def mesh_of(given: Any, module: Module, annotated_for: int) -> Mesh:
    """The mesh of a dict, of a DeviceMesh, or for None the program's own, of one axis without a name where it says a number
    only. Raises InvalidArgument where it is none, or of another size than the program is annotated for."""
    mesh = _own_mesh(module, annotated_for) if given is None else _given_mesh(given)
    if not 2 <= mesh.device_count <= MOST_DEVICES:
        raise InvalidArgument("a program is partitioned for two participants or more", got=str(mesh),
                              expected=f"a mesh of 2 to {MOST_DEVICES}")
    if annotated_for > 1 and mesh.device_count != annotated_for:
        raise InvalidArgument("the program is annotated for a mesh of another size", got=f"{mesh}: {mesh.device_count}",
                              expected=annotated_for, hint="pass mesh=None to use the program's own")
    return mesh


def _own_mesh(module: Module, annotated_for: int) -> Mesh:
    if annotated_for < 2:
        raise InvalidArgument("the program is not annotated, and so has no mesh", got="mesh=None",
                              expected="a mesh, as {'data': 2, 'model': 2}")
    fitting = [mesh for mesh in meshes_of(module).values() if mesh.device_count == annotated_for]
    return fitting[0] if fitting else Mesh((("", annotated_for),))


def _given_mesh(given: Any) -> Mesh:
    if hasattr(given, "mesh_dim_names") and hasattr(given, "mesh"):
        sizes = tuple(int(n) for n in given.mesh.shape)
        names = given.mesh_dim_names or [str(k) for k in range(len(sizes))]
        ranks = tuple(given.mesh.flatten().tolist())
        if sorted(ranks) != list(range(len(ranks))):
            raise InvalidArgument("the mesh is a submesh of another mesh", got=str(ranks),
                                  expected=f"each of 0 to {len(ranks) - 1} once")
        return Mesh(tuple(zip(names, sizes, strict=True)), () if ranks == tuple(range(len(ranks))) else ranks)
    if not isinstance(given, Mapping) or not all(
            isinstance(name, str) and isinstance(size, int) and size > 0 for name, size in given.items()):
        raise InvalidArgument("not a mesh", got=repr(given), expected="{'data': 2, 'model': 2}, a DeviceMesh, or None")
    return Mesh(tuple(given.items()))


def is_stated(words: Any) -> bool:
    """Whether something says how one array lies, and is no tree of such words."""
    if words is None or isinstance(words, (Sharding, str)) or _is_placement(words) or _is_spec(words):
        return True
    if isinstance(words, (list, tuple)) and words and all(map(_is_placement, words)):
        return True
    return isinstance(words, tuple) and all(axes is None or isinstance(axes, str) or _is_axes(axes) for axes in words)


def stated_for_each(words: Any, ranks: Sequence[int]) -> Any:
    """The words for arrays of these ranks, as a list where a tuple has words for each of them: ``(("data",), ("data",))`` for two
    vectors could also be the axes of one matrix. Raises InvalidArgument where it can mean both."""
    if not isinstance(words, tuple) or _is_spec(words) or len(words) != len(ranks) or all(
            isinstance(own, str) and not own.startswith("{") for own in words if own is not None):
        return words
    if not all(own is None or (is_stated(own) and _may_lie(own, rank)) for own, rank in zip(words, ranks, strict=True)):
        return words
    if is_stated(words) and not any(isinstance(own, str) for own in words) and all(_may_lie(words, rank) for rank in ranks):
        raise InvalidArgument("the sharding is ambiguous: one array or each of several", got=repr(words),
                              hint=f"write a list: {list(words)!r} for one sharding each, {[words] * len(ranks)!r} for the same "
                                   f"sharding for all")
    return list(words)


def _may_lie(words: Any, rank: int) -> bool:
    """Whether an array of this rank may lie so, on a mesh that has these axes."""
    if not isinstance(words, tuple) or any(map(_is_placement, words)):
        return True
    axes = [name for own in words if own is not None for name in ([own] if isinstance(own, str) else own)]
    return len(words) <= rank and len(set(axes)) == len(axes)


def sharding_of(words: Any, rank: int, mesh: Mesh) -> Sharding | None:
    """The sharding of an array of this rank; None for None. Raises InvalidArgument where the words do not fit."""
    if words is None:
        return None
    if isinstance(words, str) and not words.lstrip().startswith("{"):
        one = f"[({words!r},)], a list with one sharding for each array" if words in dict(mesh.axes) else ""
        raise InvalidArgument("not a sharding", got=repr(words), expected=_EXPECTED, hint=one and f"write {one}")
    if isinstance(words, (Sharding, str)):
        found = Sharding.parse(words) if isinstance(words, str) else words
        found.check_rank(rank)
        found.check_devices(mesh.device_count)
        return found
    if not is_stated(words):
        raise InvalidArgument("not a sharding", got=repr(words), expected=_EXPECTED)
    if _is_placement(words):
        words = [words]
    by_placement = not _is_spec(words) and len(words) > 0 and _is_placement(words[0])
    dimensions = _of_placements(words, rank, mesh) if by_placement else _of_names(words, rank, mesh)
    lies = MeshSharding(mesh, tuple(tuple(map(Axis, axes)) for axes in dimensions))
    unreduced = _unreduced_axes(words, mesh, by_placement)
    if not unreduced:
        return tiling(lies)
    reduction = getattr(getattr(words, "unreduced_kind", None), "name", "sum")  # JAX has had others from 0.12 on
    return Sharding(ShardingKind.MESH, mesh=dataclasses.replace(lies, unreduced=unreduced, reduction=reduction))


def _is_placement(value: Any) -> bool:
    return callable(getattr(value, "is_shard", None)) and callable(getattr(value, "is_replicate", None))


def _is_sum(placement: Any) -> bool:
    """Whether it is a Partial of torch's whose parts are added up."""
    return placement.is_partial() and getattr(placement, "reduce_op", "") == "sum" and type(placement).__name__ == "Partial"


def _unreduced_axes(words: Any, mesh: Mesh, by_placement: bool) -> tuple[Axis, ...]:
    """The axes of the mesh along which each participant has a part of a sum, or of another reduction, in the mesh's order."""
    if by_placement:
        return tuple(Axis(name) for (name, _), placement in zip(mesh.axes, words, strict=True) if _is_sum(placement))
    unreduced = getattr(words, "unreduced", ())
    return tuple(Axis(name) for name, _ in mesh.axes if name in unreduced)


def _is_spec(value: Any) -> bool:
    """Whether it is a PartitionSpec of JAX, which is no tuple."""
    return any(c.__module__.startswith("jax") and c.__name__ in ("P", "PartitionSpec") for c in type(value).__mro__)


def _is_axes(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) for name in value)


def _of_placements(placements: Any, rank: int, mesh: Mesh) -> list[list[str]]:
    """The axes of each dimension, from one placement for each axis."""
    if len(placements) != len(mesh.axes):
        raise InvalidArgument("not one placement for each axis of the mesh", got=f"{len(placements)}: {placements}",
                              expected=f"{len(mesh.axes)} for {mesh}")
    dimensions: list[list[str]] = [[] for _ in range(rank)]
    for (name, _), placement in zip(mesh.axes, placements, strict=True):
        if placement.is_replicate() or _is_sum(placement):
            continue
        if type(placement).__name__ != "Shard":
            raise InvalidArgument("a program cannot take or return such partial arrays", got=repr(placement),
                                  expected="Shard(n), Replicate(), or of results Partial()")
        if not -rank <= placement.dim < rank:
            raise InvalidArgument("the placement is of a dimension that the array does not have", got=repr(placement),
                                  expected=f"an array of {rank} dimensions")
        dimensions[placement.dim].append(name)
    return dimensions


def _of_names(spec: Any, rank: int, mesh: Mesh) -> list[list[str]]:
    """The axes of each dimension, from None, a name or a tuple of names for the first dimensions."""
    partitions = getattr(spec, "partitions", spec)  # JAX iterates over no PartitionSpec with unreduced axes
    dimensions = [[] if axes is None else [axes] if isinstance(axes, str) else list(axes) for axes in partitions]
    if len(dimensions) > rank:
        raise InvalidArgument("the sharding is for an array of another rank", got=repr(spec), expected=f"up to {rank} dimensions")
    used = [name for axes in dimensions for name in axes] + sorted(getattr(spec, "unreduced", ()))
    known = dict(mesh.axes)
    for name in used:
        if name not in known:
            raise InvalidArgument(f"the mesh has no axis {name!r}", got=repr(spec), expected=", ".join(known))
    if len(set(used)) < len(used):
        raise InvalidArgument("an axis is used twice", got=repr(spec))
    return dimensions + [[]] * (rank - len(dimensions))
