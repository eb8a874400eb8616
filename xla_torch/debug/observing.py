"""Observers for the time of a `with`: of every program that runs meanwhile, or of instructions that a pattern names."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..core.errors import ExecutionError
from ..hlo.ir import Computation, Instruction
from ..running.watching import installed, watching
from .evaluation import Observer, run_watched
from .steps import Step, source_of

Names = str | re.Pattern[str] | None


class CheckFailed(ExecutionError):
    """A value is not as `debug.check` demands."""


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
    fits, of one `participant` or of all. Backward passes are seen too. Observers may stand inside each other."""
    outer = watching()

    def seen(step: Step) -> None:
        if (participant is None or step.participant == participant) and matches(names, step.instruction):
            observer(step)

    with installed(_Watch((*(outer.observers if isinstance(outer, _Watch) else ()), seen))):
        yield


def break_at(names: Names, callback: Observer) -> contextlib.AbstractContextManager[None]:
    """While this lasts, `callback(step)` is called at each instruction that `names` fits: ``lambda step: breakpoint()``."""
    return observed(callback, names)


def check(names: Names, holds: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """While this lasts, each value of the instructions that `names` fits must satisfy `holds(value)`; else CheckFailed."""
    def demand(step: Step) -> None:
        if not holds(step.value):
            raise CheckFailed("a value is not as demanded", subject=step.label, got="; ".join(map(str, step.statistics)),
                              where=step.instruction.where)

    return observed(demand, names)
