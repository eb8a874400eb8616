"""Does every instruction have the shape that its operands and attributes give it?"""

from __future__ import annotations

from .. import progress
from ..errors import InvalidArgument, XlaError
from ..opcodes.inference import infer_shape
from .ir import Computation, Instruction, Module


def verify(module: Module) -> None:
    """Check every instruction of a module: known opcode, operand count, attributes, operand shapes and types by the op's
    own rules, and the declared shape against the inferred one (layouts do not matter, element types do).

    Raises InvalidArgument or UnsupportedError that names the instruction and where it stands.
    """
    for computation in module.computations:
        verify_computation(computation)


def verify_computation(computation: Computation) -> None:
    """`verify` for the instructions of one computation."""
    for instruction in progress.steps(computation.instructions, "checking shapes"):
        verify_instruction(instruction)


def verify_instruction(instruction: Instruction) -> None:
    """`verify` for one instruction."""
    declared = instruction.shape
    try:
        inferred = infer_shape(instruction.opcode, declared, [o.shape for o in instruction.operands], instruction.attributes)
    except XlaError as error:
        error.subject = instruction.subject
        raise error.located(where=instruction.where) from None
    if inferred is not declared and not declared.compatible(inferred):
        raise InvalidArgument("the declared shape is not what the operands give", got=f"declared {declared}",
                              expected=f"{inferred}", subject=instruction.subject, where=instruction.where)
