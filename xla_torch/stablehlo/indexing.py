"""Rules: slices at run-time places, gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..functions.hlo_builder import XlaOp
from ..mlir.ir import Operation
from ..opcodes import indexing
from .attributes import boolean, fields, integer, integers
from .reading_rules import Results, rule
from .reduction import element_shapes, promoted
from .scope import Scope

_GATHER = ("offset_dims", "collapsed_slice_dims", "start_index_map")
_SCATTER = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")


@rule("stablehlo.dynamic_slice")
def dynamic_slice(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(indexing.dynamic_slice, operands, {"dynamic_slice_sizes": integers(operation, "slice_sizes")})


@rule("stablehlo.dynamic_update_slice")
def dynamic_update_slice(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(indexing.dynamic_update_slice, operands)


def gather_attributes(operation: Operation) -> dict[str, Any]:
    """The attributes of a gather but for the sizes of its slices."""
    given = fields(operation, "dimension_numbers")
    found: dict[str, Any] = {name: given.get(name, ()) for name in _GATHER}
    found["index_vector_dim"] = given.get("index_vector_dim", 0)
    for name in ("operand_batching_dims", "start_indices_batching_dims"):
        if given.get(name):
            found[name] = given[name]
    if boolean(operation, "indices_are_sorted"):
        found["indices_are_sorted"] = True
    return found


@rule("stablehlo.gather")
def gather(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    attributes = gather_attributes(operation) | {"slice_sizes": integers(operation, "slice_sizes")}
    return scope.add(indexing.gather, operands, attributes)


@rule("stablehlo.scatter")
def scatter(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    count = len(operation.results)
    if len(operands) != 2 * count + 1:
        raise InvalidArgument("wrong number of operands", got=len(operands), expected=f"{2 * count + 1} for {count} results")
    elements = [scope.declared(operation, k).element_type for k in range(count)]
    arrays = [o if k == count else promoted(o, elements[k % (count + 1)]) for k, o in enumerate(operands)]
    given = fields(operation, "scatter_dimension_numbers")
    attributes: dict[str, Any] = {name: given.get(name, ()) for name in _SCATTER}
    attributes["index_vector_dim"] = given.get("index_vector_dim", 0)
    attributes["to_apply"] = scope.region(operation.regions[0], element_shapes(scope, operation.regions[0]))
    for name in ("input_batching_dims", "scatter_indices_batching_dims"):
        if given.get(name):
            attributes[name] = given[name]
    for name in ("indices_are_sorted", "unique_indices"):
        if boolean(operation, name):
            attributes[name] = True
    return scope.several(scope.add(indexing.scatter, arrays, attributes), operation)


@rule("stablehlo.torch_index_select")
def torch_index_select(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Slices of the operand along one dimension at the indices, batch by batch: a gather."""
    operand, index = operands
    dimension, batches = integer(operation, "dim"), integer(operation, "batch_dims")
    sizes = list(operand.shape.dimensions)
    if not 0 <= batches <= min(dimension, index.shape.rank) or dimension >= len(sizes):
        raise InvalidArgument("dim and batch_dims do not fit", got=f"dim {dimension}, batch_dims {batches} for {operand.shape}")
    indices = index.shape.rank - batches
    for d in (*range(batches), dimension):
        sizes[d] = 1
    offsets = [d if d < dimension else d + indices - 1 for d in range(batches, operand.shape.rank) if d != dimension]
    return scope.add(indexing.gather, operands, {
        "offset_dims": tuple(offsets), "collapsed_slice_dims": (dimension,), "start_index_map": (dimension,),
        "index_vector_dim": index.shape.rank, "slice_sizes": tuple(sizes), "operand_batching_dims": tuple(range(batches)),
        "start_indices_batching_dims": tuple(range(batches))})
