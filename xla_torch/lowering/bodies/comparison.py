"""Op bodies: compare, clamp and select."""

from __future__ import annotations

import operator

import torch

from ...core.types import PRED, higher_precision
from ...hlo.attributes import CompareType, Direction
from ...hlo.ir import Instruction
from ...kernels import elementwise as kernels
from ...kernels import integers
from ...storage.dtypes import storage_dtype
from .. import numerics, values
from ..body_table import body
from ..values import Number, Value
from .elementwise import as_tensor, at_one_width

_OPERATORS = {"EQ": operator.eq, "NE": operator.ne, "GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt}


@body("compare", numbers="lhs rhs")
def compare(inst: Instruction, lhs: Value, rhs: Value, *, direction: Direction, type: CompareType) -> Value:
    """Without `type`: IEEE for floats, so that NaN is unequal to all; lexicographic for complex numbers.

    TOTALORDER puts floats in the order -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
    """
    element_type = higher_precision(*(o.shape.element_type for o in inst.operands))
    lhs, rhs = at_one_width(inst, storage_dtype(element_type), lhs, rhs)
    if type == "TOTALORDER":
        lhs, rhs = (numerics.total_order_key(as_tensor(v, element_type), element_type) for v in (lhs, rhs))
    elif direction not in ("EQ", "NE"):
        if element_type.is_complex:
            return _complex_order(direction, lhs, rhs)
        lhs, rhs = (numerics.sign_flip(v, element_type) for v in (lhs, rhs))
    return _OPERATORS[direction](lhs, rhs)


def _complex_order(direction: str, lhs: Value, rhs: Value) -> Value:
    if direction in ("GT", "GE"):
        lhs, rhs = rhs, lhs
    return values.emit(kernels.complex_less, lhs, rhs, direction in ("LE", "GE"))


@body("clamp", numbers="min max")
def clamp(inst: Instruction, min: Value, operand: Value, max: Value) -> Value:
    """The smaller of `max` and the larger of `min` and the operand: NaN in any gives NaN, and `max` wins over `min`."""
    element_type = inst.shape.element_type
    min, operand, max = at_one_width(inst, storage_dtype(element_type), min, operand, max)
    if element_type is PRED:
        return (operand | min) & max
    if element_type.is_complex:
        return values.emit(kernels.complex_extreme, values.emit(kernels.complex_extreme, min, operand, True), max, False)
    if element_type.hides_sign:
        return values.emit(integers.unsigned_clamp, min, operand, max)
    numbers = isinstance(min, Number) + isinstance(max, Number)
    if element_type.is_integral and numbers < 2:
        # A bound may be a number on the host when the program runs; one clamp for each bound takes any mixture.
        return torch.clamp(torch.clamp(operand, min=min), max=max)
    if numbers == 1:
        min, max = as_tensor(min, element_type), as_tensor(max, element_type)
    return torch.clamp(operand, min, max)


@body("select", numbers="on_false")
def select(inst: Instruction, pred: Value, on_true: Value, on_false: Value) -> Value:
    """`on_true` where `pred` holds, else `on_false`."""
    on_true, on_false = at_one_width(inst, storage_dtype(inst.shape.element_type), on_true, on_false)
    return torch.where(pred, on_true, on_false)
