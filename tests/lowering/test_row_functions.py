"""Softmax, its logarithm and layer norm are torch's where a program spells them out, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from xla_torch import from_jax
from xla_torch.core import tuning

NAMES = ("softmax", "log_softmax", "layer_norm", "logsumexp")


def normalised(x: Any, epsilon: float = 1e-5) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon)


def by_division(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-3)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) * 0.25
    hidden = jnp.arange(scores.shape[-1]) > jnp.arange(scores.shape[-2])[:, None]
    return jax.nn.softmax(jnp.where(hidden, -jnp.inf, scores), axis=-1) @ v


def fast_variance(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt((x * x).mean(-1, keepdims=True) - mean * mean + 1e-5)


def over_sum(exponentials: Any) -> Any:
    return exponentials / exponentials.sum(-1, keepdims=True)


def over_sum_of_columns(exponentials: Any) -> Any:
    return exponentials / exponentials.sum(0)[:, None]


def exponential_too(x: Any) -> Any:
    exponentials = jnp.exp(x - largest(x))
    return over_sum(exponentials), exponentials


def finite(x: Any, otherwise: float = 0.0) -> Any:
    return jnp.where(jnp.isfinite(x), x, otherwise)


def maxima_too(x: Any) -> Any:
    m = finite(x.max(0))
    return m + jnp.log(jnp.exp(x - m).sum(0)), m * 2


def largest(x: Any) -> Any:
    return x.max(-1, keepdims=True)


X, SCALE, BIAS = (6, 16), (16,), (16,)

FOUND: dict[str, tuple[str, Callable[..., Any], list[tuple[int, ...]]]] = {
    "rows": ("softmax", lambda x: jax.nn.softmax(x, axis=-1), [X]),
    "a vector": ("softmax", jax.nn.softmax, [(16,)]),
    "blocks of rows": ("softmax", lambda x: jax.nn.softmax(x, axis=-1), [(2, 3, 5)]),
    "square": ("softmax", lambda x: jax.nn.softmax(x, axis=-1), [(8, 8)]),
    "without a bound below": ("softmax", lambda x: over_sum(jnp.exp(x - largest(x))), [X]),
    "attention": ("softmax", attention, [(2, 5, 4), (2, 5, 4), (2, 5, 4)]),
    "logarithm": ("log_softmax", lambda x: jax.nn.log_softmax(x, axis=-1), [X]),
    "logarithm of a vector": ("log_softmax", jax.nn.log_softmax, [(16,)]),
    "sum of exponentials": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=-1), [X]),
    "of columns": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=0), [X]),
    "of columns, square": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=0), [(8, 8)]),
    "with the dimension kept": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=-1, keepdims=True), [X]),
    "with the first dimension kept": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=0, keepdims=True), [X]),
    "of several dimensions": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=(0, 2)), [(3, 4, 5)]),
    "of one in the middle": ("logsumexp", lambda x: jax.nn.logsumexp(x, axis=1), [(4, 4, 4)]),
    "of a sum": ("logsumexp", lambda x, y: jax.nn.logsumexp(x[:, None, :] + y[None], axis=2), [X, X]),
    "norm": ("layer_norm", normalised, [X]),
    "norm by division": ("layer_norm", by_division, [X]),
    "norm of blocks": ("layer_norm", normalised, [(2, 3, 8)]),
    "norm of a vector": ("layer_norm", normalised, [(16,)]),
    "norm with scale": ("layer_norm", lambda x, s: normalised(x) * s, [X, SCALE]),
    "norm with scale before": ("layer_norm", lambda x, s: s * normalised(x), [X, SCALE]),
    "norm with bias": ("layer_norm", lambda x, b: normalised(x) + b, [X, BIAS]),
    "norm with both": ("layer_norm", lambda x, s, b: normalised(x) * s + b, [X, SCALE, BIAS]),
    "norm with both, square": ("layer_norm", lambda x, s, b: normalised(x) * s + b, [(16, 16), SCALE, BIAS]),
    "norm and what it was made of": ("layer_norm", lambda x, s: x + normalised(x) * s, [X, SCALE]),
}

NOT_FOUND: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "rows of one": (lambda x: jax.nn.softmax(x + 1, axis=-1), [(4, 1)]),
    "softmax of columns": (lambda x: jax.nn.softmax(x, axis=0), [X]),
    "the exponential is used too": (exponential_too, [X]),
    "the maximum of something else": (lambda x, y: over_sum(jnp.exp(x - largest(y))), [X, X]),
    "the sum of something else": (lambda x, y: jnp.exp(x - largest(x)) / jnp.exp(y - largest(y)).sum(-1, keepdims=True), [X, X]),
    "less another number": (lambda x: over_sum(jnp.exp(x - x.min(-1, keepdims=True))), [X]),
    "a bound from below": (lambda x: over_sum(jnp.exp(x - jnp.maximum(largest(x), 0.5))), [X]),
    "a sum along columns": (lambda x: over_sum_of_columns(jnp.exp(x - largest(x))), [(8, 8)]),
    "infinite maxima stay": (lambda x: jnp.log(jnp.exp(x - largest(x)).sum(-1)) + x.max(-1), [X]),
    "the maxima of other columns": (lambda x: finite(x.max(1)) + jnp.log(jnp.exp(x - finite(x.max(1))[None]).sum(0)), [(8, 8)]),
    "the maxima are used too": (maxima_too, [X]),
    "minima": (lambda x: finite(x.min(0)) + jnp.log(jnp.exp(x - finite(x.min(0))).sum(0)), [X]),
    "one in place of infinity": (lambda x: finite(x.max(0), 1.0) + jnp.log(jnp.exp(x - finite(x.max(0), 1.0)).sum(0)), [X]),
    "a weighted sum of exponentials": (lambda x, b: jax.nn.logsumexp(x, axis=1, b=b), [X, X]),
    "a power of two": (lambda x: over_sum(jnp.exp2(x - largest(x))), [X]),
    "fast variance": (fast_variance, [X]),
    "another mean": (lambda x: (x - x.sum(-1, keepdims=True) / 15) * lax.rsqrt(
        ((x - x.sum(-1, keepdims=True) / 15) ** 2).mean(-1, keepdims=True) + 1e-5), [X]),
    "an unbiased variance": (lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(
        ((x - x.mean(-1, keepdims=True)) ** 2).sum(-1, keepdims=True) / 15 + 1e-5), [X]),
}


def values(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Drawn, and where there are rows enough: equal, large, with an infinity of either sign, all of them, with a NaN."""
    drawn = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    if shape == X:
        drawn[1] = 0.25
        drawn[2] = drawn[2] * 1000
        drawn[3, 2] = -np.inf
        drawn[4, 5] = np.inf
        drawn[5, 7] = np.nan
    return drawn


