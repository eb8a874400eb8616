"""Rows of comparisons, of clamp and of select."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xla_torch import ops

from .drawn import Drawn, Row, rows_of
from .elementwise import binary, pair, with_constant
from .kinds import ALL, COMPLEX, INTEGERS, NUMBERS, REALS

EVERY = (*ALL, "f8e8m0fnu")
ORDERED = ("pred", *NUMBERS, "f8e8m0fnu")
DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


def _compare(d: Drawn, compare_type: str | None = None) -> Any:
    """The six directions, in both documented forms."""
    direction = d.choice(*DIRECTIONS)
    if compare_type is None and d.flag():
        dims = d.dims()
        return ops.Compare(d.array(dims), d.array(dims), direction)
    return binary(d, lambda a, b, broadcast_dimensions=(): ops.Compare(a, b, broadcast_dimensions, direction, compare_type))


def _kind_named(d: Drawn) -> Any:
    """The comparison type that the element type has anyway, by its name."""
    return _compare(d, "UNSIGNED" if d.kind == "pred" or d.kind[0] == "u" else "SIGNED" if d.kind[0] == "s" else "FLOAT")


# ------------------------------------------------------------------------------------------- complex order


def _lexicographic(symbol: str) -> Callable[..., list[np.ndarray]]:
    def reference(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        if symbol in ("GT", "GE"):
            a, b = b, a
        last = np.imag(a) <= np.imag(b) if symbol in ("GE", "LE") else np.imag(a) < np.imag(b)
        return [(np.real(a) < np.real(b)) | ((np.real(a) == np.real(b)) & last)]

    return reference


# ------------------------------------------------------------------------------------------- clamp and select


def _clamp(d: Drawn) -> Any:
    """Bounds and operand are scalars or of one shape; a scalar operand meets arrays as well."""
    dims = d.dims()
    sizes = [dims if d.flag() else [] for _ in range(3)]
    return ops.Clamp(*(d.array(s) for s in sizes))


def _clamp_between_constants(d: Drawn) -> Any:
    array = d.array(d.dims())
    least = 1 if d.kind == "f8e8m0fnu" else 0  # it has no zero
    low, high = (least, 1) if d.flag() else (d.constant(least), d.constant(1))
    return ops.Clamp(low, array, high if d.flag() else d.array([]))


def _select(d: Drawn) -> Any:
    """A PRED scalar or array; scalars among the values."""
    dims = d.dims()
    pred = d.array(dims if d.flag() else [], "pred")
    if d.flag():
        return ops.Select(pred, d.array(dims if d.flag() else []), 1)
    return ops.Select(pred, d.array(dims), d.array(dims if d.flag() else []))


def _select_tuples(d: Drawn) -> Any:
    first, second = d.dims(most=2), d.dims(most=2)
    pairs = [(d.array(first), d.array(second, "s32")) for _ in range(2)]
    return ops.Select(d.array([], "pred"), *pairs)


ROWS: list[Row] = [
    *rows_of("Eq Ne", binary, EVERY),
    *rows_of("Ge Gt Le Lt", binary, ORDERED),
    *(row for name in ("Ge", "Gt", "Le", "Lt")
      for row in rows_of(name, pair, COMPLEX, variant="complex", reference=_lexicographic(name.upper()))),
    *rows_of("Eq Ne Ge Gt Le Lt", with_constant, ORDERED, variant="with a constant"),
    *rows_of("EqTotalOrder NeTotalOrder GeTotalOrder GtTotalOrder LeTotalOrder LtTotalOrder", binary,
             ("pred", *INTEGERS, *REALS, "f8e8m0fnu")),
    Row("Compare", _compare, ORDERED),
    Row("Compare", _kind_named, ORDERED, variant="of a named type"),
    Row("Compare", lambda d: _compare(d, "TOTALORDER"), (*REALS, "f8e8m0fnu"), variant="in total order"),
    Row("Clamp", _clamp, ORDERED, unsigned_zero=True),
    Row("Clamp", _clamp_between_constants, ORDERED, variant="between constants", unsigned_zero=True),
    Row("Select", _select, EVERY),
    Row("Select", _select_tuples, EVERY, variant="of tuples", eager=False),
]
