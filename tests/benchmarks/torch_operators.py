#!/usr/bin/env python3
"""Time operators and layers of torch that `from_torch` converts beside eager torch, on one thread.

    .venv/bin/python tests/benchmarks/torch_operators.py [--only SUBSTRING] [--seconds 1] [--write]

Each row is a module or function with arguments: converted once, then run, forward and with its gradients (of the floating
arguments and the parameters). A cell is the time of `xla_torch` divided by that of eager torch, after some seconds of calls, as
the median of runs in turns. "convert" is in seconds. glibc keeps freed memory (`MALLOC_*`): otherwise what else was allocated
decides whether pages are given back and cleared anew, which takes as long as rows of large arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from measuring import Table, in_child, mean_and_worst, parser, settled
from torch import nn

from xla_torch.storage import torch_private

HEADER = ("operator", "eager ms", "forward", "eager ms with gradients", "with gradients", "convert s")
RUNS = 15

Row = tuple[Callable[..., Any], tuple[Any, ...]]


def _x(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


def _whole(top: int, *sizes: int) -> torch.Tensor:
    return torch.randint(top, sizes)


def _ctc() -> Row:
    lengths = torch.full((16,), 100), torch.full((16,), 20)
    return (lambda x, t: F.ctc_loss(x.log_softmax(-1), t, *lengths)), (_x(100, 16, 40), _whole(39, 16, 20) + 1)


ROWS: dict[str, Callable[[], Row]] = {
    "LSTM, 50 steps": lambda: (nn.LSTM(64, 64, batch_first=True), (_x(16, 50, 64),)),
    "LSTM, two layers, both ways": lambda: (nn.LSTM(64, 64, 2, bidirectional=True), (_x(50, 16, 64),)),
    "GRU, 50 steps": lambda: (nn.GRU(64, 64), (_x(50, 16, 64),)),
    "RNN, tanh, 50 steps": lambda: (nn.RNN(64, 64), (_x(50, 16, 64),)),
    "LSTM cell": lambda: (nn.LSTMCell(256, 256), (_x(64, 256),)),
    "attention, causal": lambda: (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (_x(4, 8, 128, 64),)),
    "multi-head attention": lambda: (nn.MultiheadAttention(128, 8, batch_first=True), (_x(8, 64, 128),) * 3),
    "encoder layer": lambda: (nn.TransformerEncoderLayer(128, 8, 256, dropout=0.0, batch_first=True), (_x(8, 64, 128),)),
    "layer norm": lambda: (nn.LayerNorm(512), (_x(64, 128, 512),)),
    "group norm": lambda: (nn.GroupNorm(8, 64), (_x(8, 64, 32, 32),)),
    "batch norm": lambda: (nn.BatchNorm2d(64).eval(), (_x(8, 64, 32, 32),)),
    "instance norm": lambda: (nn.InstanceNorm2d(64, affine=True), (_x(8, 64, 32, 32),)),
    "grid sample, bilinear": lambda: (lambda x, g: F.grid_sample(x, g, align_corners=False),
                                      (_x(4, 16, 64, 64), torch.rand(4, 64, 64, 2) * 2 - 1)),
    "grid sample, volume": lambda: (lambda x, g: F.grid_sample(x, g, align_corners=True),
                                    (_x(2, 4, 16, 16, 16), torch.rand(2, 16, 16, 16, 3) * 2 - 1)),
    "interpolate, bilinear": lambda: (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (_x(4, 16, 64, 64),)),
    "interpolate, bicubic": lambda: (lambda x: F.interpolate(x, size=(96, 96), mode="bicubic"), (_x(4, 16, 64, 64),)),
    "interpolate, nearest": lambda: (lambda x: F.interpolate(x, scale_factor=2), (_x(4, 16, 64, 64),)),
    "interpolate, trilinear": lambda: (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (_x(2, 4, 16, 16, 16),)),
    "max pooling with indices": lambda: (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[0], (_x(8, 32, 64, 64),)),
    "average pooling": lambda: (nn.AvgPool2d(3, 2, 1), (_x(8, 32, 64, 64),)),
    "adaptive average pooling": lambda: (nn.AdaptiveAvgPool2d(7), (_x(8, 32, 30, 30),)),
    "adaptive max pooling": lambda: (nn.AdaptiveMaxPool2d(7), (_x(8, 32, 30, 30),)),
    "embedding": lambda: (nn.Embedding(5000, 128), (_whole(5000, 32, 64),)),
    "embedding bag, sums": lambda: (nn.EmbeddingBag(5000, 128, mode="sum"), (_whole(5000, 128, 20),)),
    "embedding bag, maxima": lambda: (nn.EmbeddingBag(5000, 64, mode="max"), (_whole(5000, 64, 10),)),
    "CTC loss": _ctc,
    "cross entropy": lambda: (F.cross_entropy, (_x(512, 1000), _whole(1000, 512))),
    "cumsum": lambda: (lambda x: x.cumsum(-1), (_x(256, 1024),)),
    "cumprod": lambda: (lambda x: x.cumprod(-1), (torch.rand(256, 512) + 0.5,)),
    "cummax": lambda: (lambda x: x.cummax(-1).values, (_x(256, 1024),)),
    "logcumsumexp": lambda: (lambda x: x.logcumsumexp(-1), (_x(256, 1024),)),
    "topk": lambda: (lambda x: x.topk(10).values, (_x(256, 2048),)),
    "sort": lambda: (lambda x: x.sort(-1).values, (_x(256, 1024),)),
    "kthvalue": lambda: (lambda x: x.kthvalue(20).values, (_x(256, 1024),)),
    "median": lambda: (lambda x: x.median(-1).values, (_x(256, 1024),)),
    "unfold": lambda: (nn.Unfold(3, padding=1), (_x(8, 16, 32, 32),)),
    "fold": lambda: (nn.Fold((32, 32), 3, padding=1), (_x(8, 144, 1024),)),
    "roll": lambda: (lambda x: torch.roll(x, (3, -5), (1, 2)), (_x(8, 64, 64, 32),)),
    "flip": lambda: (lambda x: x.flip(1, 2), (_x(8, 64, 64, 32),)),
    "prelu": lambda: (nn.PReLU(64), (_x(8, 64, 32, 32),)),
    "GELU": lambda: (nn.GELU(), (_x(64, 128, 512),)),
    "scatter reduce": lambda: (lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
                               (_x(512, 128), _whole(512, 2048, 128), _x(2048, 128))),
    "scatter add": lambda: (lambda x, i, s: x.scatter_add(0, i, s), (_x(512, 128), _whole(512, 2048, 128), _x(2048, 128))),
    "gather": lambda: (lambda x, i: x.gather(0, i), (_x(2048, 128), _whole(2048, 2048, 128))),
    "index add": lambda: (lambda x, i, s: x.index_add(0, i, s), (_x(512, 128), _whole(512, 2048), _x(2048, 128))),
    "cdist": lambda: (torch.cdist, (_x(256, 64), _x(300, 64))),
    "pairwise distance": lambda: (F.pairwise_distance, (_x(4096, 128), _x(4096, 128))),
    "cosine similarity": lambda: (F.cosine_similarity, (_x(4096, 128), _x(4096, 128))),
    "short-time Fourier transform": lambda: (
        lambda x, w: torch.stft(x, 256, 64, window=w, return_complex=True).abs(), (_x(8, 8000), torch.hann_window(256))),
    "FFT, real": lambda: (lambda x: torch.fft.rfft(x).abs(), (_x(256, 1024),)),
    "solve": lambda: (torch.linalg.solve, (_x(16, 32, 32) + 8 * torch.eye(32), _x(16, 32, 4))),
    "eigh": lambda: (lambda a: torch.linalg.eigh(a + a.mT)[0], (_x(16, 32, 32),)),
    "svd": lambda: (lambda a: torch.linalg.svd(a, full_matrices=False)[1], (_x(16, 32, 24),)),
    "cholesky": lambda: (lambda a: torch.linalg.cholesky(a @ a.mT + 32 * torch.eye(32)), (_x(16, 32, 32),)),
    "convolution": lambda: (nn.Conv2d(32, 64, 3, padding=1), (_x(4, 32, 32, 32),)),
    "transposed convolution": lambda: (nn.ConvTranspose2d(32, 16, 4, 2, 1), (_x(4, 32, 16, 16),)),
    "bilinear": lambda: (nn.Bilinear(32, 32, 16), (_x(256, 32), _x(256, 32))),
    "pixel shuffle": lambda: (nn.PixelShuffle(2), (_x(8, 64, 32, 32),)),
}


def _floating(results: Any) -> list[torch.Tensor]:
    leaves = torch_private.pytree.tree_leaves(results)
    return [leaf for leaf in leaves if leaf.is_floating_point() and leaf.requires_grad]


def measured(name: str, seconds: float) -> dict[str, float]:
    """One row's ratios."""
    import xla_torch
    from xla_torch.nn import XlaModule

    torch.set_num_threads(1)
    torch.manual_seed(0)
    given, arguments = ROWS[name]()
    begun = time.perf_counter()
    if isinstance(given, nn.Module):
        converted: Any = XlaModule.from_torch(given, *arguments)
    else:
        converted = xla_torch.from_torch(given, *arguments)
    found = {"convert": time.perf_counter() - begun}
    with torch.no_grad():
        torch.testing.assert_close(converted(*arguments), given(*arguments), rtol=1e-3, atol=1e-3)
        found["forward"], found["eager"] = settled(lambda: converted(*arguments), lambda: given(*arguments), seconds, RUNS)
    moving = [a.requires_grad_() for a in arguments if a.is_floating_point()]

    def back(function: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
        inputs = [*moving, *(function.parameters() if isinstance(function, nn.Module) else ())]
        cotangents = [torch.ones_like(r) for r in _floating(function(*arguments))]
        return lambda: list(torch.autograd.grad(_floating(function(*arguments)), inputs, cotangents, allow_unused=True))

    ours, theirs = back(converted), back(given)
    torch.testing.assert_close(ours(), theirs(), rtol=1e-2, atol=1e-2)
    found["gradient"], found["eager gradient"] = settled(ours, theirs, seconds, RUNS)
    return found


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seconds", type=float, default=1.0, help="of calls before a time counts")
    made.add_argument("--one", help=argparse.SUPPRESS)
    chosen = made.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.one, chosen.seconds)))
        return
    table, all_found = Table(__file__, HEADER, 1), list[dict[str, float]]()
    for name in ROWS:
        if chosen.only not in name:
            continue
        with tempfile.TemporaryDirectory() as cache:
            found = in_child(__file__, "--one", name, "--seconds", str(chosen.seconds), limit=300, environment={
                "XLA_TORCH_CACHE": cache, "OMP_NUM_THREADS": "1",
                "MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
                "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), ".")))})
        if found is None:
            table.add(name, *["failed"] * (len(HEADER) - 1))
            continue
        all_found.append(found)
        table.add(name, f"{found['eager'] * 1e3:.3f}", f"{found['forward']:.2f}", f"{found['eager gradient'] * 1e3:.3f}",
                  f"{found['gradient']:.2f}", f"{found['convert']:.2f}")
    means = [mean_and_worst(title, [found[key] for found in all_found])
             for title, key in (("forward", "forward"), ("with gradients", "gradient"))]
    table.end(f"Geometric means of {len(all_found)} operators: {', '.join(means)}.\n", write=chosen.write)


if __name__ == "__main__":
    main()
