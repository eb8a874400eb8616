"""Computations that bring derivatives inside a program: called, mapped, as a loop's body, as a branch.

What is differentiated or batched has a call of each of them, and everything else in canonical form, so what their authors wrote
of derivatives holds wherever they stand. A map becomes a call for a batch, of all elements. In the regions of other ops
(reducers, comparators) they are the op's own affair: what is lost there is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import functions as ops
from ..autodiff.calls import emit_call
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.composites import Kernel
from ..hlo.derivatives import Derivatives, Lost, Stop, bringing, brings, rules_of
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import callee
from ..opcodes import reduction
from ..transform.canonical import Canonicalizer
from ..transform.dynamic_sizes import resolve_sizes
from ..transform.expand_custom_calls import Expander
from ..transform.rewriter import rebuilt
from ..transform.values import Value, as_op, leaves, regrouped
from .calls import for_batch

Canonical = Callable[[Computation], Computation]
Stays = Callable[[str], bool]


def with_calls(entry: Computation, stays: Stays, canonical: Canonical,
               partitioned: bool) -> tuple[Computation | None, list[Lost]]:
    """The entry in canonical form, but with calls of the computations in it that bring derivatives; None where there are no such
    computations. And what is lost of those that could not stay calls. `canonical` gives a computation's canonical form, and
    `stays` says of a custom call's target that it has a gradient as it is; a program with manual regions is `partitioned`."""
    found = [c for c in reachable([entry]) if c is not entry and brings(c)]
    if not found:
        return None, []
    kept: dict[int, Computation] = {}
    if partitioned:  # manual regions are made whole in programs without calls
        result = None
    elif all(i.shape.is_static for c in reachable([entry]) for i in c.instructions):
        result = rebuilt(entry, lambda builder: _Keeper(builder, stays, canonical, kept, brings))
    else:  # sizes are resolved in programs without calls, but for those that pass a value on
        result = resolve_sizes(rebuilt(entry, lambda builder: _Keeper(builder, stays, lambda one: one, kept, _stops)))
    return result if kept else None, [_lost(c.derivatives) for c in found if id(c) not in kept and rules_of(c.derivatives)]


def _stops(computation: Computation) -> bool:
    return isinstance(computation.derivatives, Stop)


def _lost(derivatives: Derivatives) -> Lost:
    return Lost(tuple(rules_of(derivatives)), "a computation inside the program, where its derivatives have no place",
                "call it, map it, or make it a loop's body or a branch")


class _Keeper(Expander):
    """The canonicalizer that leaves calls of the computations that `is_kept` says. It notes them as `kept`, by their identity."""

    def __init__(self, builder: Builder, stays: Stays, canonical: Canonical, kept: dict[int, Computation],
                 is_kept: Callable[[Computation], bool]):
        super().__init__(builder, stays)
        self.canonical, self.kept, self.is_kept = canonical, kept, is_kept

    def within(self, builder: Builder) -> Canonicalizer:
        return _Keeper(builder, self.stays, self.canonical, self.kept, self.is_kept)

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if instruction.opcode == reduction.map_ and self.is_kept(instruction.attributes["to_apply"]):
            return self._mapped(instruction, [as_op(self.builder, o) for o in operands])
        return super().visit(instruction, operands, arguments)

    def entered(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        if not self.is_kept(computation):
            return super().entered(computation, arguments)
        given = [as_op(self.builder, leaf) for value in arguments for leaf in leaves(value)]
        return regrouped(emit_call(self.builder, self._own(computation), given), computation.root.shape)

    def composite(self, instruction: Instruction, kernel: Kernel, operands: list[Value]) -> Value:
        computation = callee(instruction)
        if not (computation.is_canonical and self.is_kept(computation)):
            return self.entered(computation, operands)
        self.kept[id(computation)] = computation
        return self.entered(computation, operands)

    def _own(self, computation: Computation) -> Computation:
        """The computation in canonical form with its derivatives, the same at each call."""
        if id(computation) not in self.kept:
            self.kept[id(computation)] = bringing(self.canonical(computation), computation.derivatives)
        return self.kept[id(computation)]

    def _mapped(self, instruction: Instruction, operands: list[XlaOp]) -> Value:
        sizes = instruction.shape.dimensions
        batch = for_batch(self._own(instruction.attributes["to_apply"]), math.prod(sizes), (True,) * len(operands))
        (found,) = emit_call(self.builder, batch, [ops.Reshape(o, [math.prod(sizes)]) for o in operands])
        return ops.Reshape(found, sizes)
