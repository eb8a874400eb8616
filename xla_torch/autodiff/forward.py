"""Forward mode over the IR: values and tangents together, in one pass and with nothing kept.

There is no second table. A gradient rule is linear in its cotangent, and its transpose is the op's tangent: an op's rules
are written down for a cotangent that is only a parameter, walked back once by the engine, and what comes out, free of that
parameter, is emitted for the tangents at hand. An op that only moves elements moves tangents as it is. Loops carry tangents
beside their carries, whatever their trip count; branches return them beside their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grad_rules._calculus import conj, zeros
from grad_rules._compositions import pulled_back
from grad_rules._fused import Fused, fused_at
from grad_rules._table import TABLE, GradientKind

from ..analysis.channel_pairs import channel_pairs
from ..core import tuning
from ..core.errors import DifferentiationError, XlaError
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.gradient_changes import has_target_rule
from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction
from ..opcodes import movement
from ..transform.dead_carries import without_dead_carries
from ..transform.dynamic_sizes import resolve_sizes, with_traced_sizes
from ..transform.expand_custom_calls import expand
from ..transform.rewriter import Rewriter, needed_instructions
from ..transform.values import Value, as_op, element, elements_of, leaves, make_tuple
from .activity import activity, differentiable_operands
from .cotangents import fitted, frozen, is_zero, materialised, parts_of
from .flags import Flags, any_of, differentiable, flags_of, present
from .once import cached_by_rules
from .residuals import needs, rebuild
from .reverse import Recording
from .sharing import SharingBuilder
from .structure import Tangent, structural


class Forward(Rewriter):
    """One run of a canonical computation inside a builder, with tangents.

    `arguments` are the parameters' values and `tangents` theirs. `result` and `tangent` are the computation's value and its
    tangent. Raises DifferentiationError for an op without gradient on a path that a tangent takes.
    """

    def __init__(self, builder: Builder, computation: Computation, arguments: Sequence[Value], tangents: Sequence[Tangent]):
        super().__init__(builder)
        self.active, self.pairs = activity(computation, [present(t) for t in tangents]), channel_pairs(computation)
        self.values: dict[Instruction, Value] = {}
        self.tangents: dict[Instruction, Tangent] = {}
        for instruction in needed_instructions(computation):
            values = [self.values[o] for o in instruction.operands]
            if instruction.is_parameter:
                number = instruction.attributes["parameter_number"]
                self.values[instruction], self.tangents[instruction] = arguments[number], tangents[number]
            else:
                self._advance(instruction, values, [self.tangents[o] for o in instruction.operands])
        self.result, self.tangent = self.values[computation.root], self.tangents[computation.root]

    def _advance(self, instruction: Instruction, values: list[Value], tangents: list[Tangent]) -> None:
        if not any_of(self.active[instruction]):
            self.values[instruction], self.tangents[instruction] = self.visit(instruction, values, ()), None
            return
        start = len(self.builder.instructions)
        try:
            value, tangent = self._both(instruction, values, tangents)
        except XlaError as error:
            raise error.located(subject=f"tangent of {instruction.subject}", where=instruction.where) from error.__cause__
        self.values[instruction], self.tangents[instruction] = value, fitted(tangent, value)
        for built in self.builder.instructions[start:]:
            if instruction.op_name and not built.common and not built.is_parameter:
                built.common = {"metadata": {"op_name": f"jvp({instruction.op_name})"}}

    def _both(self, instruction: Instruction, values: list[Value], tangents: list[Tangent]) -> tuple[Value, Tangent]:
        """The value and the tangent of an instruction that has one."""
        handler = structural(instruction)
        if handler is not None:
            return handler.tangent(self, instruction, values, tangents)
        value = self.visit(instruction, values, ())
        whole = fused_at(instruction)
        if whole is not None:
            return value, self._by_fused(instruction, whole, value)
        return value, self._by_rules(instruction, values, value, tangents)

    def _by_fused(self, instruction: Instruction, whole: Fused, value: Value) -> Tangent:
        """The tangent by a rule that several ops have together."""
        tangent = self.tangents[whole.source]
        if not isinstance(tangent, XlaOp):
            return None
        known = self.values | {instruction: value}
        reads = [as_op(self.builder, frozen(known[i])) for i in whole.reads]
        if not whole.symmetric:
            return _transposed(whole, instruction.shape, tangent, reads)
        found = whole.rule(conj(tangent), *reads)
        return None if found is None else conj(found)

    def _by_rules(self, instruction: Instruction, values: list[Value], value: Value, tangents: list[Tangent]) -> Tangent:
        reached = set(differentiable_operands(instruction))
        moving = [k for k, t in enumerate(tangents) if k in reached and not is_zero(t)]
        if not moving:
            return None
        if _only_moves(instruction):
            return self._same_op(instruction, values, tangents)
        return _Transposed(instruction, moving).emit(self.builder, values, value, tangents)

    def _same_op(self, instruction: Instruction, values: list[Value], tangents: list[Tangent]) -> Tangent:
        """What moves elements moves tangents: the op itself, of tangents (zeros where there is none) and the places given."""
        reached = [k for k in differentiable_operands(instruction) if any_of(differentiable(instruction.operands[k].shape))]
        moved = [materialised(self.builder, t, o.shape.without_layout()) if k in reached else v
                 for k, (t, v, o) in enumerate(zip(tangents, values, instruction.operands, strict=True))]
        tangent = self.copy(instruction, moved)
        assert isinstance(tangent, XlaOp)
        return tangent


def _transposed(whole: Fused, shape: Shape, tangent: XlaOp, reads: Sequence[XlaOp]) -> Tangent:
    """The tangent of a result of this shape by a rule that several ops have together, which is linear in its cotangent."""
    builder = Builder("rule")
    ct, *given = (builder.parameter(k, s) for k, s in enumerate([shape.without_layout(), *(r.shape for r in reads)]))
    found = whole.rule(ct, *given)
    if found is None:
        return None
    rule = builder.finish(make_tuple(builder, [found]))
    arguments = [zeros(tangent, shape.without_layout()), *reads]
    return pulled_back(rule, arguments, [tangent], [True] + [False] * len(reads))[0]


class _Transposed:
    """An op's gradient rules for the operands at positions `moving`, transposed: from their tangents to the result's."""

    def __init__(self, instruction: Instruction, moving: Sequence[int]):
        self._shape, self._count = instruction.shape, len(list(_differentiable_leaves(instruction.shape)))
        rules, self._parts = self._written(instruction, moving)
        builder = SharingBuilder(rules.name)
        parameters = [builder.parameter(k, p.shape) for k, p in enumerate(rules.parameters)]
        recording = Recording(builder, rules, [elements_of(p) for p in parameters],
                              [k < self._count for k in range(len(parameters))])
        seeds = [builder.parameter(len(parameters) + k, s) for k, s in enumerate(rules.root.shape.tuple_shapes)]
        found = recording.backward(frozen([elements_of(s) for s in seeds]))[:self._count]
        self._present = [isinstance(t, XlaOp) for t in found]
        whole = make_tuple(builder, [t for t in found if isinstance(t, XlaOp)])
        self._transposed = with_traced_sizes(without_dead_carries(builder.finish(whole)), self._sizes(instruction, rules.root))

    def _sizes(self, instruction: Instruction, seeds: Instruction) -> dict[int, tuple[int, int]]:
        """Whose sizes the cotangents of the result and the operands' tangents have: the result's and the operands'."""
        operands, out = self._count, self._count + len(instruction.operands)
        numbers = [k for k, leaf in enumerate(self._shape.leaves()) if any_of(differentiable(leaf))]
        like = {number: (out, leaf) for number, leaf in enumerate(numbers)}
        return like | {out + 1 + number: (operands + k, 0) for number, k in enumerate(self._parts)
                       if seeds.operands[number].shape.is_array}

    def _written(self, instruction: Instruction, moving: Sequence[int]) -> tuple[Computation, list[int]]:
        """The rules as a computation and the operands that it gives a cotangent: from the cotangents of the result's leaves,
        the operands and the result."""
        builder = SharingBuilder(f"rules_of_{instruction.name}")
        leaf_cts = [builder.parameter(k, s) for k, s in enumerate(_differentiable_leaves(self._shape))]
        known = [o.shape.without_layout() for o in instruction.operands] + [self._shape.without_layout()]
        *operands, out = (elements_of(builder.parameter(self._count + k, s)) for k, s in enumerate(known))
        recording = _OneOp(builder, instruction, operands, out, moving)
        found = recording.backward(_grouped(self._shape, leaf_cts))
        parts = [k for k in moving if not is_zero(found[k])]
        results = [as_op(builder, materialised(builder, found[k], known[k])) for k in parts]
        return resolve_sizes(expand(builder.finish(make_tuple(builder, results)), has_target_rule)), parts

    def emit(self, builder: Builder, operands: Sequence[Value], out: Value, tangents: Sequence[Tangent]) -> Tangent:
        """The tangent of the result for those of the operands, in `builder`."""
        parameters, targets = self._transposed.parameters, self._transposed.root.operands
        if needs(targets, parameters[:self._count]):
            raise DifferentiationError("the gradient rule is not linear in its cotangent")
        given = [as_op(builder, v) for v in (*operands, out)]
        seeds = parameters[self._count + len(given):]
        given += [as_op(builder, materialised(builder, tangents[k], s.shape)) for s, k in zip(seeds, self._parts, strict=True)]
        known = dict(zip(parameters[self._count:], given, strict=True))
        built = iter(rebuild(builder, self._transposed.instructions, known, targets))
        return _grouped(self._shape, [next(built) if there else None for there in self._present])


