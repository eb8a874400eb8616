"""Loops and branches of torch's graphs. A region is a graph within the graph, as a function that builds what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import PRED, S32
from ..functions.hlo_builder import Builder, XlaOp
from .values import cast, full

Region: TypeAlias = Callable[[Builder, Sequence[XlaOp]], Sequence[XlaOp]]


def _flag(values: Sequence[XlaOp]) -> XlaOp:
    """What a predicate says, an array of one element."""
    return ops.Reshape(cast(values[0], PRED), [])


def _parts(found: XlaOp, count: int) -> list[XlaOp]:
    return [ops.GetTupleElement(found, k) for k in range(count)]


def _cond(pred: XlaOp, true_fn: Region, false_fn: Region, operands: Sequence[XlaOp], result: Sequence[Shape]) -> list[XlaOp]:
    given = (pred, *operands)  # a branch may need none
    branches = [lambda t, branch=branch: tuple(branch(t[0].builder, t[1:])) for branch in (true_fn, false_fn)]
    found = ops.Conditional(_flag([pred]), given, branches[0], given, branches[1])
    return _parts(found, len(result))


def _while_loop(cond_fn: Region, body_fn: Region, carried_inputs: Sequence[XlaOp],
                additional_inputs: Sequence[XlaOp], result: Sequence[Shape]) -> list[XlaOp]:
    count = len(carried_inputs)
    first = (*carried_inputs, *additional_inputs)
    found = ops.While(lambda t: _flag(cond_fn(t[0].builder, t)), lambda t: (*body_fn(t[0].builder, t), *t[count:]), first)
    return _parts(found, count)


def scan(combine_fn: Region, init: Sequence[XlaOp], xs: Sequence[XlaOp], additional_inputs: Sequence[XlaOp],
          result: Sequence[Shape]) -> list[XlaOp]:
    """A loop over the first dimension of `xs`, whose steps read a slice of each, and write one of each further result."""
    builder, carried, count = xs[0].builder, len(init), len(init) + len(xs)
    steps, stacks = xs[0].shape.dimensions[0], [full(builder, 0, shape) for shape in result[carried:]]

    def body(values: Sequence[XlaOp]) -> tuple[XlaOp, ...]:
        k, *state = values
        sequences, extra, written = state[carried:count], state[count:len(state) - len(stacks)], state[len(state) - len(stacks):]
        found = combine_fn(k.builder, [*state[:carried], *(_slice(x, k) for x in sequences), *extra])
        return (k + 1, *found[:carried], *sequences, *extra,
                *(_with_slice(into, k, part) for into, part in zip(written, found[carried:], strict=True)))

    first = (builder.constant(0, S32), *init, *xs, *additional_inputs, *stacks)
    found = ops.While(lambda t: ops.Lt(t[0], steps), body, first)
    last = len(first) - len(stacks)
    return [ops.GetTupleElement(found, k) for k in (*range(1, carried + 1), *range(last, len(first)))]


def _map(f: Region, xs: Sequence[XlaOp], pos_args: Sequence[XlaOp], result: Sequence[Shape]) -> list[XlaOp]:
    return scan(f, (), xs, pos_args, result)


def _slice(x: XlaOp, k: XlaOp) -> XlaOp:
    sizes = x.shape.dimensions[1:]
    starts = [k, *[x.builder.constant(0, S32)] * len(sizes)]
    return ops.Reshape(ops.DynamicSlice(x, starts, [1, *sizes]), sizes)


def _with_slice(x: XlaOp, k: XlaOp, part: XlaOp) -> XlaOp:
    starts = [k, *[x.builder.constant(0, S32)] * (x.shape.rank - 1)]
    return ops.DynamicUpdateSlice(x, ops.Reshape(part, [1, *part.shape.dimensions]), starts)


WITH_REGIONS: dict[str, Callable[..., list[XlaOp]]] = {
    "cond": _cond, "while_loop": _while_loop, "scan": scan, "map_impl": _map}
"""What is not an operator of ATen, by torch's name: functions of its arguments and the shapes of its results."""
