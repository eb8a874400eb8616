"""Scalar computations evaluated on unknowns, case by case.

Every value is a `Symbol`. What a computation compares decides what it computes, so an evaluation (`Case`) holds answers to
such questions: how two unknowns compare, whether a predicate holds, whether an unknown is NaN. Where an answer is missing the
evaluation stops with `Open`, and whoever asked goes on with each of the answers (`cases`). Together the cases cover all values
that the unknowns may have; some may have no values, which only makes a proof harder.

Floats are compared by how they were computed (`Symbol.term`), not by what algebra says that they are, because a comparison may
tell apart what differs by a rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.types import PrimitiveType
from ..hlo.inference import forwarded
from ..hlo.ir import Computation, Instruction, live_instructions
from ..hlo.regions import branches_of, callee, is_branching, is_call
from ..hlo.rule_tables import RuleTable
from ..hlo.schema import Trait
from ..hlo.structure import CONSTANT
from .algebra import Algebra, Form

Value = Any
"""A `Symbol`, or a tuple of values."""

Question = tuple[Any, ...]
"""What an evaluation may ask: ``("holds", term)``, ``("nan", term)``, ``("order", element type, term, term)``."""

NAN = -1
"""The number of an unknown that is NaN."""


class Unprovable(Exception):
    """The computation does something of which too little is known."""


class Open(Exception):
    """An evaluation needs an answer: `question`, and the answers that it may have."""

    def __init__(self, question: Question, answers: Sequence[Any]):
        super().__init__(question)
        self.question, self.answers = question, answers


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A scalar: its normal form, how it was computed, and the floating unknowns in it, any of which makes it NaN by being
    NaN. `truth` is the value of a predicate where it is known."""

    element_type: PrimitiveType
    form: Form
    term: int
    unknowns: frozenset[int] = frozenset()
    truth: bool | None = None


class Facts:
    """What all cases of one proof share: algebra, and numbers for how values were computed."""

    def __init__(self) -> None:
        self.algebra = Algebra()
        self.needs_order = False
        """Whether a maximum or minimum was taken as algebra, so that there is another way."""
        self._terms: dict[Hashable, int] = {}
        self._live: dict[Instruction, list[Instruction]] = {}
        self.constants: dict[int, Any] = {}
        """The numbers that terms are, where they are constants."""
        self.differences: dict[int, tuple[Symbol, Symbol]] = {}
        """What floats that are a difference are the difference of."""

    def term(self, key: Hashable) -> int:
        """The number of a way to compute a value."""
        return self._terms.setdefault(key, len(self._terms))

    def live(self, computation: Computation, root: Instruction) -> list[Instruction]:
        """The instructions that one of a computation's needs."""
        if root not in self._live:
            self._live[root] = live_instructions(computation, [root])
        return self._live[root]


def modulus_of(element_type: PrimitiveType) -> int:
    """Of integers, what they are known modulo; 0 for others."""
    return 1 << element_type.bits if element_type.is_integral else 0


def cases(facts: Facts, lattice: bool, most: int) -> Iterator[Case]:
    """The cases of an evaluation. The consumer evaluates each and gives the `Open` that it met, if it met one, to `case.met`.
    Raises Unprovable for more than `most`."""
    waiting: list[dict[Question, Any]] = [{}]
    for _ in range(most):
        if not waiting:
            return
        case = Case(facts, waiting.pop(), lattice)
        yield case
        if case.met is not None:
            waiting += [{**case.answers, case.met.question: answer} for answer in case.met.answers]
    raise Unprovable


RULES: RuleTable[Callable[..., Symbol]] = RuleTable("algebra", filled_by=[f"{__package__}.symbolic_rules"])
"""What ops make of symbols: `rule(case, instruction, *operands)`. Filled by `symbolic_rules`; of any other op nothing is known
but that equal operands give equal results."""


