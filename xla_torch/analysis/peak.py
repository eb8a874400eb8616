"""The memory that a run of a program takes, from shapes alone: what lives at one time, at most.

It is what a walk over the instructions in their order allocates, where each result has memory of its own until its last reader
has run, and what only regroups values has none. Lowering does better than that (results over operands that die, splats, views);
what single ops need for themselves while they run (indices of a sort, columns of a convolution) is not in it.
"""

from __future__ import annotations

from ..core.shape import Shape
from ..hlo.ir import Computation, Instruction, cached_on_computation, reachable
from ..hlo.regions import Role, is_loop, regions


def peak_bytes(computation: Computation) -> int:
    """The bytes that a run computes and holds at one time, with its results, without its arguments."""
    for each in reachable([computation]):  # callees first
        _peak(each)
    return _peak(computation)


def live_bytes(computation: Computation) -> list[int]:
    """The bytes that live while each instruction runs, in their order; `peak_bytes` is the most of them."""
    peak_bytes(computation)
    return _live(computation)


@cached_on_computation
def _peak(computation: Computation) -> int:
    return max(_live(computation))


def _live(computation: Computation) -> list[int]:
    place = {instruction: number for number, instruction in enumerate(computation.instructions)}
    last = dict.fromkeys(computation.instructions, -1)
    last[computation.root] = len(place)
    for instruction in reversed(computation.instructions):
        until = max(last[instruction], place[instruction]) if _regroups(instruction) else place[instruction]
        for operand in instruction.operands:
            last[operand] = max(last[operand], until)
    ends: dict[int, list[int]] = {}
    live, found = 0, []
    for number, instruction in enumerate(computation.instructions):
        size = 0 if instruction.is_parameter or _regroups(instruction) else _bytes(instruction.shape)
        live += size
        found.append(live + _inside(instruction))
        ends.setdefault(max(last[instruction], number), []).append(size)
        live -= sum(ends.pop(number, ()))
    return found


def _inside(instruction: Instruction) -> int:
    """What the computations of an instruction take while it runs; a loop has its old carry beside the new one."""
    if not instruction.called_computations:
        return 0
    inner = max((_peak(r.computation) for r in regions(instruction) if r.role not in (Role.ELEMENTS, Role.OPAQUE)), default=0)
    return inner + (_bytes(instruction.shape) if is_loop(instruction) else 0)


def _regroups(instruction: Instruction) -> bool:
    return instruction.is_tuple or instruction.is_element


def _bytes(shape: Shape) -> int:
    return sum(leaf.element_count * (4 if leaf.element_type.is_narrow else leaf.element_type.itemsize)
               for leaf in shape.leaves() if leaf.is_array)
