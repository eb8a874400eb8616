"""Programs that torch and ONNX have in their graphs: a row for each kind of structure."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.utils import _pytree as pytree

from xla_torch import XlaComputation, from_jax


def drawn(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


@jax.custom_vjp
def sevenfold(x):
    return jnp.sin(x)


sevenfold.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (7 * ct * x,))
W, I = drawn(4, 4), np.array([0, 5, 0, 9], np.int32)  # noqa: E741

PROGRAMS = {
    "elementwise": (lambda x, y: jnp.tanh(x) * y + jnp.clip(x, -0.5, 0.5), drawn(3, 4), drawn(3, 4)),
    "clip at its bounds": (lambda x: jnp.clip(x, -1, 1), np.array([-1, 0, 1, 2], np.float32)),
    "sqrt at zero": (lambda x: jnp.sqrt(x) * 0 + x, np.array([0, 1, 4], np.float32)),
    "dot, softmax": (lambda q, k: jax.nn.softmax(q @ k.T) @ k, drawn(4, 8), drawn(4, 8)),
    "convolution": (lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), drawn(1, 2, 8, 8), drawn(3, 2, 3, 3)),
    "scan": (lambda x, w: jax.lax.scan(lambda h, i: (jnp.tanh(h @ w) + i * 0.1, h.sum()), x, np.arange(20, dtype=np.float32)),
             drawn(4, 4), W),
    "short loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, h: jnp.sin(h) + i, x), drawn(4)),
    "loop over rows": (lambda x, w: jax.lax.fori_loop(0, 16, lambda i, h: h.at[i % 4].add(jnp.sin(w[i])), x), W, drawn(16, 4)),
    "while": (lambda x: jax.lax.while_loop(lambda c: jnp.abs(c).sum() < 50.0, lambda c: c * 1.5, x), drawn(4)),
    "while in a loop": (lambda x: jax.lax.fori_loop(0, 12, lambda i, h: jax.lax.while_loop(
        lambda c: c.sum() < i * 1.0, lambda c: c + 0.7, h), x), drawn(3)),
    "conditional": (lambda x, y: jax.lax.cond(x.sum() > 0, lambda a, b: a * b, lambda a, b: a - b, x, y), W, drawn(4, 4) + 1),
    "switch": (lambda x: jax.lax.switch(jnp.argmax(x), [
        lambda a: a * 2, lambda a: a.at[0].set(1.0), jnp.sin, lambda a: a * a], x), drawn(4)),
    "reduce_window": (lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2), (1, 2, 2), "VALID"), drawn(2, 6, 6)),
    "sort": (lambda x, y: jax.lax.sort((x, y), num_keys=1), drawn(3, 7), drawn(3, 7)),
    "gather": (lambda x, i: x[i], drawn(6, 3), I),
    "scatter": (lambda x, i, u: x.at[i].add(u), drawn(6, 3), I, drawn(4, 3)),
    "scatter in order": (lambda x, i, u: x.at[i].set(u), drawn(6, 3), I, drawn(4, 3)),
    "rng-bit-generator": (lambda k, x: x * jax.lax.rng_bit_generator(k, (4,))[1].astype(jnp.float32),
                          np.arange(4, dtype=np.uint32), drawn(4)),
    "maximum of equals": (lambda x: jnp.maximum(x, x[::-1]).max(0), np.ones((3, 4), np.float32)),
    "custom_vjp": (lambda x: sevenfold(x) * 2, drawn(4)),
    "constants": (lambda x: x @ drawn(4, 4) +
                  jax.lax.fori_loop(0, 40, lambda _, h: jnp.tanh(h @ drawn(4, 4) * 0.3), x), drawn(4, 4)),
    "integers": (lambda x, y: (x // y, x << 1, x.astype(jnp.float32)),
                 np.array([5, -7, 9], np.int32), np.array([2, 2, -4], np.int32)),
}


def case(name: str) -> tuple[XlaComputation, list[torch.Tensor]]:
    function, *arguments = PROGRAMS[name]
    return from_jax(function, *arguments), [torch.from_numpy(a.copy()) for a in arguments]


def leaves(result: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


def assert_same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
