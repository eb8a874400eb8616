"""Calls on a batch: what a computation brings of derivatives, it brings for a batch, too.

The way back for a batch is the batch of the way back. An argument that all examples share gets the sum of what they give it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from grad_rules._calculus import sum_over

from ..autodiff.calls import calling, emit_call
from ..autodiff.sharing import SharingBuilder
from ..functions.hlo_builder import XlaOp
from ..hlo.derivatives import Derivatives, Mask, Pullback, Pushforward, Stop, bringing, brings
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import callee
from ..opcodes import control
from ..transform.values import Value, as_op, leaves, make_tuple, regrouped
from .batched_run import Batch, with_batch
from .batching_table import RULES


@RULES.rule(control.call)
def _call(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    found = emit_call(batch.builder, for_batch(callee(inst), batch.size, tuple(mapped)), operands)
    return regrouped(found, inst.shape)


def for_batch(computation: Computation, size: int, mapped: Mask) -> Computation:
    """The computation of flat arrays for a batch, all results with it, and with the derivatives that it brings."""
    builder, run = _run(computation, size, mapped)
    results = regrouped([_full(run, k) for k in range(len(_flags(run)))], computation.root.shape)
    own = computation.derivatives
    is_own = brings(computation) and not isinstance(own, Stop)
    return bringing(builder.finish(as_op(builder, results)), _Batched(own, size, mapped) if is_own else own)


@dataclasses.dataclass(frozen=True, eq=False)
class _Batched:
    """The derivatives of a computation for `size` examples, where the `mapped` arguments have the batch."""

    own: Derivatives
    size: int
    mapped: Mask

    @property
    def rules(self) -> Sequence[str]:
        return self.own.rules

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None:
        way = self.own.pullback(needed, demanded)
        if way is None:
            return None
        forward, residuals = self._forward(way)
        read = [self.mapped[k] for k in way.read]
        inside = (*read, *residuals, *(True for flag in way.demanded if flag))
        return dataclasses.replace(way, forward=forward, backward=self._backward(way, inside))

    def _forward(self, way: Pullback) -> tuple[Computation, list[bool]]:
        """The way forward, all results but not all residuals having the batch, and which of these have."""
        builder, run = _run(calling(way.forward), self.size, self.mapped)
        count, flags, found = len(way.demanded), _flags(run), list(leaves(run.result))
        results = [_full(run, k) for k in range(count)]
        return builder.finish(make_tuple(builder, [*results, *found[count:]])), flags[count:]

    def _backward(self, way: Pullback, inside: Mask) -> Computation:
        builder, run = _run(calling(way.backward), self.size, inside)
        own = [flag for flag, needed in zip(self.mapped, way.needed, strict=True) if needed]
        return builder.finish(make_tuple(builder, [
            _full(run, k) if mapped else sum_over(_full(run, k), [0]) for k, mapped in enumerate(own)]))

    def pushforward(self, present: Mask) -> Pushforward | None:
        way = self.own.pushforward(present)
        if way is None:
            return None
        tangents = (flag for flag, there in zip(self.mapped, way.present, strict=True) if there)
        return Pushforward(way.present, for_batch(calling(way.program), self.size, (*self.mapped, *tangents)))


def _run(computation: Computation, size: int, mapped: Mask) -> tuple[SharingBuilder, Batch]:
    """The computation run on new parameters, which have the batch in front where they are `mapped`."""
    builder = SharingBuilder(computation.name)
    arguments = [builder.parameter(k, with_batch(p.shape, size) if flag else p.shape.without_layout(), p.name)
                 for k, (p, flag) in enumerate(zip(computation.parameters, mapped, strict=True))]
    return builder, Batch(builder, computation, size, arguments, list(mapped))


def _flags(run: Batch) -> list[bool]:
    return list(leaves(run.result_mapped))


def _full(run: Batch, k: int) -> XlaOp:
    """Leaf `k` of the result with the batch."""
    return run.full(list(leaves(run.result))[k], _flags(run)[k])

