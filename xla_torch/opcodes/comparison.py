"""Op definitions: compare, clamp and select.

Document: spec ops.md, sections 3 and 4.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from ..hlo.ir import Instruction
from ..lowering import numerics, values
from ..lowering.kernels import elementwise as kernels
from ..lowering.kernels import integers
from ..lowering.values import Number
from ..types import PRED, higher_precision
from .attributes import CompareType, Direction
from .definition import op
from .elementwise import as_tensor, at_one_width
from .shapes import clamp_shape, compare_shape, select_shape

_OPERATORS = {"EQ": operator.eq, "NE": operator.ne, "GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt}


@op("compare", infer=compare_shape, elementwise=True, numbers="lhs rhs", stablehlo="compare")
def compare(inst: Instruction, lhs: Any, rhs: Any, *, direction: Direction, type: CompareType = "") -> Any:
    """Without `type`: IEEE for floats, so that NaN is unequal to all; lexicographic for complex numbers.

    TOTALORDER puts floats in the order -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
    """
    element_type = higher_precision(*(o.shape.element_type for o in inst.operands))
    lhs, rhs = at_one_width(inst, element_type.carrier, lhs, rhs)
    if type == "TOTALORDER":
        lhs, rhs = (numerics.total_order_key(as_tensor(v, element_type), element_type) for v in (lhs, rhs))
    elif direction not in ("EQ", "NE"):
        if element_type.is_complex:
            return _complex_order(direction, lhs, rhs)
        lhs, rhs = (numerics.sign_flip(v, element_type) for v in (lhs, rhs))
    return _OPERATORS[direction](lhs, rhs)


def _complex_order(direction: str, lhs: Any, rhs: Any) -> Any:
    if direction in ("GT", "GE"):
        lhs, rhs = rhs, lhs
    return values.emit(kernels.complex_less, lhs, rhs, direction in ("LE", "GE"))


@op("clamp", infer=clamp_shape, elementwise=True, numbers="min max", stablehlo="clamp")
def clamp(inst: Instruction, min: Any, operand: Any, max: Any) -> Any:
    """The smaller of `max` and the larger of `min` and the operand: NaN in any gives NaN, and `max` wins over `min`."""
    element_type = inst.shape.element_type
    min, operand, max = at_one_width(inst, element_type.carrier, min, operand, max)
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


@op("select", infer=select_shape, elementwise=True, numbers="on_false", stablehlo="select")
def select(inst: Instruction, pred: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where `pred` holds, else `on_false`."""
    on_true, on_false = at_one_width(inst, inst.shape.element_type.carrier, on_true, on_false)
    return torch.where(pred, on_true, on_false)
