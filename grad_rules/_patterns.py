"""What fused rules and cancelling shifts look for in a program: sums, ones, powers, and values behind broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

from xla_torch.analysis.reducers import reducer_kind
from xla_torch.core import tuning
from xla_torch.hlo.inference import splat_of
from xla_torch.hlo.ir import Instruction
from xla_torch.opcodes import elementwise, movement, reduction
from xla_torch.opcodes.reducer_kinds import ReducerKind


def moved_dimensions(instruction: Instruction) -> dict[int, int] | None:
    """Where the dimensions of what a broadcast, transpose, copy or reshape moves are in its result. A reshape must only add or
    drop dimensions of size 1, which then count as new; None for any other instruction."""
    match instruction.opcode:
        case movement.broadcast:
            dimensions: Sequence[int] = instruction.attributes["dimensions"]
            return dict(enumerate(dimensions))
        case movement.transpose:
            return {d: k for k, d in enumerate(instruction.attributes["dimensions"])}
        case movement.copy:
            return {d: d for d in range(instruction.shape.rank)}
        case movement.reshape:
            source, result = instruction.operands[0].shape.dimensions, instruction.shape.dimensions
            before, after = ([d for d, size in enumerate(sizes) if size != 1] for sizes in (source, result))
            same = [source[d] for d in before] == [result[d] for d in after]
            return dict(zip(before, after, strict=True)) if same else None
        case _:
            return None


def behind_broadcasts(instruction: Instruction) -> tuple[Instruction, dict[int, int]]:
    """The array that is moved and repeated until it is this one, and where its dimensions of size other than 1 are here."""
    place = {d: d for d in range(instruction.shape.rank)}
    while (moved := moved_dimensions(instruction)) is not None:
        place = {d: place[to] for d, to in moved.items() if to in place}
        instruction = instruction.operands[0]
    return instruction, place


def is_sum(instruction: Instruction) -> bool:
    """A reduce of one array by addition, from zero."""
    if instruction.opcode != reduction.reduce or len(instruction.operands) != 2:
        return False
    return reducer_kind(instruction.attributes["to_apply"]) is ReducerKind.ADD and is_number(instruction.operands[1], 0)


def is_number(instruction: Instruction, number: float) -> bool:
    """An array whose elements are all this number."""
    literal = splat_of(instruction)
    return literal is not None and bool(literal.array == number)


def as_power(instruction: Instruction) -> tuple[Instruction, int]:
    """The value that a product is a power of, and the exponent; 1 for what is no product of one value."""
    if instruction.opcode != elementwise.multiply:
        return instruction, 1
    left, right = instruction.operands
    base, exponent = as_power(left)
    other, more = (base, exponent) if left is right else as_power(right)
    return (base, exponent + more) if base is other else (instruction, 1)


def is_even_in(value: Instruction, x: Instruction) -> bool:
    """Whether elementwise ops make `value` of |x| and not of x."""
    seen, left, found = set[Instruction](), [value], False
    while left:
        inst = left.pop()
        if inst is x or len(seen) > tuning.SEARCHED_FOR_SYMMETRY:
            return False
        if inst.opcode == elementwise.abs_ and inst.operands[0] is x:
            found = True
        elif inst not in seen and inst.schema.elementwise:
            seen.add(inst)
            left += inst.operands
    return found
