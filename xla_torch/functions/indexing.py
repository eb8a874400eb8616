"""Documented functions: indexing with run-time indices.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import Shape
from ..core.types import S32, S64
from ..hlo.canonical_values import canonical_numbers
from ..hlo.inference import infer_shape
from ..opcodes import indexing
from ._documented import documented, renamed, variadic
from ._regions import reducer
from .comparison import Clamp
from .convert import ConvertElementType
from .elementwise_binary import Add
from .hlo_builder import Liftable, Region, XlaOp, lift
from .movement import BroadcastInDim, ConcatInDim, Iota, Reshape, SliceInDim, Transpose

__all__ = ["DynamicSlice", "DynamicSliceInDim", "DynamicUpdateSlice", "DynamicUpdateSliceInDim", "Gather",
           "GatherDimensionNumbers", "Scatter", "ScatterDimensionNumbers"]


@dataclasses.dataclass(frozen=True, slots=True)
class GatherDimensionNumbers:
    """Which dimensions of a gather's operand, indices and result play which part, as numbers from 0; the names are XLA's.

    `offset_dims` are the result's dimensions that run within a slice, `collapsed_slice_dims` the operand's that slices lose (of
    size 1 in them), `start_index_map` the operand's that the entries of an index are for, `index_vector_dim` the indices'
    dimension along which these lie; `operand_batching_dims` and `start_indices_batching_dims` run together. Raises
    InvalidArgument for what is no integer.

    >>> rows = ops.GatherDimensionNumbers(offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
    >>> ops.Gather(torch.tensor([[1, 2], [3, 4], [5, 6]]), torch.tensor([2, 0]), rows, [1, 2])
    tensor([[5, 6],
            [1, 2]])
    """

    offset_dims: Sequence[int]
    collapsed_slice_dims: Sequence[int]
    start_index_map: Sequence[int]
    index_vector_dim: int
    operand_batching_dims: Sequence[int] = ()
    start_indices_batching_dims: Sequence[int] = ()

    def __post_init__(self) -> None:
        canonical_numbers(self)


@dataclasses.dataclass(frozen=True, slots=True)
class ScatterDimensionNumbers:
    """Which dimensions of a scatter's operand, indices and updates play which part, as numbers from 0; the names are XLA's.

    `update_window_dims` are the updates' dimensions that run within a window, `inserted_window_dims` the operand's that windows
    lack, `scatter_dims_to_operand_dims` the operand's that the entries of an index are for, `index_vector_dim` the indices'
    dimension along which these lie; `input_batching_dims` and `scatter_indices_batching_dims` run together. Raises
    InvalidArgument for what is no integer.

    >>> rows = ops.ScatterDimensionNumbers(update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0],
    ...                                    index_vector_dim=1)
    >>> ops.Scatter(torch.zeros(3, 2), torch.tensor([2, 2]), torch.ones(2, 2), lambda old, new: old + new, rows)
    tensor([[0., 0.],
            [0., 0.],
            [2., 2.]])
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    index_vector_dim: int
    input_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()

    def __post_init__(self) -> None:
        canonical_numbers(self)


Numbers = TypeVar("Numbers", GatherDimensionNumbers, ScatterDimensionNumbers)

Starts = XlaOp | Sequence[XlaOp | int]
"""Start indices: one integral scalar for each dimension, or one vector of them."""


def _starts(operand: XlaOp, start_indices: Starts) -> list[XlaOp]:
    if isinstance(start_indices, XlaOp):
        return [start_indices]
    like = next((s.element_type for s in start_indices if isinstance(s, XlaOp)), S32)
    return [lift(operand.builder, s, like) for s in start_indices]


@renamed(size_indices="slice_sizes")
@documented
def DynamicSlice(operand: XlaOp, start_indices: Starts, slice_sizes: Sequence[int]) -> XlaOp:
    """The slice of `slice_sizes` that begins at `start_indices`, moved so that it lies inside the operand.

    Raises InvalidArgument where the indices are not one integral scalar (of one type) for each dimension, or a slice size is
    negative or larger than the operand.

    >>> ops.DynamicSlice(torch.tensor([0, 10, 20, 30]), [torch.tensor(1)], [2])
    tensor([10, 20])
    >>> ops.DynamicSlice(torch.tensor([0, 10, 20, 30]), [torch.tensor(3)], [2])
    tensor([20, 30])
    """
    operands = [operand, *_starts(operand, start_indices)]
    return operand.builder.add(indexing.dynamic_slice, operands, {"dynamic_slice_sizes": slice_sizes})


@documented
def DynamicSliceInDim(operand: XlaOp, start_index: XlaOp | int, slice_size: int, dimno: int) -> XlaOp:
    """`DynamicSlice` in dimension `dimno`, all of the others. Raises InvalidArgument for a dimension out of range.

    >>> ops.DynamicSliceInDim(torch.tensor([[1, 2, 3], [4, 5, 6]]), 1, 2, 1)
    tensor([[2, 3],
            [5, 6]])
    """
    sizes = [slice_size if d == dimno else n for d, n in enumerate(operand.shape.dimensions)]
    return DynamicSlice(operand, _in_dim("DynamicSliceInDim", operand, start_index, dimno), sizes)


