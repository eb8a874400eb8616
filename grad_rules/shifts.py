"""How ops change the form in which their operands depend on a shift (`_shifts.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from grad_rules._patterns import is_sum, moved_dimensions
from grad_rules._shifts import FORMS, Depends, Form
from xla_torch.hlo.ir import Instruction

Forms = Sequence[Form | None]


# ----------------------------------------------------------------------------------------------- sums and products


def _sum(operands: Forms, sign: int) -> Form | None:
    """Degrees of c add up; equal powers of exp(c) are kept."""
    left, right = operands
    if any(form is not None and form.in_exponent for form in operands):
        if left != right:
            raise Depends
        return left
    return _combined(left, right, sign)


def _product(operands: Forms, sign: int) -> Form | None:
    """Powers of exp(c) add up."""
    if any(form is not None and not form.in_exponent for form in operands):
        raise Depends
    return _combined(operands[0], operands[1], sign)


def _combined(left: Form | None, right: Form | None, sign: int) -> Form | None:
    if left is None or right is None:
        return left if right is None else dataclasses.replace(right, degree=sign * right.degree)
    if left.place != right.place:
        raise Depends
    return dataclasses.replace(left, degree=left.degree + sign * right.degree)


FORMS.add_all({
    "add": lambda _, operands: _sum(operands, 1), "subtract": lambda _, operands: _sum(operands, -1),
    "multiply": lambda _, operands: _product(operands, 1), "divide": lambda _, operands: _product(operands, -1)})


# ----------------------------------------------------------------------------------------------- one operand


def _switched(form: Form | None, now_in_exponent: bool) -> Form | None:
    if form is None or form.in_exponent is not now_in_exponent:
        raise Depends
    return dataclasses.replace(form, in_exponent=not now_in_exponent)


@FORMS.rule("abs")
def _absolute(_: Instruction, operands: Forms) -> Form | None:
    if operands[0] is None or not operands[0].in_exponent:
        raise Depends
    return operands[0]


@FORMS.rule("negate")
def _negative(_: Instruction, operands: Forms) -> Form | None:
    form = operands[0]
    return form if form is None or form.in_exponent else dataclasses.replace(form, degree=-form.degree)


@FORMS.rule("convert")
def _converted(instruction: Instruction, operands: Forms) -> Form | None:
    return operands[0] if instruction.shape.element_type.is_differentiable else None


FORMS.add_all({"exponential": lambda _, operands: _switched(operands[0], now_in_exponent=False),
               "log": lambda _, operands: _switched(operands[0], now_in_exponent=True)})


# ----------------------------------------------------------------------------------------------- other dimensions


@FORMS.rule("broadcast", "copy", "reshape", "transpose")
def _moved(instruction: Instruction, operands: Forms) -> Form | None:
    """The same form, over other dimensions."""
    form, moved = operands[0], moved_dimensions(instruction)
    if form is None or moved is None or any(at not in moved for _, at in form.place):
        raise Depends
    return dataclasses.replace(form, place=tuple((d, moved[at]) for d, at in form.place))


@FORMS.rule("reduce")
def _summed(instruction: Instruction, operands: Forms) -> Form | None:
    """A sum over dimensions along which c does not vary keeps the power of exp(c)."""
    form, gone = operands[0], instruction.attributes["dimensions"]
    if form is None or not form.in_exponent or not is_sum(instruction) or any(at in gone for _, at in form.place):
        raise Depends
    return dataclasses.replace(form, place=tuple((d, at - sum(g < at for g in gone)) for d, at in form.place))
