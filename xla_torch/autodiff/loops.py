"""Loops in derivatives, as loops: the gradient of a `while` is a `while` that walks back.

The forward loop keeps, for each iteration, the values that the way back needs: a row of each in iteration t. The backward
loop carries the cotangents and reads the rows in reverse. Carries that never change, and what is computed from them alone,
are handed to it as they are; counters are counted back, and what little follows from them is computed again instead of
being kept.
A cotangent of an unchanging carry is a running sum, into which rules add slices in place: a scan over n rows costs O(n).

Where the trip count is known, rows stand in arrays ``[trip count, ...]``, and both loops are plain HLO. Where it depends on
data, the forward loop counts its iterations, and the backward loop runs as many. HLO has no array that grows, and the
choice for the rows, the residual store, is this:

- a **stack** (`hlo/stacks.py`) if nothing is known: values are kept as they are, without a copy, as torch.autograd keeps
  them, and memory holds the iterations that were run and not one more. Its price: such a program runs here only, and its
  text is made in another way;
- **nothing** with `GradientOptions.portable`, for programs that others run: the carries of segments are computed again
  (`bisection.py`), in plain HLO and bounded memory, which costs time;
- **arrays** of as many rows as the loop has iterations at most, if its condition says that (``i < 50 and ...``) and they are
  small, or if the caller says it (`GradientOptions.loop_bound`): plain HLO again, for XLA to run.

With `GradientOptions.loop_checkpoint`, loops are first cut into segments (`checkpointing.py`), and rows are kept of the
carries between segments only. A loop of unknown length inside another loop keeps nothing from one iteration of that loop to
its way back: it runs once more there.

In forward mode a loop carries tangents beside its carries, whatever its trip count.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.loops import counted_loop, trip_bound
from ..core import tuning
from ..core.errors import DifferentiationError
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo.ir import Instruction
from ..hlo.regions import loop_of
from ..hlo.schema import Control
from ..transform.values import Value, leaves, make_tuple
from .activity import activity, analyse
from .bisection import Bisected
from .checkpointing import Segments, emitted_loop, is_cut, square_root
from .cotangents import Cotangent, parts_of
from .flags import Flags, both, either
from .forward import flagged, on_values, tangent_shapes, values_and_tangents, with_tangents
from .loop_steps import Emitted, Step
from .options import AUTO, SQRT, Checkpoint
from .places import shielded
from .residual_stores import Arrays, Stacks
from .residuals import is_repeatable
from .structure import ForwardPass, ReversePass, Structural, Tangent, region_kind


@region_kind(Control.LOOP)
class _Loop(Structural):
    """A loop in canonical form: one flat tuple of leaves is its operand, its carry and its result."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        carry = operands[0]
        while True:
            body = loop_of(instruction).body
            after = either(carry, activity(body, [carry])[body.root])
            if after == carry:
                return carry
            carry = after

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [both(_demanded_carries(instruction, self.active(instruction, operands), wanted), operands[0])]

    def forward(self, run: ReversePass, instruction: Instruction, operands: list[Value]) -> Value:
        active = self.active(instruction, [run.facts.active[o] for o in instruction.operands])
        wanted = _demanded_carries(instruction, active, run.facts.demanded[instruction])
        counted = counted_loop(instruction)
        if (trip_bound(instruction) if counted is None else counted.trip_count) == 0:
            return run.visit(instruction, operands, ())
        emitted = _emitted(run, instruction, list(leaves(operands[0])), active, wanted)
        run.emitted[instruction] = emitted
        return list(emitted.results)

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        emitted = run.emitted.get(instruction)
        assert isinstance(ct, tuple)
        if emitted is None:
            return [ct]

        def active() -> list[Flags]:
            return [self.active(instruction, [run.facts.active[o] for o in instruction.operands])]

        return [tuple(shielded(loop_of(instruction).body, active, ct, parts_of(emitted.pull(ct), len(ct))))]

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        loop, flags, shapes = loop_of(instruction), run.active[instruction], instruction.shape.tuple_shapes
        carry = make_tuple(run.builder, [*leaves(operands[0]), *flagged(run.builder, tangents[0], flags, shapes)])
        shape = Shape.tuple([*shapes, *tangent_shapes(flags, shapes)])
        condition, body = on_values(loop.condition, shape, len(shapes)), with_tangents(loop.body, flags, flags)
        return values_and_tangents(emitted_loop(instruction, carry, shape, condition, body), flags)


