"""Reductions and scans by any combining function, in few calls on large tensors.

A combiner takes 2N tensors (N accumulated, N new) that broadcast and returns a tuple of N. It is taken to be associative,
unless a function says otherwise, which then takes as many calls as elements meet; that it is commutative is not assumed, so
elements are combined in row-major order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from ..core import tuning
from ..opcodes.reducer_kinds import ReducerKind
from . import rows
from .calls import fresh, reducing
from .native_reductions import NativeReduction
from .native_reductions import reduced as natively

Tensors = tuple[torch.Tensor, ...]
Combiner = Callable[..., Tensors]
Number = bool | int | float | complex


# ------------------------------------------------------------------------------------------------ reductions


def reduce_by(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number],
              dims: Sequence[int], native: NativeReduction | None = None) -> Tensors:
    """Reduce dimensions with a combiner; the inits are combined once, as first element. `native` is the same in native code."""
    starts, blocks = _as_blocks(operands, inits, dims)
    if 0 in blocks[0].shape:
        return starts
    reduced = None if native is None else natively(native, blocks)
    if reduced is None:
        reduced = reduce_blocks(shaped(combine), blocks)
    return shaped(combine)(*starts, *(r.reshape(s.shape) for r, s in zip(reduced, starts, strict=True)))


def fold_by(combine: Combiner, operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number],
            dims: Sequence[int]) -> Tensors:
    """Reduce dimensions with a combiner that may not be associative: from the inits on, one element after another."""
    starts, blocks = _as_blocks(operands, inits, dims)
    combine, results = shaped(combine), tuple(s.reshape(b.shape[0], b.shape[2]) for s, b in zip(starts, blocks, strict=True))
    for pieces in zip(*(b.split(_AT_ONCE, 1) for b in blocks), strict=True):
        for elements in zip(*(p.unbind(1) for p in pieces), strict=True):
            results = combine(*results, *elements)
    return tuple(r.reshape(s.shape) for r, s in zip(results, starts, strict=True))


_AT_ONCE = 1024
"""Elements that are views of their own at a time: making many is one call, and keeping them takes memory."""


def _as_blocks(operands: Sequence[torch.Tensor], inits: Sequence[torch.Tensor | Number], dims: Sequence[int]) -> tuple[
        Tensors, Tensors]:
    """The inits in the result's shape, and the operands as [outer, reduced elements, inner]."""
    first, kept = min(dims), [d for d in range(operands[0].dim()) if d not in dims]
    order = [d for d in kept if d < first] + sorted(dims) + [d for d in kept if d > first]
    shape = operands[0].shape
    outer, inner = (math.prod([shape[d] for d in kept if (d < first) is low]) for low in (True, False))
    size = math.prod([shape[d] for d in dims])
    starts = tuple(filled(init, o, [shape[d] for d in kept]) for init, o in zip(inits, operands, strict=True))
    return starts, tuple(o.permute(order).reshape(outer, size, inner) for o in operands)


def shaped(combine: Combiner) -> Combiner:
    """The combiner with results of its operands' shape also where they do not depend on them."""
    def call(*operands: torch.Tensor) -> Tensors:
        results = combine(*operands)
        return tuple(r if r.dim() == operands[0].dim() else r.expand(operands[0].shape) for r in results)

    return call


