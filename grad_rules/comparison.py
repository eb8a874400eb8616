"""Gradients of comparison and selection: through the values that were chosen, not through the choice."""

from __future__ import annotations

from grad_rules._calculus import masked, sum_to, zeros
from grad_rules._table import vjp, zero
from xla_torch.functions import And, Gt, Le, Lt, Or, Select

zero("compare")

vjp("select", on_true=lambda ct, pred: Select(pred, ct, zeros(ct)), on_false=lambda ct, pred: Select(pred, zeros(ct), ct))
# min(max(lo, x), hi), bounds as arrays or as scalars, whose cotangents are then sums. Of equal bounds the upper one is the result
vjp("clamp",
    min=lambda ct, min, operand, max: sum_to(masked(And(Gt(min, operand), Lt(min, max)), ct), min.shape),
    operand=lambda ct, min, operand, max: masked(And(Gt(operand, min), Lt(operand, max)), ct),
    max=lambda ct, min, operand, max: sum_to(masked(Or(Le(max, min), Lt(max, operand)), ct), max.shape))
