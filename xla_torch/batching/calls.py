"""Calls on a batch: what a computation brings of derivatives, it brings for a batch, too.

The way back for a batch is the batch of the way back. An argument that all examples share gets the sum of what they give it.
A call for some examples only has their mask as one more argument, and so have the ways that its derivatives go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from grad_rules._calculus import sum_over

from ..autodiff.calls import calling, emit_call
from ..autodiff.sharing import SharingBuilder
from ..core.shape import Shape
from ..core.types import PRED
from ..functions.hlo_builder import XlaOp
from ..hlo.derivatives import Derivatives, Mask, Pullback, Pushforward, Stop, bringing, brings
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import callee
from ..opcodes import control
from ..transform.values import Value, as_op, leaves, make_tuple, regrouped
from .batched_run import Batch, may_not_end, with_batch
from .batching_table import RULES


@RULES.rule(control.call)
def _call(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    computation, mask_at = callee(inst), None
    if batch.active is not None and may_not_end(computation):
        operands, mapped, mask_at = [*operands, batch.active], [*mapped, True], len(operands)
    found = emit_call(batch.builder, for_batch(computation, batch.size, tuple(mapped), mask_at), operands)
    return regrouped(found, inst.shape)


def for_batch(computation: Computation, size: int, mapped: Mask, mask_at: int | None = None) -> Computation:
    """The computation of flat arrays for a batch, all results with it, and with the derivatives that it brings. It has a further
    argument number `mask_at`, if given, that says for which examples it is to run."""
    builder, run = _run(computation, size, mapped, mask_at)
    results = regrouped([_full(run, k) for k in range(len(_flags(run)))], computation.root.shape)
    own = computation.derivatives
    is_own = brings(computation) and not isinstance(own, Stop)
    return bringing(builder.finish(as_op(builder, results)), _Batched(own, size, mapped, mask_at) if is_own else own)


@dataclasses.dataclass(frozen=True, eq=False)
class _Batched:
    """The derivatives of a computation for `size` examples, where the `mapped` arguments have the batch. Argument number
    `mask_at`, the last one, is not the computation's but says for which examples it runs."""

    own: Derivatives
    size: int
    mapped: Mask
    mask_at: int | None = None

    @property
    def rules(self) -> Sequence[str]:
        return self.own.rules

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None:
        way = self.own.pullback(needed[:self.mask_at], demanded)
        if way is None:
            return None
        forward, residuals = self._forward(way)
        masked = self._for_the_mask
        read = [*(self.mapped[k] for k in way.read), *(True for _ in masked)]
        inside = (*read, *residuals, *(True for flag in way.demanded if flag))
        needed = (*way.needed, *(False for _ in masked))
        return Pullback(needed, way.demanded, (*way.read, *masked), forward, self._backward(way, inside))

    @property
    def _for_the_mask(self) -> tuple[int, ...]:
        return () if self.mask_at is None else (self.mask_at,)

    def _forward(self, way: Pullback) -> tuple[Computation, list[bool]]:
        """The way forward, all results but not all residuals having the batch, and which of these have."""
        builder, run = _run(calling(way.forward), self.size, self.mapped, self.mask_at)
        count, flags, found = len(way.demanded), _flags(run), list(leaves(run.result))
        results = [_full(run, k) for k in range(count)]
        return builder.finish(make_tuple(builder, [*results, *found[count:]])), flags[count:]

    def _backward(self, way: Pullback, inside: Mask) -> Computation:
        builder, run = _run(calling(way.backward), self.size, inside, None if self.mask_at is None else len(way.read))
        own = [flag for flag, needed in zip(self.mapped, way.needed, strict=False) if needed]
        return builder.finish(make_tuple(builder, [
            _full(run, k) if mapped else sum_over(_full(run, k), [0]) for k, mapped in enumerate(own)]))

    def pushforward(self, present: Mask) -> Pushforward | None:
        way = self.own.pushforward(present[:self.mask_at])
        if way is None:
            return None
        tangents = (flag for flag, there in zip(self.mapped, way.present, strict=False) if there)
        program = for_batch(calling(way.program), self.size, (*self.mapped, *tangents), self.mask_at)
        return Pushforward((*way.present, *(False for _ in self._for_the_mask)), program)


def _run(computation: Computation, size: int, mapped: Mask, mask_at: int | None) -> tuple[SharingBuilder, Batch]:
    """The computation run on new parameters, which have the batch in front where they are `mapped`, among them the mask of the
    examples that it runs for."""
    builder = SharingBuilder(computation.name)
    shapes = [(p.shape, p.name) for p in computation.parameters]
    if mask_at is not None:
        shapes.insert(mask_at, (Shape.array(PRED), "active"))
    arguments = [builder.parameter(k, with_batch(shape, size) if flag else shape.without_layout(), name)
                 for k, ((shape, name), flag) in enumerate(zip(shapes, mapped, strict=True))]
    flags = list(mapped)
    active = None
    if mask_at is not None:
        active, _ = arguments.pop(mask_at), flags.pop(mask_at)
    return builder, Batch(builder, computation, size, arguments, flags, active=active)


def _flags(run: Batch) -> list[bool]:
    return list(leaves(run.result_mapped))


def _full(run: Batch, k: int) -> XlaOp:
    """Leaf `k` of the result with the batch."""
    return run.full(list(leaves(run.result))[k], _flags(run)[k])

