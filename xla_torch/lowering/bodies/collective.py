"""Bodies of the collectives: each makes one call, to a kernel that lets the current participant exchange.

A start does the same as the whole, and its done takes the result out: the lowering begins every exchange where it stands and
awaits it where its result is used (`lowering/overlap.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.participant_groups import GroupMode
from ...core.shape import Shape
from ...core.types import PrimitiveType
from ...distributed.exchange import Site
from ...distributed.reductions import Reducer, Reduction
from ...hlo.attributes import Bool, CollectiveMode, Dims, Groups, Int, Pairs, Region
from ...hlo.ir import Computation, Instruction
from ...kernels import collective as kernels
from ...opcodes.collective import gathered_shards, group_mode, starts_of, turns
from ...opcodes.reducer_kinds import ReducerKind
from .. import values
from ..body_table import body
from ..monoids import kind_of_reducer
from ..values import Splat, Value


def _site(inst: Instruction, channel_id: int | None) -> Site:
    """What errors at run time say of the place."""
    return inst.subject, channel_id or 0


def _narrow(shape: Shape) -> tuple[PrimitiveType, ...]:
    """For what only moves elements: their type where between processes it needs less than its storage dtype."""
    element_type = shape.element_type
    return (element_type,) if element_type.is_narrow and element_type.is_floating else ()


def _each(inst: Instruction, operands: Sequence[Value], function: Callable[[Value, Shape], Value]) -> Value:
    """The function of each operand: one value, or a tuple where the result is one."""
    shapes = [o.shape for o in inst.operands]
    results = [function(value, shape) for value, shape in zip(operands, shapes, strict=True)]
    return tuple(results) if inst.shape.is_tuple else results[0]


@body("all-gather")
def all_gather(inst: Instruction, *operands: Value, dimensions: Dims, replica_groups: Groups, channel_id: Int | None,
               use_global_device_ids: Bool, constrain_layout: Bool) -> Value:
    dim, mode = dimensions[0], group_mode(channel_id, use_global_device_ids)
    shards = gathered_shards(next(inst.shape.leaves()), inst.operands[0].shape, dim)
    return _each(inst, operands, lambda value, shape: values.emit(
        kernels.all_gather, value, dim, shards, replica_groups.groups, mode, _site(inst, channel_id), *_narrow(shape)))


@body("all-gather-start")
def all_gather_start(inst: Instruction, *operands: Value, dimensions: Dims, replica_groups: Groups,
                     channel_id: Int | None, use_global_device_ids: Bool, constrain_layout: Bool) -> Value:
    dim, mode = dimensions[0], group_mode(channel_id, use_global_device_ids)
    gathered = inst.shape.tuple_shapes[1]
    shards = gathered_shards(next(gathered.leaves()), inst.operands[0].shape, dim)
    site = _site(inst, channel_id)
    results = tuple(values.emit(kernels.all_gather, v, dim, shards, replica_groups.groups, mode, site, *_narrow(o.shape))
                    for v, o in zip(operands, inst.operands, strict=True))
    return (operands, results) if gathered.is_tuple else (operands[0], results[0])


@body("all-gather-done")
def all_gather_done(inst: Instruction, operand: Value) -> Value:
    return operand[1]


_REDUCTIONS: dict[str, Reduction] = {
    ReducerKind.ADD: Reduction.ADD, ReducerKind.MULTIPLY: Reduction.MULTIPLY, ReducerKind.AND: Reduction.AND,
    ReducerKind.OR: Reduction.OR, ReducerKind.XOR: Reduction.XOR, ReducerKind.MINIMUM: Reduction.MINIMUM,
    ReducerKind.MAXIMUM: Reduction.MAXIMUM,
}
_UNSIGNED = {Reduction.MINIMUM: Reduction.UNSIGNED_MINIMUM, Reduction.MAXIMUM: Reduction.UNSIGNED_MAXIMUM}


def _reducer(to_apply: Computation, element_type: PrimitiveType) -> Reducer:
    """The reducer as kernels take it: by name where torch has a function for it, else the region as a function."""
    found = _REDUCTIONS.get(kind_of_reducer(to_apply) or "")
    if found is None or (found in _UNSIGNED and element_type.is_complex):
        return values.region_function(to_apply)
    return _UNSIGNED.get(found, found) if element_type.hides_sign else found


@body("all-reduce")
@body("all-reduce-start")
def all_reduce(inst: Instruction, *operands: Value, to_apply: Region, replica_groups: Groups, channel_id: Int | None,
               use_global_device_ids: Bool, constrain_layout: Bool, mode: CollectiveMode | None) -> Value:
    how = mode or group_mode(channel_id, use_global_device_ids)
    return _each(inst, operands, lambda value, shape: values.emit(
        kernels.all_reduce, value, _reducer(to_apply, shape.element_type), replica_groups.groups, how, _site(inst, channel_id)))


@body("all-reduce-done", view=True)
def all_reduce_done(inst: Instruction, operand: Value) -> Value:
    return operand


@body("reduce-scatter")
def reduce_scatter(inst: Instruction, *operands: Value, dimensions: Dims, to_apply: Region, replica_groups: Groups,
                   channel_id: Int | None, use_global_device_ids: Bool, constrain_layout: Bool,
                   mode: CollectiveMode | None) -> Value:
    dim, how = dimensions[0], mode or group_mode(channel_id, use_global_device_ids)
    shards = gathered_shards(inst.operands[0].shape, next(inst.shape.leaves()), dim)
    return _each(inst, operands, lambda value, shape: values.emit(
        kernels.reduce_scatter, value, _reducer(to_apply, shape.element_type), dim, shards, replica_groups.groups, how,
        _site(inst, channel_id)))


@body("collective-reduce")
def collective_reduce(inst: Instruction, *operands: Value, to_apply: Region, replica_groups: Groups,
                      channel_id: Int | None, has_dynamic_root: Bool) -> Value:
    mode = group_mode(channel_id, across=GroupMode.CROSS_PARTITION)
    return _each(inst, operands, lambda value, shape: values.emit(
        kernels.reduce_to_first, value, _reducer(to_apply, shape.element_type), replica_groups.groups, mode,
        _site(inst, channel_id)))


@body("all-to-all")
def all_to_all(inst: Instruction, *operands: Value, dimensions: Dims, replica_groups: Groups, channel_id: Int | None,
               constrain_layout: Bool) -> Value:
    mode, site = group_mode(channel_id, across=GroupMode.CROSS_PARTITION), _site(inst, channel_id)
    narrow = _narrow(inst.operands[0].shape)
    if dimensions:
        return values.emit(kernels.all_to_all, operands[0], dimensions[0], replica_groups.groups, mode, site, *narrow)
    results = values.emit(kernels.all_to_all_tuple, operands, replica_groups.groups, mode, site, *narrow)
    return tuple(results[i] for i in range(len(operands)))


@body("ragged-all-to-all")
def ragged_all_to_all(inst: Instruction, operand: Value, output: Value, input_offsets: Value, send_sizes: Value,
                      output_offsets: Value, recv_sizes: Value, *, replica_groups: Groups, channel_id: Int | None,
                      dimensions: Dims) -> Value:
    mode = group_mode(channel_id, across=GroupMode.CROSS_PARTITION)
    return values.emit(kernels.ragged_all_to_all, operand, output, input_offsets, send_sizes, output_offsets,
                       replica_groups.groups, mode, _site(inst, channel_id))


@body("collective-broadcast")
def collective_broadcast(inst: Instruction, *operands: Value, replica_groups: Groups, channel_id: Int | None,
                         has_dynamic_root: Bool) -> Value:
    mode = group_mode(channel_id, across=GroupMode.CROSS_PARTITION)
    return _each(inst, operands, lambda value, shape: values.emit(
        kernels.broadcast, value, replica_groups.groups, mode, _site(inst, channel_id), *_narrow(shape)))


@body("collective-permute")
def collective_permute(inst: Instruction, *operands: Value, source_target_pairs: Pairs, channel_id: Int | None,
                       slice_sizes: Pairs) -> Value:
    results = _permuted(inst, operands, source_target_pairs, channel_id, slice_sizes)
    return results if inst.shape.is_tuple else results[0]


def _permuted(inst: Instruction, operands: Sequence[Value], pairs: Sequence[Sequence[int]], channel_id: int | None,
              slice_sizes: Sequence[Sequence[int]]) -> tuple[Value, ...]:
    mode, site = group_mode(channel_id, across=GroupMode.CROSS_PARTITION), _site(inst, channel_id)
    if not slice_sizes:
        return tuple(values.emit(kernels.permute, value, pairs, mode, site, *_narrow(o.shape))
                     for value, o in zip(operands, inst.operands, strict=True))
    shapes = [o.shape for o in inst.operands]
    inputs, outputs = (v if s.is_tuple else (v,) for v, s in zip(operands[:2], shapes[:2], strict=True))
    read, written = (starts_of(shapes[k], shapes[k + 2], operands[k + 2]) for k in range(2))
    count, each = len(slice_sizes) // len(inputs), tuple(turns(pairs))
    return tuple(values.emit(kernels.permute_slices, value, output, read[k], written[k],
                             tuple(slice_sizes[k * count:(k + 1) * count]), pairs, each, mode, site)
                 for k, (value, output) in enumerate(zip(inputs, outputs, strict=True)))


@body("collective-permute-start")
def collective_permute_start(inst: Instruction, *operands: Value, source_target_pairs: Pairs, channel_id: Int | None,
                             slice_sizes: Pairs) -> Value:
    results = _permuted(inst, operands, source_target_pairs, channel_id, slice_sizes)
    contexts = tuple(Splat(0, s.dimensions) for s in inst.shape.tuple_shapes[2:])
    result = results if inst.shape.tuple_shapes[1].is_tuple else results[0]
    if slice_sizes:
        return (operands[0], result, *contexts)
    return (operands if inst.shape.tuple_shapes[0].is_tuple else operands[0], result, *contexts)


@body("collective-permute-done")
def collective_permute_done(inst: Instruction, operand: Value) -> Value:
    return operand[1]


@body("replica-id")
def replica_id(inst: Instruction) -> Value:
    return values.emit(kernels.replica_id, values.device())


@body("partition-id")
def partition_id(inst: Instruction) -> Value:
    return values.emit(kernels.partition_id, values.device())
