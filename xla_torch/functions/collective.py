"""Collectives and ids under their documented names.

Documents: operation semantics, the sections of the functions' own names. `replica_groups` is a list of
groups of ids (empty: one group of everybody) or `ReplicaGroups`. Without a `channel_id` ids are replicas; with one, a group
also spans all partitions (or its ids are partitions, for the ops that only move data), and with `use_global_device_ids` ids
number all participants, replica-major. All raise InvalidArgument for an id that stands in the groups twice, and, when they
run, ExecutionError where the groups or the result shape do not fit the participants there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import UnsupportedError
from ..core.layouts import Layout
from ..core.shape import Shape
from ..core.types import U32
from ..hlo.attributes import ReplicaGroups
from ..hlo.choices import ReplicaGroup
from ..opcodes import collective, elementwise, movement
from ..opcodes.shapes import require
from ._documented import documented, renamed
from ._regions import reducer
from .control import GetTupleElement
from .hlo_builder import Builder, Region, XlaOp, packed
from .token import ChannelHandle

__all__ = ["AllGather", "AllGatherTuple", "AllReduce", "AllReduceTuple", "AllToAll", "AllToAllTuple", "BuildPartitionId",
           "CollectiveBroadcast", "CollectivePermute", "CrossReplicaSum", "MultiCollectivePermute", "PartitionID",
           "PartitionId", "RaggedAllToAll", "ReduceScatter", "ReplicaGroup", "ReplicaGroups", "ReplicaId"]

Groups = ReplicaGroups | Sequence[Sequence[int]]
Channel = int | ChannelHandle | None


def exchange_attributes(replica_groups: Groups, channel_id: Channel = None,
                use_global_device_ids: bool | None = None) -> dict[str, Any]:
    given: dict[str, Any] = {"replica_groups": replica_groups} if _listed(replica_groups) else {}
    if channel_id is not None:
        given["channel_id"] = channel_id.handle if isinstance(channel_id, ChannelHandle) else channel_id
    if use_global_device_ids:
        given["use_global_device_ids"] = True
    return given


def _listed(replica_groups: Groups) -> bool:
    return bool(replica_groups.groups if isinstance(replica_groups, ReplicaGroups) else replica_groups)


def _require_one_type(operands: Sequence[XlaOp], subject: str) -> None:
    """One computation reduces all operands."""
    types = {o.element_type for o in operands}
    if len(types) > 1:
        raise UnsupportedError("operands of different element types, which one computation reduces", subject=subject,
                               got=", ".join(sorted(t.text for t in types)), expected="one element type")


def require_several(operands: Sequence[XlaOp], name: str) -> None:
    if not operands:
        raise UnsupportedError(f"{name} of an empty tuple", subject=name, expected="1 operand or more")


def _parts(operand: XlaOp | Sequence[XlaOp]) -> tuple[list[XlaOp], bool]:
    """The arrays of an operand, and whether it is a tuple of them (or a Python tuple or list)."""
    if not isinstance(operand, XlaOp):
        return list(operand), True
    if operand.shape.is_tuple:
        return [GetTupleElement(operand, k) for k in range(len(operand.shape.tuple_shapes))], True
    return [operand], False


def resized(shape: Shape, dimension: int, numerator: int, denominator: int) -> Shape:
    require(0 <= dimension < shape.rank, "the dimension is out of range", f"{dimension} for {shape}", f"0 to {shape.rank - 1}")
    require(numerator > 0 and denominator > 0, "the number of shards is not positive", max(numerator, denominator), "1 or more")
    dims = list(shape.dimensions)
    require(dims[dimension] * numerator % denominator == 0, "the dimension cannot be divided into shards",
            f"{dims[dimension]} in {denominator}", "a multiple")
    dims[dimension] = dims[dimension] * numerator // denominator
    return shape.with_dimensions(dims)


# ------------------------------------------------------------------------------------------- gather and reduce


@renamed(all_gather_dim="all_gather_dimension", replica_group_ids="replica_groups")
@documented
def AllGather(operand: XlaOp, all_gather_dimension: int, shard_count: int, replica_groups: Groups = (),
              channel_id: Channel = None, layout: Layout | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """The operands of a group's participants one after another along a dimension, which becomes `shard_count` times as large.

    Raises InvalidArgument for a dimension out of range and a shard count under 1. `layout` has no effect.

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> run_replicas(lambda x: ops.AllGather(x, 0, 2), [one, two], num_replicas=2)
    [tensor([1., 2.]), tensor([1., 2.])]
    """
    shape = resized(operand.shape, all_gather_dimension, shard_count, 1)
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    return operand.builder.add(collective.all_gather, [operand], {"dimensions": (all_gather_dimension,), **attributes}, shape)


@renamed(all_gather_dim="all_gather_dimension", replica_group_ids="replica_groups")
@documented
def AllGatherTuple(operands: Sequence[XlaOp], all_gather_dimension: int, shard_count: int, replica_groups: Groups = (),
                   channel_id: Channel = None, layout: Layout | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """`AllGather` of several operands in one exchange; the result is a tuple. Raises UnsupportedError for no operands.

    >>> one, two = (torch.tensor([1.0]), torch.tensor([10])), (torch.tensor([2.0]), torch.tensor([20]))
    >>> run_replicas(lambda x, y: ops.AllGatherTuple([x, y], 0, 2), [one, two], num_replicas=2)[0]
    (tensor([1., 2.]), tensor([10, 20]))
    """
    require_several(operands, "AllGatherTuple")
    shapes = [resized(o.shape, all_gather_dimension, shard_count, 1) for o in operands]
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    return operands[0].builder.add(collective.all_gather, operands, {"dimensions": (all_gather_dimension,), **attributes},
                                   Shape.tuple(shapes))


@renamed(replica_group_ids="replica_groups")
@documented
def AllReduce(operand: XlaOp | Sequence[XlaOp], computation: Region, replica_groups: Groups = (), channel_id: Channel = None,
              shape_with_layout: Shape | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """The operands of a group's participants combined, element by element, with a computation of two scalars. An operand is
    an array or a tuple of arrays of one element type, and the result has its shape.

    Raises InvalidArgument for a computation that does not fit, and for a `shape_with_layout` that is not the operand's.

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> run_replicas(lambda x: ops.AllReduce(x, ops.Add), [one, two], num_replicas=2)
    [tensor([3.]), tensor([3.])]
    """
    operands, several = _parts(operand)
    if several:
        return AllReduceTuple(operands, computation, replica_groups, channel_id, shape_with_layout, use_global_device_ids)
    (operand,) = operands
    require(shape_with_layout is None or shape_with_layout.compatible(operand.shape),
            "shape_with_layout is not the operand's shape", shape_with_layout, str(operand.shape))
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    return operand.builder.add(collective.all_reduce, [operand], {"to_apply": reducer(computation, [operand]), **attributes},
                               operand.shape)


@renamed(replica_group_ids="replica_groups")
@documented
def AllReduceTuple(operands: Sequence[XlaOp], computation: Region, replica_groups: Groups = (), channel_id: Channel = None,
                   shape_with_layout: Shape | None = None, use_global_device_ids: bool | None = None) -> XlaOp:
    """`AllReduce` of several operands of one element type in one exchange; the result is a tuple.

    Raises UnsupportedError for no operands and for different element types.

    >>> one, two = (torch.tensor([1.0]), torch.tensor([10.0])), (torch.tensor([2.0]), torch.tensor([20.0]))
    >>> run_replicas(lambda x, y: ops.AllReduceTuple([x, y], ops.Max), [one, two], num_replicas=2)[0]
    (tensor([2.]), tensor([20.]))
    """
    require_several(operands, "AllReduceTuple")
    shape = Shape.tuple([o.shape.without_layout() for o in operands])
    require(shape_with_layout is None or shape_with_layout.compatible(shape),
            "shape_with_layout is not the operands' shape", shape_with_layout, str(shape))
    _require_one_type(operands, "AllReduceTuple")
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    attributes["to_apply"] = reducer(computation, operands[:1])
    return operands[0].builder.add(collective.all_reduce, operands, attributes, shape)


@renamed(replica_group_ids="replica_groups")
@documented
def CrossReplicaSum(operand: XlaOp | Sequence[XlaOp], replica_groups: Groups = ()) -> XlaOp:
    """`AllReduce` of an array or tuple with add (for PRED: or).

    >>> one, two = (torch.tensor([1.0]),), (torch.tensor([2.0]),)
    >>> run_replicas(ops.CrossReplicaSum, [one, two], num_replicas=2)
    [tensor([3.]), tensor([3.])]
    """
    operands, _ = _parts(operand)
    require_several(operands, "CrossReplicaSum")
    builder = Builder("sum")
    scalar = Shape(operands[0].shape.element_type)
    builder.add(elementwise.add, [builder.parameter(0, scalar), builder.parameter(1, scalar)])
    return AllReduce(operand, builder.finish(), replica_groups)


@renamed(scatter_dim="scatter_dimension", replica_group_ids="replica_groups")
@documented
def ReduceScatter(operand: XlaOp | Sequence[XlaOp], computation: Region, scatter_dimension: int, shard_count: int,
                  replica_groups: Groups = (), channel_id: Channel = None, layout: Layout | None = None,
                  use_global_device_ids: bool | None = None) -> XlaOp:
    """`AllReduce` of an array or tuple, of which each participant keeps its own of `shard_count` blocks along a dimension.

    Raises InvalidArgument where the dimension is out of range or no multiple of the shard count, and UnsupportedError for
    operands of different element types. `layout` has no effect.

    >>> one, two = (torch.tensor([1.0, 2.0]),), (torch.tensor([10.0, 20.0]),)
    >>> run_replicas(lambda x: ops.ReduceScatter(x, ops.Add, 0, 2), [one, two], num_replicas=2)
    [tensor([11.]), tensor([22.])]
    """
    operands, several = _parts(operand)
    require_several(operands, "ReduceScatter")
    _require_one_type(operands, "ReduceScatter")
    shapes = [resized(o.shape.without_layout(), scatter_dimension, 1, shard_count) for o in operands]
    attributes = exchange_attributes(replica_groups, channel_id, use_global_device_ids)
    return operands[0].builder.add(collective.reduce_scatter, operands, {
        "dimensions": (scatter_dimension,), "to_apply": reducer(computation, operands[:1]), **attributes},
        Shape.tuple(shapes) if several else shapes[0])


# ------------------------------------------------------------------------------------------- moving


@renamed(replica_group_ids="replica_groups")
@documented
def AllToAll(operand: XlaOp, split_dimension: int, concat_dimension: int, split_count: int, replica_groups: Groups = (),
             layout: Layout | None = None, channel_id: Channel = None) -> XlaOp:
    """Split along one dimension into `split_count` blocks, block i goes to participant i of the group; what comes is put one
    after another along `concat_dimension`.

    Raises InvalidArgument for dimensions out of range and a split dimension that is no multiple of the count.

    >>> one, two = (torch.tensor([1, 2]),), (torch.tensor([10, 20]),)
    >>> run_replicas(lambda x: ops.AllToAll(x, 0, 0, 2), [one, two], num_replicas=2)
    [tensor([ 1, 10]), tensor([ 2, 20])]
    """
    shape = operand.shape
    for dimension in (split_dimension, concat_dimension):
        require(0 <= dimension < shape.rank, "the dimension is out of range", f"{dimension} for {shape}",
                f"0 to {shape.rank - 1}")
    require(split_count > 0 and shape.dimensions[split_dimension] % split_count == 0,
            "the split dimension is no multiple of the split count", f"{shape.dimensions[split_dimension]} in {split_count}",
            "a multiple")
    groups = replica_groups if _listed(replica_groups) else (tuple(range(split_count)),)
    attributes = {"dimensions": (split_dimension,), **exchange_attributes(groups, channel_id)}
    result = operand.builder.add(collective.all_to_all, [operand], attributes, shape)
    return result if split_dimension == concat_dimension else _regrouped(result, split_dimension, concat_dimension, split_count)


def _regrouped(operand: XlaOp, split: int, concat: int, count: int) -> XlaOp:
    """Blocks that lie one after another along `split`, put one after another along `concat` instead."""
    builder, dims = operand.builder, list(operand.shape.dimensions)
    dims[split] //= count
    apart = builder.add(movement.reshape, [operand], {}, operand.shape.with_dimensions([*dims[:split], count, *dims[split:]]))
    order = [d for d in range(len(dims) + 1) if d != split]
    order.insert(concat, split)
    moved = builder.add(movement.transpose, [apart], {"dimensions": tuple(order)})
    dims[concat] *= count
    return builder.add(movement.reshape, [moved], {}, operand.shape.with_dimensions(dims))


@documented
def AllToAllTuple(operands: Sequence[XlaOp], replica_groups: Groups = (), layout: Layout | None = None,
                  channel_id: Channel = None) -> XlaOp:
    """Operand i goes to participant i of the group, element i of the result comes from it. All operands have one shape.

    Raises UnsupportedError for no operands.

    >>> one, two = (torch.tensor(1), torch.tensor(2)), (torch.tensor(10), torch.tensor(20))
    >>> run_replicas(lambda x, y: ops.AllToAllTuple([x, y]), [one, two], num_replicas=2)
    [(tensor(1), tensor(10)), (tensor(2), tensor(20))]
    """
    require_several(operands, "AllToAllTuple")
    return operands[0].builder.add(collective.all_to_all, operands, exchange_attributes(replica_groups, channel_id),
                                   Shape.tuple([o.shape.without_layout() for o in operands]))


@documented
def RaggedAllToAll(input: XlaOp, input_offsets: XlaOp, send_sizes: XlaOp, output: XlaOp, output_offsets: XlaOp,
                   recv_sizes: XlaOp, replica_groups: Groups = (), channel_id: Channel = None) -> XlaOp:
    """Rows ``[input_offsets[i] : +send_sizes[i]]`` of this participant's input replace rows of participant i's output, from row
    ``output_offsets[i]`` of it on (as this participant's offsets say).

    Offsets and sizes are integers [participants] or [participants, updates]. The result is the output with the rows written.

    >>> rows, output = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(4)
    >>> def send(rows, output, *where):
    ...     starts, sizes, places, received = where
    ...     return ops.RaggedAllToAll(rows, starts, sizes, output, places, received)
    >>> first = (rows, output, *(torch.tensor(t) for t in ([0, 1], [1, 2], [0, 0], [1, 1])))
    >>> second = (10 * rows, output, *(torch.tensor(t) for t in ([0, 1], [1, 2], [1, 2], [2, 2])))
    >>> run_replicas(send, [first, second], num_replicas=2)
    [tensor([ 1., 10.,  0.,  0.]), tensor([ 2.,  3., 20., 30.])]
    """
    operands = [input, output, input_offsets, send_sizes, output_offsets, recv_sizes]
    attributes = exchange_attributes(replica_groups, channel_id)
    return input.builder.add(collective.ragged_all_to_all, operands, attributes, output.shape)


@documented
def CollectiveBroadcast(operand: XlaOp, replica_groups: Groups, channel_id: Channel = None) -> XlaOp:
    """The operand of the first participant of each group, for all of the group; zeros for a participant in no group.

    >>> one, two = (torch.tensor(1.0),), (torch.tensor(2.0),)
    >>> run_replicas(lambda x: ops.CollectiveBroadcast(x, [[1, 0]]), [one, two], num_replicas=2)
    [tensor(2.), tensor(2.)]
    """
    attributes = {"replica_groups": replica_groups, **exchange_attributes((), channel_id)}
    return operand.builder.add(collective.collective_broadcast, [operand], attributes, operand.shape)


@documented
def CollectivePermute(operand: XlaOp, source_target_pairs: Sequence[tuple[int, int]], channel_id: Channel = None,
                      inplace: bool = False) -> XlaOp:
    """Each pair's target gets its source's operand; who is no target gets zeros.

    Raises InvalidArgument for a repeated source or target. `inplace` is a hint; slices are permuted in place by
    `MultiCollectivePermute`.

    >>> one, two = (torch.tensor(1.0),), (torch.tensor(2.0),)
    >>> run_replicas(lambda x: ops.CollectivePermute(x, [(0, 1)]), [one, two], num_replicas=2)
    [tensor(0.), tensor(1.)]
    """
    attributes = {"source_target_pairs": source_target_pairs, **exchange_attributes((), channel_id)}
    return operand.builder.add(collective.collective_permute, [operand], attributes, operand.shape)


@documented
def MultiCollectivePermute(operands: Sequence[Any], source_target_pairs: Sequence[tuple[int, int]],
                           channel_id: Channel = None, inplace: bool = False,
                           slice_sizes: Sequence[Sequence[int]] = ()) -> XlaOp:
    """`CollectivePermute` of several operands in one exchange; the result is a tuple.

    With `inplace` and `slice_sizes` the operands are (input, output, input starts, output starts): a slice of each pair's
    source's input, from the source's input start on, replaces one of its target's output, from the target's output start on;
    a start is a tuple of s32 scalars and is moved so that the slice lies inside. A participant may then be source, or target,
    of as many pairs as there are slices: `slice_sizes` and starts (now tuples of starts) have one entry for each, in the
    order of the pairs. Input and output may also be tuples of arrays, with tuples of starts for each. The result is the
    output. Raises InvalidArgument for operands that are not such.

    >>> one, two = (torch.tensor(1.0), torch.tensor(10)), (torch.tensor(2.0), torch.tensor(20))
    >>> exchange = lambda x, y: ops.MultiCollectivePermute([x, y], [(0, 1), (1, 0)])
    >>> run_replicas(exchange, [one, two], num_replicas=2)
    [(tensor(2.), tensor(20)), (tensor(1.), tensor(10))]
    """
    require_several(operands, "MultiCollectivePermute")
    attributes = {"source_target_pairs": source_target_pairs, **exchange_attributes((), channel_id)}
    if inplace and slice_sizes:
        given = [packed(o) for o in operands]
        return given[0].builder.add(collective.collective_permute, given, {**attributes, "slice_sizes": slice_sizes})
    return operands[0].builder.add(collective.collective_permute, operands, attributes,
                                   Shape.tuple([o.shape.without_layout() for o in operands]))


# ------------------------------------------------------------------------------------------- ids


@documented
def ReplicaId(builder: Builder) -> XlaOp:
    """The number of the replica that runs, u32[].

    >>> run_replicas(lambda: ops.ReplicaId(), [(), ()], num_replicas=2)
    [tensor(0, dtype=torch.uint32), tensor(1, dtype=torch.uint32)]
    """
    return builder.add(collective.replica_id, [], {}, Shape(U32))


@documented
def PartitionId(builder: Builder, shape: Shape | None = None) -> XlaOp:
    """The number of the partition that runs, u32[]. Raises InvalidArgument for another shape.

    >>> run_replicas(lambda: ops.PartitionId(), [(), ()], num_partitions=2)
    [tensor(0, dtype=torch.uint32), tensor(1, dtype=torch.uint32)]
    """
    return builder.add(collective.partition_id, [], {}, shape or Shape(U32))


BuildPartitionId = PartitionId
PartitionID = PartitionId
