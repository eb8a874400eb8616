"""Regions: the computations of reduce, sort, scatter, map and others, evaluated on whole tensors at once.

A region computes on scalars. Elementwise ops do not care whether their operands are scalars or arrays of any one shape, so
a region is evaluated on arrays as it stands. Two things are different for arrays: a conditional takes both branches and
selects, and a while goes on for those elements whose condition holds. Regions that use arrays inside are mapped
(torch.vmap).

- `apply` puts the region's operations into the program where it is called;
- `function` makes the region a function for a kernel that calls it many times (a reduction tree).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..hlo.ir import Computation, Instruction, live_instructions
from ..opcodes.definition import OPS
from ..shape import Shape
from ..types import PRED
from .kernels import regions as kernels
from .values import Host, Number, Splat, evaluator

if TYPE_CHECKING:
    from .evaluator import Evaluator


def apply(runner: Evaluator, computation: Computation, arguments: Sequence[Any], dims: tuple[int, ...]) -> list[Any]:
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


def function(computation: Computation, elementwise: bool = True) -> Any:
    """The region as a function of flat tensors that returns a flat tuple, to be handed to `values.emit` for a kernel.

    Tuple parameters and results are flattened. The function takes arrays that broadcast against each other; what it returns
    for constant results may be 0-dimensional. With `elementwise` False it is not a region of scalars, but takes exactly its
    parameters' shapes.
    """
    from .emit import Tracer, flatten, unflatten

    shapes = [p.shape for p in computation.parameters]

    def run(runner: Evaluator, tensors: Sequence[Any]) -> tuple[Any, ...]:
        leaves = iter(tensors)
        arguments = [unflatten(leaves, s) for s in shapes]
        result = _evaluate(runner, computation, arguments) if elementwise else runner.run(computation, arguments)
        return tuple(runner.materialise(v, s) for v, s in flatten(result, computation.root.shape))

    if not elementwise:
        return _program(computation, run)
    if not works_elementwise(computation):
        return _program(computation, lambda runner, tensors: tuple(_mapped(runner, computation, tuple(tensors))))
    outer = evaluator()
    return _program(computation, run) if isinstance(outer, Tracer) else lambda *tensors: run(outer, tensors)


def _mapped(runner: Evaluator, computation: Computation, tensors: tuple[Any, ...]) -> list[Any]:
    """The results of a region that works on arrays, for each element of arrays that broadcast against each other."""
    results = runner.emit(kernels.for_each_element, function(computation, elementwise=False), tensors)
    return [results[k] for k in range(len(list(computation.root.shape.leaves())))]


def _program(computation: Computation, run: Callable[[Any, Sequence[Any]], tuple[Any, ...]]) -> Any:
    """A program of its own, which takes the leaves of a computation's parameters."""
    from .emit import Tracer

    outer = evaluator()
    inner = Tracer(outer.device)
    inputs = [inner.placeholder(p.name, leaf) for p in computation.parameters for leaf in p.shape.leaves() if leaf.is_array]
    with inner.installed():
        module = inner.finish(run(inner, inputs), "Region")
    return outer.submodule(computation.name, module) if isinstance(outer, Tracer) else module


@functools.lru_cache(maxsize=4096)
def works_on_scalars(computation: Computation) -> bool:
    """No instruction of the computation, nor of those it calls, has an array of rank 1 or more."""
    return all(leaf.is_scalar for i in live_instructions(computation) for leaf in i.shape.leaves()) and all(
        works_on_scalars(c) for i in computation.instructions for c in i.called_computations)


@functools.lru_cache(maxsize=4096)
def works_elementwise(computation: Computation) -> bool:
    """The computation works on scalars, or on arrays of its parameters' one shape and only element by element."""
    dims = {p.shape.dimensions for p in computation.parameters if p.shape.is_array}
    return works_on_scalars(computation) or (len(dims) == 1 and all(
        i.opcode in ("parameter", "tuple", "get-tuple-element") or _is_number(i)
        or (i.opcode in OPS and OPS[i.opcode].elementwise and i.shape.dimensions in dims)
        for i in live_instructions(computation)))


def _is_number(instruction: Instruction) -> bool:
    """Whether the instruction is a scalar constant or an array of it."""
    return (instruction.opcode == "constant" and instruction.shape.is_scalar) or (
        instruction.opcode == "broadcast" and _is_number(instruction.operands[0]))


# ------------------------------------------------------------------------------------------------ evaluation


def _evaluate(runner: Evaluator, computation: Computation, arguments: Sequence[Any]) -> Any:
    """The value of the computation's root where scalar values may be arrays."""
    values: dict[int, Any] = {}
    with runner.installed(), runner.on_arrays():
        for instruction in live_instructions(computation):
            operands = [values[id(o)] for o in instruction.operands]
            if instruction.opcode == "parameter":
                value = arguments[instruction.attributes["parameter_number"]]
            elif instruction.opcode in _SPECIAL:
                value = _SPECIAL[instruction.opcode](runner, instruction, operands)
            else:
                value = runner.instruction(instruction, operands)
            values[id(instruction)] = value
    return values[id(computation.root)]


def _call(runner: Evaluator, instruction: Instruction, operands: list[Any]) -> Any:
    return _evaluate(runner, instruction.called_computations[0], operands)


