"""Where an instruction stands in the tree of op_names: ``jit(step)/transformer/layer_0/dot_general`` is in three groups."""

from __future__ import annotations

from collections.abc import Iterable

from ..analysis.op_names import levels_of
from ..hlo.ir import Computation, Instruction

Path = tuple[str, ...]
"""Groups, the outermost first; the last level of an op_name is the instruction itself."""


def paths(computation: Computation) -> dict[Instruction, Path]:
    """The groups of each instruction of a computation. What has no op_name, and parameters and constants, which have no group of
    their own, stand in the innermost group that all their users are in."""
    found: dict[Instruction, Path] = {}
    readers: dict[Instruction, list[Path]] = {}
    for instruction in reversed(computation.instructions):
        own = tuple(levels_of(instruction.op_name)[:-1])
        if not own and not (instruction.op_name and instruction.operands):
            own = _common(readers.get(instruction, ()))
        found[instruction] = own
        for operand in instruction.operands:
            readers.setdefault(operand, []).append(own)
    return found


def _common(all_paths: Iterable[Path]) -> Path:
    found: list[str] = []
    for levels in zip(*all_paths, strict=False):
        if len(set(levels)) > 1:
            break
        found.append(levels[0])
    return tuple(found)
