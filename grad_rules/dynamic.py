"""Gradients of dynamic sizes: what a smaller size cut off gets zero."""

from __future__ import annotations

import math

from xla_torch.builder import XlaOp
from xla_torch.hlo.ir import Instruction
from xla_torch.ops import DynamicReshape, GetDimensionSize, Lt, SetDimensionSize

from ._calculus import iota, masked, reshape
from ._table import linear, zero


def _restored(ct: XlaOp, inst: Instruction, operand: XlaOp, val: XlaOp, dimensions: tuple[int, ...]) -> XlaOp:
    """set-dimension-size: the old size again, zero beyond the new one."""
    (dimension,) = dimensions
    shape = inst.operands[0].shape
    size = GetDimensionSize(operand, dimension) if shape.dynamic_flags[dimension] else ct.builder.constant(
        shape.dimensions[dimension])
    whole = SetDimensionSize(ct, size, dimension)
    return masked(Lt(iota(whole, whole.shape.dimensions, dimension), val), whole)


def _reshaped(ct: XlaOp, inst: Instruction, operand: XlaOp) -> XlaOp:
    """dynamic-reshape: the same elements in the operand's sizes; those that it left out get zero."""
    shape = inst.operands[0].shape
    if shape.dynamic_dimensions:
        sizes = [GetDimensionSize(operand, d) for d in range(shape.rank)]
        return DynamicReshape(ct, sizes, shape.dimensions, shape.dynamic_flags)
    count = ct.builder.constant(1)
    for d in range(ct.shape.rank):
        count = count * GetDimensionSize(ct, d)
    total = math.prod(shape.dimensions)
    line = SetDimensionSize(DynamicReshape(ct, [count], [total], [True]), ct.builder.constant(total), 0)
    kept = masked(Lt(iota(line, line.shape.dimensions, 0), count), line)
    return reshape(kept, shape.dimensions)


linear("set-dimension-size", operand=_restored)
linear("dynamic-reshape", operand=_reshaped)
zero("get-dimension-size")
