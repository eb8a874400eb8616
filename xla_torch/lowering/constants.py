"""Constant folding: ops on constants run once, before the program, and their results become constants.

A constant that a loop passes on unchanged is a constant in the loop's body. Native code reads constants in place or has their
numbers in its source, so that no call passes or checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..analysis.loops import invariant_carries
from ..core import tuning
from ..core.errors import XlaError
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.literals.literal import Literal, SizeLiteral
from ..hlo.regions import Region, has_regions_of_values, is_loop, with_regions
from ..hlo.structure import CONSTANT
from ..opcodes import internal, movement, random
from ..transform.rewriter import Rewriter, rebuilt
from ..transform.small_fusions import is_written_inside
from ..transform.values import Value, as_op, elements_of
from . import numerics
from .evaluator import Evaluator
from .values import Number, Splat
from .values import Value as Evaluated

_STAY = frozenset({internal.custom_call, internal.opt_barrier, random.rng, random.rng_bit_generator})
"""Ops that are not computed before the program runs: what users register or draw, and barriers."""


def fold_constants(computation: Computation) -> Computation:
    """The computation with its constant parts computed, also in the loops and branches that it runs."""
    if not any(_is_constant(i) or _passes_constants(i) for c in reachable([computation]) for i in c.instructions):
        return computation
    evaluator, made = Evaluator(), dict[tuple[object, ...], Computation]()
    folded = rebuilt(computation, lambda builder: _Folder(builder, evaluator, made))
    folded.is_canonical = computation.is_canonical
    return folded


class _Folder(Rewriter):
    """Rebuilds a computation. Regions that get the same constants are `made` once, and share one evaluator."""

    def __init__(self, builder: Builder, evaluator: Evaluator, made: dict[tuple[object, ...], Computation]):
        super().__init__(builder)
        self.evaluator, self.made = evaluator, made
        self.known: dict[Instruction, Evaluated] = {}
        """Values of what has been computed, for ops that follow from them."""

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if is_loop(instruction):
            return self._loop(instruction, operands)
        if has_regions_of_values(instruction):
            attributes = with_regions(instruction, lambda region: self._region(region, {}))
            return self.copy_control(instruction, operands, attributes)
        copied = super().visit(instruction, operands, arguments)
        if not isinstance(copied, XlaOp) or not _is_constant(copied.instruction):
            return copied
        return self._folded(copied)

    def _folded(self, op: XlaOp) -> XlaOp:
        i = op.instruction
        try:
            value = self._value(i)
        except XlaError:  # it is raised when the program runs
            return op
        shape = i.shape.without_layout()
        scalar = value.scalar if isinstance(value, Splat) else None
        if isinstance(scalar, Number):
            one = self.builder.constant(_literal(self.evaluator, Splat(scalar), Shape.array(shape.element_type)))
            made = one if not shape.rank else self.builder.append(
                Instruction(movement.broadcast, shape, [one.instruction], {"dimensions": ()}, i.name, i.common, i.line, i.column))
        else:
            made = self.builder.constant(_literal(self.evaluator, value, shape))
        self.known[made.instruction] = value
        return made

    def _value(self, i: Instruction) -> Evaluated:
        if i not in self.known:
            with torch.no_grad(), self.evaluator.installed():
                self.known[i] = self.evaluator.instruction(i, [self._value(o) for o in i.operands])
        return self.known[i]

    # ------------------------------------------------------------------------------------------- regions

    def _loop(self, loop: Instruction, operands: list[Value]) -> Value:
        """A loop, in whose body constants that it passes on are constants."""
        (carry,) = operands
        fixed = invariant_carries(loop) if isinstance(carry, list) else frozenset[int]()
        constants = {k: carry[k].instruction for k in sorted(fixed)
                     if isinstance(carry[k], XlaOp) and _is_known(carry[k].instruction)}
        attributes = with_regions(loop, lambda region: self._region(region, constants))
        return self.copy_control(loop, operands, attributes)

    def _region(self, region: Region, constants: Mapping[int, Instruction]) -> Computation:
        """A region, some elements of whose parameter are constants. It passes them on as it got them."""
        key = (region.computation, region.gives_result, *constants.items())
        if key not in self.made:
            self.made[key] = self._made(region, constants)
        return self.made[key]

    def _made(self, region: Region, constants: Mapping[int, Instruction]) -> Computation:
        computation, (parameter,) = region.computation, region.computation.parameters
        builder = Builder(computation.name)
        given = elements_of(builder.parameter(0, parameter.shape, parameter.name))
        inside = _Folder(builder, self.evaluator, self.made)
        argument = given if not isinstance(given, list) else [
            inside._copied(constants[k]) if k in constants else v for k, v in enumerate(given)]
        result = inside.run(computation, [argument])
        if isinstance(result, list) and isinstance(given, list) and region.gives_result and constants:
            result = [given[k] if k in constants else v for k, v in enumerate(result)]
        made = builder.finish(as_op(builder, result))
        made.is_canonical = computation.is_canonical
        return made

    def _copied(self, i: Instruction) -> XlaOp:
        """A constant of another computation in this one."""
        operands = [self._copied(o).instruction for o in i.operands]
        return self.builder.append(Instruction(i.opcode, i.shape, operands, i.attributes, i.name, i.common, i.line, i.column))


def _is_constant(i: Instruction) -> bool:
    """Whether an op is computed here: of constants alone, and smaller than what is worth keeping."""
    if not i.operands or i.is_element or i.is_tuple or i.opcode in _STAY or is_written_inside(i) or not is_pure(i):
        return False
    if not i.shape.is_array or not i.shape.is_static or i.shape.has_sizes or i.shape.element_count > tuning.BUNDLED_UP_TO:
        return False
    return all(map(_is_known, i.operands))


def _passes_constants(i: Instruction) -> bool:
    """Whether an op is a loop that gets constants."""
    return is_loop(i) and any(map(_is_known, i.operands[0].operands))


def _is_known(i: Instruction) -> bool:
    """Whether an op's value is in the program: a constant's, a number's as an array, or places."""
    if i.opcode == CONSTANT:
        literal = i.attributes["literal"]
        return is_written_inside(i) and not isinstance(literal, SizeLiteral) and not literal.elided
    return is_written_inside(i) and not i.shape.has_sizes and all(map(_is_known, i.operands))


def _literal(evaluator: Evaluator, value: Evaluated, shape: Shape) -> Literal:
    tensor = evaluator.materialise(value, shape).contiguous()
    return Literal(shape, numerics.numpy_from_storage(tensor, shape.element_type).copy())