def _conditional(runner: Evaluator, instruction: Instruction, operands: list[Any]) -> Any:
    """All branches, and for each element the result of the one that its selector chooses (out of range: the last)."""
    selector, *branch_operands = operands
    shape = instruction.operands[0].shape
    results = [_evaluate(runner, b, [o]) for b, o in zip(instruction.called_computations, branch_operands, strict=True)]
    chosen = results[-1]
    for number in reversed(range(len(results) - 1)):
        holds = selector if shape.element_type.is_pred else _elementwise(
            runner, "compare", shape.with_element_type(PRED), (shape, selector), (shape, Splat(number)), direction="EQ")
        chosen = _select(runner, holds, results[number], chosen, instruction.shape)
    return chosen


def _select(runner: Evaluator, holds: Any, on_true: Any, on_false: Any, shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_select(runner, holds, t, f, s) for t, f, s in zip(on_true, on_false, shape.tuple_shapes, strict=True))
    return _elementwise(runner, "select", shape, (Shape.array(PRED), holds), (shape, on_true), (shape, on_false))


def _elementwise(runner: Evaluator, opcode: str, shape: Shape, *operands: tuple[Shape, Any], **attributes: Any) -> Any:
    """An op that stands in no program, on values with their shapes."""
    instruction = Instruction(opcode, shape, [Instruction("parameter", s) for s, _ in operands], attributes, opcode)
    return runner.instruction(instruction, [v for _, v in operands])


def _while(runner: Evaluator, instruction: Instruction, operands: list[Any]) -> Any:
    from .emit import flatten, unflatten

    condition, body = (function(instruction.attributes[name]) for name in ("condition", "body"))
    carried = tuple(runner.materialise(v, s) for v, s in flatten(operands[0], instruction.shape))
    result = runner.emit(kernels.masked_while, condition, body, carried)
    return unflatten(iter([result[k] for k in range(len(carried))]), instruction.shape)


def _same(runner: Evaluator, instruction: Instruction, operands: list[Any]) -> Any:
    """An op that only moves elements: on a scalar, nothing."""
    source, target = instruction.operands[0].shape, instruction.shape
    if not (source.is_scalar and target.is_scalar):
        return runner.instruction(instruction, operands)
    if source.element_type is target.element_type:
        return operands[0]
    return _elementwise(runner, "bitcast-convert", target, (source, operands[0]))


_SPECIAL: dict[str, Callable[[Any, Instruction, list[Any]], Any]] = {
    "call": _call, "fusion": _call, "conditional": _conditional, "while": _while,
} | dict.fromkeys(("broadcast", "reshape", "transpose", "copy", "bitcast", "slice", "reverse"), _same)


# ------------------------------------------------------------------------------------------------ shapes of values


def _has_rank(value: Any, rank: int) -> bool:
    """Whether the value has this rank, as far as is known: a proxy that does not know its shape counts as whole."""
    if isinstance(value, Splat):
        return False
    if isinstance(value, torch.fx.Proxy):
        array = value.node.meta.get("array")
        return array is None or len(array[0]) == rank
    return value.dim() == rank


def _full_results(computation: Computation, whole: Sequence[bool]) -> list[bool]:
    """For each result, whether it surely has the shape of the whole arguments: it is computed from one of them."""
    result = _full(computation, list(whole))
    return list(result) if isinstance(result, tuple) else [result]


def _full(computation: Computation, arguments: Sequence[Any]) -> Any:
    """For a computation's root, whether it is computed from a whole array; a tuple for a tuple, for arguments too."""
    values: dict[int, Any] = {}
    for i in live_instructions(computation):
        operands = [values[id(o)] for o in i.operands]
        match i.opcode:
            case "parameter":
                value = arguments[i.attributes["parameter_number"]]
            case "tuple":
                value = tuple(operands)
            case "get-tuple-element":
                value = operands[0][i.attributes["index"]]
            case "call" | "fusion":
                value = _full(i.called_computations[0], operands)
            case "conditional":
                value = _either(operands[0], [_full(b, [o]) for b, o in zip(i.called_computations, operands[1:], strict=True)])
            case _:  # a loop's carries are broadcast against each other
                value = _everywhere(i.shape, any(map(_somewhere, operands)))
        values[id(i)] = value
    return values[id(computation.root)]


def _either(selector: bool, branches: Sequence[Any]) -> Any:
    if isinstance(branches[0], tuple):
        return tuple(_either(selector, parts) for parts in zip(*branches, strict=True))
    return selector or any(branches)


def _somewhere(value: Any) -> bool:
    return any(map(_somewhere, value)) if isinstance(value, tuple) else value


def _everywhere(shape: Shape, value: bool) -> Any:
    return tuple(_everywhere(s, value) for s in shape.tuple_shapes) if shape.is_tuple else value


def _spread(runner: Evaluator, value: Any, shape: Shape, dims: tuple[int, ...], like: Any) -> Any:
    """A result that is the same for every element, as a tensor of shape `dims`, at run time that of the tensor `like`."""
    scalar = runner.materialise(value, shape)
    if not dims:
        return scalar
    return scalar.expand(dims) if like is None else scalar.expand_as(like)
