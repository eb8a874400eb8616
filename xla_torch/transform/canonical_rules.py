"""The rewrites of single ops into canonical form.

A rule takes an instruction and the operands it has by now. It gives the instructions that stand for it, each behind its
operands and the result last, or None where the instruction is in canonical form already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.patterns import is_positive_zero, logistic_argument
from ..analysis.reducers import reducer_kind
from ..core.shape import Shape
from ..hlo.attributes import WindowDimension
from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..opcodes import elementwise, internal, movement, window
from ..opcodes.reducer_kinds import ReducerKind
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


@REWRITES.rule(window.reduce_window)
def _repeated_elements(instruction: Instruction, operands: Sequence[Instruction]) -> list[Instruction] | None:
    """A sum over windows that hold one element each, among zeros, repeats the elements: the gradient of mean pooling. Adding
    +0.0 makes -0.0 positive, as the sum does."""
    if len(operands) != 2 or not instruction.shape.is_static or instruction.shape.has_sizes or not is_positive_zero(operands[1]):
        return None
    whole, zero = operands
    inside = whole.opcode == movement.pad and is_positive_zero(whole.operands[1])
    source, padding = (whole.operands[0], whole.attributes["padding"]) if inside else (whole, [(0, 0, 0)] * whole.shape.rank)
    times = [_repeats(*both) for both in zip(padding, instruction.attributes.get("window", ()), strict=False)]
    if (len(times) != source.shape.rank or 0 in times or max(times, default=1) == 1
            or any(o.shape.element_type is not instruction.shape.element_type for o in (source, zero))
            or reducer_kind(instruction.attributes["to_apply"]) is not ReducerKind.ADD):
        return None
    split = [(n, k) for size, t in zip(source.shape.dimensions, times, strict=True)
             for k, n in enumerate((size, t) if t != 1 else (size,))]
    spread = _instead(instruction, movement.broadcast, instruction.shape.with_dimensions([n for n, _ in split]), source,
                      attributes={"dimensions": tuple(at for at, (_, k) in enumerate(split) if not k)})
    joined = _instead(instruction, movement.reshape, instruction.shape, spread)
    zeros = _instead(instruction, movement.broadcast, instruction.shape, zero, attributes={"dimensions": ()})
    return [spread, joined, zeros, _instead(instruction, elementwise.add, instruction.shape, joined, zeros)]


def _repeats(padding: tuple[int, int, int], w: WindowDimension) -> int:
    """How often each element stands in a dimension of windows that hold one element each; 0 where windows hold more or fewer."""
    low, high, interior = padding
    if interior and w.base_dilation > 1:
        return 0
    ends = low + w.padding_low, high + w.padding_high
    is_whole = w.stride == w.window_dilation == 1 and ends == (w.size - 1, w.size - 1)
    return w.size if is_whole and w.size == max(interior + 1, w.base_dilation) else 0


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
