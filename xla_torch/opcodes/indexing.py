"""Schemas: dynamic-slice, dynamic-update-slice, gather, scatter."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.shape import UNBOUNDED, Shape
from ..hlo.attributes import Bool, Dims, Int, Region
from ..hlo.ir import Computation
from ..hlo.schema import Trait, op
from .movement import require_distinct, sizes_agree
from .reduction import check_reducer
from .shapes import merge_dynamic, require, require_arrays

# --------------------------------------------------------------------------------------------- shapes: dynamic slices


def dynamic_slice_shape(declared: Shape | None, operand: Shape, *start_indices: Shape,
                        dynamic_slice_sizes: Sequence[int]) -> Shape:
    """The slice's sizes; a dynamic dimension stays dynamic where the slice takes all of it."""
    require_arrays(operand, *start_indices)
    _check_starts(operand, start_indices)
    require(len(dynamic_slice_sizes) == operand.rank, "one slice size is needed for each dimension",
            got=f"{list(dynamic_slice_sizes)} for {operand}")
    for d, size in enumerate(dynamic_slice_sizes):
        extent = operand.dimensions[d]
        require(size >= 0 and (size <= extent or extent == UNBOUNDED), "a slice size does not fit the operand",
                got=f"{size} in dimension {d} of {operand}", expected="0 to the dimension's size")
    flags = [f and s == n for f, s, n in zip(operand.dynamic_flags, dynamic_slice_sizes, operand.dimensions, strict=True)]
    return operand.with_dimensions(dynamic_slice_sizes, flags)


def dynamic_update_slice_shape(declared: Shape | None, operand: Shape, update: Shape, *start_indices: Shape) -> Shape:
    """The operand's shape, dynamic also where the update is."""
    require_arrays(operand, update, *start_indices)
    require(update.rank == operand.rank, "operand and update have different ranks", got=f"{operand}, {update}")
    require(update.element_type is operand.element_type, "operand and update have different element types",
            got=f"{operand}, {update}")
    _check_starts(operand, start_indices)
    for d, (size, extent) in enumerate(zip(update.dimensions, operand.dimensions, strict=True)):
        require(size <= extent or UNBOUNDED in (size, extent), "the update is larger than the operand",
                got=f"{update} in {operand}, dimension {d}")
    return operand.with_dimensions(operand.dimensions, merge_dynamic([operand, update]))


def _check_starts(operand: Shape, starts: Sequence[Shape]) -> None:
    """One integral scalar of one type for each dimension, or (an old form) one vector of them."""
    for start in starts:
        require(start.element_type.is_integral, "a start index is not integral", got=start)
    if len(starts) == 1 and starts[0].rank == 1:
        require(starts[0].dimensions[0] == operand.rank, "the index vector's size is not the operand's rank",
                got=f"{starts[0]} for {operand}")
        return
    require(len(starts) == operand.rank, "one start index is needed for each dimension",
            got=f"{len(starts)} for {operand}", expected=operand.rank)
    for start in starts:
        require(start.is_scalar, "a start index is not a scalar", got=start)
        require(start.element_type is starts[0].element_type, "start indices have different types",
                got=", ".join(map(str, starts)))


# --------------------------------------------------------------------------------------------- shapes: gather


def gather_shape(declared: Shape | None, operand: Shape, start_indices: Shape, *, offset_dims: Sequence[int],
                 collapsed_slice_dims: Sequence[int], start_index_map: Sequence[int], index_vector_dim: int,
                 slice_sizes: Sequence[int], operand_batching_dims: Sequence[int] = (),
                 start_indices_batching_dims: Sequence[int] = (), **_: Any) -> Shape:
    """The dimensions of the indices (without the index vector's) with the slices' at `offset_dims`."""
    require_arrays(operand, start_indices)
    points = _check_indices(start_indices, index_vector_dim)
    rank = len(points) + len(offset_dims)
    _require_ascending(offset_dims, rank, "offset_dims")
    _check_index_map(operand, start_indices, start_index_map, index_vector_dim, "start_index_map")
    _require_ascending(collapsed_slice_dims, operand.rank, "collapsed_slice_dims")
    _check_batching(operand, start_indices, index_vector_dim, operand_batching_dims, start_indices_batching_dims,
                    collapsed_slice_dims, start_index_map)
    require(len(slice_sizes) == operand.rank, "one slice size is needed for each operand dimension",
            got=f"{list(slice_sizes)} for {operand}")
    dropped = {*collapsed_slice_dims, *operand_batching_dims}
    require(len(slice_sizes) == len(offset_dims) + len(dropped),
            "offset_dims, collapsed and batching dimensions together are not the operand's dimensions",
            got=f"{len(offset_dims)} + {len(collapsed_slice_dims)} + {len(operand_batching_dims)}", expected=operand.rank)
    for d, (size, extent) in enumerate(zip(slice_sizes, operand.dimensions, strict=True)):
        require(size >= 0 and (size <= extent or extent == UNBOUNDED), "a slice size does not fit the operand",
                got=f"{size} in dimension {d} of {operand}", expected="0 to the dimension's size")
        require(d not in dropped or size == 1, "a collapsed or batching dimension has a slice size other than 1",
                got=f"{size} in dimension {d}")
    kept = [d for d in range(operand.rank) if d not in dropped]
    sizes, flags = _interleave([(slice_sizes[d], operand.dynamic_flags[d] and slice_sizes[d] == operand.dimensions[d])
                                for d in kept], points, offset_dims)
    return operand.with_dimensions(sizes, flags)


