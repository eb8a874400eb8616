"""What a training step costs: its time against `value_and_grad` of the same program and against the forward pass alone,
and its peak memory against the same model written by hand in torch.

    python tests/benchmarks/gradients.py [--programs DIR] [--runs 15] [--only SUBSTRING]

Times are CPU time of one thread, measured in turns, the least of all runs. Memory is counted exactly, from what torch's
operations allocate beyond parameters and batch. Runs the demo's model, those of `models.py` where jax is installed, and
DIR/NAME/module.hlo (default: ../shared/perf, where it exists).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import xla_torch
from support.counting import Counted
from xla_torch import XlaComputation, demo
from xla_torch.errors import DifferentiationError

if TYPE_CHECKING:
    from benchmarks.models import Model

SHARED = pathlib.Path(xla_torch.__file__).resolve().parents[2] / "shared" / "perf"


@dataclasses.dataclass
class Case:
    """A program of flat arguments, of which the floating ones are trained, and the same by hand where there is one."""

    program: XlaComputation
    arguments: Sequence[torch.Tensor]
    trained: Sequence[torch.Tensor]
    by_hand: Callable[[], torch.Tensor] | None = None

    def forward(self) -> object:
        with torch.no_grad():
            return self.program(*self.arguments)

    def step(self) -> None:
        self._walk_back(functools.partial(self.program, *self.arguments))

    def step_by_hand(self) -> None:
        assert self.by_hand is not None
        self._walk_back(self.by_hand)

    def _walk_back(self, run: Callable[[], object]) -> None:
        for tensor in self.trained:
            tensor.grad = None
        result = run()
        value = result[0] if isinstance(result, tuple) else result
        assert isinstance(value, torch.Tensor)
        value.backward(torch.ones_like(value))

    @functools.cached_property
    def derivative(self) -> Callable[[], object]:
        """`value_and_grad` of the program, on the same arguments."""
        numbers = [k for k, a in enumerate(self.arguments) if any(a is t for t in self.trained)]
        derived, given = xla_torch.value_and_grad(self.program, numbers), [a.detach() for a in self.arguments]
        return lambda: derived(*given)


def cases(programs: pathlib.Path) -> Iterator[tuple[str, Callable[[], Case]]]:
    yield "demo", _demo
    try:
        from benchmarks.models import MODELS
    except ImportError:
        print("(jax is not installed: without its models)")
    else:
        for name, make in MODELS.items():
            yield name, lambda make=make: of_model(make())
    for folder in sorted(p.parent for p in programs.glob("*/module.hlo")):
        yield folder.name, lambda folder=folder: _stored(folder)


def of_model(model: Model) -> Case:
    """A model of `models.py`, after a look that both of its forms compute the same."""
    model.check()
    leaves = [leaf.requires_grad_() for leaf in model.leaves()]
    return Case(model.program.computation, [*leaves, *model.batch], leaves, lambda: model.by_hand(model.parameters, *model.batch))


def _demo() -> Case:
    given = demo.stored()
    leaves = [p.requires_grad_() for p in given.parameters]
    return Case(xla_torch.load(demo.PROGRAM), [*leaves, given.characters], leaves)


def _stored(folder: pathlib.Path) -> Case:
    random = np.random.default_rng(0)
    specs = json.loads((folder / "args.json").read_text())
    arguments = [torch.from_numpy(np.asarray(random.standard_normal(dims) * 0.1 if np.dtype(dtype).kind == "f"
                                             else random.integers(0, 10, dims)).astype(dtype)) for dims, dtype in specs]
    return Case(xla_torch.load(folder / "module.hlo"), arguments,
                [a.requires_grad_() for a in arguments if a.is_floating_point()])


def seconds(ways: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """The least CPU time of each, measured in turns after one run to warm up."""
    best = [float("inf")] * len(ways)
    for run in range(runs + 1):
        for k, way in enumerate(ways):
            start = time.process_time()
            way()
            if run:
                best[k] = min(best[k], time.process_time() - start)
    return best


def peaks(case: Case) -> tuple[int, int]:
    """The most bytes that a training step has allocated at once: the program's, and that of the model by hand."""
    return Counted.of(case.step).peak, Counted.of(case.step_by_hand).peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=SHARED)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'program':26s} {'step ms':>9s} {'/ value_and_grad':>17s} {'/ forward':>10s} {'peak / by hand':>15s}")
    for name, make in cases(options.programs):
        if options.only in name:
            print(f"{name:26s} {_row(make, options.runs)}", flush=True)


def _row(make: Callable[[], Case], runs: int) -> str:
    try:
        case = make()
        if not case.trained:
            return "no floating argument"
        step, derivative, forward = seconds([case.step, case.derivative, case.forward], runs)
    except DifferentiationError as error:
        return str(error).splitlines()[0]
    memory = ""
    if case.by_hand is not None:
        ours, by_hand = peaks(case)
        memory = f"{ours / by_hand:15.2f}"
    return f"{step * 1e3:9.2f} {step / derivative:17.2f} {step / forward:10.2f} {memory}".rstrip()


if __name__ == "__main__":
    main()
