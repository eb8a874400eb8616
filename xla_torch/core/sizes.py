"""Sizes that stand for many: integers that remember how they follow from the sizes of a program's arguments.

A program of unknown sizes is made for one combination of sizes out of `Size` objects in the place of integers, as torch's SymInts
are. What is done with them is exact: arithmetic gives a Size again; whatever asks more of one than its expression (a comparison,
an index, a key of a dictionary) becomes a guard of its `Unknowns`. So what was made holds for every combination of sizes that
passes the same guards (`Unknowns.holds`), with other numbers in the places of its Sizes and nothing else changed.

Types say `int` of sizes wherever a Size may stand for one. Yet it is none, for C code reads the value of an `int` without
asking: of a Size it must ask `__index__`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Integer: TypeAlias = "int | Size"
Monomial = tuple[Any, ...]
"""A product of unknowns: their names, sorted, and quotients ``(key, key)`` of what is divided and by what. Empty for 1."""
Key = tuple[tuple[Monomial, int], ...]
"""A polynomial, so that equal ones are equal: its monomials and their factors, sorted."""


MARK = "\ue010"
"""Around sizes in text."""


class Unknowns:
    """The unknown sizes that one program is made for: their values while it is made, and all guards on them."""

    def __init__(self, values: Mapping[str, int]):
        self.values = dict(values)
        self._guards: dict[tuple[Key, str], bool] = {}

    def size(self, name: str) -> Size:
        """The unknown of this name."""
        return Size(self, {(name,): 1}, self.values[name])

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether other values pass all guards that were made with the program."""
        return all(_TESTS[test](_evaluated(key, values)) == answer for (key, test), answer in self._guards.items())

    def guard(self, size: Size, test: str) -> bool:
        """Whether a size passes a test, which becomes a guard."""
        answer = _TESTS[test](size.value)
        self._guards[size.key, test] = answer
        return answer


_TESTS: dict[str, Callable[[int], bool]] = {"zero": lambda n: n == 0, "negative": lambda n: n < 0}


class Size:
    """A polynomial of unknown sizes with integer factors, and its value for those that the program is made for."""

    __slots__ = ("_key", "terms", "unknowns", "value")

    def __init__(self, unknowns: Unknowns, terms: dict[Monomial, int], value: int):
        self.unknowns, self.terms, self.value = unknowns, terms, value
        self._key: Key | None = None

    @property
    def key(self) -> Key:
        """What the size is, for whoever looks for the same again: that is no guard."""
        if self._key is None:
            self._key = tuple(sorted(self.terms.items(), key=repr))
        return self._key

    def at(self, values: Mapping[str, int]) -> int:
        """The size for certain values of the unknowns."""
        return _evaluated(self.key, values)

    # ---- what tells its value

    def __index__(self) -> int:
        if not self.unknowns.guard(self - self.value, "zero"):
            raise AssertionError(f"{self.key} is not {self.value}")
        return self.value

    __int__ = __trunc__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __complex__(self) -> complex:
        return complex(int(self))

    def __hash__(self) -> int:
        return hash(int(self))

    def __str__(self) -> str:
        """What it is, between marks that make it nothing that anyone reads as a number, a shape or Python: text is made for
        messages that nobody sees, and whoever would compute with it must find out."""
        terms = (f"{n}*{'*'.join(map(str, m))}" if m else str(n) for m, n in self.key)
        return f"{MARK}{' + '.join(terms)}{MARK}"

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return str(self)

    def __bool__(self) -> bool:
        return self != 0

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)

    # ---- comparisons

    def __eq__(self, other: object) -> bool:
        return self._compared(other, lambda d: _guarded(d, "zero"))

    def __ne__(self, other: object) -> bool:
        return self._compared(other, lambda d: not _guarded(d, "zero"))

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, lambda d: _guarded(d, "negative"))

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, lambda d: not _guarded(d, "negative"))

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, lambda d: _guarded(-d, "negative"))

    def __le__(self, other: Any) -> bool:
        return self._compared(other, lambda d: not _guarded(-d, "negative"))

    def _compared(self, other: Any, decide: Callable[[Integer], bool]) -> bool:
        difference: Any = int(self) - other if isinstance(other, float) else self.__sub__(other)
        return NotImplemented if difference is NotImplemented else decide(difference)

    # ---- arithmetic

    def __add__(self, other: Any) -> Any:
        terms, value = _operand(other)
        if terms is None:
            return NotImplemented
        return self._made(_sum(self.terms, terms), self.value + value)

    def __sub__(self, other: Any) -> Any:
        terms, value = _operand(other)
        if terms is None:
            return NotImplemented
        return self._made(_sum(self.terms, terms, -1), self.value - value)

    def __rsub__(self, other: Any) -> Any:
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> Any:
        terms, value = _operand(other)
        if terms is None:
            return NotImplemented
        product: dict[Monomial, int] = {}
        for one, a in self.terms.items():
            for two, b in terms.items():
                both = tuple(sorted((*one, *two), key=repr)) if one and two else one or two
                product[both] = product.get(both, 0) + a * b
        return self._made({m: n for m, n in product.items() if n}, self.value * value)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pow__(self, exponent: Any) -> Any:
        exponent = operator.index(exponent)
        if not 0 <= exponent <= 8:
            return int(self) ** exponent
        found: Any = 1
        for _ in range(exponent):
            found = self * found
        return found

    def __floordiv__(self, other: Any) -> Any:
        return NotImplemented if _operand(other)[0] is None else self.__divmod__(other)[0]

    def __mod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other)[0] is None else self.__divmod__(other)[1]

    def __divmod__(self, other: Any) -> Any:
        return _divided(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return NotImplemented if _operand(other)[0] is None else _divided(other, self)[0]

    def __rmod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other)[0] is None else _divided(other, self)[1]

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if _operand(other)[0] is None else _divided(other, self)

    def _made(self, terms: dict[Monomial, int], value: int) -> Integer:
        """The result of arithmetic: an int where nothing unknown is left."""
        return Size(self.unknowns, terms, value) if any(terms) else terms.get((), 0)


