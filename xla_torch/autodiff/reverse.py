"""Reverse mode over the IR. Short on purpose: what an op's gradient is stands in `grad_rules`, and nothing here knows an op.

A `Recording` replays a computation in a builder, then walks it backwards: every instruction hands its cotangent to its
operands through its rules, and cotangents that meet are added. None is a zero that was never built. Since rules build ops,
what comes out is an ordinary XLA program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from grad_rules._fused import Fused, fused_at
from grad_rules._masks import outside
from grad_rules._table import TABLE, Entry, GradientKind, operand_positions

from .. import functions as ops
from ..core.errors import DifferentiationError, XlaError
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Computation, Instruction
from ..hlo.schema import Trait
from ..transform.rewriter import Rewriter, needed_instructions
from ..transform.values import Value
from .activity import analyse
from .cotangents import Cotangent, add, fitted, frozen, is_zero, measure, with_part
from .flags import Facts, Flags, any_of, broadcast_flags
from .options import DEFAULT, GradientOptions
from .structure import structural


class Recording(Rewriter):
    """One run of a canonical computation inside a builder, which can then be walked backwards.

    `arguments` are the parameters' values, `active` says which of them are differentiated, and `demanded` which parts of
    the result will have a cotangent, `options` how loops are walked back. `result` is the computation's value.
    """

    def __init__(self, builder: Builder, computation: Computation, arguments: Sequence[Value], active: Sequence[Flags],
                 demanded: Flags = True, options: GradientOptions = DEFAULT):
        super().__init__(builder)
        self.computation, self.options = computation, options
        self.facts: Facts = analyse(computation, active, demanded)
        self.values: dict[Instruction, Value] = {}
        self.kept: list[XlaOp] = []
        """Tokens of what the way back did besides: without them it would be dead."""
        self.emitted: dict[Instruction, Any] = {}
        """What a structural op that was emitted needs to walk back, for itself to know."""
        self._cotangents: dict[Instruction, Cotangent] = {}
        self._instructions = needed_instructions(computation)
        for instruction in self._instructions:
            self.values[instruction] = self._forward(instruction, [self.values[o] for o in instruction.operands], arguments)
            if any_of(self.facts.active[instruction]):
                measure(self.values[instruction])
        self.result = self.values[computation.root]

    def _forward(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        handler = structural(instruction)
        if handler is not None and any_of(self.facts.demanded.get(instruction, False)):
            return handler.forward(self, instruction, operands)
        return self.visit(instruction, operands, arguments)

    def backward(self, cotangent: Cotangent) -> list[Cotangent]:
        """The parameters' cotangents for a cotangent of the result. Each call walks back once more."""
        self._cotangents, self.kept = {}, []
        self._accumulate(self.computation.root, cotangent)
        for instruction in reversed(self._instructions):
            ct, handler = self._cotangents.get(instruction), structural(instruction)
            if handler is not None:
                ct = handler.incoming(self, instruction, ct)
            if not instruction.is_parameter and not is_zero(ct):
                self._pull(instruction, ct)
                self._cotangents.pop(instruction, None)
        return [self._after(self._cotangents.get(p)) for p in self.computation.parameters]

    def _after(self, ct: Cotangent) -> Cotangent:
        """A cotangent that waits for what the way back has done besides."""
        if not self.kept or ct is None:
            return ct
        if isinstance(ct, tuple):
            return tuple(map(self._after, ct))
        return ops.AddDependency(ct, ops.AfterAll(self.builder, self.kept))

    def _pull(self, instruction: Instruction, ct: Cotangent) -> None:
        """Hand the cotangent of one instruction to its operands."""
        start = len(self.builder.instructions)
        handler = structural(instruction)
        try:
            if handler is not None:
                for operand, part in zip(instruction.operands, handler.backward(self, instruction, ct), strict=True):
                    self._accumulate(operand, part)
            else:
                self._apply_rules(instruction, ct)
        except XlaError as error:
            raise error.located(subject=f"gradient of {instruction.subject}", where=instruction.where) from error.__cause__
        self._mark_origin(instruction, start)

    def _apply_rules(self, instruction: Instruction, ct: Cotangent) -> None:
        whole = fused_at(instruction)
        if whole is not None and isinstance(ct, XlaOp):
            self._accumulate(whole.source, self._apply_fused(instruction, whole, ct))
            return
        entry = _entry(instruction)
        for name, rule in sorted(entry.rules.items(), key=lambda item: not _all_end(instruction, item[0])):
            positions = operand_positions(instruction, name)
            wanted = [k for k in positions if any_of(self.facts.active[instruction.operands[k]])]
            if not wanted:
                continue
            several = name == instruction.schema.variadic
            words = self._words(instruction, entry.asks[name], positions, ct)
            if isinstance(ct, XlaOp) and not several and "ct" in words:
                found: Any = outside(instruction, instruction.operands[positions[0]], ct,
                                lambda inner, rule=rule, words=words: rule(**(words | {"ct": inner})))
            else:
                found = rule(**words)
            for k, part in zip(positions, found if several else (found,), strict=True):
                if k in wanted:
                    self._contribute(instruction, k, part, replaces="acc" in entry.asks[name])

    def _apply_fused(self, instruction: Instruction, whole: Fused, ct: XlaOp) -> XlaOp | None:
        """The cotangent of a fused rule's source."""
        values: list[Any] = [self.values[i] for i in whole.reads]  # arrays all of them, as the source is
        if not whole.elementwise:
            return whole.rule(ct, *values)
        return outside(instruction, whole.source, ct, lambda inner: whole.rule(inner, *values))

    def _words(self, instruction: Instruction, words: Sequence[str], positions: range, ct: Cotangent) -> dict[str, Any]:
        """What a rule asks for, by name."""
        schema = instruction.schema
        given: dict[str, Any] = {}
        for word in words:
            if word == "ct":
                given[word] = ct
            elif word == "out":
                given[word] = frozen(self.values[instruction])
            elif word == "inst":
                given[word] = instruction
            elif word == "wanted":
                found = [instruction.operands[k] for k in positions]
                flags = tuple(broadcast_flags(o.shape, self.facts.active[o]) for o in found)
                given[word] = flags if len(schema.operands) <= positions.start else flags[0]
            elif word == "acc":
                sums = tuple(self._cotangents.get(instruction.operands[k]) for k in positions)
                given[word] = sums if len(schema.operands) <= positions.start else sums[0]
            elif word in schema.attributes:
                given[word] = instruction.attributes.get(word, schema.attributes[word].default)
            else:
                values = tuple(frozen(self.values[instruction.operands[k]]) for k in operand_positions(instruction, word))
                given[word] = values if word == schema.variadic else values[0] if values else None
        return given

    def _contribute(self, instruction: Instruction, position: int, part: Cotangent, replaces: bool) -> None:
        operand = instruction.operands[position]
        if part is None:
            return
        if isinstance(part, XlaOp):
            if not part.shape.compatible(operand.shape, ignore_precision=True):
                raise DifferentiationError("the gradient rule gave a cotangent of another shape than its operand",
                                           got=part.shape, expected=f"{operand.shape} for operand {position}")
            if part.element_type is not operand.shape.element_type:  # operands of several float widths met in one op
                part = ops.ConvertElementType(part, operand.shape.element_type)
        if replaces:
            self._cotangents[operand] = part
        else:
            self._accumulate(operand, part)

    def _accumulate(self, instruction: Instruction, part: Cotangent | tree.At) -> None:
        if not any_of(self.facts.active[instruction]):
            return
        before, singular = self._cotangents.get(instruction), instruction.has(Trait.SINGULAR_DERIVATIVE)
        if isinstance(part, tree.At):
            of_element = fitted(part.part, self.values[instruction][part.index])
            self._cotangents[instruction] = with_part(before, dataclasses.replace(part, part=of_element), singular)
        else:
            self._cotangents[instruction] = add(before, fitted(part, self.values[instruction]), singular)

    def _mark_origin(self, instruction: Instruction, start: int) -> None:
        """Say of the instructions just built whose gradient they are."""
        if instruction.op_name:
            for built in self.builder.instructions[start:]:
                if not built.common and not built.is_parameter:
                    built.common = {"metadata": {"op_name": f"vjp({instruction.op_name})"}}


def _all_end(instruction: Instruction, name: str) -> bool:
    """Whether the way back ends at the operands of this name, which are parameters. Their gradients come first: the values
    that they are computed from may then be gone before the cotangents of others are made."""
    return all(map(_ends, (instruction.operands[k] for k in operand_positions(instruction, name))))


def _ends(operand: Instruction) -> bool:
    """Whether a value is a parameter, or one seen through elements of tuples and ops of one operand that cost next to nothing."""
    while operand.is_element or (len(operand.operands) == 1 and (operand.has(Trait.FREE) or operand.has(Trait.CHEAP))):
        operand = operand.operands[0]
    return operand.is_parameter


def _entry(instruction: Instruction) -> Entry:
    """The table's entry. Raises DifferentiationError with the table's reason where there is no gradient."""
    entry = TABLE.get(instruction.opcode)
    if entry is None or entry.kind is GradientKind.REFUSED:
        raise DifferentiationError(
            entry.because if entry else "this op has no gradient rule", subject=instruction.subject,
            where=instruction.where, hint=entry.instead if entry else f"grad_rules.replace({instruction.opcode!r}, ...) adds one")
    return entry
