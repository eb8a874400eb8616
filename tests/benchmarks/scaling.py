"""How time grows with the work, beside XLA's CPU (jax.jit): array sizes, steps of a loop, instructions of a program, layers.

    python tests/benchmarks/scaling.py [--runs 7] [--threads 2] [--only SUBSTRING] [--write]

For each size: milliseconds of a run, medians of runs in turns; for instructions and layers the milliseconds from the function to
its first result. Columns that grow faster than the size does, or ratios that do, are what to look for. `make pages` draws what
`--write` has written.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.measuring import Table, parser, timed
from xla_torch import from_jax

Function = Callable[..., Any]
Made = tuple[Function, Sequence[np.ndarray]]


def floats(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


def elementwise(n: int) -> Made:
    return lambda x: jnp.tanh(x * x - x) * 0.5 + jnp.exp(-x * x), (floats(n),)


def total(n: int) -> Made:
    return lambda x: (x * x).sum(), (floats(n),)


def sort(n: int) -> Made:
    return jnp.sort, (floats(n),)


def steps(n: int) -> Made:
    """A loop over ten elements that keeps what each step made."""
    def function(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.sin(c) + c * 0.5, c), x, None, length=n)

    return function, (floats(10),)


def instructions(n: int) -> Made:
    """A chain of small products and elementwise ops."""
    def function(x: Any, w: Any) -> Any:
        for _ in range(n // 4):
            x = jnp.tanh(x @ w + x) * 0.5
        return x

    return function, (floats(8, 8), floats(8, 8))


def layers(n: int) -> Made:
    """Layers of a perceptron with residuals, the gradient by all weights."""
    def loss(weights: Any, x: Any) -> Any:
        for k in range(n):
            x = x + jax.nn.gelu(x @ weights[k])
        return (x * x).mean()

    return jax.value_and_grad(loss), (floats(n, 64, 64) * 0.05, floats(32, 64))


CURVES: dict[str, tuple[Callable[[int], Made], Sequence[int], bool]] = {
    # name: what is made of a size, the sizes, and whether the first result is what counts
    "elements of a chain": (elementwise, [10**k for k in range(3, 8)], False),
    "elements of a sum": (total, [10**k for k in range(3, 8)], False),
    "elements that are sorted": (sort, [10**k for k in range(3, 8)], False),
    "steps of a loop": (steps, [1, 10, 100, 1000, 10_000], False),
    "instructions": (instructions, [100, 1000, 10_000], True),
    "layers, to the first gradient": (layers, [1, 6, 24, 96], True),
    "layers, a gradient": (layers, [1, 6, 24, 96], False),
}


WARM = 2.0
"""Seconds of calls before any counts, in which native code arrives."""


def measured(made: Made, first: bool, runs: int) -> tuple[float, float]:
    """Ours and XLA's milliseconds."""
    function, arrays = made
    tensors, buffers = [torch.from_numpy(a) for a in arrays], [jax.device_put(a) for a in arrays]
    if first:
        jax.clear_caches()
        text = jax.jit(function).lower(*arrays)  # what both begin with
        theirs = 1e3 * timed(lambda: jax.block_until_ready(text.compile()(*buffers)))[0]
        return 1e3 * timed(lambda: from_jax(function, *arrays, derivatives="xla")(*tensors))[0], theirs
    program, compiled = from_jax(function, *arrays, derivatives="xla"), jax.jit(function)
    end = time.perf_counter() + WARM
    while time.perf_counter() < end:
        program(*tensors)
    turns = [(timed(lambda: program(*tensors))[0], timed(lambda: jax.block_until_ready(compiled(*buffers)))[0])
             for _ in range(runs + 1)][1:]
    ours, theirs = zip(*turns, strict=True)
    return 1e3 * statistics.median(ours), 1e3 * statistics.median(theirs)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    table = Table(__file__, ["what grows", "size", "ours ms", "XLA ms", "ratio"])
    for name, (make, sizes, first) in CURVES.items():
        for size in sizes if chosen.only in name else ():
            ours, theirs = measured(make(size), first, chosen.runs)
            table.add(name, f"{size:,}", f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}")
    table.end(write=chosen.write)


if __name__ == "__main__":
    main()
