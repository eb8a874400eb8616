"""Observers for the time of a `with`: of every program that runs meanwhile, or of instructions that a pattern names."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..core.errors import ExecutionError, NothingObserved
from ..hlo.ir import Computation, Instruction
from ..hlo.scanner import nearest
from ..runtime.watching import installed, watching
from ..visualization.rows import source_of
from .evaluation import Observer, run_watched
from .steps import Step

Names = str | re.Pattern[str] | None


class CheckFailed(ExecutionError):
    """Raised if a value does not satisfy the predicate of `debug.check`.

    What to do: inspect the instruction that the error names, or its operands with `debug.break_at`.
    """


@dataclasses.dataclass(frozen=True)
class _Watch:
    """Runs programs with all these observers."""

    observers: tuple[Observer, ...]

    def __call__(self, program: str, computation: Computation, tensors: Sequence[torch.Tensor],
                 device: torch.device) -> tuple[torch.Tensor, ...]:
        return run_watched(program, computation, tensors, device, self.see)

    def see(self, step: Step) -> None:
        for observer in self.observers:
            observer(step)


def matches(names: Names, instruction: Instruction) -> bool:
    """Whether a pattern names the instruction: by its name, its op_name, or its source line ``file:line``. Text is a pattern as
    for file names (``*``, ``?``), a compiled expression is searched for; None names all."""
    if names is None:
        return True
    stated = filter(None, (instruction.name, instruction.op_name, source_of(instruction)))
    if isinstance(names, re.Pattern):
        return any(names.search(text) for text in stated)
    return any(fnmatch.fnmatchcase(text, names) for text in stated)


@contextlib.contextmanager
def observed(observer: Observer, names: Names = None, participant: int | None = None) -> Iterator[None]:
    """Call `observer(step)` for each instruction that programs in this block evaluate.

    `names` selects instructions and `participant` one participant. Backward passes are included, and observers may be nested.
    Warns NothingObserved if no program ran or no instruction matched.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> with xla_torch.debug.observed(lambda step: print(step.instruction.name), names="y"):
    ...     result = square(torch.tensor([1.0, -2.0]))
    y
    """
    outer, passed, hit = watching(), set[str](), False

    def seen(step: Step) -> None:
        nonlocal hit
        if (participant is None or step.participant == participant) and matches(names, step.instruction):
            hit = True
            observer(step)
        elif not hit:
            passed.update(filter(None, (step.name, step.op_name)))

    with installed(_Watch((*(outer.observers if isinstance(outer, _Watch) else ()), seen))):
        yield
    if not hit:
        warnings.warn(_nothing(names, participant, passed), stacklevel=4)


def _nothing(names: Names, participant: int | None, passed: set[str]) -> NothingObserved:
    if not passed:
        return NothingObserved("no program ran in this block", subject="xla_torch.debug",
                               hint="call the program, or run its backward pass, inside the `with`")
    stated = names.pattern if isinstance(names, re.Pattern) else names
    of = "" if participant is None else f" of participant {participant}"
    return NothingObserved(f"no instruction{of} that ran has this name, op_name or source", subject="xla_torch.debug", got=stated,
                           hint=nearest(str(stated).strip("*?"), passed))


def break_at(names: Names, callback: Observer) -> contextlib.AbstractContextManager[None]:
    """Call `callback(step)` in this block at each instruction that matches `names`.

    A typical callback is ``lambda step: breakpoint()``.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> with xla_torch.debug.break_at("y", lambda step: print(step.instruction.name)):
    ...     result = square(torch.tensor([1.0, -2.0]))
    y
    """
    return observed(callback, names)


def check(names: Names, holds: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Raise CheckFailed in this block if a value fails `holds(value)`.

    `names` selects the instructions whose values are checked.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> with xla_torch.debug.check("y", lambda value: bool((value >= 0).all())):
    ...     square(torch.tensor([1.0, -2.0]))
    tensor([1., 4.])
    """
    def demand(step: Step) -> None:
        if not holds(step.value):
            raise CheckFailed("a value is not as demanded", subject=step.label, got="; ".join(map(str, step.statistics)),
                              where=step.instruction.where)

    return observed(demand, names)
