"""Loops in reverse mode, as loops: the gradient of a `while` is a `while` that walks back.

The forward loop keeps, for each iteration, the values that the way back needs: a row of each in iteration t. The backward
loop carries the cotangents and reads the rows in reverse. Carries that never change, and what is computed from them alone,
are handed to it as they are; counters are counted back, and what little follows from them is computed again instead of
being kept.
A cotangent of an unchanging carry is a running sum, into which rules add slices in place: a scan over n rows costs O(n).

Where the trip count is known, rows stand in arrays ``[trip count, ...]``, and both loops are plain HLO. Where it depends on
data, the forward loop counts its iterations, and the backward loop runs as many. HLO has no array that grows, and the
choice for the rows is this:

- a **tape** (`interop/tapes.py`) if nothing is known: values are kept as they are, without a copy, as torch.autograd keeps
  them, and memory holds the iterations that were run and not one more. Its price: such a program runs here only;
- **arrays** of as many rows as the loop has iterations at most, if its condition says that (``i < 50 and ...``) and they are
  small, or if the caller says it (`GradientOptions.loop_bound`): plain HLO again, for XLA to run.

With `GradientOptions.loop_checkpoint`, loops are first cut into segments (`checkpointing.py`), and rows are kept of the
carries between segments only. A loop of unknown length inside another loop keeps nothing from one iteration of that loop to
its way back: it runs once more there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from grad_rules._calculus import full

from .. import ops
from ..builder import XlaBuilder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..shape import Shape
from ..transform.inline import Replay, Value, as_op, element, kept_facts, leaves, make_tuple
from ..transform.loop_analysis import CountedLoop, counted_loop, counters, invariant_carries, trip_bound
from ..types import S32, PrimitiveType
from . import tape as tapes
from .activity import Control, Flags, activity, analyse, any_of, both, control, either
from .checkpointing import Segments, counter_at, is_cut, square_root
from .engine import Cotangent, Tape, materialised
from .residuals import LOOP_BODY, effects, is_repeatable, needs, rebuild, repeated_from, saved_values, unchanging
from .rows import Rows, Stack, Tapes
from .sharing import SharingBuilder

SMALL = 1 << 20
"""Up to how many bytes a loop's rows stand in arrays where its condition only says how many there are at most."""


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
        if counted is not None and counted.trip_count == 0:
            return tape.visit(instruction, operands, ())
        record = _record(tape, instruction, list(leaves(operands[0])), active, wanted)
        tape.records[instruction] = record
        return list(record.results)

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        record = tape.records.get(instruction)
        assert isinstance(ct, tuple)
        return [ct if record is None else record.pull(ct)]


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
    """A loop that was emitted: its results, and how to emit the way back from their cotangents to those of its carries."""

    results: list[XlaOp]
    pull: Callable[[tuple[Any, ...]], Cotangent]


def _record(tape: Tape, loop: Instruction, initial: list[XlaOp], active: Flags, wanted: tuple[bool, ...]) -> _Record:
    """Emit the forward loop, with what the options say of it."""
    options, counted, body = tape.options, counted_loop(loop), loop.attributes["body"]
    most = counted.trip_count if counted else trip_bound(loop)
    checked = options.loop_bound if counted is None and (most is None or (options.loop_bound or most) < most) else None
    most = most if checked is None else checked
    length, cut = _segment_length(options.loop_checkpoint, most), not is_cut(loop) and is_repeatable(body)
    if cut and length is not None:
        return _in_segments(tape, loop, initial, active, wanted, most, checked, length)
    step = _Step(tape, loop, counted, active, wanted)
    size = (most or 0) * step.row_bytes
    if cut and options.loop_checkpoint == "auto" and most is not None and size > options.memory_bound and (
            counted or options.loop_bound):
        return _in_segments(tape, loop, initial, active, wanted, most, checked, square_root(most))
    certain = counted is not None or options.loop_bound is not None or size <= SMALL
    step.rows = Stack(most) if most is not None and certain else Tapes()
    return step.record(initial, checked)


