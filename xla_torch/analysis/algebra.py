"""Exact algebra of unknown scalars: normal forms in which equal expressions look equal.

A form is a quotient of sums of products of atoms. An atom is an unknown scalar, or a function of forms that algebra knows
nothing of but that equal operands give equal results. Four functions are known better:

- ``exp``: it turns sums into products and undoes ``log``, so a monomial is a product of atoms times ``exp`` of a form;
- ``log`` and ``sqrt``: ``exp`` and squares undo them;
- maximum and minimum: they are sets of forms, and a sum with one is the set of sums;
- bitwise and, or, xor: sets of forms as well.

Forms of integers are sums of products modulo two to the power of their width, and exact. Those of floats are true for real
numbers, so of floating-point results they hold up to rounding, and up to overflow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from ..opcodes import elementwise

Monomial = tuple[tuple[tuple[int, int], ...], int]
"""Powers of atoms by ascending number, and the number of the form whose ``exp`` is a factor."""
Sum = tuple[tuple[Monomial, Any], ...]
"""Monomials in ascending order with their coefficients, none of which is zero."""

MOST = 400
"""Monomials of a sum beyond which a proof is given up."""

_UNIT: Monomial = ((), 0)
_ONE: Sum = ((_UNIT, 1),)


class TooLarge(Exception):
    """A form has grown beyond `MOST` monomials."""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """``over / under``. `modulus` is that of integers, 0 for real and complex numbers."""

    over: Sum
    under: Sum = _ONE
    modulus: int = 0


class Algebra:
    """The atoms of one proof and what is known of them."""

    def __init__(self) -> None:
        self._count = 0
        self._functions: dict[Hashable, list[tuple[tuple[Form, ...], Form]]] = {}
        self._logarithms: dict[int, Form] = {}
        self._roots: dict[int, Form] = {}
        self._sets: dict[int, tuple[str, tuple[Form, ...]]] = {}
        self._exponents: list[Sum] = [()]
        self._numbers: dict[Sum, int] = {(): 0}

    # ---- making forms

    def constant(self, number: Any, modulus: int = 0) -> Form:
        number = number % modulus if modulus else _exact(number)
        return Form(((_UNIT, number),) if number else (), _ONE, modulus)

    def atom(self, modulus: int = 0) -> Form:
        """A new unknown."""
        self._count += 1
        return Form(_alone(self._count), _ONE, modulus)

    def function(self, key: Hashable, operands: Sequence[Form], modulus: int = 0) -> Form:
        """An unknown function, told from others by `key`, of forms."""
        known = self._functions.setdefault(key, [])
        for given, result in known:
            if all(map(self.equal, given, operands)):
                return result
        result = self.atom(modulus)
        known.append((tuple(operands), result))
        return result

    def add(self, a: Form, b: Form) -> Form:
        if a.under == b.under:
            return self._form(self._sum([*a.over, *b.over], a.modulus), a.under, a.modulus)
        over = self._sum([*self._product(a.over, b.under), *self._product(b.over, a.under)], 0)
        return self._form(over, self._product(a.under, b.under), 0)

    def multiply(self, a: Form, b: Form) -> Form:
        over, under = self._product(a.over, b.over, a.modulus), self._product(a.under, b.under)
        return self._form(over, under, a.modulus)

    def negate(self, a: Form) -> Form:
        return self.multiply(self.constant(-1, a.modulus), a)

    def divide(self, a: Form, b: Form) -> Form:
        """Of real or complex numbers. What a division by zero gives is left open."""
        return self._form(self._product(a.over, b.under), self._product(a.under, b.over), 0) if b.over else self.atom()

    def power(self, a: Form, exponent: int) -> Form:
        if exponent < 0:
            return self.divide(self.constant(1), self.power(a, -exponent))
        result = self.constant(1, a.modulus)
        for _ in range(exponent):
            result = self.multiply(result, a)
        return result

    def exp(self, a: Form) -> Form:
        factor, rest = self.constant(1), []
        for monomial, coefficient in self._whole(a):
            atom = _bare(monomial)
            if atom in self._logarithms and isinstance(coefficient, int):
                factor = self.multiply(factor, self.power(self._logarithms[atom], coefficient))
            else:
                rest.append((monomial, coefficient))
        return self.multiply(factor, Form(((((), self._number(tuple(rest))), 1),),))

    def log(self, a: Form) -> Form:
        if a.under == _ONE and len(a.over) == 1:
            ((powers, exponent), coefficient), = a.over
            if not powers and coefficient == 1:
                return Form(self._exponents[exponent])
        return self._inverse(elementwise.log, self._logarithms, a)

    def sqrt(self, a: Form) -> Form:
        return self._inverse(elementwise.sqrt, self._roots, a)

    def _inverse(self, key: str, known: dict[int, Form], a: Form) -> Form:
        found = self.function(key, [a])
        known[_bare(found.over[0][0])] = a
        return found

    def together(self, kind: str, a: Form, b: Form) -> Form:
        """Of two forms what is associative, commutative, and for equal operands the operand, or for kind "xor" zero: the
        maximum ("max ..."), the minimum ("min ..."), "and" and "or"."""
        members: list[Form] = []
        for form in (*self._members(kind, a), *self._members(kind, b)):
            place = next((k for k, m in enumerate(members) if self.equal(m, form)), None)
            if place is None:
                members.append(form)
            elif kind == elementwise.xor:
                del members[place]
        if len(members) < 2:
            return members[0] if members else self.constant(0, a.modulus)
        for atom, (known, others) in self._sets.items():
            if known == kind and self._same(others, members):
                return Form(_alone(atom), _ONE, a.modulus)
        result = self.atom(a.modulus)
        self._sets[_bare(result.over[0][0])] = kind, tuple(members)
        return result

    # ---- comparing and replacing

    def equal(self, a: Form, b: Form) -> bool:
        """Whether two forms are equal for all values of their atoms. False may also mean that it is not known."""
        if a == b:
            return True
        if a.modulus or b.modulus:
            return False
        if self._product(a.over, b.under) == self._product(b.over, a.under):
            return True
        for kind in {kind for atom in self._bare_atoms(a, b) if atom in self._sets for kind in [self._sets[atom][0]]}:
            some, others = self._members(kind, a), self._members(kind, b)
            if (some, others) != ((a,), (b,)) and self._same(some, others):
                return True
        if any(atom in self._logarithms for atom in self._bare_atoms(a, b)):
            a, b = self.exp(a), self.exp(b)
            return self._product(a.over, b.under) == self._product(b.over, a.under)
        return False

    def replaced(self, a: Form, by: dict[int, Form]) -> Form:
        """The form with other forms in place of atoms, but for those inside unknown functions."""
        return self._replaced(a, by.get) if by else a

    def atom_of(self, a: Form) -> int:
        """The number of the atom that a form is; 0 for any other."""
        return _bare(a.over[0][0]) if a.under == _ONE and len(a.over) == 1 and a.over[0][1] == 1 else 0

    # ---- sums

    def _form(self, over: Sum, under: Sum, modulus: int) -> Form:
        """A quotient in which no root stands squared."""
        form = Form(over, under if over else _ONE, modulus)
        if not self._roots or not any(atom in self._roots and power > 1 for (powers, _), _ in (*over, *under)
                                      for atom, power in powers):
            return form
        return self._replaced(form, lambda _: None)

    def _replaced(self, a: Form, by: Callable[[int], Form | None]) -> Form:
        over, under = self._rebuilt(a.over, by, a.modulus), self._rebuilt(a.under, by, 0)
        return over if a.modulus else self.divide(over, under)

    def _rebuilt(self, terms: Sum, by: Callable[[int], Form | None], modulus: int) -> Form:
        total = self.constant(0, modulus)
        for (powers, exponent), coefficient in terms:
            part = Form(((_UNIT, coefficient),), _ONE, modulus)
            if exponent:
                part = self.multiply(part, self.exp(self._rebuilt(self._exponents[exponent], by, 0)))
            for atom, power in powers:
                new = by(atom)
                if new is None and atom in self._roots and power > 1:
                    part, power = self.multiply(part, self.power(self._roots[atom], power // 2)), power % 2
                base = Form(_alone(atom), _ONE, modulus) if new is None else new
                part = self.multiply(part, self.power(base, power))
            total = self.add(total, part)
        return total

    def _sum(self, terms: Iterable[tuple[Monomial, Any]], modulus: int) -> Sum:
        found: dict[Monomial, Any] = {}
        for monomial, coefficient in terms:
            found[monomial] = found.get(monomial, 0) + coefficient
        if modulus:
            found = {m: c % modulus for m, c in found.items()}
        if len(found) > MOST:
            raise TooLarge
        return tuple(sorted(((m, c) for m, c in found.items() if c), key=lambda term: term[0]))

    def _product(self, a: Sum, b: Sum, modulus: int = 0) -> Sum:
        if a == _ONE or b == _ONE:
            return b if a == _ONE else a
        if len(a) * len(b) > MOST ** 2:
            raise TooLarge
        return self._sum(((self._times(m, n), c * d) for m, c in a for n, d in b), modulus)

    def _times(self, m: Monomial, n: Monomial) -> Monomial:
        powers = dict(m[0])
        for atom, power in n[0]:
            powers[atom] = powers.get(atom, 0) + power
        exponent = m[1] or n[1]
        if m[1] and n[1]:
            exponent = self._number(self._sum([*self._exponents[m[1]], *self._exponents[n[1]]], 0))
        return tuple(sorted(powers.items())), exponent

    def _number(self, exponent: Sum) -> int:
        if exponent not in self._numbers:
            self._numbers[exponent] = len(self._exponents)
            self._exponents.append(exponent)
        return self._numbers[exponent]

    def _whole(self, a: Form) -> Sum:
        """A form as a sum: a quotient by more than a number counts as unknown."""
        if a.under == _ONE:
            return a.over
        if len(a.under) == 1 and a.under[0][0] == _UNIT:
            return tuple((m, _exact(Fraction(c) / a.under[0][1])) for m, c in a.over)
        return self.function("quotient", [a]).over

    # ---- sets

    def _bare_atoms(self, *forms: Form) -> set[int]:
        return {_bare(monomial) for form in forms for monomial, _ in form.over}

    def _members(self, kind: str, a: Form) -> tuple[Form, ...]:
        """The forms whose maximum (or whatever the kind is) a form is."""
        sets = [(monomial, _bare(monomial)) for monomial, coefficient in a.over
                if coefficient == 1 and self._sets.get(_bare(monomial), ("",))[0] == kind] if a.under == _ONE else []
        if len(sets) != 1 or (a.modulus and len(a.over) > 1):  # sums of integers wrap, so they do not keep the order
            return (a,)
        (monomial, atom), = sets
        rest = Form(tuple(term for term in a.over if term[0] != monomial), _ONE, a.modulus)
        return tuple(self.add(member, rest) for member in self._sets[atom][1])

    def _same(self, some: Sequence[Form], others: Sequence[Form]) -> bool:
        """Whether each of some forms is one of the others, and the other way round."""
        return all(any(self.equal(a, b) for b in others) for a in some) and all(
            any(self.equal(a, b) for a in some) for b in others)


def _exact(number: Any) -> int | Fraction:
    """A number without rounding, as an int where it is one: those are faster."""
    exact = Fraction(number)
    return exact.numerator if exact.denominator == 1 else exact


def _alone(atom: int) -> Sum:
    """An atom as a sum."""
    return (((((atom, 1),), 0), 1),)


def _bare(monomial: Monomial) -> int:
    """The atom that a monomial is, or 0."""
    powers, exponent = monomial
    return powers[0][0] if not exponent and len(powers) == 1 and powers[0][1] == 1 else 0
