"""Gradients of indexing. Gather and scatter are transposes, once both mean the same by an index out of bounds:

gather moves a window that sticks out back inside; scatter drops it. So gather's rule clamps the indices before it
scatters, and scatter's rules mask what they gather where the window was dropped. Indices that are known to be in bounds
cost neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from grad_rules._calculus import (
    any_over,
    conj,
    constant,
    convert,
    full,
    iota,
    masked,
    nan_where_nan,
    others,
    reshape,
    scalar_computation,
    second_computation,
    zeros,
)
from grad_rules._compositions import Cotangents, apply, derived
from grad_rules._folds import fold_gradient
from grad_rules._table import linear, vjp
from xla_torch.analysis.integer_bounds import bounds_of
from xla_torch.analysis.reducers import reducer_kinds
from xla_torch.core.shape import Shape
from xla_torch.core.sizes import Size
from xla_torch.core.types import S32
from xla_torch.functions import (
    And,
    BroadcastInDim,
    Clamp,
    ConcatInDim,
    DynamicSlice,
    DynamicUpdateSlice,
    Eq,
    Gather,
    GatherDimensionNumbers,
    Le,
    Max,
    Not,
    Or,
    Scatter,
    ScatterDimensionNumbers,
    Select,
)
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.opcodes.reducer_kinds import ReducerKind

# --------------------------------------------------------------------------------------- cutting at run-time places


def _add_at(ct: XlaOp, acc: XlaOp | None, inst: Instruction, start_indices: Sequence[XlaOp],
            dynamic_slice_sizes: Sequence[int]) -> XlaOp:
    """dynamic-slice: add the cotangent where the slice was. The op clamps the start there as it did here."""
    if acc is None:
        return DynamicUpdateSlice(zeros(ct, inst.operands[0].shape), ct, start_indices)
    return DynamicUpdateSlice(acc, DynamicSlice(acc, start_indices, dynamic_slice_sizes) + ct, start_indices)


linear("dynamic-slice", operand=_add_at)
linear("dynamic-update-slice",  # the update's part is read before the operand's overwrites it
       update=lambda ct, inst, start_indices: DynamicSlice(ct, start_indices, inst.operands[1].shape.dimensions),
       operand=lambda ct, inst, start_indices: DynamicUpdateSlice(
           ct, zeros(ct, inst.operands[1].shape), start_indices))


# ----------------------------------------------------------------------------------------------- where windows go


class Windows(NamedTuple):
    """One family of windows in one array, as gather reads and scatter writes it."""

    window_dims: tuple[int, ...]
    inserted: tuple[int, ...]
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    index_map: tuple[int, ...]
    index_vector_dim: int
    sizes: tuple[int, ...]
    """The window's size in every dimension of the array."""
    array: Shape
    sorted: bool
    unique: bool

    @property
    def limits(self) -> list[int]:
        """The greatest start that keeps a window inside, for each component of an index vector."""
        return [self.array.dimensions[d] - self.sizes[d] for d in self.index_map]

    def gather(self, array: XlaOp, indices: XlaOp) -> XlaOp:
        numbers = GatherDimensionNumbers(
            offset_dims=self.window_dims, collapsed_slice_dims=self.inserted, start_index_map=self.index_map,
            index_vector_dim=self.index_vector_dim, operand_batching_dims=self.operand_batching,
            start_indices_batching_dims=self.indices_batching)
        return Gather(array, indices, numbers, self.sizes, self.sorted)

    def scatter(self, array: XlaOp, indices: XlaOp, updates: XlaOp, function: str | None = "Add") -> XlaOp:
        """Combine updates into the array by a documented binary function, or overwrite where it is None."""
        numbers = ScatterDimensionNumbers(
            update_window_dims=self.window_dims, inserted_window_dims=self.inserted,
            scatter_dims_to_operand_dims=self.index_map, index_vector_dim=self.index_vector_dim,
            input_batching_dims=self.operand_batching, scatter_indices_batching_dims=self.indices_batching)
        combine = scalar_computation(function, array.element_type) if function else second_computation(array.element_type)
        return Scatter(array, indices, updates, combine, numbers, self.sorted, self.unique)


def windows_of_gather(inst: Instruction) -> Windows:
    """The windows that a gather instruction reads."""
    a = inst.attributes
    return Windows(a["offset_dims"], a["collapsed_slice_dims"], a.get("operand_batching_dims", ()),
                   a.get("start_indices_batching_dims", ()), a["start_index_map"], a["index_vector_dim"], a["slice_sizes"],
                   inst.operands[0].shape, a.get("indices_are_sorted", False), False)


