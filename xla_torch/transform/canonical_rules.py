"""The rewrites of single ops into canonical form.

A rule takes an instruction and the operands it has by now. It gives the instructions that stand for it, each behind its
operands and the result last, or None where the instruction is in canonical form already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.patterns import logistic_argument
from ..core.shape import Shape
from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..opcodes import elementwise, internal, movement
from .rewriter import carried_metadata

Rewrite = Callable[[Instruction, Sequence[Instruction]], list[Instruction] | None]

REWRITES: RuleTable[Rewrite] = RuleTable("canonical form")


@REWRITES.rule(elementwise.divide)
def _written_out_logistic(instruction: Instruction, operands: Sequence[Instruction]) -> list[Instruction] | None:
    """``1 / (1 + exp(-x))`` is ``logistic(x)``."""
    x = logistic_argument(*operands)
    return None if x is None else [_instead(instruction, elementwise.logistic, instruction.shape, x)]


@REWRITES.rule(movement.concatenate)
def _without_empty_parts(instruction: Instruction, operands: Sequence[Instruction]) -> list[Instruction] | None:
    """What has no elements adds none; one operand is the result. JAX rolls an array by nothing like this."""
    (along,) = instruction.attributes["dimensions"]
    kept = [new for old, new in zip(instruction.operands, operands, strict=True)
            if type(old.shape.dimensions[along]) is not int or old.shape.dimensions[along]]
    if len(kept) == len(operands) > 1 or not kept or not instruction.shape.is_static:
        return None
    if len(kept) == 1:
        return [_instead(instruction, movement.reshape, instruction.shape, *kept)]
    return [_instead(instruction, movement.concatenate, instruction.shape, *kept, attributes=instruction.attributes)]


@REWRITES.rule(movement.slice_)
def _slice_of_a_part(instruction: Instruction, operands: Sequence[Instruction]) -> list[Instruction] | None:
    """A slice of a concatenation that lies in one part is a slice of this part: torch puts real and imaginary parts side by side
    and takes one of them."""
    bounds: list[tuple[int, int, int]] = list(instruction.attributes["slice"])
    source = operands[0]
    while (part := _part_with(source, bounds)) is not None:
        source = part
    if source is operands[0]:
        return None
    return [_instead(instruction, movement.slice_, instruction.shape, source, attributes={"slice": tuple(bounds)})]


def _part_with(whole: Instruction, bounds: list[tuple[int, int, int]]) -> Instruction | None:
    """The part of a concatenation that has all elements within these bounds, which become those of the part."""
    if whole.opcode != movement.concatenate or not whole.shape.is_static:
        return None
    (along,) = whole.attributes["dimensions"]
    start, limit, stride = bounds[along]
    end = 0
    for part in whole.operands:
        begin, end = end, end + part.shape.dimensions[along]
        if begin <= start < limit <= end:
            bounds[along] = (start - begin, limit - begin, stride)
            return part
    return None


@REWRITES.rule(internal.bitcast)
def _row_major_bitcast(instruction: Instruction, operands: Sequence[Instruction]) -> list[Instruction] | None:
    """Memory read in another order, said without layouts: into the operand's memory order, and out of the result's."""
    before, after = instruction.operands[0].shape.minor_to_major[::-1], instruction.shape.minor_to_major[::-1]
    if _in_order(before) and _in_order(after) and not instruction.attributes:
        return None
    made: list[Instruction] = []
    value = operands[0]
    if not _in_order(before):
        value = _transposed(instruction, value, before)
        made.append(value)
    value = _instead(instruction, internal.bitcast, _permuted(instruction.shape, after), value)
    made.append(value)
    if not _in_order(after):
        made.append(_transposed(instruction, value, [after.index(d) for d in range(len(after))]))
    return made


def _transposed(origin: Instruction, value: Instruction, order: Sequence[int]) -> Instruction:
    return _instead(origin, movement.transpose, _permuted(value.shape, order), value, attributes={"dimensions": tuple(order)})


def _in_order(order: Sequence[int]) -> bool:
    return list(order) == sorted(order)


def _permuted(shape: Shape, order: Sequence[int]) -> Shape:
    """An array shape with its dimensions in another order."""
    return shape.with_dimensions([shape.dimensions[d] for d in order], [shape.dynamic_flags[d] for d in order])


def _instead(origin: Instruction, opcode: str, shape: Shape, *operands: Instruction,
             attributes: dict[str, Any] | None = None) -> Instruction:
    """An instruction in the place of another one, with its name and facts."""
    return Instruction(opcode, shape.without_layout(), operands, attributes, origin.name, carried_metadata(origin), origin.line,
                       origin.column)
