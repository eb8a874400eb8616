"""`rebatch`: a program for a batch of one size as one for another, against JAX's for that size; what stands against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import HAS_XLA
from xla_torch.errors import InvalidArgument, UnsupportedError

pytestmark = pytest.mark.skipif(not HAS_XLA, reason="needs jax")

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

_R = np.random.RandomState(0)


def _f(*dims: int) -> np.ndarray:
    return _R.randn(*dims).astype(np.float32)


# ------------------------------------------------------------------------------------------------ programs


def mlp(x, w, b, v):
    return jax.nn.softmax(jnp.tanh(x @ w + b) @ v)


def conv_net(x, kernel, dense):
    h = jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return h.reshape(h.shape[0], -1) @ dense


def layer_norm(x, scale):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def attention(x, wq, wk, wv):
    b, s, d = x.shape
    q, k, v = ((x @ w).reshape(b, s, 2, d // 2).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    mask = jnp.tril(jnp.ones((s, s), bool))
    weights = jax.nn.softmax(jnp.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(d // 2), -1e9))
    return (weights @ v).transpose(0, 2, 1, 3).reshape(b, s, d)


def merged_heads(x, w):
    b, s, d = x.shape
    q = (x.reshape(b * s, d) @ w).reshape(b, s, 3, d // 3).transpose(0, 2, 1, 3).reshape(b * 3, s, d // 3)
    return jnp.einsum("zqd,zkd->zqk", q, q).reshape(b, 3, s, s).sum(1)


def lstm(x, w, u):
    hidden = u.shape[0]

    def step(carry, row):
        h, c = carry
        i, f, g, o = jnp.split(row @ w + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[0], hidden))
    (h, _), hs = lax.scan(step, (zeros, zeros), x.swapaxes(0, 1))
    return h, hs


def embedded(tokens, table, positions):
    return table[tokens] + positions


def chosen_labels(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]


def ranked(x):
    return jnp.argmax(x, 1), jnp.sort(x, 1), jnp.argsort(-x, 1), lax.top_k(x, 2), jnp.cumsum(x, 1)


def until_all_small(x):
    return lax.while_loop(lambda x: (jnp.abs(x) > 1).any(), lambda x: jnp.where(jnp.abs(x) > 1, x / 2, x), x)


def branching(x, flag):
    return lax.cond(flag > 0, lambda x: (x * 2, jnp.zeros_like(x)), lambda x: (jnp.ones_like(x), jnp.cos(x)), x)


def padded(x, y):
    wide = jnp.pad(x, ((0, 0), (1, 2)))
    return jnp.concatenate([wide, y, jnp.broadcast_to(jnp.arange(2.0), (x.shape[0], 2))], 1)[:, ::-1], x[:, 1:3]


def updated(x, y):
    return lax.dynamic_update_slice(x, y, (0, 1)), x.at[:, 2].add(y[:, 0]), lax.dynamic_slice(x, (0, 1), (x.shape[0], 2))


def outer(x, y):
    return jnp.einsum("bi,bj->bij", x, y), jnp.einsum("bi,bi->b", x, x)


def own_kernels(x, kernels):
    return jax.vmap(lambda a, k: lax.conv_general_dilated(a[None], k, (1,), "SAME")[0])(x, kernels)


def solved(a, x):
    pos = a @ a.swapaxes(-1, -2) + 3 * jnp.eye(a.shape[-1], dtype=a.dtype)
    return lax.linalg.triangular_solve(pos, x, left_side=True, lower=True), jnp.fft.rfft(x, axis=1)


def decomposed(a):
    pos = a @ a.swapaxes(-1, -2) + 3 * jnp.eye(a.shape[-1], dtype=a.dtype)
    return jnp.linalg.eigh(pos)[0], jnp.linalg.solve(pos, a), jnp.linalg.svd(a, compute_uv=False)


def own_gradient(x, w):
    return jax.vmap(jax.grad(lambda row: jnp.sum(jnp.tanh(row @ w) ** 2)))(x)


def last_axis(x, w):
    return jnp.tanh(w @ x)


def constants(x):
    return x + jnp.asarray(np.tile(np.arange(3, dtype=np.float32), (x.shape[0], 1)))


def scaled_for_all(x):
    return x / jnp.max(jnp.abs(x))


def gelu_bf16(x):
    return jax.nn.gelu(x.astype(jnp.bfloat16)).astype(jnp.float32)


def group_norm(x):
    b, h, w, c = x.shape
    g = x.reshape(b, h, w, 2, c // 2)
    return ((g - g.mean((1, 2, 4), keepdims=True)) / jnp.sqrt(g.var((1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class Row:
    function: Callable[..., Any]
    batched: Callable[[int], list[np.ndarray]]
    """The arguments that have the batch, which come first."""
    shared: tuple[np.ndarray, ...] = ()
    axis: int = 0
    tolerance: float = 2e-5


def _ints(*dims: int) -> np.ndarray:
    return _R.randint(0, 5, dims).astype(np.int32)


ROWS = {row.function.__name__: row for row in (
    Row(mlp, lambda n: [_f(n, 4)], (_f(4, 4), _f(4), _f(4, 3))),
    Row(conv_net, lambda n: [_f(n, 4, 4, 2)], (_f(3, 3, 2, 4), _f(16, 3))),
    Row(layer_norm, lambda n: [_f(n, 4)], (_f(4),)),
    Row(attention, lambda n: [_f(n, 4, 6)], (_f(6, 6), _f(6, 6), _f(6, 6))),
    Row(merged_heads, lambda n: [_f(n, 4, 6)], (_f(6, 6),)),
    Row(lstm, lambda n: [_f(n, 5, 3)], (_f(3, 16), _f(4, 16))),
    Row(embedded, lambda n: [_ints(n, 4)], (_f(5, 3), _f(4, 3))),
    Row(chosen_labels, lambda n: [_f(n, 5), _ints(n)]),
    Row(ranked, lambda n: [_f(n, 4)]),
    Row(until_all_small, lambda n: [_f(n, 3) * 9]),
    Row(branching, lambda n: [_f(n, 3)], (np.array(1, np.int32),)),
    Row(padded, lambda n: [_f(n, 4), _f(n, 1)]),
    Row(updated, lambda n: [_f(n, 4), _f(n, 2)]),
    Row(outer, lambda n: [_f(n, 2), _f(n, 4)]),
    Row(own_kernels, lambda n: [_f(n, 2, 6), _f(n, 3, 2, 3)]),
    Row(solved, lambda n: [_f(n, 3, 3), _f(n, 3, 2)]),
    Row(decomposed, lambda n: [_f(n, 3, 3)], tolerance=1e-3),
    Row(own_gradient, lambda n: [_f(n, 4)], (_f(4, 3),)),
    Row(last_axis, lambda n: [_f(4, n)], (_f(3, 4),), axis=1),
    Row(constants, lambda n: [_f(n, 3)]),
    Row(scaled_for_all, lambda n: [_f(n, 3)]),
    Row(gelu_bf16, lambda n: [_f(n, 3)], tolerance=1e-2),
    Row(group_norm, lambda n: [_f(n, 2, 2, 4)]),
)}


def _program(function: Callable[..., Any], *arguments: np.ndarray) -> xla_torch.XlaComputation:
    return xla_torch.from_stablehlo(jax.jit(function).lower(*arguments).as_text())


def _cases() -> list[Any]:
    """Of one example `take_along_axis` is another gather, which is as that of all pairs, and no maximum is over several."""
    refused = ("chosen_labels", "scaled_for_all", "until_all_small", "decomposed")
    few = {"attention", "lstm"}
    return [(name, old, new) for name in ROWS for old, new in ((4, 7), (1, 3), (2, 1), (4, 4))
            if (name not in refused if old == 1 else old + new == 11 or name in few)]


@pytest.mark.parametrize(("name", "old", "new"), _cases())
def test_rebatched_program_is_the_one_of_the_new_size(name: str, old: int, new: int) -> None:
    row = ROWS[name]
    small, large = row.batched(old), row.batched(new)
    program = _program(row.function, *small, *row.shared)
    found = xla_torch.rebatch(program, list(range(len(small))), new, row.axis)
    expected = jax.tree.leaves(jax.jit(row.function)(*large, *row.shared))
    results = found.run_numpy(*large, *row.shared)
    assert [r.shape for r in results] == [e.shape for e in expected]
    for result, wanted in zip(results, expected, strict=True):
        have, want = np.asarray(result, np.complex128), np.asarray(wanted, np.complex128)
        np.testing.assert_allclose(have, want, row.tolerance, row.tolerance)


def test_gradients_of_a_rebatched_program() -> None:
    row = ROWS["mlp"]
    (x,) = row.batched(6)
    found = xla_torch.rebatch(_program(row.function, *row.batched(2), *row.shared), 0, 6)
    tensors = [torch.from_numpy(a).requires_grad_() for a in (x, *row.shared)]
    (found(*tensors) ** 2).sum().backward()
    expected = jax.grad(lambda *a: (mlp(*a) ** 2).sum(), argnums=(0, 1))(x, *row.shared)
    for tensor, wanted in zip(tensors, expected, strict=False):
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), wanted, 1e-4, 1e-5)


# ------------------------------------------------------------------------------------------------ refusals

REFUSED: dict[str, tuple[Callable[..., Any], list[np.ndarray], str]] = {
    "mean": (lambda x: x.mean(), [_f(4, 3)], "reduces over the batch"),
    "mean of one": (lambda x: x.mean(0), [_f(1, 3)], "reduces over the batch"),
    "batch norm": (lambda x: x - x.mean(0), [_f(4, 3)], "reduces over the batch"),
    "maximum of one": (lambda x: x / x.max(), [_f(1, 3)], "over the batch"),
    "gram": (lambda x: x.T @ x, [_f(4, 3)], "sums over the batch"),
    "pairs": (lambda x: x @ x.T, [_f(4, 3)], "each example together with all others"),
    "broadcast against itself": (lambda x: x[:, None] - x[None], [_f(4)], "each example together with all others"),
    "first example": (lambda x: x[0] * 2, [_f(4, 3)], "takes a part of the batch"),
    "first of one": (lambda x: x[0] * 2, [_f(1, 3)], "is ambiguous"),
    "reversed": (lambda x: x[::-1], [_f(4, 3)], "reverses the batch"),
    "appended": (lambda x: jnp.concatenate([x, x]), [_f(4, 3)], "puts something beside the batch"),
    "cumulated": (lambda x: jnp.cumsum(x, 0), [_f(4, 3)], "over the batch"),
    "sorted": (lambda x: jnp.sort(x, 0), [_f(4, 3)], "sorts the batch"),
    "numbered": (lambda x: x + jnp.arange(4.0)[:, None], [_f(4, 3)], "numbers the examples"),
    "weights of examples": (lambda x: x * np.arange(4, dtype=np.float32)[:, None], [_f(4, 3)], "other values for each example"),
    "split": (lambda x: x.reshape(2, 2, 3).sum(1), [_f(4, 3)], "splits the batch up"),
    "microbatches": (lambda x: lax.map(jnp.sin, x.reshape(2, 2, 3)), [_f(4, 3)], "splits the batch up"),
    "dropout": (lambda x: x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), [_f(4, 3)], "the batch"),
    "one by one": (lambda x: lax.map(jnp.sin, x), [_f(4, 3)], "a part of the batch"),
    "a row for each": (lambda x, y: x + y, [_f(4, 3), _f(4, 3)], "parameter 1 has a value for each example"),
    "scattered": (lambda x: x.at[jnp.array([0, 1, 1, 2])].add(x), [_f(4, 3)], "batch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stands_against_another_size_is_named(name: str) -> None:
    function, arguments, what = REFUSED[name]
    with pytest.raises(UnsupportedError, match="the batch cannot have another size") as caught:
        xla_torch.rebatch(_program(function, *arguments), 0, 6)
    assert what in str(caught.value)
    assert caught.value.subject


@pytest.mark.parametrize(("arguments", "what"), [
    ((3, 5), "there is no parameter 3"), ((0, 0), "the size of the batch is missing"), (([], 5), "do not fit"), ((0, 5, 2),
                                                                                                                 "axis 2"),
    (([0, 1], 5), "no common batch"), (([0, 0], 5), "do not fit"),
])
def test_wrong_arguments(arguments: tuple[Any, ...], what: str) -> None:
    program = _program(lambda x, y: (x, y), _f(4, 3), _f(3))
    with pytest.raises(InvalidArgument, match=what):
        xla_torch.rebatch(program, *arguments)
