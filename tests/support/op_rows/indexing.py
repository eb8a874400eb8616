"""Rows of slices and updates at computed places: dynamic slices, gather and scatter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from xla_torch import ops

from .drawn import Drawn, Row
from .kinds import ALL, EVERYTHING, INTEGERS, INTS, NUMBERS, SIGNED

INDEX_TYPES = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


def _starts(d: Drawn, rank: int) -> list[Any]:
    """Start indices, many of them out of bounds; all of one type."""
    kind = d.choice(*INDEX_TYPES)
    return [d.index(-2 if kind in SIGNED else 0, 6, kind) for _ in range(rank)]


def _dynamic_slice(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    return ops.DynamicSlice(d.array(dims), _starts(d, len(dims)), [d.integer(0, n) for n in dims])


def _dynamic_slice_at_vector(d: Drawn) -> Any:
    """The old form with one vector of indices, which XLA reads and no longer runs."""
    dims = d.dims(1, 3)
    sizes = [d.integer(0, n) for n in dims]

    def sliced(operand: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
        places = zip(np.clip(starts, 0, np.subtract(dims, sizes)), sizes, strict=True)
        return [operand[tuple(slice(start, start + size) for start, size in places)]]

    d.expect(sliced)
    return ops.DynamicSlice(d.array(dims), d.array([len(dims)], "s32", lambda rng: rng.integers(-2, 6, len(dims))), sizes)


def _dynamic_slice_in_dim(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    return ops.DynamicSliceInDim(d.array(dims), d.index(-2, 6), d.integer(0, dims[at]), at)


def _dynamic_update_slice(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    return ops.DynamicUpdateSlice(d.array(dims), d.array([d.integer(0, n) for n in dims]), _starts(d, len(dims)))


def _dynamic_update_slice_in_dim(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    at = d.integer(0, len(dims) - 1)
    update = d.array([d.integer(0, n) if k == at else n for k, n in enumerate(dims)])
    return ops.DynamicUpdateSliceInDim(d.array(dims), update, d.index(-2, 6), at)


# ------------------------------------------------------------------------------------------------- gather and scatter


class _Numbers:
    """Dimension numbers of a gather or scatter, as general as they come, and the shapes that go with them.

    Every dimension of the operand is indexed or not; the window is as large as the operand in it, or smaller, or leaves it out
    (collapsed, inserted); or it is a batching dimension, which the indices have too.
    """

    def __init__(self, d: Drawn, narrow: bool = False):
        self.dims = d.dims(1, 3, smallest=1)
        rank = len(self.dims)
        self.batching = [k for k in range(rank) if d.choice(False, False, True)]
        others = [k for k in range(rank) if k not in self.batching]
        self.left_out = [k for k in others if d.flag()]
        self.indexed = [others[k] for k in d.order(len(others))][:d.integer(0, len(others))]
        self.sizes = [1 if k in self.batching or k in self.left_out else d.integer(1, n) for k, n in enumerate(self.dims)]
        self.window = [self.sizes[k] for k in others if k not in self.left_out]
        self._place_indices(d)
        self.offsets = self._offsets(d)
        self.kind = d.choice("s32", "s32", "u8", "s64") if not narrow else "s32"

    def _place_indices(self, d: Drawn) -> None:
        """Batch dimensions of the indices, the batching ones among them, and the index vector somewhere between."""
        batch: list[tuple[int, int]] = [(k, self.dims[k]) for k in self.batching] + [(-1, n) for n in d.dims(0, 2, smallest=0)]
        batch = [batch[k] for k in d.order(len(batch))]
        at = d.integer(0, len(batch))
        implicit = len(self.indexed) == 1 and at == len(batch) and d.flag()
        whole = batch if implicit else [*batch[:at], (-2, len(self.indexed)), *batch[at:]]
        self.index_dims, self.index_vector_dim = [n for _, n in whole], at
        self.index_batching = [next(p for p, (owner, _) in enumerate(whole) if owner == k) for k in self.batching]
        self.batch = [n for _, n in batch]

    def _offsets(self, d: Drawn) -> list[int]:
        rank = len(self.batch) + len(self.window)
        return sorted(d.order(rank)[:len(self.window)])

    @property
    def result(self) -> list[int]:
        """The dimensions of what is gathered, or of the updates."""
        batch, window = iter(self.batch), iter(self.window)
        return [next(window) if k in self.offsets else next(batch) for k in range(len(self.batch) + len(self.window))]

    def indices(self, d: Drawn) -> Any:
        low = 0 if self.kind.startswith("u") else -2
        return d.array(self.index_dims, self.kind, lambda rng: rng.integers(low, 6, self.index_dims))


def _gather(d: Drawn) -> Any:
    n = _Numbers(d)
    return ops.Gather(d.array(n.dims), n.indices(d), ops.GatherDimensionNumbers(
        offset_dims=n.offsets, collapsed_slice_dims=n.left_out, start_index_map=n.indexed, index_vector_dim=n.index_vector_dim,
        operand_batching_dims=n.batching, start_indices_batching_dims=n.index_batching), n.sizes)


def _scatter(combine: Callable[..., Any], domain: str = "any", operands: int = 1) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        n = _Numbers(d)
        numbers = ops.ScatterDimensionNumbers(
            update_window_dims=n.offsets, inserted_window_dims=n.left_out, scatter_dims_to_operand_dims=n.indexed,
            index_vector_dim=n.index_vector_dim, input_batching_dims=n.batching,
            scatter_indices_batching_dims=n.index_batching)
        arrays = [d.array(n.dims, domain=domain) for _ in range(operands)]
        updates = [d.array(n.result, domain=domain) for _ in range(operands)]
        region = d.region(combine, *[d.kind] * 2 * operands)
        if operands == 1:
            return ops.Scatter(arrays[0], n.indices(d), updates[0], region, numbers)
        return ops.Scatter(arrays, n.indices(d), updates, region, numbers)
    return build


def _keep_larger(key: Any, value: Any, new_key: Any, new_value: Any) -> list[Any]:
    """The pair with the larger key; a later one does not replace an equal one. Not commutative."""
    wins = ops.Gt(new_key, key)
    return [ops.Select(wins, new_key, key), ops.Select(wins, new_value, value)]


def _unique_scatter(d: Drawn) -> Any:
    rows, width = d.integer(1, 5), d.integer(0, 3)
    count = d.integer(0, rows)
    indices = d.array([count, 1], "s32", lambda rng: np.sort(rng.permutation(rows)[:count])[:, None])
    return ops.Scatter(d.array([rows, width]), indices, d.array([count, width]), d.region(ops.Add), ops.ScatterDimensionNumbers(
        update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1),
        indices_are_sorted=True, unique_indices=True)


def _sorted_gather(d: Drawn) -> Any:
    rows, count = d.integer(1, 5), d.integer(0, 4)
    indices = d.array([count], "s32", lambda rng: np.sort(rng.integers(0, rows, count)))
    width = math.prod(d.dims(0, 2))
    return ops.Gather(d.array([rows, width]), indices, ops.GatherDimensionNumbers(
        offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1), [1, width], indices_are_sorted=True)


ROWS: list[Row] = [
    Row("DynamicSlice", _dynamic_slice, EVERYTHING),
    Row("DynamicSlice", _dynamic_slice_at_vector, ALL, variant="at a vector"),
    Row("DynamicSliceInDim", _dynamic_slice_in_dim, ALL),
    Row("DynamicUpdateSlice", _dynamic_update_slice, EVERYTHING),
    Row("DynamicUpdateSliceInDim", _dynamic_update_slice_in_dim, ALL),
    Row("Gather GatherDimensionNumbers", _gather, EVERYTHING),
    Row("Gather", _sorted_gather, ALL, variant="of sorted indices"),
    Row("Scatter ScatterDimensionNumbers", _scatter(lambda a, b: b), EVERYTHING, variant="overwriting"),
    Row("Scatter", _scatter(ops.Add, "small"), ALL, variant="adding"),
    Row("Scatter", _scatter(ops.Mul, "small"), (*INTEGERS, "f32", "f64"), variant="multiplying"),
    Row("Scatter", _scatter(ops.Max), NUMBERS, variant="of the largest", unsigned_zero=True),
    Row("Scatter", _scatter(ops.Min), NUMBERS, variant="of the smallest", unsigned_zero=True),
    Row("Scatter", _scatter(lambda a, b: ops.Sub(b, a), "small"), (*INTS, "f32", "f64"), variant="not commutative"),
    Row("Scatter", _scatter(_keep_larger, operands=2), (*INTS, "f32", "f64"), variant="of pairs"),
    Row("Scatter", _unique_scatter, (*INTS, "f32", "f64"), variant="of unique indices"),
]
