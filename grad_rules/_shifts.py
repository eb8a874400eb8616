"""Shifts that cancel, as the maximum that softmax and logsumexp subtract: mathematically nothing depends on them, so their
gradient is zero. (In JAX such a maximum stands under `stop_gradient`, of which a lowered program shows nothing.)

From a value c that is subtracted before an exponential, it is followed through the program in what form each value depends on
it (`shifts.py` says how ops change the form), until the forms have cancelled everywhere, or there is one that is unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from grad_rules._patterns import moved_dimensions
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.hlo.rule_tables import RuleTable
from xla_torch.hlo.structure import CONSTANT
from xla_torch.opcodes import convert, elementwise


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How a value depends on the shift c: it is ``f + degree * c``, or ``f * exp(degree * c)`` where `in_exponent`, and f
    does not depend on c. `place` says which of the value's dimensions each dimension of c (of size other than 1) is."""

    degree: int
    in_exponent: bool
    place: tuple[tuple[int, int], ...]


class Depends(Exception):
    """A value depends on the shift in a way that no `Form` says."""


FormRule = Callable[[Instruction, Sequence[Form | None]], Form | None]
"""The form of a result for those of the operands, None where one does not depend on the shift. Raises `Depends`."""

FORMS: RuleTable[FormRule] = RuleTable("form of a shift")


def cancelled_shifts(computation: Computation) -> set[Instruction]:
    """Values that are subtracted before an exponential and on which, mathematically, nothing depends in the end."""
    candidates = {_source(i.operands[0].operands[1]) for i in computation.instructions
                  if i.opcode == elementwise.exponential and i.operands[0].opcode == elementwise.subtract}
    if not candidates:
        return set()
    users: dict[Instruction, list[Instruction]] = {}
    for instruction in computation.instructions:
        for operand in set(instruction.operands):
            users.setdefault(operand, []).append(instruction)
    order = {instruction: k for k, instruction in enumerate(computation.instructions)}
    return {c for c in candidates
            if not c.is_parameter and c.opcode != CONSTANT and _cancels(c, computation.root, users, order)}


def _source(instruction: Instruction) -> Instruction:
    while instruction.opcode == convert.convert or moved_dimensions(instruction) is not None:
        instruction = instruction.operands[0]
    return instruction


def _cancels(shift: Instruction, root: Instruction, users: Mapping[Instruction, Sequence[Instruction]],
             order: Mapping[Instruction, int]) -> bool:
    """Whether every value that depends on the shift is used only by values that do not, or in ways without gradient."""
    place = tuple((d, d) for d, size in enumerate(shift.shape.dimensions) if size != 1)
    forms = {shift: Form(1, False, place)}
    waiting = {order[u]: u for u in users.get(shift, ())}
    try:
        while waiting:
            instruction = waiting.pop(min(waiting))
            form = _form_of(instruction, [forms.get(o) for o in instruction.operands])
            if form is not None:
                forms[instruction] = form
                waiting |= {order[u]: u for u in users.get(instruction, ())}
    except Depends:
        return False
    return root not in forms


def _form_of(instruction: Instruction, operands: Sequence[Form | None]) -> Form | None:
    """The form of a result that has operands with forms; None where it does not depend on the shift after all."""
    rule = FORMS.get(instruction.opcode)
    if rule is not None:
        form = rule(instruction, operands)
        return form if form is None or form.degree else None
    if not instruction.shape.is_array or instruction.shape.element_type.is_differentiable:
        raise Depends
    return None  # comparisons and the like: steps, without gradient
