"""Rules: operations whose sizes, paddings and places are operands.

Where these are known they are the static operations; otherwise HLO's own dynamic ops, as far as it has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import InvalidArgument
from ..core.shape import UNBOUNDED, Shape
from ..core.sizes import integer as size_of
from ..core.types import S32
from ..functions.convert import ConvertElementType
from ..functions.dynamic import DynamicReshape, SetDimensionSize
from ..functions.hlo_builder import XlaOp
from ..functions.movement import Iota
from ..mlir.ir import Operation
from ..opcodes import dynamic, elementwise, indexing, movement
from .attributes import integer, integers
from .contraction import convolved
from .indexing import gather_attributes
from .movement import broadcast_any_order
from .reading_rules import Results, rule
from .scope import Scope


def needed(scope: Scope, op: XlaOp, what: str) -> list[int]:
    """The value of an operand as a list. Raises InvalidArgument where it is not known."""
    value = scope.known(op)
    if value is None:
        raise InvalidArgument(f"{what} are not known before the program runs", got=op.shape,
                              expected="constants, or what follows from the shapes of the arguments",
                              hint="pass the shapes of the arguments, and the values of integers that sizes depend on")
    return [size_of(n) for n in value.reshape(-1)]


def _sizes(scope: Scope, operation: Operation, op: XlaOp) -> list[int]:
    """The sizes of the result: as they are written, where all are, otherwise the value of an operand."""
    declared = scope.declared(operation)
    if declared.is_static:
        return list(declared.dimensions)
    sizes = needed(scope, op, "the result's sizes")
    if any(n < 0 for n in sizes) or len(sizes) != declared.rank:
        raise InvalidArgument("the sizes do not fit the result", got=sizes, expected=declared)
    return sizes


@rule("stablehlo.get_dimension_size")
def get_dimension_size(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    dimension, shape = integer(operation, "dimension"), operands[0].shape
    if 0 <= dimension < shape.rank and not shape.dynamic_flags[dimension]:
        return scope.size(shape.dimensions[dimension])
    return scope.add(dynamic.get_dimension_size, operands, {"dimensions": (dimension,)})


@rule("stablehlo.set_dimension_size")
def set_dimension_size(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return SetDimensionSize(operands[0], operands[1], integer(operation, "dimension"))


@rule("stablehlo.dynamic_reshape")
def dynamic_reshape(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    operand, sizes = operands
    declared = scope.declared(operation)
    if not declared.is_static and UNBOUNDED not in declared.dimensions and scope.known(sizes) is None:
        return DynamicReshape(operand, _scalars(scope, sizes), declared.dimensions, declared.dynamic_flags)
    return scope.add(movement.reshape, [operand], shape=operand.shape.with_dimensions(_sizes(scope, operation, sizes)))


def _scalars(scope: Scope, vector: XlaOp) -> list[XlaOp]:
    """The elements of a vector, each an s32 scalar."""
    made = []
    for k in range(vector.shape.dimensions[0]):
        element = scope.add(movement.slice_, [vector], {"slice": ((k, k + 1, 1),)})
        scalar = scope.add(movement.reshape, [element], shape=Shape(vector.element_type))
        made.append(scalar if vector.element_type is S32 else ConvertElementType(scalar, S32))
    return made


@rule("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    sizes = _sizes(scope, operation, operands[1])
    return broadcast_any_order(scope, operands[0], sizes, integers(operation, "broadcast_dimensions"))


@rule("stablehlo.dynamic_iota")
def dynamic_iota(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    shape = scope.declared(operation).with_dimensions(_sizes(scope, operation, operands[0]))
    return Iota(scope.builder, shape, integer(operation, "iota_dimension"))


@rule("stablehlo.dynamic_pad")
def dynamic_pad(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    low, high, interior = (needed(scope, o, "paddings") for o in operands[2:])
    return scope.add(movement.pad, operands[:2], {"padding": tuple(zip(low, high, interior, strict=True))})


@rule("stablehlo.dynamic_gather")
def dynamic_gather(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    sizes = tuple(needed(scope, operands[2], "the sizes of slices"))
    return scope.add(indexing.gather, operands[:2], gather_attributes(operation) | {"slice_sizes": sizes})


@rule("stablehlo.dynamic_conv")
def dynamic_conv(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    flat = needed(scope, operands[2], "paddings")
    return convolved(scope, operation, operands[:2], tuple(zip(flat[::2], flat[1::2], strict=True)))


@rule("stablehlo.real_dynamic_slice")
def real_dynamic_slice(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A slice that would reach out of the operand begins where it still fits, as dynamic-slice does: the specification leaves
    open what it is, and what JAX has written relies on it. Where only its size is known it is a dynamic-slice."""
    operand, start, limit, stride = operands
    steps = needed(scope, stride, "strides")
    starts, limits = scope.known(start), scope.known(limit)
    if starts is None or limits is None:
        return _sliced_at(scope, operation, operand, start, limit, steps)
    bounds = []
    for size, first, last, step in zip(operand.shape.dimensions, starts.tolist(), limits.tolist(), steps, strict=True):
        begin = min(max(0, first), max(0, size - (last - first)))
        bounds.append((begin, begin + last - first, step))
    return scope.add(movement.slice_, [operand], {"slice": tuple(bounds)})


def _sliced_at(scope: Scope, operation: Operation, operand: XlaOp, start: XlaOp, limit: XlaOp, steps: Sequence[int]) -> XlaOp:
    sizes = _distance(scope, start, limit) or scope.declared(operation).dimensions
    if any(step != 1 for step in steps) or UNBOUNDED in sizes:
        needed(scope, start, "the starts of slices")
        needed(scope, limit, "the limits of slices")
    return scope.add(indexing.dynamic_slice, [operand, *_scalars(scope, start)], {"dynamic_slice_sizes": sizes})


def _distance(scope: Scope, start: XlaOp, limit: XlaOp) -> tuple[int, ...] | None:
    """How far the limits are from the starts, where they are written as the starts and something known, as JAX does."""
    if limit.instruction.opcode != elementwise.add or start.instruction not in limit.instruction.operands:
        return None
    first, second = limit.instruction.operands
    known = scope.program.folder.value(second if first is start.instruction else first)
    return None if known is None else tuple(size_of(n) for n in known.reshape(-1))