def calls(program: Any) -> list[str]:
    return [name for name in NAMES if f"torch.{name}(" in program.python_code()]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FOUND)
def test_what_torch_has_whole(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    want, function, shapes = FOUND[name]
    with jax.enable_x64(True):
        arrays = [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]
        program, theirs = from_jax(function, *arrays), np.asarray(jax.jit(function)(*arrays))
    tensors = [torch.from_numpy(a) for a in arrays]
    got = program(*tensors)
    assert calls(program) == [want]
    monkeypatch.setattr(tuning, "ROW_FUNCTIONS", False)
    with jax.enable_x64(True):
        plain = from_jax(function, *arrays)
    assert calls(plain) == []
    rtol, atol = (2e-5, 2e-6) if dtype == np.float32 else (1e-12, 1e-13)
    for other in (plain(*tensors).numpy(), theirs):
        np.testing.assert_allclose(got.numpy(), other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_something_else(name: str) -> None:
    function, shapes = NOT_FOUND[name]
    arrays = [values(shape, np.float32, seed) for seed, shape in enumerate(shapes)]
    assert calls(from_jax(function, *arrays)) == []


def test_narrow_floats_round_at_each_step() -> None:
    program = from_jax(lambda x: jax.nn.softmax(x, axis=-1), jnp.zeros((4, 8), jnp.bfloat16))
    assert calls(program) == []


@pytest.mark.parametrize("name", ["rows", "logarithm", "norm with both"])
def test_gradients_are_those_of_the_spelling(name: str) -> None:
    _, function, shapes = FOUND[name]
    with jax.enable_x64(True):
        arrays = [np.random.default_rng(seed).normal(size=shape) for seed, shape in enumerate(shapes)]
        program = from_jax(function, *arrays)
        want = jax.grad(lambda *a: (jnp.sin(function(*a))).sum(), argnums=tuple(range(len(arrays))))(*arrays)
    tensors = [torch.from_numpy(a).requires_grad_() for a in arrays]
    for got, theirs in zip(torch.autograd.grad(program(*tensors).sin().sum(), tensors), want, strict=True):
        np.testing.assert_allclose(got.numpy(), np.asarray(theirs), rtol=1e-10, atol=1e-12)
