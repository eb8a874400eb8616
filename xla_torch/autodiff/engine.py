"""Reverse mode over the IR. Short on purpose: what an op's gradient is stands in `grad_rules`, and nothing here knows an op.

A `Tape` replays a computation in a builder, then walks it backwards: every instruction hands its cotangent to its operands
through its rules, and cotangents that meet are added. None is a zero that was never built. Since rules build ops, what
comes out is an ordinary XLA program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grad_rules._calculus import full, sum_over
from grad_rules._table import TABLE, Entry, GradientKind

from .. import ops
from ..builder import XlaBuilder, XlaOp
from ..errors import DifferentiationError, XlaError
from ..hlo.ir import Computation, Instruction
from ..opcodes.inference import definition_of
from ..shape import UNBOUNDED, Shape
from ..transform.inline import Replay, Value, leaves, needed_instructions
from .activity import CONTROL, Control, Facts, Flags, analyse, any_of, control, operand_positions, spread
from .masks import added, is_steep, outside
from .options import DEFAULT, GradientOptions
from .shortcuts import shortcut

Cotangent = XlaOp | tuple[Any, ...] | None
"""What flows back to a value: an op, for a tuple one cotangent for each element, None for zero."""


class Tape(Replay):
    """One run of a plain computation inside a builder, which can then be walked backwards.

    `arguments` are the parameters' values, `active` says which of them are differentiated, and `demanded` which parts of
    the result will have a cotangent, `options` how loops are walked back. `result` is the computation's value.
    """

    def __init__(self, builder: XlaBuilder, computation: Computation, arguments: Sequence[Value], active: Sequence[Flags],
                 demanded: Flags = True, options: GradientOptions = DEFAULT):
        super().__init__(builder)
        self.computation, self.options = computation, options
        self.facts: Facts = analyse(computation, active, demanded)
        self.values: dict[Instruction, Value] = {}
        self.kept: list[XlaOp] = []
        """Tokens of what the way back did besides: without them it would be dead."""
        self.records: dict[Instruction, Any] = {}
        self._cotangents: dict[Instruction, Cotangent] = {}
        self._instructions = needed_instructions(computation)
        for instruction in self._instructions:
            self.values[instruction] = self._forward(instruction, [self.values[o] for o in instruction.operands], arguments)
            if any_of(self.facts.active[instruction]):
                _measure(self.values[instruction])
        self.result = self.values[computation.root]

    def _forward(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        handler = CONTROL.get(instruction.opcode)
        if handler is not None and any_of(self.facts.demanded.get(instruction, False)):
            return handler.forward(self, instruction, operands)
        return self.visit(instruction, operands, arguments)

    def backward(self, cotangent: Cotangent) -> list[Cotangent]:
        """The parameters' cotangents for a cotangent of the result. Each call walks back once more."""
        self._cotangents, self.kept = {}, []
        self._accumulate(self.computation.root, cotangent)
        for instruction in reversed(self._instructions):
            ct, handler = self._cotangents.get(instruction), CONTROL.get(instruction.opcode)
            if handler is not None:
                ct = handler.incoming(self, instruction, ct)
            if instruction.opcode != "parameter" and not is_zero(ct):
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
        handler = CONTROL.get(instruction.opcode)
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
        around = shortcut(instruction)
        if around is not None and isinstance(ct, XlaOp):
            self._accumulate(around.source, around.rule(ct, *(_frozen(self.values[i]) for i in (instruction, around.source))))
            return
        entry = _entry(instruction)
        for name, rule in sorted(entry.rules.items(), key=lambda item: not _all_end(instruction, item[0])):
            positions = operand_positions(instruction, name)
            wanted = [k for k in positions if any_of(self.facts.active[instruction.operands[k]])]
            if not wanted:
                continue
            several = name == definition_of(instruction.opcode).variadic
            words = self._words(instruction, entry.asks[name], positions, ct)
            if isinstance(ct, XlaOp) and not several and "ct" in words:
                found: Any = outside(instruction, instruction.operands[positions[0]], ct,
                                lambda inner, rule=rule, words=words: rule(**(words | {"ct": inner})))
            else:
                found = rule(**words)
            for k, part in zip(positions, found if several else (found,), strict=True):
                if k in wanted:
                    self._contribute(instruction, k, part, replaces="acc" in entry.asks[name])

    def _words(self, instruction: Instruction, words: Sequence[str], positions: range, ct: Cotangent) -> dict[str, Any]:
        """What a rule asks for, by name."""
        definition = definition_of(instruction.opcode)
        given: dict[str, Any] = {}
        for word in words:
            if word == "ct":
                given[word] = ct
            elif word == "out":
                given[word] = _frozen(self.values[instruction])
            elif word == "inst":
                given[word] = instruction
            elif word == "wanted":
                flags = tuple(spread(o.shape, self.facts.active[o]) for o in (instruction.operands[k] for k in positions))
                given[word] = flags if len(definition.operands) <= positions.start else flags[0]
            elif word == "acc":
                sums = tuple(self._cotangents.get(instruction.operands[k]) for k in positions)
                given[word] = sums if len(definition.operands) <= positions.start else sums[0]
            elif word in definition.attributes:
                given[word] = instruction.attributes.get(word, definition.attributes[word].default)
            else:
                values = tuple(_frozen(self.values[instruction.operands[k]]) for k in operand_positions(instruction, word))
                given[word] = values if word == definition.variadic else values[0] if values else None
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

    def _accumulate(self, instruction: Instruction, part: Cotangent) -> None:
        if any_of(self.facts.active[instruction]):
            part = fitted(part, self.values[instruction])
            self._cotangents[instruction] = add(self._cotangents.get(instruction), part, is_steep(instruction))

    def _mark_origin(self, instruction: Instruction, start: int) -> None:
        """Say of the instructions just built whose gradient they are."""
        if instruction.op_name:
            for built in self.builder.instructions[start:]:
                if not built.common and built.opcode != "parameter":
                    built.common = {"metadata": {"op_name": f"vjp({instruction.op_name})"}}


