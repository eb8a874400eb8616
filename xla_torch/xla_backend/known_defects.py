"""What XLA's partitioner gets wrong, kept from it. Found with jaxlib 0.10.2, whose JAX computes the same wrong numbers."""

from __future__ import annotations

import math

from ..core.errors import UnsupportedError
from ..hlo.custom_calls import target_of
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.mesh_sharding import parse_manual_axes, parse_meshes
from ..hlo.sharding import Sharding, ShardingKind
from ..opcodes.convolution import convolution
from ..opcodes.internal import custom_call
from ..opcodes.window import select_and_scatter

_MARKS = ("SPMDFullToShardShape", "xla.sdy.")
"""How custom calls begin by which values enter manual regions, or which are in Shardy's words."""

_ENTERS, _LEAVES = ("SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"), ("SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape")

_WHOLE, _MANUAL = Sharding(ShardingKind.REPLICATED), Sharding(ShardingKind.MANUAL)


def avoid(module: Module) -> None:
    """Annotate in place what would be partitioned wrongly. Raises UnsupportedError in a program with manual regions
    or in Shardy's words, where an annotation may end XLA or say nothing; but not for what is in a region that is manual along all
    axes, which the partitioner leaves as it is.

    A select-and-scatter that is cut along its windows loses what it scatters across a border: it stays whole. A convolution
    whose operands are both cut along the window, as the gradient of a kernel may be, is summed over all participants, also over
    those that hold the same: its second operand is not cut so.
    """
    computations = module.computations
    is_marked = any(target_of(i).startswith(_MARKS) for c in computations for i in c.instructions)
    left = _Partitioned(module) if is_marked else None
    for computation in computations:
        concerned = [i for i in computation.instructions if _may_be_wrong(i) and (left is None or i in left.found)]
        if not concerned:
            continue
        if is_marked:
            first = concerned[0]
            raise UnsupportedError("XLA's partitioner may get this wrong where it is cut along its window, and cannot be kept "
                                   "from it in a program with manual regions", subject=first.subject, where=first.where,
                                   hint="trace the function without shard_map, or use a region over all axes of the mesh")
        found: list[Instruction] = []
        for instruction in computation.instructions:
            if _may_be_wrong(instruction) and instruction.opcode == select_and_scatter:
                instruction.common["sharding"] = _WHOLE
            elif _may_be_wrong(instruction):
                found.append(_uncut(instruction))
                instruction.operands = (instruction.operands[0], found[-1])
            found.append(instruction)
        computation.instructions = found


def _may_be_wrong(instruction: Instruction) -> bool:
    sharding = instruction.common.get("sharding")
    windowed = instruction.opcode in (select_and_scatter, convolution) and bool(instruction.attributes.get("window"))
    return windowed and not (sharding is not None and sharding.is_manual)


class _Partitioned:
    """The instructions that are not in regions that are manual along all axes, in `found`. What reads values of a region, and
    constants, is in it, until a value leaves."""

    def __init__(self, module: Module):
        meshes = module.header.get("frontend_attributes", {}).get("xla.sdy.meshes", "")
        self._meshes, self._count = parse_meshes(meshes) if meshes else {}, module.num_partitions
        self.found = set[Instruction]()
        self._seen = set[Computation]()
        self._walk(module.entry)

    def _walk(self, computation: Computation) -> None:
        if computation in self._seen:
            return
        self._seen.add(computation)
        manual, constant = set[Instruction](), set[Instruction]()
        for instruction in computation.instructions:
            inside = [o in manual for o in instruction.operands]
            if not instruction.is_parameter and all(o in constant for o in instruction.operands):
                constant.add(instruction)
            if self._enters(instruction) or (any(inside) and target_of(instruction) not in _LEAVES and all(
                    own or o in constant for own, o in zip(inside, instruction.operands, strict=True))):
                manual.add(instruction)
                continue
            self.found.add(instruction)
            for called in instruction.called_computations:
                self._walk(called)

    def _enters(self, instruction: Instruction) -> bool:
        """Whether values enter a region that is manual along all axes."""
        target = target_of(instruction)
        if target not in _ENTERS:
            return False
        if not target.startswith("xla.sdy."):
            return instruction.common.get("sharding", _MANUAL).kind is ShardingKind.MANUAL
        facts = instruction.common.get("frontend_attributes", {})
        axes = parse_manual_axes(facts.get("xla.sdy.manual_axes", "#sdy<manual_axes{}>"))
        return any(math.prod(dict(mesh.axes).get(axis, 0) for axis in axes) == self._count for mesh in self._meshes.values())


def _uncut(instruction: Instruction) -> Instruction:
    """The second operand, whole along the window; how it lies otherwise is XLA's to say."""
    operand, spatial = instruction.operands[1], instruction.attributes["dim_labels"].kernel_spatial_dimensions
    others = ",".join(str(d) for d in range(operand.shape.rank) if d not in spatial)
    return Instruction(custom_call, operand.shape, (operand,), {"custom_call_target": "Sharding"}, "whole_along_window",
                       {"sharding": _WHOLE, "backend_config": f"unspecified_dims=[{others}]"})
