"""A loop of unknown length walked back by running it forwards again, in plain HLO and bounded memory.

The forward loop only counts its iterations. Walking back from n, the carries before an iteration come from the nearest snapshot
before it: from there the loop is run to the middle of what lies between, a snapshot is taken, and so on in the half that is
left. Of the snapshots, which stand in arrays of as many rows as a 32-bit count has bits, those behind the iteration are done
with. So n iterations take n/2 log2(n) more of them, and no array has to grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import functions as ops
from ..analysis.loops import invariant_carries
from ..core.errors import DifferentiationError
from ..core.shape import Shape
from ..core.types import S32
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.regions import loop_of
from ..transform.rewriter import Rewriter
from ..transform.values import element, leaves, make_tuple
from .checkpointing import carry_elements, emitted_loop
from .cotangents import Cotangent
from .loop_steps import Step
from .residual_stores import Arrays
from .residuals import LOOP_BODY, needs, rebuild, unchanging

_SLOTS = Arrays(33)
"""The snapshots: one of the start, and one for each time that what lies between can be halved."""
_NUMBER = Shape.array(S32)


class _Snapshots(NamedTuple):
    """Which of them is the last one, before which iteration each was taken, and what each carry was."""

    top: XlaOp
    places: XlaOp
    carries: list[XlaOp]


class Bisected(Step):
    """A step whose way back has nothing but the loop's first carries and how often it ran."""

    def _choose_rows(self) -> None:
        shapes = [s for k, s in enumerate(self.shapes) if k not in invariant_carries(self.loop)]
        if not all(s.is_array and s.is_static for s in shapes):
            raise DifferentiationError(
                "a loop of unknown length whose carries have dynamic sizes cannot be recomputed",
                subject=self.loop.subject, where=self.loop.where, got=self.loop.shape, hint="loop_bound in GradientOptions")
        self.invariants = sorted(invariant_carries(self.loop))
        self.varying = [k for k in range(len(self.shapes)) if k not in self.invariants]
        self.saved, self.passed, self.counting = [], {}, []
        constant = [i for i in unchanging(self.instructions, [self.carry[k] for k in self.invariants]) if LOOP_BODY.cost(i) > 0]
        read = needs(self.previous, constant)
        self.fixed = [i for i in constant if i in read and not i.is_parameter]

    def _pull(self, initial: list[XlaOp], results: list[XlaOp], stores: list[XlaOp], count: XlaOp, checked: int | None,
              ct: tuple[Cotangent, ...]) -> Cotangent:
        builder = self.outer
        cts = [self._cotangent(builder, ct[k], k) for k in self.wanted]
        fixed = rebuild(builder, self.instructions, {self.carry[k]: initial[k] for k in self.invariants}, self.fixed)
        first = builder.constant(0, S32)
        start = [_SLOTS.write(_SLOTS.empty(builder, self.shapes[k]), initial[k], first) for k in self.varying]
        snapshots = _Snapshots(first, _SLOTS.empty(builder, _NUMBER), start)
        still = [*fixed, *(initial[k] for k in self.invariants)]
        count_still = len(still)

        def stays(carry: list[XlaOp]) -> XlaOp:
            return ops.Gt(carry[0], 0)

        def step(carry: list[XlaOp]) -> list[XlaOp]:
            last = ops.Sub(carry[0], 1)
            cts, rest = carry[1:1 + len(self.wanted)], carry[1 + len(self.wanted):]
            still, snapshots = rest[:count_still], _snapshots(rest[count_still:])
            snapshots = self._up_to(last, still[len(fixed):], snapshots)
            values = self._carry(still[len(fixed):], self._taken(snapshots))
            given = dict(zip(self.carry, values, strict=True)) | dict(zip(self.fixed, still, strict=False))
            given |= {self.cotangents[k]: value for k, value in zip(self.wanted, cts, strict=True)}
            previous = rebuild(last.builder, self.instructions, given, self.previous, updates_last=True)
            return [last, *previous, *still, ops.Sub(snapshots.top, 1), snapshots.places, *snapshots.carries]

        found = self._looped([count, *cts, *still, *_flat(snapshots)], stays, step)
        gradients = dict(zip(self.wanted, found[1:], strict=False))
        return tuple(gradients.get(k) for k in range(len(self.shapes)))

    def _up_to(self, last: XlaOp, still: list[XlaOp], snapshots: _Snapshots) -> _Snapshots:
        """The snapshots, the last one of the carries before iteration `last`."""
        count = len(still)

        def stays(carry: list[XlaOp]) -> XlaOp:
            return ops.Lt(_place(_snapshots(carry[1 + count:])), carry[0])

        def step(carry: list[XlaOp]) -> list[XlaOp]:
            (last, *still), snapshots = carry[:1 + count], _snapshots(carry[1 + count:])
            here = _place(snapshots)
            middle = ops.Add(here, ops.Div(ops.Add(ops.Sub(last, here), 1), 2))
            carries = self._run(here, middle, still, self._taken(snapshots))
            top = ops.Add(snapshots.top, 1)
            kept = [_SLOTS.write(store, value, top) for store, value in zip(snapshots.carries, carries, strict=True)]
            return [last, *still, top, _SLOTS.write(snapshots.places, middle, top), *kept]

        found = self._looped([last, *still, *_flat(snapshots)], stays, step)
        return _snapshots(found[1 + count:])

    def _run(self, here: XlaOp, there: XlaOp, still: list[XlaOp], varying: list[XlaOp]) -> list[XlaOp]:
        """The carries that vary, after the loop's iterations from `here` until before `there`."""
        count = len(still)

        def stays(carry: list[XlaOp]) -> XlaOp:
            return ops.Lt(carry[0], carry[1])

        def step(carry: list[XlaOp]) -> list[XlaOp]:
            here, there, still, varying = carry[0], carry[1], carry[2:2 + count], carry[2 + count:]
            after = list(leaves(Rewriter(here.builder).run(loop_of(self.loop).body, [self._carry(still, varying)])))
            return [ops.Add(here, 1), there, *still, *(after[k] for k in self.varying)]

        return self._looped([here, there, *still, *varying], stays, step)[2 + count:]

    def _taken(self, snapshots: _Snapshots) -> list[XlaOp]:
        """The carries of the last snapshot."""
        return [_SLOTS.read(store, self.shapes[k].without_layout(), snapshots.top)[0]
                for k, store in zip(self.varying, snapshots.carries, strict=True)]

    def _carry(self, still: Sequence[XlaOp], varying: Sequence[XlaOp]) -> list[XlaOp]:
        """The loop's whole carry."""
        known = dict(zip(self.invariants, still, strict=True)) | dict(zip(self.varying, varying, strict=True))
        return [known[k] for k in range(len(self.shapes))]

    def _looped(self, values: list[XlaOp], condition: Callable[[list[XlaOp]], XlaOp],
                body: Callable[[list[XlaOp]], list[XlaOp]]) -> list[XlaOp]:
        """What becomes of values in a loop."""
        carry = make_tuple(values[0].builder, values)
        name, region = self.loop.name, loop_of(self.loop)
        test, step = Builder(f"{region.condition.name}_{name}"), Builder(f"{region.body.name}_{name}")
        goes_on = test.finish(condition(carry_elements(test, carry.shape)))
        goes_round = step.finish(make_tuple(step, body(carry_elements(step, carry.shape))))
        loop = emitted_loop(self.loop, carry, carry.shape, goes_on, goes_round)
        return [element(loop, k) for k in range(len(values))]


def _flat(snapshots: _Snapshots) -> list[XlaOp]:
    return [snapshots.top, snapshots.places, *snapshots.carries]


def _snapshots(values: Sequence[XlaOp]) -> _Snapshots:
    top, places, *carries = values
    return _Snapshots(top, places, carries)


def _place(snapshots: _Snapshots) -> XlaOp:
    """Before which iteration the last one was taken."""
    return _SLOTS.read(snapshots.places, _NUMBER, snapshots.top)[0]
