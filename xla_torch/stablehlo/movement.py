"""Rules: constants and what only moves elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import UNBOUNDED, Shape
from ..functions.hlo_builder import XlaOp
from ..functions.movement import BroadcastInDim, Iota
from ..hlo.literals.literal import Literal
from ..mlir.ir import Operation
from ..opcodes import movement
from .attributes import elements, integer, integers
from .reading_rules import Results, rule
from .scope import Scope

SPLATS = 32
"""From so many equal elements on a constant is a scalar that is broadcast, as XLA's converter has it."""


@rule("stablehlo.constant")
def constant(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    value, shape = elements(operation, "value").value, scope.declared(operation)
    if value.dtype != shape.element_type.numpy:
        value = value.astype(shape.element_type.numpy)
    if value.size >= SPLATS and is_splat(value):
        scalar = scope.builder.constant(Literal(Shape(shape.element_type), value[(slice(1),) * value.ndim].reshape(())))
        return scope.add(movement.broadcast, [scalar], {"dimensions": ()}, shape)
    return scope.builder.constant(Literal(shape.with_dimensions(value.shape), value))


def is_splat(value: np.ndarray) -> bool:
    """Whether all elements have the same bits."""
    if not value.size or all(stride == 0 or n == 1 for stride, n in zip(value.strides, value.shape, strict=True)):
        return bool(value.size)
    flat = value.reshape(-1).view(np.dtype(f"V{value.itemsize}"))
    # The first and the last elements tell most arrays apart without reading them.
    return bool(flat[0] == flat[-1] and (flat[:64] == flat[0]).all() and (flat == flat[0]).all())


@rule("stablehlo.iota")
def iota(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return Iota(scope.builder, scope.declared(operation), integer(operation, "iota_dimension"))


@rule("stablehlo.reshape")
def reshape(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(movement.reshape, operands, shape=reshaped(operands[0].shape, scope.declared(operation)))


def reshaped(operand: Shape, declared: Shape) -> Shape:
    """The written shape, in which one unknown size follows from the number of elements."""
    if declared.dimensions.count(UNBOUNDED) != 1 or UNBOUNDED in operand.dimensions:
        return declared
    known = math.prod(n for n in declared.dimensions if n != UNBOUNDED)
    if known == 0 or operand.element_count % known:
        raise InvalidArgument("the number of elements does not fit", got=f"{operand} to {declared}")
    sizes = [operand.element_count // known if n == UNBOUNDED else n for n in declared.dimensions]
    flags = [n != UNBOUNDED and f for n, f in zip(declared.dimensions, declared.dynamic_flags, strict=True)]
    return declared.with_dimensions(sizes, flags)


@rule("stablehlo.transpose")
def transpose(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(movement.transpose, operands, {"dimensions": integers(operation, "permutation")})


@rule("stablehlo.reverse")
def reverse(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(movement.reverse, operands, {"dimensions": integers(operation, "dimensions")})


@rule("stablehlo.broadcast")
def broadcast(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    sizes, given = integers(operation, "broadcast_sizes"), operands[0].shape
    shape = given.with_dimensions([*sizes, *given.dimensions], [*[False] * len(sizes), *given.dynamic_flags])
    return scope.add(movement.broadcast, operands, {"dimensions": range(len(sizes), shape.rank)}, shape)


@rule("stablehlo.broadcast_in_dim")
def broadcast_in_dim(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    sizes = scope.declared(operation).dimensions
    return broadcast_any_order(scope, operands[0], sizes, integers(operation, "broadcast_dimensions"))


def broadcast_any_order(scope: Scope, operand: XlaOp, sizes: Sequence[int], dimensions: Sequence[int]) -> XlaOp:
    """A broadcast whose dimensions may be in any order: HLO's builder wants them ascending, after a transposition."""
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    if order != list(range(len(dimensions))) and len(dimensions) == operand.shape.rank:
        operand = scope.add(movement.transpose, [operand], {"dimensions": tuple(order)})
        dimensions = [dimensions[d] for d in order]
    if len(dimensions) == operand.shape.rank == len(sizes) and tuple(sizes) == operand.shape.dimensions:
        return scope.add(movement.broadcast, [operand], {"dimensions": tuple(dimensions)}, operand.shape)
    return BroadcastInDim(operand, sizes, dimensions)


@rule("stablehlo.slice")
def slice_(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    starts, limits = integers(operation, "start_indices"), integers(operation, "limit_indices")
    strides = integers(operation, "strides", (1,) * len(starts))
    if not len(starts) == len(limits) == len(strides):
        raise InvalidArgument("starts, limits and strides differ in number", got=f"{starts}, {limits}, {strides}")
    return scope.add(movement.slice_, operands, {"slice": tuple(zip(starts, limits, strides, strict=True))})


@rule("stablehlo.concatenate")
def concatenate(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(movement.concatenate, operands, {"dimensions": (integer(operation, "dimension"),)})


@rule("stablehlo.pad")
def pad(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    low, high = integers(operation, "edge_padding_low"), integers(operation, "edge_padding_high")
    interior = integers(operation, "interior_padding", (0,) * len(low))
    if not len(low) == len(high) == len(interior):
        raise InvalidArgument("low, high and interior padding differ in number", got=f"{low}, {high}, {interior}")
    return scope.add(movement.pad, operands, {"padding": tuple(zip(low, high, interior, strict=True))})


@rule("mhlo.copy")
def copy(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(movement.copy, operands)
