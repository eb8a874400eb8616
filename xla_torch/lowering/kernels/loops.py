"""Loops and branches at run time. Bodies are GraphModules over flat tensors; their `forward` is called directly."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ... import progress

Tensors = tuple[torch.Tensor, ...]


def counted_loop(body: torch.nn.Module, counter: tuple[int, int, int], carried: Tensors, invariant: Tensors) -> Tensors:
    """Run `body(i, *carried, *invariant)` for i in range(*counter); each result is the next `carried`.

    The counter is a Python integer and nothing waits for the device.
    """
    step = body.forward
    for i in progress.steps(range(*counter), "loop"):
        carried = step(i, *carried, *invariant)
    return carried


def while_loop(condition: torch.nn.Module, body: torch.nn.Module, carried: Tensors, invariant: Tensors) -> Tensors:
    """Run `body` while `condition` holds. The condition is data, so each iteration waits for the device once."""
    holds, step = condition.forward, body.forward
    for _ in progress.steps(itertools.count(), "loop"):
        if not holds(*carried, *invariant)[0]:
            break
        carried = step(*carried, *invariant)
    return carried


def conditional(selector: Any, branches: Sequence[torch.nn.Module], operands: Sequence[Tensors]) -> Tensors:
    """Run the branch that the selector (a number, or a 0-dimensional tensor, for which it waits) chooses."""
    index = branch_index(selector.item() if isinstance(selector, torch.Tensor) else selector, len(branches))
    return branches[index].forward(*operands[index])


def branch_index(selector: Any, count: int) -> int:
    """Which of `count` branches runs: for a boolean, 0 when true; for an index out of range, the last."""
    if isinstance(selector, bool):
        return 0 if selector else 1
    return selector if 0 <= selector < count else count - 1
