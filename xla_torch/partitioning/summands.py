"""Results of which each participant has a summand (``unreduced``), in programs that XLA's partitioner makes.

XLA knows the word, and leaves wrong sums where it does not expect it. So it is told that such a result is whole along the axes in
question, and what it made is changed afterwards: a sum at the end is taken over so many participants fewer; and where there is
none, one of those that are to be added up has the whole, and the others have zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from .. import functions as ops
from ..analysis.reducers import reducer_kind
from ..core.errors import InvalidArgument
from ..core.types import PRED
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Instruction, Module
from ..hlo.replica_groups import Groups
from ..hlo.sharding import Grid, Sharding, ShardingKind
from ..opcodes.collective import all_reduce
from ..opcodes.internal import bitcast
from ..opcodes.movement import copy, reshape, transpose
from ..opcodes.reducer_kinds import ReducerKind
from ..stablehlo.tilings import tiling

_MOVES = frozenset({bitcast, copy, reshape, transpose})
"""What a sum may be taken behind, as well as before."""


def stated_sums(module: Module) -> list[Sharding | None]:
    """Say of all values that they lie as sums, in place. Returns how each array of the result was to lie, None where it is no
    summand. Raises InvalidArgument for parameters that are summands, and for results that cannot be summed."""
    root, partitions = module.entry.root, module.num_partitions
    wanted: list[Sharding | None] = []
    if "sharding" in root.common:
        for sharding, shape in zip(root.common["sharding"].leaves(root.shape), root.shape.leaves(), strict=True):
            wanted.append(sharding if shape.is_array and _is_summand(sharding) else None)
            if wanted[-1] is not None and shape.element_type is PRED:
                raise InvalidArgument("results: bool arrays cannot be partial sums", got=str(sharding),
                                      expected="a sharding of tiles")
            if wanted[-1] is not None:
                _require_devices(sharding, shape.rank, partitions)
    if any(wanted) and any(shape.is_tuple for shape in root.shape.tuple_shapes if root.shape.is_tuple):
        raise InvalidArgument("results: partial sums in a nested tuple", got=str(root.shape), expected="a tuple of arrays")
    for parameter in module.entry.parameters:
        if any(_is_summand(s) for s in parameter.common["sharding"].leaves(parameter.shape)):
            raise InvalidArgument(f"argument {parameter.name}: a program cannot take partial sums",
                                  got=str(parameter.common["sharding"]), expected="a sharding of tiles",
                                  hint="use on_mesh, which sums Partial DTensors")
    for instruction in (i for c in module.computations for i in c.instructions if "sharding" in i.common):
        instruction.common["sharding"] = _summed(instruction.common["sharding"])
    return wanted


def leave_summands(part: Module, wanted: Sequence[Sharding | None]) -> None:
    """Let results of one participant's program be summands, where they are wanted so; in place."""
    if not any(wanted):
        return
    root, builder = part.entry.root, Builder(part.entry.name)
    made = {i: builder.append(i) for i in part.entry.instructions}
    own = [made[o] for o in root.operands] if root.is_tuple else [
        ops.GetTupleElement(made[root], k) for k in range(len(wanted))] if root.shape.is_tuple else [made[root]]
    shardings = list(root.common["sharding"].leaves(root.shape))
    for k, sharding in enumerate(wanted):
        if sharding is not None:
            grid = sharding.grid(own[k].shape.rank, part.num_partitions)
            own[k], shardings[k] = _summand(own[k], grid), sharding
    result = ops.Tuple(builder, own) if root.shape.is_tuple else own[0]
    root.common.pop("sharding")
    result.instruction.common = {**result.instruction.common, "sharding": Sharding(
        ShardingKind.TUPLE, elements=tuple(shardings)) if root.shape.is_tuple else shardings[0]}
    part.entry = builder.finish(result)


def _summand(value: XlaOp, grid: Grid) -> XlaOp:
    sums = _groups(grid)
    behind, total = list[Instruction](), value.instruction
    while total.opcode in _MOVES:
        behind.append(total)
        total = total.operands[0]
    over = _summed_over(total)
    if not over or not all(any(set(own) <= set(group) for group in over) for own in sums):
        return _by_first(value, sums)
    part = XlaOp(value.builder, total.operands[0])
    if (rest := _rest(over, sums)) is not None:
        part = ops.AllReduce(part, total.attributes["to_apply"], rest, total.attributes["channel_id"], use_global_device_ids=True)
    for instruction in reversed(behind):
        part = value.builder.append(Instruction(instruction.opcode, instruction.shape, [part.instruction], instruction.attributes,
                                                instruction.name, dict(instruction.common)))
    return part


def _groups(grid: Grid) -> Groups:
    """Those that add up, in order."""
    return tuple(sorted({tuple(grid.summands(k)) for k in range(grid.partitions)}))


def _summed_over(instruction: Instruction) -> Groups:
    """The groups of partitions over which an instruction is the sum of its one operand; none where it is none."""
    attributes = instruction.attributes
    if instruction.opcode != all_reduce or len(instruction.operands) != 1 or not attributes.get("use_global_device_ids"):
        return ()
    if reducer_kind(attributes["to_apply"]) is not ReducerKind.ADD:
        return ()
    return attributes["replica_groups"].groups


def _rest(over: Groups, sums: Groups) -> Groups | None:
    """The groups in which still to sum, so that the sum over each of `sums` is that over the one of `over` that it is part of."""
    found: list[tuple[int, ...]] = []
    for group in over:
        columns = zip(*(own for own in sums if own[0] in group), strict=True)
        found += [tuple(column) for column in columns]
    return None if all(len(group) == 1 for group in found) else tuple(sorted(found))


def _by_first(value: XlaOp, sums: Groups) -> XlaOp:
    """The value on the first of each group, zeros on the others."""
    builder, first = value.builder, np.zeros(sum(map(len, sums)), bool)
    first[[group[0] for group in sums]] = True
    own = ops.DynamicSlice(builder.constant(first, PRED), [ops.PartitionId(builder)], [1])
    zeros = ops.Broadcast(builder.constant(0, value.element_type), value.shape.dimensions)
    return ops.Select(ops.Reshape(own, []), value, zeros)


def _is_summand(sharding: Sharding) -> bool:
    return sharding.kind is ShardingKind.UNREDUCED or ShardingKind.UNREDUCED in sharding.subgroups or (
        sharding.mesh is not None and bool(sharding.mesh.unreduced))


def _require_devices(sharding: Sharding, rank: int, partitions: int) -> None:
    sharding.check_rank(rank)
    sharding.check_devices(partitions)


def _summed(sharding: Sharding) -> Sharding:
    """How the sum lies of what lies so."""
    if sharding.elements:
        return dataclasses.replace(sharding, elements=tuple(map(_summed, sharding.elements)))
    if not _is_summand(sharding):
        return sharding
    if sharding.mesh is not None:
        return tiling(sharding.mesh)  # XLA takes no other in a tuple
    if sharding.kind is ShardingKind.UNREDUCED:
        return dataclasses.replace(sharding, kind=ShardingKind.REPLICATED)
    whole = [ShardingKind.REPLICATED if s is ShardingKind.UNREDUCED else s for s in sharding.subgroups]
    return Sharding.parse(str(dataclasses.replace(sharding, subgroups=tuple(whole))))  # in the form in which XLA keeps it
