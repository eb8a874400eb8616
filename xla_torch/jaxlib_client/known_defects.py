"""What XLA's partitioner gets wrong, kept from it. Found with jaxlib 0.10.2, whose JAX computes the same wrong numbers."""

from __future__ import annotations

from ..core.errors import UnsupportedError
from ..hlo.custom_calls import target_of
from ..hlo.ir import Instruction, Module
from ..hlo.sharding import Sharding, ShardingKind
from ..opcodes.convolution import convolution
from ..opcodes.internal import custom_call
from ..opcodes.window import select_and_scatter

_MARKS = ("SPMDFullToShardShape", "xla.sdy.")
"""How custom calls begin by which values enter manual regions, or which are in Shardy's words."""

_WHOLE = Sharding(ShardingKind.REPLICATED)


def avoid(module: Module) -> None:
    """Annotate in place what would be partitioned wrongly. Raises UnsupportedError in a program with manual regions
    or in Shardy's words, where an annotation may end XLA or say nothing.

    A select-and-scatter that is cut along its windows loses what it scatters across a border: it stays whole. A convolution
    whose operands are both cut along the window, as the gradient of a kernel may be, is summed over all participants, also over
    those that hold the same: its second operand is not cut so.
    """
    computations = module.computations
    is_marked = any(target_of(i).startswith(_MARKS) for c in computations for i in c.instructions)
    for computation in computations:
        concerned = [i for i in computation.instructions if _may_be_wrong(i)]
        if not concerned:
            continue
        if is_marked:
            first = concerned[0]
            raise UnsupportedError("XLA's partitioner may get this wrong where it is cut along its window, and cannot be kept "
                                   "from it in a program with manual regions", subject=first.subject, where=first.where,
                                   hint="trace the function without shard_map")
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


def _uncut(instruction: Instruction) -> Instruction:
    """The second operand, whole along the window; how it lies otherwise is XLA's to say."""
    operand, spatial = instruction.operands[1], instruction.attributes["dim_labels"].kernel_spatial_dimensions
    others = ",".join(str(d) for d in range(operand.shape.rank) if d not in spatial)
    return Instruction(custom_call, operand.shape, (operand,), {"custom_call_target": "Sharding"}, "whole_along_window",
                       {"sharding": _WHOLE, "backend_config": f"unspecified_dims=[{others}]"})
