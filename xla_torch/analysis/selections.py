"""Reducers that select: argmax, argmin and their kin, told by what they do and not by how they are written.

A reducer made of comparisons, selects and logic only can depend on nothing but how its operands compare. So a few probes,
one for each way that two keys can compare (NaN included) and each way that the values beside them can, decide what it does
for all operands. That holds however JAX, StableHLO or a user spell it.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.types import PrimitiveType
from ..hlo.inference import forwarded
from ..hlo.ir import Computation, Instruction, cached_on_computation, live_instructions
from ..hlo.regions import callee, is_call
from ..opcodes import elementwise
from .selection_rules import PROBES

Arguments = Mapping[int, Any]
"""Numbers for parameters, by theirs."""


class Ties(enum.StrEnum):
    """Which of equal keys stays."""

    FIRST = enum.auto()
    """The accumulated one."""
    LAST = enum.auto()
    """The new one."""
    LOWEST = enum.auto()
    """The one whose other value is lower, where there are two values."""


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """A reducer that keeps one of its two tuples of values whole: the one whose value number `key` is larger (or smaller).

    NaN wins over all other keys, and of several NaNs the first (where ties go to the last, the last).
    """

    key: int
    largest: bool
    ties: Ties


@cached_on_computation
def selection(computation: Computation) -> Selection | None:
    """The selection that a reducer of 2N scalars does, or None if it does something else or is not known."""
    parameters = computation.parameters
    count = len(parameters) // 2
    if not 1 <= count <= 3 or len(parameters) != 2 * count or not _only_compares(computation):
        return None
    types = [p.shape.element_type for p in parameters[:count]]
    probes = list(itertools.product(*(_PAIRS_OF_FLOATS if t.is_floating else _PAIRS for t in types)))
    results = [_evaluate(computation, [a for a, _ in probe] + [b for _, b in probe]) for probe in probes]
    for candidate in _candidates(types):
        if all(_same(result, _expected(candidate, probe)) for result, probe in zip(results, probes, strict=True)):
            return candidate
    return None


@cached_on_computation
def keeps_zeros(computation: Computation) -> bool:
    """Whether a selection of 0 and -0, which are equal keys, keeps the one that belongs to the values that it keeps beside it."""
    chosen, count = selection(computation), len(computation.parameters) // 2
    if chosen is None or any(is_call(i) or i.opcode in _EXTREMES for i in live_instructions(computation)):
        return False
    for old, first, second in itertools.product((0.0, -0.0), (0, 1), (0, 1)):
        probe = [(old, -old) if k == chosen.key else (first, second) for k in range(count)]
        kept = _evaluate(computation, [a for a, _ in probe] + [b for _, b in probe])[chosen.key]
        if math.copysign(1, kept) != math.copysign(1, old if _keeps(chosen, probe) else -old):
            return False
    return True


def is_larger_of(result: Instruction, computation: Computation, left: Instruction, right: Instruction) -> bool:
    """Whether an instruction of a computation is the larger one of two of its parameters, of one float type, and NaN where either
    is: by whatever comparisons. Which of two zeros it is, is left open."""
    live = live_instructions(computation, [result])
    if not all(i in (left, right) if i.is_parameter else _is_comparison(i) for i in live):
        return False
    numbers = [p.attributes["parameter_number"] for p in (left, right)]
    for pair in _PAIRS_OF_FLOATS:
        arguments = dict(zip(numbers, pair, strict=True))
        if not _same([_result(live, result, arguments)], [math.nan if any(map(math.isnan, pair)) else max(pair)]):
            return False
    return True


_EXTREMES = frozenset({elementwise.maximum, elementwise.minimum})
"""Ops of which not every machine says which of two zeros they give."""


def _candidates(types: Sequence[PrimitiveType]) -> list[Selection]:
    ties = [Ties.FIRST, Ties.LAST, Ties.LOWEST] if len(types) == 2 else [Ties.FIRST, Ties.LAST]
    found = [Selection(k, largest, tie) for k, t in enumerate(types) for largest in (True, False) for tie in ties
             if tie is not Ties.LOWEST or types[1 - k].is_integral]
    return [s for s in found if not types[s.key].is_complex]


_PAIRS = [(old, new) for old in (0, 1) for new in (0, 1)]
_PAIRS_OF_FLOATS = [(old, new) for old in (0.0, 1.0, math.nan) for new in (0.0, 1.0, math.nan)]


def _expected(rule: Selection, probe: Sequence[tuple[Any, Any]]) -> list[Any]:
    return [pair[0 if _keeps(rule, probe) else 1] for pair in probe]


def _keeps(rule: Selection, probe: Sequence[tuple[Any, Any]]) -> bool:
    """Whether the accumulated tuple stays."""
    old, new = probe[rule.key]
    if math.isnan(old) or math.isnan(new):
        return not math.isnan(new) if rule.ties is Ties.LAST else math.isnan(old)
    if old != new:
        return (old > new) is rule.largest
    if rule.ties is Ties.LOWEST:
        beside_old, beside_new = probe[1 - rule.key]
        return beside_old < beside_new
    return rule.ties is Ties.FIRST


def _same(got: Sequence[Any], want: Sequence[Any]) -> bool:
    return all(g == w or (g != g and w != w) for g, w in zip(got, want, strict=True))


# ------------------------------------------------------------------------------------------------ probing


def _only_compares(computation: Computation) -> bool:
    return all(map(_is_comparison, live_instructions(computation)))


def _is_comparison(instruction: Instruction) -> bool:
    if instruction.is_parameter or instruction.is_tuple or instruction.is_element or forwarded(instruction) is not None:
        return True
    if is_call(instruction):
        return _only_compares(callee(instruction))
    rule = PROBES.get(instruction.opcode)
    return rule is not None and rule.understands(instruction)


def _evaluate(computation: Computation, arguments: Sequence[Any]) -> Sequence[Any]:
    result = _root(computation, arguments)
    return result if isinstance(result, tuple) else (result,)


def _root(computation: Computation, arguments: Sequence[Any]) -> Any:
    return _result(live_instructions(computation), computation.root, dict(enumerate(arguments)))


def _result(live: Iterable[Instruction], result: Instruction, arguments: Arguments) -> Any:
    """The value of an instruction, of which `live` are the ones that it needs, in order."""
    values: dict[Instruction, Any] = {}
    for instruction in live:
        values[instruction] = _value(instruction, [values[o] for o in instruction.operands], arguments)
    return values[result]


def _value(instruction: Instruction, operands: Sequence[Any], arguments: Arguments) -> Any:
    if instruction.is_parameter:
        return arguments[instruction.attributes["parameter_number"]]
    if instruction.is_tuple:
        return tuple(operands)
    if instruction.is_element:
        return operands[0][instruction.attributes["index"]]
    if forwarded(instruction) is not None:
        return operands[0]
    if is_call(instruction):
        return _root(callee(instruction), operands)
    return PROBES[instruction.opcode].value(instruction, *operands)
