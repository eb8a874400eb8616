"""Op bodies: dynamic-slice, dynamic-update-slice, gather, scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...analysis.associativity import is_associative
from ...analysis.reducers import reducer_kinds
from ...core.shape import Shape
from ...core.types import PrimitiveType
from ...hlo.attributes import Bool, Dims, Int, Region
from ...hlo.ir import Computation, Instruction
from ...kernels import indexing as kernels
from ...opcodes.indexing import split_scatter
from ...opcodes.reducer_kinds import ReducerKind
from ...storage.dtypes import storage_dtype
from .. import numerics
from ..body_table import body
from ..values import Number, Value, emit, region_function
from .movement import host_value

# --------------------------------------------------------------------------------------------- bodies


@body("dynamic-slice", numbers="start_indices", view=True)
def dynamic_slice(inst: Instruction, operand: Value, *start_indices: Value, dynamic_slice_sizes: Dims) -> Value:
    starts = _starts(inst, start_indices, 1)
    given = inst.operands[0].shape
    if not given.is_static or not all(isinstance(s, Number) for s in starts):
        return emit(kernels.dynamic_slice, operand, starts, tuple(dynamic_slice_sizes))
    for d, (start, size, extent) in enumerate(zip(starts, dynamic_slice_sizes, given.dimensions, strict=True)):
        if size != extent:
            operand = operand.narrow(d, min(max(start, 0), extent - size), size)
    return operand


@body("dynamic-update-slice", numbers="start_indices")
def dynamic_update_slice(inst: Instruction, operand: Value, update: Value, *start_indices: Value) -> Value:
    if update_covers(inst):
        return update
    return emit(kernels.dynamic_update_slice, operand, update, _starts(inst, start_indices, 2))


def update_covers(inst: Instruction) -> bool:
    """Whether the update of a dynamic-update-slice is the whole operand."""
    operand, update = inst.operands[0].shape, inst.operands[1].shape
    return operand.is_static and update.is_static and operand.dimensions == update.dimensions


def _starts(inst: Instruction, values: Sequence[Value], first: int) -> tuple[Value, ...]:
    """Start indices as ints and tensors, not negative where the index type is unsigned."""
    shape = inst.operands[first].shape if values else None
    if shape is not None and shape.rank == 1:
        values = [values[0][d] for d in range(inst.operands[0].shape.rank)]
    return tuple(_index(v, shape.element_type) for v in values) if shape is not None else ()


def _index(value: Value, element_type: PrimitiveType) -> Value:
    value = host_value(value)
    if not element_type.hides_sign:
        return value
    if isinstance(value, Number):
        return kernels.widen_index(int(value.real), element_type.bits)
    return emit(kernels.widen_index, value, element_type.bits)


@body("gather")
def gather(inst: Instruction, operand: Value, start_indices: Value, *, offset_dims: Dims, collapsed_slice_dims: Dims,
           start_index_map: Dims, index_vector_dim: Int, slice_sizes: Dims, operand_batching_dims: Dims,
           start_indices_batching_dims: Dims, indices_are_sorted: Bool) -> Value:
    given, indices_shape = inst.operands[0].shape, inst.operands[1].shape
    indices = _index(start_indices, indices_shape.element_type)
    along = _taken_dimension(given, indices_shape.rank - (index_vector_dim < indices_shape.rank), offset_dims,
                             collapsed_slice_dims, start_index_map, slice_sizes)
    if along is not None:
        one_each = indices.squeeze(index_vector_dim) if index_vector_dim < indices_shape.rank else indices
        first = _first_of_run(one_each) if given.is_static else None
        if first is not None and first + one_each.shape[0] <= given.dimensions[along]:
            return operand.narrow(along, first, one_each.shape[0])
        return emit(kernels.take, operand, one_each, along)
    batching = {} if not operand_batching_dims else {
        "operand_batching_dims": operand_batching_dims, "start_indices_batching_dims": start_indices_batching_dims}
    return emit(kernels.gather, operand, indices, offset_dims=offset_dims, collapsed_slice_dims=collapsed_slice_dims,
                start_index_map=start_index_map, index_vector_dim=index_vector_dim, slice_sizes=slice_sizes, **batching)


def _first_of_run(indices: Value) -> int | None:
    """The first of constant indices that count on from there, which are a slice; None of any other."""
    if not isinstance(indices, torch.Tensor) or indices.dim() != 1 or not indices.numel() or indices.device.type != "cpu":
        return None
    first, *others = indices.tolist()
    return first if first >= 0 and others == list(range(first + 1, first + len(others) + 1)) else None


def _taken_dimension(operand: Shape, points: int, offset_dims: Sequence[int], collapsed_slice_dims: Sequence[int],
                     start_index_map: Sequence[int], slice_sizes: Sequence[int]) -> int | None:
    """The dimension d if a gather takes whole slices along it, with the index dimensions standing in its place."""
    if len(start_index_map) != 1 or tuple(collapsed_slice_dims) != tuple(start_index_map):
        return None
    along = start_index_map[0]
    whole = [size for d, size in enumerate(operand.dimensions) if d != along]
    in_place = [*range(along), *range(along + points, operand.rank - 1 + points)]
    taken = [size for d, size in enumerate(slice_sizes) if d != along]
    return along if taken == whole and list(offset_dims) == in_place else None


@body("scatter")
def scatter(inst: Instruction, *operands: Value, update_window_dims: Dims, inserted_window_dims: Dims,
            scatter_dims_to_operand_dims: Dims, index_vector_dim: Int, to_apply: Region, indices_are_sorted: Bool,
            unique_indices: Bool, input_batching_dims: Dims, scatter_indices_batching_dims: Dims) -> Value:
    inputs, indices, updates = split_scatter(operands)
    shapes, indices_shape, update_shapes = split_scatter([o.shape for o in inst.operands])
    indices = _index(indices, indices_shape.element_type)
    types = [s.element_type for s in shapes]
    updates = [u if s.element_type is t else u.to(storage_dtype(t))
               for u, s, t in zip(updates, update_shapes, types, strict=True)]
    dims: dict[str, Any] = {
        "update_window_dims": update_window_dims, "inserted_window_dims": inserted_window_dims,
        "scatter_dims_to_operand_dims": scatter_dims_to_operand_dims, "index_vector_dim": index_vector_dim}
    if input_batching_dims:
        dims |= {"input_batching_dims": input_batching_dims, "scatter_indices_batching_dims": scatter_indices_batching_dims}
    combiners = _combiners(to_apply, types)
    if combiners is None:
        associative = {"associative": True} if is_associative(to_apply) else {}
        found = emit(kernels.scatter_by_rounds, region_function(to_apply), tuple(inputs), indices, tuple(updates),
                     **associative, **dims)
        results = [found[k] for k in range(len(types))]
    else:
        unique = {"unique_indices": True} if unique_indices else {}
        results = [_scatter_one(o, indices, u, c, t, dims | unique)
                   for o, u, c, t in zip(inputs, updates, combiners, types, strict=True)]
    return tuple(results) if len(results) > 1 else results[0]


def _scatter_one(operand: Value, indices: Value, update: Value, combiner: ReducerKind, element_type: PrimitiveType,
                 dims: dict[str, Any]) -> Value:
    if combiner is ReducerKind.FIRST:
        return operand
    ordered = combiner in (ReducerKind.MINIMUM, ReducerKind.MAXIMUM) and element_type.hides_sign
    if ordered:
        operand, update = numerics.sign_flip(operand, element_type), numerics.sign_flip(update, element_type)
    result = emit(kernels.scatter, operand, indices, update, combiner.value, **dims)
    return numerics.sign_flip(result, element_type) if ordered else result


_ON_PREDICATES = {
    ReducerKind.ADD: ReducerKind.MAXIMUM, ReducerKind.OR: ReducerKind.MAXIMUM, ReducerKind.MAXIMUM: ReducerKind.MAXIMUM,
    ReducerKind.MULTIPLY: ReducerKind.MINIMUM, ReducerKind.AND: ReducerKind.MINIMUM, ReducerKind.MINIMUM: ReducerKind.MINIMUM,
    ReducerKind.FIRST: ReducerKind.FIRST, ReducerKind.SECOND: ReducerKind.SECOND}
"""What a reducer of predicates is among the kinds that order them."""


def _combiners(to_apply: Computation, types: Sequence[PrimitiveType]) -> list[ReducerKind] | None:
    """What the scatter kernel does for each operand; None if it cannot for one of them."""
    kinds = reducer_kinds(to_apply)
    accumulated = [p.shape.element_type for p in to_apply.parameters[:len(types)]]
    if accumulated != list(types):
        return None
    found = [_combiner(kind, t) for kind, t in zip(kinds, types, strict=True)]
    known = [c for c in found if c is not None]
    return known if len(known) == len(found) else None


def _combiner(kind: ReducerKind | None, element_type: PrimitiveType) -> ReducerKind | None:
    if kind is None:
        return None
    if element_type.is_pred:
        return _ON_PREDICATES.get(kind)
    if kind in (ReducerKind.MINIMUM, ReducerKind.MAXIMUM):
        return None if element_type.is_complex else kind
    # Narrow floats round after every step, which the kernel does not do; complex products torch has on the CPU only.
    rounds = kind in (ReducerKind.ADD, ReducerKind.SUBTRACT, ReducerKind.MULTIPLY)
    if rounds and element_type.is_floating and element_type.is_narrow:
        return None
    if kind is ReducerKind.MULTIPLY and element_type.is_complex:
        return None
    return kind if kind is ReducerKind.FIRST or kind in kernels.COMBINERS else None
