"""A small model that ships with the package: a transformer's loss as HLO, with JAX's own values to compare with.

`python -m xla_torch.demo` checks it, trains it and shows its PyTorch. `gpt.py` holds the JAX function it comes from.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

_HERE = Path(__file__).parent

PROGRAM = _HERE / "gpt_loss.hlo"
"""The loss: 15 arrays of parameters and s32[8,33] characters to f32[]."""


class Stored(NamedTuple):
    """Initial parameters, a batch of characters, and the loss and gradients that JAX found for them."""

    parameters: list[torch.Tensor]
    characters: torch.Tensor
    loss: float
    gradients: list[torch.Tensor]


def stored() -> Stored:
    """The values that `gpt.py` stored."""
    with np.load(_HERE / "gpt_data.npz") as data:
        count = sum(name.startswith("parameter") for name in data.files)
        parameters, gradients = ([torch.from_numpy(data[f"{name}{i}"]) for i in range(count)]
                                 for name in ("parameter", "gradient"))
        return Stored(parameters, torch.from_numpy(data["characters"]), float(data["loss"]), gradients)
