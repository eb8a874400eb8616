"""Op bodies: sort and topk."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...analysis.comparators import SortKey, comparator_keys
from ...analysis.patterns import counts_along
from ...core import tuning
from ...hlo.attributes import Bool, Dims, Int, Region
from ...hlo.ir import Instruction
from ...kernels import sorting as kernels
from ...storage.dtypes import storage_dtype
from ...transform.canonical import without_calls
from .. import numerics
from ..body_table import body
from ..values import Value, apply_region, device, emit, region_function

# --------------------------------------------------------------------------------------------- bodies

@body("sort")
def sort(inst: Instruction, *operands: Value, dimensions: Dims, to_apply: Region, is_stable: Bool) -> Value:
    dimension = dimensions[0]
    keys = comparator_keys(without_calls(to_apply))
    if keys is None:
        found = emit(kernels.sort_by_comparator, region_function(to_apply), tuple(operands), dimension)
        results = [found[k] for k in range(len(operands))]
    else:
        results = _sort_by_keys(inst, operands, _deciding(inst, keys, dimension), dimension)
    return tuple(results) if len(results) > 1 else results[0]


def _deciding(inst: Instruction, keys: tuple[SortKey, ...], dimension: int) -> tuple[SortKey, ...]:
    """The keys before the first one that is each element's own place: a stable sort needs no such key, nor any after it."""
    for number, key in enumerate(keys):
        if key.operand is not None and not key.descending and _counts(inst.operands[key.operand], dimension):
            return keys[:number]
    return keys


def _counts(instruction: Instruction, dimension: int) -> bool:
    """Whether an array of integers is 0, 1, 2, ... along a dimension."""
    return instruction.shape.element_type.is_integral and counts_along(instruction, dimension)


def _sort_by_keys(inst: Instruction, operands: Sequence[Value], keys: Sequence[SortKey], dimension: int) -> list[Value]:
    if not keys:
        return list(operands)
    columns = [(column, key.descending) for key in keys for column in _columns(inst, operands, key)]
    itself = keys[0].operand if len(columns) == 1 and columns[0][0] is operands[keys[0].operand or 0] else None
    counting = [storage_dtype(source.shape.element_type) if _counts(source, dimension) else None for source in inst.operands]
    if len(columns) == 1 and _is_long(inst, dimension):
        carried = (None if number == itself else counted or operand
                   for number, (operand, counted) in enumerate(zip(operands, counting, strict=True)))
        found = emit(kernels.sort_rows, columns[0][0], dimension, columns[0][1], tuple(carried))
        return [found[k] for k in range(len(operands))]
    order: Value = None
    values: Value = None
    for column, descending in reversed(columns):  # stable sorts by ever more significant keys
        values, order = _sorted(inst, column, dimension, descending, order)
    return [values if number == itself else torch.gather(operand, dimension, order) if counted is None else order.to(counted)
            for number, (operand, counted) in enumerate(zip(operands, counting, strict=True))]


def _is_long(inst: Instruction, dimension: int) -> bool:
    """Whether there are so many elements, in rows so long, that a sort by digits is worth a call of its own."""
    dims = inst.operands[0].shape.dimensions
    return (device().type == "cpu" and dims[dimension] >= tuning.RADIX_SORTED_ROW
            and math.prod(dims) >= tuning.RADIX_SORTED_FROM)


def _sorted(inst: Instruction, column: Value, dimension: int, descending: bool, order: Value) -> tuple[Value, Value]:
    """A column in the order of another sort, if there is one, sorted (None if nobody asks for that), and the order that gives."""
    if order is not None:
        column = torch.gather(column, dimension, order)
    if _is_long(inst, dimension):
        return None, emit(kernels.sort_rows, column, dimension, descending, (torch.int64 if order is None else order,))[0]
    found = torch.sort(column, dim=dimension, descending=descending, stable=True)
    return found[0], found[1] if order is None else torch.gather(order, dimension, found[1])


def _columns(inst: Instruction, operands: Sequence[Value], key: SortKey) -> list[Value]:
    """A key as tensors that torch sorts in the key's order; most significant first."""
    if key.operand is not None:
        value, element_type = operands[key.operand], inst.operands[key.operand].shape.element_type
    else:
        given = inst.operands[0].shape
        dims = [-1 if flag else n for n, flag in zip(given.dimensions, given.dynamic_flags, strict=True)]
        value, element_type = apply_region(key.computation(), [operands[k] for k in key.operands], dims)[0], key.element_type
    if element_type.is_complex:
        return [_sortable(value.real), _sortable(value.imag)]
    if element_type.is_pred:
        return [value.to(torch.uint8)]
    # Torch sorts floats as XLA does canonical ones: -0 equal to +0, NaN last.
    if element_type.is_floating and (key.canonical or not key.total_order):
        return [_sortable(value)]
    return [numerics.total_order_key(value, element_type)]


def _sortable(value: Value) -> Value:
    """Floats, as they are or as integers, such that torch sorts NaNs last on this device."""
    return value if device().type == "cpu" else emit(kernels.order_key, value)


@body("topk")
def topk(inst: Instruction, operand: Value, *, k: Int, largest: Bool) -> Value:
    element_type = inst.operands[0].shape.element_type
    if not element_type.is_narrow:
        found = emit(kernels.top_k, operand, k, largest, element_type.hides_sign)
        return found[0], found[1]
    # Some of these types have NaNs that their stored values do not tell apart, or no negative zero.
    places = emit(kernels.top_k, numerics.total_order_key(operand, element_type), k, largest)[1]
    return torch.gather(operand, -1, places.to(torch.int64)), places
