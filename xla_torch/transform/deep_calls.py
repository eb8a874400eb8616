"""Calls of calls, thousands deep, opened without recursion.

The canonicalizer opens calls by running itself inside them, which Python ends at some depth. Where calls stand that deep, the
plain ones are opened before, on a stack of our own, and all else stays as it is. What is known by a call alone stays with one:
derivatives that a computation brings, and how an asynchronous operation is divided.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hlo.ir import Computation, Instruction, cached_on_computation, reachable
from ..hlo.regions import callee, is_call

_RECURSION = 50
"""Calls in each other that are left to the canonicalizer."""


@cached_on_computation
def shallow(computation: Computation) -> Computation:
    """The computation without plain calls if they stand in each other too deep, or itself."""
    return _opened(computation) if _depth(computation) > _RECURSION else computation


def _is_plain(instruction: Instruction) -> bool:
    return is_call(instruction) and callee(instruction).derivatives is None


def _depth(computation: Computation) -> int:
    if _depth not in computation.findings:
        for each in reachable([computation]):
            inner = (callee(i).findings[_depth] for i in each.instructions if _is_plain(i))
            each.findings[_depth] = 1 + max(inner, default=0)
    return computation.findings[_depth]


class _Frame:
    """A computation that is being copied, and the call that its result takes the place of."""

    def __init__(self, computation: Computation, given: tuple[Instruction, ...], call: Instruction | None):
        self.call, self.root = call, computation.root
        self.left: Iterator[Instruction] = iter(computation.instructions)
        self.copies: dict[Instruction, Instruction] = dict(zip(computation.parameters, given, strict=True))


def _opened(computation: Computation) -> Computation:
    made: list[Instruction] = list(computation.parameters)
    frames = [_Frame(computation, computation.parameters, None)]
    while True:
        frame = frames[-1]
        for instruction in frame.left:
            if instruction.is_parameter:
                continue
            operands = tuple(frame.copies[o] for o in instruction.operands)
            if _is_plain(instruction):
                frames.append(_Frame(callee(instruction), operands, instruction))
                break
            made.append(_copy(instruction, operands))
            frame.copies[instruction] = made[-1]
        else:
            frames.pop()
            result = frame.copies[frame.root]
            if frame.call is None:
                return Computation(computation.name, made, result, computation.execution_thread)
            frames[-1].copies[frame.call] = result


def _copy(instruction: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    common = {name: value for name, value in instruction.common.items() if name != "control_predecessors"}
    return Instruction(instruction.opcode, instruction.shape, operands, instruction.attributes, instruction.name, common,
                       instruction.line, instruction.column)
