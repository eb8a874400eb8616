"""Regions: the computations of reduce, sort, scatter, map and others, evaluated on whole tensors at once.

A region computes on scalars. Elementwise ops do not care whether their operands are scalars or arrays of any one shape, so
a region is evaluated on arrays as it stands. Two things are different for arrays (`on_arrays`): a conditional takes both
branches and selects, and a while goes on for those elements whose condition holds. Regions that use arrays inside are mapped
(torch.vmap).

- `apply` puts the region's operations into the program where it is called;
- `function` makes the region a function for a kernel that calls it many times (a reduction tree).

Op bodies reach both through `values.apply_region` and `values.region_function`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.ir import Computation, Instruction, cached_on_computation, live_instructions
from ..hlo.regions import branches_of, callee, is_branching, is_call, is_loop, loop_of
from ..hlo.schema import OPS, Trait
from ..hlo.structure import CONSTANT, PARAMETER
from ..hlo.tree import arrays, everywhere, from_arrays, leaves, mapped
from ..kernels import loops
from ..kernels.mapped import for_each_element
from ..opcodes import comparison, convert, movement
from .values import Host, Number, Runner, Splat, Value


def apply(runner: Runner, computation: Computation, arguments: Sequence[Value], dims: tuple[int, ...]) -> list[Value]:
    """Evaluate a region of scalars on arrays of shape `dims`: one value for each element of its result.

    An argument is a tensor of that shape, a 0-dimensional tensor, or a Python number or `Host` that stands for such an
    array. A branch inside is evaluated on both sides, a loop until it has ended for every element.
    """
    given = [Splat(a) if isinstance(a, (*Number, Host)) else a for a in arguments]
    root = computation.root.shape
    if works_on_scalars(computation):
        result = _evaluate(runner, computation, given)
        results = list(result) if root.is_tuple else [result]
    else:
        tensors = tuple(runner.materialise(a, p.shape) for a, p in zip(given, computation.parameters, strict=True))
        results = _mapped(runner, computation, tensors)
    whole = [_has_rank(a, len(dims)) for a in given]
    like = next((a for a, w in zip(given, whole, strict=True) if w), None)
    return [value if full else _spread(runner, value, shape, dims, like)
            for value, full, shape in zip(results, _full_results(computation, whole), root.leaves(), strict=True)]


def function(runner: Runner, computation: Computation, elementwise: bool = True) -> Value:
    """The region as a function of flat tensors that returns a flat tuple (see `values.region_function`)."""
    shapes = [p.shape for p in computation.parameters]

    def run(inner: Runner, tensors: Sequence[Value]) -> tuple[Value, ...]:
        if elementwise and not works_elementwise(computation):
            return tuple(_mapped(inner, computation, tuple(tensors)))
        flat = iter(tensors)
        arguments = [from_arrays(flat, s) for s in shapes]
        result = _evaluate(inner, computation, arguments) if elementwise else inner.run(computation, arguments)
        return tuple(inner.materialise(v, s) for v, s in arrays(result, computation.root.shape))

    return runner.subprogram(computation, run)


def _mapped(runner: Runner, computation: Computation, tensors: tuple[Value, ...]) -> list[Value]:
    """The results of a region that works on arrays, for each element of arrays that broadcast against each other."""
    results = runner.emit(for_each_element, function(runner, computation, elementwise=False), tensors)
    return [results[k] for k in range(len(list(computation.root.shape.leaves())))]


@cached_on_computation
def works_on_scalars(computation: Computation) -> bool:
    """No instruction of the computation, nor of those it calls, has an array of rank 1 or more."""
    return all(leaf.is_scalar for i in live_instructions(computation) for leaf in i.shape.leaves()) and all(
        works_on_scalars(c) for i in computation.instructions for c in i.called_computations)


@cached_on_computation
def works_elementwise(computation: Computation) -> bool:
    """The computation works on scalars, or on arrays of its parameters' one shape and only element by element."""
    dims = {p.shape.dimensions for p in computation.parameters if p.shape.is_array}
    return works_on_scalars(computation) or (len(dims) == 1 and all(
        i.is_parameter or i.is_tuple or i.is_element or _is_number(i)
        or (i.opcode in OPS and OPS[i.opcode].elementwise and i.shape.dimensions in dims)
        for i in live_instructions(computation)))


def _is_number(instruction: Instruction) -> bool:
    """Whether the instruction is a scalar constant or an array of it."""
    return (instruction.opcode == CONSTANT and instruction.shape.is_scalar) or (
        instruction.opcode == movement.broadcast and _is_number(instruction.operands[0]))


# ------------------------------------------------------------------------------------------------ evaluation


def _evaluate(runner: Runner, computation: Computation, arguments: Sequence[Value]) -> Value:
    """The value of the computation's root where scalar values may be arrays."""
    with runner.on_arrays():
        return runner.run(computation, arguments)


