"""Kernels of data movement: padding with interior or run-time values, and arrays whose sizes are known at run time only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..core.shape import UNBOUNDED
from ..core.sizes import common_factors

Number = bool | int | float | complex


def pad(operand: torch.Tensor, value: torch.Tensor | Number, padding: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """Pad each dimension by (low, high, interior): `interior` values between neighbours, then `low` and `high` at the
    edges. Negative edges crop, also the values just inserted. `value` is a number or a 0-dimensional tensor."""
    sizes = [max(low + n + max(n - 1, 0) * interior + high, 0)
             for n, (low, high, interior) in zip(operand.shape, padding, strict=True)]
    if isinstance(value, Number):
        result = torch.full(sizes, value, dtype=operand.dtype, device=operand.device)
    else:
        result = value.to(operand.dtype).expand(sizes).clone(memory_format=torch.contiguous_format)
    into, taken = result, operand
    for d, (low, _, interior) in enumerate(padding):
        step = interior + 1
        first = max(0, -(low // step))  # the first element that stands at 0 or after
        last = min(operand.shape[d] - 1, (sizes[d] - 1 - low) // step)
        count = max(0, last - first + 1)
        start = low + first * step if count else 0
        into = into.narrow(d, start, (count - 1) * step + 1 if count else 0)
        into = into[(slice(None),) * d + (slice(None, None, step),)]
        taken = taken.narrow(d, first if count else 0, count)
    into.copy_(taken)
    return result


def reshape_dynamic(operand: torch.Tensor, bounds: Sequence[int], new_bounds: Sequence[int],
                    dynamic: Sequence[bool]) -> torch.Tensor:
    """Reshape an array with run-time sizes. `bounds` are the operand's declared sizes, `new_bounds` and `dynamic` the
    result's; static result dimensions have their declared size.

    With several dynamic result dimensions, each takes its size from the operand dimensions that it is made of: those
    between positions where the products of the bounds agree. Sizes that do not divide are rounded up, and zeros stand for
    the elements that there are not.
    """
    sizes = [0 if flag else size for size, flag in zip(new_bounds, dynamic, strict=True)]
    if sum(dynamic) == 1:
        known = math.prod(size for size, flag in zip(sizes, dynamic, strict=True) if not flag)
        sizes[list(dynamic).index(True)] = -(-operand.numel() // known) if known else 0
        return regrouped(operand, sizes, groups_of(bounds, new_bounds))
    for old, new in common_factors(bounds, new_bounds):
        unknown = [d for d in new if dynamic[d]]
        if unknown:
            known = math.prod(sizes[d] for d in new if not dynamic[d])
            total = math.prod(operand.shape[d] for d in old)
            # Of several dynamic dimensions of one group, all but the first are taken at their bound.
            for d in unknown[1:]:
                sizes[d] = new_bounds[d]
                known *= sizes[d]
            sizes[unknown[0]] = -(-total // known) if known else 0
    return regrouped(operand, sizes, groups_of(bounds, new_bounds))


def dimension_size(operand: torch.Tensor, dimension: int) -> int:
    """The size that a dimension has at run time."""
    return operand.shape[dimension]


def set_dimension_size(operand: torch.Tensor, size: torch.Tensor | int, dimension: int, bound: int) -> torch.Tensor:
    """The first `size` elements of a dimension, at most `bound`; zeros after the operand's own where it has fewer."""
    count = min(max(int(size), 0), bound)
    present = operand.shape[dimension]
    if count <= present:
        return operand.narrow(dimension, 0, count)
    edges = [0] * (2 * (operand.dim() - dimension))
    edges[-1] = count - present
    return torch.constant_pad_nd(operand, edges)


def dynamic_reshape(operand: torch.Tensor, sizes: Sequence[torch.Tensor | int], groups: Groups) -> torch.Tensor:
    """The operand in the shape `sizes`, of which negative ones count as 0 (see `regrouped`)."""
    return regrouped(operand, [max(int(s), 0) for s in sizes], groups)


Groups = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Dimensions of an operand and those of the result that are made of them, in order."""


def groups_of(bounds: Sequence[int], new_bounds: Sequence[int]) -> Groups:
    """The dimensions of an array with these bounds and those that a reshape to others makes of them: the common factors."""
    if UNBOUNDED in (*bounds, *new_bounds):
        return [(range(len(bounds)), range(len(new_bounds)))]
    return common_factors(bounds, new_bounds)


def regrouped(operand: torch.Tensor, sizes: Sequence[int], groups: Groups) -> torch.Tensor:
    """The operand in other sizes: for each group its elements in row-major order, as many as the group's new sizes have.
    Zeros stand for those that there are not."""
    lines = operand.reshape([math.prod(operand.shape[d] for d in old) for old, _ in groups])
    for k, (_, new) in enumerate(groups):
        count = math.prod(sizes[d] for d in new)
        if count < lines.shape[k]:
            lines = lines.narrow(k, 0, count)
        elif count > lines.shape[k]:
            lines = torch.constant_pad_nd(lines, [0, 0] * (lines.dim() - 1 - k) + [0, count - lines.shape[k]])
    return lines.reshape(list(sizes))
