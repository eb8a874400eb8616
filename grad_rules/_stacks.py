"""Stacks as values of a program under construction, and their gradients (`xla_torch/hlo/stacks.py` says what they are)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grad_rules._calculus import full
from xla_torch.core.shape import UNBOUNDED, Shape
from xla_torch.functions import GetTupleElement
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.hlo.stacks import NEW, POP, PUSH, is_stack_call, value_shape
from xla_torch.opcodes import internal


def new(builder: Builder, value: Shape) -> XlaOp:
    """A stack for values of this shape, with nothing on it."""
    shape = Shape.array(value.element_type, (UNBOUNDED, *value.dimensions))
    return builder.add(internal.custom_call, [], {"custom_call_target": NEW}, shape, "tape")


def push(stack: XlaOp, value: XlaOp) -> XlaOp:
    """The stack with a value on top."""
    return stack.builder.add(internal.custom_call, [stack, value], {"custom_call_target": PUSH}, stack.shape, "pushed")


def pop(stack: XlaOp) -> tuple[XlaOp, XlaOp]:
    """The value on top, and the stack below it."""
    shape = Shape.tuple([value_shape(stack.shape), stack.shape])
    found = stack.builder.add(internal.custom_call, [stack], {"custom_call_target": POP}, shape, "popped")
    return GetTupleElement(found, 0), GetTupleElement(found, 1)


def pull(inst: Instruction, ct: Any, operands: Sequence[XlaOp]) -> list[XlaOp | None]:
    """The operands' cotangents for a cotangent of a stack call's result: what pushed pops, and what popped pushes."""
    if inst.attributes["custom_call_target"] == PUSH:
        value, below = pop(ct)
        return [below, value]
    if inst.attributes["custom_call_target"] == POP:
        value, below = ct
        (stack,) = operands
        shape = value_shape(stack.shape)
        value = full(stack.builder, 0, shape) if value is None else value
        return [push(new(stack.builder, shape) if below is None else below, value)]
    return []


def carried_stacks(body: Computation) -> set[int]:
    """Which elements of a loop's carry are stacks: those that its body pushes to or pops from."""
    return {i.operands[0].attributes["index"] for i in body.instructions
            if is_stack_call(i) and i.operands and i.operands[0].is_element and i.operands[0].operands[0].is_parameter}
