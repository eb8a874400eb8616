"""Documented functions: indexing with run-time indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..builder import Liftable, XlaOp, documented, lift, region_of
from ..errors import InvalidArgument
from ..types import S32

__all__ = ["DynamicSlice", "DynamicSliceInDim", "DynamicUpdateSlice", "DynamicUpdateSliceInDim", "Gather",
           "GatherDimensionNumbers", "Scatter", "ScatterDimensionNumbers"]


@dataclasses.dataclass(frozen=True, slots=True)
class GatherDimensionNumbers:
    """Which dimensions of a gather's operand, indices and result play which part; the names are XLA's."""

    offset_dims: Sequence[int]
    collapsed_slice_dims: Sequence[int]
    start_index_map: Sequence[int]
    index_vector_dim: int
    operand_batching_dims: Sequence[int] = ()
    start_indices_batching_dims: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ScatterDimensionNumbers:
    """Which dimensions of a scatter's operand, indices and updates play which part; the names are XLA's."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    index_vector_dim: int
    input_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


Starts = XlaOp | Sequence[XlaOp | int]
"""Start indices: one integral scalar for each dimension, or one vector of them."""


def _starts(operand: XlaOp, start_indices: Starts) -> list[XlaOp]:
    if isinstance(start_indices, XlaOp):
        return [start_indices]
    like = next((s.element_type for s in start_indices if isinstance(s, XlaOp)), S32)
    return [lift(operand.builder, s, like) for s in start_indices]


@documented
def DynamicSlice(operand: XlaOp, start_indices: Starts, slice_sizes: Sequence[int]) -> XlaOp:
    """The slice of `slice_sizes` that begins at `start_indices`, moved so that it lies inside the operand.

    Raises InvalidArgument where the indices are not one integral scalar (of one type) for each dimension, or a slice size is
    negative or larger than the operand.
    """
    return operand.builder.add("dynamic-slice", [operand, *_starts(operand, start_indices)], {"dynamic_slice_sizes": slice_sizes})


@documented
def DynamicSliceInDim(operand: XlaOp, start_index: XlaOp | int, slice_size: int, dimno: int) -> XlaOp:
    """`DynamicSlice` in one dimension, all of the others."""
    sizes = [slice_size if d == dimno else n for d, n in enumerate(operand.shape.dimensions)]
    return DynamicSlice(operand, _in_dim("DynamicSliceInDim", operand, start_index, dimno), sizes)


@documented
def DynamicUpdateSlice(operand: XlaOp, update: XlaOp | Liftable, start_indices: Starts) -> XlaOp:
    """The operand with `update` written at `start_indices`, moved so that it lies inside.

    Raises InvalidArgument as `DynamicSlice` does, and where ranks or element types differ or the update is too large.
    """
    written = lift(operand.builder, update, operand)
    return operand.builder.add("dynamic-update-slice", [operand, written, *_starts(operand, start_indices)])


@documented
def DynamicUpdateSliceInDim(operand: XlaOp, update: XlaOp | Liftable, start_index: XlaOp | int, dimno: int) -> XlaOp:
    """`DynamicUpdateSlice` at an index of one dimension, and at 0 of the others."""
    return DynamicUpdateSlice(operand, update, _in_dim("DynamicUpdateSliceInDim", operand, start_index, dimno))


def _in_dim(function: str, operand: XlaOp, start_index: XlaOp | int, dimno: int) -> list[XlaOp | int]:
    if not 0 <= dimno < operand.shape.rank:
        raise InvalidArgument("the dimension is out of range", subject=function, got=f"{dimno} for {operand.shape}")
    return [start_index if d == dimno else 0 for d in range(operand.shape.rank)]


@documented
def Gather(operand: XlaOp, start_indices: XlaOp, dimension_numbers: GatherDimensionNumbers, slice_sizes: Sequence[int],
           indices_are_sorted: bool = False) -> XlaOp:
    """Slices of `slice_sizes` at many places, which `start_indices` (integral) hold; starts are moved so that slices lie
    inside.

    The result has the dimensions of the indices, without `index_vector_dim`, and the slices' at `offset_dims`. Raises
    InvalidArgument for dimension numbers that do not fit together.
    """
    attributes = _given(dimension_numbers) | {"slice_sizes": slice_sizes}
    if indices_are_sorted:
        attributes["indices_are_sorted"] = True
    return operand.builder.add("gather", [operand, start_indices], attributes)


@documented
def Scatter(operand: XlaOp | Sequence[XlaOp], scatter_indices: XlaOp, updates: XlaOp | Sequence[XlaOp], update_computation: Any,
            dimension_numbers: ScatterDimensionNumbers, indices_are_sorted: bool = False, unique_indices: bool = False) -> XlaOp:
    """The operand(s), into which `update_computation` combines windows of the updates at many places.

    ``result[i] = update_computation(result[i], update)`` for one update after another in row-major order of the indices. A
    window that is not wholly inside the operand is dropped. Several operands (and as many updates) give a tuple. Raises
    InvalidArgument for dimension numbers that do not fit together and for a computation of other types.
    """
    operands = [operand] if isinstance(operand, XlaOp) else list(operand)
    values = [updates] if isinstance(updates, XlaOp) else list(updates)
    if len(operands) != len(values) or not operands:
        raise InvalidArgument("there must be one update for each operand", subject="Scatter",
                              got=f"{len(operands)} operands, {len(values)} updates", expected="equal numbers, at least 1")
    attributes = _given(dimension_numbers) | {"to_apply": region_of(update_computation)}
    promises = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
    attributes |= {name: True for name, promised in promises.items() if promised}
    return scatter_indices.builder.add("scatter", [*operands, scatter_indices, *values], attributes)


def _given(numbers: GatherDimensionNumbers | ScatterDimensionNumbers) -> dict[str, Any]:
    """Dimension numbers as attributes; batching dimensions only where there are any."""
    fields = {f.name: getattr(numbers, f.name) for f in dataclasses.fields(numbers)}
    return {name: value for name, value in fields.items() if value or "batching" not in name}
