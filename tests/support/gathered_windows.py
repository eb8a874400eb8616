"""Windows of gathers and scatters with drawn dimension numbers."""

from __future__ import annotations

import dataclasses

import numpy as np

from support.agreement import dtype_of


def braces(values) -> str:
    return "{" + ",".join(map(str, values)) + "}"


@dataclasses.dataclass
class Dimensions:
    """Dimension numbers that fit together, drawn at random; they serve a gather and the scatter of the same windows."""

    operand: list[int]
    window: list[int]
    absent: list[int]
    batching: list[int]
    index_map: list[int]
    indices: list[int]
    index_vector_dim: int
    index_batching: list[int]
    window_dims: list[int]

    @property
    def result(self) -> list[int]:
        """Of the gather; the updates of the scatter."""
        kept = [self.window[d] for d in range(len(self.operand)) if d not in self.absent + self.batching]
        points = [n for d, n in enumerate(self.indices) if d != self.index_vector_dim]
        return [kept.pop(0) if d in self.window_dims else points.pop(0) for d in range(len(kept) + len(points))]

    def attributes(self, gather: bool) -> str:
        if gather:
            names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims",
                     "start_indices_batching_dims")
        else:
            names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "input_batching_dims",
                     "scatter_indices_batching_dims")
        values = (self.window_dims, self.absent, self.index_map, self.batching, self.index_batching)
        listed = [f"{n}={braces(v)}" for n, v in zip(names, values, strict=True) if v or "batching" not in n]
        return ", ".join([*listed, f"index_vector_dim={self.index_vector_dim}"])


def draw(seed: int) -> Dimensions:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    operand = [int(n) for n in rng.integers(1, 5, rank)]
    dims = list(rng.permutation(rank))
    batching = sorted(int(d) for d in dims[:int(rng.integers(0, 2 if rank > 1 else 1))])
    free = [d for d in range(rank) if d not in batching]
    absent = sorted(int(d) for d in rng.permutation(free)[:int(rng.integers(0, len(free) + 1))])
    index_map = [int(d) for d in rng.permutation(free)[:int(rng.integers(1, len(free) + 1))]]
    window = [1 if d in absent or d in batching else operand[d] if rng.random() < 0.5 else int(rng.integers(1, operand[d] + 1))
              for d in range(rank)]
    points = [int(n) for n in rng.integers(1, 4, int(rng.integers(len(batching), 3)))]
    places = [int(d) for d in rng.permutation(len(points))[:len(batching)]]
    for d, place in zip(batching, places, strict=True):
        points[place] = operand[d]
    index_vector_dim = int(rng.integers(0, len(points) + 1))
    indices = [*points[:index_vector_dim], len(index_map), *points[index_vector_dim:]]
    if len(index_map) == 1 and rng.random() < 0.5:
        indices, index_vector_dim = points, len(points)
    index_batching = [p + (p >= index_vector_dim) for p in places]
    total = len(points) + rank - len(absent) - len(batching)
    window_dims = sorted(int(d) for d in rng.permutation(total)[:total - len(points)])
    return Dimensions(operand, window, absent, batching, index_map, indices, index_vector_dim, index_batching, window_dims)


def indices_for(dimensions: Dimensions, seed: int, index_type: str = "s32") -> np.ndarray:
    low = 0 if index_type.startswith("u") else -2
    return np.random.default_rng(seed).integers(low, 6, dimensions.indices).astype(dtype_of(index_type))
