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
from .evaluation import Observer, run_watched
from .steps import Step, source_of

Names = str | re.Pattern[str] | None


class CheckFailed(ExecutionError):
    """Raised where a value is not as `debug.check` demands.

    What to do: look at the instruction that it names, or at its operands with `debug.break_at`.
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
    said = filter(None, (instruction.name, instruction.op_name, source_of(instruction)))
    if isinstance(names, re.Pattern):
        return any(names.search(text) for text in said)
    return any(fnmatch.fnmatchcase(text, names) for text in said)


@contextlib.contextmanager
def observed(observer: Observer, names: Names = None, participant: int | None = None) -> Iterator[None]:
    """While this lasts, `observer(step)` sees each instruction that every program of this process evaluates: those that `names`
    fits, of one `participant` or of all. Backward passes are seen too. Observers may stand inside each other.

    Warns of NothingObserved where that was nothing: no program ran meanwhile, or none has an instruction of such a name.

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
        return NothingObserved("no program ran while it was watched", subject="xla_torch.debug",
                               hint="call the program, or go its way back, inside the `with`")
    said = names.pattern if isinstance(names, re.Pattern) else names
    of = "" if participant is None else f" of participant {participant}"
    return NothingObserved(f"no instruction{of} that ran has this name, op_name or source", subject="xla_torch.debug", got=said,
                           hint=nearest(str(said).strip("*?"), passed))


def break_at(names: Names, callback: Observer) -> contextlib.AbstractContextManager[None]:
    """While this lasts, `callback(step)` is called at each instruction that `names` fits: ``lambda step: breakpoint()``.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> with xla_torch.debug.break_at("y", lambda step: print(step.instruction.name)):
    ...     result = square(torch.tensor([1.0, -2.0]))
    y
    """
    return observed(callback, names)


def check(names: Names, holds: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """While this lasts, each value of the instructions that `names` fits must satisfy `holds(value)`; else CheckFailed.

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
