"""Forward mode over the IR: values and tangents together, in one pass and with nothing kept.

There is no second table. A gradient rule is linear in its cotangent, and its transpose is the op's tangent: an op's rules
are written down for a cotangent that is only a parameter, walked back once by the engine, and what comes out, free of that
parameter, is emitted for the tangents at hand. An op that only moves elements moves tangents as it is. Loops carry tangents
beside their carries, whatever their trip count; branches return them beside their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from grad_rules._table import TABLE, GradientKind

from ..builder import XlaBuilder, XlaOp
from ..errors import DifferentiationError, XlaError
from ..hlo.ir import Computation, Instruction
from ..opcodes.inference import is_pure
from ..shape import Shape
from ..transform.channels import ways
from ..transform.dead_carries import without_dead_carries
from ..transform.dynamic_sizes import settle
from ..transform.expand_custom_calls import expand
from ..transform.inline import (
    Replay,
    Value,
    as_op,
    element,
    elements_of,
    kept_facts,
    leaves,
    make_tuple,
    needed_instructions,
    regrouped,
)
from .activity import Flags, activity, any_of, differentiable, differentiable_operands, spread
from .channels import passed_on, received, whole_way
from .engine import Cotangent, Tape, fitted, is_zero, materialised
from .residuals import needs, rebuild
from .sharing import SharingBuilder

Tangent = Cotangent
"""What flows forward with a value: an op of its shape, for a tuple one tangent for each element, None for zero."""


class Forward(Replay):
    """One run of a plain computation inside a builder, with tangents.

    `arguments` are the parameters' values and `tangents` theirs. `result` and `tangent` are the computation's value and its
    tangent. Raises DifferentiationError for an op without gradient on a path that a tangent takes.
    """

    def __init__(self, builder: XlaBuilder, computation: Computation, arguments: Sequence[Value], tangents: Sequence[Tangent]):
        super().__init__(builder)
        self.active, self._ways = activity(computation, [_present(t) for t in tangents]), ways(computation)
        self.values: dict[Instruction, Value] = {}
        self.tangents: dict[Instruction, Tangent] = {}
        for instruction in needed_instructions(computation):
            values = [self.values[o] for o in instruction.operands]
            if instruction.opcode == "parameter":
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
            if instruction.op_name and not built.common and built.opcode != "parameter":
                built.common = {"metadata": {"op_name": f"jvp({instruction.op_name})"}}

    def _both(self, instruction: Instruction, values: list[Value], tangents: list[Tangent]) -> tuple[Value, Tangent]:
        """The value and the tangent of an instruction that has one."""
        match instruction.opcode:
            case "tuple":
                return list(values), tuple(tangents)
            case "get-tuple-element":
                (whole,) = tangents
                part = whole[instruction.attributes["index"]] if isinstance(whole, tuple) else None
                return self.visit(instruction, values, ()), part
            case "while":
                return self._loop(instruction, values[0], tangents[0])
            case "conditional":
                return self._branches(instruction, values, tangents)
            case "send" | "recv-done":
                value = self.visit(instruction, values, ())
                return value, self._along(instruction, tangents)
        value = self.visit(instruction, values, ())
        return value, self._by_rules(instruction, values, value, tangents)

    # ---- loops and branches: flat tuples in and out, since computations are in plain form

    def _loop(self, instruction: Instruction, initial: Value, tangent: Tangent) -> tuple[Value, Tangent]:
        body, condition = instruction.attributes["body"], instruction.attributes["condition"]
        flags, shapes = self.active[instruction], instruction.shape.tuple_shapes
        carry = make_tuple(self.builder, [*leaves(initial), *self._flagged(tangent, flags, shapes)])
        shape = Shape.tuple([*shapes, *(s.without_layout() for s in _chosen(flags, shapes))])
        attributes = {"condition": _on_values(condition, shape, len(shapes)), "body": _with_tangents(body, flags, flags)}
        whole = self.builder.append(Instruction("while", shape, [carry.instruction], attributes, instruction.name,
                                                kept_facts(instruction)))
        return _taken_apart(whole, flags)

    def _branches(self, instruction: Instruction, values: list[Value], tangents: list[Tangent]) -> tuple[Value, Tangent]:
        flags, shapes = self.active[instruction], instruction.shape.tuple_shapes
        operands, regions = [as_op(self.builder, values[0])], []
        for branch, value, tangent in zip(instruction.called_computations, values[1:], tangents[1:], strict=True):
            inside = branch.parameters[0].shape
            active = differentiable(inside, spread(inside, _present(tangent)))
            given = self._flagged(tangent, active, inside.tuple_shapes)
            operands.append(make_tuple(self.builder, [*leaves(value), *given]))
            regions.append(_with_tangents(branch, active, flags))
        shape = Shape.tuple([*shapes, *(s.without_layout() for s in _chosen(flags, shapes))])
        whole = self.builder.append(Instruction("conditional", shape, [o.instruction for o in operands],
                                                _same_regions(instruction, regions), instruction.name, kept_facts(instruction)))
        return _taken_apart(whole, flags)

    def _along(self, end: Instruction, tangents: list[Tangent]) -> Tangent:
        """The tangent takes the same way as the value."""
        way = whole_way(self._ways, end)
        if end is way.done:
            return received(self.builder, end.shape.tuple_shapes[0], way), None
        tangent = materialised(self.builder, tangents[0], end.operands[0].shape.without_layout())
        assert isinstance(tangent, XlaOp)
        passed_on(self.builder, tangent, way)
        return tangent, None, None

    def _flagged(self, tangent: Tangent, flags: Flags, shapes: Sequence[Shape]) -> list[XlaOp]:
        """The flagged elements' tangents, zeros where there is none."""
        parts = tangent if isinstance(tangent, tuple) else (None,) * len(shapes)
        return [as_op(self.builder, materialised(self.builder, p, s.without_layout()))
                for p, s in zip(_chosen(flags, parts), _chosen(flags, shapes), strict=True)]

    # ---- everything else: the transposes of the rules

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


