"""Gradients that several ops have together and that are simpler than theirs one by one.

- Softmax, ``e / sum(e)`` with ``e = exp(x)``, needs nothing but its result: ``y * (ct - sum(y * ct))``.
- ``1 / (x * x)``, which is what JAX makes of ``x ** -2``, is a power: ``-2 * ct * out / x``. The products' own gradients
  multiply what has become zero with what is infinite.
- A shift that cancels, as the maximum that softmax and logsumexp subtract, has gradient zero. (In JAX such a maximum stands
  under `stop_gradient`, of which a lowered program shows nothing.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from grad_rules._calculus import conj
from grad_rules._table import TABLE

from .. import ops
from ..builder import XlaOp
from ..hlo.ir import Computation, Instruction
from ..transform.recognise import reducer_kind
from .masks import outside

# ------------------------------------------------------------------------------------------------ softmax


@dataclasses.dataclass(frozen=True, slots=True)
class Shortcut:
    """The result's whole dependence on `source`: `rule(ct, out, source)` is the cotangent of `source`, and there is no other."""

    source: Instruction
    rule: Callable[[XlaOp, XlaOp, XlaOp], XlaOp | None]


def shortcut(instruction: Instruction) -> Shortcut | None:
    """The way around an instruction's own rules, if there is one."""
    if instruction.opcode != "divide" or any(TABLE[opcode].own for opcode in ("divide", "exponential", "reduce", "multiply")):
        return None  # rules that a user has put in the place of the table's are not gone around
    return _softmax(instruction) or _negative_power(instruction)


def _softmax(instruction: Instruction) -> Shortcut | None:
    exponential = instruction.operands[0]
    total, place = _through_broadcasts(instruction.operands[1])
    if exponential.opcode != "exponential" or not _is_sum(total) or total.operands[0] is not exponential:
        return None
    summed, reducer = total.attributes["dimensions"], total.attributes["to_apply"]
    kept = [d for d in range(exponential.shape.rank) if d not in summed]
    if any(place.get(k) != d for k, d in enumerate(kept) if exponential.shape.dimensions[d] != 1):
        return None

    def rule(ct: XlaOp, out: XlaOp, source: XlaOp) -> XlaOp:
        along = ops.Reduce(ct.builder, [ops.Mul(out, ct)], [ct.builder.constant(0, ct.element_type)], reducer, summed)
        return ops.Mul(out, ops.Sub(ct, ops.BroadcastInDim(along, ct.shape.dimensions, kept)))

    return Shortcut(exponential.operands[0], rule)


def _through_broadcasts(instruction: Instruction) -> tuple[Instruction, dict[int, int]]:
    """The array behind broadcasts and reshapes that only add or drop dimensions of size 1; where its other dimensions went."""
    place = {d: d for d in range(instruction.shape.rank)}
    while instruction.opcode in ("broadcast", "reshape", "copy"):
        moved = _moves(instruction)
        if moved is None:
            break
        place = {d: place[to] for d, to in moved.items() if to in place}
        instruction = instruction.operands[0]
    return instruction, place


def _is_sum(instruction: Instruction) -> bool:
    """A reduce of one array by addition, from zero."""
    if instruction.opcode != "reduce" or len(instruction.operands) != 2:
        return False
    start = instruction.operands[1]
    return (reducer_kind(instruction.attributes["to_apply"]) == "add" and start.opcode == "constant"
            and not start.attributes["literal"].elided and start.attributes["literal"].array == 0)


# ------------------------------------------------------------------------------------------------ negative powers


def _negative_power(instruction: Instruction) -> Shortcut | None:
    one, product = instruction.operands
    base, exponent = _power(product)
    if exponent < 2 or not _is_one(one):
        return None

    def rule(ct: XlaOp, out: XlaOp, source: XlaOp) -> XlaOp | None:
        return outside(instruction, base, ct, lambda inner: inner * conj(-float(exponent) * (out / source)))

    return Shortcut(base, rule)


def _power(instruction: Instruction) -> tuple[Instruction, int]:
    """The value that a product is a power of, and the exponent."""
    if instruction.opcode != "multiply":
        return instruction, 1
    left, right = instruction.operands
    base, exponent = _power(left)
    other, more = (base, exponent) if left is right else _power(right)
    return (base, exponent + more) if base is other else (instruction, 1)


def _is_one(instruction: Instruction) -> bool:
    while instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    literal = instruction.attributes.get("literal")
    return literal is not None and not literal.elided and literal.array.shape == () and literal.array == 1


# ------------------------------------------------------------------------------------------------ shifts that cancel


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """How a value depends on the shift c: it is ``f + degree * c``, or ``f * exp(degree * c)`` where `in_exponent`, and f
    does not depend on c. `place` says which of the value's dimensions each dimension of c (of size other than 1) is."""

    degree: int
    in_exponent: bool
    place: tuple[tuple[int, int], ...]


class _Depends(Exception):
    """A value depends on the shift in a way that no `_Form` says."""


def cancelled_shifts(computation: Computation) -> set[Instruction]:
    """Values that are subtracted before an exponential and on which, mathematically, nothing depends in the end."""
    candidates = {_source(i.operands[0].operands[1]) for i in computation.instructions
                  if i.opcode == "exponential" and i.operands[0].opcode == "subtract"}
    if not candidates:
        return set()
    users: dict[Instruction, list[Instruction]] = {}
    for instruction in computation.instructions:
        for operand in set(instruction.operands):
            users.setdefault(operand, []).append(instruction)
    order = {instruction: k for k, instruction in enumerate(computation.instructions)}
    return {c for c in candidates if c.opcode not in ("parameter", "constant") and _cancels(c, computation.root, users, order)}


