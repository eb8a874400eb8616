"""Calls opened, tuples taken apart: a computation in the plain form that other transforms can walk straight through.

In plain form there is no call, fusion, composite or asynchronous wrapper; no element is taken out of a `tuple`
instruction; dead code is gone; and a `while` or `conditional` has one flat tuple of leaves as its carry, as each branch's
operand and as its result, with regions in plain form themselves. There are no layouts but the parameters', and a bitcast
reads row-major memory. A logistic function that was written out is one instruction again. What is computed, and every
surviving name, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..builder import XlaBuilder, XlaOp
from ..hlo.ir import Computation, Instruction, live_instructions
from ..opcodes.inference import has_effect
from ..shape import Shape
from .recognise_logistic import logistic_argument

Value = XlaOp | list[Any]
"""A value while a computation is rebuilt: a tuple is a list of values, and becomes an instruction only where one is needed."""


def inline(computation: Computation) -> Computation:
    """The computation in plain form. Parameters and result keep their shapes, also tuple shapes."""
    return rebuilt(computation, Inliner)


def rebuilt(computation: Computation, inliner: Callable[[XlaBuilder], Replay]) -> Computation:
    """The computation in plain form as an `Inliner`, or a subclass that treats more opcodes in its own way, makes it."""
    builder = XlaBuilder(computation.name)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
    for parameter, original in zip(parameters, computation.parameters, strict=True):
        parameter.instruction.common = kept_facts(original)
    result = inliner(builder).run(computation, [elements_of(p) for p in parameters])
    return builder.finish(as_op(builder, result))


class Replay:
    """Rebuilds computations in a builder, instruction by instruction. Subclasses treat some opcodes in their own way."""

    def __init__(self, builder: XlaBuilder):
        self.builder = builder

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The computation's result for `arguments`, one value for each parameter."""
        values: dict[Instruction, Value] = {}
        for instruction in needed_instructions(computation):
            values[instruction] = self.visit(instruction, [values[o] for o in instruction.operands], arguments)
        return values[computation.root]

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        """One instruction's value."""
        if instruction.opcode == "parameter":
            return arguments[instruction.attributes["parameter_number"]]
        if instruction.opcode == "tuple":
            return list(operands)
        if instruction.opcode == "get-tuple-element" and isinstance(operands[0], list):
            return named(operands[0][instruction.attributes["index"]], instruction)
        return self.copy(instruction, operands)

    def copy(self, instruction: Instruction, operands: list[Value], attributes: dict[str, Any] | None = None) -> Value:
        """The instruction itself over new operands (and, where given, other attributes)."""
        # Layouts are free, but for custom calls that constrain them: there they are part of what the function does.
        constrained = "operand_layout_constraints" in instruction.attributes
        clone = Instruction(
            instruction.opcode, instruction.shape if constrained else instruction.shape.without_layout(),
            [(_taken_apart(o) or as_op(self.builder, o).instruction) for o in operands],
            instruction.attributes if attributes is None else attributes, instruction.name, kept_facts(instruction),
            instruction.line, instruction.column)
        return elements_of(self.builder.append(clone))


class Inliner(Replay):
    """Opens calls and brings loops and branches into plain form."""

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        special = _SPECIAL.get(instruction.opcode)
        return special(self, instruction, operands) if special else super().visit(instruction, operands, arguments)

    def call(self, instruction: Instruction, operands: list[Value]) -> Value:
        return self.run(instruction.called_computations[0], operands)

    def async_start(self, instruction: Instruction, operands: list[Value]) -> Value:
        return [list(operands), self.call(instruction, operands)]

    def async_update(self, instruction: Instruction, operands: list[Value]) -> Value:
        return operands[0]

    def async_done(self, instruction: Instruction, operands: list[Value]) -> Value:
        started = operands[0]
        assert isinstance(started, list)
        return started[1]

    def divide(self, instruction: Instruction, operands: list[Value]) -> Value:
        numerator, denominator = (as_op(self.builder, o).instruction for o in operands)
        x = logistic_argument(numerator, denominator)
        if x is None:
            return self.copy(instruction, operands)
        logistic = Instruction("logistic", instruction.shape, [x], {}, instruction.name, kept_facts(instruction),
                               instruction.line, instruction.column)
        return self.builder.append(logistic)

    def loop(self, instruction: Instruction, operands: list[Value]) -> Value:
        regions = {"condition": self.region(instruction.attributes["condition"], flat_result=False),
                   "body": self.region(instruction.attributes["body"])}
        return self.whole(instruction, operands, regions)

    def branches(self, instruction: Instruction, operands: list[Value]) -> Value:
        regions = {name: tuple(map(self.region, value)) if isinstance(value, tuple) else self.region(value)
                   for name, value in instruction.attributes.items() if value}
        return self.whole(instruction, operands, regions)

    def whole(self, instruction: Instruction, operands: list[Value], regions: dict[str, Any]) -> Value:
        """A loop or conditional over flat tuples (a selector stays as it is); its result grouped as the original's."""
        selector, carries = (operands[:1], operands[1:]) if instruction.opcode == "conditional" else ([], operands)
        flat = [as_op(self.builder, list(leaves(value))) for value in carries]
        clone = Instruction(instruction.opcode, _flat(instruction.shape),
                            [as_op(self.builder, o).instruction for o in (*selector, *flat)], regions, instruction.name,
                            kept_facts(instruction), instruction.line, instruction.column)
        return regrouped(list(leaves(elements_of(self.builder.append(clone)))), instruction.shape)

    def bitcast(self, instruction: Instruction, operands: list[Value]) -> Value:
        """Memory read in another order, said without layouts: into the operand's memory order, and out of the result's."""
        (operand,), source, result = operands, instruction.operands[0].shape, instruction.shape
        assert isinstance(operand, XlaOp)
        before, after = source.minor_to_major[::-1], result.minor_to_major[::-1]
        in_memory = self._transpose(operand, before, instruction)
        read = self._append("bitcast", _permuted(result, after), in_memory, {}, instruction)
        return self._transpose(read, [after.index(d) for d in range(result.rank)], instruction)

    def _transpose(self, operand: XlaOp, order: Sequence[int], origin: Instruction) -> XlaOp:
        if list(order) == sorted(order):
            return operand
        return self._append("transpose", _permuted(operand.shape, order), operand, {"dimensions": tuple(order)}, origin)

    def _append(self, opcode: str, shape: Shape, operand: XlaOp, attributes: dict[str, Any], origin: Instruction) -> XlaOp:
        return self.builder.append(Instruction(opcode, shape, [operand.instruction], attributes, origin.name, kept_facts(origin)))

    def within(self, builder: XlaBuilder) -> Inliner:
        """One like this for a region, which has a builder of its own."""
        return type(self)(builder)

    def region(self, computation: Computation, flat_result: bool = True) -> Computation:
        """A loop's or branch's computation in plain form: one flat tuple in and, unless it is a condition, one out."""
        builder = XlaBuilder(computation.name)
        (original,) = computation.parameters
        whole = builder.parameter(0, _flat(original.shape), original.name)
        result = self.within(builder).run(computation, [regrouped(list(leaves(elements_of(whole))), original.shape)])
        return builder.finish(as_op(builder, list(leaves(result)) if flat_result else result))