class _Transposed:
    """An op's gradient rules for the operands at positions `moving`, transposed: from their tangents to the result's."""

    def __init__(self, instruction: Instruction, moving: Sequence[int]):
        self._shape, self._count = instruction.shape, len(list(_differentiable_leaves(instruction.shape)))
        rules, self._parts = self._written(instruction, moving)
        builder = SharingBuilder(rules.name)
        parameters = [builder.parameter(k, p.shape) for k, p in enumerate(rules.parameters)]
        tape = Tape(builder, rules, [elements_of(p) for p in parameters],
                    [k < self._count for k in range(len(parameters))])
        seeds = [builder.parameter(len(parameters) + k, s) for k, s in enumerate(rules.root.shape.tuple_shapes)]
        found = tape.backward(frozen([elements_of(s) for s in seeds]))[:self._count]
        self._present = [isinstance(t, XlaOp) for t in found]
        whole = make_tuple(builder, [t for t in found if isinstance(t, XlaOp)])
        self._transposed = without_dead_carries(builder.finish(whole))

    def _written(self, instruction: Instruction, moving: Sequence[int]) -> tuple[Computation, list[int]]:
        """The rules as a computation and the operands that it gives a cotangent: from the cotangents of the result's leaves,
        the operands and the result."""
        builder = SharingBuilder(f"rules_of_{instruction.name}")
        leaf_cts = [builder.parameter(k, s) for k, s in enumerate(_differentiable_leaves(self._shape))]
        known = [o.shape.without_layout() for o in instruction.operands] + [self._shape.without_layout()]
        *operands, out = (elements_of(builder.parameter(self._count + k, s)) for k, s in enumerate(known))
        tape = _OneOp(builder, instruction, operands, out, moving)
        found = tape.backward(_grouped(self._shape, leaf_cts))
        parts = [k for k in moving if not is_zero(found[k])]
        results = [as_op(builder, materialised(builder, found[k], known[k])) for k in parts]
        return settle(expand(builder.finish(make_tuple(builder, results)))), parts

    def emit(self, builder: XlaBuilder, operands: Sequence[Value], out: Value, tangents: Sequence[Tangent]) -> Tangent:
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
    """Whether the op is linear in all operands that have a gradient, and the table says so."""
    entry = TABLE.get(instruction.opcode)
    linear = entry is not None and entry.kind is GradientKind.LINEAR
    return linear and instruction.shape.is_array and not instruction.called_computations


