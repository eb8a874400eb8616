"""Each kind of program against its rivals, in turns and in one run: XLA's CPU (jax.jit), torch by hand, the same under
torch.compile, and IREE where ``iree-base-compiler`` and ``iree-base-runtime`` are installed.

    python tests/benchmarks/rivals.py [--runs 9] [--threads 2] [--only SUBSTRING] [--limit 60] [--no-compile] [--write]
    python tests/benchmarks/rivals.py --device cuda

A ratio is ours to the best rival's of the same turn, and the median of all turns. All results are compared with XLA's first.
`--write` puts the table into tests/benchmarks/README.md. First results are seconds from the function, with all that is compiled;
native code and what torch.compile made may lie on disk from before. What a rival takes more than `--limit` seconds to compile, or
does not, is left blank, and said below. IREE takes the forward programs alone: its compiler is given what JAX lowers, and its
runtime copies arguments and results, which its times include. On a CUDA device, for which jax needs its plugin, ours is measured
with `"cudagraphs"` and `"no-cudagraphs"` too, every run is waited for, and nobody computes float32 products in fewer bits.
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

from benchmarks.cases import CASES, COMPILED, ON_CUDA, Case, Run
from benchmarks.measuring import Table, parser, timed

MAY_FAIL = COMPILED, "IREE"
OURS = {"ours", *ON_CUDA}
WHO = {"cpu": ("ours", "XLA", "torch by hand", *MAY_FAIL),
       "cuda": ("ours", *ON_CUDA, "XLA", "torch by hand", COMPILED)}


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
    leaves = jax.tree_util.tree_leaves(value)
    return [np.asarray(leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf) for leaf in leaves]


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


def waited_for(run: Run) -> Run:
    """A run until the device has done it."""
    def call() -> Any:
        result = run()
        torch.cuda.synchronize()
        return result

    return call


def row(name: str, case: Case, runs: int, limit: float, who: Sequence[str] = WHO["cpu"]
        ) -> tuple[list[str], float, dict[str, str]]:
    """A line of the table, the ratio of our default to the best rival, and why some have no time."""
    first, missing = first_results(case, limit)
    seconds = in_turns({who: case[who] for who in first}, runs)
    best = [min(turn) for turn in zip(*(seconds[one] for one in seconds if one not in OURS), strict=True)]
    ratio = statistics.median(ours / other for ours, other in zip(seconds["ours"], best, strict=True))
    times = [f"{statistics.median(seconds[one]) * 1e3:.2f}" if one in seconds else "" for one in who]
    firsts = [f"{first[one]:.2f}" if one in first else "" for one in ("ours", "XLA", COMPILED)]
    return [name, *times, f"{ratio:.2f}", *firsts], ratio, missing


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=9)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--limit", type=float, default=60)
    options.add_argument("--device", default="cpu", choices=tuple(WHO))
    options.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    chosen = options.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    jax.config.update("jax_default_matmul_precision", "highest")
    who, on_cpu = WHO[chosen.device], chosen.device == "cpu"
    table = Table(__file__ if on_cpu else f"{__file__} on {chosen.device}",
                  ["program", *(f"{one} ms" for one in who), "ours / best", "first result s", "XLA's s", f"{COMPILED}'s s"])
    ratios, without, failed = [], [], []
    for name, make in CASES.items():
        if chosen.only in name:
            torch.compiler.reset()
            case = {one: run if on_cpu else waited_for(run) for one, run in make(chosen.device).items()
                    if not (chosen.no_compile and one == COMPILED)}
            try:
                cells, ratio, missing = row(name, case, chosen.runs, chosen.limit, who)
            except Exception as error:  # the others' times are worth having all the same
                failed.append(f"{name}: {type(error).__name__}: {error}".partition("\n")[0])
                continue
            table.add(*cells)
            ratios.append(ratio)
            without += [f"{one}, {name}: {why}" for one, why in missing.items()]
    messages = [f"Geometric mean of the ratios: {math.exp(statistics.mean(map(math.log, ratios or [math.nan]))):.2f}"]
    messages += [f"{title}:\n\n" + "\n".join(f"- {line}" for line in lines)
                 for title, lines in (("Without a time", without), ("Failed", failed)) if lines]
    table.end("\n\n".join(messages), chosen.write)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
