"""Cotangents that stay zero where they are zero, through loops and calls that are elementwise as a whole.

Of ``select(p, f(x), g(x))`` with loops f and g the cotangent of g is ``select(p, 0, ct)``, and what the loop's way back makes of
its zeros may be NaN: g may be infinite, or have diverged, where it was not chosen. (`grad_rules._masks` says the same of ops.)
But where every element of a result depends on the elements at its own place only, zeros go to zeros, whatever is in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grad_rules._masks import joined, split

from ..functions.hlo_builder import XlaOp
from ..hlo.inference import forwarded
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import callee, is_call, is_loop, loop_of
from .activity import activity
from .cotangents import Cotangent
from .flags import Flags, any_of
from .once import cached_by_rules

Dimensions = tuple[int, ...]


def shielded(computation: Computation, active: Callable[[], Sequence[Flags]], cts: Sequence[Cotangent],
             found: Sequence[Cotangent]) -> list[Cotangent]:
    """The cotangents that were found for what a computation, called or run in a loop, is given: zero where all `cts` of its
    results are, if it keeps places. `active` gives flags of what is differentiated of its parameters, if that matters."""
    given = [ct for ct in cts if isinstance(ct, XlaOp)]
    masks = [split(ct).conditions for ct in given]
    shared = tuple(c for c in masks[0] if all(c in others for others in masks)) if masks else ()
    if not shared:
        return list(found)
    dimensions = given[0].shape.dimensions
    if any(ct.shape.dimensions != dimensions for ct in given) or not keeps_places(computation, tuple(active()), dimensions):
        return list(found)
    return [joined(shared, part) if isinstance(part, XlaOp) and part.shape.dimensions == dimensions else part for part in found]


@cached_by_rules
def keeps_places(computation: Computation, active: tuple[Flags, ...], dimensions: Dimensions) -> bool:
    """Whether everything that is differentiated in a computation is an array of these dimensions, each element of which depends
    on elements at its own place only."""
    flags = activity(computation, active)
    return all(_keeps(i, [o for o in i.operands if any_of(flags[o])], flags, dimensions)
               for i in computation.instructions if any_of(flags[i]))


def _keeps(instruction: Instruction, sources: Sequence[Instruction], flags: dict[Instruction, Flags],
           dimensions: Dimensions) -> bool:
    if instruction.is_parameter or instruction.is_tuple or instruction.is_element or forwarded(instruction) is not None:
        return True
    if is_loop(instruction):
        return keeps_places(loop_of(instruction).body, (flags[instruction],), dimensions)
    if is_call(instruction):
        return keeps_places(callee(instruction), tuple(flags[o] for o in instruction.operands), dimensions)
    return instruction.schema.elementwise and all(
        i.shape.is_array and i.shape.dimensions == dimensions for i in (instruction, *sources))