def _interleave(windows: Sequence[tuple[int, bool]], points: Sequence[tuple[int, bool]],
                window_dims: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Sizes and flags with the window's at `window_dims` and the points' in the other places."""
    at = dict(zip(window_dims, windows, strict=True))
    rest = iter(points)
    pairs = [at[d] if d in at else next(rest) for d in range(len(windows) + len(points))]
    return [size for size, _ in pairs], [flag for _, flag in pairs]


def _check_indices(indices: Shape, index_vector_dim: int) -> list[tuple[int, bool]]:
    """Sizes and dynamic flags of the index dimensions other than the index vector's."""
    require(indices.element_type.is_integral, "the indices are not integral", got=indices)
    require(0 <= index_vector_dim <= indices.rank, "index_vector_dim is out of range", got=f"{index_vector_dim} for {indices}",
            expected=f"0 to {indices.rank}")
    pairs = zip(indices.dimensions, indices.dynamic_flags, strict=True)
    return [pair for d, pair in enumerate(pairs) if d != index_vector_dim]


def _check_index_map(operand: Shape, indices: Shape, index_map: Sequence[int], index_vector_dim: int, name: str) -> None:
    length = indices.dimensions[index_vector_dim] if index_vector_dim < indices.rank else 1
    require(len(index_map) == length or length == UNBOUNDED, f"{name} does not fit the index vector",
            got=f"{list(index_map)} for index vectors of {length}", expected=f"{length} entries")
    require_distinct(index_map, operand.rank, name)


def _require_ascending(dims: Sequence[int], rank: int, name: str) -> None:
    require_distinct(dims, rank, name)
    require(list(dims) == sorted(dims), f"{name} is not sorted", got=list(dims))


def _check_batching(operand: Shape, indices: Shape, index_vector_dim: int, operand_dims: Sequence[int],
                    index_dims: Sequence[int], dropped: Sequence[int], index_map: Sequence[int]) -> None:
    """Batching dimensions of operand and indices pair up, are equal in size, and are nothing else besides."""
    require(len(operand_dims) == len(index_dims), "operand and indices have different numbers of batching dimensions",
            got=f"{list(operand_dims)}, {list(index_dims)}")
    _require_ascending(operand_dims, operand.rank, "the operand's batching dimensions")
    require_distinct(index_dims, indices.rank, "the indices' batching dimensions")
    require(index_vector_dim not in index_dims, "the index vector's dimension is a batching dimension", got=list(index_dims))
    for d in operand_dims:
        require(d not in dropped, "a dimension is both batching and collapsed or inserted", got=d)
        require(d not in index_map, "a batching dimension is also indexed", got=d)
    for a, b in zip(operand_dims, index_dims, strict=True):
        require(sizes_agree(operand.dimensions[a], indices.dimensions[b]), "batching dimensions differ in size",
                got=f"{operand} dimension {a}, {indices} dimension {b}")


# --------------------------------------------------------------------------------------------- shapes: scatter


def scatter_shape(declared: Shape | None, *operands: Shape, update_window_dims: Sequence[int],
                  inserted_window_dims: Sequence[int], scatter_dims_to_operand_dims: Sequence[int], index_vector_dim: int,
                  to_apply: Computation, input_batching_dims: Sequence[int] = (),
                  scatter_indices_batching_dims: Sequence[int] = (), **_: Any) -> Shape:
    """The operand's shape, of several operands their tuple."""
    require_arrays(*operands)
    require(len(operands) >= 3 and len(operands) % 2 == 1, "scatter takes N operands, indices and N updates",
            got=f"{len(operands)} operands")
    inputs, indices, updates = split_scatter(operands)
    points = _check_indices(indices, index_vector_dim)
    _check_index_map(inputs[0], indices, scatter_dims_to_operand_dims, index_vector_dim, "scatter_dims_to_operand_dims")
    _require_ascending(inserted_window_dims, inputs[0].rank, "inserted_window_dims")
    for k, (operand, update) in enumerate(zip(inputs, updates, strict=True)):
        require(operand.compatible(inputs[0].with_element_type(operand.element_type)), f"operand {k} has other dimensions",
                got=operand, expected=inputs[0])
        rank = len(points) + len(update_window_dims)
        require(update.rank == rank, f"update {k} has the wrong rank", got=update, expected=f"rank {rank}")
        _require_ascending(update_window_dims, rank, "update_window_dims")
        require(len(update_window_dims) + len(inserted_window_dims) + len(input_batching_dims) == operand.rank,
                "window, inserted and batching dimensions together are not the operand's dimensions",
                got=f"{len(update_window_dims)} + {len(inserted_window_dims)} + {len(input_batching_dims)}",
                expected=operand.rank)
        _check_batching(operand, indices, index_vector_dim, input_batching_dims, scatter_indices_batching_dims,
                        inserted_window_dims, ())
        _check_updates(operand, update, points, update_window_dims, {*inserted_window_dims, *input_batching_dims})
    for d in input_batching_dims:
        require(d not in scatter_dims_to_operand_dims, "a batching dimension is also indexed", got=d)
    check_reducer(to_apply, updates, [Shape(o.element_type) for o in inputs])
    results = [o.without_layout() for o in inputs]
    return results[0] if len(results) == 1 else Shape.tuple(results)


def _check_updates(operand: Shape, update: Shape, points: Sequence[tuple[int, bool]], window_dims: Sequence[int],
                   absent: set[int]) -> None:
    kept = [d for d in range(operand.rank) if d not in absent]
    for d, update_dim in zip(kept, window_dims, strict=True):
        size, extent = update.dimensions[update_dim], operand.dimensions[d]
        require(size <= extent or UNBOUNDED in (size, extent), "an update window is larger than the operand",
                got=f"{update} dimension {update_dim}, {operand} dimension {d}")
    scattered = [n for d, n in enumerate(update.dimensions) if d not in window_dims]
    for size, (wanted, _) in zip(scattered, points, strict=True):
        require(sizes_agree(size, wanted), "updates and indices differ in size", got=f"{update}, scatter sizes {scattered}",
                expected=[n for n, _ in points])


def split_scatter(operands: Sequence[Any]) -> tuple[Sequence[Any], Any, Sequence[Any]]:
    """The N operands, the indices and the N updates of a scatter."""
    count = len(operands) // 2
    return operands[:count], operands[count], operands[count + 1:]


# --------------------------------------------------------------------------------------------- schemas


@op("dynamic-slice", infer=dynamic_slice_shape, stablehlo="dynamic_slice",
    traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.STREAMS | Trait.PARTIAL_READ, inferable=False)
def dynamic_slice(operand, *start_indices, dynamic_slice_sizes: Dims): ...


@op("dynamic-update-slice", infer=dynamic_update_slice_shape, stablehlo="dynamic_update_slice", traits=Trait.MOVES_DATA,
    inferable=False)
def dynamic_update_slice(operand, update, *start_indices): ...


@op("gather", infer=gather_shape, stablehlo="gather", traits=Trait.MOVES_DATA | Trait.PARTIAL_READ)
def gather(operand, start_indices, *, offset_dims: Dims, collapsed_slice_dims: Dims, start_index_map: Dims,
           index_vector_dim: Int, slice_sizes: Dims, operand_batching_dims: Dims = (),
           start_indices_batching_dims: Dims = (), indices_are_sorted: Bool = False): ...


@op("scatter", infer=scatter_shape, stablehlo="scatter", element_region=0)
def scatter(*operands, update_window_dims: Dims, inserted_window_dims: Dims, scatter_dims_to_operand_dims: Dims,
            index_vector_dim: Int, to_apply: Region, indices_are_sorted: Bool = False, unique_indices: Bool = False,
            input_batching_dims: Dims = (), scatter_indices_batching_dims: Dims = ()): ...