def windows_of_scatter(inst: Instruction) -> Windows:
    """The windows that a scatter instruction writes."""
    a, count = inst.attributes, len(inst.operands) // 2
    array, updates = inst.operands[0].shape, inst.operands[count + 1].shape
    batching = a.get("input_batching_dims", ())
    sizes = [1] * array.rank
    kept = others([*a["inserted_window_dims"], *batching], array.rank)
    for dimension, window_dimension in zip(kept, a["update_window_dims"], strict=True):
        sizes[dimension] = updates.dimensions[window_dimension]
    return Windows(a["update_window_dims"], a["inserted_window_dims"], batching,
                   a.get("scatter_indices_batching_dims", ()), a["scatter_dims_to_operand_dims"], a["index_vector_dim"],
                   tuple(sizes), array, a.get("indices_are_sorted", False), a.get("unique_indices", False))


# ------------------------------------------------------------------------------------------------ out of bounds


def _always_inside(indices: Instruction, windows: Windows) -> bool:
    if 0 in indices.shape.dimensions:
        return True
    bounds = bounds_of(indices)
    return bounds is not None and bounds[0] >= 0 and bounds[1] <= min(windows.limits, default=bounds[1])


def _limits_like(indices: XlaOp, windows: Windows) -> XlaOp:
    """The greatest allowed start of each component, in the shape of the indices."""
    most = np.iinfo(indices.element_type.numpy).max if indices.element_type.bits >= 8 else 2**indices.element_type.bits - 1
    limits = [min(limit, int(most)) for limit in windows.limits]
    if windows.index_vector_dim == indices.shape.rank:
        return full(indices.builder, limits[0], indices.shape)
    if any(isinstance(limit, Size) for limit in limits):
        vector = ConcatInDim(indices.builder, [full(indices.builder, limit, Shape.array(indices.element_type, [1]))
                                               for limit in limits], 0)
    else:
        vector = constant(indices, np.array(limits).astype(indices.element_type.numpy))
    return BroadcastInDim(vector, indices.shape.dimensions, [windows.index_vector_dim])


def _clamped(indices: XlaOp, windows: Windows, given: Instruction) -> XlaOp:
    """The starts that gather really reads."""
    if _always_inside(given, windows):
        return indices
    return Clamp(zeros(indices), indices, _limits_like(indices, windows))


def _inside(indices: XlaOp, windows: Windows, updates: Shape) -> XlaOp:
    """True for the elements of the updates that scatter does not drop, in the shape of the updates."""
    fits = And(Le(zeros(indices), indices), Le(indices, _limits_like(indices, windows)))
    if windows.index_vector_dim < indices.shape.rank:
        fits = Not(any_over(Not(fits), [windows.index_vector_dim]))
    return BroadcastInDim(fits, updates.dimensions, others(windows.window_dims, updates.rank))


# ------------------------------------------------------------------------------------------------------- gather


def _gather(ct: XlaOp, acc: XlaOp | None, inst: Instruction, start_indices: XlaOp) -> XlaOp:
    windows = windows_of_gather(inst)
    start = zeros(ct, inst.operands[0].shape) if acc is None else acc
    return windows.scatter(start, _clamped(start_indices, windows, inst.operands[1]), ct)


vjp("gather", operand=_gather)


# ------------------------------------------------------------------------------------------------------ scatter


