"""The table of rules: what each opcode is in StableHLO.

A rule gets the scope that it writes into (`scope.py`), the instruction and its operands, tuples taken apart, and gives the values
of the result. It names the attributes that it says; an instruction with another one is refused, so that none is lost without a
word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...hlo.ir import Instruction
from ...hlo.rule_tables import RuleTable
from ...hlo.structure import PARAMETER
from ...mlir.ir import Value
from .refused import OPCODES

Function: TypeAlias = Callable[[Any, Instruction, Sequence[Value]], Sequence[Value]]


@dataclasses.dataclass(frozen=True, slots=True)
class WritingRule:
    function: Function
    says: frozenset[str]


RULES: RuleTable[WritingRule] = RuleTable("stablehlo", serves=lambda schema: schema.opcode not in (*OPCODES, PARAMETER))
"""The rule of each opcode; a parameter is an argument of the function. Filled by the modules of rules, at import."""


def rule(*opcodes: str, says: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Decorate the rule of these opcodes, which writes the attributes `says`."""

    def register(function: Function) -> Function:
        for opcode in opcodes:
            RULES.add(opcode, WritingRule(function, frozenset(says)))
        return function

    return register
