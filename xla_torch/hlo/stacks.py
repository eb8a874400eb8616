"""Stacks in programs: three custom calls of our own, for what HLO has no type for, an array that grows.

==========================  =================================================================================
``xla_torch.tape_new``      ``() -> f32[?,3]``: a stack with nothing on it
``xla_torch.tape_push``     ``(f32[?,3], f32[3]) -> f32[?,3]``: the stack with a value on top
``xla_torch.tape_pop``      ``f32[?,3] -> (f32[3], f32[?,3])``: the value on top, and the stack below it
==========================  =================================================================================

Below the first value there are zeros, without end. That makes push and pop each other's gradient. They print as HLO, and
XLA reads that, but only xla_torch runs them.
"""

from __future__ import annotations

from ..core.shape import UNBOUNDED, Shape
from .ir import Instruction

NEW, PUSH, POP = "xla_torch.tape_new", "xla_torch.tape_push", "xla_torch.tape_pop"
TARGETS = frozenset({NEW, PUSH, POP})


def is_stack_call(instruction: Instruction) -> bool:
    """Whether an instruction is one of the three. No other op has the attribute ``custom_call_target``."""
    return instruction.attributes.get("custom_call_target") in TARGETS


def is_stack(shape: Shape) -> bool:
    """Whether a shape is that of a stack."""
    return shape.is_array and UNBOUNDED in shape.dimensions


def value_shape(stack: Shape) -> Shape:
    """The shape of the values on a stack."""
    return Shape.array(stack.element_type, stack.dimensions[1:])