class _Written(NamedTuple):
    """One operand of a scatter with its updates, its result and the result's cotangent."""

    ct: XlaOp
    out: XlaOp
    array: XlaOp
    updates: XlaOp
    indices: XlaOp
    windows: Windows
    inst: Instruction

    def taken(self, array: XlaOp) -> XlaOp:
        """What stands in `array` where each update went; zero for updates that were dropped."""
        found = self.windows.gather(array, self.indices)
        if _always_inside(self.inst.operands[len(self.inst.operands) // 2], self.windows):
            return found
        return masked(_inside(self.indices, self.windows, self.updates.shape), found)

    def put(self, array: XlaOp, updates: XlaOp, function: str | None = "Add") -> XlaOp:
        return self.windows.scatter(array, self.indices, updates, function)


Pair = tuple[XlaOp, XlaOp]
"""The cotangents of a scatter's operand and of its updates."""


def _add(c: _Written) -> Pair:
    return c.ct, c.taken(c.ct)


def _subtract(c: _Written) -> Pair:
    return c.ct, -c.taken(c.ct)


def _overwrite(c: _Written) -> Pair:
    """The operand keeps what was not overwritten. Of several updates of one element the last one counts."""
    kept = c.put(c.ct, zeros(c.updates), None)
    if c.windows.unique:
        return kept, c.taken(c.ct)
    count = reshape(iota(c.ct, [c.updates.shape.element_count], 0), c.updates.shape.dimensions) + 1
    stamped = c.put(full(c.ct.builder, 0, c.array.shape.with_element_type(S32)), count, None)
    return kept, masked(Eq(c.windows.gather(stamped, c.indices), count), c.windows.gather(c.ct, c.indices))


def _multiply(c: _Written) -> Pair:
    """The product of the other factors. Where factors are zero it is told by how many are."""
    kept = c.put(c.ct, conj(c.updates), "Mul")
    if c.windows.unique:
        return kept, c.taken(c.ct * conj(c.array))
    one = zeros(c.array) + 1
    array_zero, update_zero = Eq(c.array, zeros(c.array)), Eq(c.updates, zeros(c.updates))
    factors = Select(update_zero, zeros(c.updates) + 1, c.updates)
    product = c.taken(c.put(Select(array_zero, one, c.array), factors, "Mul"))
    number = c.taken(c.put(convert(array_zero, c.array.element_type), convert(update_zero, c.array.element_type)))
    rest = masked(Eq(number, convert(update_zero, number.element_type)), product / factors)
    return kept, c.taken(c.ct) * conj(rest)


def _extreme(c: _Written) -> Pair:
    """Everyone who is the extreme has an equal share. As in JAX nobody has one of an element that updates made NaN, while an
    element without updates keeps its cotangent, NaN or not: these alone have a count of 0."""
    extreme = c.windows.gather(c.out, c.indices)
    is_array, is_update = Eq(c.array, c.out), Eq(c.updates, extreme)
    counts = nan_where_nan(extreme, convert(is_update, c.ct.element_type))
    number = c.put(convert(is_array, c.ct.element_type), counts)
    share = c.ct / Max(number, zeros(number) + 1)
    return masked(Or(is_array, Eq(number, zeros(number))), share), masked(is_update, c.taken(share))


_SCATTERS: dict[ReducerKind | None, Callable[[_Written], Pair]] = {
    ReducerKind.ADD: _add, ReducerKind.SUBTRACT: _subtract, ReducerKind.SECOND: _overwrite, ReducerKind.MULTIPLY: _multiply,
    ReducerKind.MAXIMUM: _extreme, ReducerKind.MINIMUM: _extreme}


def _scatter(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, to_apply: Computation) -> Cotangents:
    windows, count = windows_of_scatter(inst), len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1:]
    cts, outs = (ct, out) if inst.shape.is_tuple else ((ct,), (out,))
    if 0 in updates[0].shape.dimensions or any(
            size > n for size, n in zip(windows.sizes, windows.array.dimensions, strict=True)):
        return [*cts, None, *[None] * count]  # nothing is written
    kinds = reducer_kinds(to_apply)
    rules = [_SCATTERS.get(kind) for kind in kinds]
    if None in rules:
        return _any_scatter(cts, operands, windows, inst, to_apply)
    pairs = [(None, None) if c is None or rule is None else rule(_Written(c, o, a, u, indices, windows, inst))
             for rule, c, o, a, u in zip(rules, cts, outs, arrays, updates, strict=True)]
    return [*(a for a, _ in pairs), None, *(u for _, u in pairs)]


def _any_scatter(cts: Sequence[XlaOp | None], operands: Sequence[XlaOp], windows: Windows, inst: Instruction,
                 combiner: Computation) -> Cotangents:
    """Any other combiner: take what is there, combine, put it back; where updates may meet, one after another."""
    count = len(operands) // 2
    if not windows.unique:
        arrays, indices, updates = operands[:count], operands[count], operands[count + 1:]
        to_arrays, to_updates = fold_gradient(cts, arrays, updates, _targets(arrays[0], indices, updates[0], windows, inst),
                                              windows.window_dims, combiner)
        return [*to_arrays, None, *to_updates]

    def composed(*values: XlaOp) -> list[XlaOp]:
        arrays, indices, updates = values[:count], values[count], values[count + 1:]
        current = [windows.gather(a, indices) for a in arrays]
        return [windows.scatter(a, indices, new, None)
                for a, new in zip(arrays, apply(combiner, [*current, *updates]), strict=True)]

    return derived(composed, operands, cts)


def _targets(array: XlaOp, indices: XlaOp, updates: XlaOp, windows: Windows, inst: Instruction) -> XlaOp:
    """The element of the flat array that each update goes to; one behind the end for updates that are dropped."""
    size, dimensions = array.shape.element_count, array.shape.dimensions
    found = windows.gather(reshape(iota(array, [size], 0), dimensions), indices)
    if _always_inside(inst.operands[len(inst.operands) // 2], windows):
        return found
    return Select(_inside(indices, windows, updates.shape), found, full(found.builder, size, found.shape))


vjp("scatter", operands=_scatter)