class Case:
    """One evaluation. With `lattice`, maximum and minimum are algebra; without it, they are the one or the other operand."""

    def __init__(self, facts: Facts, answers: dict[Question, Any], lattice: bool):
        self.facts, self.answers, self.lattice = facts, answers, lattice
        self.algebra = facts.algebra
        self.met: Open | None = None
        self._compared: dict[int, Symbol] = {}
        self._orders_of: dict[PrimitiveType, dict[tuple[int, int], int]] = {}

    # ---- evaluation

    def run(self, computation: Computation, arguments: Sequence[Value], root: Instruction | None = None) -> Value:
        """The value of the computation's root, or of another instruction of it."""
        root = root or computation.root
        values: dict[Instruction, Value] = {}
        for instruction in self.facts.live(computation, root):
            operands = [values[o] for o in instruction.operands]
            values[instruction] = arguments[instruction.attributes["parameter_number"]] if instruction.is_parameter else (
                self._value(instruction, operands))
        return values[root]

    def _value(self, instruction: Instruction, operands: list[Value]) -> Value:
        if instruction.is_tuple:
            return tuple(operands)
        if instruction.is_element:
            return operands[0][instruction.attributes["index"]]
        if is_call(instruction):
            return self.run(callee(instruction), operands)
        if is_branching(instruction):
            return self._branch(instruction, operands)
        if forwarded(instruction) is not None:
            return operands[0]
        if not instruction.shape.is_scalar:
            raise Unprovable
        if instruction.opcode == CONSTANT:
            return self.constant(instruction.shape.element_type, instruction.attributes["literal"].array[()])
        if instruction.has(Trait.REARRANGES) and instruction.operands[0].shape.is_scalar and (
                instruction.shape.element_type is operands[0].element_type):
            return operands[0]
        if not instruction.schema.elementwise:
            raise Unprovable
        return RULES.get(instruction.opcode, Case.unknown)(self, instruction, *operands)

    def _branch(self, instruction: Instruction, operands: list[Value]) -> Value:
        selector, *given = operands
        if not selector.element_type.is_pred:
            raise Unprovable
        chosen = 0 if self.holds(selector) else 1
        return self.run(branches_of(instruction)[chosen], [given[chosen]])

    # ---- values

    def parameter(self, element_type: PrimitiveType, key: Hashable) -> Symbol:
        """An unknown scalar."""
        facts = self.facts
        term = facts.term(("unknown", key))
        form = self.algebra.function(("unknown", key), (), modulus_of(element_type))
        exact = element_type.is_integral or element_type.is_pred
        return self._of_form(element_type, form) if element_type.is_integral else Symbol(
            element_type, form, term, frozenset() if exact else frozenset({term}))

    def constant(self, element_type: PrimitiveType, number: Any) -> Symbol:
        """A number of the type."""
        if element_type.is_pred:
            return self.predicate(bool(number))
        if element_type.is_integral:
            symbol = self._of_form(element_type, self.algebra.constant(int(number), modulus_of(element_type)))
            self.facts.constants[symbol.term] = int(number)
            return symbol
        if element_type.is_complex or not np.isfinite(number):
            key = (CONSTANT, element_type, str(number))
            unknowns = frozenset({NAN}) if np.isnan(number) else frozenset()
            symbol = Symbol(element_type, self.algebra.function(key, ()), self.facts.term(key), unknowns)
        else:
            key = (CONSTANT, float(number))
            symbol = Symbol(element_type, self.algebra.constant(float(number)), self.facts.term(key))
        if not element_type.is_complex and not np.isnan(number):
            self.facts.constants[symbol.term] = float(number)
        return symbol

    def predicate(self, truth: bool) -> Symbol:
        return Symbol(PrimitiveType.PRED, self.algebra.constant(truth), self.facts.term(truth), frozenset(), truth)

    def computed(self, instruction: Instruction, form: Form, *operands: Symbol) -> Symbol:
        """The result of an instruction of which algebra knows the form."""
        element_type = instruction.shape.element_type
        if element_type.is_integral:
            return self._of_form(element_type, form)
        return Symbol(element_type, form, self._term(instruction, operands), _unknowns(operands))

    def unknown(self, instruction: Instruction, *operands: Symbol) -> Symbol:
        """The result of an op of which nothing is known, but that equal operands give equal results: for floats, operands that
        are computed alike; or, where the op is a function without jumps, such that are equal up to rounding.

        Raises Unprovable where real numbers make a complex one or the other way round: a NaN in one part is none in the other.
        """
        element_type = instruction.shape.element_type
        if any(o.element_type.is_complex is not element_type.is_complex for o in operands) and not element_type.is_pred:
            raise Unprovable
        term = self._term(instruction, operands)
        if element_type.is_pred:
            return Symbol(element_type, self.algebra.function(("predicate", term), ()), term)
        smooth = instruction.has(Trait.TRANSCENDENTAL) and len(operands) == 1
        fixed = tuple(None if modulus_of(o.element_type) or smooth else o.term for o in operands)
        forms = [o.form for o, place in zip(operands, fixed, strict=True) if place is None]
        form = self.algebra.function((*_key(instruction), fixed), forms, modulus_of(element_type))
        return self._of_form(element_type, form) if element_type.is_integral else Symbol(
            element_type, form, term, _unknowns(operands))

    def _of_form(self, element_type: PrimitiveType, form: Form) -> Symbol:
        """An integer: what is equal is computed alike."""
        return Symbol(element_type, form, self.facts.term((element_type, form)))

    def _term(self, instruction: Instruction, operands: Sequence[Symbol]) -> int:
        return self.facts.term((*_key(instruction), *(o.term for o in operands)))

    # ---- questions

    def holds(self, predicate: Symbol) -> bool:
        """The value of a predicate in this case."""
        return predicate.truth if predicate.truth is not None else self._ask(("holds", predicate.term), (True, False))

    def is_nan(self, *symbols: Symbol) -> bool:
        """Whether an unknown in any of the values is NaN."""
        unknowns = sorted(_unknowns(symbols))
        if NAN in unknowns or any(self.answers.get(("nan", u)) for u in unknowns):
            return True
        return any(self._ask(("nan", unknown), (False, True)) for unknown in unknowns)

    def may_be_nan(self, symbol: Symbol) -> bool | frozenset[int]:
        """Whether it is NaN, or the unknowns on which that depends."""
        if any(u == NAN or self.answers.get(("nan", u)) for u in symbol.unknowns):
            return True
        return frozenset(u for u in symbol.unknowns if self.answers.get(("nan", u)) is None) or False

    def order(self, a: Symbol, b: Symbol) -> int:
        """-1, 0 or 1 as one number that is not NaN is below, equal to or above another in their type's order."""
        a, b = self._undone(a, b)
        if a.term == b.term:
            return 0
        self._compared |= {a.term: a, b.term: b}
        known = self._known(a, b)
        return known if known is not None else self._ask(("order", a.element_type, a.term, b.term), (-1, 0, 1))

    def _undone(self, a: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
        """A difference of floats compares to zero as its operands compare with each other."""
        return self.facts.differences.get(a.term, (a, b)) if self.facts.constants.get(b.term) == 0 else (a, b)

    def _ask(self, question: Question, answers: Sequence[Any]) -> Any:
        if question not in self.answers:
            raise Open(question, answers)
        return self.answers[question]

    def _known(self, a: Symbol, b: Symbol) -> int | None:
        """How two terms compare, as far as it follows from what was answered."""
        numbers = self.facts.constants
        if a.term in numbers and b.term in numbers:
            return _sign(numbers[a.term], numbers[b.term])
        known = self._orders(a.element_type)
        if (a.term in numbers or b.term in numbers) and (a.term, b.term) not in known:
            known = self._closed(a.element_type, (a.term, b.term))
        return known.get((a.term, b.term))

    def _orders(self, element_type: PrimitiveType) -> dict[tuple[int, int], int]:
        """How terms of a type compare that were asked for, and what follows from that."""
        if element_type not in self._orders_of:
            self._orders_of[element_type] = self._closed(element_type)
        return self._orders_of[element_type]

    def _closed(self, element_type: PrimitiveType, more: Sequence[int] = ()) -> dict[tuple[int, int], int]:
        known = {question[2:]: answer for question, answer in self.answers.items() if question[:2] == ("order", element_type)}
        terms = list(dict.fromkeys([t for pair in known for t in pair] + list(more)))
        constants = [t for t in terms if t in self.facts.constants]
        known |= {(a, b): _sign(self.facts.constants[a], self.facts.constants[b]) for a in constants for b in constants}
        known |= {(b, a): -sign for (a, b), sign in known.items()} | {(t, t): 0 for t in terms}
        for middle in terms:
            before = [(a, known[a, middle]) for a in terms if (a, middle) in known]
            behind = [(b, known[middle, b]) for b in terms if (middle, b) in known]
            for a, first in before:
                for b, second in behind:
                    if first * second >= 0 and (a, b) not in known:
                        known[a, b] = first or second
        return known

    # ---- the end

    def same(self, a: Symbol, b: Symbol) -> bool:
        """Whether two values are equal in this case: floats up to rounding, and both NaN wherever one is."""
        if a.element_type.is_pred:
            return a.term == b.term or self.holds(a) == self.holds(b)
        one, other = self.may_be_nan(a), self.may_be_nan(b)
        if one != other:
            return self.is_nan(a) == self.is_nan(b) and (self.is_nan(a) or self._equal(a, b))
        return one is True or self._equal(a, b)

    def _equal(self, a: Symbol, b: Symbol) -> bool:
        if self.algebra.equal(a.form, b.form):
            return True
        equal = self._equalities()
        return bool(equal) and self.algebra.equal(self.algebra.replaced(a.form, equal), self.algebra.replaced(b.form, equal))

    def _equalities(self) -> dict[int, Form]:
        """Atoms that are equal to another form in this case."""
        found: dict[int, Form] = {}
        for element_type in {s.element_type for s in self._compared.values()}:
            orders, terms = self._orders(element_type), [t for t, s in self._compared.items() if s.element_type is element_type]
            for term in terms:
                alike = [t for t in terms if orders.get((t, term)) == 0]
                first = min(alike, key=lambda t: (t not in self.facts.constants, t), default=term)
                atom = self.algebra.atom_of(self._compared[term].form)
                if first != term and atom:
                    found[atom] = self._compared[first].form
        return found


def _sign(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


def _unknowns(symbols: Sequence[Symbol]) -> frozenset[int]:
    return frozenset().union(*(s.unknowns for s in symbols))


def _key(instruction: Instruction) -> tuple[Hashable, ...]:
    attributes = tuple(sorted((name, str(value)) for name, value in instruction.attributes.items()))
    return instruction.opcode, attributes, instruction.shape.element_type, *(o.shape.element_type for o in instruction.operands)
