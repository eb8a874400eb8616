"""Branches in derivatives: the gradient of a conditional is a conditional on the same selector.

Each branch of the way back runs its own forward branch once more and walks it back, so nothing is kept for the branches
that were not taken. In forward mode the branches return tangents beside their results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..core.errors import DifferentiationError
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.checks import is_check
from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import branches_of, with_regions
from ..hlo.schema import Control
from ..transform.rewriter import carried_metadata
from ..transform.values import Value, as_op, element, leaves, make_tuple
from .activity import activity, analyse
from .cotangents import Cotangent, add, materialised, parts_of
from .flags import Flags, both, broadcast_flags, differentiable, either, flags_of, present
from .forward import flagged, tangent_shapes, values_and_tangents, with_tangents
from .once import cached_by_rules
from .options import GradientOptions
from .reverse import Recording
from .sharing import SharingBuilder
from .structure import ForwardPass, ReversePass, Structural, Tangent, region_kind


@region_kind(Control.BRANCHES)
class _Branches(Structural):
    """In canonical form: a selector and one flat tuple for each branch; the result is a flat tuple."""

    def active(self, instruction: Instruction, operands: list[Flags]) -> Flags:
        found: Flags = False
        for branch, flags in zip(branches_of(instruction), operands[1:], strict=True):
            found = either(found, activity(branch, [flags])[branch.root])
        return found

    def demand(self, instruction: Instruction, wanted: Flags, operands: list[Flags]) -> list[Flags]:
        found: list[Flags] = [False]
        for branch, flags in zip(branches_of(instruction), operands[1:], strict=True):
            demanded = analyse(branch, [flags], wanted).demanded.get(branch.parameters[0], False)
            found.append(both(demanded, flags))
        return found

    def backward(self, run: ReversePass, instruction: Instruction, ct: Cotangent) -> Sequence[Cotangent]:
        _require_repeatable(instruction)
        assert isinstance(ct, tuple)
        wanted = tuple(part is not None for part in ct)
        active = [run.facts.active[o] for o in instruction.operands]
        taken = [list(leaves(run.values[o])) for o in instruction.operands[1:]]
        flags = self.demand(instruction, wanted, active)[1:]
        sources = {value.instruction: None for values, flag in zip(taken, flags, strict=True)
                   for value, chosen in zip(values, flags_of(flag, len(values)), strict=True) if chosen}
        if not sources:
            return [None] * len(instruction.operands)
        back = _Back(instruction, ct, list(sources), run.builder, run.options)
        found = back.emit(run.values[instruction.operands[0]], taken, active[1:])
        return [None, *back.shared_out(found, taken)]

    def tangent(self, run: ForwardPass, instruction: Instruction, operands: list[Value],
                tangents: list[Tangent]) -> tuple[Value, Tangent]:
        builder, flags, shapes = run.builder, run.active[instruction], instruction.shape.tuple_shapes
        taken, branches = [as_op(builder, operands[0])], []
        for branch, value, tangent in zip(branches_of(instruction), operands[1:], tangents[1:], strict=True):
            inside = branch.parameters[0].shape
            active = differentiable(inside, broadcast_flags(inside, present(tangent)))
            taken.append(make_tuple(builder, [*leaves(value), *flagged(builder, tangent, active, inside.tuple_shapes)]))
            branches.append(with_tangents(branch, active, flags))
        shape = Shape.tuple([*shapes, *tangent_shapes(flags, shapes)])
        return values_and_tangents(_emit(builder, instruction, taken, branches, shape), flags)


def _emit(builder: Builder, original: Instruction, operands: Sequence[XlaOp], branches: Sequence[Computation],
          shape: Shape) -> XlaOp:
    """The instruction with other operands, branches and results."""
    rest = iter(branches)
    return builder.append(Instruction(original.opcode, shape, [o.instruction for o in operands],
                                      with_regions(original, lambda _: next(rest)), original.name, carried_metadata(original)))


def _require_repeatable(instruction: Instruction) -> None:
    """Branches are run again on the way back, which must do the same."""
    for computation in reachable(branches_of(instruction)):
        for inner in computation.instructions:
            if not (is_pure(inner) or is_check(inner)):
                raise DifferentiationError(
                    "a branch with random numbers or side effects has no reverse-mode gradient", subject=inner.subject,
                    where=inner.where, hint="compute them before the conditional and pass them to the branches")


@dataclasses.dataclass
class _Back:
    """The conditional that walks back. `sources` are the values whose cotangents it returns: each once, though several
    branches may take it as an operand."""

    instruction: Instruction
    ct: tuple[Cotangent, ...]
    sources: list[Instruction]
    builder: Builder
    options: GradientOptions

    def emit(self, selector: Value, taken: list[list[XlaOp]], active: list[Flags]) -> list[XlaOp]:
        """Emit it; the cotangents of `sources`."""
        given = [part for part in self.ct if isinstance(part, XlaOp)]
        operands = [make_tuple(self.builder, [*values, *given]) for values in taken]
        number = {source: k for k, source in enumerate(self.sources)}
        wanted, shapes = tuple(part is not None for part in self.ct), tuple(s.shape.without_layout() for s in self.sources)
        branches = [_walked_back(branch, operand.shape, tuple(number.get(v.instruction) for v in values), shapes, flags, wanted,
                                 self.options)
                    for branch, operand, values, flags in
                    zip(branches_of(self.instruction), operands, taken, active, strict=True)]
        shape = Shape.tuple(shapes)
        chosen = _emit(self.builder, self.instruction, [as_op(self.builder, selector), *operands], branches, shape)
        return [element(chosen, k) for k in range(len(self.sources))]

    def shared_out(self, found: list[XlaOp], taken: list[list[XlaOp]]) -> list[Cotangent]:
        """The sources' cotangents as cotangents of the branches' operands, each handed over once."""
        left: dict[Instruction, Cotangent] = dict(zip(self.sources, found, strict=True))
        return [tuple(left.pop(value.instruction, None) for value in values) for values in taken]


@cached_by_rules
def _walked_back(branch: Computation, shape: Shape, numbers: tuple[int | None, ...], shapes: tuple[Shape, ...], active: Flags,
                 wanted: tuple[bool, ...], options: GradientOptions) -> Computation:
    """One branch: its forward computation again, then back, from its operands and the cotangents that are `wanted`, a tuple of
    this shape, to the cotangents of values of these `shapes`. `numbers` says which of these the operands are."""
    builder = SharingBuilder(f"{branch.name}_backward")
    whole = builder.parameter(0, shape, "operands")
    inside = [element(whole, k) for k in range(len(shape.tuple_shapes))]
    forward, given = inside[:len(numbers)], iter(inside[len(numbers):])
    recording = Recording(builder, branch, [list(forward)], [active], wanted, options)
    (found,) = recording.backward(tuple(next(given) if there else None for there in wanted))
    sums: dict[int, Cotangent] = {}
    for number, part in zip(numbers, parts_of(found, len(numbers)), strict=True):
        if number is not None:
            sums[number] = add(sums.get(number), part)
    return builder.finish(as_op(builder, [materialised(builder, sums.get(k), s) for k, s in enumerate(shapes)]))
