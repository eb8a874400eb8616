"""Rules: constants, what only moves elements, and slices, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ... import functions as ops
from ...core.errors import UnsupportedError
from ...core.shape import UNBOUNDED
from ...core.sizes import common_factors
from ...functions.hlo_builder import XlaOp
from ...hlo.ir import Instruction
from ...mlir.ir import Struct, Value
from ...opcodes import indexing, movement
from .scope import Scope, require_static
from .writing_rules import rule


@rule(movement.constant, says=("literal",))
def constant(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    literal = instruction.attributes["literal"]
    if literal.elided or not literal.shape.is_array:
        raise UnsupportedError("a constant without contents, or of a tuple", subject=instruction.subject, got=literal.shape)
    return scope.constant(literal.array, instruction.shape)


@rule(movement.iota, says=("iota_dimension",))
def iota(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    require_static(instruction)
    return scope.add("stablehlo.iota", [], instruction.shape, dict(instruction.attributes))


@rule(movement.reshape, says=("inferred_dimension",))
def reshape(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    if any(instruction.shape.dynamic_flags):
        return scope.spelled(instruction, operands, lambda x: _to_bounds(x, instruction))
    return scope.add("stablehlo.reshape", operands, instruction.shape)


def _to_bounds(x: XlaOp, instruction: Instruction) -> XlaOp:
    """A reshape in which every size is said: one that depends on values has the elements that the others leave."""
    shape, sizes = instruction.shape, list[XlaOp | int](instruction.shape.dimensions)
    if UNBOUNDED in (*shape.dimensions, *x.shape.dimensions):
        raise _of_unknown_sizes(instruction)
    for old, new in common_factors(x.shape.dimensions, shape.dimensions):
        given, wanted = [d for d in old if x.shape.dynamic_flags[d]], [d for d in new if shape.dynamic_flags[d]]
        if len(wanted) > 1 or len(given) != len(wanted):
            raise _of_unknown_sizes(instruction)
        if wanted:
            before, after = (math.prod(s.dimensions[d] for d in dims if not s.dynamic_flags[d])
                             for s, dims in ((x.shape, old), (shape, new)))
            size = ops.GetDimensionSize(x, given[0])
            sizes[wanted[0]] = size if before == after else ops.Div(ops.Mul(size, np.int32(before)), np.int32(max(after, 1)))
    return ops.DynamicReshape(x, sizes, shape.dimensions, shape.dynamic_flags)


def _of_unknown_sizes(instruction: Instruction) -> UnsupportedError:
    return UnsupportedError("a reshape to sizes that are not known", subject=instruction.subject,
                            got=f"{instruction.operands[0].shape} to {instruction.shape}",
                            expected="for each size that depends on values one of the operand")


@rule(movement.copy)
def copy(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """The value itself: StableHLO has no buffers."""
    return operands


@rule(movement.broadcast, says=("dimensions",))
def broadcast(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    require_static(instruction)
    attributes = {"broadcast_dimensions": tuple(instruction.attributes.get("dimensions", ()))}
    return scope.add("stablehlo.broadcast_in_dim", operands, instruction.shape, attributes)


@rule(movement.transpose, says=("dimensions",))
def transpose(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.transpose", operands, instruction.shape,
                     {"permutation": tuple(instruction.attributes["dimensions"])})


@rule(movement.reverse, says=("dimensions",))
def reverse(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.reverse", operands, instruction.shape,
                     {"dimensions": tuple(instruction.attributes["dimensions"])})


@rule(movement.concatenate, says=("dimensions",))
def concatenate(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.concatenate", operands, instruction.shape,
                     {"dimension": instruction.attributes["dimensions"][0]})


@rule(movement.slice_, says=("slice",))
def slice_(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.slice", operands, instruction.shape,
                     _columns(("start_indices", "limit_indices", "strides"), instruction.attributes["slice"]))


@rule(movement.pad, says=("padding",))
def pad(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.pad", operands, instruction.shape, _columns(
        ("edge_padding_low", "edge_padding_high", "interior_padding"), instruction.attributes["padding"]))


def _columns(names: Sequence[str], rows: Sequence[Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(row[k] for row in rows) for k, name in enumerate(names)}


def _starts(scope: Scope, instruction: Instruction, starts: Sequence[Value]) -> list[Value]:
    """Where a slice begins as scalars, also where one vector says it."""
    first = len(instruction.operands) - len(starts)
    vector = instruction.operands[first].shape if len(starts) == 1 else None
    if vector is None or vector.rank == 0:
        return list(starts)
    one, scalar = vector.with_dimensions([1]), vector.with_dimensions([])
    return [v for k in range(vector.dimensions[0])
            for v in scope.add("stablehlo.reshape", scope.add("stablehlo.slice", starts, one, {
                "start_indices": (k,), "limit_indices": (k + 1,), "strides": (1,)}), scalar)]


@rule(indexing.dynamic_slice, says=("dynamic_slice_sizes",))
def dynamic_slice(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.dynamic_slice", [operands[0], *_starts(scope, instruction, operands[1:])], instruction.shape,
                     {"slice_sizes": tuple(instruction.attributes["dynamic_slice_sizes"])})


@rule(indexing.dynamic_update_slice)
def dynamic_update_slice(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    starts = _starts(scope, instruction, operands[2:])
    return scope.add("stablehlo.dynamic_update_slice", [*operands[:2], *starts], instruction.shape)


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
           "index_vector_dim")
_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims", "index_vector_dim")


def _numbers(instruction: Instruction, kind: str, names: Sequence[str]) -> Struct:
    """The fields that say something, in the dialect's order."""
    given = {n: instruction.attributes[n] for n in names if n in instruction.attributes}
    return Struct(kind, {n: tuple(v) if not isinstance(v, int) else v for n, v in given.items() if v != ()})


@rule(indexing.gather, says=(*_GATHER, "slice_sizes", "indices_are_sorted"))
def gather(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.gather", operands, instruction.shape, {
        "dimension_numbers": _numbers(instruction, "stablehlo.gather", _GATHER),
        "slice_sizes": tuple(instruction.attributes["slice_sizes"]),
        "indices_are_sorted": bool(instruction.attributes.get("indices_are_sorted"))})


@rule(indexing.scatter, says=(*_SCATTER, "to_apply", "indices_are_sorted", "unique_indices"))
def scatter(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.scatter", operands, instruction.shape, {
        "scatter_dimension_numbers": _numbers(instruction, "stablehlo.scatter", _SCATTER),
        **{n: bool(instruction.attributes.get(n)) for n in ("indices_are_sorted", "unique_indices")}},
        [scope.region(instruction.attributes["to_apply"])])
