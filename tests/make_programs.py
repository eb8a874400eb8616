"""Makes the programs of `tests/data/programs` from JAX functions: HLO, what XLA's CPU compiler makes of it, StableHLO, and
arguments, results and gradients in float32.

    python tests/make_programs.py
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FOLDER = Path(__file__).parent / "data" / "programs"
_R = np.random.RandomState(0)


def floats(*dims: int, scale: float = 0.5) -> np.ndarray:
    return (_R.randn(*dims) * scale).astype(np.float32)


def mlp_loss(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, labels: Any) -> Any:
    scores = jax.nn.log_softmax(jax.nn.relu(x @ w1 + b1) @ w2 + b2)
    return -jnp.take_along_axis(scores, labels[:, None], 1).mean()


def lstm_scan_loss(w: Any, u: Any, b: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), jnp.square(h).mean()

    zeros = jnp.zeros((xs.shape[1], u.shape[0]), jnp.float32)
    return lax.scan(step, (zeros, zeros), xs)[1].sum()


def newton_while(a: Any) -> Any:
    return lax.while_loop(lambda x: (jnp.abs(x * x - a) > 1e-3).any(), lambda x: 0.5 * (x + a / x), jnp.ones_like(a))


def topk_sort_sampling(logits: Any, key: Any) -> Any:
    best, places = lax.top_k(logits, 4)
    drawn = jax.random.categorical(jax.random.wrap_key_data(key), best)
    return jnp.take_along_axis(places, drawn[:, None], 1), jnp.sort(logits, axis=-1)[:, ::-1], jnp.argsort(-logits)


def convolution_loss(kernel: Any, scale: Any, images: Any) -> Any:
    hidden = lax.conv_general_dilated(images, kernel, (1, 1), "SAME")
    hidden = (hidden - hidden.mean((0, 2, 3), keepdims=True)) * scale[:, None, None]
    pooled = lax.reduce_window(jax.nn.gelu(hidden), -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jnp.square(pooled).mean()


def embedding_step(table: Any, rows: Any) -> Any:
    loss, gradient = jax.value_and_grad(lambda t: jnp.square(t[rows].sum(1)).mean())(table)
    return table - 0.1 * gradient, loss


def cholesky_likelihood(x: Any, y: Any) -> Any:
    lower = jnp.linalg.cholesky(jnp.exp(-0.5 * jnp.square(x[:, None] - x)) + 0.1 * jnp.eye(len(x)))
    whitened = lax.linalg.triangular_solve(lower, y[:, None], left_side=True, lower=True)
    return 0.5 * jnp.square(whitened).sum() + jnp.log(jnp.diagonal(lower)).sum()


PROGRAMS: list[tuple[Callable[..., Any], tuple[np.ndarray, ...], tuple[int, ...]]] = [
    # the function, its arguments, and for which of them there are gradients
    (mlp_loss, (floats(6, 8), floats(8), floats(8, 5), floats(5), floats(7, 6, scale=1), np.arange(7, dtype=np.int32) % 5),
     (0, 1, 2, 3)),
    (lstm_scan_loss, (floats(3, 16), floats(4, 16), floats(16), floats(6, 2, 3, scale=1)), (0, 1, 2)),
    (newton_while, (np.abs(floats(9)) + np.float32(0.5),), ()),
    (topk_sort_sampling, (floats(3, 11, scale=2), np.array([3, 4], np.uint32)), ()),
    (convolution_loss, (floats(4, 2, 3, 3), floats(4), floats(2, 2, 6, 6, scale=1)), (0, 1)),
    (embedding_step, (floats(10, 4), np.array([[1, 2], [2, 9], [0, 0]], np.int32)), ()),
    (cholesky_likelihood, (np.linspace(-2, 2, 6, dtype=np.float32), floats(6, scale=1)), (0, 1)),
]


def _plain(text: str) -> str:
    """HLO text without what names places: metadata, and the tables that it points into."""
    text = re.sub(r", metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}", "", text)
    return re.sub(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*\n?", "", text, flags=re.M)


def make(function: Callable[..., Any], arguments: tuple[np.ndarray, ...], numbers: tuple[int, ...]) -> None:
    lowered: Any = jax.jit(function, keep_unused=True).lower(*arguments)
    compiled = lowered.compile()
    arrays = {f"arg{k}": a for k, a in enumerate(arguments)}
    results = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*arguments))]
    arrays |= {f"out{k}": result for k, result in enumerate(results)}
    if numbers:
        arrays |= {f"grad{k}": np.asarray(g) for k, g in zip(numbers, jax.grad(function, numbers)(*arguments), strict=True)}
    folder = FOLDER / function.__name__
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.hlo").write_text(_plain(lowered.compiler_ir("hlo").as_hlo_text()))
    (folder / "optimized_cpu.hlo").write_text(_plain(compiled.as_text()))
    (folder / "module.stablehlo.mlir").write_text(lowered.as_text())
    np.savez_compressed(folder / "data.npz", allow_pickle=False, **arrays)
    info = {"n_args": len(arguments), "n_outs": len(results), "grad_args": list(numbers),
            "dtypes": {key: a.dtype.name for key, a in arrays.items()}}
    (folder / "info.json").write_text(json.dumps(info, indent=1) + "\n")


def main() -> int:
    jax.config.update("jax_platforms", "cpu")
    for row in PROGRAMS:
        make(*row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
