"""Tapes as values of a program under construction, and their gradients (`interop/tapes.py` says what they are)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grad_rules._calculus import full

from ..builder import XlaBuilder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..interop.tapes import NEW, POP, PUSH, is_tape_call
from ..shape import UNBOUNDED, Shape
from ..transform.inline import element


def new(builder: XlaBuilder, value: Shape) -> XlaOp:
    """A tape for values of this shape, with nothing on it."""
    shape = Shape.array(value.element_type, (UNBOUNDED, *value.dimensions))
    return builder.add("custom-call", [], {"custom_call_target": NEW}, shape, "tape")


def push(tape: XlaOp, value: XlaOp) -> XlaOp:
    """The tape with a value on top."""
    return tape.builder.add("custom-call", [tape, value], {"custom_call_target": PUSH}, tape.shape, "pushed")


def pop(tape: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The value on top, and the tape below it."""
    shape = Shape.tuple([value_shape(tape.shape), tape.shape])
    found = tape.builder.add("custom-call", [tape], {"custom_call_target": POP}, shape, "popped")
    return element(found, 0), element(found, 1)


def value_shape(tape: Shape) -> Shape:
    """The shape of the values on a tape."""
    return Shape.array(tape.element_type, tape.dimensions[1:])


def pull(inst: Instruction, ct: Any, operands: Sequence[XlaOp]) -> list[XlaOp | None]:
    """The operands' cotangents for a cotangent of a tape call's result: what pushed pops, and what popped pushes."""
    if inst.attributes["custom_call_target"] == PUSH:
        value, below = pop(ct)
        return [below, value]
    if inst.attributes["custom_call_target"] == POP:
        value, below = ct
        (tape,) = operands
        shape = value_shape(tape.shape)
        value = full(tape.builder, 0, shape) if value is None else value
        return [push(new(tape.builder, shape) if below is None else below, value)]
    return []


def carried_tapes(body: Computation) -> set[int]:
    """Which elements of a loop's carry are tapes: those that its body pushes to or pops from."""
    return {i.operands[0].attributes["index"] for i in body.instructions
            if is_tape_call(i) and i.operands and i.operands[0].opcode == "get-tuple-element"
            and i.operands[0].operands[0].opcode == "parameter"}
