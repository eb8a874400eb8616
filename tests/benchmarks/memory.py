"""Peak memory of a forward pass: losses as XLA programs against the same written by hand in torch.

    python tests/benchmarks/memory.py
"""

from __future__ import annotations

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.models import MODELS, Model
from support.counting import Counted


def measure(model: Model) -> tuple[int, int]:
    """The most bytes that a forward pass of the XLA program and of the model by hand have allocated at once."""
    model.check()
    with torch.no_grad():
        ours, by_hand = (Counted.of(loss, model.parameters, *model.batch).peak for loss in (model.program, model.by_hand))
    return ours, by_hand


if __name__ == "__main__":
    print("peak of a forward pass")
    for name, make in MODELS.items():
        ours, by_hand = measure(make())
        print(f"{name:14s} XLA program {ours / 2**20:6.1f} MiB, by hand {by_hand / 2**20:6.1f} MiB, ratio {ours / by_hand:.2f}")
