#!/usr/bin/env python3
"""Time gradients of programs that other people's libraries wrote beside those that XLA makes of the same HLO, on one thread.

    python tests/benchmarks/gradients_against_xla.py [--programs DIR] [--only SUBSTRING] [--seconds 8] [--write]

For each DIR/NAME/module.hlo with its arguments in data.npz (default: ../shared/perf/wild, where it exists), `value_and_grad` by
all floating arguments, or `vjp` with cotangents of 1 where the first result is not floating. XLA compiles the HLO text of that
gradient. "ten calls" is from there to the end of the tenth call of each, and "off" the largest difference of the values beside
the largest value of the array. Each program runs in a process of its own with an empty cache of C code.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from measuring import Table, in_child, mean_and_worst, parser, settled, timed

import xla_torch
from xla_torch.errors import PerhapsLostDerivatives
from xla_torch.storage.dtypes import torch_dtype

HEADER = ("program", "XLA ms", "gradient", "ten calls", "off")
WILD = pathlib.Path(__file__).resolve().parents[3] / "shared" / "perf" / "wild"
RUNS = 15


def gradient(folder: pathlib.Path) -> tuple[xla_torch.XlaComputation, list[np.ndarray]]:
    """The derived program of a stored one, and its arguments."""
    with np.load(folder / "data.npz") as stored:
        arrays = [stored[name] for name in sorted(stored.files)]
    program = xla_torch.load(folder / "module.hlo")
    numbers = [k for k, a in enumerate(arrays) if a.dtype.kind == "f"]
    results = list(program.program_shape.result.leaves())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerhapsLostDerivatives)
        if results[0].element_type.is_floating:
            return xla_torch.value_and_grad(program, numbers), arrays
        derived = xla_torch.vjp(program, numbers, with_outputs=True)
    moving = [r for r in results if r.element_type.is_floating or r.element_type.is_complex]
    return derived, [*arrays, *(torch.ones(r.dimensions, dtype=torch_dtype(r.element_type)).numpy() for r in moving)]


def flat(results: Any) -> list[np.ndarray]:
    if isinstance(results, (tuple, list)):
        return [leaf for part in results for leaf in flat(part)]
    return [np.asarray(results)]


def off(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference beside the largest value of its array."""
    return max((float(np.abs(a - b).max(initial=0)) / max(float(np.abs(b).max(initial=0)), 1e-30)
                for a, b in zip(ours, theirs, strict=True) if b.dtype.kind in "fc"), default=0.0)


def measured(folder: pathlib.Path, seconds: float) -> dict[str, float]:
    import jax

    from support.oracle import executable

    torch.set_num_threads(1)
    derived, arrays = gradient(folder)
    tensors, buffers, text = [torch.from_numpy(a) for a in arrays], [jax.device_put(a) for a in arrays], derived.to_hlo_text()

    def ten_of_xla() -> Any:
        run = executable(text)
        for _ in range(9):
            jax.block_until_ready(run(buffers))
        return run, jax.block_until_ready(run(buffers))

    ten_theirs, (theirs, expected) = timed(ten_of_xla)
    ten_ours, found = timed(lambda: [derived(*tensors) for _ in range(10)][-1])
    ratio, alone = settled(lambda: derived(*tensors), lambda: jax.block_until_ready(theirs(buffers)), seconds, RUNS)
    return {"xla": alone, "ratio": ratio, "ten": ten_ours / ten_theirs, "off": off(flat(found), flat(expected))}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--programs", type=pathlib.Path, default=WILD)
    made.add_argument("--seconds", type=float, default=8.0, help="of calls before a time counts")
    made.add_argument("--one", type=pathlib.Path, help=argparse.SUPPRESS)
    chosen = made.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.one, chosen.seconds)))
        return
    folders = sorted(p.parent for p in chosen.programs.glob("*/module.hlo") if chosen.only in p.parent.name)
    if not folders:
        print(f"no programs in {chosen.programs}")
        return
    table, all_found = Table(__file__, HEADER, 1), list[dict[str, float]]()
    for folder in folders:
        with tempfile.TemporaryDirectory() as cache:
            found = in_child(__file__, "--one", str(folder), "--seconds", str(chosen.seconds), environment={
                "XLA_TORCH_CACHE": cache, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1",
                "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"})
        all_found.append(found)
        table.add(folder.name, f"{found['xla'] * 1e3:.3f}", f"{found['ratio']:.2f}", f"{found['ten']:.2f}", f"{found['off']:.0e}")
    means = [mean_and_worst(title, [f[k] for f in all_found]) for title, k in (("gradient", "ratio"), ("ten calls", "ten"))]
    table.end(f"Geometric means of {len(all_found)} programs: {', '.join(means)}.\n", write=chosen.write)


if __name__ == "__main__":
    main()
