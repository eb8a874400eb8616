"""Attributes of operations as HLO's values: each reader takes the operation and the attribute's name.

Older programs write as ``dense<...>`` what newer ones write as ``array<...>`` or as one number; both read alike.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument
from ..mlir.ir import Elements, Enum, Operation, Struct, Symbol

_MISSING: Any = object()


def _attribute(operation: Operation, name: str, default: Any) -> Any:
    value = operation.attributes.get(name, default)
    if value is _MISSING:
        raise InvalidArgument(f"attribute {name!r} is expected but not seen", subject=operation.name, where=operation.where)
    return value


def _wrong(operation: Operation, name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(f"attribute {name!r} has another kind of value", subject=operation.name, got=repr(value)[:80],
                           expected=expected, where=operation.where)


def integers(operation: Operation, name: str, default: Any = _MISSING) -> tuple[int, ...]:
    """``array<i64: 1, 2>``, ``dense<[1, 2]> : tensor<2xi64>``, ``[1, 2]`` or one integer."""
    value = _attribute(operation, name, default)
    if isinstance(value, Elements):
        return tuple(value.value.reshape(-1).tolist())
    try:
        return tuple(map(operator.index, value if isinstance(value, tuple) else (value,)))
    except TypeError:
        raise _wrong(operation, name, value, "integers") from None


def flags(operation: Operation, name: str, default: Any = _MISSING) -> tuple[bool, ...]:
    """As `integers`, of truth values."""
    return tuple(map(bool, integers(operation, name, default)))


def pairs(operation: Operation, name: str, count: int | None = None) -> tuple[tuple[int, int], ...]:
    """``dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>``: two numbers for each of `count` dimensions, zeros where nothing stands."""
    value = operation.attributes.get(name)
    if value is None:
        return ((0, 0),) * (count or 0)
    rows = rows_of(operation, name)
    if any(len(row) != 2 for row in rows):
        rows = tuple(zip(*[iter(integers(operation, name))] * 2, strict=True))  # written flat
    if count is not None and len(rows) != count:
        raise _wrong(operation, name, value, f"{count} pairs")
    return tuple((a, b) for a, b in rows)


def rows_of(operation: Operation, name: str) -> tuple[tuple[int, ...], ...]:
    """A matrix of integers as its rows. Negative numbers at the end of a row fill it up and are left away, where all rows are
    replica groups (`replica_groups`); here they stay."""
    value = _attribute(operation, name, _MISSING)
    matrix = value.value if isinstance(value, Elements) else np.asarray(value, np.int64)
    if matrix.size == 0:
        return ()
    if matrix.ndim != 2:
        raise _wrong(operation, name, value, "a matrix of integers")
    return tuple(map(tuple, matrix.tolist()))


def integer(operation: Operation, name: str, default: Any = _MISSING) -> int:
    value = _attribute(operation, name, default)
    if isinstance(value, Elements) and value.value.size == 1:
        return int(value.value.reshape(-1)[0])
    try:
        return operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise _wrong(operation, name, value, "an integer") from None


def number(operation: Operation, name: str, default: Any = _MISSING) -> float:
    value = _attribute(operation, name, default)
    if not isinstance(value, (int, float)):
        raise _wrong(operation, name, value, "a number")
    return float(value)


def boolean(operation: Operation, name: str, default: bool = False) -> bool:
    value = operation.attributes.get(name, default)
    if not isinstance(value, (bool, int)):
        raise _wrong(operation, name, value, "true or false")
    return bool(value)


def text(operation: Operation, name: str, default: Any = _MISSING) -> str:
    value = _attribute(operation, name, default)
    if not isinstance(value, str):
        raise _wrong(operation, name, value, "a string")
    return value


def word(operation: Operation, name: str, default: Any = _MISSING) -> str:
    """The value of an enumeration, which old programs also write as a string."""
    value = _attribute(operation, name, default)
    if isinstance(value, Enum):
        return value.value
    if not isinstance(value, str):
        raise _wrong(operation, name, value, "a word")
    return value


def words(operation: Operation, name: str) -> tuple[str, ...]:
    """A list of enumeration values, () where nothing is written."""
    value = operation.attributes.get(name, ())
    if not isinstance(value, tuple):
        raise _wrong(operation, name, value, "a list of words")
    return tuple(v.value if isinstance(v, Enum) else str(v) for v in value)


def fields(operation: Operation, name: str, default: Any = _MISSING) -> dict[str, Any]:
    """The fields of a structure; those that are left out are not there."""
    value = _attribute(operation, name, default)
    if isinstance(value, Struct):
        return value.fields
    if isinstance(value, dict):
        return value
    raise _wrong(operation, name, value, "a structure")


def symbol(operation: Operation, name: str) -> str:
    """The name of a function."""
    value = _attribute(operation, name, _MISSING)
    if not isinstance(value, Symbol):
        raise _wrong(operation, name, value, "the name of a function, as @f")
    return value.name


def elements(operation: Operation, name: str) -> Elements:
    """A constant."""
    value = _attribute(operation, name, _MISSING)
    if not isinstance(value, Elements):
        raise _wrong(operation, name, value, "a constant, as dense<0.0> : tensor<f32>")
    return value
