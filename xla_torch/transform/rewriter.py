"""The rewriter: a computation rebuilt in a builder, instruction by instruction.

A transform of single ops is a subclass of `Rewriter` that overrides `visit` for the instructions that it treats in its own way.
Whatever it copies loses what held for the old instructions only (see `carried_metadata`), and what nothing needs is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction, live_instructions
from ..hlo.regions import is_loop
from ..hlo.structure import GET_TUPLE_ELEMENT
from ..opcodes import internal
from .values import Value, as_op, elements_of, whole_of


def rebuilt(computation: Computation, rewriter: Callable[[Builder], Rewriter]) -> Computation:
    """The computation as a rewriter makes it again. Parameters and result keep their shapes, also tuple shapes."""
    builder = Builder(computation.name)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
    for parameter, original in zip(parameters, computation.parameters, strict=True):
        parameter.instruction.common = carried_metadata(original)
    result = rewriter(builder).run(computation, [elements_of(p) for p in parameters])
    return builder.finish(as_op(builder, result))


class Rewriter:
    """Rebuilds computations in a builder as they are. Subclasses treat some instructions in their own way."""

    def __init__(self, builder: Builder):
        self.builder = builder

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The computation's result for `arguments`, one value for each parameter."""
        values: dict[Instruction, Value] = {}
        for instruction in needed_instructions(computation):
            values[instruction] = self.visit(instruction, [values[o] for o in instruction.operands], arguments)
        return values[computation.root]

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        """One instruction's value."""
        if instruction.is_parameter:
            return arguments[instruction.attributes["parameter_number"]]
        if instruction.is_tuple:
            return list(operands)
        if instruction.is_element and isinstance(operands[0], list):
            return named(operands[0][instruction.attributes["index"]], instruction)
        return self.copy(instruction, operands)

    def copy(self, instruction: Instruction, operands: list[Value], attributes: dict[str, Any] | None = None) -> Value:
        """The instruction itself over new operands (and, where given, other attributes)."""
        # Layouts are free, but for custom calls that constrain them: there they are part of what the function does.
        constrained = "operand_layout_constraints" in instruction.attributes
        # The second half of an operation must get its first half itself, and not a tuple of its elements.
        clone = Instruction(
            instruction.opcode, instruction.shape if constrained else instruction.shape.without_layout(),
            [(whole_of(o) or as_op(self.builder, o).instruction) for o in operands],
            instruction.attributes if attributes is None else attributes, instruction.name, carried_metadata(instruction),
            instruction.line, instruction.column)
        return elements_of(self.builder.append(clone))

    def copy_control(self, instruction: Instruction, operands: list[Value], attributes: dict[str, Any]) -> Value:
        """A loop or branching instruction of other regions, whose carries and branches' operands are tuples made for it."""
        made = [as_op(self.builder, o).instruction for o in operands]
        shape = made[0].shape if is_loop(instruction) else instruction.shape
        return elements_of(self.builder.append(Instruction(
            instruction.opcode, shape, made, attributes, instruction.name, carried_metadata(instruction), instruction.line,
            instruction.column)))


def named(value: Value, instruction: Instruction) -> Value:
    """Gives an element taken out of a tuple the name it has in the source, unless it has one of its own."""
    if isinstance(value, XlaOp) and value.instruction.name == GET_TUPLE_ELEMENT:
        value.instruction.name = instruction.name
        value.instruction.common = value.instruction.common or carried_metadata(instruction)
    return value


def needed_instructions(computation: Computation) -> list[Instruction]:
    """Those that the root depends on, those with effects, and the parameters."""
    kept = [i for i in computation.instructions if i.is_parameter or has_effect(i)]
    return live_instructions(computation, [computation.root, *kept])


def carried_metadata(instruction: Instruction) -> dict[str, Any]:
    """Metadata and the like for a rebuilt instruction: not an order among old instructions, not where a partitioner should
    put the old result, and not what a compiler noted about its own choices, except where that is the op's own meaning."""
    dropped = {"control_predecessors", "sharding"}
    if instruction.opcode != internal.custom_call:
        dropped.add("backend_config")
    return {k: v for k, v in instruction.common.items() if k not in dropped}
