"""Schemas: collectives.

Documents: XLA's operation semantics, the sections AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute,
RaggedAllToAll, ReduceScatter, PartitionId and ReplicaId. A start has the attributes of the whole, and its done takes the
result out.
"""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import UnsupportedError
from ..core.participant_groups import GroupMode
from ..core.shape import Shape
from ..core.types import U32
from ..hlo.attributes import Bool, CollectiveMode, Dims, Groups, Int, Pairs, Region, ReplicaGroups
from ..hlo.ir import Computation
from ..hlo.schema import Trait, op
from .reduction import check_reducer
from .shapes import has_parts, require, require_arrays, require_declared

ALL = ReplicaGroups(())
"""No groups written: one of everybody."""


def group_mode(channel_id: int | None, use_global_device_ids: bool = False,
               across: GroupMode = GroupMode.CROSS_BOTH) -> GroupMode:
    """What the ids in replica groups mean: GetCollectiveOpGroupMode of XLA's source, which its documents of AllReduce and
    AllToAll describe. `across` is the meaning with a channel and without global ids."""
    if not channel_id:
        return GroupMode.CROSS_REPLICA
    return GroupMode.FLATTENED if use_global_device_ids else across


# ------------------------------------------------------------------------------------------- checks


def _check_operands(operands: Sequence[Shape]) -> None:
    require(len(operands) > 0, "a collective needs operands", 0, "1 or more")
    require_arrays(*operands)


def _check_groups(groups: ReplicaGroups, channel_id: int | None, use_global_device_ids: bool, partial: bool = False) -> None:
    """Each id from 0 on stands in one group; `partial` groups may leave ids out."""
    listed = [list(group) for group in groups.groups]
    ids = [i for group in listed for i in group]
    require(partial or all(listed), "a replica group is empty", listed, "an id or more")
    require(len(set(ids)) == len(ids), "an id is in replica groups twice", listed, "each id once")
    require(not partial or min(ids, default=0) >= 0, "an id in replica groups is negative", listed)
    require(partial or sorted(ids) == list(range(len(ids))), "an id is in no replica group", listed,
            f"each of 0 to {max(ids, default=0)} once")
    if use_global_device_ids:
        require((channel_id or 0) > 0, "use_global_device_ids without a channel_id", channel_id, "a positive channel_id")
        require(bool(ids), "use_global_device_ids without replica groups", listed, "groups of device ids")


def _dimension(operands: Sequence[Shape], dimensions: Sequence[int]) -> int:
    require(len(dimensions) == 1, "a collective has one dimension", list(dimensions), "one")
    for shape in operands:
        require(0 <= dimensions[0] < shape.rank, "the dimension is out of range", f"{dimensions[0]} for {shape}",
                f"0 to {shape.rank - 1}")
    return dimensions[0]


