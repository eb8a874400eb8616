"""Functions in derivatives that a program spells out in ops: each becomes a call that brings the function's own derivatives.

What is called is the spelling as it stands in the program, so values stay; the ways back and forward are made of the rules in
`grad_rules.functions`, or of an op's own where the function is what an op is. A spelling stays one where a user has put a rule in
the place of one of its ops.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from grad_rules import _compositions
from grad_rules._calculus import conj, zeros
from grad_rules._functions import FunctionRules, rules_of_function
from grad_rules._table import TABLE

from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.composites import decomposition, is_composite
from ..hlo.derivatives import Mask, Pullback, Pushforward, Stored, bringing
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import Region, has_regions_of_values, is_call, is_start, with_regions
from ..transform.canonical import canonicalize
from ..transform.expansions.library import spellings_of
from ..transform.expansions.matching import Match
from ..transform.rewriter import Rewriter, carried_metadata
from ..transform.values import Value, as_op, elements_of, make_tuple, regrouped
from .calls import emit_call
from .reverse import Recording
from .sharing import SharingBuilder


def with_functions(computation: Computation) -> Computation:
    """The computation, which is in canonical form but for calls, with calls of the functions that it spells out, also in loops
    and branches; itself where there are none. Calls that are there stay as they are."""
    outlining = _Outlining(SharingBuilder(computation.name))
    found = outlining.rebuilt(computation)
    return found if outlining.found else computation


class _Spelled(NamedTuple):
    """A function, and where its spelling stands."""

    function: str
    match: Match


class _Outlining(Rewriter):
    """Puts calls in the place of spellings. `found` says whether there were any, `made` what regions became, which may be
    shared."""

    found = False

    def __init__(self, builder: Builder):
        super().__init__(builder)
        self.made: dict[Computation, tuple[Computation, bool]] = {}

    def rebuilt(self, computation: Computation) -> Computation:
        parameters = [self.builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
        for parameter, original in zip(parameters, computation.parameters, strict=True):
            parameter.instruction.common = carried_metadata(original)
        result = self.run(computation, [elements_of(p) for p in parameters])
        return self.builder.finish(as_op(self.builder, result))

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        needed, places = _places(computation)
        values: dict[Instruction, Value] = {}
        for instruction in needed:
            if instruction in places:
                spelled = places[instruction]
                self.found = True
                values[instruction] = self._call(computation, instruction, spelled, [values[s] for s in spelled.match.sources])
            else:
                values[instruction] = self.visit(instruction, [values[o] for o in instruction.operands], arguments)
        return values[computation.root]

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if is_composite(instruction):
            self.found = True
            found = emit_call(self.builder, decomposition(instruction), [as_op(self.builder, o) for o in operands])
            return regrouped(found, instruction.shape)
        if has_regions_of_values(instruction) and not is_call(instruction) and not is_start(instruction):
            return self.copy(instruction, operands, with_regions(instruction, self._region))
        return super().visit(instruction, operands, arguments)

    def _region(self, region: Region) -> Computation:
        computation = region.computation
        if computation not in self.made:
            inner = _Outlining(SharingBuilder(computation.name))
            inner.made = self.made
            made = inner.rebuilt(computation)
            self.made[computation] = (made if inner.found else computation), inner.found
        made, found = self.made[computation]
        self.found |= found
        return made

    def _call(self, computation: Computation, root: Instruction, spelled: _Spelled, operands: Sequence[Value]) -> Value:
        alone = _outlined(computation, root, spelled)
        derivatives = FunctionDerivatives(spelled.function, alone)
        (called,) = emit_call(self.builder, bringing(alone, derivatives), [as_op(self.builder, o) for o in operands])
        called.instruction.common = carried_metadata(root)
        return called


def _places(computation: Computation) -> tuple[list[Instruction], dict[Instruction, _Spelled]]:
    """The results of spellings, and the instructions that are needed besides: not those inside, unless others read them."""
    places: dict[Instruction, _Spelled] = {}
    needed = {computation.root, *(i for i in computation.instructions if i.is_parameter or has_effect(i))}
    for instruction in reversed(computation.instructions):
        if instruction in needed:
            spelled = _spelled(instruction)
            if spelled is not None:
                places[instruction] = spelled
            needed.update(instruction.operands if spelled is None else spelled.match.sources)
    return [i for i in computation.instructions if i in needed], places


def _spelled(instruction: Instruction) -> _Spelled | None:
    for function, match in spellings_of(instruction):
        if not any(entry.own for i in match.inner if (entry := TABLE.get(i.opcode)) is not None):
            return _Spelled(function, match)
    return None


def _outlined(computation: Computation, root: Instruction, spelled: _Spelled) -> Computation:
    """A spelling as a computation of the function's operands."""
    builder, inner = Builder(spelled.function), set(spelled.match.inner)
    values: dict[Instruction, Value] = {
        s: builder.parameter(k, s.shape.without_layout(), name)
        for k, (s, name) in enumerate(zip(spelled.match.sources, rules_of_function(spelled.function).operands, strict=True))}
    copier = Rewriter(builder)
    for instruction in computation.instructions:
        if instruction in inner:
            values[instruction] = copier.visit(instruction, [values[o] for o in instruction.operands], ())
    return canonicalize(builder.finish(as_op(builder, values[root])))


