"""Counted loops in reverse mode, as loops: the gradient of a `while` is a `while` that walks back.

The forward loop gets one stack for each value that the way back needs, ``[trip count, ...]``, and writes row t in
iteration t. The backward loop carries the cotangents and reads the rows in reverse. Carries that never change, and what is
computed from them alone, are handed to it as they are; the counter is counted back, and what little follows from it is
computed again instead of being stacked.
A cotangent of an unchanging carry is a running sum, into which rules add slices in place: a scan over n rows costs O(n).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .. import ops
from ..builder import XlaBuilder, XlaOp
from ..errors import DifferentiationError
from ..hlo.ir import Computation, Instruction
from ..shape import Shape
from ..transform.inline import Value, as_op, element, kept_facts, leaves, make_tuple
from ..transform.loop_analysis import CountedLoop, counted_loop
from ..types import S32, PrimitiveType
from .activity import Control, Flags, activity, analyse, both, control, either
from .engine import Cotangent, Tape, materialised
from .residuals import LOOP_BODY, effects, needs, rebuild, saved_values, unchanging
from .sharing import SharingBuilder


@control("while")
class _While(Control):
    """A loop in plain form: one flat tuple of leaves is its operand, its carry and its result."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        carry = operands[0]
        while True:
            body: Computation = instruction.attributes["body"]
            after = either(carry, activity(body, [carry])[body.root])
            if after == carry:
                return carry
            carry = after

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [both(_demanded_carries(instruction, self.active(instruction, operands), wanted), operands[0])]

    def forward(self, tape: Tape, instruction: Instruction, operands: list[Value]) -> Value:
        active = self.active(instruction, [tape.facts.active[o] for o in instruction.operands])
        wanted = _demanded_carries(instruction, active, tape.facts.demanded[instruction])
        counted = counted_loop(instruction)
        if counted is None:
            raise DifferentiationError(
                "a loop whose trip count depends on data has no reverse-mode gradient", subject=instruction.subject,
                where=instruction.where, expected="a counter compared with a constant, as in a scan",
                hint="run a fixed number of iterations and keep the state with Select once the condition is met")
        if counted.trip_count == 0:
            return tape.visit(instruction, operands, ())
        step = _Step(tape, instruction, counted, active, wanted)
        record = step.run_forward(list(leaves(operands[0])))
        tape.records[instruction] = record
        return list(record.results)

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        record = tape.records.get(instruction)
        assert isinstance(ct, tuple)
        return [ct if record is None else record.step.run_backward(record, ct)]


def _demanded_carries(instruction: Instruction, active: Flags, wanted: Flags) -> tuple[bool, ...]:
    """The carries that have a cotangent while the loop is walked back."""
    body: Computation = instruction.attributes["body"]
    while True:
        before = analyse(body, [active], wanted).demanded.get(body.parameters[0], False)
        more = either(wanted, before)
        if more == wanted:
            assert isinstance(more, tuple)
            return more
        wanted = more


@dataclasses.dataclass
class _Record:
    """What the forward loop leaves for the way back."""

    step: _Step
    initial: list[XlaOp]
    results: list[XlaOp]
    stacks: list[XlaOp]