class _OneOp(Tape):
    """One instruction alone, its result being given. Its operands are parameters, but for those that are made of
    constants: rules look at them."""

    def __init__(self, builder: XlaBuilder, instruction: Instruction, operands: Sequence[Value], out: Value,
                 moving: Sequence[int]):
        self._out = out
        inputs = [Instruction("parameter", o.shape, (), {"parameter_number": k}, o.name)
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


_MOST = 16
"""Up to how many instructions an operand made of constants is looked at by rules."""


def _made_of_constants(instruction: Instruction) -> list[Instruction]:
    """The few instructions that an operand is computed from, operands first, if they depend on no parameter."""
    found: list[Instruction] = []
    waiting = [instruction]
    while waiting:
        current = waiting.pop()
        if current.opcode == "parameter" or len(found) == _MOST or not is_pure(current):
            return []
        found.append(current)
        waiting += current.operands
    return list(dict.fromkeys(reversed(found)))


# ------------------------------------------------------------------------------------------------ regions and tuples


def _with_tangents(computation: Computation, inside: Flags, outside: Flags) -> Computation:
    """A loop's body or a branch with the flagged elements' tangents behind the values, in its operand and its result."""
    builder = SharingBuilder(f"{computation.name}_jvp")
    (parameter,) = computation.parameters
    shapes = parameter.shape.tuple_shapes
    given = Shape.tuple([*shapes, *(s.without_layout() for s in _chosen(inside, shapes))])
    whole = builder.parameter(0, given, parameter.name)
    given_values, given_tangents = _taken_apart(whole, inside)
    run = Forward(builder, computation, [given_values], [given_tangents])
    values = list(leaves(run.result))
    parts = run.tangent if isinstance(run.tangent, tuple) else (None,) * len(values)
    tangents = [as_op(builder, materialised(builder, t, v.shape.without_layout()))
                for t, v in zip(_chosen(outside, parts), _chosen(outside, values), strict=True)]
    return builder.finish(make_tuple(builder, [*values, *tangents]))


def _on_values(condition: Computation, shape: Shape, count: int) -> Computation:
    """A loop's condition for a carry with tangents behind its first `count` elements."""
    builder = XlaBuilder(condition.name)
    whole = builder.parameter(0, shape, condition.parameters[0].name)
    result = Replay(builder).run(condition, [[element(whole, k) for k in range(count)]])
    return builder.finish(as_op(builder, result))


def _same_regions(instruction: Instruction, regions: Sequence[Computation]) -> dict[str, Any]:
    """A conditional's attributes with other branches."""
    if instruction.attributes.get("branch_computations"):
        return {"branch_computations": tuple(regions)}
    return {"true_computation": regions[0], "false_computation": regions[1]}


def _taken_apart(whole: XlaOp, flags: Flags) -> tuple[Value, Tangent]:
    """Values, and the tangents of the flagged ones, out of a flat tuple of both."""
    assert isinstance(flags, tuple)
    parts = [element(whole, k) for k in range(len(whole.shape.tuple_shapes))]
    tangents = iter(parts[len(flags):])
    return parts[:len(flags)], tuple(next(tangents) if flag else None for flag in flags)


def _chosen(flags: Flags, items: Sequence[Any]) -> list[Any]:
    assert isinstance(flags, tuple)
    return [item for flag, item in zip(flags, items, strict=True) if flag]


def _present(tangent: Tangent) -> Flags:
    return tuple(map(_present, tangent)) if isinstance(tangent, tuple) else tangent is not None


def _differentiable_leaves(shape: Shape) -> Iterator[Shape]:
    return (leaf.without_layout() for leaf in shape.leaves() if leaf.is_array and leaf.element_type.is_differentiable)


def _grouped(shape: Shape, parts: Sequence[XlaOp | None]) -> Tangent:
    """Tangents of the floating and complex leaves in the form of the shape, None at all others."""
    rest = iter(parts)
    return frozen(regrouped([next(rest) if any_of(differentiable(leaf)) else None for leaf in shape.leaves()], shape))


def frozen(value: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value
