"""Values in the form of a Shape: a Python tuple for a tuple shape, at its leaves arrays, tokens, or whatever stands for them.

Each walk follows the shape and not the value, so what a leaf is does not matter: a tensor, an XlaOp, a flag, a shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..core.shape import Shape
from .canonical_values import LISTS, TUPLES
from .ir import Token

T = TypeVar("T")

OfLeaves = (Callable[[Shape], Any] | Callable[[Shape, Any], Any] | Callable[[Shape, Any, Any], Any]
            | Callable[[Shape, Any, Any, Any], Any])


def leaves(value: Any, shape: Shape) -> Iterator[tuple[Any, Shape]]:
    """All leaves of a value with their shapes, depth first, tokens among them."""
    if not shape.is_tuple:
        yield value, shape
        return
    for part, own in zip(value, shape.tuple_shapes, strict=True):
        yield from leaves(part, own)


def places(shape: Shape) -> Iterator[tuple[tuple[int, ...], Shape]]:
    """Where the leaves of a shape stand, as the indices that lead to them, with their shapes, in the order of `leaves`."""
    if not shape.is_tuple:
        yield (), shape
    for number, own in enumerate(shape.tuple_shapes if shape.is_tuple else ()):
        yield from (((number, *place), leaf) for place, leaf in places(own))


def arrays(value: Any, shape: Shape) -> list[tuple[Any, Shape]]:
    """The array leaves of a value with their shapes, depth first; tokens are left out."""
    return [(leaf, own) for leaf, own in leaves(value, shape) if own.is_array]


def grouped(flat: Iterable[T], shape: Shape, kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
    """All leaves, in the order of `leaves`, as a value of the shape; its tuples are made by `kind`."""
    return _grouped(iter(flat), shape, kind)


def _grouped(rest: Iterator[Any], shape: Shape, kind: Callable[[Sequence[Any]], Any]) -> Any:
    # A function that calls itself from inside `grouped` would be a reference cycle, which keeps the leaves in memory.
    return kind([_grouped(rest, own, kind) for own in shape.tuple_shapes]) if shape.is_tuple else next(rest)


def from_arrays(flat: Iterable[Any], shape: Shape) -> Any:
    """The inverse of `arrays`: a value with these arrays, and with tokens where the shape has them."""
    rest = iter(flat)
    return grouped((next(rest) if own.is_array else Token() for own in shape.leaves()), shape)


def mapped(function: OfLeaves, shape: Shape, *values: Any, kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
    """`function(own shape, leaf of each value)` at every leaf, in the form of the shape."""
    if not shape.is_tuple:
        return function(shape, *values)
    columns = zip(*values, strict=True) if values else ((),) * len(shape.tuple_shapes)
    return kind([mapped(function, own, *parts, kind=kind)
                 for own, parts in zip(shape.tuple_shapes, columns, strict=True)])


def everywhere(value: object, shape: Shape, kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
    """The same leaf at every place of the shape."""
    return mapped(lambda _: value, shape, kind=kind)


def filled(value: Any, shape: Shape, kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
    """A value in which one leaf may stand for a whole tuple, with that leaf at every place that it stands for."""
    if not shape.is_tuple:
        return value
    parts: Sequence[Any] = value if isinstance(value, LISTS) else (value,) * len(shape.tuple_shapes)
    return kind([filled(part, own, kind) for part, own in zip(parts, shape.tuple_shapes, strict=True)])


@dataclasses.dataclass(frozen=True, slots=True)
class At:
    """A value of a tuple that has something at one place only: made whole for each element, n elements would take n^2 leaves."""

    index: int
    width: int
    part: Any


def combined(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """`function` of the leaves of two values of one form, in each of which one leaf may stand for a whole tuple. Where `left` is
    At one place, the others of `right` stay."""
    if isinstance(left, At):
        whole: tuple[Any, ...] = right if isinstance(right, TUPLES) else (right,) * left.width
        k = left.index
        return *whole[:k], combined(function, left.part, whole[k]), *whole[k + 1:]
    if not isinstance(left, TUPLES) and not isinstance(right, TUPLES):
        return function(left, right)
    width = len(left if isinstance(left, TUPLES) else right)
    lefts: tuple[Any, ...] = left if isinstance(left, TUPLES) else (left,) * width
    rights: tuple[Any, ...] = right if isinstance(right, TUPLES) else (right,) * width
    return tuple(combined(function, a, b) for a, b in zip(lefts, rights, strict=True))