def _only_moves(instruction: Instruction) -> bool:
    """Whether the op is linear in all operands that have a gradient, and the table says so. The second half of an operation
    takes its first half, of which tangents are none."""
    entry = TABLE.get(instruction.opcode)
    linear = entry is not None and entry.kind is GradientKind.LINEAR and not instruction.schema.completes
    return linear and instruction.shape.is_array and not instruction.called_computations


class _OneOp(Recording):
    """One instruction alone, its result being given. Its operands are parameters, but for those that are made of
    constants: rules look at them."""

    def __init__(self, builder: Builder, instruction: Instruction, operands: Sequence[Value], out: Value,
                 moving: Sequence[int]):
        self._out = out
        inputs = [Instruction(movement.parameter, o.shape, (), {"parameter_number": k}, o.name)
                  for k, o in enumerate(instruction.operands)]
        fixed = [_made_of_constants(o) for o in instruction.operands]
        alone = Instruction(instruction.opcode, instruction.shape,
                            [o if known else p for o, p, known in zip(instruction.operands, inputs, fixed, strict=True)],
                            instruction.attributes, instruction.name, instruction.common, instruction.line, instruction.column)
        before = [i for known in fixed for i in known or ()]
        computation = Computation(instruction.name, [*dict.fromkeys(before), *inputs, alone])
        super().__init__(builder, computation, operands, [k in moving for k in range(len(inputs))])

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        return self._out if instruction is self.computation.root else super().visit(instruction, operands, arguments)


