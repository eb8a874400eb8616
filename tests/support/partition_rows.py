"""Functions that XLA's partitioner cuts for a mesh of axes a and b, and how their arguments lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from support.oracle import HAS_XLA

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

Spec = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """`specs` say how arguments lie; `out` how results do, None as XLA chooses."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    specs: tuple[Spec | None, ...]
    out: Spec | None = None
    rtol: float = 2e-4
    quick: bool = False

    def __str__(self) -> str:
        return self.name


def floats(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


def ints(high: int, *sizes: int) -> np.ndarray:
    return np.random.default_rng(high).integers(0, high, sizes).astype(np.int32)


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9), -1), v)


def _mlp(x: Any, w: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w) @ v


def _mlp_step(x: Any, w: Any, v: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda p: (_mlp(x, *p) ** 2).mean())((w, v))
    return loss, [p - 0.1 * g for p, g in zip((w, v), grads, strict=True)]


def _adam(w: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.1 * m / (jnp.sqrt(v) + 1e-3), m, v


def _conv(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _strided_conv(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")


def _experts(x: Any, gate: Any, w: Any) -> Any:
    """Each token goes to one expert's buffer and comes back: all-to-alls between tokens and experts."""
    chosen = jax.nn.softmax(x @ gate, -1)
    to = jax.nn.one_hot(jnp.argmax(chosen, -1), w.shape[0]) * chosen.max(-1, keepdims=True)
    place = jax.nn.one_hot((jnp.cumsum(to > 0, 0) - 1).max(-1, where=to > 0, initial=0), 16)
    sent = jnp.einsum("te,tc,td->ecd", to, place, x)
    return jnp.einsum("te,tc,ecd->td", to, place, jnp.tanh(jnp.einsum("ecd,edf->ecf", sent, w)))


def _scan(h: Any, w: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum(0)), h, None, length=4)


def _scan_over(xs: Any, w: Any) -> Any:
    return lax.scan(lambda c, x: (c * 0.5 + x @ w, c), jnp.zeros(w.shape[1], xs.dtype), xs)[1]


def _while(x: Any) -> Any:
    return lax.while_loop(lambda c: jnp.abs(c).max() < 100, lambda c: c * 1.5 + 0.1, x)


def _cross_entropy(x: Any, w: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w), labels[:, None], 1).mean()


def _norm(x: Any, g: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g


def _draw(x: Any, key: Any) -> Any:
    bits = lax.rng_bit_generator(key, x.shape, dtype=jnp.uint32)[1]
    return x * (bits >> 31).astype(x.dtype)


def _cond(x: Any, n: Any) -> Any:
    return lax.cond(n > 2, lambda a: jnp.sin(a) @ a.T, lambda a: a @ a.T, x)


ROWS = [
    Row("dense", lambda x, w: x @ w, (floats(8, 4), floats(4, 8)), (("a",), (None, "b")), quick=True),
    Row("contraction cut", lambda x, w: x @ w, (floats(8, 8), floats(8, 4)), ((None, "a"), ("a",)), quick=True),
    Row("results as said", lambda x, w: x @ w, (floats(8, 8), floats(8, 8)), (("a",), ("b",)), ("b", "a"), quick=True),
    Row("both axes on a dimension", lambda x, w: jnp.tanh(x) @ w,
        (floats(16, 4), floats(4, 8)), ((("a", "b"),), None), quick=True),
    Row("mlp", _mlp, (floats(8, 4), floats(4, 16), floats(16, 4)), (("a",), (None, "b"), ("b",)), quick=True),
    Row("mlp step", _mlp_step, (floats(8, 4), floats(4, 16), floats(16, 4)), (("a",), (None, "b"), ("b",))),
    Row("adam", _adam, tuple(np.abs(floats(8, 8)) for _ in range(4)), (("a",), ("a", "b"), ("a", "b"), ("a",)), quick=True),
    Row("convolution with halos", _conv, (floats(2, 16, 8, 3), floats(3, 3, 3, 4)), ((None, "a", "b"), None), quick=True),
    Row("convolution by channels", _conv, (floats(2, 8, 8, 8), floats(3, 3, 8, 8)), ((None, None, None, "a"), (None, None, "a"))),
    Row("strided convolution", _strided_conv, (floats(2, 16, 8, 3), floats(3, 3, 3, 4)), ((None, "a"), None)),
    Row("convolution with halos on one axis", _conv, (floats(2, 16, 8, 3), floats(3, 3, 3, 4)), ((None, "a"), None)),
    Row("pooling with halos", _pool, (floats(1, 16, 8, 2),), ((None, "a", "b"),)),
    Row("attention by heads", _attention, (floats(2, 4, 4, 8),) * 3, (("b", None, "a"),) * 3),
    Row("attention by sequence", _attention, (floats(2, 8, 2, 4),) * 3, ((None, "a", "b"),) * 3),
    Row("embedding by rows", lambda t, i: t[i], (floats(16, 4), ints(16, 8)), (("a",), ("b",)), quick=True),
    Row("embedding by columns", lambda t, i: t[i], (floats(16, 8), ints(16, 8)), ((None, "a"), None)),
    Row("cross entropy", _cross_entropy, (floats(8, 4), floats(4, 16), ints(16, 8)), (("b",), (None, "a"), ("b",))),
    Row("scan", _scan, (floats(8, 8), floats(8, 8)), (("a",), (None, "b"))),
    Row("scan over what is cut", _scan_over, (floats(8, 4), floats(4, 8)), (("a",), (None, "b"))),
    Row("while", _while, (np.abs(floats(8, 8)),), (("a", "b"),)),
    Row("conditional", _cond, (floats(8, 8), np.int32(3)), (("a", "b"), None)),
    Row("random bits", _draw, (floats(8, 8), np.arange(4, dtype=np.uint32)), (("a", "b"), None)),
    Row("sort across", lambda x: jnp.sort(x, 0), (floats(16, 4),), (("a", "b"),), quick=True),
    Row("sort along", lambda x: jnp.sort(x, 1), (floats(8, 8),), (("a",),)),
    Row("top-k across", lambda x: lax.top_k(x, 3), (floats(4, 16),), ((None, "a"),)),
    Row("argmax across", lambda x: jnp.argmax(x, 1), (floats(4, 16),), (("b", "a"),)),
    Row("gather along", lambda x, i: jnp.take_along_axis(x, i, 1), (floats(8, 16), ints(16, 8, 4)), (("b", "a"), ("b",))),
    Row("scatter-add", lambda x, i, u: x.at[i].add(u), (floats(16, 4), ints(16, 8), floats(8, 4)), (("a",), ("b",), ("b",))),
    Row("scatter", lambda x, u: x.at[jnp.array([3, 9, 14])].set(u), (floats(16, 4), floats(3, 4)), (("a", "b"), None)),
    Row("uneven rows", lambda x, w: jnp.tanh(x @ w), (floats(7, 4), floats(4, 5)), (("a",), (None, "b")), quick=True),
    Row("uneven contraction", lambda x, w: x @ w, (floats(3, 7), floats(7, 5)), ((None, "a"), ("a",)), quick=True),
    Row("uneven reduction", lambda x: (x.max(0), x.sum(0), x.prod(0)), (floats(5, 6),), (("a", "b"),)),
    Row("mixture of experts", _experts, (floats(16, 4), floats(4, 8), floats(8, 4, 4)), (("a",), None, ("a",))),
    Row("reductions", lambda x: (x.sum(), x.mean(1), x.max(0), x.var()), (floats(8, 8),), (("a", "b"),), quick=True),
    Row("softmax across", lambda x: jax.nn.softmax(x, 1), (floats(4, 16),), (("b", "a"),), quick=True),
    Row("layer norm across", _norm, (floats(4, 16), floats(16)), (("b", "a"), ("a",))),
    Row("transpose", lambda x: x.T + x, (floats(8, 8),), (("a", "b"),), quick=True),
    Row("reshape", lambda x: jnp.sin(x.reshape(4, 16)), (floats(8, 8),), (("a", "b"),)),
    Row("cumsum across", lambda x: jnp.cumsum(x, 0), (floats(16, 4),), (("a",),)),
    Row("einsum", lambda x, y: jnp.einsum("bik,bkj->bij", x, y), (floats(4, 8, 8), floats(4, 8, 4)), (("b", "a"), ("b", "a"))),
    Row("concatenation", lambda x, y: jnp.concatenate([x, y], 0), (floats(8, 4), floats(4, 4)), (("a",), ("a",))),
    Row("slice", lambda x: x[3:13] * 2, (floats(16, 4),), (("a", "b"),)),
    Row("roll", lambda x: jnp.roll(x, 3, 0), (floats(16, 4),), (("a",),)),
    Row("reverse", lambda x: x[::-1], (floats(16, 4),), (("a", "b"),)),
    Row("pad", lambda x: jnp.pad(x, ((2, 3), (0, 1))), (floats(8, 4),), (("a",),)),
    Row("dynamic slice", lambda x, n: lax.dynamic_slice_in_dim(x, n, 5), (floats(16, 4), np.int32(6)), (("a",), None)),
    Row("dynamic update", lambda x, u, n: lax.dynamic_update_slice_in_dim(x, u, n, 0),
        (floats(16, 4), floats(5, 4), np.int32(6)), (("a",), None, None)),
    Row("triangular solve", lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        (floats(4, 4) + 4 * np.eye(4, dtype=np.float32), floats(4, 8)), (None, (None, "a"))),
    Row("complex", lambda x: jnp.abs(jnp.fft.fft(x)), (floats(8, 8),), (("a",),)),
    Row("the argument itself", lambda x: x, (floats(8, 8),), (("a",),), (None, "a")),
]
