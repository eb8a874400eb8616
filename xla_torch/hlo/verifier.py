"""Does every instruction have the shape that its operands and attributes give it?"""

from __future__ import annotations

from ..core.errors import InvalidArgument, XlaError
from .common import AliasCodec
from .inference import check_precision, infer_shape
from .ir import Computation, Instruction, Module


def verify(module: Module, allow_mixed_precision: bool = False) -> None:
    """Check every instruction of a module: known opcode, operand count, attributes, operand shapes and types by the op's
    own rules, the declared shape against the inferred one (layouts do not matter, element types do), and the sharding
    against the shape and the number of partitions. Floating operands of one instruction must be of one width, as XLA's
    verifier asks by default, unless `allow_mixed_precision`.

    Raises InvalidArgument or UnsupportedError that names the instruction and where it stands.
    """
    checked: set[tuple[object, ...]] = set()
    for computation in module.computations:
        _verify_computation(computation, checked, allow_mixed_precision)
        _verify_shardings(computation, checked, module.num_partitions)
    _verify_aliases(module)


def _verify_aliases(module: Module) -> None:
    for place in AliasCodec.results(module.header.get("input_output_alias") or ""):
        try:
            module.entry.root.shape.at(place)
        except InvalidArgument as error:
            raise error.located("input_output_alias") from None


def _verify_computation(computation: Computation, checked: set[tuple[object, ...]], allow_mixed_precision: bool) -> None:
    # Layers repeat, and the parser makes one object of equal shapes and of equal attributes: what was found right for the
    # very same objects need not be looked at again. All of them live as long as the module, so their ids stand for them.
    for instruction in computation.instructions:
        facts = (instruction.opcode, id(instruction.shape), *[id(o.shape) for o in instruction.operands], None,
                 *[(n, id(v)) for n, v in instruction.attributes.items()])
        if facts not in checked:
            _verify_alone(instruction, allow_mixed_precision)
            checked.add(facts)
        if instruction.schema.is_second_half:
            _verify_halves(instruction)


def _verify_shardings(computation: Computation, checked: set[tuple[object, ...]], partitions: int) -> None:
    for instruction in computation.instructions:
        sharding = instruction.common.get("sharding")
        if sharding is None or (id(sharding), id(instruction.shape)) in checked:
            continue
        try:
            sharding.check(instruction.shape, partitions)
        except XlaError as error:
            raise error.located(instruction.subject, instruction.where) from None
        checked.add((id(sharding), id(instruction.shape)))


def _verify_alone(instruction: Instruction, allow_mixed_precision: bool) -> None:
    declared = instruction.shape
    try:
        operands = [o.shape for o in instruction.operands]
        inferred = infer_shape(instruction.opcode, declared, operands, instruction.attributes)
        if not allow_mixed_precision:
            check_precision(instruction.opcode, operands, instruction.attributes)
    except XlaError as error:
        error.subject = instruction.subject
        raise error.located(where=instruction.where) from None
    if inferred is not declared and not declared.compatible(inferred):
        raise InvalidArgument("the declared shape contradicts the inferred shape", got=f"declared {declared}",
                              expected=f"{inferred}", subject=instruction.subject, where=instruction.where)


def _verify_halves(instruction: Instruction) -> None:
    """An operation in two halves: its second belongs to its first."""
    schema, first = instruction.schema, instruction.operands[0]
    if schema.completes and first.opcode not in schema.completes:
        raise InvalidArgument("the operand is not the operation's first half", got=first.opcode,
                              expected=" or ".join(schema.completes), subject=instruction.subject, where=instruction.where)
    if schema.channel_of and first.opcode != schema.channel_of:
        return
    # The short form of a second half does not repeat what it calls.
    again = ("channel_id", "is_host_transfer") if schema.channel_of else instruction.attributes.keys() & {"calls"}
    for name in again:
        given, begun = instruction.attributes.get(name, 0), first.attributes.get(name, 0)
        if given != begun:
            raise InvalidArgument(f"{name} differs between the operation's halves", got=given, expected=begun,
                                  subject=instruction.subject, where=instruction.where)