def _results(declared: Shape | None, operands: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The declared shape and its parts, one for each operand."""
    shape = require_declared(declared)
    parts = list(shape.tuple_shapes) if shape.is_tuple else [shape]
    require(len(parts) == len(operands), "the result has another number of arrays than there are operands", shape,
            f"{len(operands)}")
    for part, operand in zip(parts, operands, strict=True):
        require(part.element_type is operand.element_type and part.rank == operand.rank, "a result does not fit its operand",
                f"{part} for {operand}", "the operand's element type and number of dimensions")
    return shape.without_layout(), parts


def same_sizes(a: Shape, b: Shape, apart: int = -1) -> bool:
    return all(x == y for d, (x, y) in enumerate(zip(a.dimensions, b.dimensions, strict=True)) if d != apart)


def _packed(operands: Sequence[Shape]) -> Shape:
    shapes = [o.without_layout() for o in operands]
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)


# ------------------------------------------------------------------------------------------- all-gather


def all_gather_shape(declared: Shape | None, *operands: Shape, dimensions: Sequence[int], replica_groups: ReplicaGroups = ALL,
                     channel_id: int | None = None, use_global_device_ids: bool = False, **_: Any) -> Shape:
    """The declared shape: the operands with the gathered dimension some whole number of times as large."""
    _check_operands(operands)
    _check_groups(replica_groups, channel_id, use_global_device_ids)
    dim = _dimension(operands, dimensions)
    shape, parts = _results(declared, operands)
    counts = {gathered_shards(part, operand, dim) for part, operand in zip(parts, operands, strict=True)}
    require(len(counts) == 1, "operands are gathered from different numbers of participants", sorted(counts), "one number")
    _check_shards(counts.pop(), replica_groups, channel_id, use_global_device_ids)
    return shape


def _check_shards(shards: int, groups: ReplicaGroups, channel_id: int | None, use_global_device_ids: bool) -> None:
    """So many participants are in each group, where the groups alone say how many; an empty array says nothing."""
    if shards and groups.groups and group_mode(channel_id, use_global_device_ids) != GroupMode.CROSS_BOTH:
        sizes = sorted({len(group) for group in groups.groups})
        require(sizes == [shards], "the result is not of as many shards as a group has members",
                f"{shards} for groups of {sizes}", "equal numbers")


def gathered_shards(result: Shape, operand: Shape, dim: int) -> int:
    """From how many participants a result is gathered along `dim`."""
    small, large = operand.dimensions[dim], result.dimensions[dim]
    require(same_sizes(result, operand, dim) and (large > 0 and large % small == 0 if small else large == 0),
            "the result is not a whole number of operands", f"{result} from {operand} along dimension {dim}",
            "equal sizes but in the gathered dimension, which is a multiple")
    return large // small if small else 0


@op("all-gather", infer=all_gather_shape, stablehlo="all_gather", traits=Trait.MIXED_PRECISION, exchange=True,
    inferable=False)
def all_gather(*operands, dimensions: Dims, replica_groups: Groups = ALL, channel_id: Int | None = None,
               use_global_device_ids: Bool = False, constrain_layout: Bool = False): ...


def all_gather_start_shape(declared: Shape | None, *operands: Shape, **attributes: Any) -> Shape:
    """(operands, results), each of the two a tuple where there are several operands."""
    shape = require_declared(declared)
    require(has_parts(shape, 2), "the result is not a pair", shape, "(operands, gathered)")
    given, gathered = shape.tuple_shapes[:2]
    require(given.compatible(_packed(operands)), "element 0 is not the operands' shape", given, str(_packed(operands)))
    all_gather_shape(gathered, *operands, **attributes)
    return shape.without_layout()


@op("all-gather-start", infer=all_gather_start_shape, traits=Trait.MIXED_PRECISION, exchange=True, inferable=False)
def all_gather_start(*operands, dimensions: Dims, replica_groups: Groups = ALL, channel_id: Int | None = None,
                     use_global_device_ids: Bool = False, constrain_layout: Bool = False): ...


def second_element_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """Element 1 of the pair that a start gives."""
    require(has_parts(operand, 2), "the operand is not the result of a start", operand,
            "(operand, result, ...)")
    return operand.tuple_shapes[1].without_layout()


@op("all-gather-done", infer=second_element_shape, traits=Trait.MOVES_DATA | Trait.MIXED_PRECISION, exchange=True,
    inferable=False, completes=(all_gather_start,))
def all_gather_done(operand): ...


# ------------------------------------------------------------------------------------------- reductions


def all_reduce_shape(declared: Shape | None, *operands: Shape, to_apply: Computation, replica_groups: ReplicaGroups = ALL,
                     channel_id: int | None = None, use_global_device_ids: bool = False, **_: Any) -> Shape:
    """The operand's shape, or the tuple of the operands'. The reducer takes two scalars of each one's element type."""
    _check_operands(operands)
    _check_groups(replica_groups, channel_id, use_global_device_ids)
    _check_scalar_reducer(operands, to_apply)
    return _packed(operands) if declared is None or len(operands) > 1 or not declared.is_tuple else Shape.tuple(
        [_packed(operands)])


def _check_scalar_reducer(operands: Sequence[Shape], to_apply: Computation) -> None:
    for operand in operands:
        check_reducer(to_apply, [operand], [Shape(operand.element_type)])


@op("all-reduce", infer=all_reduce_shape, stablehlo="all_reduce", traits=Trait.MIXED_PRECISION, exchange=True,
    inferable=False, element_region=0)
def all_reduce(*operands, to_apply: Region, replica_groups: Groups = ALL, channel_id: Int | None = None,
               use_global_device_ids: Bool = False, constrain_layout: Bool = False, mode: CollectiveMode | None = None): ...


@op("all-reduce-start", infer=all_reduce_shape, traits=Trait.MIXED_PRECISION, exchange=True, inferable=False,
    element_region=0)
def all_reduce_start(*operands, to_apply: Region, replica_groups: Groups = ALL, channel_id: Int | None = None,
                     use_global_device_ids: Bool = False, constrain_layout: Bool = False, mode: CollectiveMode | None = None): ...


def whole_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """The operand's shape, whatever it is."""
    return operand.without_layout()


@op("all-reduce-done", infer=whole_shape, traits=Trait.MOVES_DATA | Trait.MIXED_PRECISION, exchange=True,
    inferable=False, completes=(all_reduce_start,))
def all_reduce_done(operand): ...


def reduce_scatter_shape(declared: Shape | None, *operands: Shape, dimensions: Sequence[int], to_apply: Computation,
                         replica_groups: ReplicaGroups = ALL, channel_id: int | None = None,
                         use_global_device_ids: bool = False, mode: GroupMode | None = None, **_: Any) -> Shape:
    """The declared shape: the operands with the scattered dimension divided by some whole number. A `mode` may only say what
    the channel and the kind of ids say: XLA reads it, and goes by those."""
    stated = group_mode(channel_id, use_global_device_ids)
    require(mode in (None, stated),
            "the mode is not what channel_id and use_global_device_ids say, by which XLA goes", mode, stated)
    _check_operands(operands)
    _check_groups(replica_groups, channel_id, use_global_device_ids)
    _check_scalar_reducer(operands, to_apply)
    dim = _dimension(operands, dimensions)
    shape, parts = _results(declared, operands)
    for part, operand in zip(parts, operands, strict=True):
        _check_shards(gathered_shards(operand, part, dim), replica_groups, channel_id, use_global_device_ids)
    return shape


@op("reduce-scatter", infer=reduce_scatter_shape, stablehlo="reduce_scatter", traits=Trait.MIXED_PRECISION,
    exchange=True, inferable=False, element_region=0)
def reduce_scatter(*operands, dimensions: Dims, to_apply: Region, replica_groups: Groups = ALL,
                   channel_id: Int | None = None, use_global_device_ids: Bool = False, constrain_layout: Bool = False,
                   mode: CollectiveMode | None = None): ...


def collective_reduce_shape(declared: Shape | None, *operands: Shape, to_apply: Computation, replica_groups: ReplicaGroups = ALL,
                            channel_id: int | None = None, has_dynamic_root: bool = False, **_: Any) -> Shape:
    """The operands' shapes. As of a broadcast, whose gradient this is, participants may be in no group."""
    check_root(has_dynamic_root)
    _check_groups(replica_groups, channel_id, False, partial=True)
    return all_reduce_shape(declared, *operands, to_apply=to_apply, channel_id=channel_id)


@op("collective-reduce", infer=collective_reduce_shape, stablehlo="collective_reduce", exchange=True, inferable=False,
    element_region=0)
def collective_reduce(*operands, to_apply: Region, replica_groups: Groups = ALL, channel_id: Int | None = None,
                      has_dynamic_root: Bool = False): ...


def check_root(has_dynamic_root: bool) -> None:
    """Raise UnsupportedError for a root that an operand says."""
    if has_dynamic_root:
        raise UnsupportedError("the root participant must be static", got="has_dynamic_root=true",
                               expected="the first member of each group")


# ------------------------------------------------------------------------------------------- moving


def all_to_all_shape(declared: Shape | None, *operands: Shape, dimensions: Sequence[int] = (),
                     replica_groups: ReplicaGroups = ALL, channel_id: int | None = None, **_: Any) -> Shape:
    """The operand's shape; without `dimensions` a tuple of the operands' shapes, which are all one."""
    _check_operands(operands)
    _check_groups(replica_groups, channel_id, False)
    sizes = {len(g) for g in replica_groups.groups}
    require(len(sizes) <= 1, "replica groups have different sizes", sorted(sizes), "equal sizes")
    if dimensions:
        require(len(operands) == 1, "the array form takes one operand", len(operands), "1")
        dim = _dimension(operands, dimensions)
        require(all(operands[0].dimensions[dim] % size == 0 for size in sizes),
                "the split dimension is no multiple of the group's size", f"{operands[0]} dimension {dim} in {sorted(sizes)}",
                "a multiple")
        require(not operands[0].dynamic_flags[dim], "the split dimension is dynamic", operands[0], "a static size")
        return operands[0].without_layout()
    require(all(o.compatible(operands[0]) for o in operands), "operands have different shapes",
            ", ".join(map(str, operands)), "one shape")
    require(all(size == len(operands) for size in sizes), "there are not as many operands as members of a group",
            f"{len(operands)} for groups of {sorted(sizes)}", "equal numbers")
    return Shape.tuple([o.without_layout() for o in operands])


@op("all-to-all", infer=all_to_all_shape, stablehlo="all_to_all", traits=Trait.MIXED_PRECISION, exchange=True,
    inferable=False)
def all_to_all(*operands, dimensions: Dims = (), replica_groups: Groups = ALL, channel_id: Int | None = None,
               constrain_layout: Bool = False): ...


def ragged_all_to_all_shape(declared: Shape | None, operand: Shape, output: Shape, input_offsets: Shape, send_sizes: Shape,
                            output_offsets: Shape, recv_sizes: Shape, *, replica_groups: ReplicaGroups = ALL,
                            channel_id: int | None = None, **_: Any) -> Shape:
    """The output's shape. Offsets and sizes are integers of one shape, [members] or [members, updates]."""
    require_arrays(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes)
    _check_groups(replica_groups, channel_id, False)
    require(len({len(group) for group in replica_groups.groups}) <= 1, "replica groups have different sizes",
            [list(group) for group in replica_groups.groups], "equal sizes")
    require(operand.rank == output.rank >= 1 and operand.element_type is output.element_type and same_sizes(operand, output, 0),
            "operand and output do not fit", f"{operand} and {output}", "equal but for dimension 0")
    plans = (input_offsets, send_sizes, output_offsets, recv_sizes)
    for plan in plans:
        require(plan.element_type.is_integral and plan.rank in (1, 2), "offsets and sizes are not integers of rank 1 or 2", plan,
                "an integer array [members] or [members, updates]")
        require(plan.compatible(input_offsets, ignore_dynamic=False), "offsets and sizes have different shapes",
                ", ".join(map(str, plans)), "one shape")
    return output.without_layout()


@op("ragged-all-to-all", infer=ragged_all_to_all_shape, traits=Trait.MIXED_PRECISION, exchange=True, inferable=False)
def ragged_all_to_all(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *,
                      replica_groups: Groups = ALL, channel_id: Int | None = None, dimensions: Dims = ()): ...


def collective_broadcast_shape(declared: Shape | None, *operands: Shape, replica_groups: ReplicaGroups = ALL,
                               channel_id: int | None = None, has_dynamic_root: bool = False, **_: Any) -> Shape:
    """The operands' shapes."""
    check_root(has_dynamic_root)
    _check_operands(operands)
    _check_groups(replica_groups, channel_id, False, partial=True)
    return _packed(operands)


@op("collective-broadcast", infer=collective_broadcast_shape, stablehlo="collective_broadcast",
    traits=Trait.MIXED_PRECISION, exchange=True, inferable=False)
def collective_broadcast(*operands, replica_groups: Groups = ALL, channel_id: Int | None = None,
                         has_dynamic_root: Bool = False): ...


def collective_permute_shape(declared: Shape | None, *operands: Shape, source_target_pairs: Sequence[Sequence[int]],
                             slice_sizes: Sequence[Sequence[int]] = (), **_: Any) -> Shape:
    """The operands' shapes, no source and no target repeated; with slices the shape of operand 1, the output."""
    for pair in source_target_pairs:
        require(len(pair) == 2, "a source-target pair is not a pair", list(pair), "{source,target}")
    if slice_sizes:
        _check_slices(operands, slice_sizes, turns(source_target_pairs))
        return operands[1].without_layout()
    _check_operands(operands)
    for place, kind in enumerate(("source", "target")):
        ids = [pair[place] for pair in source_target_pairs]
        require(len(set(ids)) == len(ids), f"a {kind} is in several pairs", [list(p) for p in source_target_pairs],
                f"each {kind} once")
    return _packed(operands)


# In place, a slice of the source's input replaces one of the target's output. The k-th pair with the same source sends the
# k-th of its slices, the k-th pair with the same target writes at the k-th of its output starts.


def turns(pairs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """For each pair, how many pairs before it have its source, and how many its target."""
    sources, targets = [p[0] for p in pairs], [p[1] for p in pairs]
    return [(sources[:k].count(sources[k]), targets[:k].count(targets[k])) for k in range(len(pairs))]


def _arrays(buffer: Shape) -> tuple[Shape, ...]:
    return buffer.tuple_shapes if buffer.is_tuple else (buffer,)


def starts_of(buffer: Shape, shape: Shape, value: Any) -> list[tuple[Any, ...]]:
    """For each array of a buffer the starts of its slices. One start may stand for a tuple of one."""
    each = zip(shape.tuple_shapes, value, strict=True) if buffer.is_tuple else [(shape, value)]
    return [tuple(v) if s.tuple_shapes and s.tuple_shapes[0].is_tuple else (v,) for s, v in each]


def _nested(shape: Shape) -> Any:
    """Shapes as Python tuples, as values are."""
    return tuple(map(_nested, shape.tuple_shapes)) if shape.is_tuple else shape


def _check_slices(operands: Sequence[Shape], slice_sizes: Sequence[Sequence[int]], turns: Sequence[tuple[int, int]]) -> None:
    require(len(operands) == 4, "the in-place form has four operands", len(operands),
            "(input, output, input start indices, output start indices)")
    inputs, outputs = _arrays(operands[0]), _arrays(operands[1])
    require_arrays(*inputs, *outputs)
    require([a.element_type for a in inputs] == [a.element_type for a in outputs], "input and output do not fit",
            f"{operands[0]} and {operands[1]}", "as many arrays, of equal element types")
    count, rest = divmod(len(slice_sizes), len(inputs))
    require(not rest and all(a < count and b < count for a, b in turns), "slice_sizes has not enough entries for the pairs",
            f"{len(slice_sizes)} for {len(inputs)} arrays", "for each array, one for each pair with the same source or target")
    for buffer, starts in zip(operands[:2], operands[2:], strict=True):
        _check_starts(buffer, starts, count)
    for k, sizes in enumerate(slice_sizes):
        for array in (inputs[k // count], outputs[k // count]):
            require(len(sizes) == array.rank and all(0 <= n <= m for n, m in zip(sizes, array.dimensions, strict=True)),
                    "a slice does not fit its array", f"slice_sizes {list(sizes)} of {array}", "one size for each dimension")
    for array in range(len(inputs)):
        own = slice_sizes[array * count:(array + 1) * count]
        require(all(tuple(own[a]) == tuple(own[b]) for a, b in turns), "a slice is received as one of another size",
                [list(n) for n in own], "equal sizes where a pair sends one and writes the other")


def _check_starts(buffer: Shape, starts: Shape, count: int) -> None:
    wanted = "for each array a tuple of integral scalars, one for each dimension, or a tuple of such for several slices"
    each = starts.tuple_shapes if buffer.is_tuple else (starts,)
    require(len(each) == len(_arrays(buffer)) and all(s.is_tuple for s in each), "start indices do not fit their array",
            f"{starts} for {buffer}", wanted)
    for array, given in zip(_arrays(buffer), starts_of(buffer, starts, _nested(starts)), strict=True):
        scalars = [s for start in given for s in start]
        require(len(given) == count and all(len(start) == array.rank for start in given)
                and all(isinstance(s, Shape) and s.is_scalar and s.element_type.is_integral for s in scalars),
                "start indices do not fit their array", f"{starts} for {buffer}", wanted)


@op("collective-permute", infer=collective_permute_shape, stablehlo="collective_permute", traits=Trait.MIXED_PRECISION,
    exchange=True, inferable=False)
def collective_permute(*operands, source_target_pairs: Pairs, channel_id: Int | None = None, slice_sizes: Pairs = ()): ...


def collective_permute_start_shape(declared: Shape | None, *operands: Shape, **attributes: Any) -> Shape:
    """(operands, results, u32 contexts...); in place (input, output, u32 contexts...)."""
    permuted = collective_permute_shape(None, *operands, **attributes)
    given = operands[0].without_layout() if attributes.get("slice_sizes") else _packed(operands)
    if declared is None:
        return Shape.tuple([given, permuted])
    parts = declared.tuple_shapes
    require(has_parts(declared, 2) and parts[0].compatible(given) and parts[1].compatible(permuted),
            "the result does not begin with operand and result", declared, f"({given}, {permuted}, contexts...)")
    require(all(p.is_array and p.element_type is U32 for p in parts[2:]), "a context is not u32", declared, "u32[] contexts")
    return declared.without_layout()


@op("collective-permute-start", infer=collective_permute_start_shape, traits=Trait.MIXED_PRECISION, exchange=True,
    inferable=False)
def collective_permute_start(*operands, source_target_pairs: Pairs, channel_id: Int | None = None,
                             slice_sizes: Pairs = ()): ...


@op("collective-permute-done", infer=second_element_shape, traits=Trait.MOVES_DATA | Trait.MIXED_PRECISION,
    exchange=True, inferable=False, completes=(collective_permute_start,))
def collective_permute_done(operand): ...


# ------------------------------------------------------------------------------------------- ids


def id_shape(declared: Shape | None, **_: Any) -> Shape:
    """u32[]."""
    require(declared is None or declared.compatible(Shape(U32)), "an id is u32[]", declared, "u32[]")
    return Shape(U32)


@op("replica-id", infer=id_shape, stablehlo="replica_id", traits=Trait.NO_TRAFFIC, exchange=True)
def replica_id(): ...


@op("partition-id", infer=id_shape, stablehlo="partition_id", traits=Trait.NO_TRAFFIC, exchange=True)
def partition_id(): ...
