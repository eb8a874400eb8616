"""Conditionals in reverse mode: the gradient of a `conditional` is a `conditional` on the same selector.

Each branch of the way back runs its own forward branch once more and walks it back, so nothing is kept for the branches
that were not taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..builder import XlaBuilder, XlaOp
from ..errors import DifferentiationError
from ..hlo.ir import Computation, Instruction, reachable
from ..opcodes.inference import is_pure
from ..shape import Shape
from ..transform.inline import Value, as_op, element, kept_facts, leaves, make_tuple
from .activity import Control, Flags, activity, analyse, both, control, either
from .engine import Cotangent, Tape, add, materialised
from .options import GradientOptions
from .sharing import SharingBuilder


@control("conditional")
class _Conditional(Control):
    """A conditional in plain form: a selector and one flat tuple for each branch; the result is a flat tuple."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        found: Flags = False
        for branch, flags in zip(instruction.called_computations, operands[1:], strict=True):
            found = either(found, activity(branch, [flags])[branch.root])
        return found

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        found: list[Flags] = [False]
        for branch, flags in zip(instruction.called_computations, operands[1:], strict=True):
            demanded = analyse(branch, [flags], wanted).demanded.get(branch.parameters[0], False)
            found.append(both(demanded, flags))
        return found

    def backward(self, tape: Tape, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        _require_repeatable(instruction)
        assert isinstance(ct, tuple)
        wanted = tuple(part is not None for part in ct)
        active = [tape.facts.active[o] for o in instruction.operands]
        taken = [list(leaves(tape.values[o])) for o in instruction.operands[1:]]
        flags = self.demand(instruction, wanted, active)[1:]
        sources = {value.instruction: None for values, flag in zip(taken, flags, strict=True)
                   for value, chosen in zip(values, _parts(flag, values), strict=True) if chosen}
        if not sources:
            return [None] * len(instruction.operands)
        back = _Back(instruction, ct, list(sources), tape.builder, tape.options)
        found = back.emit(tape.values[instruction.operands[0]], taken, active[1:])
        return [None, *back.shared_out(found, taken)]


def _parts(flags: Flags, values: Sequence[Any]) -> tuple[Any, ...]:
    return flags if isinstance(flags, tuple) else (flags,) * len(values)


def _require_repeatable(instruction: Instruction) -> None:
    """Branches are run again on the way back, which must do the same."""
    for computation in reachable(instruction.called_computations):
        for inner in computation.instructions:
            if not is_pure(inner):
                raise DifferentiationError(
                    "a branch with random numbers or side effects has no reverse-mode gradient", subject=inner.subject,
                    where=inner.where, hint="compute them before the conditional and pass them to the branches")


@dataclasses.dataclass
class _Back:
    """The conditional that walks back. `sources` are the values whose cotangents it returns: each once, though several
    branches may take it as an operand."""

    instruction: Instruction
    ct: tuple[Any, ...]
    sources: list[Instruction]
    builder: XlaBuilder
    options: GradientOptions

    def emit(self, selector: Value, taken: list[list[XlaOp]], active: list[Flags]) -> list[XlaOp]:
        """Emit it; the cotangents of `sources`."""
        given = [part for part in self.ct if part is not None]
        operands = [make_tuple(self.builder, [*values, *given]) for values in taken]
        branches = [self._branch(branch, operand.shape, values, flags) for branch, operand, values, flags in
                    zip(self.instruction.called_computations, operands, taken, active, strict=True)]
        rest = iter(branches)
        regions = {name: tuple(next(rest) for _ in value) if isinstance(value, tuple) else next(rest)
                   for name, value in self.instruction.attributes.items() if value}
        shape = Shape.tuple([s.shape.without_layout() for s in self.sources])
        chosen = self.builder.append(Instruction(
            "conditional", shape, [as_op(self.builder, selector).instruction, *(o.instruction for o in operands)], regions,
            self.instruction.name, kept_facts(self.instruction)))
        return [element(chosen, k) for k in range(len(self.sources))]

    def _branch(self, branch: Computation, shape: Shape, values: list[XlaOp], active: Flags) -> Computation:
        """One branch: its forward computation again, then back."""
        builder = SharingBuilder(f"{branch.name}_backward")
        whole = builder.parameter(0, shape, "operands")
        inside = [element(whole, k) for k in range(len(shape.tuple_shapes))]
        forward, given = inside[:len(values)], iter(inside[len(values):])
        tape = Tape(builder, branch, [list(forward)], [active], tuple(part is not None for part in self.ct),
                    self.options)
        (found,) = tape.backward(tuple(None if part is None else next(given) for part in self.ct))
        parts = _parts(found if isinstance(found, tuple) else (None,) * len(values), values)
        sums: dict[Instruction, Cotangent] = {}
        for value, part in zip(values, parts, strict=True):
            sums[value.instruction] = add(sums.get(value.instruction), part)
        results = [materialised(builder, sums.get(s), s.shape.without_layout()) for s in self.sources]
        return builder.finish(as_op(builder, results))

    def shared_out(self, found: list[XlaOp], taken: list[list[XlaOp]]) -> list[Cotangent]:
        """The sources' cotangents as cotangents of the branches' operands, each handed over once."""
        left = dict(zip(self.sources, found, strict=True))
        return [tuple(left.pop(value.instruction, None) for value in values) for values in taken]