class _Step:
    """One iteration, forward and back, built together; and the two loops made of its two parts."""

    def __init__(self, tape: Tape, loop: Instruction, counted: CountedLoop, active: Flags, wanted: tuple[bool, ...]):
        self.outer, self.loop, self.counted = tape.builder, loop, counted
        self.shapes = loop.shape.tuple_shapes
        self.wanted = [k for k, flag in enumerate(wanted) if flag]
        builder = SharingBuilder(f"{loop.name}_step")
        carry = [builder.parameter(k, s, f"carry_{k}") for k, s in enumerate(self.shapes)]
        inner = Tape(builder, loop.attributes["body"], [list(carry)], [active], wanted)
        self.forward_part = list(builder.instructions)
        cts = {k: builder.parameter(len(carry) + n, self.shapes[k].without_layout(), f"ct_{k}")
               for n, k in enumerate(self.wanted)}
        (found,) = inner.backward(tuple(cts.get(k) for k in range(len(carry))))
        parts = found if isinstance(found, tuple) else (None,) * len(carry)
        self.carry, self.cotangents = [c.instruction for c in carry], {k: c.instruction for k, c in cts.items()}
        self.next = [n.instruction for n in leaves(inner.result)]
        self.previous = [as_op(builder, materialised(builder, parts[k], self.shapes[k])).instruction for k in self.wanted]
        self.instructions = builder.instructions
        counter = self.carry[counted.index]
        constant = [i for i in unchanging(self.instructions, [self.carry[k] for k in counted.invariants])
                    if LOOP_BODY.cost(i) > 0]
        self.saved = saved_values(self.forward_part, self.previous, [counter, *constant], LOOP_BODY)
        read = needs(self.previous, [*constant, *self.saved])
        self.fixed = [i for i in constant if i in read]
        for value in self.saved:
            if not value.shape.is_static:
                raise DifferentiationError(
                    "a value of dynamic size cannot be stacked over a loop's iterations", subject=value.subject,
                    where=value.where, got=value.shape, hint="pad it to its bound inside the loop")

    # ---- forward

    def run_forward(self, initial: list[XlaOp]) -> _Record:
        """Emit the forward loop with its stacks."""
        builder, count = self.outer, self.counted.trip_count
        stacks = [_empty_stack(builder, count, v.shape) for v in self.saved]
        own_counter = bool(stacks) and not self._counts_rows
        extra = [*stacks, *([builder.constant(0, self._row_type)] if own_counter else [])]
        shape = Shape.tuple([*self.shapes, *(e.shape for e in extra)])
        body, condition = self._forward_body(shape, own_counter), self._condition(shape)
        loop = _emit_while(self.loop, make_tuple(builder, [*initial, *extra]), shape, condition, body)
        whole = [element(loop, k) for k in range(len(initial) + len(stacks))]
        return _Record(self, initial, whole[:len(initial)], whole[len(initial):])

    def _forward_body(self, shape: Shape, own_counter: bool) -> Computation:
        builder = XlaBuilder(f"{self.loop.attributes['body'].name}_forward")
        whole = builder.parameter(0, shape, "carry")
        size = len(self.carry)
        carry = [element(whole, k) for k in range(size)]
        row = element(whole, len(shape.tuple_shapes) - 1) if own_counter else carry[self.counted.index]
        targets = [*self.next, *self.saved, *effects(self.forward_part)]
        built = rebuild(builder, self.instructions, dict(zip(self.carry, carry, strict=True)), targets)
        rows = [_write_row(element(whole, size + k), value, row)
                for k, value in enumerate(built[size:size + len(self.saved)])]
        last = [ops.Add(row, builder.constant(1, self._row_type))] if own_counter else []
        return builder.finish(make_tuple(builder, [*built[:size], *rows, *last]))

    def _condition(self, shape: Shape) -> Computation:
        """The counter has not reached its end."""
        builder = XlaBuilder(self.loop.attributes["condition"].name)
        counter = element(builder.parameter(0, shape, "carry"), self.counted.index)
        end = self.counted.start + self.counted.step * self.counted.trip_count
        test = ops.Lt if self.counted.step > 0 else ops.Gt
        return builder.finish(test(counter, builder.constant(end, counter.element_type)))

    @property
    def _counts_rows(self) -> bool:
        """Whether the loop's own counter is the row number."""
        own = self.shapes[self.counted.index].element_type
        return (self.counted.start, self.counted.step) == (0, 1) and own.is_signed

    @property
    def _row_type(self) -> PrimitiveType:
        """Signed, because walking back ends at -1."""
        return self.shapes[self.counted.index].element_type if self._counts_rows else S32

    # ---- backward

    def run_backward(self, record: _Record, ct: tuple[Any, ...]) -> Cotangent:
        """Emit the loop that walks back; the cotangents of the initial carry."""
        builder = self.outer
        cts = [as_op(builder, materialised(builder, ct[k], self.shapes[k])) for k in self.wanted]
        first = builder.constant(self.counted.trip_count - 1, self._row_type)
        given = {self.carry[k]: record.initial[k] for k in self.counted.invariants}
        fixed = rebuild(builder, self.instructions, given, self.fixed)
        carry = make_tuple(builder, [first, *cts, *fixed, *record.stacks])
        body, condition = self._backward_body(carry.shape), self._backward_condition(carry.shape)
        loop = _emit_while(self.loop, carry, carry.shape, condition, body)
        found = {k: element(loop, 1 + n) for n, k in enumerate(self.wanted)}
        return tuple(found.get(k) for k in range(len(self.shapes)))

    def _backward_body(self, shape: Shape) -> Computation:
        builder = XlaBuilder(f"{self.loop.attributes['body'].name}_backward")
        whole = builder.parameter(0, shape, "carry")
        row, *rest = [element(whole, k) for k in range(len(shape.tuple_shapes))]
        split = len(self.wanted) + len(self.fixed)
        cts, fixed, stacks = rest[:len(self.wanted)], rest[len(self.wanted):split], rest[split:]
        given = dict(zip(self.cotangents.values(), cts, strict=True))
        given |= zip(self.fixed, fixed, strict=True)
        given[self.carry[self.counted.index]] = self._counter_at(row)
        given |= {value: _read_row(stack, value.shape, row) for value, stack in zip(self.saved, stacks, strict=True)}
        previous = rebuild(builder, self.instructions, given, self.previous, updates_last=True)
        before = ops.Sub(row, builder.constant(1, self._row_type))
        return builder.finish(make_tuple(builder, [before, *previous, *fixed, *stacks]))

    def _backward_condition(self, shape: Shape) -> Computation:
        builder = XlaBuilder(f"{self.loop.attributes['condition'].name}_backward")
        row = element(builder.parameter(0, shape, "carry"), 0)
        return builder.finish(ops.Ge(row, builder.constant(0, self._row_type)))

    def _counter_at(self, row: XlaOp) -> XlaOp:
        """The loop's counter in the iteration that wrote this row."""
        if self._counts_rows:
            return row
        element_type = self.shapes[self.counted.index].element_type
        counter = row if row.element_type is element_type else ops.ConvertElementType(row, element_type)
        step, start = (row.builder.constant(number, element_type) for number in (self.counted.step, self.counted.start))
        return ops.Add(ops.Mul(counter, step), start)


# ------------------------------------------------------------------------------------------------ stacks


def _empty_stack(builder: XlaBuilder, count: int, shape: Shape) -> XlaOp:
    return ops.Broadcast(builder.constant(0, shape.element_type), [count, *shape.dimensions])


def _write_row(stack: XlaOp, value: XlaOp, row: XlaOp) -> XlaOp:
    return ops.DynamicUpdateSlice(stack, ops.Reshape(value, [1, *value.shape.dimensions]), _row_start(stack, row))


def _read_row(stack: XlaOp, shape: Shape, row: XlaOp) -> XlaOp:
    return ops.Reshape(ops.DynamicSlice(stack, _row_start(stack, row), [1, *shape.dimensions]), shape.dimensions)


def _row_start(stack: XlaOp, row: XlaOp) -> list[XlaOp]:
    zero = row.builder.constant(0, row.element_type)
    return [row, *[zero] * (stack.shape.rank - 1)]


def _emit_while(original: Instruction, carry: XlaOp, shape: Shape, condition: Computation, body: Computation) -> XlaOp:
    """A while in the builder of `carry`, named after the loop it comes from."""
    return carry.builder.append(Instruction(
        "while", shape, [carry.instruction], {"condition": condition, "body": body}, original.name, kept_facts(original)))