def _segment_length(checkpoint: Any, most: int | None) -> int | None:
    """The iterations of a segment; 0 for segments that grow, None for a loop that is not cut."""
    if checkpoint == "sqrt":
        return 0 if most is None else square_root(most)
    return None if checkpoint in (None, "auto") else checkpoint


def _in_segments(tape: Tape, loop: Instruction, initial: list[XlaOp], active: Flags, wanted: tuple[bool, ...],
                 most: int | None, checked: int | None, length: int) -> _Record:
    """Emit the loop cut into segments, of which only the carries between them are kept."""
    counted = counted_loop(loop)
    segments = Segments(loop, counted, length or None)
    outer = segments.outer(initial)
    assert isinstance(active, tuple)
    step = _Step(tape, outer, counted_loop(outer), segments.chosen(active, False), segments.chosen(wanted, False), again=True)
    exact = tape.options.loop_bound is not None or counted is not None
    step.rows = Stack(-(-most // length)) if most is not None and length and exact else Tapes()
    first = [XlaOp(tape.builder, i) for i in outer.operands[0].operands]
    inner = step.record(first, None if checked is None else -(-checked // length))
    end = None
    if counted is not None:
        last = counted.start + counted.step * counted.trip_count
        end = tape.builder.constant(last, loop.shape.tuple_shapes[counted.index].element_type)

    def pull(ct: tuple[Any, ...]) -> Cotangent:
        found = inner.pull(segments.chosen(ct, None))
        assert isinstance(found, tuple)
        return tuple(segments.restored(found[:-1], None))

    return _Record(segments.restored(inner.results[:-1], end), pull)


class _Step:
    """One iteration, forward and back, built together; and the two loops made of its two parts.

    Where `again`, the way back has nothing but the carries, and runs the iteration forwards before it walks back.
    """

    rows: Rows

    def __init__(self, tape: Tape, loop: Instruction, counted: CountedLoop | None, active: Flags, wanted: tuple[bool, ...],
                 again: bool = False):
        self.outer, self.loop, self.counted, self.again = tape.builder, loop, counted, again
        self.shapes = loop.shape.tuple_shapes
        self.wanted = [k for k, flag in enumerate(wanted) if any_of(flag)]
        builder = SharingBuilder(f"{loop.name}_step")
        carry = [builder.parameter(k, s, f"carry_{k}") for k, s in enumerate(self.shapes)]
        inner = Tape(builder, loop.attributes["body"], [list(carry)], [active], wanted, tape.options)
        self.forward_part = list(builder.instructions)
        cts = {k: builder.parameter(len(carry) + n, self.shapes[k].without_layout(), f"ct_{k}")
               for n, k in enumerate(self.wanted)}
        (found,) = inner.backward(tuple(cts.get(k) for k in range(len(carry))))
        parts = found if isinstance(found, tuple) else (None,) * len(carry)
        self.tapes = tapes.carried_tapes(loop.attributes["body"])
        self.carry, self.cotangents = [c.instruction for c in carry], {k: c.instruction for k, c in cts.items()}
        self.next = [n.instruction for n in leaves(inner.result)]
        self.previous = [self._cotangent(builder, parts[k], k).instruction for k in self.wanted]
        self.instructions = builder.instructions
        self._choose_rows()

    def _choose_rows(self) -> None:
        """What is kept of each iteration (`saved`), what is the same in all (`fixed`), and which counters are counted back."""
        self.invariants = self.counted.invariants if self.counted else invariant_carries(self.loop)
        self.steps = {k: step for k, step in counters(self.loop).items() if self.shapes[k].element_type.is_signed}
        if self.counted:
            self.steps[self.counted.index] = self.counted.step
        counting = [self.carry[k] for k in self.steps]
        constant = [i for i in unchanging(self.instructions, [self.carry[k] for k in self.invariants]) if LOOP_BODY.cost(i) > 0]
        if self.again:
            self.saved = repeated_from(self.forward_part, self.previous, [*counting, *constant])
        else:
            self.saved = saved_values(self.forward_part, self.previous, [*counting, *constant], LOOP_BODY)
        self.passed = self._passed_back()
        read = needs(self.previous, [*constant, *counting, *self.saved, *self.passed.values()])
        self.fixed = [i for i in constant if i in read]
        self.counting = [k for k in sorted(self.steps) if self.carry[k] in read]

    def _passed_back(self) -> dict[int, Instruction]:
        """Results that need not be kept, by the carries they become: walking back, an iteration gets them from the one after
        it, which has read them as its carries."""
        kept, read, found = set(self.saved), set(), {}
        for k, (carry, result) in enumerate(zip(self.carry, self.next, strict=True)):
            if carry in kept and result in kept - read and result is not carry:
                found[k] = result
                kept.discard(result)
                read.add(carry)
        self.saved = [value for value in self.saved if value in kept]
        return found

    @property
    def row_bytes(self) -> int:
        """The bytes that are kept of each iteration."""
        return sum(value.shape.byte_size for value in self.saved)

    def _cotangent(self, builder: XlaBuilder, ct: Cotangent, index: int) -> XlaOp:
        """The cotangent of carry `index`, zeros where it is None."""
        if ct is None and index in self.tapes:
            return tapes.new(builder, tapes.value_shape(self.shapes[index]))
        return as_op(builder, materialised(builder, ct, self.shapes[index]))

    # ---- forward

    def record(self, initial: list[XlaOp], checked: int | None) -> _Record:
        """Emit the forward loop. Where it runs longer than `checked` iterations, the way back gives NaN."""
        builder = self.outer
        stores = [self.rows.empty(builder, v.shape) for v in self.saved]
        own_counter = self.counted is None or (bool(stores) and not self._counts_rows)
        extra = [*stores, *([builder.constant(0, self._row_type)] if own_counter else [])]
        shape = Shape.tuple([*self.shapes, *(e.shape for e in extra)])
        body, condition = self._forward_body(shape, own_counter), self._condition(shape)
        loop = _emit_while(self.loop, make_tuple(builder, [*initial, *extra]), shape, condition, body)
        whole = [element(loop, k) for k in range(len(shape.tuple_shapes))]
        results, stores = whole[:len(initial)], whole[len(initial):len(initial) + len(stores)]
        count = whole[-1] if self.counted is None else builder.constant(self.counted.trip_count, self._row_type)
        return _Record(results, lambda ct: self._pull(initial, results, stores, count, checked, ct))

    def _forward_body(self, shape: Shape, own_counter: bool) -> Computation:
        builder = XlaBuilder(f"{self.loop.attributes['body'].name}_forward")
        whole = builder.parameter(0, shape, "carry")
        size = len(self.carry)
        carry = [element(whole, k) for k in range(size)]
        index = len(shape.tuple_shapes) - 1 if own_counter or self.counted is None else self.counted.index
        row = element(whole, index) if own_counter else carry[index]
        given = dict(zip(self.carry, carry, strict=True))
        if self.again:  # nothing of the iteration itself is kept, so it runs as it stands
            after = list(leaves(Replay(builder).run(self.loop.attributes["body"], [carry])))
            saved = [given[value] for value in self.saved]
        else:
            built = rebuild(builder, self.instructions, given, [*self.next, *self.saved, *effects(self.forward_part)])
            after, saved = built[:size], built[size:size + len(self.saved)]
        kept = [self.rows.write(element(whole, size + k), value, row) for k, value in enumerate(saved)]
        last = [ops.Add(row, builder.constant(1, self._row_type))] if own_counter else []
        return builder.finish(make_tuple(builder, [*after, *kept, *last]))

    def _condition(self, shape: Shape) -> Computation:
        """The loop's own; in a counted one, whether the counter has reached its end."""
        builder = XlaBuilder(self.loop.attributes["condition"].name)
        whole = builder.parameter(0, shape, "carry")
        if self.counted is None:
            carry = [element(whole, k) for k in range(len(self.carry))]
            return builder.finish(as_op(builder, Replay(builder).run(self.loop.attributes["condition"], [carry])))
        counter = element(whole, self.counted.index)
        end = self.counted.start + self.counted.step * self.counted.trip_count
        test = ops.Lt if self.counted.step > 0 else ops.Gt
        return builder.finish(test(counter, builder.constant(end, counter.element_type)))

    @property
    def _counts_rows(self) -> bool:
        """Whether the loop's own counter is the row number."""
        if self.counted is None:
            return False
        own = self.shapes[self.counted.index].element_type
        return (self.counted.start, self.counted.step) == (0, 1) and own.is_signed

    @property
    def _row_type(self) -> PrimitiveType:
        """Signed, because walking back ends at -1."""
        return self.shapes[self.counted.index].element_type if self.counted and self._counts_rows else S32

    # ---- backward

    def _pull(self, initial: list[XlaOp], results: list[XlaOp], stores: list[XlaOp], count: XlaOp, checked: int | None,
              ct: tuple[Any, ...]) -> Cotangent:
        """Emit the loop that walks back; the cotangents of the initial carry."""
        builder = self.outer
        cts = [self._cotangent(builder, ct[k], k) for k in self.wanted]
        if checked is not None:
            too_long = ops.Gt(count, builder.constant(checked, self._row_type))
            cts = [ops.Select(too_long, full(builder, float("nan"), part.shape), part) for part in cts]
        first = count if self.counted is None else builder.constant(self.counted.trip_count - 1, self._row_type)
        fixed = rebuild(builder, self.instructions, {self.carry[k]: initial[k] for k in self.invariants}, self.fixed)
        starts = [initial[k] for k in self.counting if self._start(k) is None]
        carry = make_tuple(builder, [first, *cts, *fixed, *starts, *(results[k] for k in self.passed), *stores])
        body, condition = self._backward_body(carry.shape), self._backward_condition(carry.shape)
        loop = _emit_while(self.loop, carry, carry.shape, condition, body)
        found = {k: element(loop, 1 + n) for n, k in enumerate(self.wanted)}
        return tuple(found.get(k) for k in range(len(self.shapes)))

    def _start(self, index: int) -> int | None:
        """Where a counter starts, if that is known."""
        return self.counted.start if self.counted and index == self.counted.index else None

    def _backward_body(self, shape: Shape) -> Computation:
        """Counts rows back; in a loop that is not counted, how many are left."""
        builder = XlaBuilder(f"{self.loop.attributes['body'].name}_backward")
        whole = builder.parameter(0, shape, "carry")
        rest = iter([element(whole, k) for k in range(len(shape.tuple_shapes))])
        number = next(rest)
        before = ops.Sub(number, builder.constant(1, self._row_type))
        row = before if self.counted is None else number
        given = {self.cotangents[k]: next(rest) for k in self.wanted}
        given |= {value: next(rest) for value in self.fixed}
        fixed = [given[value] for value in self.fixed]
        for k in self.counting:
            start = self._start(k)
            if start is None:
                fixed.append(start := next(rest))
            given[self.carry[k]] = counter_at(row, self.shapes[k].without_layout(), start, self.steps[k])
        given |= {value: next(rest) for value in self.passed.values()}
        stores = []
        for value in self.saved:
            given[value], store = self.rows.read(next(rest), value.shape, row)
            stores.append(store)
        previous = rebuild(builder, self.instructions, given, self.previous, updates_last=True)
        passed = [given[self.carry[k]] for k in self.passed]
        return builder.finish(make_tuple(builder, [before, *previous, *fixed, *passed, *stores]))

    def _backward_condition(self, shape: Shape) -> Computation:
        builder = XlaBuilder(f"{self.loop.attributes['condition'].name}_backward")
        number = element(builder.parameter(0, shape, "carry"), 0)
        test = ops.Gt if self.counted is None else ops.Ge
        return builder.finish(test(number, builder.constant(0, self._row_type)))


def _emit_while(original: Instruction, carry: XlaOp, shape: Shape, condition: Computation, body: Computation) -> XlaOp:
    """A while in the builder of `carry`, named after the loop it comes from."""
    return carry.builder.append(Instruction(
        "while", shape, [carry.instruction], {"condition": condition, "body": body}, original.name, kept_facts(original)))