@_compositions.engine
def pulled_back(computation: Computation, arguments: Sequence[XlaOp], cts: Sequence[XlaOp | None],
                wanted: Sequence[bool] | None) -> list[Any]:
    """The cotangents of the arguments (of those that `wanted` flags, if given) through a computation that returns a tuple,
    given the cotangents of its elements."""
    values = [elements_of(a) for a in arguments]
    recording = Recording(arguments[0].builder, with_functions(canonicalize(computation)), values, wanted or [True] * len(values),
                          tuple(c is not None for c in cts))
    return recording.backward(tuple(cts))


class FunctionDerivatives:
    """The derivatives of a function by its rules; `spelling` computes it. It is elementwise, and holomorphic where complex."""

    rules: Sequence[str] = ()
    """Nothing that an author wrote: where these derivatives are left behind, the ops say as much."""

    def __init__(self, name: str, spelling: Computation):
        self.name, self._spelling = name, spelling

    @property
    def _own(self) -> FunctionRules:
        return rules_of_function(self.name)

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None:
        rules, shapes = self._own, [p.shape for p in self._spelling.parameters]
        wanted = [name for name, flag in zip(rules.operands, needed, strict=True) if flag]
        words = {word for name in wanted for word in rules.asks[name]}
        read = tuple(k for k, name in enumerate(rules.operands) if name in words)
        forward = Builder(self.name)
        out = self._value([forward.parameter(k, s) for k, s in enumerate(shapes)])
        kept = [out] if "out" in words else []
        make_tuple(forward, [out, *kept])
        backward = Builder(f"{self.name}_vjp")
        given = [backward.parameter(n, shapes[k]) for n, k in enumerate(read)]
        rest = [backward.parameter(len(given) + n, self._spelling.root.shape) for n in range(len(kept) + 1)]
        known = {rules.operands[k]: value for k, value in zip(read, given, strict=True)} | {"out": rest[0], "ct": rest[-1]}
        gradients = [_ruled(rules, name, known) for name in wanted]
        make_tuple(backward, [zeros(rest[-1]) if g is None else g for g in gradients])
        return Pullback(needed, demanded, read, _finished(forward), _finished(backward))

    def pushforward(self, present: Mask) -> Pushforward | None:
        rules, builder = self._own, Builder(f"{self.name}_jvp")
        arguments = [builder.parameter(k, p.shape) for k, p in enumerate(self._spelling.parameters)]
        moving = [name for name, flag in zip(rules.operands, present, strict=True) if flag]
        tangents = [builder.parameter(len(arguments) + k, self._spelling.root.shape) for k in range(len(moving))]
        out = self._value(arguments)
        known = dict(zip(rules.operands, arguments, strict=True)) | {"out": out}
        # The rule gives ct conj(f'), so that of the conjugate tangent is the conjugate of f' times the tangent.
        parts = [_ruled(rules, name, known | {"ct": conj(t)}) for name, t in zip(moving, tangents, strict=True)]
        there = [conj(part) for part in parts if part is not None]
        make_tuple(builder, [out, functools.reduce(operator.add, there) if there else zeros(out)])
        return Pushforward(present, _finished(builder))

    def _value(self, arguments: Sequence[XlaOp]) -> XlaOp:
        return as_op(arguments[0].builder, Rewriter(arguments[0].builder).run(self._spelling, list(arguments)))

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "spelling": Stored.of_computation(self._spelling)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name, self._spelling = state["name"], state["spelling"].entry()


def _finished(builder: Builder) -> Computation:
    """What a builder holds, with the functions in it as calls again."""
    return with_functions(canonicalize(builder.finish()))


def _ruled(rules: FunctionRules, operand: str, known: dict[str, XlaOp]) -> XlaOp | None:
    return rules.rules[operand](**{word: known[word] for word in rules.asks[operand]})
