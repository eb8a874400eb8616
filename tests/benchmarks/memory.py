"""Peak memory of a forward pass: a transformer's loss as an XLA program against the same model written by hand in torch.

    python tests/benchmarks/memory.py
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xla_torch import from_jax
from xla_torch.demo import gpt

WIDTH, CONTEXT, BATCH = 256, 256, 4


class Peak(TorchDispatchMode):
    """Counts bytes of storage that torch's operations make and that are alive; `bytes` is the most at any time."""

    def __init__(self):
        super().__init__()
        self.bytes = self._alive = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage(), given)
        return result

    def _count(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        key = storage._cdata
        if key in self._known or key in given:
            return
        self._known.add(key)
        self._alive += storage.nbytes()
        self.bytes = max(self.bytes, self._alive)
        weakref.finalize(storage, self._free, key, storage.nbytes())

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._alive -= size


def peak(run: Callable[[], Any]) -> int:
    """The most bytes that `run` has allocated at once, beyond what was there before."""
    run()  # lowering and constants are made once, not in each pass
    with Peak() as measured, torch.no_grad():
        run()
    return measured.bytes


def by_hand(parameters: dict[str, Any], characters: torch.Tensor) -> torch.Tensor:
    """`gpt.gpt_loss` as a torch user writes it."""
    given, wanted = characters[:, :-1], characters[:, 1:]
    x = parameters["characters"][given] + parameters["positions"]
    hidden = torch.ones(given.shape[1], given.shape[1], dtype=torch.bool).tril().logical_not()
    for layer in parameters["layers"]:
        q, k, v = (part.unflatten(-1, (gpt.HEADS, -1)).transpose(1, 2)
                   for part in (normalise(x, layer["norm1"]) @ layer["qkv"]).chunk(3, dim=-1))
        scores = (q @ k.transpose(-1, -2) / np.sqrt(q.shape[-1])).masked_fill(hidden, -1e9)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ layer["out"]
        up = normalise(x, layer["norm2"]) @ layer["up"]
        x = x + torch.nn.functional.gelu(up, approximate="tanh") @ layer["down"]
    logits = normalise(x, parameters["norm"]) @ parameters["characters"].T
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten().long())


def normalise(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * ((centred**2).mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


def measure() -> tuple[int, int]:
    """Peak bytes of the XLA program and of the model by hand; asserts that they compute the same."""
    arrays = gpt.initial_parameters(seed=0, width=WIDTH, context=CONTEXT)
    parameters = gpt.jax.tree_util.tree_map(torch.from_numpy, arrays)
    characters = torch.randint(gpt.VOCABULARY, (BATCH, CONTEXT + 1), dtype=torch.int32)
    with gpt.jax.enable_x64(False):
        program = from_jax(gpt.gpt_loss, parameters, characters)
    torch.testing.assert_close(program(parameters, characters), by_hand(parameters, characters))
    return peak(lambda: program(parameters, characters)), peak(lambda: by_hand(parameters, characters))


if __name__ == "__main__":
    ours, torchs = measure()
    print(f"peak of a forward pass: XLA program {ours / 2**20:.1f} MiB, by hand {torchs / 2**20:.1f} MiB, "
          f"ratio {ours / torchs:.2f}")
