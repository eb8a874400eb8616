"""How an op is resolved, and which sizes it keeps. `resolving_rules` fills these tables, `resolver` asks them."""

from __future__ import annotations

from collections.abc import Callable

from ...hlo.ir import Instruction
from ...hlo.rule_tables import RuleTable
from ..values import Value

Rule = Callable[..., Value]
"""From (resolver, instruction, operands), where operands have resolved sizes, to the instruction's value. An op without a rule
is repeated over its operands as it is."""

Source = Callable[[Instruction, int], tuple[Instruction, int] | None]
"""From an instruction and a dimension of its result to an operand and the dimension of it that has the same size."""

_FILLED_BY = [f"{__package__}.resolving_rules"]

RULES: RuleTable[Rule] = RuleTable("dynamic size", filled_by=_FILLED_BY)
SOURCES: RuleTable[Source] = RuleTable("source of a size", filled_by=_FILLED_BY)
