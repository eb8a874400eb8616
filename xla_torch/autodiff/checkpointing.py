"""Loops cut into segments: a loop over loops, of which only the carries between segments need be kept.

``for i in range(10)`` becomes ``for s in range(4): for j in range(min(3, 10 - 3 * s)): i = 3 * s + j``, and a loop that runs
while a condition holds becomes one that runs inner loops of at most so many iterations while it holds. Differentiated with
the outer loop's carries as all that is kept, the inner loop runs once more in each step of the way back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeVar

from .. import functions as ops
from ..analysis.loops import CountedLoop
from ..core.shape import Shape
from ..core.types import S32
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import loop_of
from ..opcodes import control
from ..transform.rewriter import Rewriter, carried_metadata
from ..transform.values import Value, as_op, element, leaves, make_tuple

T = TypeVar("T")

_MARK = "xla_torch_segments"
"""The frontend attribute of loops that were cut, and of their segments: they are not cut again."""


def is_cut(loop: Instruction) -> bool:
    """Whether a loop came out of `Segments`."""
    return _MARK in loop.common.get("frontend_attributes", {})


@dataclasses.dataclass
class Segments:
    """A loop in canonical form, cut into segments of `length` iterations; where `length` is None, segment s has s + 1 of them.

    A counted loop's counter is no carry any more, but computed from the segment's number and the place in the segment.
    """

    loop: Instruction
    counted: CountedLoop | None
    length: int | None

    def __post_init__(self) -> None:
        shapes = self.loop.shape.tuple_shapes
        self.kept = [k for k in range(len(shapes)) if self.counted is None or k != self.counted.index]
        self.shape = Shape.tuple([*(shapes[k] for k in self.kept), _NUMBER])
        self.common = carried_metadata(self.loop)
        self.common["frontend_attributes"] = {**self.common.get("frontend_attributes", {}), _MARK: "true"}

    @property
    def count(self) -> int:
        """The number of segments of a counted loop."""
        assert self.counted is not None
        assert self.length is not None
        return -(-self.counted.trip_count // self.length)

    def outer(self, initial: Sequence[XlaOp]) -> Instruction:
        """The loop over segments, for the first carries: an instruction that stands in no computation. Its operand does."""
        builder = initial[0].builder
        first = make_tuple(builder, [*(initial[k] for k in self.kept), builder.constant(0, S32)])
        regions = {"condition": self._outer_condition(), "body": self._outer_body()}
        return Instruction(control.while_, self.shape, [first.instruction], regions, self.loop.name, self.common)

    def chosen(self, values: Sequence[T], number: T) -> tuple[T, ...]:
        """What belongs to the loop's carries, for the outer loop's; `number` for the segment's number."""
        return (*(values[k] for k in self.kept), number)

    def restored(self, values: Sequence[T], counter: T) -> list[T]:
        """What belongs to the outer loop's carries, for the loop's own; `counter` for a counter that is no carry any more."""
        whole = [counter] * len(self.loop.shape.tuple_shapes)
        for k, value in zip(self.kept, values, strict=False):
            whole[k] = value
        return whole

    # ---- the outer loop

    def _outer_condition(self) -> Computation:
        builder = Builder(loop_of(self.loop).condition.name)
        carry = carry_elements(builder, self.shape)
        if self.counted is None:
            return builder.finish(self._goes_on(builder, carry[:-1]))
        return builder.finish(ops.Lt(carry[-1], builder.constant(self.count, S32)))

    def _outer_body(self) -> Computation:
        builder = Builder(f"{loop_of(self.loop).body.name}_segments")
        carry = carry_elements(builder, self.shape)
        segment = carry[-1]
        inner = Shape.tuple([*self.shape.tuple_shapes, _NUMBER])
        first = make_tuple(builder, [*carry, builder.constant(0, S32)])
        regions = {"condition": self._inner_condition(inner), "body": self._inner_body(inner)}
        loop = builder.append(Instruction(
            control.while_, inner, [first.instruction], regions, f"{self.loop.name}_segment", self.common))
        after = [element(loop, n) for n in range(len(self.kept))]
        return builder.finish(make_tuple(builder, [*after, ops.Add(segment, builder.constant(1, S32))]))

    # ---- the inner loop, over (carries, segment number, place in the segment)

    def _inner_condition(self, shape: Shape) -> Computation:
        builder = Builder(f"{loop_of(self.loop).condition.name}_segment")
        *carry, segment, place = carry_elements(builder, shape)
        inside = ops.Lt(place, self._size(segment))
        return builder.finish(inside if self.counted else ops.And(inside, self._goes_on(builder, carry)))

    def _size(self, segment: XlaOp) -> XlaOp:
        """How many iterations a segment has at most."""
        builder = segment.builder
        if self.length is None:
            return ops.Add(segment, builder.constant(1, S32))
        length = builder.constant(self.length, S32)
        if self.counted is None or self.counted.trip_count % self.length == 0:
            return length
        before = ops.Mul(segment, builder.constant(self.length, S32))
        return ops.Min(length, ops.Sub(builder.constant(self.counted.trip_count, S32), before))

    def _inner_body(self, shape: Shape) -> Computation:
        builder = Builder(loop_of(self.loop).body.name)
        *carry, segment, place = carry_elements(builder, shape)
        arguments = self.restored(carry, self._counter(segment, place) if self.counted else None)
        after = list(leaves(Rewriter(builder).run(loop_of(self.loop).body, [arguments])))
        following = ops.Add(place, builder.constant(1, S32))
        return builder.finish(make_tuple(builder, [*(after[k] for k in self.kept), segment, following]))

    def _counter(self, segment: XlaOp, place: XlaOp) -> XlaOp:
        """The loop's own counter."""
        assert self.counted is not None
        assert self.length is not None
        builder = segment.builder
        number = ops.Add(ops.Mul(segment, builder.constant(self.length, S32)), place)
        return counter_at(number, self.loop.shape.tuple_shapes[self.counted.index], self.counted.start, self.counted.step)

    def _goes_on(self, builder: Builder, carry: Sequence[XlaOp]) -> XlaOp:
        """The loop's own condition."""
        value: Value = Rewriter(builder).run(loop_of(self.loop).condition, [list(carry)])
        return as_op(builder, value)


_NUMBER = Shape.array(S32)


def emitted_loop(original: Instruction, carry: XlaOp, shape: Shape, condition: Computation, body: Computation) -> XlaOp:
    """A loop in the builder of `carry`, named after the one that it comes from."""
    return carry.builder.append(Instruction(
        control.while_, shape, [carry.instruction], {"condition": condition, "body": body}, original.name,
        carried_metadata(original)))


def counter_at(row: XlaOp, shape: Shape, start: int | XlaOp, step: int) -> XlaOp:
    """``start + step * row`` in a counter's type."""
    counter = row if row.element_type is shape.element_type else ops.ConvertElementType(row, shape.element_type)
    if step != 1:
        counter = ops.Mul(counter, row.builder.constant(step, shape.element_type))
    if isinstance(start, int) and start == 0:
        return counter
    return ops.Add(counter, row.builder.constant(start, shape.element_type) if isinstance(start, int) else start)


def square_root(count: int) -> int:
    """The segment length for this many iterations that keeps the fewest rows."""
    return max(1, math.isqrt(max(0, count - 1)) + 1)


def carry_elements(builder: Builder, shape: Shape) -> list[XlaOp]:
    whole = builder.parameter(0, shape, "carry")
    return [element(whole, k) for k in range(len(shape.tuple_shapes))]
