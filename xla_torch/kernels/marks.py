"""Marks on kernels that the memory plan reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

FRESH: set[Callable[..., Any]] = set()
"""Kernels that return one tensor, which shares memory with nothing."""

FRESH_TUPLES: set[Callable[..., Any]] = set()
"""Kernels that return a tuple of tensors, none of which shares memory with an operand or with another."""


ELEMENTWISE: set[Callable[..., Any]] = set()
"""Kernels of which each result element depends on the operands' elements at the same place only. They are fresh."""


def elementwise(function: _Function) -> _Function:
    """The kernel works element by element: it may run on blocks of its operands. Its result shares memory with nothing."""
    ELEMENTWISE.add(function)
    return fresh(function)


def fresh(function: _Function) -> _Function:
    """The kernel's result shares memory with nothing."""
    FRESH.add(function)
    return function


def fresh_tuple(function: _Function) -> _Function:
    """The kernel's results share memory with nothing, not with each other either."""
    FRESH_TUPLES.add(function)
    return function
