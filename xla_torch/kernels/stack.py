"""Stacks at run time: what a loop of unknown length keeps of each iteration for the way back.

A stack is None while nothing is on it, a cell ``(value, stack below)``, or, where it comes from another program, one tensor of
all its rows. Cells never change, so a stack may have many readers; a pushed value is kept as it is, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Stack = None | tuple[torch.Tensor, Any] | torch.Tensor


def new() -> Stack:
    """A stack with nothing on it."""
    return None


def push(stack: Stack, value: torch.Tensor) -> Stack:
    """The stack with a value on top. A view of much larger memory is copied, so that the stack does not keep that alive."""
    if value.untyped_storage().nbytes() > 2 * value.nbytes:
        value = value.clone()
    return value, stack


def pop(stack: Stack, dims: Sequence[int], dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, Any]:
    """The value on top, and the stack below it. Below the first value there are zeros."""
    cell = _opened(stack) if isinstance(stack, torch.Tensor) else stack
    return (torch.zeros(tuple(dims), dtype=dtype, device=device), None) if cell is None else cell


def packed(stack: Stack, dims: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The stack as one tensor ``[values, *dims]``, the first value first."""
    rows: list[torch.Tensor] = []
    while isinstance(stack, tuple):
        value, stack = stack
        rows.append(value)
    if rows:
        top = torch.stack(rows[::-1])
        return top if stack is None else torch.cat([stack, top])
    return torch.empty((0, *dims), dtype=dtype, device=device) if stack is None else stack


def _opened(rows: torch.Tensor) -> tuple[torch.Tensor, Any] | None:
    """The cells of a stack in one tensor."""
    cell = None
    for row in rows.unbind(0):
        cell = (row, cell)
    return cell