def on_arrays(runner: Runner, instruction: Instruction, operands: Sequence[Value]) -> Value | None:
    """The value of an instruction that does something else where its scalars may be arrays; None for all others."""
    if is_branching(instruction):
        return _conditional(runner, instruction, operands)
    if is_loop(instruction):
        return _loop(runner, instruction, operands)
    return _moved(runner, instruction, operands) if instruction.has(Trait.REARRANGES) else None


def _conditional(runner: Runner, instruction: Instruction, operands: Sequence[Value]) -> Value:
    """All branches, and for each element the result of the one that its selector chooses (out of range: the last)."""
    selector, *branch_operands = operands
    shape = instruction.operands[0].shape
    results = [runner.run(b, [o]) for b, o in zip(branches_of(instruction), branch_operands, strict=True)]
    chosen = results[-1]
    for number in reversed(range(len(results) - 1)):
        holds = selector if shape.element_type.is_pred else _elementwise(
            runner, comparison.compare, shape.with_element_type(PRED), (shape, selector), (shape, Splat(number)), direction="EQ")
        chosen = mapped(functools.partial(_selected, runner, holds), instruction.shape, results[number], chosen)
    return chosen


def _selected(runner: Runner, holds: Value, shape: Shape, on_true: Value, on_false: Value) -> Value:
    return _elementwise(runner, comparison.select, shape, (Shape.array(PRED), holds), (shape, on_true), (shape, on_false))


def _elementwise(runner: Runner, opcode: str, shape: Shape, *operands: tuple[Shape, Value], **attributes: Any) -> Value:
    """An op that stands in no program, on values with their shapes."""
    instruction = Instruction(opcode, shape, [Instruction(PARAMETER, s) for s, _ in operands], attributes, opcode)
    return runner.computed(instruction, [v for _, v in operands])


def _loop(runner: Runner, instruction: Instruction, operands: Sequence[Value]) -> Value:
    condition, body = (function(runner, computation) for computation in loop_of(instruction))
    carried = tuple(runner.materialise(v, s) for v, s in arrays(operands[0], instruction.shape))
    result = runner.emit(loops.masked_while, condition, body, carried)
    return from_arrays(iter([result[k] for k in range(len(carried))]), instruction.shape)


def _moved(runner: Runner, instruction: Instruction, operands: Sequence[Value]) -> Value | None:
    """An op that only moves elements: on a scalar, nothing."""
    source, target = instruction.operands[0].shape, instruction.shape
    if not (source.is_scalar and target.is_scalar):
        return None
    if source.element_type is target.element_type:
        return operands[0]
    return _elementwise(runner, convert.bitcast_convert, target, (source, operands[0]))


# ------------------------------------------------------------------------------------------------ shapes of values


def _has_rank(value: Value, rank: int) -> bool:
    """Whether the value has this rank, as far as is known: a proxy that does not know its shape counts as whole."""
    if isinstance(value, Splat):
        return False
    if isinstance(value, torch.fx.Proxy):
        array = value.node.meta.get("array")
        return array is None or len(array[0]) == rank
    return value.dim() == rank


def _full_results(computation: Computation, whole: Sequence[bool]) -> list[bool]:
    """For each result, whether it surely has the shape of the whole arguments: it is computed from one of them."""
    return [full for full, _ in leaves(_full(computation, list(whole)), computation.root.shape)]


def _full(computation: Computation, arguments: Sequence[Any]) -> Any:
    """For a computation's root, whether it is computed from a whole array; a tuple for a tuple, for arguments too."""
    values: dict[int, Any] = {}
    for i in live_instructions(computation):
        if i.is_parameter:
            values[id(i)] = arguments[i.attributes["parameter_number"]]
        else:
            values[id(i)] = _full_result(i, [values[id(o)] for o in i.operands])
    return values[id(computation.root)]


def _full_result(i: Instruction, operands: Sequence[Any]) -> Any:
    if i.is_tuple:
        return tuple(operands)
    if i.is_element:
        return operands[0][i.attributes["index"]]
    if is_call(i) and callee(i).root.shape.compatible(i.shape):
        return _full(callee(i), operands)
    if is_branching(i):
        results = [_full(b, [o]) for b, o in zip(branches_of(i), operands[1:], strict=True)]
        return mapped(lambda _, *parts: operands[0] or any(parts), i.shape, *results)
    # A loop's carries are broadcast against each other.
    found = (full for operand, o in zip(operands, i.operands, strict=True) for full, _ in leaves(operand, o.shape))
    return everywhere(any(found), i.shape)


def _spread(runner: Runner, value: Value, shape: Shape, dims: tuple[int, ...], like: Value) -> Value:
    """A result that is the same for every element, as a tensor of shape `dims`, at run time that of the tensor `like`."""
    scalar = runner.materialise(value, shape)
    if not dims:
        return scalar
    return scalar.expand(dims) if like is None else scalar.expand_as(like)
