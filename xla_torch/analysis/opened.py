"""How large a computation is once what it calls stands in its place, found without putting it there.

A text of n computations, each of which calls the one before twice, is that of 2^n copies. Whatever copies asks here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..core import tuning
from ..core.budget import running
from ..core.errors import LimitError
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import Role, callee, is_call, is_start, regions

_MOST = 1 << 62


def size_with_regions(computation: Computation) -> int:
    """The instructions of a computation and of all that it runs, each as often as it stands there."""
    return _size(computation, size_with_regions, lambda i: iter(i.called_computations))


def size_with_calls(computation: Computation) -> int:
    """The instructions of a computation and of all that it calls, each as often as it is called; regions count as one."""
    return _size(computation, size_with_calls, _called)


def check_size(computation: Computation) -> None:
    """Raise LimitError where opening the calls of a program, or writing out what its ops run for elements, takes too much."""
    if (block := running()) is not None:
        block.has_instructions(lambda: size_with_calls(computation))
    found = reachable([computation])
    for kind in (size_with_regions, size_with_calls):
        kind(computation)  # and so of all in it, callees first
    for each in found:
        for instruction in each.instructions:
            if not instruction.called_computations:
                continue
            inner = [r.computation for r in regions(instruction) if r.role is Role.ELEMENTS]
            sizes = [*map(size_with_regions, inner), *map(size_with_calls, _called(instruction))]
            if max(sizes, default=0) > tuning.OPENED_INSTRUCTIONS:
                raise LimitError(
                    "the called computations are too large once every call is inlined", subject=instruction.subject,
                    where=instruction.where,
                    got=f"{_number(max(sizes))} instructions out of {sum(len(c.instructions) for c in found)} that are written",
                    expected=f"at most {tuning.OPENED_INSTRUCTIONS}",
                    hint="use a loop, which runs a computation without copies of it")


def _called(instruction: Instruction) -> Iterator[Computation]:
    if is_call(instruction) or is_start(instruction):
        yield callee(instruction)


def _size(computation: Computation, kind: Callable[..., int], used: Callable[[Instruction], Iterator[Computation]]) -> int:
    if kind not in computation.findings:
        for each in reachable([computation]):
            if kind not in each.findings:
                size = len(each.instructions) + sum(c.findings[kind] for i in each.instructions for c in used(i))
                each.findings[kind] = min(size, _MOST)
    return computation.findings[kind]


def _number(size: int) -> str:
    return f"more than {_MOST:.0e}" if size >= _MOST else str(size)
