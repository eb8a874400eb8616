"""Chains of elementwise calls on large arrays, run block by block so that intermediate results stay in the cache."""

from __future__ import annotations

import torch

Tensors = tuple[torch.Tensor, ...]


def blocked(body: torch.nn.Module, cut: tuple[int, int, int], results: tuple[tuple[tuple[int, ...], torch.dtype], ...],
            arrays: Tensors, scalars: Tensors, into: tuple[int | None, ...] = ()) -> Tensors:
    """Run `body(*arrays, *scalars, *results)` on blocks; it writes its results into the last arguments.

    `cut` is (dimension, its size, rows of a block), `results` the dimensions and dtype of each result and `into` the number
    of the array that it is written over, if any. All arrays and results have the same dimensions; scalars are 0-dimensional.
    """
    dimension, size, rows = cut
    run, device = body.forward, arrays[0].device
    made = tuple([torch.empty(dims, dtype=dtype, device=device) if over is None else arrays[over]
                  for (dims, dtype), over in zip(results, into or (None,) * len(results), strict=True)])
    for start in range(0, size, rows):
        count = min(rows, size - start)
        run(*[a.narrow(dimension, start, count) for a in arrays], *scalars,
            *[m.narrow(dimension, start, count) for m in made])
    return made
