"""Lowering of loops and branches: their computations become GraphModules that a run-time helper calls.

A carry is flattened to its arrays. Carries that the body passes through unchanged are handed to the body without being
returned, constants among them are built into it, and counters are on the host: where the trip count is known, and where the
body adds a known number to a 32-bit or 64-bit integer.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Hashable, Sequence

import torch
import torch.fx

from ..analysis.loops import CountedLoop, Limit, counted_loop, counters, invariant_carries, limits
from ..analysis.opened import size_with_regions
from ..codegen.compiled import is_available
from ..codegen.elements import Unfit
from ..codegen.loops import Source, loop_source
from ..core import tuning
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..core.sizes import MARK, Size, unnamed
from ..core.types import S32, S64
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import loop_of
from ..hlo.schema import Trait
from ..hlo.structure import CONSTANT
from ..hlo.tree import arrays, from_arrays
from ..kernels import loops, portable
from ..kernels.native import NativeLoop, machine
from .bundles import with_bundles
from .emit import Tracer, is_of_sizes
from .values import Host, Number, Splat, Value, evaluator


def _tracer(instruction: Instruction) -> Tracer:
    current = evaluator()
    if not isinstance(current, Tracer):
        raise UnsupportedError("loops and branches can run in lowered programs only", subject=instruction.subject)
    return current


class _Inputs:
    """The flat inputs of a sub-program: what stands for each inside, and which outer values are passed for them."""

    def __init__(self, outer: Tracer, name: str):
        self.outer, self.inner, self.name = outer, outer.inside(), name
        self.passed: list[Value] = []

    def bind(self, value: Value, shape: Shape, label: str) -> Value:
        """The inside value for an outer leaf that does not change: constants as they are, others as an input."""
        passed = _passed(value)
        if not passed:
            return value
        self.passed += passed
        if not isinstance(value, Splat):
            return self.inner.placeholder(label, shape)
        inside = self.inner.placeholder(label, Shape.array(shape.element_type))
        scalar = value.scalar
        return Splat(Host(inside, scalar.low, scalar.high) if isinstance(scalar, Host) else inside, value.dims)


def _passed(value: Value) -> list[Value]:
    """What of an outer leaf that does not change is handed to a sub-program: nothing of a constant, see `_Inputs.bind`."""
    if isinstance(value, torch.Tensor) or (isinstance(value, Splat) and isinstance(value.scalar, Number)):
        return []
    if isinstance(value, Splat):
        return [value.scalar.value if isinstance(value.scalar, Host) else value.scalar]
    return [value]


class _Same:
    """An object as a part of a key: itself and no equal one."""

    def __init__(self, held: object):
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


def _bound(value: Value) -> Hashable:
    """What a sub-program is made for when this leaf is bound in it: a constant's value, and how any other is given."""
    if isinstance(value, torch.Tensor):
        return _Same(value)
    if not isinstance(value, Splat):
        return None
    scalar = value.scalar
    if isinstance(scalar, Host):
        return "host", unnamed(scalar.low), unnamed(scalar.high), unnamed(value.dims)
    kind = (type(scalar), repr(scalar)) if isinstance(scalar, Number) and not isinstance(scalar, Size) else None
    return kind, _Same(scalar) if isinstance(scalar, Size) else None, unnamed(value.dims)


def lower_while(instruction: Instruction, init: Value, condition: Computation, body: Computation) -> Value:
    """The value of a while instruction."""
    outer = _tracer(instruction)
    counted = counted_loop(instruction)
    if counted is not None and counted.trip_count == 0:
        return init
    if outer.portable:
        if counted is not None and _is_short_chain(instruction, counted, body):
            return _Loop(outer, instruction, init, counted).unrolled(body)
        loop = _Loop(outer, instruction, init, None)
        module, _, tests = outer.once(loop.key(), loop.modules)
        test, step = (outer.submodule(f"{instruction.name}_{what}", m) for what, m in (("condition", tests), ("body", module)))
        return loop.result(outer.emit(portable.while_loop, test, step, tuple(loop.carried()), loop.passed()), 0)
    loop = _Loop(outer, instruction, init, counted)
    in_blocks = any(s.is_array and s.element_count > tuning.BLOCK for s in loop.shapes)
    if counted is not None and (loop.source is None or in_blocks) and _is_short_chain(instruction, counted, body):
        return loop.unrolled(body)
    module, overwritten, tests = outer.once(loop.key(), loop.modules)
    first = len(loop.counters)
    carried = tuple(_owned(outer, v, slot in overwritten) for slot, v in enumerate(loop.carried()))
    step = outer.submodule(f"{instruction.name}_body", module)
    if counted is not None:
        counter = (counted.start, counted.start + counted.step * counted.trip_count, counted.step)
        final = outer.emit(loops.counted_loop, step, counter, carried, loop.passed(), *loop.native(overwritten))
        first = 0
    else:
        test = outer.submodule(f"{instruction.name}_condition", tests)
        starts, steps = tuple(c.start for c in loop.counters), tuple((c.step, c.bits) for c in loop.counters)
        final = outer.emit(loops.while_loop, test, step, starts, steps, carried, loop.passed(), *loop.native(overwritten))
    final.node.meta["owned"] = frozenset(first + slot for slot in overwritten)
    return loop.result(final, first)


