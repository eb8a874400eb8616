"""Distinct elements, and elements that are repeated: results of sizes that depend on values."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.types import S32, S64
from ..functions.hlo_builder import XlaOp
from .checks import Where, require
from .chosen import chosen, first_of_runs, sizes_as
from .indexing import indexed, put, scattered
from .operator_rules import rule
from .sorting import ordered
from .values import cast, filled, full, iota, place, reduced, reducer, running, second, summed


@rule("_unique2")
def _unique(self: XlaOp, sorted: bool, return_inverse: bool, return_counts: bool, result: Sequence[Shape]) -> list[XlaOp]:
    """Always in order, with each NaN as one of its own. Of no two equal ones is there a gradient but for the first."""
    flat = _flat("unique", self)
    if not self.shape.element_count:
        return [full(self.builder, 0, shape) for shape in result]
    values, at = ordered(flat, 0, False)
    return _runs(values, at, self.shape, return_inverse, return_counts, result)


@rule("unique_consecutive")
def _unique_consecutive(self: XlaOp, return_inverse: bool, return_counts: bool, dim: int | None,
                        result: Sequence[Shape]) -> list[XlaOp]:
    if dim is not None and self.shape.rank != 1:
        raise UnsupportedError("distinct slices of an array", subject="unique_consecutive", got=f"dim = {dim}",
                               expected="elements, dim = None")
    flat = _flat("unique_consecutive", self)
    if not self.shape.element_count:
        return [full(self.builder, 0, shape) for shape in result]
    return _runs(flat, None, self.shape, return_inverse, return_counts, result)


@rule("unique_dim")
def _unique_slices(self: XlaOp, dim: int, sorted: bool, return_inverse: bool, return_counts: bool,
                   result: Sequence[Shape]) -> list[XlaOp | None]:
    """Slices in the order of their first elements that differ: sorted by the last elements first, and always stably.
    NaN is above all numbers; torch says no order of slices with one."""
    if not self.shape.is_static or not self.shape.element_count:
        raise UnsupportedError("distinct slices of an array whose size depends on values, or of none", subject="unique",
                               got=self.shape, expected="an array of known size with elements")
    dim, rank = place(dim, self.shape.rank), self.shape.rank
    front = [dim, *(d for d in range(rank) if d != dim)]
    whole = ops.Transpose(self, front)
    count, width = whole.shape.dimensions[0], self.shape.element_count // whole.shape.dimensions[0]
    rows = ops.Reshape(whole, [count, width])
    at = iota(rows, [count], 0)
    for k in reversed(range(width)):
        column = ops.Reshape(ops.SliceInDim(rows, k, k + 1, 1, 1), [count])
        at = indexed(at, [ordered(indexed(column, [at]), 0, False)[1]])
    flat, inverse, counts = _runs(indexed(rows, [at]), at, Shape.array(S64, [count]), True, True, result)
    found = ops.Reshape(flat, [flat.shape.dimensions[0], *whole.shape.dimensions[1:]])
    return [ops.Transpose(found, [front.index(d) for d in range(rank)]),  # torch says no shapes of what is not read
            inverse if return_inverse else None, counts if return_counts else None]


def _flat(name: str, x: XlaOp) -> XlaOp:
    if not x.shape.is_static:
        raise UnsupportedError("distinct elements of an array whose size depends on values", subject=name, got=x.shape,
                               expected="an array of known size")
    return ops.Reshape(x, [x.shape.element_count])


def _runs(values: XlaOp, at: XlaOp | None, shape: Shape, return_inverse: bool, return_counts: bool,
          result: Sequence[Shape]) -> list[XlaOp]:
    """The first elements of runs of equal ones, the run of each element in the place where it stood, and how long each is."""
    first = first_of_runs(values)
    places = chosen(first)
    run = running(cast(first, S64), "Add", 0, 0)
    run = ops.Sub(run, full(run.builder, 1, run.shape))
    found = [indexed(values, [places])]
    unread = [full(run.builder, 0, part) if part.is_static else None for part in result[1:]]
    if return_inverse:
        back = run if at is None else scattered(full(run.builder, 0, run.shape), 0, at, run, second(S64))
        found.append(ops.Reshape(back, list(shape.dimensions)))
    elif unread[0] is not None:
        found.append(unread[0])
    if return_counts:
        ones = full(run.builder, 1, run.shape)
        found.append(sizes_as(put(full(run.builder, 0, run.shape), [run], ones, True), places))
    elif unread[1] is not None:
        found.append(unread[1])
    return found


@rule("repeat_interleave.Tensor")
def _repeated(repeats: XlaOp, output_size: int | None, result: Shape, where: Where) -> XlaOp:
    """Each place as often as it is repeated: how many of the ends of runs are not beyond."""
    if not result.is_static:  # a bound of torch._check would be believed, and what is beyond it be cut off without a word
        raise UnsupportedError("the size of the result is unknown", subject="repeat_interleave", got=result,
                               expected="output_size", hint="call x.repeat_interleave(repeats, dim, output_size=n)")
    repeats = cast(filled(repeats, [0]), S64)
    # One more than the example has tells whether there are as many.
    length = result.dimensions[0] + (output_size is None)
    if (line := where()) is not None:
        total = summed(repeats, [0])
        holds = ops.Not(reduced(ops.Lt(repeats, 0), "Or", False, [0]))
        if output_size is not None:  # torch.export believes it
            holds = ops.And(holds, ops.Eq(total, length))
        require(holds, f"repeats from 0 on, of which the sum is {result.dimensions[0]}", {"the sum": total}, line)
    if not length or not repeats.shape.element_count:
        return full(repeats.builder, 0, result)
    ends = running(repeats, "Add", 0, 0)
    found = _numbers_of_runs(ends, length)
    if output_size is not None:
        return found
    total = ops.Min(ops.Reshape(ops.SliceInDim(ends, ends.shape.dimensions[0] - 1, ends.shape.dimensions[0], 1, 0), []), length)
    return ops.SetDimensionSize(found, cast(total, S32), 0)


def _numbers_of_runs(ends: XlaOp, length: int) -> XlaOp:
    """For each place how many runs end before it."""
    none = full(ends.builder, 0, Shape.array(S64, [length]))
    ended = scattered(none, 0, ends, full(ends.builder, 1, ends.shape), reducer("Add", S64))
    return running(ended, "Add", 0, 0)
