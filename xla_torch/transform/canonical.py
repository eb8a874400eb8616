"""The canonical form of computations, which other transforms can walk straight through.

In canonical form

- there is no call, fusion, composite or asynchronous wrapper;
- no element is taken out of a `tuple` instruction;
- a loop or a branching instruction has one flat tuple of leaves, made by a `tuple` instruction, as its carry and as each
  branch's operand, a flat tuple as its result, and regions in canonical form themselves;
- a result that is a tuple is made by a `tuple` instruction;
- there are no layouts but the parameters' (and those of tuples of them), and a bitcast reads row-major memory;
- no pattern is left that `canonical_rules` knows in a better form;
- dead code is gone, and so is what held for the program as it was compiled only (orders, shardings, compilers' notes).

What is computed, and every surviving name, stays. A computation in this form is not rebuilt: whether it has it, is found once
by looking (`is_canonical`) and noted with the computation. So a derived program, whose parts are canonical, costs one look.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.named_functions import say_where_from
from ..analysis.opened import check_size
from ..core.shape import Shape
from ..functions.hlo_builder import Builder
from ..hlo.composites import Kernel, kernel_of
from ..hlo.derivatives import bringing
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import (
    Region,
    Role,
    callee,
    has_regions_of_values,
    is_branching,
    is_call,
    is_start,
    regions,
    with_regions,
)
from ..hlo.structure import ASYNC_DONE, ASYNC_UPDATE
from .canonical_rules import REWRITES
from .composites import as_custom_call
from .deep_calls import shallow
from .rewriter import Rewriter, carried_metadata, needed_instructions, rebuilt
from .values import Value, as_op, elements_of, flat_shape, leaves, regrouped


def canonicalize(computation: Computation) -> Computation:
    """The computation in canonical form, itself where it has it. Parameters and result keep their shapes, also tuple shapes."""
    if not computation.is_canonical:
        check_size(computation)
    if is_canonical(computation):
        return computation
    result = rebuilt(computation, Canonicalizer)
    result.is_canonical = True
    return result


def without_calls(computation: Computation) -> Computation:
    """The computation in canonical form if it has calls, else as it is."""
    return canonicalize(computation) if any(is_call(i) or is_start(i) for i in computation.instructions) else computation


class Canonicalizer(Rewriter):
    """Opens calls, brings loops and branches into canonical form, and applies the rewrites of single ops.

    A computation that several loops or branches run has one canonical form, which they share: `made`.
    """

    def __init__(self, builder: Builder):
        super().__init__(builder)
        self.made: dict[tuple[Computation, bool], Computation] = {}

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if is_call(instruction):
            return self.call(instruction, operands)
        if is_start(instruction):
            return [list(operands), self.call(instruction, operands)]
        if instruction.opcode == ASYNC_UPDATE:
            return operands[0]
        if instruction.opcode == ASYNC_DONE:
            started = operands[0]
            assert isinstance(started, list)
            return started[1]
        if has_regions_of_values(instruction):
            return self.control(instruction, operands)
        found = self.rewritten(instruction, operands)
        return super().visit(instruction, operands, arguments) if found is None else found

    def call(self, instruction: Instruction, operands: list[Value]) -> Value:
        """What a call or start computes, in its place; that of a composite that a kernel runs stays one instruction."""
        if is_call(instruction) and (kernel := kernel_of(callee(instruction))) is not None:
            return self.composite(instruction, kernel, operands)
        start = len(self.builder.instructions)
        result = self.entered(shallow(callee(instruction)), operands)
        say_where_from(self.builder.instructions[start:], callee(instruction))
        return result

    def composite(self, instruction: Instruction, kernel: Kernel, operands: list[Value]) -> Value:
        """A call of a decomposition that a kernel runs, as a custom call."""
        computation = callee(instruction)
        key = computation, False
        if key not in self.made:  # the same computation is the same composite
            self.made[key] = computation if computation.is_canonical else bringing(
                self.alone(bringing(computation, None)), kernel)
        made = as_custom_call(self.made[key], [as_op(self.builder, o).instruction for o in operands],
                              carried_metadata(instruction))
        return elements_of(self.builder.append(made))

    def alone(self, computation: Computation) -> Computation:
        """The canonical form of a computation that stays one."""
        return canonicalize(computation)

    def entered(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """What a computation that is called, or is a region of values, gives for these arguments."""
        return self.run(computation, arguments)

    def rewritten(self, instruction: Instruction, operands: list[Value]) -> Value | None:
        """What a rewrite makes of the instruction, or None where none applies."""
        rule = REWRITES.get(instruction.opcode)
        made = rule(instruction, [as_op(self.builder, o).instruction for o in operands]) if rule is not None else None
        results = [self.builder.append(i) for i in made or ()]
        return results[-1] if results else None

    def control(self, instruction: Instruction, operands: list[Value]) -> Value:
        """A loop or conditional over flat tuples (a selector stays as it is); its result grouped as the original's."""
        attributes = with_regions(instruction, self.region)
        first = int(is_branching(instruction))
        flat = [as_op(self.builder, list(leaves(value))) for value in operands[first:]]
        clone = Instruction(instruction.opcode, flat_shape(instruction.shape),
                            [as_op(self.builder, o).instruction for o in (*operands[:first], *flat)], attributes,
                            instruction.name, carried_metadata(instruction), instruction.line, instruction.column)
        return regrouped(leaves(elements_of(self.builder.append(clone))), instruction.shape)

    def within(self, builder: Builder) -> Canonicalizer:
        """One like this for a region, which has a builder of its own."""
        return type(self)(builder)

    def region(self, region: Region) -> Computation:
        """A loop's or branch's computation: one flat tuple in and, unless it is a condition, one out."""
        key = region.computation, region.gives_result
        if key not in self.made:
            self.made[key] = self._region(region)
        return self.made[key]

    def _region(self, region: Region) -> Computation:
        computation = region.computation
        builder = Builder(computation.name)
        (original,) = computation.parameters
        whole = builder.parameter(0, flat_shape(original.shape), original.name)
        inside = self.within(builder)
        inside.made = self.made
        result = inside.entered(computation, [regrouped(leaves(elements_of(whole)), original.shape)])
        return builder.finish(as_op(builder, list(leaves(result)) if region.gives_result else result))


