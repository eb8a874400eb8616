"""A stand-in for CUDA graphs, for tests without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from xla_torch.runtime.cuda_graphs import Tensors

BRANCHES = """one {
 x = f32[3] parameter(0)
 ROOT y = f32[3] negate(x)
}
other {
 x = f32[3] parameter(0)
 ROOT y = f32[3] multiply(x, x)
}
"""
"""Two branches: which of them runs is a value on the device."""


class Recorder:
    """`Capture` without a device, which counts."""

    def __init__(self, fault: str = "", held: int = 0):
        self.tries, self.recordings, self.replays, self.fault, self.held = 0, 0, 0, fault, held

    def __call__(self, device: torch.device, run: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None], int]:
        self.tries += 1
        if self.fault:
            raise RuntimeError(self.fault)
        self.recordings += 1
        results = tuple(r.clone() for r in run())

        def again() -> None:
            self.replays += 1
            for to, by in zip(results, run(), strict=True):
                to.copy_(by)

        return results, again, self.held
