"""Which values of a computation carry a cotangent: those that depend on what is differentiated and that the result depends on.

Both are found before anything is built, so that integers and random numbers are never differentiated, an op without
gradient is an error only on an active path, and a loop knows which of its carries it must walk back.
Computations are in canonical form (`transform.canonical`).
"""

from __future__ import annotations

from collections.abc import Sequence

from grad_rules._shifts import cancelled_shifts
from grad_rules._table import TABLE, GradientKind, operand_positions

from ..analysis.channel_pairs import channel_pairs
from ..hlo.ir import Computation, Instruction
from .flags import Facts, Flags, any_of, both, broadcast_flags, differentiable, either
from .once import cached_by_rules
from .structure import structural


def analyse(computation: Computation, arguments: Sequence[Flags], result: Flags = True) -> Facts:
    """Facts where the flagged arguments are differentiated and the flagged parts of the result have a cotangent
    (True stands for all parts)."""
    return _analysed(computation, tuple(arguments), result)


@cached_by_rules
def _analysed(computation: Computation, arguments: tuple[Flags, ...], result: Flags) -> Facts:
    active, pairs = activity(computation, arguments), channel_pairs(computation)
    facts = Facts(active, _demanded(computation, active, result, []), pairs)
    sent: list[Instruction] = []
    while (more := [p.send for p in pairs if p.send is not None and facts.is_sent(p.send)]) != sent:
        sent = more
        facts = Facts(active, _demanded(computation, active, result, sent), pairs)
    return facts


def _demanded(computation: Computation, active: dict[Instruction, Flags], result: Flags,
              sent: Sequence[Instruction]) -> dict[Instruction, Flags]:
    """What has a cotangent if parts of the result have one, and what these instructions send."""
    root = computation.root
    demanded: dict[Instruction, Flags] = {send: active[send] for send in sent}
    demanded[root] = either(both(broadcast_flags(root.shape, result), active[root]), demanded.get(root, False))
    for instruction in reversed(computation.instructions):
        wanted = demanded.get(instruction, False)
        if any_of(wanted):
            operands = [active[o] for o in instruction.operands]
            for operand, flags in zip(instruction.operands, _demand(instruction, wanted, operands), strict=True):
                demanded[operand] = either(flags, demanded.get(operand, False))
    return demanded


def activity(computation: Computation, arguments: Sequence[Flags]) -> dict[Instruction, Flags]:
    """For each instruction, which of its parts depend on the flagged parts of the arguments by way of rules and channels."""
    return _activities(computation, tuple(arguments))


@cached_by_rules
def _activities(computation: Computation, arguments: tuple[Flags, ...]) -> dict[Instruction, Flags]:
    pairs = channel_pairs(computation)
    came = {p.done for p in pairs if p.send is None and any_of(arguments)}  # who knows what that depends on
    while True:
        active = _activity(computation, arguments, came)
        more = came | {p.done for p in pairs if p.send is not None and p.done is not None and any_of(active[p.send])}
        if more == came:
            return active
        came = more


def _activity(computation: Computation, arguments: Sequence[Flags], came: set[Instruction | None]) -> dict[Instruction, Flags]:
    active: dict[Instruction, Flags] = {}
    without = cancelled_shifts(computation)
    for instruction in computation.instructions:
        if instruction in without:
            active[instruction] = False
        elif instruction in came:
            active[instruction] = differentiable(instruction.shape)
        elif instruction.is_parameter:
            active[instruction] = differentiable(instruction.shape, arguments[instruction.attributes["parameter_number"]])
        else:
            active[instruction] = _active(instruction, [active[o] for o in instruction.operands])
    return active


def _active(instruction: Instruction, operands: list[Flags]) -> Flags:
    handler = structural(instruction)
    if handler is not None:
        return handler.active(instruction, operands)
    flowing = any(any_of(operands[k]) for k in differentiable_operands(instruction))
    return differentiable(instruction.shape, flowing)


def _demand(instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
    handler = structural(instruction)
    if handler is not None:
        return handler.demand(instruction, wanted, operands)
    reached = set(differentiable_operands(instruction))
    return [flags if k in reached else False for k, flags in enumerate(operands)]


def differentiable_operands(instruction: Instruction) -> list[int]:
    """Positions of the operands that have a gradient rule; all operands of an op that refuses, so that it can say so."""
    entry = TABLE.get(instruction.opcode)
    count = len(instruction.operands)
    if entry is None or entry.kind is GradientKind.REFUSED:
        return list(range(count))
    return [k for name in entry.rules for k in operand_positions(instruction, name)]
