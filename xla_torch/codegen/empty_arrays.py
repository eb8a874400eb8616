"""Arrays without elements in native code: an op that returns or reads them needs no code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.shape import Shape
from ..hlo.inference import is_pure
from ..hlo.ir import Instruction
from ..opcodes import contraction, control, indexing, movement, reduction
from .arrays import ARRAYS, Value
from .code import ANYWHERE, Array
from .elements import Unfit, number


def without_elements(inst: Instruction, operands: Sequence[Value], writer: object) -> Value | None:
    """The value of an op on empty arrays, or None where its rule applies: nothing is empty, or the op runs computations.

    Raises Unfit for an op that reads an empty array, has elements in its result, and is not known here.
    """
    if inst.opcode in (control.while_, control.conditional):
        return None
    if not is_pure(inst):
        raise Unfit(f"{inst.opcode} has an effect beside its value")
    if not any(s.element_count for s in inst.shape.leaves()):
        made = [_zero(s) for s in inst.shape.leaves()]
        return made if inst.shape.is_tuple else made[0]
    given = [o for o in operands if isinstance(o, Array)]
    if inst.opcode in (indexing.gather, indexing.scatter):  # an empty index vector addresses the whole operand
        del given[len(given) // 2]
    if all(a.shape.element_count for a in given):
        return None
    if inst.opcode == movement.concatenate:
        full = [a for a in given if a.shape.element_count]
        return full[0] if len(full) == 1 else ARRAYS[inst.opcode](writer, inst, full)
    if inst.opcode == movement.pad:
        return _constant(inst.shape, given[1].at(()))
    if inst.opcode == contraction.dot:
        return _zero(inst.shape)
    if inst.opcode == reduction.reduce:
        made = [_constant(s, a.at(())) for s, a in zip(inst.shape.leaves(), given[len(given) // 2:], strict=True)]
        return made if inst.shape.is_tuple else made[0]
    if inst.opcode in (indexing.dynamic_update_slice, indexing.scatter) and inst.shape.is_array:
        return given[0]
    raise Unfit(f"{inst.opcode} of an array without elements")


def _zero(shape: Shape) -> Array:
    return _constant(shape, number(np.zeros(1, shape.element_type.numpy)[0], shape.element_type))


def _constant(shape: Shape, code: str) -> Array:
    return Array(shape, lambda _: code, reach=ANYWHERE)
