"""What rules do with the computations an op calls: apply them to whole arrays, and differentiate compositions of ops.

`derived` is the bridge to the engine: a rule for an op with an arbitrary reducer need only say how the op is composed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grad_rules._calculus import full
from xla_torch import functions as ops
from xla_torch.core.shape import Shape
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Computation, Instruction, live_instructions
from xla_torch.hlo.regions import callee, is_call
from xla_torch.hlo.schema import Trait
from xla_torch.hlo.structure import CONSTANT

Cotangents = list[XlaOp | None]

# ------------------------------------------------------------------------------------------------------- the engine

PullBack = Callable[[Computation, Sequence[XlaOp], Sequence[XlaOp | None], Sequence[bool] | None], Cotangents]
"""See `pulled_back`."""

_engine: list[PullBack] = []


def engine(function: PullBack) -> PullBack:
    """Enter the reverse mode that differentiates what rules compose. It reads this package's table and so stands above it:
    `xla_torch.autodiff.functions` enters itself here when it is imported, once."""
    _engine[:] = [function]
    return function


def pulled_back(computation: Computation, arguments: Sequence[XlaOp], cts: Sequence[XlaOp | None],
                wanted: Sequence[bool] | None = None) -> Cotangents:
    """The arguments' cotangents through a computation that returns a tuple, given the cotangents of its elements; only those
    of the arguments that `wanted` flags, if it is given."""
    (pull_back,) = _engine
    return pull_back(computation, arguments, cts, wanted)


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


def _is_elementwise(computation: Computation) -> bool:
    return all(i.schema.elementwise or i.is_parameter or i.opcode == CONSTANT or i.is_tuple or i.is_element or _is_identity(i)
               or (_is_whole_call(i) and _is_elementwise(callee(i))) for i in live_instructions(computation))


def _is_identity(instruction: Instruction) -> bool:
    """Whether it passes a scalar on."""
    return (instruction.shape.is_scalar and instruction.has(Trait.REARRANGES)
            and instruction.operands[0].shape.element_type is instruction.shape.element_type)


def _is_whole_call(instruction: Instruction) -> bool:
    """Whether its value is that of the computation which it calls, and no more (as an async-start's is)."""
    return is_call(instruction) and callee(instruction).root.shape.compatible(instruction.shape, ignore_precision=True)


def _spelled_out(computation: Computation, arguments: Sequence[XlaOp]) -> list[XlaOp]:
    builder, dimensions = arguments[0].builder, arguments[0].shape.dimensions
    values: dict[Instruction, list[XlaOp]] = {}
    for inst in live_instructions(computation):
        inputs = [value for operand in inst.operands for value in values[operand]]
        if inst.is_parameter:
            values[inst] = [arguments[inst.attributes["parameter_number"]]]
        elif inst.opcode == CONSTANT:
            values[inst] = [ops.Broadcast(builder.constant(inst.attributes["literal"]), dimensions)]
        elif inst.is_tuple or _is_identity(inst):
            values[inst] = inputs
        elif inst.is_element:
            values[inst] = [inputs[inst.attributes["index"]]]
        elif is_call(inst):
            values[inst] = _spelled_out(callee(inst), inputs)
        else:
            shape = Shape.array(inst.shape.element_type, dimensions)
            values[inst] = [builder.add(inst.opcode, inputs, inst.attributes, shape)]
    return values[computation.root]


def _one_result(computation: Computation, number: int) -> Computation:
    """The computation that returns one element of another's tuple (itself if it has no tuple)."""
    if not computation.root.shape.is_tuple:
        return computation
    builder = Builder(f"{computation.name}_{number}")
    parameters = [builder.parameter(i, s) for i, s in enumerate(computation.program_shape.parameters)]
    return builder.finish(ops.GetTupleElement(ops.Call(builder, computation, parameters), number))


# -------------------------------------------------------------------------------------------------- differentiating


def derived(function: Callable[..., Sequence[XlaOp]], operands: Sequence[XlaOp],
            cts: Sequence[XlaOp | None]) -> Cotangents:
    """The operands' cotangents through ``function(*operands)``, given its results' cotangents (None for zero)."""
    scratch = Builder("composed")
    parameters = [scratch.parameter(i, o.shape) for i, o in enumerate(operands)]
    composed = scratch.finish(ops.Tuple(scratch, list(function(*parameters))))
    return pulled_back(composed, operands, cts)


def gradient_of(computation: Computation, cts: Sequence[bool], wanted: Sequence[bool] | None = None) -> Computation:
    """The computation of the cotangents of another's parameters, as a tuple.

    It takes the other's arguments and then the cotangents of those of its results that `cts` flags. Parameters without a
    gradient (integers, such that do not matter, or that are not `wanted`) get zeros.
    """
    builder = Builder(f"gradient_{computation.name}")
    shapes = computation.program_shape.parameters
    results = computation.root.shape.tuple_shapes or (computation.root.shape,)
    arguments = [builder.parameter(i, s) for i, s in enumerate(shapes)]
    given: Cotangents = []
    for shape, flag in zip(results, cts, strict=True):
        number = len(arguments) + sum(c is not None for c in given)
        given.append(builder.parameter(number, shape) if flag else None)
    found = pulled_back(_with_tuple(computation), arguments, given, wanted)
    return builder.finish(ops.Tuple(builder, [full(builder, 0, s.without_layout()) if c is None else c
                                              for c, s in zip(found, shapes, strict=True)]))


def _with_tuple(computation: Computation) -> Computation:
    """The computation, its single result as a tuple of one."""
    if computation.root.shape.is_tuple:
        return computation
    builder = Builder(computation.name)
    parameters = [builder.parameter(i, s) for i, s in enumerate(computation.program_shape.parameters)]
    return builder.finish(ops.Tuple(builder, [ops.Call(builder, computation, parameters)]))
