"""Each kind of program against its rivals, in turns and in one run: XLA's CPU (jax.jit), torch by hand, and IREE where
``iree-base-compiler`` and ``iree-base-runtime`` are installed.

    python tests/benchmarks/rivals.py [--runs 9] [--threads 2] [--only SUBSTRING] [--write]

A ratio is ours to the best rival's of the same turn, and the median of all turns. All results are compared with XLA's first.
`--write` puts the table into tests/benchmarks/README.md. IREE takes the forward programs alone: its compiler is given what JAX
lowers, and its runtime copies arguments and results, which its times include.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.kinds import KINDS, Kind
from benchmarks.models import MODELS, Model
from benchmarks.more_kinds import MORE_KINDS
from xla_torch import from_jax

Run = Callable[[], Any]
PAGE = pathlib.Path(__file__).with_name("README.md")


@dataclasses.dataclass
class Case:
    """One computation, by everybody who has it; each run gives the results as a list of arrays or tensors."""

    ours: Run
    rivals: dict[str, Run]
    first: dict[str, float] = dataclasses.field(default_factory=dict)
    """Seconds from the function to the first result."""


def timed(run: Run) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


# ------------------------------------------------------------------------------------------- cases


def of_kind(kind: Kind) -> Case:
    """A function of arrays, written in JAX and in torch."""
    arrays, tensors = kind.arguments, [torch.from_numpy(a) for a in kind.arguments]
    buffers, compiled = [jax.device_put(a) for a in arrays], jax.jit(kind.function)
    with jax.enable_x64(False):
        program = from_jax(kind.function, *arrays)
    rivals: dict[str, Run] = {"XLA": lambda: jax.block_until_ready(compiled(*buffers))}
    if kind.by_hand is not None:
        by_hand = kind.by_hand
        rivals["torch"] = lambda: by_hand(*tensors)
    found = iree_run(kind)
    if found is not None:
        rivals["IREE"] = found
    return Case(lambda: program(*tensors), rivals)


def of_model(model: Model) -> Case:
    """A training step: the loss and the gradients of all parameters."""
    parameters = [leaf.requires_grad_() if leaf.is_floating_point() else leaf for leaf in model.leaves()]
    values = jax.tree_util.tree_map(lambda t: jax.device_put(t.detach().numpy()), model.parameters)
    batch = [jax.device_put(t.numpy()) for t in model.batch]
    step = jax.jit(jax.value_and_grad(model.source))

    def walked(loss: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        value = loss(model.parameters, *model.batch)
        return [value.detach(), *torch.autograd.grad(value, parameters)]

    return Case(lambda: walked(model.program),
                {"XLA": lambda: jax.block_until_ready(step(values, *batch)), "torch": lambda: walked(model.by_hand)})


def iree_run(kind: Kind) -> Run | None:
    """The same function in IREE; None where it is not installed, or does not compile it."""
    if importlib.util.find_spec("iree") is None:
        return None
    import iree.compiler  # pyright: ignore[reportMissingImports]
    import iree.runtime  # pyright: ignore[reportMissingImports]

    text = str(jax.jit(kind.function).lower(*kind.arguments).compiler_ir("stablehlo"))
    try:
        code = iree.compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo",
                                         extra_args=["--iree-llvmcpu-target-cpu=host"])
    except iree.compiler.CompilerToolError:
        return None
    module = iree.runtime.load_vm_flatbuffer(code, driver="local-task")
    given = [iree.runtime.asdevicearray(iree.runtime.get_device("local-task"), a) for a in kind.arguments]
    return lambda: [np.asarray(r) for r in _leaves(module.main(*given))]


CASES: dict[str, Callable[[], Case]] = {
    **{name: (lambda kind=kind: of_kind(kind())) for name, kind in {**KINDS, **MORE_KINDS}.items()},
    **{f"{name}, training step": (lambda make=make: of_model(make())) for name, make in MODELS.items()},
}


# ------------------------------------------------------------------------------------------- measuring


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple, dict)) else [value]


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf) for leaf in jax.tree_util.tree_leaves(value)]


def agree(got: Any, want: Any) -> bool:
    """Whether results are the same up to rounding, each beside its largest element."""
    pairs = [(g.astype("f8"), w.astype("f8")) for g, w in zip(_arrays(got), _arrays(want), strict=True)]
    return all(np.allclose(g, w, rtol=1e-3, atol=1e-3 * max(1e-6, np.abs(w).max(initial=0))) for g, w in pairs)


def measured(case: Case, runs: int) -> dict[str, list[float]]:
    """Seconds of each run of all, in turns, after two turns to warm up. Raises AssertionError where results differ."""
    everybody = {"ours": case.ours, **case.rivals}
    results = {}
    for who, run in everybody.items():
        case.first[who], results[who] = timed(run)
    for who, result in results.items():
        assert agree(result, results["XLA"]), f"{who} and XLA differ"
    seconds: dict[str, list[float]] = {who: [] for who in everybody}
    for turn in range(runs + 2):
        for who, run in everybody.items():
            took = timed(run)[0]
            if turn >= 2:
                seconds[who].append(took)
    return seconds


def row(name: str, case: Case, runs: int) -> tuple[str, float]:
    """A line of the table, and the ratio to the best rival."""
    seconds = measured(case, runs)
    best = [min(turn) for turn in zip(*(seconds[who] for who in case.rivals), strict=True)]
    ratio = statistics.median(ours / other for ours, other in zip(seconds["ours"], best, strict=True))
    times = [f"{statistics.median(seconds[who]) * 1e3:.2f}" if who in seconds else "" for who in ("ours", "XLA", "torch", "IREE")]
    return f"| {name} | {' | '.join(times)} | {ratio:.2f} | {case.first['ours']:.2f} |", ratio


def machine(threads: int) -> str:
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in ("torch", "jaxlib", "numpy"))
    model = next((line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())
    load = f"{threads} threads, load {os.getloadavg()[0]:.1f} at the start"
    return f"{datetime.date.today()}: {model}, {load}; Python {platform.python_version()}, {versions}"


HEAD = "| program | ours ms | XLA ms | torch by hand ms | IREE ms | ours / best | first result s |"
MARK = "<!-- the table of rivals.py -->"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    lines, ratios = [machine(options.threads), "", HEAD, "|" + " --- |" * HEAD[1:].count("|")], []
    print("\n".join(lines), flush=True)
    for name, make in CASES.items():
        if options.only in name:
            line, ratio = row(name, make(), options.runs)
            print(line, flush=True)
            lines.append(line)
            ratios.append(ratio)
    lines += ["", f"Geometric mean of the ratios: {math.exp(statistics.mean(map(math.log, ratios))):.2f}"]
    print("\n".join(lines[-2:]))
    if options.write:
        before = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
        PAGE.write_text(f"{before}{MARK}\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
