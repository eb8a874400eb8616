"""Tapes at run time: what a loop of unknown length keeps of each iteration for the way back.

A tape is None while nothing is on it, a cell ``(value, tape below)``, or, where it comes from another program, one tensor of
all its rows. Cells never change, so a tape may have many readers; a pushed value is kept as it is, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tape = None | tuple[torch.Tensor, Any] | torch.Tensor


def new() -> Tape:
    """A tape with nothing on it."""
    return None


def push(tape: Tape, value: torch.Tensor) -> Tape:
    """The tape with a value on top. A view of much larger memory is copied, so that the tape does not keep that alive."""
    if value.untyped_storage().nbytes() > 2 * value.nbytes:
        value = value.clone()
    return value, tape


def pop(tape: Tape, dims: Sequence[int], dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, Any]:
    """The value on top, and the tape below it. Below the first value there are zeros."""
    cell = _opened(tape) if isinstance(tape, torch.Tensor) else tape
    return (torch.zeros(tuple(dims), dtype=dtype, device=device), None) if cell is None else cell


def packed(tape: Tape, dims: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tape as one tensor ``[values, *dims]``, the first value first."""
    rows: list[torch.Tensor] = []
    while isinstance(tape, tuple):
        value, tape = tape
        rows.append(value)
    if rows:
        top = torch.stack(rows[::-1])
        return top if tape is None else torch.cat([tape, top])
    return torch.empty((0, *dims), dtype=dtype, device=device) if tape is None else tape


def _opened(rows: torch.Tensor) -> tuple[torch.Tensor, Any] | None:
    """The cells of a tape in one tensor."""
    cell = None
    for row in rows.unbind(0):
        cell = (row, cell)
    return cell
