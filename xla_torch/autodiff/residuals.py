"""What a backward pass keeps from the forward pass, and what it computes again.

Forward and backward are first built together, in one builder. Here that joint program is cut in two: `saved_values` chooses
the forward values that the backward part needs, and `rebuild` emits either part somewhere else, stopping at the values
that are given there. Whatever was not saved is then computed again by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ..core.errors import DifferentiationError
from ..core.shape import Shape
from ..core.tuning import LARGE
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.inference import has_effect, is_pure
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.schema import Trait
from ..hlo.stacks import is_stack_call
from ..opcodes import collective, elementwise, indexing


@dataclasses.dataclass(frozen=True)
class Policy:
    """What may be computed again: a value whose ops cost at most `budget` together, counted from saved and free values.

    Arithmetic is done again on arrays of at least `arithmetic` elements. A value of unknown size (a stack) is always
    computed again, with the loop that wrote it, unless it is kept `unsized`.
    """

    arithmetic: int
    budget: int
    unsized: bool

    def keeps(self, shape: Shape) -> bool:
        """Whether values of this shape can be saved."""
        return not shape.is_tuple and (self.unsized or shape.is_static)

    def cost(self, instruction: Instruction) -> float:
        """The cost of one op; infinite where it is never computed again."""
        if instruction.has(Trait.FREE):
            return 0
        if instruction.has(Trait.CHEAP):
            return 1
        if self.arithmetic and instruction.shape.element_count < self.arithmetic:
            return float("inf")
        if instruction.has(Trait.STREAMS):
            return 1
        if instruction.opcode == collective.all_gather:  # of a weight that is cut: whole it is not kept, as ZeRO-3 has it
            return 2
        schema = instruction.schema
        if not schema.elementwise or not schema.pure or _is_dear(instruction):
            return float("inf")
        return 3 if instruction.has(Trait.TRANSCENDENTAL) else 1


def _is_dear(instruction: Instruction) -> bool:
    """Whether the op divides complex numbers or takes their magnitude: that takes five times as long as it takes to write them
    and read them again."""
    return instruction.opcode in (elementwise.abs_, elementwise.divide) and instruction.operands[0].shape.element_type.is_complex


WHOLE_PROGRAM = Policy(arithmetic=LARGE, budget=6, unsized=True)
"""Between a program's forward and backward: what is small is saved, which costs no time, unless it only moves or narrows
elements. Large arrays are slow to write and to read back: there, a little arithmetic is done again, mostly in the same blocks
as the arithmetic that uses it."""

LOOP_BODY = Policy(arithmetic=0, budget=4, unsized=False)
"""Between a loop's forward and backward: saving is a copy into a stack, so a little arithmetic is done again."""


def saved_values(forward: Sequence[Instruction], results: Iterable[Instruction], free: Iterable[Instruction],
                 policy: Policy) -> list[Instruction]:
    """The forward values to save, in program order.

    `forward` is the forward part of the joint program, `results` what the backward part computes, and `free` the forward
    values that it has in any case.
    """
    early = set(forward)
    needed = _needed(results, stop=early)
    choice = _Choice(set(free), policy)
    wanted = [i for i in forward if i in needed]
    for instruction in sorted(wanted, key=lambda i: policy.keeps(i.shape)):  # what must be computed again, first
        choice.need(instruction)
    return [i for i in forward if i in choice.saved]


class _Choice:
    """The saved set while it grows, in program order."""

    def __init__(self, free: set[Instruction], policy: Policy):
        self.free, self.policy = free, policy
        self.saved: set[Instruction] = set()
        self.again: set[Instruction] = set()

    def need(self, instruction: Instruction) -> None:
        """Make the value available to the backward part: save it, or see to it that it can be computed again."""
        if self._cost(instruction, self.policy.budget) <= self.policy.budget:
            return
        operands = instruction.operands
        if not self.policy.keeps(instruction.shape):
            _require_repeatable(instruction)
            self.again.add(instruction)
            for operand in operands:
                self.need(operand)
            return
        can_be_kept = all(self.policy.keeps(o.shape) for o in operands)
        smaller = can_be_kept and sum(o.shape.byte_size for o in operands) <= instruction.shape.byte_size
        if operands and smaller and self.policy.cost(instruction) <= 1:
            for operand in operands:
                self.need(operand)
        else:
            self.saved.add(instruction)

    def _cost(self, instruction: Instruction, limit: float) -> float:
        """What computing the value again costs, counted up to a limit."""
        if instruction in self.free or instruction in self.saved or instruction in self.again:
            return 0
        if instruction.is_element and instruction.operands[0] in self.again:
            return 0
        total = float("inf") if instruction.is_parameter else self.policy.cost(instruction)
        for operand in instruction.operands:
            if total > limit:
                break
            total += self._cost(operand, limit - total)
        return total


