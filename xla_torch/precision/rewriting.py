"""Programs rewritten by what `policy` says: each op gets its operands in the precision that it computes in.

What is computed keeps the precision that it was computed in until an op wants another, so no number is rounded twice without
need. A constant of one number has none of its own: it is made in that of what it meets, if that can hold it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import functions as ops
from ..autodiff.sharing import SharingBuilder
from ..core.errors import UnsupportedError, XlaError
from ..core.shape import Shape
from ..core.types import BF16, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import branches_of, is_branching, is_call, is_loop, loop_of, with_regions
from ..hlo.structure import CONSTANT
from ..opcodes import convert, elementwise, indexing, internal
from ..transform.rewriter import Rewriter, carried_metadata
from ..transform.values import Value, as_op, elements_of, leaves, make_tuple
from .policy import INEXACT, PRODUCTS, Computes, Precision, computes, is_bias, widest

Types = Mapping[PrimitiveType, PrimitiveType]


class Rewriting(Rewriter):
    """Rebuilds a computation in another precision. Parameters may have any."""

    def __init__(self, builder: Builder, precision: Precision):
        super().__init__(builder)
        self.precision = precision
        self._numbers: dict[int, float] = {}
        """By identity, the ops that are one number, which is theirs, or NaN where it is not known."""

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if instruction.is_parameter or instruction.is_tuple or instruction.is_element:
            return super().visit(instruction, operands, arguments)
        try:
            if is_loop(instruction):
                return self._loop(instruction, operands[0])
            if is_branching(instruction):
                return self._branches(instruction, operands)
            if is_call(instruction):
                return self.called(instruction, [as_op(self.builder, o) for o in operands])
            return self._computed(instruction, operands)
        except XlaError as error:
            raise error.located(subject=instruction.subject, where=instruction.where) from error.__cause__

    # ---- ops

    def _computed(self, inst: Instruction, operands: list[Value]) -> Value:
        if inst.opcode == CONSTANT:
            return self._constant(inst)
        given = [leaf.element_type for o in inst.operands for leaf in o.shape.leaves()]
        made = [leaf.element_type for leaf in inst.shape.leaves()]
        if not any(t in INEXACT for t in (*given, *made)):
            return self.copy(inst, operands)
        how = computes(inst)
        if how is Computes.EXACTLY:
            return self._exactly(inst, operands)
        if inst.opcode == convert.convert:
            return self._converted(inst, as_op(self.builder, operands[0]))
        types = self._types(inst, how, [as_op(self.builder, leaf) for o in operands for leaf in leaves(o)], given)
        found = self.emit(inst, operands, types)
        self._note_number(inst, how, operands, found)
        return found

    def _types(self, inst: Instruction, how: Computes, values: Sequence[XlaOp], given: Sequence[PrimitiveType]) -> Types:
        """For each type that an op had operands of, the one that they get."""
        inexact = set(given).intersection(INEXACT)
        lower = self.precision.lower
        if how is Computes.LOWER and lower is not None and all(t.is_floating and t.bits > lower.bits for t in inexact):
            return dict.fromkeys(inexact, lower)
        pairs = list(zip(values, given, strict=True))
        written = inst.opcode == indexing.dynamic_update_slice and not self._is_number(values[0])
        deciding = pairs[:1] if written else [pair for pair in pairs if not self._is_bias(inst, pair[0], values)]
        types: dict[PrimitiveType, PrimitiveType] = {}
        for type_ in inexact:
            own = self.precision.of(type_)
            met = [v.element_type for v, t in deciding if t is type_ and not self._is_number(v)]
            found = widest([*met, own] if how is Computes.ITS_OWN or not met else met)
            numbers = [self._numbers[id(v.instruction)] for v, t in pairs if t is type_ and self._is_number(v)]
            types[type_] = found if all(_holds(found, n) for n in numbers) else widest([found, own])
        return types

    def _is_bias(self, inst: Instruction, value: XlaOp, values: Sequence[XlaOp]) -> bool:
        """Whether a value is added to a product as its bias."""
        if inst.opcode != elementwise.add or not is_bias(value.instruction):
            return False
        return any(v.instruction.opcode in PRODUCTS for v in values)

    def emit(self, inst: Instruction, operands: Sequence[Value], types: Types) -> Value:
        """The instruction with other types in the places of its own."""
        given = [as_op(self.builder, self.cast(o, was.shape, types)) for o, was in zip(operands, inst.operands, strict=True)]
        whole = {t: types.get(t, self.precision.of(t)) for t in INEXACT}
        attributes = with_regions(inst, lambda region: self._region(region.computation, whole))
        return elements_of(self.builder.append(Instruction(
            inst.opcode, retyped(inst.shape.without_layout(), whole), [o.instruction for o in given], attributes, inst.name,
            carried_metadata(inst), inst.line, inst.column)))

    def _region(self, computation: Computation, types: Types) -> Computation:
        """A computation of elements with other types in the places of its own."""
        if all(types[t] is t for t in INEXACT):
            return computation
        return retyped_computation(computation, Precision(types=types))

    def _exactly(self, inst: Instruction, operands: list[Value]) -> Value:
        """The instruction as it was, of operands as they were."""
        changed = [t for s in (inst.shape, *(o.shape for o in inst.operands)) for leaf in s.leaves()
                   if self.precision.of(t := leaf.element_type) is not t]
        if changed and inst.opcode == internal.custom_call:
            raise UnsupportedError("a custom call cannot change its precision",
                                   got=inst.shape.without_layout(), expected=f"one of {self.precision.of(changed[0]).text}",
                                   hint="use a lower precision, which leaves it as it is, or trace the program in this one")
        return self.copy(inst, [self.cast(o, original.shape, {}) for o, original in zip(operands, inst.operands, strict=True)])

    def cast(self, value: Value, original: Shape, types: Types) -> Any:
        """The value in what stands for its original types: these themselves, where nothing does."""
        def cast(leaf: Shape, op: XlaOp) -> XlaOp:
            return self._as(op, types.get(leaf.element_type, leaf.element_type))

        return tree.mapped(cast, original, value, kind=list)

    def _as(self, value: XlaOp, element_type: PrimitiveType) -> XlaOp:
        if value.element_type is element_type or element_type not in INEXACT:
            return value
        found = ops.ConvertElementType(value, element_type)
        if self._is_number(value):
            self._numbers[id(found.instruction)] = self._numbers[id(value.instruction)]
        return found

    def _converted(self, inst: Instruction, operand: XlaOp) -> Value:
        """A conversion: what the program rounds, it rounds; what it widens is as wide as it was, or wider."""
        before, after = inst.operands[0].shape.element_type, inst.shape.element_type
        if after not in INEXACT:
            return self.copy(inst, [operand])
        if not (before in INEXACT and after.is_floating):
            return self.emit(inst, [operand], {before: operand.element_type})
        rounds = before is not after and before.bits >= after.bits
        return self._as(operand, after if rounds else widest([self.precision.of(after), operand.element_type]))

    # ---- constants of one number

    def _constant(self, inst: Instruction) -> Value:
        element_type = inst.shape.element_type
        if element_type not in INEXACT:
            return self.copy(inst, [])
        wanted, literal = self.precision.of(element_type), inst.attributes["literal"]
        if wanted is not element_type and not literal.elided:
            with np.errstate(over="ignore"):
                made = as_op(self.builder, self.builder.constant(literal.array.astype(wanted.numpy), wanted))
        else:
            made = as_op(self.builder, self.copy(inst, []))
        if literal.splat is not None and element_type.is_floating:
            self._numbers[id(made.instruction)] = float(literal.splat.array)
        return made

    def _is_number(self, value: XlaOp) -> bool:
        return id(value.instruction) in self._numbers

    def _note_number(self, inst: Instruction, how: Computes, operands: Sequence[Value], found: Value) -> None:
        """What is made of constants of one number, element by element or by moving, is one number."""
        values = [v for v in operands if isinstance(v, XlaOp)]
        if not isinstance(found, XlaOp) or how is not Computes.WIDEST or not values or len(values) != len(operands):
            return
        is_made = inst.schema.elementwise or len(values) == 1
        if is_made and found.element_type.is_floating and all(map(self._is_number, values)):
            moved = self._numbers[id(values[0].instruction)]
            self._numbers[id(found.instruction)] = math.nan if inst.schema.elementwise else moved

    # ---- loops and branches: flat tuples in and out, since computations are in canonical form

    def _loop(self, inst: Instruction, carried: Value) -> Value:
        condition, body = loop_of(inst)
        given = list(leaves(carried))
        shapes = inst.shape.tuple_shapes
        types = [self.precision.of(s.element_type) if self._is_number(v) else v.element_type
                 for v, s in zip(given, shapes, strict=True)]
        while True:
            inside = Shape.tuple([of_type(s, t) for s, t in zip(shapes, types, strict=True)])
            run, found = self._inside(body, inside)
            wider = [widest([t, r.element_type]) if t in INEXACT else t for t, r in zip(types, found, strict=True)]
            if wider == types:
                break
            types = wider
        stop, stops = self._inside(condition, inside)
        made = {id(body): run.finished(found, types), id(condition): stop.builder.finish(stops[0])}
        whole = make_tuple(self.builder, [self._as(v, t) for v, t in zip(given, types, strict=True)])
        return elements_of(self.builder.append(Instruction(
            inst.opcode, inside, [whole.instruction], with_regions(inst, lambda region: made[id(region.computation)]), inst.name,
            carried_metadata(inst))))

    def _branches(self, inst: Instruction, operands: list[Value]) -> Value:
        selector, *given = (as_op(self.builder, o) for o in operands)
        runs = [self._inside(branch, o.shape) for branch, o in zip(branches_of(inst), given, strict=True)]
        types = [widest([r.element_type for r in column]) if column[0].element_type in INEXACT else column[0].element_type
                 for column in zip(*(found for _, found in runs), strict=True)]
        made = iter([run.finished(found, types) for run, found in runs])
        shape = Shape.tuple([of_type(s, t) for s, t in zip(inst.shape.tuple_shapes, types, strict=True)])
        return elements_of(self.builder.append(Instruction(
            inst.opcode, shape, [selector.instruction, *(o.instruction for o in given)],
            with_regions(inst, lambda _: next(made)), inst.name, carried_metadata(inst))))

    def _inside(self, computation: Computation, shape: Shape) -> tuple[Rewriting, list[XlaOp]]:
        """A run of a region that takes what has this shape, and the leaves of its result."""
        run = type(self)(SharingBuilder(computation.name), self.precision)
        whole = run.builder.parameter(0, shape, computation.parameters[0].name)
        return run, list(leaves(run.run(computation, [elements_of(whole)])))

    def finished(self, found: Sequence[XlaOp], types: Sequence[PrimitiveType]) -> Computation:
        """The region, whose result has these types."""
        return self.builder.finish(make_tuple(self.builder, [self._as(v, t) for v, t in zip(found, types, strict=True)]))

    # ---- calls: of computations that bring derivatives

    def called(self, inst: Instruction, operands: list[XlaOp]) -> Value:
        """What a call of a computation comes to."""
        raise UnsupportedError("a call within a scalar computation is not supported", subject=inst.subject)


def _holds(element_type: PrimitiveType, number: float) -> bool:
    """Whether a finite number stays finite in a type; one that is not known (NaN), whatever float32 it is."""
    if math.isnan(number) or math.isinf(number):
        return element_type.bits >= 32 or element_type is BF16 or math.isinf(number)
    assert element_type.numpy is not None
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float64(number).astype(element_type.numpy).astype(np.complex128)))


def of_type(shape: Shape, element_type: PrimitiveType) -> Shape:
    """The array of another element type, without layout."""
    if not shape.is_array or shape.element_type is element_type:
        return shape.without_layout()
    return Shape(element_type, shape.dimensions, None, shape.dynamic_dimensions)


def retyped(shape: Shape, types: Types) -> Shape:
    """The shape with other element types in the places of its own."""
    return tree.mapped(lambda leaf: of_type(leaf, types.get(leaf.element_type, leaf.element_type)), shape, kind=Shape.tuple)


def retyped_computation(computation: Computation, precision: Precision) -> Computation:
    """A computation all of whose types are others."""
    builder = SharingBuilder(computation.name)
    types = {t: precision.of(t) for t in INEXACT}
    arguments = [builder.parameter(k, retyped(p.shape, types), p.name) for k, p in enumerate(computation.parameters)]
    run = Rewriting(builder, precision)
    found = run.run(computation, [elements_of(a) for a in arguments])
    return builder.finish(as_op(builder, run.cast(found, computation.root.shape, types)))
