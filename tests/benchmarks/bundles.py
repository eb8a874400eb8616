"""Programs of many small ops on one thread: in bundles, each op a call of torch's, and XLA.

    python tests/benchmarks/bundles.py [--layers 20] [--limits]

Layers of dots, means, choices and joined halves, of arrays of several sizes. `--limits` weighs the constants of bundles
(`core/tuning.py`): how many ops one needs to be worth its call, and what the C compiler takes for how many.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch

import xla_torch
from xla_torch.codegen.compiled import machine_code
from xla_torch.core import tuning
from xla_torch.kernels.native import options
from xla_torch.kernels.native_bundles import NativeBundle


def layers(count: int, batch: int, width: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A function of a batch of rows, and of weights and biases, and its arguments."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(width, width)).astype(np.float32) / width**0.5 for _ in range(count)]
    biases = [rng.normal(size=(width,)).astype(np.float32) for _ in range(count)]

    def function(x: Any, *given: Any) -> Any:
        for weight, bias in zip(given[:count], given[count:], strict=True):
            hidden = jnp.tanh(x @ weight + bias)
            centred = hidden - hidden.mean(-1, keepdims=True)
            x = x + centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            x = jnp.where(x > 3, x * 0.5, x)
            x = jnp.concatenate([x[:, width // 2:], x[:, :width // 2]], 1)
        return x

    return function, [rng.normal(size=(batch, width)).astype(np.float32), *weights, *biases]


def chain(count: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """So many ops on 16 elements."""
    def function(x: Any, y: Any) -> Any:
        for k in range(count - 1):
            x = x * y if k % 2 else x + y
        return x[::-1]

    return function, [np.ones(16, np.float32), np.full(16, 0.5, np.float32)]


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int = 40) -> dict[str, float]:
    """The median milliseconds of each way."""
    for way in ways.values():
        for _ in range(3):
            way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - begun)
    return {name: 1e3 * statistics.median(found) for name, found in times.items()}


def compare(name: str, function: Callable[..., Any], arguments: list[np.ndarray]) -> None:
    """One line of the table."""
    lowered = jax.jit(function).lower(*arguments)
    tensors, on_device = [torch.from_numpy(a) for a in arguments], [jax.device_put(a) for a in arguments]
    compiled = lowered.compile()
    ways: dict[str, Callable[[], Any]] = {}
    for way, up_to in (("bundles", tuning.BUNDLED_UP_TO), ("torch", 0)):
        with mock.patch.object(tuning, "BUNDLED_UP_TO", up_to):
            program = xla_torch.from_stablehlo(lowered.as_text())
            program(*tensors)
        ways[way] = lambda program=program: program(*tensors)
    ways["XLA"] = lambda: jax.block_until_ready(compiled(*on_device))
    found = in_turns(ways)
    print(f"{name:32}", *[f"{way} {ms:8.3f} ms" for way, ms in found.items()], f"  to XLA {found['bundles'] / found['XLA']:5.2f}")


def limits() -> None:
    """What a bundle of few ops saves, and how long one of many takes to compile."""
    with mock.patch.object(tuning, "BUNDLE_LEAST", 1):
        for count in (2, 4, 6, 8, 12, 16):
            compare(f"{count} ops", *chain(count))
    for count in (64, 128, 256, 512, 1024):
        function, arguments = layers(count // 17, 8, 32)
        with mock.patch.object(tuning, "BUNDLE_MOST", 1 << 20), mock.patch.object(tuning, "NATIVE_AFTER", 1e9):
            program = xla_torch.from_stablehlo(jax.jit(function).lower(*arguments).as_text()).lowered()
        (native,) = [m for m in program.modules() if isinstance(m, NativeBundle)]
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", {"XLA_TORCH_CACHE": folder}):
            code, begun = machine_code(native.source.text, options()), time.perf_counter()
            code.make()
            code.wait()
            print(f"{native.source.calls:5} ops: {time.perf_counter() - begun:.2f} s to compile")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--limits", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with mock.patch.object(tuning, "NATIVE_AFTER", 0.0):
        if given.limits:
            limits()
            return
        for batch, width in ((4, 16), (8, 32), (16, 64), (64, 64), (64, 128)):
            compare(f"{given.layers} layers, {batch} x {width}", *layers(given.layers, batch, width))


if __name__ == "__main__":
    main()
