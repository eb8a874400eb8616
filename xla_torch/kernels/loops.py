"""Loops and branches at run time. Bodies are GraphModules over flat tensors; their `forward` is called directly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from ..core import progress
from ..core.budget import running, stepwise
from .native import NativeLoop

Tensors = tuple[torch.Tensor, ...]
_T = TypeVar("_T")


def _is_limited() -> bool:
    return not torch.compiler.is_compiling() and running() is not None


def _counted(steps: Iterable[_T]) -> Iterable[_T]:
    # torch.compile follows loops step by step, and stops at what asks for limits.
    return steps if torch.compiler.is_compiling() else stepwise(steps)


def _begins(native: NativeLoop, carried: Tensors, fixed: Tensors) -> bool:
    """Whether native code of the loop is there and takes all of its steps."""
    return native.is_there() and not _is_limited() and native.takes(carried, fixed)


def counted_loop(body: torch.nn.Module, counter: tuple[int, int, int], carried: Tensors, invariant: Tensors,
                 native: NativeLoop | None = None, fixed: Tensors = ()) -> Tensors:
    """Run `body(i, *carried, *invariant)` for i in range(*counter); each result is the next `carried`.

    The counter is a Python integer and nothing waits for the device. A `native` loop takes over when it is due; `fixed` are all
    of its carries that do not change.
    """
    if native is not None and _begins(native, carried, fixed):
        return native.finish((counter[0],), carried, fixed)[1]
    step = body.forward
    watch = None if native is None or _is_limited() else native.watch(carried, fixed, len(range(*counter)))
    for i in _counted(progress.steps(range(*counter), "loop")):
        if watch is not None and watch.is_due():
            assert native is not None
            return native.finish((i,), carried, fixed)[1]
        carried = step(i, *carried, *invariant)
    if watch is not None:
        watch.end()
    return carried


def while_loop(condition: torch.nn.Module, body: torch.nn.Module, counters: tuple[int, ...], steps: tuple[tuple[int, int], ...],
               carried: Tensors, invariant: Tensors, native: NativeLoop | None = None, fixed: Tensors = ()) -> tuple[Any, ...]:
    """Run `body(*counters, *carried, *invariant)` while the condition of the same values holds; each result is the next
    `carried`. Returns the last counters and carried values.

    `steps` are what is added to the counters, with their widths in bits. A condition on tensors waits for the device once in
    each iteration, one on Python integers never does. A `native` loop takes over as in `counted_loop`.
    """
    if native is not None and _begins(native, carried, fixed):
        counters, carried = native.finish(counters, carried, fixed)
        return *counters, *carried
    holds, step = condition.forward, body.forward
    watch = None if native is None or _is_limited() else native.watch(carried, fixed)
    for _ in _counted(progress.steps(itertools.count(), "loop")):
        if watch is not None and watch.is_due():
            assert native is not None
            counters, carried = native.finish(counters, carried, fixed)
            return *counters, *carried
        if not holds(*counters, *carried, *invariant)[0]:
            break
        carried = step(*counters, *carried, *invariant)
        counters = tuple([_wrapped(i + by, bits) for i, (by, bits) in zip(counters, steps, strict=True)])
    if watch is not None:
        watch.end()
    return *counters, *carried


def _wrapped(number: int, bits: int) -> int:
    half = 1 << bits - 1
    return (number + half) % (2 * half) - half


def masked_while(condition: Callable[..., Tensors], body: Callable[..., Tensors], carried: Tensors) -> Tensors:
    """A while loop that runs for every element at once: an element's carry stays as it is once its condition fails.

    The carried arrays broadcast against each other. The loop ends when no element goes on; each step waits for the device once.
    """
    carried = tuple(torch.broadcast_tensors(*carried))
    active = condition(*carried)[0].expand(carried[0].shape)
    for _ in _counted(itertools.count()):
        if not active.any():
            break
        moved = body(*carried)
        carried = tuple(torch.where(active, new, old) for new, old in zip(moved, carried, strict=True))
        active = active & condition(*carried)[0]
    return carried


def on_host(number: torch.Tensor) -> int:
    """A 0-dimensional integer tensor as a Python integer: waits for the device."""
    return int(number)


def conditional(selector: Any, branches: Sequence[torch.nn.Module], operands: Sequence[Tensors]) -> Tensors:
    """Run the branch that the selector (a number, or a 0-dimensional tensor, for which it waits) chooses."""
    index = branch_index(selector.item() if isinstance(selector, torch.Tensor) else selector, len(branches))
    return branches[index].forward(*operands[index])


def branch_index(selector: Any, count: int) -> int:
    """Which of `count` branches runs: for a boolean, 0 when true; for an index out of range, the last."""
    if isinstance(selector, bool):
        return 0 if selector else 1
    return selector if 0 <= selector < count else count - 1