def _made_of_constants(instruction: Instruction) -> list[Instruction]:
    """The few instructions that an operand is computed from, operands first, if they depend on no parameter."""
    found: list[Instruction] = []
    waiting = [instruction]
    while waiting:
        current = waiting.pop()
        if current.is_parameter or len(found) == tuning.CONSTANT_OPERANDS or not is_pure(current):
            return []
        found.append(current)
        waiting += current.operands
    return list(dict.fromkeys(reversed(found)))


# ------------------------------------------------------------------------------------------------ regions and tuples


@cached_by_rules
def with_tangents(computation: Computation, inside: Flags, outside: Flags) -> Computation:
    """A loop's body or a branch with the flagged elements' tangents behind the values, in its operand (`inside`) and its result
    (`outside`), which are flat tuples."""
    builder = SharingBuilder(f"{computation.name}_jvp")
    (parameter,) = computation.parameters
    shapes = parameter.shape.tuple_shapes
    whole = builder.parameter(0, Shape.tuple([*shapes, *tangent_shapes(inside, shapes)]), parameter.name)
    given_values, given_tangents = values_and_tangents(whole, inside)
    run = Forward(builder, computation, [given_values], [given_tangents])
    values = list(leaves(run.result))
    tangents = flagged(builder, run.tangent, outside, [v.shape for v in values])
    return builder.finish(make_tuple(builder, [*values, *tangents]))


@cached_by_rules
def on_values(condition: Computation, shape: Shape, count: int) -> Computation:
    """A loop's condition for a carry with tangents behind its first `count` elements."""
    builder = Builder(condition.name)
    whole = builder.parameter(0, shape, condition.parameters[0].name)
    result = Rewriter(builder).run(condition, [[element(whole, k) for k in range(count)]])
    return builder.finish(as_op(builder, result))


def flagged(builder: Builder, tangent: Tangent, flags: Flags, shapes: Sequence[Shape]) -> list[XlaOp]:
    """The tangents of a flat tuple's flagged elements, zeros where there is none."""
    parts = zip(flags_of(flags, len(shapes)), parts_of(tangent, len(shapes)), shapes, strict=True)
    return [as_op(builder, materialised(builder, part, shape.without_layout())) for flag, part, shape in parts if flag]


def tangent_shapes(flags: Flags, shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes of the tangents of a flat tuple's flagged elements."""
    return [s.without_layout() for flag, s in zip(flags_of(flags, len(shapes)), shapes, strict=True) if flag]


def values_and_tangents(whole: XlaOp, flags: Flags) -> tuple[Value, Tangent]:
    """Values, and the tangents of the flagged ones, out of a flat tuple of both."""
    assert isinstance(flags, tuple)
    parts = [element(whole, k) for k in range(len(whole.shape.tuple_shapes))]
    tangents = iter(parts[len(flags):])
    return parts[:len(flags)], tuple(next(tangents) if flag else None for flag in flags)


def _differentiable_leaves(shape: Shape) -> Iterator[Shape]:
    return (leaf.without_layout() for leaf in shape.leaves() if leaf.is_array and leaf.element_type.is_differentiable)


def _grouped(shape: Shape, parts: Sequence[XlaOp | None]) -> Tangent:
    """Tangents of the floating and complex leaves in the form of the shape, None at all others."""
    rest = iter(parts)
    return tree.grouped((next(rest) if any_of(differentiable(leaf)) else None for leaf in shape.leaves()), shape)
