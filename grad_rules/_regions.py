"""What rules do with the computations an op calls: apply them to whole arrays, and differentiate compositions of ops.

`derived` is the bridge to the engine: a rule for an op with an arbitrary reducer need only say how the op is composed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xla_torch import ops
from xla_torch.builder import XlaBuilder, XlaOp
from xla_torch.hlo.ir import Computation, Instruction, live_instructions
from xla_torch.opcodes.definition import OPS
from xla_torch.shape import Shape
from xla_torch.transform.inline import elements_of, inline

from ._calculus import full

Cotangents = list[XlaOp | None]

# ------------------------------------------------------------------------------------------------------- applying


def apply(computation: Computation, arguments: Sequence[XlaOp]) -> list[XlaOp]:
    """A scalar computation on whole arrays of one size: one array for each result.

    Elementwise computations are spelled out as array ops; others (with a loop or a branch inside) become maps.
    """
    if _is_elementwise(computation):
        return _spelled_out(computation, arguments)
    outputs = computation.root.shape.tuple_shapes or (computation.root.shape,)
    dimensions = tuple(range(arguments[0].shape.rank))
    return [ops.Map(arguments[0].builder, list(arguments), _one_result(computation, number), dimensions)
            for number in range(len(outputs))]


_CALLS = ("call", "fusion")
_SCALAR_IDENTITIES = ("broadcast", "reshape", "copy", "transpose")


def _is_elementwise(computation: Computation) -> bool:
    return all(OPS[i.opcode].elementwise or i.opcode in ("parameter", "constant", "get-tuple-element", "tuple") or
               (i.opcode in _SCALAR_IDENTITIES and i.shape.is_scalar) or
               (i.opcode in _CALLS and _is_elementwise(i.called_computations[0]))
               for i in live_instructions(computation))


def _spelled_out(computation: Computation, arguments: Sequence[XlaOp]) -> list[XlaOp]:
    builder, dimensions = arguments[0].builder, arguments[0].shape.dimensions
    values: dict[Instruction, list[XlaOp]] = {}
    for inst in live_instructions(computation):
        inputs = [value for operand in inst.operands for value in values[operand]]
        if inst.opcode == "parameter":
            values[inst] = [arguments[inst.attributes["parameter_number"]]]
        elif inst.opcode == "constant":
            values[inst] = [ops.Broadcast(builder.constant(inst.attributes["literal"]), dimensions)]
        elif inst.opcode == "tuple" or inst.opcode in _SCALAR_IDENTITIES:
            values[inst] = inputs
        elif inst.opcode == "get-tuple-element":
            values[inst] = [inputs[inst.attributes["index"]]]
        elif inst.opcode in _CALLS:
            values[inst] = _spelled_out(inst.called_computations[0], inputs)
        else:
            shape = Shape.array(inst.shape.element_type, dimensions)
            values[inst] = [builder.add(inst.opcode, inputs, inst.attributes, shape)]
    return values[computation.root]


def _one_result(computation: Computation, number: int) -> Computation:
    """The computation that returns one element of another's tuple (itself if it has no tuple)."""
    if not computation.root.shape.is_tuple:
        return computation
    builder = XlaBuilder(f"{computation.name}_{number}")
    parameters = [builder.parameter(i, s) for i, s in enumerate(computation.program_shape.parameters)]
    return builder.finish(ops.GetTupleElement(ops.Call(builder, computation, parameters), number))


# -------------------------------------------------------------------------------------------------- differentiating


def derived(function: Callable[..., Sequence[XlaOp]], operands: Sequence[XlaOp],
            cts: Sequence[XlaOp | None]) -> Cotangents:
    """The operands' cotangents through ``function(*operands)``, given its results' cotangents (None for zero)."""
    scratch = XlaBuilder("composed")
    parameters = [scratch.parameter(i, o.shape) for i, o in enumerate(operands)]
    composed = scratch.finish(ops.Tuple(scratch, list(function(*parameters))))
    return pulled_back(composed, operands, cts)


def pulled_back(computation: Computation, arguments: Sequence[XlaOp], cts: Sequence[XlaOp | None]) -> Cotangents:
    """The arguments' cotangents through a computation that returns a tuple, given the cotangents of its elements."""
    # The engine reads this package's table, so it is imported when a rule runs and not before.
    from xla_torch.autodiff.engine import Tape

    values = [elements_of(a) for a in arguments]
    tape = Tape(arguments[0].builder, inline(computation), values, [True] * len(values), tuple(c is not None for c in cts))
    found: Any = tape.backward(tuple(cts))
    return list(found)


def gradient_of(computation: Computation, cts: Sequence[bool]) -> Computation:
    """The computation of the cotangents of another's parameters, as a tuple.

    It takes the other's arguments and then the cotangents of those of its results that `cts` flags. Parameters without a
    gradient (integers, or such that do not matter) get zeros.
    """
    builder = XlaBuilder(f"gradient_{computation.name}")
    shapes = computation.program_shape.parameters
    results = computation.root.shape.tuple_shapes or (computation.root.shape,)
    arguments = [builder.parameter(i, s) for i, s in enumerate(shapes)]
    given: Cotangents = []
    for shape, flag in zip(results, cts, strict=True):
        number = len(arguments) + sum(c is not None for c in given)
        given.append(builder.parameter(number, shape) if flag else None)
    found = pulled_back(_with_tuple(computation), arguments, given)
    return builder.finish(ops.Tuple(builder, [full(builder, 0, s.without_layout()) if c is None else c
                                              for c, s in zip(found, shapes, strict=True)]))


def _with_tuple(computation: Computation) -> Computation:
    """The computation, its single result as a tuple of one."""
    if computation.root.shape.is_tuple:
        return computation
    builder = XlaBuilder(computation.name)
    parameters = [builder.parameter(i, s) for i, s in enumerate(computation.program_shape.parameters)]
    return builder.finish(ops.Tuple(builder, [ops.Call(builder, computation, parameters)]))
