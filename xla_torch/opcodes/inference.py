"""Shape inference of one instruction through its op definition. The builder, the parser and the verifier call this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument, UnsupportedError
from ..hlo.ir import Instruction
from ..shape import Shape
from .definition import OPS, OpDefinition


def definition_of(opcode: str) -> OpDefinition:
    """The definition of an opcode. Raises UnsupportedError with the nearest known names."""
    definition = OPS.get(opcode)
    if definition is None:
        import difflib

        near = ", ".join(difflib.get_close_matches(opcode, OPS, 3))
        raise UnsupportedError(f"unknown opcode {opcode!r}", expected="an opcode of XLA",
                               hint=f"did you mean {near}?" if near else "")
    return definition


def is_pure(instruction: Instruction) -> bool:
    """Whether an instruction does no more than compute its value: it may be left out where nothing reads that, and run again."""
    definition = definition_of(instruction.opcode)
    return definition.pure and not (definition.effect and instruction.attributes.get(definition.effect))


def has_effect(instruction: Instruction) -> bool:
    """Whether an instruction is carried out though nothing reads its value. An exchange is not: what nobody reads, nobody
    gives, as all participants run one program."""
    return not is_pure(instruction) and not definition_of(instruction.opcode).exchange


def infer_shape(opcode: str, declared: Shape | None, operands: Sequence[Shape], attributes: dict[str, Any]) -> Shape:
    """The result shape of an instruction. Raises InvalidArgument for a wrong number of operands, unknown or missing
    attributes, and whatever the op's own shape function refuses."""
    definition = definition_of(opcode)
    least = len(definition.operands) - definition.optional_operands
    if len(operands) < least or (definition.variadic is None and len(operands) > len(definition.operands)):
        names = ", ".join(definition.operands) + (f", *{definition.variadic}" if definition.variadic else "")
        raise InvalidArgument("wrong number of operands", subject=opcode, got=len(operands), expected=f"{opcode}({names})")
    if len(attributes) != len(definition.attributes):
        _check_attributes(definition, attributes)
    return definition.infer(declared, *operands, **definition.attribute_values(attributes))


def _check_attributes(definition: OpDefinition, attributes: dict[str, Any]) -> None:
    unknown = attributes.keys() - definition.attributes.keys()
    if unknown:
        raise InvalidArgument(f"unexpected attribute {sorted(unknown)[0]!r}", subject=definition.opcode,
                              expected=", ".join(definition.attributes) or "no attributes")
    missing = [n for n, a in definition.attributes.items() if a.required and n not in attributes]
    if missing:
        raise InvalidArgument(f"attribute {missing[0]!r} is expected but not seen", subject=definition.opcode)
