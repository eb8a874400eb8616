"""A program for one example becomes a program for a batch of them.

A batched value has the batch as its dimension 0; values that do not depend on batched ones stay as they are and are
computed once. How an op runs on a batch stands in `batching_rules`: mostly it is the same op with its dimensions moved by
one. A loop whose trip count differs between examples runs until the last one is done, and a branch that differs becomes a
select. What runs for some examples only (a branch, the body of such a loop) has a mask of them, by which loops inside end:
for other examples they might never. An op without rule runs in a loop over the batch, so every program can be batched; only
dynamic sizes and tokens that depend on the batch cannot.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from grad_rules._calculus import any_over

from .. import functions as ops
from ..analysis.loops import trip_bound
from ..core.errors import UnsupportedError, XlaError
from ..core.shape import Shape
from ..core.types import S32
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.checks import is_check
from ..hlo.derivatives import brings
from ..hlo.inference import forwarded
from ..hlo.ir import Computation, Instruction, cached_on_computation, reachable
from ..hlo.regions import Role, branches_of, is_branching, is_call, is_loop, loop_of, with_regions
from ..opcodes import control
from ..transform.rewriter import Rewriter, carried_metadata, needed_instructions
from ..transform.values import Value, as_op, element, elements_of, leaves, make_tuple, regrouped
from .batching_table import RULES

_Made = TypeVar("_Made")

Mapped = bool | list[Any]
"""Whether a value has the batch dimension; for a tuple a list, element by element."""


class Batch(Rewriter):
    """One run of a plain computation inside a builder, for `size` examples.

    `arguments` are the parameters' values, of which `mapped` says which are batched. `result` is the computation's value and
    `result_mapped` says which parts of it are batched. Raises UnsupportedError.
    """

    def __init__(self, builder: Builder, computation: Computation, size: int, arguments: Sequence[Value],
                 mapped: Sequence[Mapped], made: dict[Hashable, Any] | None = None, active: XlaOp | None = None):
        super().__init__(builder)
        self.size = size
        self.active = active
        """Which examples this run is for, a PRED each; None for all of them. What it computes for others nobody reads."""
        self.made: dict[Hashable, Any] = {} if made is None else made
        """What became of regions: of one that is shared, once."""
        self.values: dict[Instruction, Value] = {}
        self.mapped: dict[Instruction, Mapped] = {}
        for instruction in needed_instructions(computation):
            if instruction.is_parameter:
                number = instruction.attributes["parameter_number"]
                self.values[instruction], self.mapped[instruction] = arguments[number], mapped[number]
            else:
                self.values[instruction], self.mapped[instruction] = self._run(instruction)
        self.result, self.result_mapped = self.values[computation.root], self.mapped[computation.root]

    def again(self, builder: Builder, computation: Computation, arguments: Sequence[Value], mapped: Sequence[Mapped],
              active: XlaOp | None = None) -> Batch:
        """A run of another computation, by the same rules, for the `active` examples."""
        return type(self)(builder, computation, self.size, arguments, mapped, self.made, active)

    def once(self, make: Callable[..., _Made], computation: Computation, carry: Shape, flags: Mapped | Sequence[Mapped],
             *others: Any) -> _Made:
        """What `make` makes of a region with this carry, of which these parts are batched: once, however many run it."""
        key = make, computation, carry.key, *map(_frozen, (flags, *others))
        if key not in self.made:
            self.made[key] = make(self, computation, carry, flags, *others)
        return self.made[key]

    def _run(self, instruction: Instruction) -> tuple[Value, Mapped]:
        values, mapped = [self.values[o] for o in instruction.operands], [self.mapped[o] for o in instruction.operands]
        if instruction.is_tuple:
            return list(values), list(mapped)
        if instruction.shape.is_tuple and forwarded(instruction) is not None:
            return values[0], mapped[0]
        if instruction.is_element:
            (whole,) = mapped
            assert isinstance(whole, list)
            return self.visit(instruction, values, ()), whole[instruction.attributes["index"]]
        if not any(map(any_mapped, mapped)) and not (self.active is not None and _may_run_on(instruction)):
            value = self.visit(instruction, values, ())
            return value, tree.everywhere(False, instruction.shape, list)
        try:
            if is_loop(instruction):
                return self._loop(instruction, values[0], mapped[0])
            if is_branching(instruction):
                return self._branches(instruction, values, mapped)
            return self._by_rule(instruction, values, mapped), _arrays_mapped(instruction.shape)
        except XlaError as error:
            raise error.located(subject=instruction.subject, where=instruction.where) from error.__cause__

    # ---- ops

    def _by_rule(self, instruction: Instruction, values: list[Value], mapped: list[Mapped]) -> Value:
        for shape in (instruction.shape, *(o.shape for o in instruction.operands)):
            if not all(leaf.is_static for leaf in shape.leaves()):
                raise UnsupportedError("an op on arrays of dynamic size cannot be batched", got=shape,
                                       hint="pad it to its bound")
        rule = RULES.find(instruction.opcode)
        flat = not any(isinstance(flag, list) for flag in mapped)
        found = rule(self, instruction, values, [bool(m) for m in mapped]) if rule is not None and flat else None
        return self._one_by_one(instruction, values, mapped) if found is None else found

    def same(self, instruction: Instruction, operands: Sequence[XlaOp], **changed: Any) -> Value:
        """The op on batched operands with some attributes changed; its result has the batch in front."""
        shape = with_batch(instruction.shape, self.size)
        clone = Instruction(instruction.opcode, shape, [o.instruction for o in operands],
                            {**instruction.attributes, **changed}, instruction.name, carried_metadata(instruction))
        return elements_of(self.builder.append(clone))

    def full(self, value: XlaOp, mapped: bool) -> XlaOp:
        """The value with a batch dimension, repeated if it has none."""
        if mapped:
            return value
        return ops.BroadcastInDim(value, [self.size, *value.shape.dimensions], range(1, value.shape.rank + 1))

    def all(self, values: Sequence[XlaOp], mapped: Sequence[bool]) -> list[XlaOp]:
        """The values, each with a batch dimension."""
        return [self.full(v, m) for v, m in zip(values, mapped, strict=True)]

    def filled(self, value: Value, shape: Shape, mapped: Mapped, wanted: Mapped) -> Value:
        """The value, of this shape in one example, with a batch dimension wherever one is wanted."""
        return tree.mapped(lambda _, v, has, wants: self.full(v, has) if wants else v, shape, value, mapped, wanted, kind=list)

    def _one_by_one(self, instruction: Instruction, values: list[Value], mapped: list[Mapped]) -> Value:
        """The op in a loop over the batch."""
        given = [leaf for value in values for leaf in leaves(value)]
        flags = [flag for m in mapped for flag in leaves(m)]
        results = list(instruction.shape.without_layout().leaves())
        if not all(s.is_array for s in (*results, *(g.shape for g in given))):
            raise UnsupportedError("an op on tokens cannot depend on a batched value")
        stacks = [ops.Broadcast(self.builder.constant(0, s.element_type), [self.size, *s.dimensions]) for s in results]
        if self.size == 0:
            return regrouped(stacks, instruction.shape)
        carry = make_tuple(self.builder, [self.builder.constant(0, S32), *given, *stacks])
        body = _row_body(instruction, flags, carry.shape)
        loop = Instruction(control.while_, carry.shape, [carry.instruction],
                           {"condition": _below(self.size, carry.shape), "body": body}, f"{instruction.name}_rows")
        whole = self.builder.append(loop)
        first = 1 + len(given)
        return regrouped([element(whole, first + k) for k in range(len(results))], instruction.shape)

    # ---- loops and branches: flat tuples in and out, since computations are in plain form

    def _loop(self, instruction: Instruction, initial: Value, mapped: Mapped) -> tuple[Value, Mapped]:
        assert isinstance(mapped, list)
        condition, body = loop_of(instruction)
        flags, shapes, differs = list(mapped), instruction.shape.tuple_shapes, False
        while True:
            carry = _batched_tuple(shapes, flags, self.size)
            differs = differs or self.once(_condition_differs, condition, carry, flags)
            after = [True] * len(flags) if differs else [
                a or b for a, b in zip(flags, self.once(_body_flags, body, carry, flags), strict=True)]
            if after == flags:
                break
            flags = after
        if differs and not all(s.is_array for s in shapes):
            raise UnsupportedError("a loop with a token cannot run a different number of times for each example")
        active = self.active if trip_bound(instruction) is None or may_not_end(body) else None
        carry = _with_mask(carry, active)
        given = list(leaves(self.filled(initial, instruction.shape, mapped, flags)))
        operand = make_tuple(self.builder, given if active is None else [*given, active])
        batched = {Role.CONDITION: self.once(_batched_condition, condition, carry, flags, differs, active is not None),
                   Role.BODY: self.once(_batched_body, body, carry, flags, condition if differs else None, active is not None)}
        whole = self.builder.append(Instruction(
            instruction.opcode, carry, [operand.instruction], with_regions(instruction, lambda region: batched[region.role]),
            instruction.name, carried_metadata(instruction)))
        return elements_of(whole)[:len(flags)], flags

    def _branches(self, instruction: Instruction, values: list[Value], mapped: list[Mapped]) -> tuple[Value, Mapped]:
        branches = branches_of(instruction)
        if mapped[0]:
            return self._every_branch(instruction, values, mapped), [True] * len(instruction.shape.tuple_shapes)
        shapes = [_batched_tuple(b.parameters[0].shape.tuple_shapes, m, self.size)
                  for b, m in zip(branches, mapped[1:], strict=True)]
        each = [self.once(_body_flags, b, s, m) for b, s, m in zip(branches, shapes, mapped[1:], strict=True)]
        flags = [any(column) for column in zip(*each, strict=True)]
        active = self.active if any(map(may_not_end, branches)) else None
        batched = iter([self.once(_branch, b, _with_mask(s, active), m, flags, active is not None)
                        for b, s, m in zip(branches, shapes, mapped[1:], strict=True)])
        selector, *given = values
        operands = [as_op(self.builder, v).instruction for v in (selector, *(
            v if active is None else [*leaves(v), active] for v in given))]
        whole = self.builder.append(Instruction(
            instruction.opcode, _batched_tuple(instruction.shape.tuple_shapes, flags, self.size), operands,
            with_regions(instruction, lambda _: next(batched)), instruction.name, carried_metadata(instruction)))
        return elements_of(whole), flags

    def _every_branch(self, instruction: Instruction, values: list[Value], mapped: list[Mapped]) -> Value:
        """All branches, and for each example the elements of its own."""
        if any(is_check(i) for c in reachable(branches_of(instruction)) for i in c.instructions):
            raise UnsupportedError("a branch that checks values cannot be taken by some examples only")
        branches, selector = branches_of(instruction), next(iter(leaves(values[0])))
        here = self._taken(selector, len(branches))
        runs = [self.again(self.builder, branch, [value], [flags], self._only(own)) for branch, value, flags, own in
                zip(branches, values[1:], mapped[1:], here, strict=True)]
        wanted = _arrays_mapped(instruction.shape)
        found = [list(leaves(run.filled(run.result, instruction.shape, run.result_mapped, wanted))) for run in runs]
        if not all(leaf.shape.is_array for leaf in found[0]):
            raise UnsupportedError("a branch with a token cannot be taken by some examples only")
        result = found[-1]
        for own, branch in zip(here[:-1], found[:-1], strict=True):
            result = [chosen(own, this, other) for this, other in zip(branch, result, strict=True)]
        return list(result)

    def _taken(self, selector: XlaOp, count: int) -> list[XlaOp]:
        """Which examples take each branch; the last one all those that take no other."""
        if selector.element_type.is_pred:
            return [selector, ops.Not(selector)]
        here = [ops.Eq(selector, ops.Broadcast(self.builder.constant(k, selector.element_type), [self.size]))
                for k in range(count - 1)]
        none = ops.Broadcast(self.builder.constant(True), [self.size])
        return [*here, functools.reduce(ops.And, map(ops.Not, here), none)]

    def _only(self, some: XlaOp) -> XlaOp:
        """Those of these examples that this run is for."""
        return some if self.active is None else ops.And(self.active, some)


# ------------------------------------------------------------------------------------------------ regions


def _inside(batch: Batch, computation: Computation, carry: Shape, flags: Sequence[Mapped], masked: bool = False) -> Batch:
    """A region run on a batched flat tuple, in a builder of its own; where `masked`, for the examples that its last part says."""
    builder = Builder(computation.name)
    given = list(leaves(elements_of(builder.parameter(0, carry, computation.parameters[0].name))))
    active = given.pop() if masked else None
    return batch.again(builder, computation, [given], [list(flags)], active)


def _with_mask(carry: Shape, active: XlaOp | None) -> Shape:
    return carry if active is None else Shape.tuple([*carry.tuple_shapes, active.shape])


@cached_on_computation
def may_not_end(computation: Computation) -> bool:
    """Whether loops run in it, or may run in derivatives that it brings, that need not end."""
    return any(brings(c) or any(is_loop(i) and trip_bound(i) is None for i in c.instructions) for c in reachable([computation]))


def _may_run_on(instruction: Instruction) -> bool:
    """Whether it is a loop, a branch or a call that need not end."""
    if is_loop(instruction) and trip_bound(instruction) is None:
        return True
    return (is_loop(instruction) or is_branching(instruction) or is_call(instruction)) and any(
        map(may_not_end, instruction.called_computations))


def _condition_differs(batch: Batch, condition: Computation, carry: Shape, flags: Sequence[Mapped]) -> bool:
    return any_mapped(_inside(batch, condition, carry, flags).result_mapped)


def _body_flags(batch: Batch, body: Computation, carry: Shape, flags: Any) -> list[bool]:
    return list(leaves(_inside(batch, body, carry, flags).result_mapped))


def _branch(batch: Batch, branch: Computation, given: Shape, mapped: Any, flags: Sequence[bool], masked: bool) -> Computation:
    run = _inside(batch, branch, given, mapped, masked)
    return run.builder.finish(as_op(run.builder, run.filled(run.result, branch.root.shape, run.result_mapped, list(flags))))


def _batched_condition(batch: Batch, condition: Computation, carry: Shape, flags: Sequence[bool], differs: bool,
                       masked: bool) -> Computation:
    """Whether any example goes on that the run is for."""
    run = _inside(batch, condition, carry, flags, masked)
    result = as_op(run.builder, run.result)
    if differs:
        result = any_over(run._only(result), [0])
    elif run.active is not None:
        result = ops.And(result, any_over(run.active, [0]))
    return run.builder.finish(result)


def _batched_body(batch: Batch, body: Computation, carry: Shape, flags: Sequence[bool], condition: Computation | None,
                  masked: bool) -> Computation:
    """The body for all examples; where a condition is given, examples that are done keep what they have."""
    outer = run = _inside(batch, condition or body, carry, flags, masked)
    if condition is not None:
        whole = list(leaves(outer.values[condition.parameters[0]]))
        goes_on = outer._only(as_op(outer.builder, outer.result))
        run = batch.again(outer.builder, body, [whole], [list(flags)], goes_on)
    found = list(leaves(run.filled(run.result, body.root.shape, run.result_mapped, list(flags))))
    if condition is not None:
        found = [chosen(goes_on, new, old) for new, old in zip(found, whole, strict=True)]
    return run.builder.finish(make_tuple(run.builder, found if outer.active is None else [*found, outer.active]))


def _below(count: int, shape: Shape) -> Computation:
    builder = Builder("rows_left")
    row = element(builder.parameter(0, shape, "carry"), 0)
    return builder.finish(ops.Lt(row, builder.constant(count, S32)))


def _row_body(instruction: Instruction, flags: Sequence[bool], carry: Shape) -> Computation:
    """One example: its rows of the batched operands, the op, and its rows of the results."""
    builder = Builder(f"{instruction.name}_row")
    whole = builder.parameter(0, carry, "carry")
    row, *rest = [element(whole, k) for k in range(len(carry.tuple_shapes))]
    given, stacks = rest[:len(flags)], rest[len(flags):]
    rows = iter([_row(g, row) if flag else g for g, flag in zip(given, flags, strict=True)])
    operands = [regrouped(rows, o.shape) for o in instruction.operands]
    found = leaves(Rewriter(builder).copy(instruction, operands))
    written = [ops.DynamicUpdateSlice(stack, ops.Reshape(value, [1, *value.shape.dimensions]), _starts(stack, row))
               for stack, value in zip(stacks, found, strict=True)]
    return builder.finish(make_tuple(builder, [ops.Add(row, builder.constant(1, S32)), *given, *written]))


def _row(stack: XlaOp, row: XlaOp) -> XlaOp:
    sizes = stack.shape.dimensions[1:]
    return ops.Reshape(ops.DynamicSlice(stack, _starts(stack, row), [1, *sizes]), sizes)


def _starts(stack: XlaOp, row: XlaOp) -> list[XlaOp]:
    return [row, *[row.builder.constant(0, S32)] * (stack.shape.rank - 1)]


# ------------------------------------------------------------------------------------------------ shapes and flags


def with_batch(shape: Shape, size: int) -> Shape:
    """The shape of a batch of such values; layouts are free."""
    return tree.mapped(
        lambda own: Shape.array(own.element_type, (size, *own.dimensions)) if own.is_array else own, shape, kind=Shape.tuple)


def _batched_tuple(shapes: Sequence[Shape], flags: Any, size: int) -> Shape:
    return Shape.tuple([with_batch(s, size) if f else s.without_layout() for s, f in zip(shapes, flags, strict=True)])


def chosen(pred: XlaOp, yes: XlaOp, no: XlaOp) -> XlaOp:
    """A select by a predicate for each example."""
    if yes.shape.rank > 1:
        pred = ops.BroadcastInDim(pred, yes.shape.dimensions, [0])
    return ops.Select(pred, yes, no)


def any_mapped(mapped: Mapped) -> bool:
    """Whether any part of a value has the batch dimension."""
    return any(leaves(mapped))


def _frozen(value: Any) -> Hashable:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _arrays_mapped(shape: Shape) -> Mapped:
    """All arrays of a value batched; tokens never are."""
    return tree.mapped(lambda own: own.is_array, shape, kind=list)
