"""Arithmetic on host scalars: loop counters, and the indices computed from them, stay Python integers.

A `Host` knows the interval of values it can take. An operation is done on the host only where the interval proves that the
result fits its element type, so no wrap-around is ever missed; a comparison that the interval decides becomes a constant.
That turns JAX's ``select(i < 0, i + n, i)`` into plain ``i``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..hlo.ir import Instruction
from ..types import PrimitiveType
from .values import Host

Scalar = Any  # Host | int | bool


def evaluate(instruction: Instruction, operands: list[Scalar]) -> Scalar | None:
    """The result of a scalar instruction as a Host or a number, or None where it must be computed on tensors.

    `operands` are Hosts and Python numbers, at least one of them a Host.
    """
    rule = _RULES.get(instruction.opcode)
    if rule is None:
        return None
    result = rule(instruction, *operands)
    if result is None or isinstance(result, bool):
        return result
    low, high = _interval(result)
    if not fits(low, high, instruction.shape.element_type):
        return None
    return low if low == high else result


def fits(low: int, high: int, element_type: PrimitiveType) -> bool:
    """Whether every integer of the interval is a value of the type, as a tensor's carrier and as itself."""
    if element_type.is_pred:
        return low >= 0 and high <= 1
    if not element_type.is_integral:
        return False
    bits = element_type.bits
    return (0 if element_type.is_unsigned else -(2 ** (bits - 1))) <= low and high < 2 ** (bits - 1)


def _interval(x: Scalar) -> tuple[int, int]:
    return (x.low, x.high) if isinstance(x, Host) else (int(x), int(x))


def _raw(x: Scalar) -> Any:
    return x.value if isinstance(x, Host) else x


def _corners(function: Callable[[int, int], int], a: Scalar, b: Scalar) -> tuple[int, int]:
    values = [function(x, y) for x in _interval(a) for y in _interval(b)]
    return min(values), max(values)


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Scalar]:
    return lambda _, a, b: Host(function(_raw(a), _raw(b)), *_corners(function, a, b))


def _compare(instruction: Instruction, a: Scalar, b: Scalar) -> Scalar | None:
    function = {"EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt,
                "GE": operator.ge}[instruction.attributes["direction"]]
    (a_low, a_high), (b_low, b_high) = _interval(a), _interval(b)
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
        (a_low, a_high), (b_low, b_high) = _interval(a), _interval(b)
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


_RULES: dict[str, Callable[..., Scalar | None]] = {
    "add": _arithmetic(operator.add),
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "negate": lambda _, x: Host(operator.neg(_raw(x)), -x.high, -x.low),
    "compare": _compare,
    "select": _select,
    "maximum": _extreme(max),
    "minimum": _extreme(min),
    "clamp": _clamp,
    "convert": _convert,
    "copy": lambda _, x: x,
    "reshape": lambda _, x: x,
    "bitcast": lambda i, x: x if i.shape.element_type is i.operands[0].shape.element_type else None,
}