def _all_end(instruction: Instruction, name: str) -> bool:
    """Whether the way back ends at the operands of this name, which are parameters. Their gradients come first: the values
    that they are computed from may then be gone before the cotangents of others are made."""
    return all(map(_ends, (instruction.operands[k] for k in operand_positions(instruction, name))))


def _ends(operand: Instruction) -> bool:
    while operand.opcode in _LOOKS:
        operand = operand.operands[0]
    return operand.opcode == "parameter"


_LOOKS = frozenset({"reshape", "transpose", "broadcast", "convert", "copy", "get-tuple-element"})


def _entry(instruction: Instruction) -> Entry:
    """The table's entry. Raises DifferentiationError with the table's reason where there is no gradient."""
    entry = TABLE.get(instruction.opcode)
    if entry is None or entry.kind is GradientKind.REFUSED:
        raise DifferentiationError(
            entry.because if entry else "this op has no gradient rule", subject=instruction.subject,
            where=instruction.where, hint=entry.instead if entry else f"grad_rules.replace({instruction.opcode!r}, ...) adds one")
    return entry


def _frozen(value: Value) -> Any:
    """A value as rules see it: tuples as Python tuples."""
    return value if isinstance(value, XlaOp) else tuple(_frozen(v) for v in value)


# ------------------------------------------------------------------------------------------------ cotangents


def is_zero(ct: Cotangent) -> bool:
    return all(map(is_zero, ct)) if isinstance(ct, tuple) else ct is None


def add(a: Cotangent, b: Cotangent, steep: bool = False) -> Cotangent:
    """The sum of two cotangents of one value. `steep` says that the value comes of an op whose slope may be infinite."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, XlaOp) and isinstance(b, XlaOp):
        return added(a, b, steep)
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    return tuple(add(x, y) for x, y in zip(a, b, strict=True))


def fitted(part: Cotangent, value: Value) -> Cotangent:
    """The cotangent with the sizes that a value with dynamic dimensions has at run time: cut, or filled up with zeros. Where
    size 1 met an unknown size, the sum; where an unknown size was left at 1, repeated."""
    if part is None:
        return None
    if isinstance(value, XlaOp):
        assert isinstance(part, XlaOp)
        return part if part.shape.is_static and value.shape.is_static else _resized(part, value)
    assert isinstance(part, tuple)
    return tuple(fitted(p, v) for p, v in zip(part, value, strict=True))


def _measure(value: Value) -> None:
    """The sizes that `fitted` will ask for, as values of the forward pass: it then keeps them, and not the arrays."""
    for leaf in leaves(value):
        for d, size in enumerate(leaf.shape.dimensions):
            if leaf.shape.dynamic_flags[d] and size != UNBOUNDED:
                ops.GetDimensionSize(leaf, d)


def _resized(part: XlaOp, value: XlaOp) -> XlaOp:
    shape = value.shape
    if any(n == UNBOUNDED and m == 1 for n, m in zip(shape.dimensions, part.shape.dimensions, strict=True)):
        part = ops.Select(ops.Eq(value, value), part, part)
    stretched = [d for d in range(shape.rank) if shape.dimensions[d] == 1 and part.shape.dimensions[d] == UNBOUNDED]
    if stretched:
        part = ops.Reshape(sum_over(part, stretched), shape.dimensions)
    for d, size in enumerate(shape.dimensions):
        if shape.dynamic_flags[d] and size != UNBOUNDED:
            part = ops.SetDimensionSize(part, ops.GetDimensionSize(value, d), d)
    return part


def zeros(builder: XlaBuilder, shape: Shape) -> XlaOp:
    """An array of zeros; size 1 stands for an unknown size."""
    return full(builder, 0, shape)


def materialised(builder: XlaBuilder, ct: Cotangent, shape: Shape) -> Value:
    """The cotangent of a value of this shape, zeros where it is None."""
    if shape.is_tuple:
        parts = ct if isinstance(ct, tuple) else (None,) * len(shape.tuple_shapes)
        return [materialised(builder, c, s) for c, s in zip(parts, shape.tuple_shapes, strict=True)]
    assert not isinstance(ct, tuple)
    return zeros(builder, shape) if ct is None else ct


# ------------------------------------------------------------------------------------------------ tuples


@control("tuple")
class _Tuple(Control):
    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        return tuple(operands)

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        assert isinstance(wanted, tuple)
        return list(wanted)

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        assert isinstance(ct, tuple)
        return ct


@control("get-tuple-element")
class _Element(Control):
    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        whole = operands[0]
        assert isinstance(whole, tuple)
        return whole[instruction.attributes["index"]]

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        return [self._only(instruction, wanted, False)]

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        return [self._only(instruction, ct, None)]

    def _only(self, instruction: Instruction, part: Any, other: Any) -> tuple[Any, ...]:
        """`part` at the element's place in the tuple, `other` at all other places."""
        count = len(instruction.operands[0].shape.tuple_shapes)
        return tuple(part if k == instruction.attributes["index"] else other for k in range(count))
