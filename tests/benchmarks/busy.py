"""A training step and a program of small ops beside other processes that keep all cores busy: ours, torch by hand and XLA.

    python tests/benchmarks/busy.py [--seconds 2] [--burners 2] [--nice 0 10] [--only SUBSTRING] [--write]

Each program is timed alone and beside `--burners` endless loops of each `--nice`, with torch's threads as they are, waiting
without spinning (OMP_WAIT_POLICY=PASSIVE) and with one thread. A process of its own has each setting, as OpenMP reads it when
it starts. Figures are medians in milliseconds, and how many times slower that is than the same setting alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.measuring import Table, in_child, parser

SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""What each process has in its environment."""


@contextlib.contextmanager
def burners(count: int, nice: int) -> Iterator[None]:
    """Processes that compute for as long as the `with` lasts."""
    started = [subprocess.Popen([sys.executable, "-c", f"import os\nos.nice({nice})\nwhile True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.3)
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def programs() -> dict[str, dict[str, Callable[[], Any]]]:
    """Each program by who runs it. What is imported here reads the environment."""
    import jax
    import numpy as np
    import torch

    from benchmarks.models import perceptron, transformer_by_hand
    from xla_torch import from_jax
    from xla_torch.demo import gpt

    def step() -> dict[str, Callable[[], Any]]:
        values = gpt.initial_parameters(seed=0, width=256, context=128)
        characters = np.random.default_rng(0).integers(0, gpt.VOCABULARY, (4, 129)).astype(np.int32)
        function = jax.value_and_grad(gpt.gpt_loss)
        ours, xla = from_jax(function, values, characters), jax.jit(function)
        tensors = jax.tree_util.tree_map(lambda a: torch.from_numpy(np.array(a)), values)
        leaves = [leaf.requires_grad_() for leaf in jax.tree_util.tree_leaves(tensors)]
        plain, batch = jax.tree_util.tree_map(lambda t: t.detach(), tensors), torch.from_numpy(characters)
        return {"ours": lambda: ours(plain, batch),
                "torch": lambda: torch.autograd.grad(transformer_by_hand(tensors, batch), leaves),
                "XLA": lambda: jax.block_until_ready(xla(values, characters))}

    def small() -> dict[str, Callable[[], Any]]:
        model = perceptron(width=64, batch=64)
        values = jax.tree_util.tree_map(lambda t: t.numpy(), (model.parameters, *model.batch))
        labels = model.batch[1]

        @jax.jit
        def xla(p: Any, x: Any, wanted: Any) -> Any:
            for weight, bias in p[:-1]:
                x = jax.nn.relu(x @ weight + bias)
            scores = jax.nn.log_softmax(x @ p[-1][0] + p[-1][1])
            return -jax.numpy.take_along_axis(scores, wanted[:, None], axis=1).mean()

        return {"ours": lambda: model.program(model.parameters, model.batch[0], labels),
                "torch": lambda: model.by_hand(model.parameters, model.batch[0], labels),
                "XLA": lambda: jax.block_until_ready(xla(*values))}

    return {"transformer step": step(), "small perceptron": small()}


def median_ms(run: Callable[[], Any], seconds: float) -> float:
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def child(options: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds by program, by who runs it and by load, where the environment is as this process has it."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, runs in programs().items():
        if options.only not in name:
            continue
        found[name] = {who: {"alone": median_ms(run, options.seconds)} for who, run in runs.items()}
        for nice in options.nice:
            with burners(options.burners, nice):
                for who, run in runs.items():
                    found[name][who][f"nice {nice}"] = median_ms(run, options.seconds)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--burners", type=int, default=os.cpu_count() or 1)
    options.add_argument("--nice", type=int, nargs="*", default=[0, 10])
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        print(json.dumps(child(chosen)))
        return
    loads = [f"nice {nice}" for nice in chosen.nice]
    table = Table(__file__, ["program", "setting", "who", "alone ms", *(f"beside {chosen.burners}, {load}" for load in loads)],
                  os.cpu_count())
    for setting, environment in SETTINGS.items():
        found = in_child(__file__, "--child", *sys.argv[1:], environment=environment, without=("OMP_", "GOMP_"))
        for name, by_who in found.items():
            for who, ms in by_who.items():
                table.add(name, setting, who, f"{ms['alone']:.2f}",
                          *(f"{ms[load]:.2f} ({ms[load] / ms['alone']:.1f}x)" for load in loads))
    table.end(write=chosen.write)


if __name__ == "__main__":
    main()
