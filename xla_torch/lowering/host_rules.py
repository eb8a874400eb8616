"""Ops on scalars that the running program holds as Python numbers: what `host` computes loop counters and indices with.

A rule gets the instruction and its operands, `Host` or Python numbers. Its result is a `Host` with the interval of its values, or
a number; None where the op is not done on the host.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..opcodes import comparison, convert, elementwise, internal, movement
from .values import Host

Scalar: TypeAlias = Host | int | bool

HOST: RuleTable[Callable[..., Scalar | None]] = RuleTable("scalar on the host")


def interval(x: Scalar) -> tuple[int, int]:
    return (x.low, x.high) if isinstance(x, Host) else (int(x), int(x))


def _raw(x: Scalar) -> Any:
    return x.value if isinstance(x, Host) else x


def _corners(function: Callable[[int, int], int], a: Scalar, b: Scalar) -> tuple[int, int]:
    values = [function(x, y) for x in interval(a) for y in interval(b)]
    return min(values), max(values)


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Scalar]:
    return lambda _, a, b: Host(function(_raw(a), _raw(b)), *_corners(function, a, b))


def _compare(instruction: Instruction, a: Scalar, b: Scalar) -> Scalar | None:
    function = {"EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt,
                "GE": operator.ge}[instruction.attributes["direction"]]
    (a_low, a_high), (b_low, b_high) = interval(a), interval(b)
    if instruction.attributes["direction"] in ("EQ", "NE"):
        if a_high < b_low or b_high < a_low:
            return instruction.attributes["direction"] == "NE"
    else:
        outcomes = {function(x, y) for x in (a_low, a_high) for y in (b_low, b_high)}
        if len(outcomes) == 1:
            return outcomes.pop()
    return Host(function(_raw(a), _raw(b)), 0, 1)


def _select(_: Instruction, pred: Scalar, on_true: Scalar, on_false: Scalar) -> Scalar | None:
    if isinstance(pred, Host):
        return None
    return on_true if pred else on_false


def _extreme(function: Callable[..., int]) -> Callable[..., Scalar | None]:
    def rule(_: Instruction, a: Scalar, b: Scalar) -> Scalar | None:
        (a_low, a_high), (b_low, b_high) = interval(a), interval(b)
        if a_high <= b_low:
            return a if function is min else b
        if b_high <= a_low:
            return b if function is min else a
        return None

    return rule


def _clamp(instruction: Instruction, low: Scalar, x: Scalar, high: Scalar) -> Scalar | None:
    raised = _extreme(max)(instruction, low, x)
    return None if raised is None else _extreme(min)(instruction, raised, high)


def _convert(instruction: Instruction, x: Scalar) -> Scalar | None:
    to = instruction.shape.element_type
    return x if to.is_integral and instruction.operands[0].shape.element_type.is_integral else None


def _same(inst: Instruction, x: Scalar) -> Scalar | None:
    return x if inst.shape.element_type is inst.operands[0].shape.element_type else None


HOST.add_all({
    elementwise.add: _arithmetic(operator.add),
    elementwise.subtract: _arithmetic(operator.sub),
    elementwise.multiply: _arithmetic(operator.mul),
    elementwise.negate: lambda _, x: Host(operator.neg(_raw(x)), -x.high, -x.low),
    comparison.compare: _compare,
    comparison.select: _select,
    elementwise.maximum: _extreme(max),
    elementwise.minimum: _extreme(min),
    comparison.clamp: _clamp,
    convert.convert: _convert,
    movement.copy: _same,
    movement.reshape: _same,
    internal.bitcast: _same,
})