def _demanded_carries(instruction: Instruction, active: Flags, wanted: Flags) -> tuple[Flags, ...]:
    """The carries that have a cotangent while the loop is walked back."""
    body = loop_of(instruction).body
    while True:
        before = analyse(body, [active], wanted).demanded.get(body.parameters[0], False)
        more = either(wanted, before)
        if more == wanted:
            assert isinstance(more, tuple)
            return more
        wanted = more


def _emitted(run: ReversePass, loop: Instruction, initial: list[XlaOp], active: Flags, wanted: tuple[Flags, ...]) -> Emitted:
    """Emit the forward loop, with what the options say of it."""
    options, counted, body = run.options, counted_loop(loop), loop_of(loop).body
    most = counted.trip_count if counted else trip_bound(loop)
    checked = options.loop_bound if counted is None and (most is None or (options.loop_bound or most) < most) else None
    most = most if checked is None else checked
    length, cut = _segment_length(options.loop_checkpoint, most), not is_cut(loop) and is_repeatable(body)
    if cut and length is not None:
        return _in_segments(run, loop, initial, active, wanted, most, checked, length)
    step = Step(run, loop, counted, active, wanted)
    size = (most or 0) * step.row_bytes
    if cut and options.loop_checkpoint == AUTO and most is not None and size > options.memory_bound and (
            counted or options.loop_bound):
        return _in_segments(run, loop, initial, active, wanted, most, checked, square_root(most))
    certain = counted is not None or options.loop_bound is not None or size <= tuning.BOUNDED_ROWS_BYTES
    chosen = options.portable and is_cut(loop)  # a segment has no more rows than was chosen
    if options.portable and (most is None or not (certain or chosen)):
        _require_repeatable(loop)
        return _in_segments(run, loop, initial, active, wanted, most, None, tuning.SEGMENT)
    step.rows = Arrays(most) if most is not None and (certain or chosen) else Stacks()
    return step.emit(initial, checked)


def _require_repeatable(loop: Instruction) -> None:
    if not is_repeatable(loop_of(loop).body):
        raise DifferentiationError(
            "a loop of unknown length with effects has no gradient in plain HLO",
            subject=loop.subject, where=loop.where, hint="loop_bound in GradientOptions keeps it in arrays; random numbers "
            "may be drawn before the loop")


def _segment_length(checkpoint: Checkpoint, most: int | None) -> int | None:
    """The iterations of a segment; 0 for segments that grow, None for a loop that is not cut."""
    if checkpoint == SQRT:
        return 0 if most is None else square_root(most)
    return None if checkpoint in (None, AUTO) else checkpoint


def _in_segments(run: ReversePass, loop: Instruction, initial: list[XlaOp], active: Flags, wanted: tuple[Flags, ...],
                 most: int | None, checked: int | None, length: int) -> Emitted:
    """Emit the loop cut into segments, of which only the carries between them are kept, or where that cannot be in plain HLO,
    as it must, computed again."""
    counted, portable = counted_loop(loop), run.options.portable
    length = length or (tuning.SEGMENT if portable else 0)
    segments = Segments(loop, counted, length or None)
    outer = segments.outer(initial)
    assert isinstance(active, tuple)
    exact = most is not None and length > 0 and (run.options.loop_bound is not None or counted is not None)
    kind = Step if exact or not portable else Bisected
    step = kind(run, outer, counted_loop(outer), segments.chosen(active, False), segments.chosen(wanted, False), again=True)
    step.rows = Arrays(-(-most // length)) if most is not None and exact else Stacks()
    first = [XlaOp(run.builder, i) for i in outer.operands[0].operands]
    inner = step.emit(first, None if checked is None else -(-checked // length))
    results = inner.results[:-1]
    if counted is not None:
        last = counted.start + counted.step * counted.trip_count
        end = run.builder.constant(last, loop.shape.tuple_shapes[counted.index].element_type)
        results = segments.restored(results, end)

    def pull(ct: tuple[Cotangent, ...]) -> Cotangent:
        found = inner.pull(segments.chosen(ct, None))
        assert isinstance(found, tuple)
        return tuple(segments.restored(found[:-1], None))

    return Emitted(results, pull)


