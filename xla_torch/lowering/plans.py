"""Computations of small arrays as plans (`codegen/plans.py`): chunks of native code, calls of torch, loops and branches.

Ops are ordered by how many calls of torch, loops and branches stand between them and the parameters. All native ops of one level
are chunks of bounded length; then come the level's other ops, one by one. An op without native code so costs its own call, and
nothing around it leaves native code.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch

from ..analysis.loops import invariant_carries
from ..analysis.opened import size_with_regions
from ..codegen.elements import Unfit
from ..codegen.loops import UPDATES, bundle_source
from ..codegen.plans import Plan, Value
from ..core import tuning
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import branches_of, loop_of
from ..hlo.stacks import POP, PUSH, is_stack, is_stack_call
from ..hlo.structure import CONSTANT
from ..kernels.native import machine
from ..kernels.native_plans import Array, Function, NativePlan
from ..opcodes import control, internal, movement
from ..storage.dtypes import storage_dtype
from ..transform.small_fusions import VIEWS, is_written_inside, parts_of, region_of
from .emit import Tracer

Weight = Callable[[Instruction], int | None]
"""The weight of an op in native code; None if native code does not know it."""


def bytes_of(shape: Shape) -> int:
    return shape.element_count * storage_dtype(shape.element_type).itemsize


@dataclasses.dataclass
class _Step:
    """Ops that run together: a chunk of native ones, or another op with the elements of its tuple."""

    members: list[Instruction]
    is_native: bool
    reads: Sequence[Instruction] = ()
    """The values that it reads, each once."""


class PlanWriter:
    """Writes the plan of a region, whose parameters and results are arrays. `functions` are its calls of torch."""

    def __init__(self, tracer: Tracer, weight: Weight, region: Computation):
        self.tracer, self.weight, self.region, self.functions = tracer, weight, region, list[Function]()
        given = [None if is_stack(p.shape) else bytes_of(p.shape) for p in region.parameters]
        self.plan = Plan(given)
        self.plan.results = self.block(region, self.plan.inputs)
        for io, (value, shape) in enumerate(zip(self.plan.results, region.root.shape.tuple_shapes, strict=True), len(given)):
            if value.io is not None:
                self.plan.copy(self.plan.value(bytes_of(shape), io), value)
            elif not value.is_stack:
                value.io = io
        self.plan.finish()

    def native(self, module: torch.nn.Module, copied: int) -> NativePlan:
        """The plan as a module, beside one that has its results by calls of torch."""
        given = [array_of(p.shape) for p in self.region.parameters]
        made = [array_of(s) for s in self.region.root.shape.tuple_shapes]
        return NativePlan(self.plan, self.functions, module, given, made, copied)

    def block(self, computation: Computation, given: Sequence[Value | list[Value]],
              updates: Mapping[Instruction, Instruction] | None = None) -> list[Value]:
        """Write a computation; its result, or the elements of it. `updates` change an element of its parameter where it is."""
        return _Block(self, computation, given, updates or {}).run()


class _Block:
    """One computation of a plan while it is written."""

    def __init__(self, writer: PlanWriter, computation: Computation, given: Sequence[Value | list[Value]],
                 updates: Mapping[Instruction, Instruction]):
        self.writer, self.plan, self.computation = writer, writer.plan, computation
        self.values: dict[Instruction, Value | list[Value]] = dict(zip(computation.parameters, given, strict=True))
        self.results = list(computation.root.operands) if computation.root.is_tuple else [computation.root]
        self.kept = self._kept()
        self.steps = self._steps()
        for step in self.steps:
            step.reads = self._reads(step)
        self.needed = {i for step in self.steps for i in step.reads} | self.kept
        self.updates = {update: changed for update, changed in updates.items() if self._is_last_read(changed, update)}

    def run(self) -> list[Value]:
        for step in self.steps:
            first = step.members[0]
            if step.is_native:
                self._chunk(step)
            elif first.opcode == control.while_:
                self._loop(first)
            elif first.opcode == control.conditional:
                self._branches(first)
            elif is_stack_call(first):
                self._stack(step)
            else:
                self._call(step)
        return [self._value(i) for i in self.results]

    def _value(self, i: Instruction) -> Value:
        found = self.values.get(i)
        if found is None:  # an element of a parameter, a loop or a branch
            whole = self.values[i.operands[0]]
            assert isinstance(whole, list)
            found = self.values[i] = whole[i.attributes["index"]]
        assert isinstance(found, Value)
        return found

    # ------------------------------------------------------------------------------------------- what runs when

    def _is_control(self, i: Instruction) -> bool:
        return i.opcode in (control.while_, control.conditional) and self.writer.weight(i) is None

    def _kept(self) -> set[Instruction]:
        """Instructions that need memory whoever reads them: results, and operands of loops and branches."""
        found = set(self.results)
        for i in self.computation.instructions:
            if self._is_control(i):
                found.update(leaf for o in i.operands for leaf in (o.operands if o.is_tuple else [o]))
        return found

    def _is_sunk(self, i: Instruction) -> bool:
        """Whether each reader computes an op anew: a constant, or a view."""
        if i in self.kept or is_stack_call(i):
            return False
        return i.opcode in (CONSTANT, movement.iota) or i.opcode in VIEWS or is_written_inside(i)

    def _steps(self) -> list[_Step]:
        levels: dict[Instruction, int] = {}
        others: dict[Instruction, _Step] = {}
        native: dict[int, list[Instruction]] = {}
        last_effect = 0
        for i in self.computation.instructions:
            levels[i] = max((levels[o] + (o in others and not i.is_element) for o in i.operands), default=0)
            if i.is_element and i.operands[0] in others:
                levels[i] += 1
                others[i.operands[0]].members.append(i)
            elif i.is_parameter or i.is_tuple or self._is_sunk(i):
                continue
            elif i.is_element:
                if i.operands[0] in native.get(levels[i], ()):
                    native[levels[i]].append(i)
            elif self._is_native(i):
                native.setdefault(levels[i], []).append(i)
            else:
                if has_effect(i) and not is_stack_call(i):
                    levels[i] = last_effect = max(last_effect, levels[i])
                others[i] = _Step([i], False)
        found: list[_Step] = []
        ordered = sorted(others.items(), key=lambda item: levels[item[0]])
        for level in sorted({*native, *(levels[i] for i in others)}):
            found += [_Step(part, True) for part in parts_of(native.get(level, []), tuning.BUNDLE_MOST, _size) if part]
            found += [step for i, step in ordered if levels[i] == level]
        return found

    def _is_last_read(self, changed: Instruction, update: Instruction) -> bool:
        """Whether nothing reads an array after the step that updates it, which writes updates last."""
        later = itertools.dropwhile(lambda step: update not in step.members, self.steps)
        return changed not in self.kept and not any(changed in step.reads for step in itertools.islice(later, 1, None))

    def _is_native(self, i: Instruction) -> bool:
        return i.opcode == CONSTANT or self.writer.weight(i) is not None

    def _reads(self, step: _Step) -> list[Instruction]:
        """The values that a step reads, each once."""
        own, found, seen = set(step.members), dict[Instruction, None](), set[Instruction]()
        stack = [o for i in step.members[::-1] for o in i.operands[::-1]]
        while stack:
            i = stack.pop()
            if i in own or i in seen:
                continue
            seen.add(i)
            if i.is_tuple or self._is_sunk(i):
                stack += i.operands[::-1]
            elif i.opcode != CONSTANT or i in self.kept:
                found[i] = None
        return list(found)

    # ------------------------------------------------------------------------------------------- steps

    def _region(self, step: _Step) -> tuple[Computation, list[Instruction]]:
        """A step as a computation of what it reads, and its results."""
        results = [i for i in step.members if i in self.needed and i.shape.is_array]
        return region_of(f"step_{len(self.plan.code)}", step.members, step.reads, results), results

    def _chunk(self, step: _Step) -> None:
        region, results = self._region(step)
        if not results:
            return
        in_place = {k: step.reads.index(self.updates[i]) for k, i in enumerate(results) if i in self.updates}
        try:
            source = bundle_source(region, machine(), in_place)
        except Unfit:
            source = None
        if source is None or source.work > source.calls * tuning.NATIVE_UNDER:
            self._torch(region, step, results)
            return
        for k, number in in_place.items():
            self.values[results[k]] = self._value(step.reads[number])
        self.plan.call(source, *self._places(step, results))

    def _call(self, step: _Step) -> None:
        region, results = self._region(step)
        self._torch(region, step, results)

    def _torch(self, region: Computation, step: _Step, results: Sequence[Instruction]) -> None:
        """Torch's calls for a region, as one call back into Python."""
        inner = self.writer.tracer.inside()
        inner.bundles = False
        inputs = [inner.placeholder(p.name, p.shape) for p in region.parameters]
        made = region.root.shape.tuple_shapes
        outputs = tuple(inner.materialise(v, s) for v, s in zip(inner.run(region, inputs), made, strict=True))
        module, given = inner.finish(outputs, "Call"), [array_of(p.shape) for p in region.parameters]
        may_keep = any(i.opcode == internal.custom_call for c in reachable([region]) for i in c.instructions)
        self.writer.functions.append(Function(module, given, [array_of(s) for s in made], may_keep))
        self.plan.python(len(self.writer.functions) - 1, *self._places(step, results))

    def _stack(self, step: _Step) -> None:
        first, *parts = step.members
        operands = [self._value(o) for o in first.operands]
        target = first.attributes["custom_call_target"]
        if target == POP:
            popped = [self._new(s) for s in first.shape.tuple_shapes]
            self.values.update({i: popped[i.attributes["index"]] for i in parts})
            self.plan.pop(*popped, *operands)
            return
        stack = self.values[first] = self._new(first.shape)
        if target == PUSH:
            self.plan.push(stack, *operands)
        else:
            self.plan.clear(stack)

    def _new(self, shape: Shape) -> Value:
        return self.plan.stack() if is_stack(shape) else self.plan.value(bytes_of(shape))

    def _places(self, step: _Step, results: Sequence[Instruction]) -> tuple[list[Value], list[Value]]:
        inputs = [self._value(i) for i in step.reads]
        for i in results:
            if i not in self.values:
                self.values[i] = self._new(i.shape)
        return inputs, [self._value(i) for i in results]

    # ------------------------------------------------------------------------------------------- loops and branches

    def _elements(self, i: Instruction) -> list[Value]:
        """The values of a flat tuple, or of an array by itself."""
        if i.is_tuple:
            return [self._value(o) for o in i.operands]
        found = self.values.get(i)
        return found if isinstance(found, list) else [self._value(i)]

    def _loop(self, i: Instruction) -> None:
        loop, plan = loop_of(i), self.plan
        is_tuple = i.shape.is_tuple
        fixed = invariant_carries(i)
        carries = [value if k in fixed else plan.like(value) for k, value in enumerate(self._elements(i.operands[0]))]
        for carry, value in zip(carries, self._elements(i.operands[0]), strict=True):
            plan.copy(carry, value)
        begun, given = plan.here(), carries if is_tuple else carries[0]
        (test,) = self.writer.block(loop.condition, [given])
        ended = plan.unless(test)
        made = self.writer.block(loop.body, [given], _updates_of(loop.body))
        self._advance([(carry, result) for k, (carry, result) in enumerate(zip(carries, made, strict=True)) if k not in fixed])
        plan.repeat(begun)
        plan.land(ended)
        self.values[i] = list(carries) if is_tuple else carries[0]

    def _advance(self, moves: Sequence[tuple[Value, Value]]) -> None:
        """Copy a body's results to its carries, those that are other carries by way of memory of their own."""
        carries, ready = {carry for carry, _ in moves}, list[tuple[Value, Value]]()
        for carry, result in moves:
            if result in carries and result is not carry:
                between = self.plan.like(result)
                self.plan.copy(between, result)
                result = between
            ready.append((carry, result))
        for carry, result in ready:
            self.plan.copy(carry, result)

    def _branches(self, i: Instruction) -> None:
        selector, *operands = i.operands
        branches, plan = branches_of(i), self.plan
        leaves = list(i.shape.tuple_shapes) if i.shape.is_tuple else [i.shape]
        outputs = [self._new(s) for s in leaves]
        if selector.shape.element_type is PRED:
            starts = [[], [plan.unless(self._value(selector))]]
        else:
            starts = [[place] for place in plan.switch(self._value(selector), len(branches))]
        ends: list[int] = []
        for start, branch, operand in zip(starts, branches, operands, strict=True):
            plan.land(*start)
            given = self._elements(operand)
            results = self.writer.block(branch, [given if operand.shape.is_tuple else given[0]])
            for output, made in zip(outputs, results, strict=True):
                plan.copy(output, made)
            ends.append(plan.jump())
        plan.land(*ends)
        self.values[i] = outputs if i.shape.is_tuple else outputs[0]


def _size(i: Instruction) -> int:
    """How many ops of native code an op is, with those of a loop or branch."""
    return 1 + sum(map(size_with_regions, i.called_computations)) * (i.opcode in (control.while_, control.conditional))


def _updates_of(body: Computation) -> dict[Instruction, Instruction]:
    """The updates of a loop's body by which a carry becomes what it is in the next step, with the element that they change."""
    uses = Counter(o for i in body.instructions for o in i.operands)
    found: dict[Instruction, Instruction] = {}
    for k, result in enumerate(body.root.operands if body.root.is_tuple else ()):
        if result.opcode in UPDATES and result.shape.is_array and uses[result] == 1:
            changed = result.operands[0]
            if changed.is_element and changed.operands[0].is_parameter and changed.attributes["index"] == k:
                found[result] = changed
    return found


def array_of(shape: Shape) -> Array:
    """Dims and dtype of an array, or of the values on a stack."""
    return shape.dimensions[is_stack(shape):], storage_dtype(shape.element_type)
