"""Ops that depend on nothing but how their operands compare, on single numbers: what `selections` probes reducers with."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..opcodes import comparison, elementwise

Number = float | int | bool


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One op: `value` from the instruction and its operands' numbers; `understands` says of which instructions it is right."""

    value: Callable[..., Any]
    understands: Callable[[Instruction], bool] = lambda _: True


PROBES: RuleTable[Probe] = RuleTable("probe")

DIRECTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge}


def _tells_apart_no_more(compare: Instruction) -> bool:
    """The total order tells -0 from +0, which the probes do not; a signed comparison of unsigned integers cannot occur."""
    return compare.attributes.get("type") != "TOTALORDER" or not compare.operands[0].shape.element_type.is_floating


def _is_logic(instruction: Instruction) -> bool:
    return instruction.shape.element_type.is_pred


def _extreme(choose: Callable[[Number, Number], Number]) -> Callable[..., Number]:
    """The larger or smaller number, or the first NaN."""
    return lambda _, a, b: a if a != a else b if b != b else choose(a, b)


PROBES.add_all({
    comparison.compare: Probe(lambda i, a, b: DIRECTIONS[i.attributes["direction"]](a, b), _tells_apart_no_more),
    comparison.select: Probe(lambda _, pred, on_true, on_false: on_true if pred else on_false),
    elementwise.maximum: Probe(_extreme(max)),
    elementwise.minimum: Probe(_extreme(min)),
    elementwise.and_: Probe(lambda _, a, b: a and b, _is_logic),
    elementwise.or_: Probe(lambda _, a, b: a or b, _is_logic),
    elementwise.not_: Probe(lambda _, a: not a, _is_logic),
})
