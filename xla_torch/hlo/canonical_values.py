"""What is given from Python as an attribute's value, in canonical form: lists become tuples, NumPy's integers ints. Nothing is
rounded or cut off on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from ..core import sizes
from ..core.errors import InvalidArgument

TUPLES: type[Any] = tuple
LISTS: tuple[type[Any], ...] = (list, tuple)
"""For isinstance: a type checker then takes elements for Any, and not for of an unknown type."""


def wrong(expected: str, value: object) -> InvalidArgument:
    """The error for a value of the wrong kind."""
    return InvalidArgument("not a value for this attribute", got=repr(value), expected=expected)


def sequence_of(value: Any, expected: str) -> tuple[Any, ...]:
    """The values of a sequence. Raises InvalidArgument for anything else, texts and dictionaries included."""
    given: Iterable[Any] = value
    if isinstance(value, str | bytes | Mapping | AbstractSet) or not isinstance(value, Iterable):
        raise wrong(expected, given)
    try:
        return tuple(given)
    except TypeError:  # an array of rank 0
        raise wrong(expected, given) from None


def canonical_numbers(numbers: Any) -> None:
    """Put the fields of dimension numbers, which are integers or sequences of them, into canonical form. Raises
    InvalidArgument for others."""
    for field in dataclasses.fields(numbers):
        given, single = getattr(numbers, field.name), str(field.type) == "int"
        if type(given) is int if single else isinstance(given, TUPLES) and all(type(n) is int for n in given):
            continue
        try:
            object.__setattr__(numbers, field.name, index_of(given) if single else integers_of(given))
        except InvalidArgument as error:
            error.what = f"{field.name} is of the wrong kind"
            raise error.located(type(numbers).__name__) from None


def index_of(value: Any) -> int:
    """The value as an int. Raises InvalidArgument for what is no integer."""
    if isinstance(value, bool):
        raise wrong("an integer", value)
    try:
        return sizes.index_of(value)
    except TypeError:
        raise wrong("an integer", value) from None


def integers_of(value: Any) -> tuple[int, ...]:
    """The integers of a sequence. Raises InvalidArgument for anything else."""
    return tuple(map(index_of, sequence_of(value, "a sequence of integers")))


def triples_of(value: Any, expected: str, default: int) -> tuple[tuple[int, int, int], ...]:
    """Sequences of three integers, of which the last may be left out. Raises InvalidArgument for anything else."""
    entries = tuple(map(integers_of, sequence_of(value, expected)))
    if not all(2 <= len(entry) <= 3 for entry in entries):
        raise wrong(expected, value)
    return tuple((e[0], e[1], e[2] if len(e) > 2 else default) for e in entries)


def text_of(value: Any) -> str:
    """The value if it is a text. Raises InvalidArgument for anything else."""
    if not isinstance(value, str):
        raise wrong("a string", value)
    return value
