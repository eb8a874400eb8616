"""What algebra knows of ops on scalars (see `symbolic`). Logic of predicates is decided, arithmetic is a form."""

from __future__ import annotations

import operator
from collections.abc import Callable

from ..hlo.ir import Instruction
from ..opcodes import comparison, convert, elementwise
from .algebra import Algebra, Form
from .symbolic import RULES, Case, Symbol, Unprovable, modulus_of

# ------------------------------------------------------------------------------------------------ arithmetic


def _form(opcode: str, function: Callable[..., Form]) -> None:
    """An op of which algebra knows the form for all numbers; of integers only, it is what `function` makes of them."""
    RULES.add(opcode, lambda case, inst, *operands: case.computed(
        inst, function(case.algebra, *(o.form for o in operands)), *operands))


def _or_logic(opcode: str, function: Callable[[Algebra, Form, Form], Form], logic: Callable[[bool, bool], bool]) -> None:
    """An op of numbers that for predicates is logic."""

    @RULES.rule(opcode)
    def rule(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
        if inst.shape.element_type.is_pred:
            return case.predicate(logic(case.holds(a), case.holds(b)))
        return case.computed(inst, function(case.algebra, a.form, b.form), a, b)


_or_logic(elementwise.add, Algebra.add, operator.or_)
_or_logic(elementwise.multiply, Algebra.multiply, operator.and_)
_form(elementwise.negate, Algebra.negate)


@RULES.rule(elementwise.subtract)
def _subtract(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
    result = case.computed(inst, case.algebra.add(a.form, case.algebra.negate(b.form)), a, b)
    if inst.shape.element_type.is_floating:
        case.facts.differences[result.term] = a, b
    return result


@RULES.rule(elementwise.divide)
def _divide(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
    if modulus_of(inst.shape.element_type):
        return case.unknown(inst, a, b)
    return case.computed(inst, case.algebra.divide(a.form, b.form), a, b)


@RULES.rule(elementwise.power)
def _power(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
    exponent = case.facts.constants.get(b.term)
    if exponent not in (1, 2, 3, 4):  # of others, 1 and 0 swallow NaNs
        raise Unprovable
    return case.computed(inst, case.algebra.power(a.form, int(exponent)), a, b)


def _real(opcode: str, function: Callable[[Algebra, Form], Form]) -> None:
    """A function of real numbers; of complex ones, which have branches, nothing is known."""

    @RULES.rule(opcode)
    def rule(case: Case, inst: Instruction, a: Symbol) -> Symbol:
        return case.computed(inst, function(case.algebra, a.form), a) if a.element_type.is_floating else case.unknown(inst, a)


def _plus(algebra: Algebra, a: Form, number: float) -> Form:
    return algebra.add(a, algebra.constant(number))


def _tanh(algebra: Algebra, a: Form) -> Form:
    square = algebra.exp(algebra.add(a, a))
    return algebra.divide(_plus(algebra, square, -1), _plus(algebra, square, 1))


_real(elementwise.exponential, Algebra.exp)
_real(elementwise.exponential_minus_one, lambda algebra, a: _plus(algebra, algebra.exp(a), -1))
_real(elementwise.log, Algebra.log)
_real(elementwise.log_plus_one, lambda algebra, a: algebra.log(_plus(algebra, a, 1)))
_real(elementwise.logistic, lambda algebra, a: algebra.power(_plus(algebra, algebra.exp(algebra.negate(a)), 1), -1))
_real(elementwise.tanh, _tanh)
_real(elementwise.sqrt, Algebra.sqrt)
_real(elementwise.rsqrt, lambda algebra, a: algebra.power(algebra.sqrt(a), -1))


# ------------------------------------------------------------------------------------------------ order


def _extreme(opcode: str, sign: int, logic: Callable[[bool, bool], bool]) -> None:
    @RULES.rule(opcode)
    def rule(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
        element_type = inst.shape.element_type
        if element_type.is_pred:
            return case.predicate(logic(case.holds(a), case.holds(b)))
        if element_type.is_complex:
            return case.unknown(inst, a, b)
        if case.lattice:
            case.facts.needs_order = True
            return case.computed(inst, case.algebra.together(f"{opcode} {element_type}", a.form, b.form), a, b)
        if element_type.is_floating and case.is_nan(a, b):  # then so is the result
            return case.constant(element_type, float("nan"))
        return b if case.order(a, b) == -sign else a


_extreme(elementwise.maximum, 1, operator.or_)
_extreme(elementwise.minimum, -1, operator.and_)


@RULES.rule(comparison.clamp)
def _clamp(case: Case, inst: Instruction, low: Symbol, x: Symbol, high: Symbol) -> Symbol:
    raised = RULES[elementwise.maximum](case, inst, low, x)
    return RULES[elementwise.minimum](case, inst, raised, high)


@RULES.rule(elementwise.abs_)
def _abs(case: Case, inst: Instruction, x: Symbol) -> Symbol:
    if x.element_type.is_complex:
        return case.unknown(inst, x)
    if x.element_type.is_floating and case.is_nan(x):
        return x
    if case.order(x, case.constant(x.element_type, 0)) >= 0:
        return x
    return case.computed(inst, case.algebra.negate(x.form), x)


_HOLDS: dict[str, Callable[[int], bool]] = {
    "EQ": lambda sign: sign == 0, "NE": lambda sign: sign != 0, "LT": lambda sign: sign < 0, "LE": lambda sign: sign <= 0,
    "GT": lambda sign: sign > 0, "GE": lambda sign: sign >= 0}


@RULES.rule(comparison.compare)
def _compare(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
    direction, element_type = inst.attributes["direction"], a.element_type
    if element_type.is_pred:
        one, other = case.holds(a), case.holds(b)
        return case.predicate(_HOLDS[direction](one - other))
    inexact = not element_type.is_integral
    if element_type.is_complex or (inexact and inst.attributes.get("type") == "TOTALORDER") or (
            element_type is not b.element_type):
        return case.unknown(inst, a, b)
    if inexact and case.is_nan(a, b):
        return case.predicate(direction == "NE")
    return case.predicate(_HOLDS[direction](case.order(a, b)))


@RULES.rule(comparison.select)
def _select(case: Case, inst: Instruction, predicate: Symbol, on_true: Symbol, on_false: Symbol) -> Symbol:
    return on_true if case.holds(predicate) else on_false


# ------------------------------------------------------------------------------------------------ bits and types


def _bits(opcode: str, logic: Callable[[bool, bool], bool]) -> None:
    @RULES.rule(opcode)
    def rule(case: Case, inst: Instruction, a: Symbol, b: Symbol) -> Symbol:
        if inst.shape.element_type.is_pred:
            return case.predicate(logic(case.holds(a), case.holds(b)))
        return case.computed(inst, case.algebra.together(opcode, a.form, b.form), a, b)


_bits(elementwise.and_, operator.and_)
_bits(elementwise.or_, operator.or_)
_bits(elementwise.xor, operator.xor)


@RULES.rule(elementwise.not_)
def _not(case: Case, inst: Instruction, x: Symbol) -> Symbol:
    if inst.shape.element_type.is_pred:
        return case.predicate(not case.holds(x))
    minus_one = case.algebra.constant(-1, modulus_of(x.element_type))
    return case.computed(inst, case.algebra.add(minus_one, case.algebra.negate(x.form)), x)


@RULES.rule(convert.convert)
def _convert(case: Case, inst: Instruction, x: Symbol) -> Symbol:
    """Between floats the value up to rounding, between integers of one width the same bits, of a predicate 0 or 1."""
    source, target = x.element_type, inst.shape.element_type
    if source is target:
        return x
    if source.is_pred:
        return case.constant(target, int(case.holds(x))) if not target.is_complex else case.unknown(inst, x)
    if (source.is_floating and target.is_floating) or (modulus_of(source) and modulus_of(source) == modulus_of(target)):
        return case.computed(inst, x.form, x)
    return case.unknown(inst, x)
