"""Derivatives of calls: those that the called computation brings (see `hlo.derivatives`), or else those of its ops.

The ways forward and back that such a computation brings are emitted as calls again, since they may bring derivatives themselves:
so derivatives of any order keep to what their author wrote. Where there are none, the rules differentiate the ops. Composites
and functions that are spelled out among these ops are calls again, as in the entry (`functions`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.derivatives import Mask, Pullback
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import callee
from ..hlo.schema import Control
from ..transform.stops import is_stop
from ..transform.values import Value, as_op, regrouped
from .calls import emit_call
from .cotangents import Cotangent, frozen, is_zero, materialised
from .flags import Flags, any_of, broadcast_flags, differentiable
from .forward import Forward
from .functions import with_functions
from .places import shielded
from .reverse import Recording
from .structure import ForwardPass, ReversePass, Structural, Tangent, region_kind


@region_kind(Control.CALL)
class _Calls(Structural):
    """Calls of canonical computations, which stay where these bring derivatives."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        if is_stop(instruction):
            return False
        given = sum(1 << k for k, flags in enumerate(operands) if any_of(flags))
        found = (bool(sources & given) for sources in _sources(callee(instruction)))
        return tree.grouped((flag and any_of(differentiable(leaf)) for leaf, flag in
                             zip(instruction.shape.leaves(), found, strict=True)), instruction.shape)

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return operands

    def forward(self, run: ReversePass, instruction: Instruction, operands: list[Value]) -> Value:
        computation, own = callee(instruction), callee(instruction).derivatives
        demanded = broadcast_flags(instruction.shape, run.facts.demanded[instruction])
        needed = tuple(any_of(run.facts.active[o]) for o in instruction.operands)
        way = None if own is None else own.pullback(needed, _flat(demanded))
        if way is None:
            inner = Recording(run.builder, with_functions(computation), operands, needed, demanded, run.options)
            run.emitted[instruction] = inner
            return inner.result
        arguments = [as_op(run.builder, o) for o in operands]
        found = emit_call(run.builder, way.forward, arguments)
        count = len(way.demanded)
        run.emitted[instruction] = _Way(way, [*(arguments[k] for k in way.read), *found[count:]], found[:count])
        return regrouped(found[:count], instruction.shape)

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        there = run.emitted[instruction]
        if isinstance(there, Recording):
            return there.backward(ct)
        parts = [ct] if instruction.shape.is_array else list(ct) if isinstance(ct, tuple) else []
        found = iter(there.back(run.builder, parts))
        gradients = shielded(callee(instruction), lambda: [run.facts.active[o] for o in instruction.operands], parts,
                             [next(found) if flag else None for flag in there.way.needed])
        return [g if any_of(run.facts.active[o]) else None for g, o in zip(gradients, instruction.operands, strict=True)]

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        computation, own = callee(instruction), callee(instruction).derivatives
        way = None if own is None else own.pushforward(tuple(not is_zero(t) for t in tangents))
        if way is None:
            inner = Forward(run.builder, with_functions(computation), operands, tangents)
            return inner.result, inner.tangent
        arguments = [as_op(run.builder, o) for o in operands]
        given = [_array(run.builder, t, a) for t, a, flag in zip(tangents, arguments, way.present, strict=True) if flag]
        found = iter(emit_call(run.builder, way.program, [*arguments, *given]))
        results = [next(found) for _ in instruction.shape.leaves()]
        moved = [next(found) if any_of(differentiable(leaf)) else None for leaf in instruction.shape.leaves()]
        return regrouped(results, instruction.shape), frozen(regrouped(moved, instruction.shape))


@dataclasses.dataclass(frozen=True, eq=False)
class _Way:
    """A call's way forward as it was emitted: what the way back reads, and the results."""

    way: Pullback
    kept: list[XlaOp]
    results: list[XlaOp]

    def back(self, builder: Builder, cotangents: Sequence[Cotangent]) -> list[XlaOp]:
        given = [_array(builder, ct, result) for ct, result, flag in
                 zip(cotangents, self.results, self.way.demanded, strict=True) if flag]
        return emit_call(builder, self.way.backward, [*self.kept, *given])


def _array(builder: Builder, part: Cotangent, like: XlaOp) -> XlaOp:
    return as_op(builder, materialised(builder, part, like.shape.without_layout()))


def _flat(flags: Flags) -> Mask:
    return flags if isinstance(flags, tuple) else (flags,)  # pyright: ignore[reportReturnType] (a flat tuple of arrays)


def _sources(computation: Computation) -> list[int]:
    """For each leaf of the result, the parameters that it is computed from, in any way: bit k for parameter k. What a loop or a
    branch gives counts as one value."""
    found: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        bits = 1 << instruction.attributes["parameter_number"] if instruction.is_parameter else 0
        for operand in instruction.operands:
            bits |= found[operand]
        found[instruction] = bits
    root = computation.root
    return [found[o] for o in root.operands] if root.is_tuple else [found[root]] * _leaf_count(root.shape)


def _leaf_count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())