@documented
def DynamicUpdateSlice(operand: XlaOp, update: XlaOp | Liftable, start_indices: Starts) -> XlaOp:
    """The operand with `update` written at `start_indices`, moved so that it lies inside.

    Raises InvalidArgument as `DynamicSlice` does, and where ranks or element types differ or the update is too large.

    >>> ops.DynamicUpdateSlice(torch.zeros(4), torch.tensor([1.0, 2.0]), [torch.tensor(1)])
    tensor([0., 1., 2., 0.])
    """
    written = lift(operand.builder, update, operand)
    return operand.builder.add(indexing.dynamic_update_slice, [operand, written, *_starts(operand, start_indices)])


@documented
def DynamicUpdateSliceInDim(operand: XlaOp, update: XlaOp | Liftable, start_index: XlaOp | int, dimno: int) -> XlaOp:
    """`DynamicUpdateSlice` at an index of dimension `dimno`, and at 0 of the others. Raises InvalidArgument for a dimension out
    of range.

    >>> ops.DynamicUpdateSliceInDim(torch.zeros(2, 3), torch.ones(2, 1), 2, 1)
    tensor([[0., 0., 1.],
            [0., 0., 1.]])
    """
    return DynamicUpdateSlice(operand, update, _in_dim("DynamicUpdateSliceInDim", operand, start_index, dimno))


def _in_dim(function: str, operand: XlaOp, start_index: XlaOp | int, dimno: int) -> list[XlaOp | int]:
    if not 0 <= dimno < operand.shape.rank:
        raise InvalidArgument("the dimension is out of range", subject=function, got=f"{dimno} for {operand.shape}")
    return [start_index if d == dimno else 0 for d in range(operand.shape.rank)]


@renamed(a="operand", input="operand")
@documented
def Gather(operand: XlaOp, start_indices: XlaOp, dimension_numbers: GatherDimensionNumbers | None = None,
           slice_sizes: Sequence[int] = (), indices_are_sorted: bool = False, unique_indices: bool = False,
           **fields: Any) -> XlaOp:
    """Slices of `slice_sizes` at many places, which `start_indices` (integral) hold; starts are moved so that slices lie
    inside.

    The result has the dimensions of the indices, without `index_vector_dim`, and the slices' at `offset_dims`; its element
    type is the operand's. The fields of the dimension numbers may be given by name instead, as older documents do.
    `indices_are_sorted` and `unique_indices` are promises; the second is in old documents only and has no effect. Raises
    InvalidArgument for dimension numbers that do not fit together.

    >>> table, rows = torch.tensor([[1, 2], [3, 4], [5, 6]]), torch.tensor([[2], [0]])
    >>> dims = ops.GatherDimensionNumbers(
    ...     offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
    >>> ops.Gather(table, rows, dims, [1, 2])
    tensor([[5, 6],
            [1, 2]])
    """
    attributes = _given(_numbers(GatherDimensionNumbers, "Gather", dimension_numbers, fields)) | {"slice_sizes": slice_sizes}
    if indices_are_sorted:
        attributes["indices_are_sorted"] = True
    return operand.builder.add(indexing.gather, [operand, start_indices], attributes)


@variadic("operand...", "scatter_indices", "updates...")
@renamed(operands="operand", input="operand", inputs="operand", dimension_number="dimension_numbers")
@documented
def Scatter(operand: XlaOp | Sequence[XlaOp], scatter_indices: XlaOp, updates: XlaOp | Sequence[XlaOp],
            update_computation: Region, dimension_numbers: ScatterDimensionNumbers | None = None,
            indices_are_sorted: bool = False, unique_indices: bool = False, *, out_of_bounds: str = "window",
            **fields: Any) -> XlaOp:
    """The operand(s), into which `update_computation` combines windows of the updates at many places.

    ``result[i] = update_computation(result[i], update)`` for one update after another in row-major order of the indices.
    Several operands (and as many updates) give a tuple. The fields of the dimension numbers may be given by name instead.

    Of a window that is not wholly inside the operand nothing is written: so XLA does. The documents say that only those
    elements of it are dropped that are outside, and this is what ``out_of_bounds="element"`` does, by an equivalent scatter of
    windows of one element. Raises InvalidArgument for dimension numbers that do not fit together and for a computation of
    other types.

    >>> dims = ops.ScatterDimensionNumbers(
    ...     update_window_dims=[], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1)
    >>> ops.Scatter(torch.zeros(3), torch.tensor([[2], [0], [2]]), torch.tensor([1.0, 5.0, 10.0]), ops.Add, dims)
    tensor([ 5.,  0., 11.])
    """
    operands = [operand] if isinstance(operand, XlaOp) else list(operand)
    values = [updates] if isinstance(updates, XlaOp) else list(updates)
    if len(operands) != len(values) or not operands:
        raise InvalidArgument("there must be one update for each operand", subject="Scatter",
                              got=f"{len(operands)} operands, {len(values)} updates", expected="equal numbers, at least 1")
    if out_of_bounds not in ("window", "element"):
        raise InvalidArgument("unknown out_of_bounds mode", subject="Scatter", got=f"out_of_bounds={out_of_bounds!r}",
                              expected="window or element")
    numbers = _numbers(ScatterDimensionNumbers, "Scatter", dimension_numbers, fields)
    promises = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices}
    attributes = _given(numbers) | {name: True for name, promised in promises.items() if promised}
    attributes["to_apply"] = reducer(update_computation, operands, "the update computation")
    if out_of_bounds == "element" and numbers.update_window_dims:
        shapes = [o.shape for o in (*operands, scatter_indices, *values)]
        infer_shape(indexing.scatter, None, shapes, attributes)  # what is wrong is said about what was given
        return _scatter_elements(operands, scatter_indices, values, numbers, attributes)
    return scatter_indices.builder.add(indexing.scatter, [*operands, scatter_indices, *values], attributes)


