"""Does every instruction have the shape that its operands and attributes give it?"""

from __future__ import annotations

from ..errors import InvalidArgument, XlaError
from ..opcodes.inference import infer_shape
from .ir import Computation, Instruction, Module

_MIXED = frozenset({
    "after-all", "all-gather", "all-gather-done", "all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start",
    "all-to-all", "async-done", "async-start", "async-update", "call", "collective-broadcast", "collective-permute",
    "collective-permute-done", "collective-permute-start", "conditional", "convolution", "copy-done", "copy-start",
    "custom-call", "domain", "dot", "fusion", "get-tuple-element", "infeed", "map", "opt-barrier", "outfeed",
    "ragged-all-to-all", "ragged-dot", "recv", "recv-done", "reduce", "reduce-precision", "reduce-scatter", "reduce-window",
    "scaled-dot", "scan", "send", "send-done", "sort", "tuple", "while"})
"""Opcodes that pass buffers on, or say themselves what precision they compute in: operands may differ in float width."""


def verify(module: Module, allow_mixed_precision: bool = False) -> None:
    """Check every instruction of a module: known opcode, operand count, attributes, operand shapes and types by the op's
    own rules, and the declared shape against the inferred one (layouts do not matter, element types do). Floating operands
    of one instruction must be of one width, as XLA's verifier asks by default, unless `allow_mixed_precision`.

    Raises InvalidArgument or UnsupportedError that names the instruction and where it stands.
    """
    checked: set[tuple[object, ...]] = set()
    for computation in module.computations:
        _verify_computation(computation, checked, allow_mixed_precision)


def _verify_computation(computation: Computation, checked: set[tuple[object, ...]], allow_mixed_precision: bool) -> None:
    # Layers repeat, and the parser makes one object of equal shapes and of equal attributes: what was found right for the
    # very same objects need not be looked at again. All of them live as long as the module, so their ids stand for them.
    for instruction in computation.instructions:
        facts = (instruction.opcode, id(instruction.shape), *[id(o.shape) for o in instruction.operands], None,
                 *[(n, id(v)) for n, v in instruction.attributes.items()])
        if facts not in checked:
            verify_instruction(instruction, allow_mixed_precision)
            checked.add(facts)


def verify_instruction(instruction: Instruction, allow_mixed_precision: bool = False) -> None:
    """`verify` for one instruction."""
    declared = instruction.shape
    try:
        inferred = infer_shape(instruction.opcode, declared, [o.shape for o in instruction.operands], instruction.attributes)
    except XlaError as error:
        error.subject = instruction.subject
        raise error.located(where=instruction.where) from None
    floats = {o.shape.element_type for o in instruction.operands if o.shape.element_type.is_floating}
    if len(floats) > 1 and not allow_mixed_precision and instruction.opcode not in _MIXED:
        raise InvalidArgument("operands of different floating types; mixed precision is not allowed here",
                              got=", ".join(str(o.shape) for o in instruction.operands), expected="one floating type",
                              hint="convert to one type first", subject=instruction.subject, where=instruction.where)
    if inferred is not declared and not declared.compatible(inferred):
        raise InvalidArgument("the declared shape is not what the operands give", got=f"declared {declared}",
                              expected=f"{inferred}", subject=instruction.subject, where=instruction.where)
