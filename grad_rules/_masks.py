"""Cotangents that are zero wherever a select chose something else.

Of ``select(p, f(x), g(x))`` the rules alone make ``select(p, ct, 0) * f'(x)``, which is NaN where f' is infinite though f was
not chosen. So an elementwise op's rule is applied to the cotangent as it was before the select, and the select comes after
it: ``select(p, ct * f'(x), 0)``. That takes as many ops, since the select before has no use any more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from grad_rules._calculus import zeros
from xla_torch import functions as ops
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Instruction
from xla_torch.hlo.structure import CONSTANT
from xla_torch.opcodes import comparison, elementwise, movement

Condition = tuple[Instruction, bool]
"""A PRED and what it has to be."""


class Masked(NamedTuple):
    """An array that is `value` where all conditions hold, and zero elsewhere."""

    conditions: tuple[Condition, ...]
    value: XlaOp


def split(ct: XlaOp) -> Masked:
    """An array without the selects between it and zeros around it."""
    conditions: list[Condition] = []
    inst = ct.instruction
    while inst.opcode == comparison.select and (_is_zero(inst.operands[1]) or _is_zero(inst.operands[2])):
        holds = _is_zero(inst.operands[2])
        conditions += _parts(inst.operands[0], holds)
        inst = inst.operands[1 if holds else 2]
    return Masked(tuple(dict.fromkeys(conditions)), XlaOp(ct.builder, inst))


def _parts(pred: Instruction, holds: bool) -> list[Condition]:
    """The conditions that make one, where `joined` made it of several."""
    if pred.opcode == elementwise.not_:
        return _parts(pred.operands[0], not holds)
    if pred.opcode == elementwise.and_ and holds:
        return [part for operand in pred.operands for part in _parts(operand, holds)]
    return [(pred, holds)]


def joined(conditions: tuple[Condition, ...], value: XlaOp) -> XlaOp:
    """The array again: one select for all conditions, those around `value` among them."""
    inner = split(value)
    whole = list(dict.fromkeys((*conditions, *inner.conditions)))
    if not whole:
        return value
    zero = zeros(inner.value)
    if len(whole) == 1:
        ((pred, holds),) = whole
        return ops.Select(XlaOp(value.builder, pred), *((inner.value, zero) if holds else (zero, inner.value)))
    return ops.Select(_all(value.builder, whole), inner.value, zero)


def outside(instruction: Instruction, operand: Instruction, ct: XlaOp, rule: Callable[[XlaOp], XlaOp | None]) -> XlaOp | None:
    """What an operand's rule gives for a cotangent, the masks of the cotangent put around it. `rule` is linear in it."""
    if not instruction.schema.elementwise or operand.shape.dimensions != ct.shape.dimensions:
        return rule(ct)
    masked = split(ct)
    found = rule(masked.value) if masked.conditions else rule(ct)
    if found is None or not masked.conditions:
        return found
    if found.instruction is masked.value.instruction:
        return ct
    return joined(masked.conditions, found)


def added(a: XlaOp, b: XlaOp, singular: bool) -> XlaOp:
    """The sum of two cotangents of a value. Conditions that both have stay around the sum; where the value comes of an op with
    a `singular` derivative, so does the condition that one of both holds."""
    left, right = split(a), split(b)
    shared = tuple(c for c in left.conditions if c in right.conditions)
    one, other = (Masked(tuple(c for c in m.conditions if c not in shared), m.value) for m in (left, right))
    if len(one.conditions) == len(other.conditions) == 1 and one.conditions[0] == _opposite(other.conditions[0]):
        ((pred, holds),) = one.conditions
        branches = (one.value, other.value) if holds else (other.value, one.value)
        return joined(shared, ops.Select(XlaOp(a.builder, pred), *branches))
    total = ops.Add(joined(*one), joined(*other)) if shared else ops.Add(a, b)
    if one.conditions and other.conditions and singular:
        either = ops.Or(_all(a.builder, one.conditions), _all(a.builder, other.conditions))
        shared = (*shared, (either.instruction, True))
    return joined(shared, total)


def _opposite(condition: Condition) -> Condition:
    return condition[0], not condition[1]


def _all(builder: Builder, conditions: Sequence[Condition]) -> XlaOp:
    """One PRED of several conditions."""
    preds = (XlaOp(builder, pred) if holds else ops.Not(XlaOp(builder, pred)) for pred, holds in conditions)
    return functools.reduce(ops.And, preds)


def _is_zero(instruction: Instruction) -> bool:
    while instruction.opcode == movement.broadcast:
        instruction = instruction.operands[0]
    return instruction.opcode == CONSTANT and not np.asarray(instruction.attributes["literal"].value).any()
