"""The global meaning of a program that is written for several partitions and has not been partitioned.

Most of such a program is about whole arrays: annotations only say how a partitioner should lay them out. Within manual regions
(JAX's shard_map) it is about the arrays of one partition; a value goes in through SPMDFullToShardShape and out through
SPMDShardToFullShape, in Shardy's words xla.sdy.GlobalToLocalShape and LocalToGlobalShape. Here a value of a region stands for
those of all partitions, one after another along dimension 0 (see `batching/batched_run.py`), and what they exchange is an op
along it. So the whole program runs on one participant, prints as HLO, and differentiates like any other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from .. import functions as ops
from ..batching.batched_run import Batch, Mapped, any_mapped
from ..core.errors import InvalidArgument, UnsupportedError, XlaError
from ..core.participant_groups import GroupMode
from ..core.types import U32
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction, Module, cached_on_computation
from ..hlo.mesh_sharding import Mesh, parse_manual_axes, parse_sdy_shardings
from ..hlo.regions import has_regions_of_values, is_loop
from ..hlo.replica_groups import Groups
from ..hlo.sharding import Grid, Sharding, ShardingKind
from ..opcodes.collective import group_mode, partition_id
from ..opcodes.control import call
from ..transform.canonical import Canonicalizer
from ..transform.rewriter import rebuilt
from ..transform.values import Value, as_op, elements_of, leaves, regrouped
from .annotations import enters, is_annotation, is_border, is_shardy, meshes_of
from .collective_table import COLLECTIVES
from .tiles import rows, tiled, untiled

_BODY = re.compile(r"xla\.sdy\.manual_computation_body")
_MARK = "partitions"
"""Where an instruction keeps its `Crossing` or its `Groups` between the two passes."""


def without_manual_regions(module: Module, partitions: int) -> Computation:
    """The entry in plain form with its manual regions run for all partitions at once.

    Raises UnsupportedError for what partitions cannot do together here, InvalidArgument for shardings that do not fit.
    """
    context = _Context(meshes_of(module), partitions, module.replica_count)
    marked = rebuilt(module.entry, lambda builder: _Marker(builder, context))
    builder = Builder(marked.name)
    arguments = [elements_of(builder.parameter(k, p.shape, p.name)) for k, p in enumerate(marked.parameters)]
    flags = [regrouped([False for _ in p.shape.leaves()], p.shape) for p in marked.parameters]
    run = _AllPartitions(builder, marked, partitions, arguments, flags)
    if any_mapped(run.result_mapped):
        raise UnsupportedError("a result of the program differs between partitions", subject=module.name,
                               hint="pass it out of the manual region through SPMDShardToFullShape")
    return builder.finish(as_op(builder, run.result))


# ------------------------------------------------------------------------------------------------ what happens where


@dataclasses.dataclass(frozen=True, slots=True)
class Crossing:
    """A border of a region. For each array crossing it, which tile each partition has of the whole array outside, and of the
    array inside: where only some axes of a mesh are manual, partitions may hold that one together. `nested`: outside is a
    region too."""

    enters: bool
    grids: tuple[tuple[Grid, Grid], ...]
    nested: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Context:
    meshes: Mapping[str, Mesh]
    partitions: int
    replicas: int


def _of_sums(crossing: Crossing) -> Crossing:
    if crossing.enters and any(outside.sums is not None for outside, _ in crossing.grids):
        raise UnsupportedError("a manual region takes partial sums, but only their sum exists", got="unreduced axes",
                               expected="in_specs without them",
                               hint="sum before the region, or partition the program with XLA and run the result")
    return crossing


_MANUAL = Sharding(ShardingKind.MANUAL)


class _Marker(Canonicalizer):
    """Brings a program into plain form and notes what is known only before: at borders the tiles, at exchanges the groups."""

    def __init__(self, builder: Builder, context: _Context, depth: int = 0):
        super().__init__(builder)
        self.context, self.depth = context, depth

    def within(self, builder: Builder) -> Canonicalizer:
        return _Marker(builder, self.context, self.depth)

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if instruction.opcode == call and _BODY.search(instruction.called_computations[0].name):
            inside = _Marker(self.builder, self.context, self.depth + 1)
            return inside.call(instruction, operands)
        mark = self._mark(instruction)
        if mark is None:
            return super().visit(instruction, operands, arguments)
        noted = Instruction(instruction.opcode, instruction.shape, instruction.operands, instruction.attributes,
                            instruction.name, {**instruction.common, _MARK: mark}, instruction.line, instruction.column)
        return super().visit(noted, operands, arguments)

    def _mark(self, instruction: Instruction) -> Crossing | Groups | None:
        try:
            if instruction.opcode in COLLECTIVES:
                return _groups(instruction, self.context)
            if not is_border(instruction):
                return None
            if is_shardy(instruction):
                return _of_sums(_sdy_crossing(instruction, self.context, self.depth > 0))
            return _of_sums(_crossing(instruction, self.context))
        except XlaError as error:
            raise error.located(instruction.subject, instruction.where) from None


def _crossing(instruction: Instruction, context: _Context) -> Crossing:
    """One array's sharding stands at the operand, the other's at the instruction itself."""
    (operand,), partitions = instruction.operands, context.partitions
    outside, inside = (operand, instruction) if enters(instruction) else (instruction, operand)
    sharding: Sharding = outside.common.get("sharding") or Sharding(ShardingKind.REPLICATED)
    own: Sharding = inside.common.get("sharding") or _MANUAL
    if sharding.kind is ShardingKind.MANUAL:
        raise InvalidArgument("the sharding of the whole array is missing", got=str(sharding), expected="tiles, or {replicated}")
    rank = instruction.shape.rank
    grids = _checked(sharding.grid(rank, partitions), context), _checked(own.grid(rank, partitions), context)
    return Crossing(enters(instruction), (grids,), sharding.is_manual)


def _sdy_crossing(instruction: Instruction, context: _Context, nested: bool) -> Crossing:
    facts = instruction.common.get("frontend_attributes", {})
    key = "xla.sdy.in_shardings" if enters(instruction) else "xla.sdy.out_shardings"
    if key not in facts or "xla.sdy.manual_axes" not in facts:
        raise InvalidArgument("the shardings of a manual region are missing", got=", ".join(facts) or "no frontend_attributes",
                              expected=f"{key} and xla.sdy.manual_axes")
    axes = parse_manual_axes(facts["xla.sdy.manual_axes"])
    shardings = parse_sdy_shardings(facts[key], context.meshes)
    grids = [(_checked(Grid(*s.tiles(axes), s.sums(axes)), context), _MANUAL.grid(len(s.dimensions), context.partitions))
             for s in shardings]
    return Crossing(enters(instruction), tuple(grids), nested)


def _checked(grid: Grid, context: _Context) -> Grid:
    if grid.partitions != context.partitions:
        raise InvalidArgument("the sharding is for another number of partitions", got=grid.partitions,
                              expected=context.partitions)
    return grid


def _groups(instruction: Instruction, context: _Context) -> Groups | None:
    """The groups of partitions that exchange (of a permute the pairs); None where only replicas do."""
    attributes, across = instruction.attributes, COLLECTIVES[instruction.opcode].mode
    mode = attributes.get("mode") or group_mode(
        attributes.get("channel_id"), attributes.get("use_global_device_ids", False), across)
    if mode == GroupMode.CROSS_REPLICA:
        return None
    if context.replicas > 1 and mode != GroupMode.CROSS_PARTITION:
        raise UnsupportedError("a collective across replicas is not supported in a program that has not been partitioned",
                               got=f"{context.replicas} replicas", expected="one replica",
                               hint="partition the program with XLA, and run the result")
    if "source_target_pairs" in attributes:
        return _existing(attributes["source_target_pairs"], context)
    listed = attributes["replica_groups"].groups if "replica_groups" in attributes else ()
    everybody = (tuple(range(context.partitions)),)
    return everybody if mode == GroupMode.CROSS_BOTH or not listed else _existing(listed, context)


def _existing(groups: Groups, context: _Context) -> Groups:
    named = [number for group in groups for number in group]
    if max(named, default=0) >= context.partitions:
        raise InvalidArgument(f"a group names partition {max(named)}, and there are {context.partitions}",
                              got=[list(group) for group in groups])
    return groups


# ------------------------------------------------------------------------------------------------ all partitions at once


class _AllPartitions(Batch):
    """A marked computation with the values of regions for all partitions, along dimension 0."""

    def _run(self, instruction: Instruction) -> tuple[Value, Mapped]:
        mark = instruction.common.get(_MARK)
        values, mapped = [self.values[o] for o in instruction.operands], [self.mapped[o] for o in instruction.operands]
        if instruction.opcode == partition_id:
            return self.builder.constant(np.arange(self.size), U32), True
        if is_annotation(instruction) and instruction.operands[0].shape.compatible(instruction.shape):
            return values[0], mapped[0]
        if mark is None:
            return self._region(instruction, values, mapped) or super()._run(instruction)
        try:
            if isinstance(mark, Crossing):
                return self._cross(instruction, mark, values, mapped)
            return self._exchange(instruction, mark, values, mapped)
        except XlaError as error:
            raise error.located(instruction.subject, instruction.where) from None

    def _region(self, instruction: Instruction, values: list[Value], mapped: list[Mapped]) -> tuple[Value, Mapped] | None:
        """A loop or branch in which partitions differ though they begin with the same."""
        if not has_regions_of_values(instruction) or any(map(any_mapped, mapped)):
            return None
        if not any(map(_differs_within, instruction.called_computations)):
            return None
        if is_loop(instruction):
            return self._loop(instruction, values[0], mapped[0])
        return self._branches(instruction, values, mapped)

    def _cross(self, instruction: Instruction, crossing: Crossing, values: list[Value],
               mapped: list[Mapped]) -> tuple[Value, Mapped]:
        given = [leaf for value in values for leaf in leaves(value)]
        flags = [bool(flag) for flag in mapped]
        shapes = list(instruction.shape.leaves())
        if not len(given) == len(shapes) == len(crossing.grids):
            raise InvalidArgument("the number of shardings must equal the number of arrays", got=len(crossing.grids),
                                  expected=len(given))
        cross = self._enter if crossing.enters else self._leave
        found = [cross(value, flag, outside, inside, shape.dimensions, crossing.nested)
                 for value, flag, (outside, inside), shape in zip(given, flags, crossing.grids, shapes, strict=True)]
        own = crossing.enters or crossing.nested
        return regrouped(found, instruction.shape), regrouped([own] * len(found), instruction.shape)

    def _enter(self, value: XlaOp, mapped: bool, outside: Grid, inside: Grid, local: Sequence[int], nested: bool) -> XlaOp:
        """Of the whole array (each partition's, where it comes from a region) each partition's part."""
        cut = tiled(value, outside.counts, _tile_sizes(local, inside), batched=mapped)
        step = cut.shape.dimensions[0] // self.size if mapped else 0
        holders = _holders(inside, nested=True)
        places = [step * p + outside.tiles[_holder(holders, group, tile)] for p, group in enumerate(inside.groups.tolist())
                  for tile in range(math.prod(inside.counts))]
        return untiled(rows(cut, places), inside.counts, local, self.size)

    def _leave(self, value: XlaOp, mapped: bool, outside: Grid, inside: Grid, whole: Sequence[int], nested: bool) -> XlaOp:
        """The whole array from its tiles. Where several partitions have the same tile, the first one's counts; where they have
        summands of it, their sum."""
        value = self.full(value, mapped)
        cut = tiled(value, inside.counts, _tile_sizes(value.shape.dimensions[1:], inside), batched=True)
        holders = _holders(outside, nested)
        holding = [outside.summands(_holder(holders, group, tile)) for group in (outside.groups.tolist() if nested else [0])
                   for tile in range(math.prod(outside.counts))]
        found = []
        for summands in zip(*holding, strict=True):
            places = [p * math.prod(inside.counts) + inside.tiles[p] for p in summands]
            found.append(untiled(rows(cut, places), outside.counts, whole, self.size if nested else None))
        return functools.reduce(ops.Add, found)

    def _exchange(self, instruction: Instruction, groups: Groups, values: list[Value],
                  mapped: list[Mapped]) -> tuple[Value, Mapped]:
        given = self.all([as_op(self.builder, v) for v in values], [bool(m) for m in mapped])
        found = COLLECTIVES[instruction.opcode].exchange(instruction, groups, self.size, given)
        result = found if instruction.shape.is_tuple else found[0]
        return result, [True] * len(found) if instruction.shape.is_tuple else True


def _tile_sizes(sizes: Sequence[int], grid: Grid) -> list[int]:
    return [-(-n // count) for n, count in zip(sizes, grid.counts, strict=True)]


def _holders(grid: Grid, nested: bool) -> dict[tuple[int, int], int]:
    """The first partition that has a tile, by its group (0 for all, if not `nested`) and the tile."""
    groups = grid.groups if nested else np.zeros_like(grid.groups)
    pairs = list(zip(groups.tolist(), grid.tiles.tolist(), strict=True))
    return {pair: p for p, pair in reversed(list(enumerate(pairs)))}


def _holder(holders: Mapping[tuple[int, int], int], group: int, tile: int) -> int:
    if (group, tile) not in holders:
        raise InvalidArgument("no partition has one of the tiles of the whole array", got=f"tile {tile}")
    return holders[group, tile]


@cached_on_computation
def _differs_within(computation: Computation) -> bool:
    """Whether partitions that begin with the same may have different values inside."""
    return any(i.opcode == partition_id or i.opcode in COLLECTIVES or is_border(i)
               or any(map(_differs_within, i.called_computations)) for i in computation.instructions)
