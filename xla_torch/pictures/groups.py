"""Where an instruction stands in the tree of op_names: ``jit(step)/transformer/layer_0/dot_general`` is in three groups."""

from __future__ import annotations

from collections.abc import Iterable

from ..analysis.op_names import levels_of
from ..hlo.ir import Computation, Instruction

Path = tuple[str, ...]
"""Groups, the outermost first; the last level of an op_name is the instruction itself."""


def paths(computation: Computation) -> dict[Instruction, Path]:
    """The groups of each instruction of a computation. What reads nothing and has no group of its own, as parameters and constants
    have none, stands in the innermost group that all its users are in."""
    found = {i: tuple(levels_of(i.op_name)[:-1]) for i in computation.instructions}
    readers: dict[Instruction, list[Path]] = {}
    for user in computation.instructions:
        for operand in user.operands:
            if not operand.operands and not found[operand]:
                readers.setdefault(operand, []).append(found[user])
    return found | {instruction: _common(each) for instruction, each in readers.items()}


def _common(all_paths: Iterable[Path]) -> Path:
    found: list[str] = []
    for levels in zip(*all_paths, strict=False):
        if len(set(levels)) > 1:
            break
        found.append(levels[0])
    return tuple(found)
