"""Each kind of program against its rivals, in turns and in one run: XLA's CPU (jax.jit), torch by hand, the same under
torch.compile, and IREE where ``iree-base-compiler`` and ``iree-base-runtime`` are installed.

    python tests/benchmarks/rivals.py [--runs 9] [--threads 2] [--only SUBSTRING] [--limit 60] [--no-compile] [--write]

A ratio is ours to the best rival's of the same turn, and the median of all turns. All results are compared with XLA's first.
`--write` puts the table into tests/benchmarks/README.md. First results are seconds from the function, with all that is compiled;
native code and what torch.compile made may lie on disk from before. What a rival takes more than `--limit` seconds to compile, or
does not, is left blank, and said below. IREE takes the forward programs alone: its compiler is given what JAX lowers, and its
runtime copies arguments and results, which its times include.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.cases import CASES, COMPILED, Case
from benchmarks.measuring import Table, parser, timed

MAY_FAIL = COMPILED, "IREE"
WHO = "ours", "XLA", "torch by hand", *MAY_FAIL


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside after some seconds, and again each second for as long as somebody catches it."""
    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf) for leaf in jax.tree_util.tree_leaves(value)]


def agree(got: Any, want: Any) -> bool:
    """Whether results are the same up to rounding, each beside its largest element."""
    pairs = [(g.astype("f8"), w.astype("f8")) for g, w in zip(_arrays(got), _arrays(want), strict=True)]
    return all(np.allclose(g, w, rtol=1e-3, atol=1e-3 * max(1e-6, np.abs(w).max(initial=0))) for g, w in pairs)


def first_results(case: Case, limit: float) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds to the first result of each, and why there is none. Raises AssertionError where results differ."""
    seconds, missing, results = {}, {}, {}
    for who, run in case.items():
        start = time.perf_counter()
        try:
            with limited(limit) if who in MAY_FAIL else contextlib.nullcontext():
                seconds[who], results[who] = timed(run)
        except Exception as error:
            if who not in MAY_FAIL:
                raise
            missing[who] = f"over {limit:g} s" if time.perf_counter() - start >= limit else type(error).__name__
    for who, result in results.items():
        assert agree(result, results["XLA"]), f"{who} and XLA differ"
    return seconds, missing


def in_turns(case: Case, runs: int) -> dict[str, list[float]]:
    """Seconds of each run of all, in turns, after two turns to warm up."""
    turns = [{who: timed(run)[0] for who, run in case.items()} for _ in range(runs + 2)][2:]
    return {who: [turn[who] for turn in turns] for who in case}


def row(name: str, case: Case, runs: int, limit: float) -> tuple[list[str], float, dict[str, str]]:
    """A line of the table, the ratio to the best rival, and why some have no time."""
    first, missing = first_results(case, limit)
    seconds = in_turns({who: case[who] for who in first}, runs)
    best = [min(turn) for turn in zip(*(seconds[who] for who in seconds if who != "ours"), strict=True)]
    ratio = statistics.median(ours / other for ours, other in zip(seconds["ours"], best, strict=True))
    times = [f"{statistics.median(seconds[who]) * 1e3:.2f}" if who in seconds else "" for who in WHO]
    firsts = [f"{first[who]:.2f}" if who in first else "" for who in ("ours", "XLA", COMPILED)]
    return [name, *times, f"{ratio:.2f}", *firsts], ratio, missing


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=9)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--limit", type=float, default=60)
    options.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    chosen = options.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    table = Table(__file__, ["program", *(f"{who} ms" for who in WHO), "ours / best", "first result s", "XLA's s",
                             f"{COMPILED}'s s"])
    ratios, without = [], []
    for name, make in CASES.items():
        if chosen.only in name:
            torch.compiler.reset()
            case = {who: run for who, run in make().items() if not (chosen.no_compile and who == COMPILED)}
            cells, ratio, missing = row(name, case, chosen.runs, chosen.limit)
            table.add(*cells)
            ratios.append(ratio)
            without += [f"{who}, {name}: {why}" for who, why in missing.items()]
    below = f"Geometric mean of the ratios: {math.exp(statistics.mean(map(math.log, ratios))):.2f}"
    table.end(f"{below}\n\nWithout a time: {'; '.join(without)}" if without else below, chosen.write)


if __name__ == "__main__":
    main()
