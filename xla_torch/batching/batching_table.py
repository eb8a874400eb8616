"""The table of batching rules: how an op runs on a batch. `batching_rules` fills it, `batched_run` asks it."""

from __future__ import annotations

from collections.abc import Callable

from ..hlo.rule_tables import RuleTable
from ..transform.values import Value

Rule = Callable[..., Value | None]
"""From (batch, instruction, operands, flags), where the flagged operands have the batch as dimension 0, to the result, which
has it. None where the op is to run in a loop over the batch after all."""

RULES: RuleTable[Rule] = RuleTable("batching", filled_by=[f"{__package__}.{module}" for module in ("batching_rules", "calls")])