def repeated_from(forward: Sequence[Instruction], results: Iterable[Instruction],
                  free: Iterable[Instruction]) -> list[Instruction]:
    """The parameters from which the forward values can all be computed again that the results need."""
    needed = _needed(results, stop=set(free)) - set(free)
    return [i for i in forward if i.is_parameter and i in needed]


def is_repeatable(computation: Computation) -> bool:
    """Whether running a computation twice does the same twice: no random numbers, no other effects."""
    return all(is_pure(i) for c in reachable([computation]) for i in c.instructions)


def _require_repeatable(instruction: Instruction) -> None:
    """What must run again on the way back must do the same."""
    if instruction.is_parameter or not is_pure(instruction) or not all(
            map(is_repeatable, instruction.called_computations)):
        raise DifferentiationError(
            "a value of unknown size cannot be kept from one iteration of a loop to its way back, and running this again "
            "would not do the same", subject=instruction.subject, where=instruction.where, got=instruction.shape,
            hint="set loop_bound in GradientOptions to keep it in arrays, or draw random numbers before the loop")


def _needed(targets: Iterable[Instruction], stop: set[Instruction]) -> set[Instruction]:
    """The targets and all they are computed from, not looking behind `stop`."""
    found: set[Instruction] = set()
    stack = list(targets)
    while stack:
        instruction = stack.pop()
        if instruction not in found:
            found.add(instruction)
            if instruction not in stop:
                stack.extend(instruction.operands)
    return found


def rebuild(builder: Builder, instructions: Sequence[Instruction], given: Mapping[Instruction, XlaOp],
            targets: Sequence[Instruction], updates_last: bool = False, pace: Sequence[Instruction] = ()) -> list[XlaOp]:
    """Emit what the targets need that is not given; the targets' ops in `builder`.

    `updates_last` puts dynamic-update-slices behind all that may still read their buffers, so that a loop can update its
    carries in place. With a `pace`, what depends on none of these is emitted where it is first used.
    """
    needed = _needed(targets, stop=set(given))
    built: dict[Instruction, XlaOp] = dict(given)
    order = [i for i in instructions if i in needed and i not in built]
    if updates_last:
        order = _with_updates_last(order)
    for instruction in _as_needed(order, pace) if pace else order:
        built[instruction] = builder.append(Instruction(
            instruction.opcode, instruction.shape, [built[o].instruction for o in instruction.operands],
            instruction.attributes, instruction.name, instruction.common, instruction.line, instruction.column))
    return [built[t] for t in targets]


def _as_needed(instructions: Sequence[Instruction], pace: Iterable[Instruction]) -> list[Instruction]:
    """An order in which what does not depend on `pace` comes just before its first use, so that it lives no longer."""
    paced = set(pace)
    for instruction in instructions:
        if any(o in paced for o in instruction.operands):
            paced.add(instruction)
    waiting = {i for i in instructions if i not in paced}
    order: dict[Instruction, None] = {}
    for instruction in instructions:
        stack = [instruction] if instruction in paced else []
        while stack:
            missing = [o for o in stack[-1].operands if o in waiting and o not in order]
            if missing:
                stack += missing
            else:
                order[stack.pop()] = None
    return [*order, *(i for i in instructions if i not in order)]


def _with_updates_last(instructions: Sequence[Instruction]) -> list[Instruction]:
    late: set[Instruction] = set()
    for instruction in instructions:
        if instruction.opcode == indexing.dynamic_update_slice or any(o in late for o in instruction.operands):
            late.add(instruction)
    return [i for i in instructions if i not in late] + [i for i in instructions if i in late]


def needs(targets: Iterable[Instruction], given: Iterable[Instruction]) -> set[Instruction]:
    """Which of the given values the targets are computed from."""
    known = set(given)
    return _needed(targets, stop=known) & known


def unchanging(instructions: Sequence[Instruction], sources: Iterable[Instruction]) -> list[Instruction]:
    """The sources, and what is computed from them and constants alone."""
    known = set(sources)
    for instruction in instructions:
        if not instruction.is_parameter and _is_certain(instruction) and all(o in known for o in instruction.operands):
            known.add(instruction)
    return [i for i in instructions if i in known]


def _is_certain(instruction: Instruction) -> bool:
    """Whether running an instruction again gives the same. Of a custom call only its program says so: it runs once, if it can."""
    return is_pure(instruction) and (not instruction.schema.effect or is_stack_call(instruction))


def effects(forward: Iterable[Instruction]) -> list[Instruction]:
    """The instructions that do more than compute a value (feeds, random states, calls to the outside)."""
    return [i for i in forward if not i.is_parameter and has_effect(i)]
