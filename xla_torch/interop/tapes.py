"""Tapes in programs: three custom calls of our own, for what HLO has no type for, an array that grows.

==========================  =================================================================================
``xla_torch.tape_new``      ``() -> f32[?,3]``: a tape with nothing on it
``xla_torch.tape_push``     ``(f32[?,3], f32[3]) -> f32[?,3]``: the tape with a value on top
``xla_torch.tape_pop``      ``f32[?,3] -> (f32[3], f32[?,3])``: the value on top, and the tape below it
==========================  =================================================================================

Below the first value there are zeros, without end. That makes push and pop each other's gradient. They print as HLO, and
XLA reads that, but only xla_torch runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..lowering import values
from ..lowering.kernels import tape as kernels

if TYPE_CHECKING:
    from ..hlo.ir import Instruction
    from ..shape import Shape

NEW, PUSH, POP = "xla_torch.tape_new", "xla_torch.tape_push", "xla_torch.tape_pop"
TARGETS = frozenset({NEW, PUSH, POP})


def is_tape_call(instruction: Instruction) -> bool:
    """Whether an instruction is one of the three."""
    return instruction.opcode == "custom-call" and instruction.attributes["custom_call_target"] in TARGETS


def call(inst: Instruction, operands: Sequence[Any]) -> Any:
    """The value of such an instruction for operand values in carrier dtypes."""
    target = inst.attributes["custom_call_target"]
    if target == NEW:
        return values.emit(kernels.new)
    if target == PUSH:
        return values.emit(kernels.push, *operands)
    value: Shape = inst.shape.tuple_shapes[0]
    found = values.emit(kernels.pop, *operands, value.dimensions, value.element_type.carrier, values.device())
    return found[0], found[1]