def _scatter_elements(operands: Sequence[XlaOp], indices: XlaOp, updates: Sequence[XlaOp], numbers: ScatterDimensionNumbers,
                      attributes: dict[str, Any]) -> XlaOp:
    """The scatter in which every element of a window is a window of its own, with an index of its own."""
    given, update, vector = operands[0].shape, updates[0].shape, numbers.index_vector_dim
    if not all(o.shape.is_static for o in (*operands, indices, *updates)):
        raise UnsupportedError("a scatter that drops single elements of arrays with dynamic dimensions", subject="Scatter",
                               expected="static sizes", hint='use out_of_bounds="window"')
    window_dims = tuple(numbers.update_window_dims)
    points = [d for d in range(update.rank) if d not in window_dims]
    if window_dims != tuple(range(len(points), update.rank)):  # the order of updates stays: window after window
        updates = [Transpose(u, [*points, *window_dims]) for u in updates]
    sizes = [update.dimensions[d] for d in (*points, *window_dims)]
    indexed = [d for d in range(given.rank) if d not in numbers.input_batching_dims]
    windowed = [d for d in indexed if d not in numbers.inserted_window_dims]
    index_type = S32 if max(given.dimensions) < 2**30 else S64
    parts: list[XlaOp] = []
    for d in indexed:
        place = indices.builder.constant(0, index_type)
        if d in numbers.scatter_dims_to_operand_dims:
            component = _component(indices, list(numbers.scatter_dims_to_operand_dims).index(d), vector)
            reach = sizes[len(points) + windowed.index(d)] if d in windowed else 1
            place = ConvertElementType(_limited(component, -reach, given.dimensions[d]), index_type)
        parts.append(BroadcastInDim(place, sizes, range(place.shape.rank)))
        if d in windowed:
            offset = Iota(indices.builder, Shape.array(index_type, sizes), len(points) + windowed.index(d))
            parts[-1] = Add(parts[-1], offset)
    starts = ConcatInDim(indices.builder, [Reshape(p, [*sizes, 1]) for p in parts], len(sizes))
    apart = ScatterDimensionNumbers(
        (), indexed, indexed, len(sizes), numbers.input_batching_dims,
        [d - (d > vector) for d in numbers.scatter_indices_batching_dims])
    kept = {name: attributes[name] for name in ("to_apply", "unique_indices") if name in attributes}
    return indices.builder.add(indexing.scatter, [*operands, starts, *updates], _given(apart) | kept)


def _component(indices: XlaOp, number: int, vector: int) -> XlaOp:
    """One component of all index vectors."""
    if vector == indices.shape.rank:
        return indices
    dims = indices.shape.dimensions
    return Reshape(SliceInDim(indices, number, number + 1, 1, vector), [*dims[:vector], *dims[vector + 1:]])


def _limited(index: XlaOp, low: int, high: int) -> XlaOp:
    """The index between two bounds, as far as its type holds them: what is further outside is outside all the same."""
    element_type = index.element_type
    least = 0 if element_type.is_unsigned else -(1 << (element_type.bits - 1))
    greatest = (1 << (element_type.bits - (not element_type.is_unsigned))) - 1
    return Clamp(max(low, least), index, min(high, greatest))


def _numbers(kind: type[Numbers], function: str, given: Numbers | None, fields: dict[str, Any]) -> Numbers:
    """The dimension numbers, or those made of the fields."""
    names = [f.name for f in dataclasses.fields(kind)]
    if given is not None and not fields:
        return given
    if given is not None or not fields.keys() <= set(names) or not set(names[:4]) <= fields.keys():
        raise InvalidArgument("wrong dimension numbers", subject=function, got=sorted(fields),
                              expected=f"dimension_numbers, or by name {', '.join(names)}")
    return kind(**fields)


def _given(numbers: GatherDimensionNumbers | ScatterDimensionNumbers) -> dict[str, Any]:
    """Dimension numbers as attributes; batching dimensions only where there are any."""
    fields = {f.name: getattr(numbers, f.name) for f in dataclasses.fields(numbers)}
    return {name: value for name, value in fields.items() if value or "batching" not in name}
