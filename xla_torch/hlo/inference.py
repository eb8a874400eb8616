"""Questions to an op's schema about one instruction: its shape, its purity, whose value it passes on, what constant it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from .ir import Computation, Instruction, cached_on_computation, reachable
from .literals.literal import Literal
from .schema import OpSchema, Trait, schema_of
from .structure import CONSTANT


def is_pure(instruction: Instruction) -> bool:
    """Whether an instruction does no more than compute its value: it may be left out where nothing reads that, and run again."""
    schema = schema_of(instruction.opcode)
    return schema.pure and not (schema.effect and instruction.attributes.get(schema.effect))


def has_effect(instruction: Instruction) -> bool:
    """Whether an instruction is carried out though nothing reads its value, as one is that runs such instructions in a loop, a
    branch or a call. An exchange is not: what nobody reads, nobody gives, as all participants run one program."""
    return _has_own_effect(instruction) or any(map(_has_effects, instruction.called_computations))


def _has_own_effect(instruction: Instruction) -> bool:
    return not is_pure(instruction) and not schema_of(instruction.opcode).exchange


@cached_on_computation
def _has_effects(computation: Computation) -> bool:
    for each in reachable([computation]):  # the innermost first, so that no question leads to a deeper one
        _has_effects_inside(each)
    return _has_effects_inside(computation)


@cached_on_computation
def _has_effects_inside(computation: Computation) -> bool:
    return any(not i.is_parameter and (_has_own_effect(i) or any(map(_has_effects_inside, i.called_computations)))
               for i in computation.instructions)


def forwarded(instruction: Instruction) -> Instruction | None:
    """The operand that an instruction's value is, or None where it computes one of its own."""
    if not instruction.has(Trait.FORWARDS) or not instruction.operands[0].shape.compatible(instruction.shape):
        return None
    operand = instruction.operands[0]
    if instruction.has(Trait.READS_LAYOUT) and operand.shape.minor_to_major != instruction.shape.minor_to_major:
        return None
    return operand


def origin(instruction: Instruction) -> Instruction:
    """The instruction behind copies, barriers and the like whose value this is."""
    while (before := forwarded(instruction)) is not None:
        instruction = before
    return instruction


def splat_of(instruction: Instruction) -> Literal | None:
    """The scalar constant that every element of an array is known to be, as all elements of a constant are: constants are
    followed through broadcasts, reshapes and whatever else only moves elements of one array about. None for all others."""
    while instruction.has(Trait.REARRANGES) and instruction.operands[0].shape.element_type is instruction.shape.element_type:
        instruction = instruction.operands[0]
    return instruction.attributes["literal"].splat if instruction.opcode == CONSTANT else None


def infer_shape(opcode: str, declared: Shape | None, operands: Sequence[Shape], attributes: dict[str, Any]) -> Shape:
    """The result shape of an instruction. Raises InvalidArgument for a wrong number of operands, unknown or missing
    attributes, and whatever the op's own shape function refuses."""
    schema = schema_of(opcode)
    least = len(schema.operands) - schema.optional_operands
    if len(operands) < least or (schema.variadic is None and len(operands) > len(schema.operands)):
        names = ", ".join(schema.operands) + (f", *{schema.variadic}" if schema.variadic else "")
        raise InvalidArgument("wrong number of operands", subject=opcode, got=len(operands), expected=f"{opcode}({names})")
    if len(attributes) != len(schema.attributes):
        _check_attributes(schema, attributes)
    return schema.infer(declared, *operands, **schema.attribute_values(attributes))


def check_precision(opcode: str, operands: Sequence[Shape], attributes: dict[str, Any]) -> None:
    """Floating operands of one instruction are of one type, and so are those that its computation takes, unless the op passes
    buffers on or says itself what it computes in: XLA reads no other program. Raises InvalidArgument."""
    schema, first, mixed = schema_of(opcode), None, False
    for shape in operands:
        kind = shape.element_type
        if kind.is_floating:
            first, mixed = first or kind, mixed or (first is not None and kind is not first)
        elif shape.tuple_shapes:
            kinds = shape.floating_types | {first} - {None}
            first, mixed = next(iter(kinds), None), mixed or len(kinds) > 1
    if mixed and Trait.MIXED_PRECISION not in schema.traits:
        raise InvalidArgument("operands of different floating types; mixed precision is not allowed here",
                              got=", ".join(map(str, operands)), expected="one floating type",
                              hint="convert one of them with ConvertElementType")
    if schema.element_region is not None:
        _check_regions(schema, operands, attributes)


def _check_regions(schema: OpSchema, operands: Sequence[Shape], attributes: dict[str, Any]) -> None:
    count = schema.element_region
    for computation in (v for v in attributes.values() if isinstance(v, Computation)):
        taken = [p.shape.element_type for p in computation.parameters]
        if count:
            good = taken == [o.element_type for o in operands for _ in range(count)]
        else:
            good = {t for t in taken if t.is_floating} <= frozenset().union(*(o.floating_types for o in operands))
        if not good:
            raise InvalidArgument(f"computation {computation.name!r} takes another floating type than the operands; mixed "
                                  "precision is not allowed here", got=str(computation.program_shape),
                                  expected=", ".join(map(str, operands)), hint="convert the operands first")


def _check_attributes(schema: OpSchema, attributes: dict[str, Any]) -> None:
    unknown = attributes.keys() - schema.attributes.keys()
    if unknown:
        raise InvalidArgument(f"unexpected attribute {sorted(unknown)[0]!r}", subject=schema.opcode,
                              expected=", ".join(schema.attributes) or "no attributes")
    missing = [n for n, a in schema.attributes.items() if a.required and n not in attributes]
    if missing:
        raise InvalidArgument(f"attribute {missing[0]!r} is expected but not seen", subject=schema.opcode)
