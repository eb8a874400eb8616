"""Does every instruction have the shape that its operands and attributes give it?"""

from __future__ import annotations

from ..errors import InvalidArgument, XlaError
from ..opcodes.inference import infer_shape
from .ir import Computation, Instruction, Module

_MIXED = frozenset({
    "after-all", "all-gather", "all-gather-done", "all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start",
    "all-to-all", "async-done", "async-start", "async-update", "call", "collective-broadcast", "collective-permute",
    "collective-permute-done", "collective-permute-start", "conditional", "convolution", "copy-done", "copy-start",
    "custom-call", "domain", "dot", "fusion", "get-tuple-element", "infeed", "opt-barrier", "outfeed",
    "ragged-all-to-all", "ragged-dot", "recv", "recv-done", "reduce-precision", "reduce-scatter", "reduce-window",
    "scaled-dot", "scan", "send", "send-done", "sort", "tuple", "while"})
"""Opcodes that pass buffers on, or say themselves what precision they compute in: operands may differ in float width."""

_ELEMENTWISE_REGIONS = {
    "all-reduce": 0, "all-reduce-start": 0, "collective-reduce": 0, "map": 1, "reduce": 1, "reduce-scatter": 0,
    "reduce-window": 1, "scatter": 0, "select-and-scatter": 0, "sort": 2}
"""Opcodes whose computations take elements of the operands, in the operands' own precision: each operand in so many
parameters one after another, or (0) any operand in any parameter."""

_BEGUN_BY = {
    "all-gather-done": ("all-gather-start",), "all-reduce-done": ("all-reduce-start",),
    "collective-permute-done": ("collective-permute-start",), "copy-done": ("copy-start",),
    "async-update": ("async-start", "async-update"), "async-done": ("async-start", "async-update")}
"""What ends (or goes on with) an operation in two halves, and what its operand must be."""

_CHANNELS = {"send-done": "send", "recv-done": "recv"}
"""As `_BEGUN_BY`, but a loop may carry what was begun, so that the operand need not be the beginning."""

_SECOND = frozenset({*_BEGUN_BY, *_CHANNELS})


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


def _verify_computation(computation: Computation, checked: set[tuple[object, ...]], allow_mixed_precision: bool) -> None:
    # Layers repeat, and the parser makes one object of equal shapes and of equal attributes: what was found right for the
    # very same objects need not be looked at again. All of them live as long as the module, so their ids stand for them.
    for instruction in computation.instructions:
        facts = (instruction.opcode, id(instruction.shape), *[id(o.shape) for o in instruction.operands], None,
                 *[(n, id(v)) for n, v in instruction.attributes.items()])
        if facts not in checked:
            _verify_alone(instruction, allow_mixed_precision)
            checked.add(facts)
        if instruction.opcode in _SECOND:
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


def verify_instruction(instruction: Instruction, allow_mixed_precision: bool = False) -> None:
    """`verify` for one instruction."""
    _verify_alone(instruction, allow_mixed_precision)
    if instruction.opcode in _SECOND:
        _verify_halves(instruction)


def _verify_alone(instruction: Instruction, allow_mixed_precision: bool) -> None:
    declared = instruction.shape
    try:
        inferred = infer_shape(instruction.opcode, declared, [o.shape for o in instruction.operands], instruction.attributes)
    except XlaError as error:
        error.subject = instruction.subject
        raise error.located(where=instruction.where) from None
    if not allow_mixed_precision:
        _verify_precision(instruction)
    if inferred is not declared and not declared.compatible(inferred):
        raise InvalidArgument("the declared shape is not what the operands give", got=f"declared {declared}",
                              expected=f"{inferred}", subject=instruction.subject, where=instruction.where)


def _verify_precision(instruction: Instruction) -> None:
    floats = {s.element_type for o in instruction.operands for s in o.shape.leaves() if s.element_type.is_floating}
    if len(floats) > 1 and instruction.opcode not in _MIXED:
        raise InvalidArgument("operands of different floating types; mixed precision is not allowed here",
                              got=", ".join(str(o.shape) for o in instruction.operands), expected="one floating type",
                              hint="convert to one type first", subject=instruction.subject, where=instruction.where)
    count = _ELEMENTWISE_REGIONS.get(instruction.opcode)
    for computation in instruction.called_computations if count is not None else ():
        taken = [s.element_type for s in computation.program_shape.parameters]
        given = [o.shape.element_type for o in instruction.operands for _ in range(count or 0)]
        if (taken != given) if count else not {t for t in taken if t.is_floating} <= floats:
            raise InvalidArgument(f"computation {computation.name!r} takes another floating type than the operands; mixed "
                                  "precision is not allowed here", got=str(computation.program_shape),
                                  expected=", ".join(str(o.shape) for o in instruction.operands),
                                  hint="convert the operands first", subject=instruction.subject, where=instruction.where)


def _verify_halves(instruction: Instruction) -> None:
    """An operation in two halves: its second belongs to its first."""
    opcode, first = instruction.opcode, instruction.operands[0]
    if first.opcode not in _BEGUN_BY.get(opcode, (first.opcode,)):
        raise InvalidArgument("the operand is not the operation's first half", got=first.opcode,
                              expected=" or ".join(_BEGUN_BY[opcode]), subject=instruction.subject, where=instruction.where)
    if opcode not in _BEGUN_BY and first.opcode != _CHANNELS[opcode]:
        return
    # The short form of a second half does not repeat what it calls.
    again = ("channel_id", "is_host_transfer") if opcode in _CHANNELS else instruction.attributes.keys() & {"calls"}
    for name in again:
        given, begun = instruction.attributes.get(name, 0), first.attributes.get(name, 0)
        if given != begun:
            raise InvalidArgument(f"{name} differs between the operation's halves", got=given, expected=begun,
                                  subject=instruction.subject, where=instruction.where)
