"""Scatter with any combiner, where updates may meet: a fold over the updates of each element, and the way back along it.

Updates are sorted by the element they go to, and stay in the order in which they are combined. Round k combines the k-th
update of every element at once, so there are as many rounds as one element has updates at most. What an element is before
each of its updates stands beside that update, and the way back, in rounds again, needs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from grad_rules._calculus import (
    full,
    inverse,
    iota,
    masked,
    pad,
    put_along,
    reshape,
    scalar_computation,
    transpose,
    zeros,
)
from grad_rules._compositions import Cotangents, apply, gradient_of
from xla_torch.core.shape import Shape
from xla_torch.core.types import S32
from xla_torch.functions import (
    And,
    Eq,
    Gather,
    GetTupleElement,
    Lt,
    Ne,
    Not,
    ReduceAll,
    ReduceWindowWithGeneralPadding,
    Scatter,
    Select,
    Sort,
    Tuple,
    While,
)
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Computation

Arrays = list[XlaOp]


class _Line(NamedTuple):
    """All updates in a line, sorted by the element they go to."""

    places: XlaOp
    """Which update stands there, in the order in which they are combined."""
    targets: XlaOp
    """Which element it goes to."""
    kept: XlaOp
    """False for the updates that are dropped."""
    first: XlaOp
    last: XlaOp
    number: XlaOp
    """How many updates of its element come before it: the round in which it is combined."""


def fold_gradient(cts: Sequence[XlaOp | None], arrays: Sequence[XlaOp], updates: Sequence[XlaOp], targets: XlaOp,
                  window_dims: Sequence[int], combiner: Computation) -> tuple[Cotangents, Cotangents]:
    """The cotangents of a scatter's arrays and of its updates, for those of its results. `targets` says of each update to
    which element of the flat array it goes; dropped updates go to one behind the end."""
    order = [d for d in range(targets.shape.rank) if d not in window_dims] + list(window_dims)
    line = _in_line(_flat(transpose(targets, order)), arrays[0].shape.element_count)
    given = [_at(_flat(transpose(u, order)), line.places) for u in updates]
    present = [_at(_flat(a), line.targets) for a in arrays]
    before = _folded(line, present, given, combiner)

    flags = [a.element_type.is_differentiable for a in arrays]
    outer = [zeros(a) if c is None else c for a, c, flag in zip(arrays, cts, flags, strict=True) if flag]
    ends = [masked(And(line.last, line.kept), _at(_flat(c), line.targets)) for c in outer]
    gradient = gradient_of(combiner, flags)
    ends = _walked_back(line, [*before, *given], ends, flags, gradient)
    found = apply(gradient, [*before, *given, *ends])

    rest = iter(outer)
    to_arrays = [_with_starts(line, next(rest), d) if flag else None for d, flag in zip(found, flags, strict=False)]
    sizes = [targets.shape.dimensions[d] for d in order]
    to_updates = [transpose(reshape(put_along(d, line.places, 0, d.shape.dimensions[0]), sizes), inverse(order)) if flag else None
                  for d, flag in zip(found[len(arrays):], flags, strict=True)]
    return to_arrays, to_updates


# ------------------------------------------------------------------------------------------------ the line


def _in_line(targets: XlaOp, size: int) -> _Line:
    places = iota(targets, targets.shape.dimensions, 0)
    both = Sort([targets, places], _first_less(), 0, is_stable=True)
    targets, places = GetTupleElement(both, 0), GetTupleElement(both, 1)
    first = Ne(targets, pad(targets, [(1, -1, 0)], -1))
    last = Ne(targets, pad(targets, [(-1, 1, 0)], -1))
    position, length = iota(targets, targets.shape.dimensions, 0), targets.shape.dimensions[0]
    start = ReduceWindowWithGeneralPadding(
        masked(first, position), targets.builder.constant(0, S32), scalar_computation("Max", S32), [length], [1],
        padding=[(length - 1, 0)])
    return _Line(places, targets, Lt(targets, full(targets.builder, size, targets.shape)), first, last, position - start)


def _first_less() -> Computation:
    """The comparator of pairs that looks at the first of each."""
    builder = Builder("first_less")
    left, right, *_ = (builder.parameter(k, Shape.array(S32)) for k in range(4))
    return builder.finish(Lt(left, right))


def _flat(x: XlaOp) -> XlaOp:
    return reshape(x, [x.shape.element_count])


def _at(line: XlaOp, positions: XlaOp) -> XlaOp:
    """The elements at these positions, which are moved inside."""
    return Gather(line, positions, slice_sizes=[1], offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,),
                  index_vector_dim=1)


def _with_starts(line: _Line, ct: XlaOp, starts: XlaOp) -> XlaOp:
    """The cotangent of a whole array: where updates went, what has come back to the first of them."""
    flat = _flat(ct)
    targets = Select(line.first, line.targets, full(line.targets.builder, flat.shape.dimensions[0], line.targets.shape))

    def put(values: XlaOp) -> XlaOp:
        return Scatter(zeros(values, values.shape.with_dimensions(flat.shape.dimensions)), targets, values,
                       scalar_computation("Add", values.element_type), update_window_dims=(), inserted_window_dims=(0,),
                       scatter_dims_to_operand_dims=(0,), index_vector_dim=1)

    touched = Ne(put(zeros(line.targets) + 1), zeros(flat, flat.shape.with_element_type(S32)))
    return reshape(Select(touched, put(starts), flat), ct.shape.dimensions)


# ------------------------------------------------------------------------------------------------ rounds


def _folded(line: _Line, present: Arrays, given: Arrays, combiner: Computation) -> Arrays:
    """What the elements are before each of their updates."""
    count = len(present)

    def before(after: Sequence[XlaOp], starts: Sequence[XlaOp], first: XlaOp) -> Arrays:
        return [Select(first, s, pad(a, [(1, -1, 0)])) for s, a in zip(starts, after, strict=True)]

    def step(number: XlaOp, after: Arrays, fixed: Arrays) -> Arrays:
        first, own, *values = fixed
        results = apply(combiner, [*before(after, values[:count], first), *values[count:]])
        return [Select(_is(own, number), r, a) for r, a in zip(results, after, strict=True)]

    after = _rounds(line, present, [line.first, line.number, *present, *given], step, forward=True)
    return before(after, present, line.first)


def _walked_back(line: _Line, values: Arrays, ends: Arrays, flags: Sequence[bool], gradient: Computation) -> Arrays:
    """The cotangents of the elements after each of their updates, for those after the last."""
    def step(number: XlaOp, cts: Arrays, fixed: Arrays) -> Arrays:
        own, *rest = fixed
        found = [d for d, flag in zip(apply(gradient, [*rest, *cts]), flags, strict=False) if flag]
        return [ct + pad(masked(_is(own, number), d), [(-1, 1, 0)]) for ct, d in zip(cts, found, strict=True)]

    return _rounds(line, ends, [line.number, *values], step, forward=False)


def _is(numbers: XlaOp, number: XlaOp) -> XlaOp:
    return Eq(numbers, zeros(numbers) + number)


def _rounds(line: _Line, changing: Arrays, fixed: Arrays, step: Callable[[XlaOp, Arrays, Arrays], Arrays],
            forward: bool) -> Arrays:
    """All rounds from the first to the last or back: `step` takes its number, the changing arrays and the fixed ones, and
    returns the changing ones."""
    builder = line.number.builder
    numbers = Select(line.kept, line.number, zeros(line.number) - 1)
    last = ReduceAll(numbers, builder.constant(-1, S32), scalar_computation("Max", S32))
    start, stop = (builder.constant(0, S32), last) if forward else (last, builder.constant(0, S32))
    whole = Tuple(builder, [start, stop, *changing, *fixed])

    condition = Builder("rounds_left")
    carry = condition.parameter(0, whole.shape)
    number, limit = GetTupleElement(carry, 0), GetTupleElement(carry, 1)
    within = Lt(number, condition.constant(line.number.shape.dimensions[0], S32))  # always: it says that the loop ends
    left = And(Not(Lt(limit, number)), within) if forward else Lt(limit, number)

    body = Builder("round")
    carry = body.parameter(0, whole.shape)
    number, limit, *arrays = (GetTupleElement(carry, k) for k in range(len(whole.shape.tuple_shapes)))
    changed = step(number, arrays[:len(changing)], arrays[len(changing):])
    following = number + 1 if forward else number - 1
    loop = While(condition.finish(left), body.finish(Tuple(body, [following, limit, *changed, *arrays[len(changing):]])), whole)
    return [GetTupleElement(loop, 2 + k) for k in range(len(changing))]