_SPECIAL = {"call": Inliner.call, "fusion": Inliner.call, "async-start": Inliner.async_start,
            "async-update": Inliner.async_update, "async-done": Inliner.async_done, "while": Inliner.loop,
            "conditional": Inliner.branches, "bitcast": Inliner.bitcast, "divide": Inliner.divide}

# ------------------------------------------------------------------------------------------------ tuples as lists


def _taken_apart(value: Value) -> Instruction | None:
    """The tuple whose elements are all of a list, in their order: an operation's second half must get its first half itself,
    and not a tuple of its elements."""
    if isinstance(value, XlaOp):
        return value.instruction
    parts = [_taken_apart(v) for v in value]
    wholes = {p.operands[0] if p is not None and p.opcode == "get-tuple-element" else None for p in parts}
    whole = wholes.pop() if len(wholes) == 1 else None
    numbers = [p.attributes["index"] for p in parts if p is not None] if whole is not None else []
    return whole if whole is not None and numbers == list(range(len(whole.shape.tuple_shapes))) else None


def as_op(builder: XlaBuilder, value: Value) -> XlaOp:
    """The value as one op: a list becomes a `tuple` instruction."""
    if isinstance(value, XlaOp):
        return value
    return make_tuple(builder, [as_op(builder, v) for v in value])


def make_tuple(builder: XlaBuilder, elements: Sequence[XlaOp], name: str = "tuple") -> XlaOp:
    """A `tuple` instruction; it may be empty."""
    shape = Shape.tuple([e.shape for e in elements])
    return builder.append(Instruction("tuple", shape, [e.instruction for e in elements], name=name))


def element(whole: XlaOp, index: int, name: str = "get-tuple-element") -> XlaOp:
    """Element `index` of a tuple-shaped op."""
    shape = whole.shape.tuple_shapes[index]
    return whole.builder.append(Instruction("get-tuple-element", shape, [whole.instruction], {"index": index}, name))


def elements_of(op: XlaOp) -> Value:
    """The op, taken apart into a list where its shape is a tuple."""
    if not op.shape.is_tuple:
        return op
    return [elements_of(element(op, k)) for k in range(len(op.shape.tuple_shapes))]


def leaves(value: Value) -> Iterator[XlaOp]:
    """The ops in a value, depth first."""
    if isinstance(value, XlaOp):
        yield value
    else:
        for part in value:
            yield from leaves(part)


def regrouped(flat: Sequence[Any], shape: Shape) -> Any:
    """Leaves as nested lists in the form of `shape`."""
    rest = iter(flat)

    def group(part: Shape) -> Any:
        return [group(s) for s in part.tuple_shapes] if part.is_tuple else next(rest)

    return group(shape)


def _permuted(shape: Shape, order: Sequence[int]) -> Shape:
    """An array shape with its dimensions in another order."""
    return shape.with_dimensions([shape.dimensions[d] for d in order], [shape.dynamic_flags[d] for d in order])


def _flat(shape: Shape) -> Shape:
    """One tuple of the shape's leaves, without layouts."""
    return Shape.tuple([leaf.without_layout() for leaf in shape.leaves()])


def named(value: Value, instruction: Instruction) -> Value:
    """Gives an element taken out of a tuple the name it has in the source, unless it has one of its own."""
    if isinstance(value, XlaOp) and value.instruction.name == "get-tuple-element":
        value.instruction.name = instruction.name
        value.instruction.common = value.instruction.common or kept_facts(instruction)
    return value


# ------------------------------------------------------------------------------------------------ what is kept


def needed_instructions(computation: Computation) -> list[Instruction]:
    """Those that the root depends on, those with effects, and the parameters."""
    kept = [i for i in computation.instructions if i.opcode == "parameter" or has_effect(i)]
    return live_instructions(computation, [computation.root, *kept])


def kept_facts(instruction: Instruction) -> dict[str, Any]:
    """Metadata and the like for a rebuilt instruction: not an order among old instructions, not where a partitioner should
    put the old result, and not what a compiler noted about its own choices, except where that is the op's own meaning."""
    dropped = {"control_predecessors", "sharding"}
    if instruction.opcode != "custom-call":
        dropped.add("backend_config")
    return {k: v for k, v in instruction.common.items() if k not in dropped}
