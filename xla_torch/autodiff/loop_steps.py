"""One iteration of a loop, forward and back, built together; and the two loops made of its two parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from grad_rules._calculus import full
from grad_rules._stacks import carried_stacks, new, value_shape

from .. import functions as ops
from ..analysis.loops import CountedLoop, counters, invariant_carries
from ..core.shape import Shape
from ..core.types import S32, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import loop_of
from ..transform.rewriter import Rewriter
from ..transform.values import as_op, element, leaves, make_tuple
from .checkpointing import counter_at, emitted_loop
from .cotangents import Cotangent, materialised, parts_of
from .flags import Flags, any_of
from .residual_stores import ResidualStore
from .residuals import LOOP_BODY, effects, needs, rebuild, repeated_from, saved_values, unchanging
from .reverse import Recording
from .sharing import SharingBuilder
from .structure import ReversePass


@dataclasses.dataclass
class Emitted:
    """A loop that was emitted: its results, and how to emit the way back from their cotangents to those of its carries."""

    results: list[XlaOp]
    pull: Callable[[tuple[Cotangent, ...]], Cotangent]


class Step:
    """One iteration, forward and back, built together; and the two loops made of its two parts.

    Where `again`, the way back has nothing but the carries, and runs the iteration forwards before it walks back.
    """

    rows: ResidualStore

    def __init__(self, run: ReversePass, loop: Instruction, counted: CountedLoop | None, active: Flags, wanted: tuple[Flags, ...],
                 again: bool = False):
        self.outer, self.loop, self.counted, self.again = run.builder, loop, counted, again
        self.shapes = loop.shape.tuple_shapes
        self.wanted = [k for k, flag in enumerate(wanted) if any_of(flag)]
        builder = SharingBuilder(f"{loop.name}_step")
        carry = [builder.parameter(k, s, f"carry_{k}") for k, s in enumerate(self.shapes)]
        inner = Recording(builder, loop_of(loop).body, [list(carry)], [active], wanted, run.options)
        self.forward_part = list(builder.instructions)
        cts = {k: builder.parameter(len(carry) + n, self.shapes[k].without_layout(), f"ct_{k}")
               for n, k in enumerate(self.wanted)}
        (found,) = inner.backward(tuple(cts.get(k) for k in range(len(carry))))
        parts = parts_of(found, len(carry))
        self.stacks = carried_stacks(loop_of(loop).body)
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

    def _cotangent(self, builder: Builder, ct: Cotangent, index: int) -> XlaOp:
        """The cotangent of carry `index`, zeros where it is None."""
        if ct is None and index in self.stacks:
            return new(builder, value_shape(self.shapes[index]))
        return as_op(builder, materialised(builder, ct, self.shapes[index]))

    # ---- forward

    def emit(self, initial: list[XlaOp], checked: int | None) -> Emitted:
        """The forward loop. Where it runs longer than `checked` iterations, the way back gives NaN."""
        builder = self.outer
        stores = [self.rows.empty(builder, v.shape) for v in self.saved]
        own_counter = self.counted is None or (bool(stores) and not self._counts_rows)
        extra = [*stores, *([builder.constant(0, self._row_type)] if own_counter else [])]
        shape = Shape.tuple([*self.shapes, *(e.shape for e in extra)])
        body, condition = self._forward_body(shape, own_counter), self._condition(shape)
        loop = emitted_loop(self.loop, make_tuple(builder, [*initial, *extra]), shape, condition, body)
        whole = [element(loop, k) for k in range(len(shape.tuple_shapes))]
        results, stores = whole[:len(initial)], whole[len(initial):len(initial) + len(stores)]
        count = whole[-1] if self.counted is None else builder.constant(self.counted.trip_count, self._row_type)
        return Emitted(results, lambda ct: self._pull(initial, results, stores, count, checked, ct))

    def _forward_body(self, shape: Shape, own_counter: bool) -> Computation:
        builder = Builder(f"{loop_of(self.loop).body.name}_forward")
        whole = builder.parameter(0, shape, "carry")
        size = len(self.carry)
        carry = [element(whole, k) for k in range(size)]
        index = len(shape.tuple_shapes) - 1 if own_counter or self.counted is None else self.counted.index
        row = element(whole, index) if own_counter else carry[index]
        given = dict(zip(self.carry, carry, strict=True))
        if self.again:  # nothing of the iteration itself is kept, so it runs as it stands
            after = list(leaves(Rewriter(builder).run(loop_of(self.loop).body, [carry])))
            saved = [given[value] for value in self.saved]
        else:
            built = rebuild(builder, self.instructions, given, [*self.next, *self.saved, *effects(self.forward_part)])
            after, saved = built[:size], built[size:size + len(self.saved)]
        kept = [self.rows.write(element(whole, size + k), value, row) for k, value in enumerate(saved)]
        last = [ops.Add(row, builder.constant(1, self._row_type))] if own_counter else []
        return builder.finish(make_tuple(builder, [*after, *kept, *last]))

    def _condition(self, shape: Shape) -> Computation:
        """The loop's own; in a counted one, whether the counter has reached its end."""
        builder = Builder(loop_of(self.loop).condition.name)
        whole = builder.parameter(0, shape, "carry")
        if self.counted is None:
            carry = [element(whole, k) for k in range(len(self.carry))]
            return builder.finish(as_op(builder, Rewriter(builder).run(loop_of(self.loop).condition, [carry])))
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
              ct: tuple[Cotangent, ...]) -> Cotangent:
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
        loop = emitted_loop(self.loop, carry, carry.shape, condition, body)
        found = {k: element(loop, 1 + n) for n, k in enumerate(self.wanted)}
        return tuple(found.get(k) for k in range(len(self.shapes)))

    def _start(self, index: int) -> int | None:
        """Where a counter starts, if that is known."""
        return self.counted.start if self.counted and index == self.counted.index else None

    def _backward_body(self, shape: Shape) -> Computation:
        """Counts rows back; in a loop that is not counted, how many are left."""
        builder = Builder(f"{loop_of(self.loop).body.name}_backward")
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
        builder = Builder(f"{loop_of(self.loop).condition.name}_backward")
        number = element(builder.parameter(0, shape, "carry"), 0)
        test = ops.Gt if self.counted is None else ops.Ge
        return builder.finish(test(number, builder.constant(0, self._row_type)))