def _source(instruction: Instruction) -> Instruction:
    while instruction.opcode in ("broadcast", "reshape", "copy", "convert"):
        instruction = instruction.operands[0]
    return instruction


def _cancels(shift: Instruction, root: Instruction, users: Mapping[Instruction, Sequence[Instruction]],
             order: Mapping[Instruction, int]) -> bool:
    """Whether every value that depends on the shift is used only by values that do not, or in ways without gradient."""
    place = tuple((d, d) for d, size in enumerate(shift.shape.dimensions) if size != 1)
    forms = {shift: _Form(1, False, place)}
    waiting = {order[u]: u for u in users.get(shift, ())}
    try:
        while waiting:
            instruction = waiting.pop(min(waiting))
            form = _form_of(instruction, [forms.get(o) for o in instruction.operands])
            if form is not None:
                forms[instruction] = form
                waiting |= {order[u]: u for u in users.get(instruction, ())}
    except _Depends:
        return False
    return root not in forms


def _form_of(instruction: Instruction, operands: list[_Form | None]) -> _Form | None:
    """The form of a result that has operands with forms; None where it does not depend on the shift after all."""
    rule = _RULES.get(instruction.opcode)
    if rule is not None:
        form = rule(instruction, operands)
        return form if form is None or form.degree else None
    if not instruction.shape.is_array or instruction.shape.element_type.is_differentiable:
        raise _Depends
    return None  # comparisons and the like: steps, without gradient


def _sum(sign: int) -> Callable[[Instruction, list[_Form | None]], _Form | None]:
    """add, subtract: degrees of c add up; equal powers of exp(c) are kept."""

    def rule(_: Instruction, operands: list[_Form | None]) -> _Form | None:
        left, right = operands
        if any(form is not None and form.in_exponent for form in operands):
            if left != right:
                raise _Depends
            return left
        return _combined(left, right, sign)

    return rule


def _product(sign: int) -> Callable[[Instruction, list[_Form | None]], _Form | None]:
    """multiply, divide: powers of exp(c) add up."""

    def rule(_: Instruction, operands: list[_Form | None]) -> _Form | None:
        if any(form is not None and not form.in_exponent for form in operands):
            raise _Depends
        return _combined(operands[0], operands[1], sign)

    return rule


def _combined(left: _Form | None, right: _Form | None, sign: int) -> _Form | None:
    if left is None or right is None:
        return left if right is None else dataclasses.replace(right, degree=sign * right.degree)
    if left.place != right.place:
        raise _Depends
    return dataclasses.replace(left, degree=left.degree + sign * right.degree)


def _exponential(_: Instruction, operands: list[_Form | None]) -> _Form | None:
    return _switched(operands[0], now_in_exponent=False)


def _logarithm(_: Instruction, operands: list[_Form | None]) -> _Form | None:
    return _switched(operands[0], now_in_exponent=True)


def _switched(form: _Form | None, now_in_exponent: bool) -> _Form | None:
    if form is None or form.in_exponent is not now_in_exponent:
        raise _Depends
    return dataclasses.replace(form, in_exponent=not now_in_exponent)


def _absolute(_: Instruction, operands: list[_Form | None]) -> _Form | None:
    if operands[0] is None or not operands[0].in_exponent:
        raise _Depends
    return operands[0]


def _negative(_: Instruction, operands: list[_Form | None]) -> _Form | None:
    form = operands[0]
    return form if form is None or form.in_exponent else dataclasses.replace(form, degree=-form.degree)


def _converted(instruction: Instruction, operands: list[_Form | None]) -> _Form | None:
    return operands[0] if instruction.shape.element_type.is_differentiable else None


def _moved(instruction: Instruction, operands: list[_Form | None]) -> _Form | None:
    """broadcast, reshape, transpose: the same form, over other dimensions."""
    form, moves = operands[0], _moves(instruction)
    if form is None or moves is None or any(at not in moves for _, at in form.place):
        raise _Depends
    return dataclasses.replace(form, place=tuple((d, moves[at]) for d, at in form.place))


def _summed(instruction: Instruction, operands: list[_Form | None]) -> _Form | None:
    """reduce: a sum over dimensions along which c does not vary keeps the power of exp(c)."""
    form, gone = operands[0], instruction.attributes["dimensions"]
    if form is None or not form.in_exponent or not _is_sum(instruction) or any(at in gone for _, at in form.place):
        raise _Depends
    return dataclasses.replace(form, place=tuple((d, at - sum(g < at for g in gone)) for d, at in form.place))


def _moves(instruction: Instruction) -> dict[int, int] | None:
    """Where the operand's dimensions are in the result; a reshape must only add or drop dimensions of size 1."""
    source, result = instruction.operands[0].shape.dimensions, instruction.shape.dimensions
    if instruction.opcode == "broadcast":
        return dict(enumerate(instruction.attributes["dimensions"]))
    if instruction.opcode == "transpose":
        return {d: k for k, d in enumerate(instruction.attributes["dimensions"])}
    if instruction.opcode == "copy":
        return {d: d for d in range(len(source))}
    before, after = ([d for d, size in enumerate(sizes) if size != 1] for sizes in (source, result))
    if [source[d] for d in before] != [result[d] for d in after]:
        return None
    return dict(zip(before, after, strict=True))


_RULES: Mapping[str, Callable[[Instruction, list[_Form | None]], _Form | None]] = {
    "add": _sum(1), "subtract": _sum(-1), "multiply": _product(1), "divide": _product(-1), "exponential": _exponential,
    "log": _logarithm, "abs": _absolute, "negate": _negative, "convert": _converted, "copy": _moved, "broadcast": _moved,
    "reshape": _moved, "transpose": _moved, "reduce": _summed}
