"""Which values of a computation carry a cotangent: those that depend on what is differentiated and that the result depends on.

Both are found before anything is built, so that integers and random numbers are never differentiated, an op without
gradient is an error only on an active path, and a loop knows which of its carries it must walk back.
Computations are in plain form (`transform.inline`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from grad_rules._table import TABLE, GradientKind

from ..hlo.ir import Computation, Instruction
from ..opcodes.inference import definition_of
from ..shape import Shape
from ..transform.channels import Way, ways
from ..transform.inline import Value
from .shortcuts import cancelled_shifts

if TYPE_CHECKING:
    from .engine import Cotangent, Tape

Flags = bool | tuple[Any, ...]
"""One flag for an array, a tuple of flags for a tuple."""


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """For each instruction: does it depend on what is differentiated, and is its cotangent asked for (only where it does)."""

    active: dict[Instruction, Flags]
    demanded: dict[Instruction, Flags]
    ways: list[Way]
    """The channels, along which values depend on each other, too."""

    def is_sent(self, send: Instruction) -> bool:
        """Whether a cotangent comes back along the channel of a send."""
        way = next((w for w in self.ways if w.send is send), None)
        if way is None:  # to the host
            return False
        return any_of(self.active[send]) if way.done is None else any_of(self.demanded.get(way.done, False))


def analyse(computation: Computation, arguments: Sequence[Flags], result: Flags = True) -> Facts:
    """Facts where the flagged arguments are differentiated and the flagged parts of the result have a cotangent
    (True stands for all parts)."""
    active, channels = activity(computation, arguments), ways(computation)
    facts = Facts(active, _demanded(computation, active, result, []), channels)
    sent: list[Instruction] = []
    while (more := [w.send for w in channels if w.send is not None and facts.is_sent(w.send)]) != sent:
        sent = more
        facts = Facts(active, _demanded(computation, active, result, sent), channels)
    return facts


def _demanded(computation: Computation, active: dict[Instruction, Flags], result: Flags,
              sent: Sequence[Instruction]) -> dict[Instruction, Flags]:
    """What has a cotangent if parts of the result have one, and what these instructions send."""
    root = computation.root
    demanded: dict[Instruction, Flags] = {send: active[send] for send in sent}
    demanded[root] = either(both(spread(root.shape, result), active[root]), demanded.get(root, False))
    for instruction in reversed(computation.instructions):
        wanted = demanded.get(instruction, False)
        if any_of(wanted):
            operands = [active[o] for o in instruction.operands]
            for operand, flags in zip(instruction.operands, _demand(instruction, wanted, operands), strict=True):
                demanded[operand] = either(flags, demanded.get(operand, False))
    return demanded


def activity(computation: Computation, arguments: Sequence[Flags]) -> dict[Instruction, Flags]:
    """For each instruction, which of its parts depend on the flagged parts of the arguments by way of rules and channels."""
    channels = ways(computation)
    came = {w.done for w in channels if w.send is None and any_of(tuple(arguments))}  # who knows what that depends on
    while True:
        active = _activity(computation, arguments, came)
        more = came | {w.done for w in channels if w.send is not None and w.done is not None and any_of(active[w.send])}
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
        elif instruction.opcode == "parameter":
            active[instruction] = differentiable(instruction.shape, arguments[instruction.attributes["parameter_number"]])
        else:
            active[instruction] = _active(instruction, [active[o] for o in instruction.operands])
    return active


def _active(instruction: Instruction, operands: list[Flags]) -> Flags:
    control = CONTROL.get(instruction.opcode)
    if control is not None:
        return control.active(instruction, operands)
    flowing = any(any_of(operands[k]) for k in differentiable_operands(instruction))
    return differentiable(instruction.shape, flowing)


def _demand(instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
    control = CONTROL.get(instruction.opcode)
    if control is not None:
        return control.demand(instruction, wanted, operands)
    reached = set(differentiable_operands(instruction))
    return [flags if k in reached else False for k, flags in enumerate(operands)]


def differentiable_operands(instruction: Instruction) -> list[int]:
    """Positions of the operands that have a gradient rule; all operands of an op that refuses, so that it can say so."""
    entry = TABLE.get(instruction.opcode)
    count = len(instruction.operands)
    if entry is None or entry.kind is GradientKind.REFUSED:
        return list(range(count))
    return [k for name in entry.rules for k in operand_positions(instruction, name)]


def operand_positions(instruction: Instruction, name: str) -> range:
    """Where the operand called `name` stands; a variadic one takes the rest."""
    definition = definition_of(instruction.opcode)
    if name == definition.variadic:
        return range(len(definition.operands), len(instruction.operands))
    position = definition.operands.index(name)
    return range(position, min(position + 1, len(instruction.operands)))


# ------------------------------------------------------------------------------------------------ flags


def any_of(flags: Flags) -> bool:
    return any(map(any_of, flags)) if isinstance(flags, tuple) else flags


def spread(shape: Shape, flags: Flags) -> Flags:
    """The flags in the form of the shape; one flag may stand for all parts of a tuple."""
    if not shape.is_tuple:
        return any_of(flags)
    parts = flags if isinstance(flags, tuple) else (flags,) * len(shape.tuple_shapes)
    return tuple(spread(s, f) for s, f in zip(shape.tuple_shapes, parts, strict=True))


def differentiable(shape: Shape, flags: Flags = True) -> Flags:
    """The flags, cleared where the element type has no gradient."""
    if not shape.is_tuple:
        return any_of(flags) and shape.element_type.is_differentiable
    parts = flags if isinstance(flags, tuple) else (flags,) * len(shape.tuple_shapes)
    return tuple(differentiable(s, f) for s, f in zip(shape.tuple_shapes, parts, strict=True))


def either(a: Flags, b: Flags) -> Flags:
    return _combine(a, b, lambda x, y: x or y)


def both(a: Flags, b: Flags) -> Flags:
    return _combine(a, b, lambda x, y: x and y)


def _combine(a: Flags, b: Flags, function: Callable[[bool, bool], bool]) -> Flags:
    if isinstance(a, tuple) or isinstance(b, tuple):
        width = len(a) if isinstance(a, tuple) else len(b) if isinstance(b, tuple) else 0
        left = a if isinstance(a, tuple) else (a,) * width
        right = b if isinstance(b, tuple) else (b,) * width
        return tuple(_combine(x, y, function) for x, y in zip(left, right, strict=True))
    return function(a, b)


# ------------------------------------------------------------------------------------------------ control ops


class Control:
    """How the reverse mode treats an op that moves tuples or runs computations: it has no line in the gradient table."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        """Which parts of the result depend on the flagged parts of the operands."""
        raise NotImplementedError

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        """For each operand, which of its active parts get a cotangent when the flagged parts of the result have one."""
        raise NotImplementedError

    def forward(self, tape: Tape, instruction: Instruction, operands: list[Value]) -> Value:
        """Emit the op, with what walking back will need. Called only where a cotangent is demanded."""
        return tape.visit(instruction, operands, ())

    def incoming(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Cotangent:
        """The result's cotangent, given what the instructions after it made of it."""
        return ct

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        """The operands' cotangents."""
        raise NotImplementedError


CONTROL: dict[str, Control] = {}
"""The control ops by opcode."""

_Kind = TypeVar("_Kind", bound=Control)


def control(opcode: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Register a Control for an opcode."""

    def register(cls: type[_Kind]) -> type[_Kind]:
        CONTROL[opcode] = cls()
        return cls

    return register