def reduce_blocks(combine: Combiner, operands: Tensors) -> Tensors:
    """Reduce dimension 1 of tensors [outer, size, inner] to [outer, inner], a cache-sized piece at a time."""
    outer, size, inner = operands[0].shape
    if operands[0].numel() <= tuning.COMBINED_AT_ONCE or operands[0].device.type != "cpu" or torch.compiler.is_compiling():
        return _reduce_pairwise(combine, operands)
    if outer > 1:
        rows = max(1, tuning.COMBINED_AT_ONCE // max(1, size * inner))
        pieces = [reduce_blocks(combine, tuple(o.narrow(0, at, min(rows, outer - at)) for o in operands))
                  for at in range(0, outer, rows)]
        return tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))
    if 2 * inner > tuning.COMBINED_AT_ONCE:
        columns = max(1, tuning.COMBINED_AT_ONCE // size)
        pieces = [_reduce_pairwise(combine, tuple(o.narrow(2, at, min(columns, inner - at)) for o in operands))
                  for at in range(0, inner, columns)]
        return tuple(torch.cat(parts, 1) for parts in zip(*pieces, strict=True))
    length = tuning.COMBINED_AT_ONCE // inner
    if size <= length:
        return _reduce_pairwise(combine, operands)
    pieces = [_reduce_pairwise(combine, tuple(o.narrow(1, at, min(length, size - at)) for o in operands))
              for at in range(0, size, length)]
    return reduce_blocks(combine, tuple(torch.stack(parts, 1) for parts in zip(*pieces, strict=True)))


def _reduce_pairwise(combine: Combiner, operands: Tensors) -> Tensors:
    """Reduce dimension 1 by combining neighbours until one is left."""
    tail: Tensors | None = None
    size = operands[0].shape[1]
    while size > 1:
        if size % 2:  # the last element has no neighbour: it waits, before those that waited already
            last = tuple(o.select(1, size - 1) for o in operands)
            tail = last if tail is None else combine(*last, *tail)
        even, odd = (tuple(o[:, start:size - size % 2:2] for o in operands) for start in (0, 1))
        operands = combine(*even, *odd)
        size //= 2
    result = tuple(o.select(1, 0) for o in operands)
    return result if tail is None else combine(*result, *tail)


def filled(value: torch.Tensor | Number, like: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """A tensor of shape `dims` whose elements all are `value`; dtype and device of `like`."""
    if isinstance(value, torch.Tensor):
        return value.expand(dims)
    return torch.full(dims, value, dtype=like.dtype, device=like.device)


def product(operand: torch.Tensor, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Product over several dimensions, in a dtype."""
    kept = [d for d in range(operand.dim()) if d not in dims]
    return operand.permute(*kept, *dims).flatten(len(kept)).prod(-1, dtype=dtype)


def extreme(operand: torch.Tensor, dims: Sequence[int], largest: bool, identity: Number) -> torch.Tensor:
    """Maximum or minimum over dimensions that may have size 0 at run time: that gives `identity`."""
    if math.prod([operand.shape[d] for d in dims]) == 0:
        kept = [n for d, n in enumerate(operand.shape) if d not in dims]
        return torch.full(kept, identity, dtype=operand.dtype, device=operand.device)
    return torch.amax(operand, tuple(dims)) if largest else torch.amin(operand, tuple(dims))


# ------------------------------------------------------------------------------------------------ selections


@fresh
def arg_extreme(keys: torch.Tensor, dim: int, largest: bool, last: bool) -> torch.Tensor:
    """Position (int64) of the maximum or minimum along a dimension; among equals the first, or the last. NaN beats all."""
    if last:
        return keys.shape[dim] - 1 - arg_extreme(keys.flip(dim), dim, largest, False)
    if keys.dtype == torch.bool:
        keys = keys.to(torch.uint8)
    in_torch = functools.partial(_arg_extreme_in_torch, keys, dim, largest)
    if dim % keys.dim() != keys.dim() - 1:
        return rows.first_extreme_along(keys, dim % keys.dim(), largest, in_torch)
    return rows.first_extreme(keys, largest, in_torch) if keys.is_contiguous() else in_torch()


def _arg_extreme_in_torch(keys: torch.Tensor, dim: int, largest: bool) -> torch.Tensor:
    if keys.device.type != "cpu" or keys.stride(dim) == 1 or keys.shape[dim] >= 1 << 31:
        return (torch.max if largest else torch.min)(keys, dim).indices
    # On the CPU torch searches along a strided dimension one element at a time: find the value, then where it is.
    best = (torch.amax if largest else torch.amin)(keys, dim, keepdim=True)
    found = keys == best
    if keys.is_floating_point():
        found |= keys.isnan()
    count, after = keys.shape[dim], keys.dim() - 1 - dim % keys.dim()
    places = torch.arange(count, dtype=torch.int32).reshape((-1,) + (1,) * after)
    return torch.where(found, places, count).amin(dim).to(torch.int64)


_FEW = 1 << 10
"""Elements up to which torch's own any and all take less than the calls that go around them."""


@reducing
def any_of(truths: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """Whether any is true along some dimensions, of at least one element; torch.any of many takes ten times as long and more."""
    if truths.numel() < _FEW:
        return torch.any(truths, dims)
    return torch.amax(truths.view(torch.uint8), dims).view(torch.bool)


@reducing
def all_of(truths: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """Whether all are true along some dimensions, as `any_of`."""
    if truths.numel() < _FEW:
        return torch.all(truths, dims)
    return torch.amin(truths.view(torch.uint8), dims).view(torch.bool)


def take_along(operand: torch.Tensor, positions: torch.Tensor, dim: int) -> torch.Tensor:
    """The operand's elements at `positions` along a dimension, which is dropped."""
    return operand.gather(dim, positions.unsqueeze(dim)).squeeze(dim)


def in_one_dimension(operand: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """The operand with `dims` merged in row-major order into one, the last."""
    kept = [d for d in range(operand.dim()) if d not in dims]
    return operand.permute(*kept, *dims).flatten(len(kept))


# ------------------------------------------------------------------------------------------------ running results


def running(combine: Combiner, operands: Sequence[torch.Tensor], dim: int, reverse: bool) -> Tensors:
    """Element i of a result is the combination of the elements 0..i along a dimension (in reverse: of i to the end)."""
    combine, results = shaped(combine), tuple(operands)
    size, step = results[0].shape[dim], 1
    while step < size:
        low, high = (tuple(r.narrow(dim, at, size - step) for r in results) for at in (0, step))
        met = combine(*low, *high)
        kept = (r.narrow(dim, size - step if reverse else 0, step) for r in results)
        results = tuple(torch.cat([m, k] if reverse else [k, m], dim) for m, k in zip(met, kept, strict=True))
        step *= 2
    return results


def scan_by(step: Combiner, inputs: Sequence[torch.Tensor], carried: Tensors, dim: int, reverse: bool) -> Tensors:
    """`scan` of an associative step, whose outputs are its carries, in log2(n) rounds."""
    count = len(inputs)

    def combine(*operands: torch.Tensor) -> Tensors:
        return step(*operands[count:], *operands[:count])[:count]

    ordered = (x.flip(dim) if reverse else x for x in inputs)
    totals = running(combine, [torch.cat([c.unsqueeze(dim), x], dim) for c, x in zip(carried, ordered, strict=True)], dim, False)
    size = inputs[0].shape[dim]
    outputs = (t.narrow(dim, 1, size) for t in totals)
    return (*(o.flip(dim) if reverse else o for o in outputs), *(t.select(dim, size) for t in totals))


@fresh
def running_extreme(operand: torch.Tensor, dim: int, largest: bool) -> torch.Tensor:
    """The maximum or minimum so far along a dimension; NaN stays."""
    function = torch.cummax if largest else torch.cummin
    if operand.stride(dim) == 1 or operand.device.type != "cpu":
        return function(operand, dim).values
    # On the CPU torch is slow along a strided dimension.
    return rows.running(operand, dim, ReducerKind.MAXIMUM if largest else ReducerKind.MINIMUM,
                   lambda: function(operand.movedim(dim, -1).contiguous(), -1).values.movedim(-1, dim))


@fresh
def running_total(operand: torch.Tensor, dim: int, is_product: bool) -> torch.Tensor:
    """The sum or product so far along a dimension, in the operand's type."""
    function = torch.cumprod if is_product else torch.cumsum
    return rows.running(operand, dim, ReducerKind.MULTIPLY if is_product else ReducerKind.ADD,
                        lambda: function(operand, dim, dtype=operand.dtype))


def scan(step: Combiner, inputs: Sequence[torch.Tensor], carried: Tensors, dim: int, reverse: bool,
         outputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> Tensors:
    """Run `step(*elements, *carried) -> (*outputs, *carried)` along a dimension; the stacked outputs, then the last carries.

    `outputs` has the shape (with the dimension) and dtype of each output, for a scan of no steps.
    """
    size, count = inputs[0].shape[dim], len(outputs)
    if size == 0:
        return (*(torch.empty(dims, dtype=dtype, device=inputs[0].device) for dims, dtype in outputs), *carried)
    made: list[Tensors] = []
    for i in reversed(range(size)) if reverse else range(size):
        results = step(*(x.select(dim, i) for x in inputs), *carried)
        made.append(results[:count])
        carried = results[count:]
    if reverse:
        made.reverse()
    return (*(torch.stack(parts, dim) for parts in zip(*made, strict=True)), *carried)
