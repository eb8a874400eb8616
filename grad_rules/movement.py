"""Gradients of data movement: the transpose of each op. Where a rule takes `acc` it adds into it in place."""

from __future__ import annotations

from collections.abc import Sequence

from grad_rules._calculus import full, in_sizes_of, inverse, others, pad, reshape, sum_all, sum_over, transpose, zeros
from grad_rules._table import linear, zero
from xla_torch.core.shape import UNBOUNDED
from xla_torch.core.sizes import common_factors
from xla_torch.functions import DynamicSlice, DynamicUpdateSlice, GetDimensionSize, Pad, Rev, Select, Slice
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Instruction

# ----------------------------------------------------------------------------------------- reordering and repeating


def _sum_new(ct: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """broadcast: the sum over the new dimensions. HLO's `dimensions` need not ascend, then the rest is reordered."""
    kept = sum_over(ct, others(dimensions, ct.shape.rank))
    return transpose(kept, [sorted(dimensions).index(d) for d in dimensions])


linear("broadcast", operand=_sum_new)


def _reshaped(ct: XlaOp, operand: XlaOp) -> XlaOp:
    """reshape: back again. What the bounds say of dynamic sizes is only how they are where no two dimensions became one."""
    shape = operand.shape
    if UNBOUNDED in (*shape.dimensions, *ct.shape.dimensions):
        return reshape(ct, shape.dimensions)
    for old, new in common_factors(shape.dimensions, ct.shape.dimensions):
        wide = [[d for d in run if s.dimensions[d] != 1] for run, s in ((old, shape), (new, ct.shape))]
        if any(shape.dynamic_flags[d] for d in old) and any(len(run) > 1 for run in wide):
            return in_sizes_of(ct, operand)
    return reshape(ct, shape.dimensions)


linear("reshape", operand=_reshaped)
linear("transpose", operand=lambda ct, dimensions: transpose(ct, inverse(dimensions)))
linear("reverse", operand=lambda ct, dimensions: Rev(ct, dimensions))
linear("copy", operand=lambda ct: ct)

# ----------------------------------------------------------------------------------------------- cutting and joining


def _put_back(ct: XlaOp, acc: XlaOp | None, slice: Sequence[tuple[int, int, int]], inst: Instruction) -> XlaOp:
    """slice: the cotangent where it was cut, zeros elsewhere; added in place where there is a total already."""
    sizes = inst.operands[0].shape.dimensions
    if acc is not None and all(stride == 1 for _, _, stride in slice):
        starts = [ct.builder.constant(start) for start, _, _ in slice]
        bounds = ([s for s, _, _ in slice], [limit for _, limit, _ in slice], [1] * len(slice))
        return DynamicUpdateSlice(acc, Slice(acc, *bounds) + ct, starts)
    config: list[tuple[int, int, int]] = []
    for (start, _, stride), count, size in zip(slice, ct.shape.dimensions, sizes, strict=True):
        covered = (count - 1) * stride + 1 if count else 0
        config.append((start, size - start - covered, stride - 1))
    spread = pad(ct, config)
    return spread if acc is None else acc + spread


def _cut_apart(ct: XlaOp, inst: Instruction, operands: tuple[XlaOp, ...], dimensions: Sequence[int]) -> tuple[XlaOp, ...]:
    """concatenate: each operand's part of the cotangent."""
    (dimension,) = dimensions
    if any(o.shape.dynamic_flags[dimension] for o in inst.operands):
        return _cut_apart_at_run_time(ct, operands, dimension)
    parts, start = list[XlaOp](), 0
    for operand in inst.operands:
        limit = start + operand.shape.dimensions[dimension]
        starts, limits = [0] * ct.shape.rank, list(ct.shape.dimensions)
        starts[dimension], limits[dimension] = start, limit
        parts.append(Slice(ct, starts, limits, [1] * ct.shape.rank))
        start = limit
    return tuple(parts)


def _cut_apart_at_run_time(ct: XlaOp, operands: Sequence[XlaOp], dimension: int) -> tuple[XlaOp, ...]:
    """The parts where they begin at run time, each as long as its operand can be."""
    parts, start = list[XlaOp](), ct.builder.constant(0)
    for operand in operands:
        starts = [start if d == dimension else ct.builder.constant(0) for d in range(ct.shape.rank)]
        sizes = list(ct.shape.dimensions)
        sizes[dimension] = operand.shape.dimensions[dimension]
        parts.append(DynamicSlice(ct, starts, sizes))
        start = start + GetDimensionSize(operand, dimension)
    return tuple(parts)


def _unpad(ct: XlaOp, padding: Sequence[tuple[int, int, int]], inst: Instruction) -> XlaOp:
    """pad, the operand: undo the edges (what a negative edge cropped gets zero), then keep each interior-th element."""
    whole = pad(ct, [(-low, -high, 0) for low, high, _ in padding])
    if all(interior == 0 for _, _, interior in padding):
        return whole
    return Slice(whole, [0] * ct.shape.rank, whole.shape.dimensions, [interior + 1 for _, _, interior in padding])


def _padding_only(ct: XlaOp, padding: Sequence[tuple[int, int, int]], inst: Instruction) -> XlaOp:
    """pad, the value: the sum of the cotangent over the padding. A mask keeps out what stood over the operand."""
    present = ct.builder.constant(True)
    inside = Pad(full(ct.builder, True, inst.operands[0].shape.with_element_type(present.element_type)),
                 ct.builder.constant(False), padding)
    return sum_all(Select(inside, zeros(ct), ct))


linear("slice", operand=_put_back)
linear("concatenate", operands=_cut_apart)
linear("pad", operand=_unpad, padding_value=_padding_only)

zero("constant", "parameter", "iota")
