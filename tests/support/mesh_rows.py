"""More functions that XLA's partitioner cuts, as `partition_rows.py` has them: blocks of networks, optimizer states, halos of
all kinds, linear algebra on a cut batch, integers, predicates and bfloat16, and loops over what is cut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from support.oracle import HAS_XLA
from support.partition_rows import Row, floats, ints

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

NHWC = ("NHWC", "HWIO", "NHWC")


def _qkv_attention(x: Any, qkv: Any, out: Any) -> Any:
    """One product for queries, keys and values, of 8 heads."""
    s = x.shape[1]
    q, k, v = jnp.moveaxis(jnp.einsum("bsd,dthk->tbhsk", x, qkv), 0, 0)
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), -1e9)
    return jnp.einsum("bhsk,hkd->bsd", jax.nn.softmax(scores, -1) @ v, out) + x


def _grouped_attention(q: Any, k: Any, v: Any) -> Any:
    """Two heads of queries for each of keys."""
    q = q.reshape(*q.shape[:2], k.shape[2], 2, -1)
    weights = jax.nn.softmax(jnp.einsum("bqhgd,bkhd->bhgqk", q, k), -1)
    return jnp.einsum("bhgqk,bkhd->bqhgd", weights, v).reshape(*q.shape[:2], -1)


def _transformer(table: Any, qkv: Any, out: Any, up: Any, down: Any, tokens: Any) -> Any:
    def norm(a: Any) -> Any:
        return (a - a.mean(-1, keepdims=True)) * lax.rsqrt(a.var(-1, keepdims=True) + 1e-5)

    h = _qkv_attention(norm(table[tokens]), qkv, out)
    h = h + jax.nn.gelu(norm(h) @ up) @ down
    logits = jax.nn.log_softmax(norm(h) @ table.T)
    return -jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], 2).mean()


def _group_norm(x: Any, g: Any) -> Any:
    y = x.reshape(*x.shape[:-1], 4, -1)
    y = (y - y.mean((1, 2, 4), keepdims=True)) / jnp.sqrt(y.var((1, 2, 4), keepdims=True) + 1e-3)
    return y.reshape(x.shape) * g


def _batch_norm(x: Any, g: Any, mean: Any) -> Any:
    own, spread = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - own) * lax.rsqrt(spread + 1e-3) * g, 0.9 * mean + 0.1 * own


def _conv(x: Any, k: Any, strides: Any = (1, 1), padding: Any = "SAME", **options: Any) -> Any:
    return lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=NHWC, **options)


def _adamw(w: Any, m: Any, v: Any, g: Any) -> Any:
    """Gradients clipped by the norm of all."""
    g = g / jnp.maximum(1, jnp.sqrt((g * g).sum()))
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.1 * (m / (jnp.sqrt(v) + 1e-3) + 0.01 * w), m, v


def _momentum_step(w: Any, m: Any, x: Any, y: Any) -> Any:
    """ZeRO: the gradient comes summed in pieces, and the new weights are gathered."""
    g = jax.grad(lambda p: (jnp.tanh(x @ p) * y).sum())(w)
    m = 0.9 * m + g
    return w - 0.1 * m, m


def _adafactor(w: Any, rows: Any, columns: Any, g: Any) -> Any:
    rows, columns = 0.9 * rows + 0.1 * (g * g).mean(1), 0.9 * columns + 0.1 * (g * g).mean(0)
    return w - 0.1 * g * lax.rsqrt(rows[:, None] * columns[None] / rows.mean() + 1e-2), rows, columns


def _layers(x: Any, up: Any, down: Any) -> Any:
    layer = jax.checkpoint(lambda h, w: (h + jnp.tanh(h @ w[0]) @ w[1], None))
    return lax.scan(layer, x, (up, down))[0]


def _lstm(xs: Any, w: Any, u: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, o, g = jnp.split(x @ w + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    return lax.scan(step, (zero, zero), xs)[1]


def _slices_in_a_scan(x: Any, w: Any) -> Any:
    """Blocks of rows of what is cut, read and written one after another."""
    def step(c: Any, k: Any) -> Any:
        block = lax.dynamic_slice_in_dim(x, k * 4, 4)
        return lax.dynamic_update_slice_in_dim(c, jnp.tanh(block @ w) + c[:4], k * 4, 0), block.sum()

    return lax.scan(step, x, jnp.arange(x.shape[0] // 4))


def _segments(x: Any, segments: Any) -> Any:
    return jax.ops.segment_sum(x, segments, 8), jax.ops.segment_max(x, segments, 8)


def _vocabulary(x: Any, w: Any, labels: Any) -> Any:
    return -(jax.nn.one_hot(labels, w.shape[1]) * jax.nn.log_softmax(x @ w)).sum(-1).mean()


def _qr(a: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return jnp.abs(q), jnp.abs(r)


def _cholesky(a: Any, b: Any) -> Any:
    factor = jnp.linalg.cholesky(a @ jnp.swapaxes(a, 1, 2) + 4 * jnp.eye(a.shape[-1], dtype=a.dtype))
    return factor, jax.scipy.linalg.solve_triangular(factor, b, lower=True)


def _bits(x: Any, y: Any) -> Any:
    return (x & y, x << 2, lax.population_count(x ^ y), (x > y).any(0), (x > 3).all(1), (x >= y).sum(), x // (y + 1), x % 3,
            x.min(1))


def _half(x: Any, w: Any) -> Any:
    return jnp.tanh(x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32)


def _top_k_of_results(x: Any, w: Any) -> Any:
    """The best three columns of each row, and what another array has there."""
    values, places = lax.top_k(x @ w, 3)
    return values, jnp.take_along_axis(x @ jnp.cos(w), places, 1)


def _nested(x: Any, w: Any) -> Any:
    inner = jax.jit(lambda a, b: jnp.tanh(a @ b))
    return jax.jit(lambda a: inner(inner(a, w), w.T))(x) + inner(x, w) @ w.T


def _polynomial(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda k, c: c.at[k].set(jnp.sin(c[k]) + c.sum(0)), x)


def _routed(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """The two best experts of each token, gathered by sorting tokens."""
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    experts, rows = chosen.reshape(-1)[order], x[order // 2]
    hidden = jax.nn.silu(jnp.einsum("td,tdf->tf", rows, up[experts]))
    came = jnp.einsum("tf,tfd->td", hidden, down[experts])
    return jnp.zeros_like(x).at[order // 2].add(came * weights.reshape(-1)[order][:, None])


def _positive(*sizes: int) -> np.ndarray:
    return np.abs(floats(*sizes)) + np.float32(0.1)


MATRICES = floats(8, 4, 4) + 3 * np.eye(4, dtype=np.float32)
BOTH = ("a", "b")
ROWS = [
    Row("fused attention", _qkv_attention, (floats(4, 8, 8), floats(8, 3, 8, 2), floats(8, 2, 8)),
        (("b",), (None, None, "a"), ("a",))),
    Row("fused attention by sequence", _qkv_attention, (floats(4, 8, 8), floats(8, 3, 8, 2), floats(8, 2, 8)),
        (("b", "a"), None, None)),
    Row("grouped attention", _grouped_attention, (floats(2, 8, 16, 4), floats(2, 8, 8, 4), floats(2, 8, 8, 4)),
        (("b", None, "a"),) * 3),
    Row("transformer", _transformer, (floats(16, 8), floats(8, 3, 8, 2), floats(8, 2, 8), floats(8, 16), floats(16, 8),
                                      ints(16, 4, 8)), (("a",), (None, None, "a"), ("a",), (None, "a"), ("a",), ("b",))),
    Row("group norm", _group_norm, (floats(4, 4, 4, 8), floats(8)), (("b", None, None, "a"), ("a",))),
    Row("batch norm", _batch_norm, (floats(8, 4, 4, 4), floats(4), floats(4)), (("a", "b"), None, None), quick=True),
    Row("depthwise convolution", lambda x, k: _conv(x, k, feature_group_count=4),
        (floats(2, 16, 8, 4), floats(3, 3, 1, 8)), ((None, "a", "b"), None)),
    Row("depthwise convolution by channels", lambda x, k: _conv(x, k, feature_group_count=8),
        (floats(2, 8, 8, 8), floats(3, 3, 1, 8)), (("b", None, None, "a"), (None, None, None, "a"))),
    Row("transposed convolution", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME", dimension_numbers=NHWC),
        (floats(2, 16, 8, 3), floats(3, 3, 3, 4)), ((None, "a", "b"), None)),
    Row("dilated convolution", lambda x, k: _conv(x, k, rhs_dilation=(2, 2)),
        (floats(2, 16, 8, 3), floats(3, 3, 3, 4)), (("b", "a"), None)),
    Row("strided convolution of an even kernel", lambda x, k: _conv(x, k, (2, 1), "VALID"),
        (floats(2, 17, 8, 3), floats(4, 2, 3, 4)), ((None, "a", "b"), None)),
    Row("convolution by batch and features", _conv, (floats(8, 6, 6, 4), floats(3, 3, 4, 8)), (("a",), (None, None, None, "b"))),
    Row("causal convolution", lambda x, k: lax.conv_general_dilated(x, k,
        (1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC")),
        (floats(2, 16, 4), floats(4, 4, 4)), (("b", "a"), None), quick=True),
    Row("average pooling", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        (floats(2, 16, 8, 2),), ((None, "a", "b"),)),
    Row("strided pooling", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        (floats(2, 16, 8, 2),), ((None, "a", "b"),)),
    Row("adamw with clipping", _adamw, tuple(_positive(16, 8) for _ in range(4)), (BOTH, (BOTH,), (BOTH,), BOTH)),
    Row("momentum in pieces", _momentum_step, (floats(16, 8), floats(16, 8), floats(8, 16), floats(8, 8)),
        (None, (BOTH,), ("a",), ("a",))),
    Row("adafactor", _adafactor, (floats(16, 8), _positive(16), _positive(8), floats(16, 8)), (BOTH, ("a",), ("b",), BOTH)),
    Row("scan over layers", _layers, (floats(8, 8), floats(4, 8, 16) / 4, floats(4, 16, 8) / 4),
        (("b",), (None, None, "a"), (None, "a"))),
    Row("lstm", _lstm, (floats(4, 8, 4), floats(4, 32), floats(8, 32)), ((None, "b"), (None, "a"), (None, "a"))),
    Row("slices in a scan", _slices_in_a_scan, (floats(16, 8), floats(8, 8)), (BOTH, None)),
    Row("segments", _segments, (floats(16, 4), ints(8, 16)), (("a",), ("a",))),
    Row("segments of columns", _segments, (floats(16, 8), ints(8, 16)), ((None, "a"), ("b",))),
    Row("vocabulary", _vocabulary, (floats(8, 4), floats(4, 16), ints(16, 8)), (("b",), (None, "a"), ("b",)), quick=True),
    Row("cumulative sums and maxima", lambda x: (lax.cummax(x, 0), lax.cumsum(x, 1, reverse=True)), (floats(16, 8),), (BOTH,)),
    Row("cumulative products", lambda x: jnp.cumprod(1 + 0.1 * x, 0), (floats(16, 8),), (BOTH,)),
    Row("cumulative logsumexp", lambda x: lax.cumlogsumexp(x, 0), (floats(8, 8),), (BOTH,)),
    Row("real spectrum", lambda x: jnp.abs(jnp.fft.rfft(x)) + 1, (floats(8, 8),), (("a",),)),
    Row("spectrum and back", lambda x: jnp.fft.irfft(jnp.fft.rfft(x, axis=1) * 2, axis=1), (floats(8, 8, 4),),
        (("a", None, "b"),)),
    Row("cholesky", _cholesky, (MATRICES, floats(8, 4, 2)), (("a",), ("a",))),
    Row("qr", _qr, (MATRICES,), (("a",),)),
    Row("solve", lambda a, b: jnp.linalg.solve(a, b), (MATRICES, floats(8, 4, 2)), (("a",), ("a", None, "b"))),  # noqa: PLW0108
    Row("integers", _bits, (ints(64, 8, 8), ints(9, 8, 8)), (BOTH, ("b", "a")), quick=True),
    Row("xor across", lambda x: jnp.bitwise_xor.reduce(x, 0), (ints(64, 8, 8),), (BOTH,)),  # pyright: ignore[reportCallIssue]
    Row("predicates", lambda x, y: (x & y, ~x | y, x.any(), (x ^ y).sum(0)),
        (floats(8, 8) > 0, floats(4, 4, 4).reshape(8, 8) > 0),
        (BOTH, ("b",))),
    Row("bfloat16", _half, (floats(8, 8), floats(8, 8)), ((None, "a"), ("a", "b")), rtol=5e-2),
    Row("argsort across", lambda x: (jnp.argsort(x, 0), jnp.take_along_axis(x, jnp.argsort(-x, 0), 0)), (floats(16, 4),),
        (BOTH,)),
    Row("sort of several", lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), (ints(50, 8, 16), floats(8, 16)),
        (("b", "a"), ("a", "b"))),
    Row("top-k of results", _top_k_of_results, (floats(8, 8), floats(8, 16)), (("b",), (None, "a"))),
    Row("nested jit", _nested, (floats(8, 8), floats(8, 16)), (("b",), (None, "a")), quick=True),
    Row("updates in a loop", _polynomial, (floats(8, 8), np.int32(5)), (BOTH, None)),
    Row("experts by sorting", _routed, (floats(16, 4), floats(4, 8), floats(8, 4, 8), floats(8, 8, 4)),
        (("b",), None, ("a",), ("a",))),
    Row("random normal numbers", lambda x: x * jax.random.normal(jax.random.key(3), x.shape, x.dtype), (floats(8, 8),), (BOTH,)),
    Row("scatter of maxima", lambda x, i, u: x.at[i].max(u), (floats(16, 4), ints(16, 8), floats(8, 4)), (("a",), ("b",),
        ("b",))),
    Row("scatter of products", lambda x, i, u: x.at[:, i].multiply(u, unique_indices=True),
        (floats(8, 16), np.arange(8, dtype=np.int32) * 2, floats(8, 8)),
        (("b", "a"), None, (None, "a"))),
    Row("gather of two indices", lambda x, i, j: x[i, j], (floats(16, 8), ints(16, 8), ints(8, 8)), (BOTH, ("a",), ("a",))),
    Row("windows", lambda x, i: jax.vmap(lambda k: lax.dynamic_slice_in_dim(x, k, 4))(i), (floats(16, 4), ints(12, 8)),
        (("a",), ("b",))),
    Row("bins", lambda x: (jnp.searchsorted(jnp.sort(x), x), jnp.bincount((x * 2).astype(jnp.int32) + 9, length=18)),
        (np.clip(floats(16), -4, 4),), (("a",),)),
    Row("resize", lambda x: jax.image.resize(x, (2, 16, 16, 2), "bilinear"), (floats(2, 8, 8, 2),), ((None, "a", "b"),)),
    Row("positions", lambda x: x * jnp.cos(jnp.arange(x.shape[0])[:, None] / (1 + jnp.arange(x.shape[1]))), (floats(16, 8),),
        (BOTH,)),
    Row("diagonals", lambda x: (jnp.trace(x), jnp.diagonal(x), jnp.triu(x) @ jnp.tril(x)), (floats(8, 8),), (BOTH,)),
    Row("uneven convolution", _conv, (floats(2, 13, 7, 3), floats(3, 3, 3, 4)), ((None, "a", "b"), None)),
    Row("uneven softmax", lambda x: jax.nn.softmax(x, 0), (floats(13, 5),), (BOTH,), quick=True),
    Row("uneven sort", lambda x: jnp.sort(x, 0), (floats(13, 5),), (BOTH,)),
    Row("uneven cumsum", lambda x: (jnp.cumsum(x, 0), x[::-1], jnp.roll(x, 2, 0)), (floats(13, 5),), (BOTH,)),
    Row("uneven gather", lambda t, i: t[i], (floats(13, 5), ints(13, 7)), (BOTH, None)),
    Row("uneven scatter", lambda t, i, u: t.at[i].add(u), (floats(13, 5), ints(13, 7), floats(7, 5)), (BOTH, None, ("a",))),
    Row("uneven reshape", lambda x: (x.reshape(3, 10), x.T.reshape(-1)), (floats(6, 5),), (BOTH,)),
]
