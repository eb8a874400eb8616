"""The table of what partitions exchange in manual regions. `collectives` fills it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..core.participant_groups import GroupMode
from ..functions.hlo_builder import XlaOp
from ..hlo.ir import Instruction
from ..hlo.replica_groups import Groups
from ..hlo.rule_tables import RuleTable
from ..hlo.schema import OpSchema

Exchange = Callable[[Instruction, Groups, int, list[XlaOp]], list[XlaOp]]
"""From the instruction, the groups of partitions (or pairs of source and target), how many partitions there are, and the
operands of all partitions, to the results of all partitions: one array for each result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Collective:
    """The rule of an op by which partitions exchange."""

    exchange: Exchange
    mode: GroupMode = GroupMode.CROSS_PARTITION
    """What the numbers in its groups are where it has a channel, and they are not global."""


def _exchanges(schema: OpSchema) -> bool:
    """Whether participants exchange arrays here, and do not only await what they exchange."""
    return schema.exchange and not schema.completes and bool(schema.operands or schema.variadic) and not schema.channel_of


COLLECTIVES: RuleTable[Collective] = RuleTable("partitioning", _exchanges, [f"{__package__}.collectives"])
"""By opcode, what partitions do together in a manual region."""