@dataclasses.dataclass(frozen=True)
class _Counter:
    """A carry that is a Python integer while the loop runs: its element of the carry, its first value, what each iteration
    adds, its width, and the values that the condition sees, and the body."""

    index: int
    start: Value
    step: int
    bits: int
    seen: tuple[int, int]
    inside: tuple[int, int]


class _Loop:
    """A while being lowered: which of its carries stay as they are, which are counted on the host, and which are passed
    from iteration to iteration."""

    def __init__(self, outer: Tracer, instruction: Instruction, init: Value, counted: CountedLoop | None):
        self.outer, self.instruction, self.counted = outer, instruction, counted
        self.tuple = instruction.shape.is_tuple
        self.shapes = instruction.shape.tuple_shapes if self.tuple else (instruction.shape,)
        self.elements = list(init) if self.tuple else [init]
        self.inside = list(self.elements)
        self.fixed = counted.invariants if counted else invariant_carries(instruction)
        if counted is not None:
            low, high = sorted((counted.start, counted.last))
            self.counters = [_Counter(counted.index, counted.start, counted.step, 0, (low, high), (low, high))]
        else:
            self.counters = [] if outer.portable else self._counters()
        on_host = {counter.index for counter in self.counters}
        self.varying = [k for k in range(len(self.shapes)) if k not in self.fixed and k not in on_host]
        self.bound = sorted(self.fixed - on_host)
        self.source = self._native_source()

    def _counters(self) -> list[_Counter]:
        """The counters of a loop whose trip count is not known. Their first values, and the bound that the condition compares
        one with if it does nothing else, are read once, before the loop; then nothing in it waits for the device."""
        steps = {k: step for k, step in counters(self.instruction).items() if self.shapes[k].element_type in (S32, S64)}
        found, alone = limits(self.instruction)
        for limit in found if alone and all(f.index in steps for f in found) else ():
            if limit.bound_index is not None and self.shapes[limit.bound_index].element_type in (S32, S64):
                self.inside[limit.bound_index] = self._on_host(limit.bound_index)
        return [self._counter(k, step, [f for f in found if f.index == k]) for k, step in sorted(steps.items())]

    def _counter(self, index: int, step: int, found: Sequence[Limit]) -> _Counter:
        start = self._on_host(index).scalar
        bits = self.shapes[index].element_type.bits
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        first, low, high = (start.value, start.low, start.high) if isinstance(start, Host) else (start, start, start)
        stops = abs(step) == 1 and any(_stops(limit, step, (least, most)) for limit in found)
        low, high = (low, most) if stops and step > 0 else (least, high) if stops else (least, most)
        inside = [low, high]
        for limit in found:
            if limit.direction in ("LT", "LE"):
                bound = most if limit.at_most is None else limit.at_most
                inside[1] = min(inside[1], bound - (limit.direction == "LT"))
            elif limit.direction in ("GT", "GE"):
                bound = least if limit.bound is None else limit.bound
                inside[0] = max(inside[0], bound + (limit.direction == "GT"))
        if inside[0] > inside[1]:  # the body never runs
            inside = [low, high]
        return _Counter(index, first, step, bits, (low, high), (inside[0], inside[1]))

    def _on_host(self, index: int) -> Splat:
        """An integer scalar among the first carries, as a Python integer."""
        value = self.elements[index]
        if isinstance(value, Splat) and not isinstance(value.scalar, (torch.fx.Proxy, torch.Tensor)):
            return value
        bits = self.shapes[index].element_type.bits
        number = self.outer.emit(loops.on_host, self.outer.materialise(value, self.shapes[index]))
        return Splat(Host(number, -(1 << bits - 1), (1 << bits - 1) - 1))

    def carried(self) -> list[Value]:
        """The first values of what is passed from iteration to iteration."""
        return [self.outer.materialise(leaf, s) for k in self.varying for leaf, s in arrays(self.elements[k], self.shapes[k])]

    def passed(self) -> tuple[Value, ...]:
        """What is handed to both sub-programs as it is, in the order in which they bind it."""
        return tuple(p for k in self.bound for v, _ in arrays(self.inside[k], self.shapes[k]) for p in _passed(v))

    def key(self) -> Hashable:
        """What the sub-programs are made of: loops that agree in it share them."""
        bound = tuple(_bound(v) for k in self.bound for v, _ in arrays(self.inside[k], self.shapes[k]))
        counters = tuple((c.index, c.step, c.bits, unnamed(c.seen), unnamed(c.inside)) for c in self.counters)
        return loop_of(self.instruction), self.instruction.shape.key, self.counted is None, tuple(self.varying), counters, bound

    def modules(self) -> tuple[torch.nn.Module, set[int], torch.nn.Module | None]:
        """The body, which carries it overwrites, and the condition where the loop needs one, as programs of their own."""
        condition, body = loop_of(self.instruction)
        inputs, result = self.trace(body, "body")
        results = tuple(result) if self.tuple else (result,)
        outputs = tuple(inputs.inner.materialise(v, s) for k in self.varying for v, s in arrays(results[k], self.shapes[k]))
        step = inputs.inner.finish_loop_body(outputs, f"{self.instruction.name}_body", len(self.counters))
        if self.counted is not None:
            return *step, None
        tests, holds = self.trace(condition, "condition")
        on_host = isinstance(holds, Splat) and isinstance(holds.scalar, Host)
        holds = holds.scalar.value if on_host else tests.inner.materialise(holds, condition.root.shape)
        return *step, tests.inner.finish((holds,), "Condition")

    def trace(self, computation: Computation, what: str) -> tuple[_Inputs, Value]:
        """The inputs and the value of the body or the condition, as a program of its own."""
        inputs = _Inputs(self.outer, what)
        inside: list[Value] = [None] * len(self.shapes)
        names = ["i"] if len(self.counters) == 1 else [f"i_{counter.index}" for counter in self.counters]
        for counter, name in zip(self.counters, names, strict=True):
            low, high = counter.inside if what == "body" else counter.seen
            inside[counter.index] = Splat(Host(inputs.inner.placeholder(name, self.shapes[counter.index]), low, high))
        for k in self.varying:
            leaves = [inputs.inner.placeholder(f"carry_{k}", s) for _, s in arrays(self.elements[k], self.shapes[k])]
            inside[k] = from_arrays(leaves, self.shapes[k])
        for k in self.bound:
            leaves = [inputs.bind(v, s, f"fixed_{k}") for v, s in arrays(self.inside[k], self.shapes[k])]
            inside[k] = from_arrays(leaves, self.shapes[k])
        if self.source is None:
            computation = with_bundles(inputs.inner, computation)
        return inputs, inputs.inner.run(computation, [tuple(inside) if self.tuple else inside[0]])

    def unrolled(self, body: Computation) -> Value:
        """The loop's value, its steps written one after another."""
        assert self.counted is not None
        state = list(self.elements)
        for step in range(self.counted.trip_count):
            state[self.counted.index] = Splat(self.counted.start + self.counted.step * step)
            result = self.outer.run(body, [tuple(state) if self.tuple else state[0]])
            state = list(result) if self.tuple else [result]
        return tuple(state) if self.tuple else state[0]

    def _native_source(self) -> Source | None:
        """The loop as native code; None where it is better left to torch."""
        if is_of_sizes(self.instruction):  # its source would be about one size
            return None
        if self.outer.portable or self.outer.device.type != "cpu" or not self.tuple or not is_available():
            return None
        if max(map(size_with_regions, loop_of(self.instruction))) > tuning.NATIVE_INSTRUCTIONS:
            return None
        try:
            source = loop_source(self.instruction, frozenset(self.fixed), machine())
        except Unfit:
            return None
        return None if source.work > source.calls * tuning.NATIVE_UNDER or MARK in str(source) else source

    def native(self, owned: Collection[int]) -> tuple[Value, ...]:
        """What runs the loop as native code, and those of its carries that stay as they are; nothing where torch runs it. Of
        what is passed on, the loop owns the values at the places `owned`."""
        if self.source is None:
            return ()
        widths = [-(-s.element_type.bits // 8) for s in self.shapes]
        counters = [counter.index for counter in self.counters]
        module = NativeLoop(self.source, widths, [s.dimensions for s in self.shapes], counters, self.varying, owned)
        module.whole = self.outer.whole
        if self.counted is not None:
            module.expect(self.counted.trip_count)
        fixed = [self.outer.materialise(v, s) for k in module.fixed for v, s in arrays(self.elements[k], self.shapes[k])]
        return self.outer.submodule(f"{self.instruction.name}_native", module), tuple(fixed)

    def result(self, final: Value, first: int) -> Value:
        """The loop's value, where what it passed on stands in `final` from place `first` on, behind its counters."""
        values = list(self.elements)
        places = itertools.count(first)
        for k in self.varying:
            leaves = [final[next(places)] for _ in arrays(self.elements[k], self.shapes[k])]
            values[k] = from_arrays(leaves, self.shapes[k])
        for place, counter in enumerate(self.counters):
            if self.counted is None:
                values[counter.index] = Splat(Host(final[place], *counter.seen))
            else:
                values[counter.index] = Splat(self.counted.start + self.counted.step * self.counted.trip_count)
        return tuple(values) if self.tuple else values[0]


def _is_short_chain(instruction: Instruction, counted: CountedLoop, body: Computation) -> bool:
    """Whether a loop is a chain of elementwise ops written as a few steps. Written out, what depends on the step is a number,
    and the whole of it runs in blocks with what stands before and after it."""
    if isinstance(counted.trip_count, Size) or is_of_sizes(instruction):
        return False
    ops = [i for i in body.instructions if not (i.is_parameter or i.is_element or i.is_tuple or i.opcode == CONSTANT)]
    return (counted.trip_count <= tuning.UNROLLED_STEPS and len(ops) * counted.trip_count <= tuning.UNROLLED_OPS
            and all(i.schema.traits & _OF_CHAINS for i in ops))


_OF_CHAINS = Trait.ELEMENTWISE | Trait.REARRANGES | Trait.STREAMS


def _stops(limit: Limit, step: int, ends: tuple[int, int]) -> bool:
    """Whether a counter with steps of one ends at its limit, so that it never wraps around."""
    strict, other = ("LT", "LE") if step > 0 else ("GT", "GE")
    return limit.direction == strict or (limit.direction == other and limit.bound is not None and limit.bound not in ends)


def _owned(outer: Tracer, value: Value, overwritten: bool) -> Value:
    """A carry's first value; the body may overwrite it only if nothing else holds it (the memory plan drops the copy
    where the value dies here)."""
    if not overwritten:
        return value
    if isinstance(value, torch.Tensor):
        return outer.trace.create_proxy("call_function", torch.clone, (value,), {"memory_format": torch.contiguous_format})
    return torch.clone(value, memory_format=torch.contiguous_format)


def lower_conditional(instruction: Instruction, selector: Value, operands: Sequence[Value],
                      branches: Sequence[Computation]) -> Value:
    """The value of a conditional; only the chosen branch runs. A selector known at lowering time leaves no branch."""
    if isinstance(selector, Splat) and isinstance(selector.scalar, Number):
        index = loops.branch_index(selector.scalar, len(branches))
        return evaluator().run(branches[index], [operands[index]])
    outer = _tracer(instruction)
    modules: list[Value] = []
    passed: list[tuple[Value, ...]] = []
    for number, (operand, branch) in enumerate(zip(operands, branches, strict=True)):
        given = [v for v, _ in arrays(operand, branch.parameters[0].shape)]
        key = branch, instruction.shape.key, tuple(map(_bound, given))
        module = outer.once(key, lambda branch=branch, given=given: _branch(outer, branch, given, instruction.shape))
        modules.append(outer.submodule(f"{instruction.name}_branch_{number}", module))
        passed.append(tuple(p for v in given for p in _passed(v)))
    test = selector.scalar.value if isinstance(selector, Splat) and isinstance(selector.scalar, Host) else outer.materialise(
        selector, instruction.operands[0].shape)
    result = outer.emit(portable.conditional if outer.portable else loops.conditional, test, tuple(modules), tuple(passed))
    count = sum(leaf.is_array for leaf in instruction.shape.leaves())
    return from_arrays([result[k] for k in range(count)], instruction.shape)


def _branch(outer: Tracer, branch: Computation, given: Sequence[Value], result: Shape) -> torch.fx.GraphModule:
    """A branch as a program of its own, for operands that are given as these leaves."""
    shape = branch.parameters[0].shape
    inputs = _Inputs(outer, "branch")
    shapes = [leaf for leaf in shape.leaves() if leaf.is_array]
    leaves = [inputs.bind(v, s, f"operand_{k}") for k, (v, s) in enumerate(zip(given, shapes, strict=True))]
    found = inputs.inner.run(with_bundles(inputs.inner, branch), [from_arrays(leaves, shape)])
    return inputs.inner.finish(tuple(inputs.inner.materialise(v, s) for v, s in arrays(found, result)), "Branch")
