"""Gradients of dynamic sizes: what a smaller size cut off gets zero."""

from __future__ import annotations

import math

from grad_rules._calculus import in_sizes_of, iota, masked, reshape
from grad_rules._table import linear, zero
from xla_torch.core.sizes import common_factors
from xla_torch.functions import DynamicReshape, GetDimensionSize, Lt, SetDimensionSize
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Instruction


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
        return in_sizes_of(ct, operand)
    # A line for each group of dimensions that make each other, filled up with zeros.
    groups = common_factors(shape.dimensions, ct.shape.dimensions)
    bounds = [math.prod(shape.dimensions[d] for d in old) for old, _ in groups]
    counts = [math.prod((GetDimensionSize(ct, d) for d in new), start=ct.builder.constant(1)) for _, new in groups]
    dynamic = [any(ct.shape.dynamic_flags[d] for d in new) for _, new in groups]
    lines = DynamicReshape(ct, counts, bounds, dynamic)
    for k, (count, bound) in enumerate(zip(counts, bounds, strict=True)):
        if dynamic[k]:
            whole = SetDimensionSize(lines, ct.builder.constant(bound), k)
            lines = masked(Lt(iota(whole, whole.shape.dimensions, k), count), whole)
    return reshape(lines, shape.dimensions)


linear("set-dimension-size", operand=_restored)
linear("dynamic-reshape", operand=_reshaped)
zero("get-dimension-size")
