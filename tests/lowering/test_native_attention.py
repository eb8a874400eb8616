"""Attention, and whatever is like it, as one native function, beside real XLA, with special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xla_torch import from_jax
from xla_torch.codegen import products as source
from xla_torch.core import tuning
from xla_torch.kernels.native_products import NativeProducts
from xla_torch.passes import native_products

NAN, INF = math.nan, math.inf
N = 48

Arrays = list[np.ndarray]


def drawn(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def heads(n: int = N, width: int = 8) -> Arrays:
    return [drawn(2, 3, n, width, seed=seed) for seed in range(3)]


def attention(change: Callable[[Any], Any], order: str = "bhqd,bhkd->bhqk", back: str = "bhqk,bhkd->bhqd") -> Callable[..., Any]:
    def function(q: Any, k: Any, v: Any) -> Any:
        return jnp.einsum(back, jax.nn.softmax(change(jnp.einsum(order, q, k) * 0.3), axis=-1), v)
    return function


def hidden(seen: Callable[[Any, Any], Any], instead: float) -> Callable[[Any], Any]:
    def change(scores: Any) -> Any:
        row, column = (jax.lax.broadcasted_iota(jnp.int32, scores.shape[-2:], d) for d in (0, 1))
        return jnp.where(seen(row, column), scores, instead)
    return change


def causal(row: Any, column: Any) -> Any:
    return row >= column


def window(row: Any, column: Any) -> Any:
    return (row >= column) & (column > row - 9)


def some_see_nothing(row: Any, column: Any) -> Any:
    return row > column + 20


def dropped(scores: Any) -> Any:
    kept = jnp.asarray(drawn(N, N) > 0)
    return jnp.where(kept, scores * 1.5, -INF)


def einsums(q: Any, k: Any, v: Any) -> Any:
    return jnp.moveaxis(attention(hidden(causal, -1e30), "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd")(q, k, v), 2, 1)


def grouped(q: Any, k: Any, v: Any) -> Any:
    k, v = (jnp.broadcast_to(a[:, :1], a.shape) for a in (k, v))
    return attention(hidden(causal, -1e9))(q, k, v)


def padded(q: Any, k: Any, v: Any) -> Any:
    seen = (k[:, 0, :, 0] > -0.5)[:, None, None, :]
    return attention(lambda s: jnp.where(jnp.broadcast_to(seen, s.shape), s, -1e30))(q, k, v)


def inverted(scores: Any) -> Any:
    row, column = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, d) for d in (2, 3))
    return jnp.where(column > row, -1e30, scores)


def bias(q: Any, k: Any, v: Any) -> Any:
    slopes = jnp.asarray([0.5, 0.25, 0.125])[None, :, None, None]
    far = jnp.abs(jnp.arange(N)[:, None] - jnp.arange(N)[None, :]).astype(jnp.float32)
    return attention(lambda s: jnp.tanh(s / 5) * 5 - slopes * far)(q, k, v)


def two_readers(q: Any, k: Any, v: Any) -> Any:
    shares = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", shares, v), shares


def columns(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k), axis=-2), v)


def perceptron(change: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: Any, up: Any, down: Any, *more: Any) -> Any:
        return change(x @ up, *more) @ down
    return function


def normed(h: Any) -> Any:
    centred = h - h.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def layers(*batch: int) -> Arrays:
    return [drawn(*batch, 8), drawn(8, N, seed=1), drawn(N, 8, seed=2)]


CASES: dict[str, tuple[Callable[..., Any], Arrays, bool]] = {
    # name: a function, its arguments, whether it is native code
    "plain": (attention(lambda s: s), heads(), True),
    "causal": (attention(hidden(causal, -1e30)), heads(), True),
    "causal, -inf": (attention(hidden(causal, -INF)), heads(), True),
    "causal, a number that hides little": (attention(hidden(causal, -1e3)), [60 * a for a in heads()], True),
    "causal, a number that hides nothing": (attention(hidden(causal, 0.5)), heads(), True),
    "causal, odd sizes": (attention(hidden(causal, -1e30)), heads(67, 5), True),
    "window": (attention(hidden(window, -1e30)), heads(), True),
    "rows that see nothing": (attention(hidden(some_see_nothing, -1e30)), heads(), True),
    "rows that see nothing, -inf": (attention(hidden(some_see_nothing, -INF)), heads(), True),
    "a mask of no order": (attention(dropped), heads(), True),
    "select the other way": (attention(inverted), heads(), True),
    "keys that are padding": (padded, heads(), True),
    "soft cap and slopes": (bias, heads(), True),
    "bqhd": (einsums, [np.moveaxis(a, 1, 2).copy() for a in heads()], True),
    "shared keys": (grouped, heads(), True),
    "shares are read": (two_readers, heads(), False),
    "softmax of columns": (columns, heads(), False),
    "a perceptron": (perceptron(jax.nn.gelu), layers(96), True),
    "a perceptron of a batch": (perceptron(jax.nn.gelu), layers(2, 3, 16), True),
    "with a bias": (perceptron(lambda h, b: jnp.tanh(h + b)), [*layers(4, 24), drawn(N, seed=3)], False),
    "gated": (perceptron(lambda h, g: jax.nn.silu(h) * g), [*layers(4, 24), drawn(4, 24, N, seed=3)], True),
    "gated by rows": (perceptron(lambda h, g: jnp.exp(h * 0.1) * g), [*layers(4, 24), drawn(4, 24, 1, seed=3)], True),
    "gated by members": (perceptron(lambda h, g: jnp.exp(h * 0.1) * g), [*layers(4, 24), drawn(4, 1, 1, seed=3)], True),
    "normed": (perceptron(normed), layers(96), False),
    "float64": (attention(lambda s: s), [a.astype("f8") for a in heads()], False),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0)
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"bundles"}))
    monkeypatch.setattr(tuning, "NATIVE_PRODUCT_FROM", 1 << 10)
    monkeypatch.setattr(tuning, "TILE", 1 << 8)
    monkeypatch.setattr(native_products, "_LEAST_ROWS", 5)


def natives(program: Any) -> int:
    return sum(isinstance(m, NativeProducts) for m in program.lowered().modules())


def compared(function: Callable[..., Any], arguments: Arrays, count: int) -> None:
    with jax.enable_x64(arguments[0].dtype == np.float64):
        program = from_jax(function, *arguments)
        want = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    assert natives(program) == count
    got = jax.tree_util.tree_leaves(program(*map(torch.from_numpy, arguments)))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_attention_is_native_code(name: str) -> None:
    function, arguments, is_native = CASES[name]
    compared(function, arguments, is_native)


@pytest.mark.parametrize("instead", [-1e30, -INF])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 30, 3), (1, 2, N - 1, 7)])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 3e38])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_special_values_where_a_mask_hides(which: int, value: float, place: tuple[int, ...], instead: float) -> None:
    arguments = heads()
    arguments[which][place] = value
    compared(attention(hidden(causal, instead)), arguments, True)


@pytest.mark.parametrize("most", [-1103.0, -1104.0, -1105.0])
def test_what_is_hidden_counts_until_its_share_is_nothing(most: float) -> None:
    """Scores near the number that stands for hidden ones: `UNDERFLOWS` and less above it, and below it."""
    assert source.UNDERFLOWS == 104
    q, k, v = np.ones((1, 1, N, 1), "f"), np.full((1, 1, N, 1), most / 0.3, "f"), drawn(1, 1, N, 4)
    compared(attention(hidden(causal, -1208.0)), [q, k, v], True)
    compared(attention(hidden(causal, native_products._HIDES_FROM)), [q, k, v], True)


def test_several_threads_give_the_same_bits() -> None:
    function, arguments, _ = CASES["causal"]
    program, before = from_jax(function, *arguments), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(program(*map(torch.from_numpy, arguments)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], r) for r in results[1:])


def test_without_native_code_blocks_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_AFTER", math.inf)
    function, arguments, _ = CASES["causal"]
    compared(function, arguments, 0)
