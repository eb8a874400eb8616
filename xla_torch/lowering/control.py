"""Lowering of loops and branches: their computations become GraphModules that a run-time helper calls.

A carry is flattened to its arrays. Carries that the body passes through unchanged are handed to the body without being
returned, constants among them are built into it, and a loop with a known trip count has its counter on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import UnsupportedError
from ..hlo.ir import Computation, Instruction
from ..shape import Shape
from ..transform.loop_analysis import counted_loop, invariant_carries
from .emit import Tracer, flatten, unflatten
from .kernels import loops
from .values import Host, Number, Splat, evaluator


def _tracer(instruction: Instruction) -> Tracer:
    current = evaluator()
    if not isinstance(current, Tracer):
        raise UnsupportedError("loops and branches run inside lowered programs only", subject=instruction.subject)
    return current


class _Inputs:
    """The flat inputs of a sub-program: what stands for each inside, and which outer values are passed for them."""

    def __init__(self, outer: Tracer, name: str):
        self.outer, self.inner, self.name = outer, Tracer(outer.device), name
        self.passed: list[Any] = []

    def bind(self, value: Any, shape: Shape, label: str) -> Any:
        """The inside value for an outer leaf that does not change: constants as they are, others as an input."""
        if isinstance(value, torch.Tensor) or (isinstance(value, Splat) and isinstance(value.scalar, Number)):
            return value
        if isinstance(value, Splat) and isinstance(value.scalar, Host):
            inside = self.inner.placeholder(label, shape)
            self.passed.append(value.scalar.value)
            return Splat(Host(inside, value.scalar.low, value.scalar.high), value.dims)
        if isinstance(value, Splat):
            self.passed.append(value.scalar)
            return Splat(self.inner.placeholder(label, shape), value.dims)
        self.passed.append(value)
        return self.inner.placeholder(label, shape)


def lower_while(instruction: Instruction, init: Any, condition: Computation, body: Computation) -> Any:
    """The value of a while instruction."""
    outer = _tracer(instruction)
    counted = counted_loop(instruction)
    if counted is not None and counted.trip_count == 0:
        return init
    shape = instruction.shape
    elements = tuple(init) if shape.is_tuple else (init,)
    shapes = shape.tuple_shapes if shape.is_tuple else (shape,)
    fixed = counted.invariants if counted else invariant_carries(instruction)
    varying = [k for k in range(len(shapes)) if k not in fixed and not (counted and k == counted.index)]
    carried = [outer.materialise(leaf, s) for k in varying for leaf, s in flatten(elements[k], shapes[k])]

    def trace(computation: Computation, what: str) -> tuple[_Inputs, Any]:
        inputs = _Inputs(outer, what)
        inside: list[Any] = [None] * len(shapes)
        if counted is not None:
            low, high = sorted((counted.start, counted.last))
            inside[counted.index] = Splat(Host(inputs.inner.placeholder("i", shapes[counted.index]), low, high))
        for k in varying:
            leaves = [inputs.inner.placeholder(f"carry_{k}", s) for _, s in flatten(elements[k], shapes[k])]
            inside[k] = unflatten(iter(leaves), shapes[k])
        for k in sorted(fixed):
            if not (counted and k == counted.index):
                leaves = [inputs.bind(v, s, f"fixed_{k}") for v, s in flatten(elements[k], shapes[k])]
                inside[k] = unflatten(iter(leaves), shapes[k])
        result = inputs.inner.run(computation, [tuple(inside) if shape.is_tuple else inside[0]])
        return inputs, result

    inputs, result = trace(body, "body")
    results = tuple(result) if shape.is_tuple else (result,)
    outputs = tuple(inputs.inner.materialise(v, s) for k in varying for v, s in flatten(results[k], shapes[k]))
    first = 1 if counted else 0
    module, overwritten = inputs.inner.finish_loop_body(outputs, f"{instruction.name}_body", first)
    carried = [_owned(outer, v, slot in overwritten) for slot, v in enumerate(carried)]
    step = outer.submodule(f"{instruction.name}_body", module)
    if counted is not None:
        counter = (counted.start, counted.start + counted.step * counted.trip_count, counted.step)
        final = outer.emit(loops.counted_loop, step, counter, tuple(carried), tuple(inputs.passed))
    else:
        tests, holds = trace(condition, "condition")
        holds = tests.inner.materialise(holds, condition.root.shape)
        test = outer.submodule(f"{instruction.name}_condition", tests.inner.finish((holds,), "Condition"))
        # Both sub-programs bind the same outer values in the same order, so one list serves both.
        final = outer.emit(loops.while_loop, test, step, tuple(carried), tuple(inputs.passed))
    final.node.meta["owned"] = frozenset(overwritten)
    leaves = iter([final[slot] for slot in range(len(carried))])
    values = list(elements)
    for k in varying:
        values[k] = unflatten(leaves, shapes[k])
    if counted is not None:
        values[counted.index] = Splat(counted.start + counted.step * counted.trip_count)
    return tuple(values) if shape.is_tuple else values[0]


def _owned(outer: Tracer, value: Any, overwritten: bool) -> Any:
    """A carry's first value; the body may overwrite it only if nothing else holds it (the memory plan drops the copy
    where the value dies here)."""
    if not overwritten:
        return value
    if isinstance(value, torch.Tensor):
        return outer.trace.create_proxy("call_function", torch.clone, (value,), {"memory_format": torch.contiguous_format})
    return torch.clone(value, memory_format=torch.contiguous_format)


def lower_conditional(instruction: Instruction, selector: Any, operands: Sequence[Any], branches: Sequence[Computation]) -> Any:
    """The value of a conditional; only the chosen branch runs. A selector known at lowering time leaves no branch."""
    if isinstance(selector, Splat) and isinstance(selector.scalar, Number):
        index = loops.branch_index(selector.scalar, len(branches))
        return evaluator().run(branches[index], [operands[index]])
    outer = _tracer(instruction)
    modules, passed = [], []
    for number, (operand, branch) in enumerate(zip(operands, branches, strict=True)):
        shape = branch.parameters[0].shape
        inputs = _Inputs(outer, "branch")
        leaves = [inputs.bind(v, s, f"operand_{k}") for k, (v, s) in enumerate(flatten(operand, shape))]
        result = inputs.inner.run(branch, [unflatten(iter(leaves), shape)])
        outputs = tuple(inputs.inner.materialise(v, s) for v, s in flatten(result, instruction.shape))
        module = inputs.inner.finish(outputs, "Branch")
        modules.append(outer.submodule(f"{instruction.name}_branch_{number}", module))
        passed.append(tuple(inputs.passed))
    test = selector.scalar.value if isinstance(selector, Splat) and isinstance(selector.scalar, Host) else outer.materialise(
        selector, instruction.operands[0].shape)
    result = outer.emit(loops.conditional, test, tuple(modules), tuple(passed))
    count = sum(leaf.is_array for leaf in instruction.shape.leaves())
    return unflatten(iter([result[k] for k in range(count)]), instruction.shape)