def _by_value(function: Callable[..., Any]) -> Callable[[Size, Any], Any]:
    def of(size: Size, *others: Any) -> Any:
        if not all(isinstance(o, (int, float, complex, Size)) for o in others):
            return NotImplemented
        return function(int(size), *(int(o) if isinstance(o, Size) else o for o in others))

    return of


def _reflected(function: Callable[..., Any]) -> Callable[[Size, Any], Any]:
    return _by_value(lambda a, b: function(b, a))


for _function in (operator.truediv, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
    _name = _function.__name__.strip("_")
    setattr(Size, f"__{_name}__", _by_value(_function))
    setattr(Size, f"__r{_name}__", _reflected(_function))
Size.__rpow__ = _reflected(operator.pow)  # pyright: ignore[reportAttributeAccessIssue]
Size.__invert__ = _by_value(operator.invert)  # pyright: ignore[reportAttributeAccessIssue]


def integer(value: Any) -> int:
    """``int(value)``, but without a guard on a Size."""
    return value if type(value) is int or type(value) is Size else int(value)  # pyright: ignore[reportReturnType]


def index_of(value: Any) -> int:
    """``operator.index(value)``, but without a guard on a Size. Raises TypeError for what is no integer."""
    return value if type(value) is Size else operator.index(value)  # pyright: ignore[reportReturnType]


def unnamed(value: Any) -> Any:
    """A value by which equal sizes are found again in a dictionary of what is made for them: a Size by what it is, so that
    it is no guard. Sizes that differ, but not for these values of the unknowns, are then not found, and made again."""
    if type(value) is Size:
        return ("size", value.key)
    if type(value) is tuple:
        return tuple(map(unnamed, value))
    fields = getattr(type(value), "__dataclass_fields__", ())
    found = [getattr(value, name) for name in fields]
    return (type(value), *map(unnamed, found)) if any(type(v) is Size for v in found) else value


# ------------------------------------------------------------------------------------------------------- polynomials


def _operand(other: Any) -> tuple[dict[Monomial, int] | None, int]:
    """The terms and the value of what stands beside a Size; None for what is no integer."""
    if type(other) is Size:
        return other.terms, other.value
    if isinstance(other, (int, np.integer)):
        return {(): int(other)} if other else {}, int(other)
    return None, 0


def _sum(one: dict[Monomial, int], two: dict[Monomial, int], sign: int = 1) -> dict[Monomial, int]:
    found = dict(one)
    for monomial, factor in two.items():
        factor = found.get(monomial, 0) + sign * factor
        if factor:
            found[monomial] = factor
        else:
            found.pop(monomial, None)
    return found


def _evaluated(key: Key, values: Mapping[str, int]) -> int:
    total = 0
    for monomial, factor in key:
        for atom in monomial:
            factor *= values[atom] if isinstance(atom, str) else _evaluated(atom[0], values) // _evaluated(atom[1], values)
        total += factor
    return total


def _guarded(size: Integer, test: str) -> bool:
    """Whether a number passes a test; a guard, unless it passes for all sizes or for none."""
    if not isinstance(size, Size):
        return _TESTS[test](size)
    least = _at_least(size)
    if least is not None and (least > 0 or (least == 0 and test == "negative")):
        return False
    if test == "zero" and (most := _at_least(-size)) is not None and most > 0:
        return False
    return size.unknowns.guard(size, test)


def _at_least(size: Any) -> int | None:
    """What a sum of sizes cannot be less than, as no size is negative; None where anything may be."""
    if any(m and (n < 0 or not _no_negative(m)) for m, n in size.terms.items()):
        return None
    return size.terms.get((), 0)


def _no_negative(monomial: Monomial) -> bool:
    return all(isinstance(a, str) or all(n >= 0 for key in a for _, n in key) for a in monomial)


def _divided(one: Integer, other: Integer) -> tuple[Integer, Integer]:
    """Quotient, rounded down, and rest. Raises ZeroDivisionError."""
    if other == 0:
        raise ZeroDivisionError("division by a size of 0")
    (terms, value), (by, divisor) = _operand(one), _operand(other)
    unknowns = one.unknowns if isinstance(one, Size) else other.unknowns if isinstance(other, Size) else None
    assert terms is not None
    assert by is not None
    assert unknowns is not None
    whole, rest = _whole_part(terms, by)
    quotient: Integer = Size(unknowns, whole, sum(n * Size(unknowns, {m: 1}, 0).at(unknowns.values) for m, n in whole.items())
                             ) if any(whole) else whole.get((), 0)
    if rest:
        left = Size(unknowns, rest, 0).key
        if any(rest) or any(by):
            atom = (left, Size(unknowns, by, 0).key)
            part = Size(unknowns, {(atom,): 1}, _evaluated(left, unknowns.values) // divisor)
            quotient = part + quotient
        else:
            quotient = quotient + rest[()] // divisor
    assert isinstance(quotient, int) or quotient.value == value // divisor
    return quotient, one - other * quotient


def _whole_part(terms: dict[Monomial, int], by: dict[Monomial, int]) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """The terms that are multiples of the divisor, divided by it, and those that are not."""
    if len(by) != 1:
        return ({(): 1}, {}) if terms == by else ({}, terms)
    (divisor, number), = by.items()
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, factor in terms.items():
        left = _without(monomial, divisor)
        if left is not None and factor % number == 0:
            whole[left] = factor // number
        elif not monomial and not divisor and abs(number) and factor // number:
            whole[()] = factor // number
            rest[()] = factor % number
        else:
            rest[monomial] = factor
    return whole, {m: n for m, n in rest.items() if n}


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def common_factors(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """The finest split of both lists into runs of equal product, in order."""
    runs, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        start_i, start_j = i, j
        product_i = product_j = 1
        while True:
            if i < len(old) and (product_i <= product_j or j == len(new)):
                product_i *= old[i]
                i += 1
            elif j < len(new):
                product_j *= new[j]
                j += 1
            if product_i == product_j or (i == len(old) and j == len(new)):
                break
        runs.append((range(start_i, i), range(start_j, j)))
    return runs
