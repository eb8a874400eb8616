"""Op definitions: sort and topk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..hlo.ir import Computation, Instruction
from ..lowering import numerics, regions
from ..lowering.kernels import sorting as kernels
from ..lowering.values import apply_region, device, emit
from ..shape import UNBOUNDED, Shape
from ..transform.recognise import SortKey, comparator_keys, strip
from ..types import PRED, S32
from .attributes import Bool, Dims, Int, Region
from .definition import op
from .shapes import require, require_arrays

# --------------------------------------------------------------------------------------------- shapes


def sort_shape(declared: Shape | None, *operands: Shape, dimensions: Sequence[int], to_apply: Computation,
               **_: Any) -> Shape:
    """The operand's shape, of several operands their tuple. The comparator takes (left, right) of each and returns PRED."""
    require(bool(operands), "sort needs at least one operand", got=0)
    require_arrays(*operands)
    first = operands[0]
    require(len(dimensions) == 1 and 0 <= dimensions[0] < first.rank, "the dimension to sort along is out of range",
            got=f"{list(dimensions)} for {first}", expected="one dimension of the operand")
    signature = to_apply.program_shape
    require(len(signature.parameters) == 2 * len(operands), "the comparator takes another number of parameters",
            got=len(signature.parameters), expected=f"{2 * len(operands)}: left and right of each operand")
    for k, operand in enumerate(operands):
        require(operand.compatible(first.with_element_type(operand.element_type)),
                f"operand {k} has other dimensions than operand 0", got=operand, expected=first)
        for number in (2 * k, 2 * k + 1):
            require(signature.parameters[number].compatible(Shape(operand.element_type), ignore_precision=True),
                    f"parameter {number} of the comparator does not fit operand {k}", got=signature.parameters[number],
                    expected=f"{operand.element_type.text}[]")
    require(signature.result.compatible(Shape(PRED)), "the comparator does not return a PRED scalar", got=signature.result,
            expected="pred[]")
    results = [o.without_layout() for o in operands]
    return results[0] if len(results) == 1 else Shape.tuple(results)


def topk_shape(declared: Shape | None, operand: Shape, *, k: int, **_: Any) -> Shape:
    """(values[..., k], s32 indices[..., k])."""
    require_arrays(operand)
    require(operand.rank >= 1, "topk of a scalar", got=operand, expected="an array of rank 1 or more")
    require(not operand.element_type.is_complex, "topk of a complex type", got=operand)
    size = operand.dimensions[-1]
    require(k >= 0 and (k <= size or size == UNBOUNDED), "k is out of range", got=f"k = {k} for {operand}",
            expected="0 to the last dimension's size")
    dims, flags = (*operand.dimensions[:-1], k), (*operand.dynamic_flags[:-1], False)
    return Shape.tuple([operand.with_dimensions(dims, flags), Shape.array(S32, dims, flags)])


# --------------------------------------------------------------------------------------------- bodies

_LONG = 1 << 15
"""Elements of a vector from which torch has a faster sort for integers than for floats on the CPU."""


@op("sort", infer=sort_shape, stablehlo="sort", movement=True)
def sort(inst, *operands, dimensions: Dims, to_apply: Region, is_stable: Bool = False):
    dimension = dimensions[0]
    keys = comparator_keys(to_apply)
    if keys is None:
        found = emit(kernels.sort_by_comparator, regions.function(to_apply), tuple(operands), dimension)
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
    """Whether an array is 0, 1, 2, ... along a dimension, without wrapping round."""
    instruction = strip(instruction)
    if instruction.opcode == "broadcast":
        mapped = instruction.attributes.get("dimensions", ())
        return dimension in mapped and _counts(instruction.operands[0], list(mapped).index(dimension))
    element_type = instruction.shape.element_type
    return (instruction.opcode == "iota" and instruction.attributes["iota_dimension"] == dimension
            and element_type.is_integral and instruction.shape.dimensions[dimension] <= 2 ** (element_type.bits - 1))


def _sort_by_keys(inst: Instruction, operands: Sequence[Any], keys: Sequence[SortKey], dimension: int) -> list[Any]:
    if not keys:
        return list(operands)
    columns = [(column, key.descending) for key in keys for column in _columns(inst, operands, key)]
    order: Any = None
    values: Any = None
    for column, descending in reversed(columns):  # stable sorts by ever more significant keys
        column = column if order is None else torch.gather(column, dimension, order)
        values, places = _sorted(inst, column, dimension, descending)
        order = places if order is None else torch.gather(order, dimension, places)
    itself = keys[0].operand if len(columns) == 1 and columns[0][0] is operands[keys[0].operand or 0] else None
    results = []
    for number, (operand, source) in enumerate(zip(operands, inst.operands, strict=True)):
        if number == itself:
            results.append(values)
        elif _counts(source, dimension):
            results.append(order.to(source.shape.element_type.carrier))
        else:
            results.append(torch.gather(operand, dimension, order))
    return results


def _sorted(inst: Instruction, column: Any, dimension: int, descending: bool) -> tuple[Any, Any]:
    shape = inst.operands[0].shape
    if shape.rank == 1 and shape.dimensions[0] >= _LONG and device().type == "cpu":
        found = emit(kernels.sort_vector, column, descending)
    else:
        found = torch.sort(column, dim=dimension, descending=descending, stable=True)
    return found[0], found[1]


def _columns(inst: Instruction, operands: Sequence[Any], key: SortKey) -> list[Any]:
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


def _sortable(value: Any) -> Any:
    """Floats, as they are or as integers, such that torch sorts NaNs last on this device."""
    return value if device().type == "cpu" else emit(kernels.order_key, value)


@op("topk", infer=topk_shape, stablehlo="chlo.top_k", movement=True)
def topk(inst, operand, *, k: Int, largest: Bool = True):
    keys = numerics.total_order_key(operand, inst.operands[0].shape.element_type)
    places = emit(kernels.top_positions, keys, k, largest)
    return torch.gather(operand, -1, places), places.to(torch.int32)