# ------------------------------------------------------------------------------------------------ is it there already?


def is_canonical(computation: Computation) -> bool:
    """Whether a computation has canonical form. What was found true is noted with the computation and not looked for again."""
    if not computation.is_canonical:
        computation.is_canonical = (
            len(needed_instructions(computation)) == len(computation.instructions)
            and (computation.root.is_tuple or not computation.root.shape.is_tuple)
            and all(map(_has_its_form, computation.instructions)))
    return computation.is_canonical


def _has_its_form(instruction: Instruction) -> bool:
    """Whether the canonicalizer would only copy the instruction."""
    if is_call(instruction) or is_start(instruction) or instruction.opcode in (ASYNC_UPDATE, ASYNC_DONE):
        return False
    if instruction.is_element and instruction.operands[0].is_tuple:
        return False
    if instruction.common and carried_metadata(instruction) != instruction.common:
        return False
    if instruction.is_parameter or instruction.is_tuple or instruction.is_element:
        return True
    if "operand_layout_constraints" not in instruction.attributes and instruction.shape != instruction.shape.without_layout():
        return False
    rule = REWRITES.get(instruction.opcode)
    if rule is not None and rule(instruction, instruction.operands) is not None:
        return False
    return not has_regions_of_values(instruction) or _is_flat_control(instruction)


def _is_flat_control(instruction: Instruction) -> bool:
    carries = instruction.operands[int(is_branching(instruction)):]
    return (_is_flat(instruction.shape) and all(c.is_tuple and _is_flat(c.shape) for c in carries)
            and all(map(_is_canonical_region, regions(instruction))))


def _is_canonical_region(region: Region) -> bool:
    root, (parameter,) = region.computation.root, region.computation.parameters
    returns = region.role is Role.CONDITION or _is_flat(root.shape)
    return returns and parameter.shape == flat_shape(parameter.shape) and is_canonical(region.computation)


def _is_flat(shape: Shape) -> bool:
    return shape.is_tuple and not any(s.is_tuple for s in shape.tuple_shapes)
