"""Programs that people write in JAX: values, gradients, tangents, Hessians times vectors are JAX's, by JAX's rules and by ours.

Arguments are ordinary, or at the points where rules differ most easily: ties, zeros, infinities behind a mask.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import from_jax

jax: Any = pytest.importorskip("jax")
jnp, lax, nn = jax.numpy, jax.lax, jax.nn
flax: Any = pytest.importorskip("flax.linen")
optax: Any = pytest.importorskip("optax")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")]

_rng = np.random.default_rng(5)


def drawn(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape).astype(np.float32)


M, V, IMAGES, SEQUENCE = drawn(4, 4), drawn(4), drawn(2, 6, 6, 3), drawn(2, 5, 8)
SPD = M @ M.T + 4 * np.eye(4, dtype=np.float32)
TIES = np.array([-2, -1, -0.0, 0, 0, 0.5, 1, 1, 2, 7], np.float32)
ZEROS = np.zeros((3, 4), np.float32)
LABELS = np.array([1, 0, 3, 2])
INDEX = np.array([0, 2, 2, 1])


def layer(module: Any, x: np.ndarray, **given: Any) -> tuple[Any, ...]:
    """A flax layer: a function of all its variables and its input."""
    variables = jax.tree.map(np.asarray, module.init(jax.random.key(0), x, **given))
    return lambda v, x: module.apply(v, x, **given), variables, x


def batch_norm_in_training() -> tuple[Any, ...]:
    module = flax.BatchNorm(use_running_average=False)
    variables = jax.tree.map(np.asarray, module.init(jax.random.key(0), SEQUENCE))
    return lambda v, x: module.apply(v, x, mutable=["batch_stats"]), variables, SEQUENCE


class _Cnn(flax.Module):
    @flax.compact
    def __call__(self, x: Any) -> Any:
        x = flax.relu(flax.Conv(4, (3, 3))(x))
        x = flax.max_pool(x, (2, 2), (2, 2))
        x = flax.avg_pool(flax.gelu(flax.Conv(4, (3, 3), strides=2, feature_group_count=2)(x)), (2, 2))
        return flax.Dense(3)(flax.LayerNorm()(x.reshape(x.shape[0], -1)))


@jax.custom_vjp
def root(a: Any) -> Any:
    return lax.fori_loop(0, 30, lambda _, x: x - (x ** 3 - a) / (3 * x * x), 1.0)


root.defvjp(lambda a: (root(a), root(a)), lambda x, ct: (ct / (3 * x * x),))


def vq_vae(p: Any, x: Any) -> Any:
    z = jnp.tanh(x @ p["encoder"])
    codes = p["codes"]
    q = codes[jnp.argmin(((z[:, None] - codes) ** 2).sum(-1), 1)]
    through = z + lax.stop_gradient(q - z)
    commitment = ((z - lax.stop_gradient(q)) ** 2).mean() * 0.25 + ((lax.stop_gradient(z) - q) ** 2).mean()
    return ((through @ p["decoder"] - x) ** 2).mean() + commitment


def vae(p: Any, x: Any, key: Any) -> Any:
    mean, log_variance = jnp.split(x @ p["encoder"], 2, -1)
    z = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape)
    reconstruction = optax.sigmoid_binary_cross_entropy(z @ p["decoder"], nn.sigmoid(x)).sum(-1)
    return (reconstruction - 0.5 * (1 + log_variance - mean ** 2 - jnp.exp(log_variance)).sum(-1)).mean()


def recurrent(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = nn.silu(w @ h + x)
        return h, lax.cond(h[0] > 0, lambda h: h * 2, jnp.sin, h)

    return lax.scan(step, h, xs)


def masked_attention(q: Any, k: Any, v: Any) -> Any:
    mask = jnp.tril(jnp.ones((q.shape[0], q.shape[0]), bool))
    scores = jnp.where(mask, q @ k.T / 2, -jnp.inf)
    return nn.softmax(scores) @ v, nn.logsumexp(scores, -1)


def scattered(x: Any, y: Any) -> Any:
    x = jnp.asarray(x)
    return (x.at[INDEX].set(y), x.at[INDEX].add(y), x.at[LABELS].mul(y, unique_indices=True),
            x.at[INDEX].max(y), x.at[1:3].min(y[:2]), x[INDEX])


def safe_norm(x: Any) -> Any:
    square = (x ** 2).sum(-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def cumulative(x: Any) -> Any:
    return jnp.cumsum(x), jnp.cumprod(x), lax.cummax(x), lax.cummin(x), lax.cumlogsumexp(x)


def convolutions(x: Any, w: Any) -> Any:
    given = ("NHWC", "HWIO", "NHWC")
    return (lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=given),
            lax.conv_general_dilated(x, w, (2, 1), [(1, 0), (2, 1)], rhs_dilation=(2, 1), dimension_numbers=given),
            lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=given))


def windows(x: Any) -> Any:
    return (lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
            lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"))


def associative(a: Any, b: Any) -> Any:
    """A linear recurrence."""
    return lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b))


def while_forward(x: Any) -> Any:
    return lax.while_loop(lambda c: (c ** 2).sum() < 100, lambda c: c * jnp.exp(0.2 + c / 20), x)


def mixed(x: Any, n: Any, flag: Any) -> Any:
    return {"y": jnp.where(flag, x * n, x ** 2).sum(), "n": n + 1, "flag": ~flag}


def spectral(x: Any) -> Any:
    f = jnp.fft.rfft(x)
    return jnp.abs(f) ** 2, jnp.fft.irfft(f * jnp.exp(1j * jnp.arange(f.shape[-1]))), jnp.real(jnp.fft.fft2(x) ** 2)


def complex_parts(x: Any, y: Any) -> Any:
    z = lax.complex(x, y)
    return jnp.abs(jnp.exp(z) * jnp.conj(z)), jnp.angle(z + 3), (z ** 2).real, jnp.log(z).imag


def noisy(x: Any, key: Any) -> Any:
    one, two = jax.random.split(key)
    kept = jax.random.bernoulli(one, 0.7, x.shape)
    return jnp.where(kept, x / 0.7, 0) ** 2 + jax.random.gumbel(two, x.shape) * x


def losses(x: Any) -> Any:
    return (optax.huber_loss(x), optax.softmax_cross_entropy_with_integer_labels(x, LABELS % 4),
            optax.softmax_cross_entropy(x, nn.one_hot(LABELS, 4)), optax.sigmoid_binary_cross_entropy(x, (x > 0) * 1.0),
            optax.cosine_similarity(x[:2], x[2:]), optax.log_cosh(x), optax.hinge_loss(x[0], 1.0), optax.l2_loss(x),
            optax.kl_divergence(nn.log_softmax(x), nn.softmax(x[::-1])), optax.smooth_labels(nn.softmax(x), 0.1))


def contrastive(x: Any, y: Any) -> Any:
    x, y = (a / jnp.linalg.norm(a, axis=-1, keepdims=True) for a in (x, y))
    return optax.softmax_cross_entropy_with_integer_labels(x @ y.T * 5, jnp.arange(4)).mean()


KEY = jax.random.key(7)
CODES = {"encoder": drawn(4, 3), "codes": drawn(6, 3), "decoder": drawn(3, 4)}
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "optax losses": (losses, M), "losses of zeros": (lambda x: losses(x)[:4] + losses(x)[5:8], np.zeros((4, 4), np.float32)),
    "contrastive": (contrastive, M, SPD), "VQ-VAE": (vq_vae, CODES, M),
    "VAE": (vae, {"encoder": drawn(4, 6), "decoder": drawn(3, 4)}, M, KEY), "recurrent": (recurrent, M, V, drawn(6, 4)),
    "while": (while_forward, np.abs(V)), "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda x: x ** 3, x), V),
    "fori": (lambda x: lax.fori_loop(0, 5, lambda k, c: jnp.sin(c) * (k + 1), x), V),
    "custom root": (lambda a: root(a) ** 2, np.float32(2)), "solve": (jnp.linalg.solve, SPD, V),
    "determinants": (lambda a: (jnp.linalg.slogdet(a)[1], jnp.linalg.det(a)), SPD),
    "factors": (lambda a: (jnp.linalg.cholesky(a), jnp.linalg.inv(a), jnp.linalg.eigh(a)[0], jnp.linalg.svd(
        a, compute_uv=False)), SPD),
    "sort": (lambda x: (jnp.sort(x), x[jnp.argsort(x)], jnp.median(x), jnp.quantile(x, 0.3)), drawn(9)),
    "sort of ties": (lambda x: (jnp.sort(x), x[jnp.argsort(-x)]), TIES),
    "top_k": (lambda x: lax.top_k(x, 3), TIES), "scattered": (scattered, drawn(5, 3), drawn(4, 3)),
    "where": (lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -x), TIES),
    "clip": (lambda x: (jnp.clip(x, -1, 1), nn.relu6(x), jnp.maximum(x, 0), jnp.minimum(x, 1), jnp.abs(x)), TIES),
    "norm of zeros": (safe_norm, ZEROS), "softmax of ties": (lambda x: (nn.softmax(x), nn.log_softmax(x), nn.logsumexp(x)), TIES),
    "masked attention": (masked_attention, drawn(5, 4), drawn(5, 4), drawn(5, 4)),
    "segments": (lambda x: (jax.ops.segment_sum(x, INDEX, 4), jax.ops.segment_max(x, INDEX, 3)), drawn(4, 3)),
    "cumulative": (cumulative, drawn(6)), "cumulative of ties": (cumulative, TIES), "spectral": (spectral, M),
    "convolutions": (convolutions, IMAGES, drawn(3, 3, 3, 4)), "windows": (windows, IMAGES),
    "windows of ties": (windows, np.round(IMAGES)), "associative scan": (associative, drawn(7), drawn(7)),
    "remat": (jax.checkpoint(lambda w, x: jnp.tanh(w @ jnp.sin(w @ x))), M, V),
    "complex parts": (complex_parts, V, drawn(4)), "mixed": (mixed, V, np.int32(3), np.array([True, False, True, True])),
    "noisy": (noisy, V, KEY), "has_aux": (lambda x: (jnp.sum(x ** 3), {"aux": x * 2, "count": jnp.arange(3)}), V),
    "gradient inside": (lambda w, x: jax.grad(lambda w: (nn.softplus(w @ x) ** 2).sum())(w), M, V),
    "variance and products": (lambda x: (x.var(), x.std(), x.prod(), jnp.max(x), jnp.linalg.norm(x)), TIES + 3),
    "einsum": (lambda a, b: jnp.einsum("bij,bjk->ik", a, b), drawn(3, 2, 4), drawn(3, 4, 2)),
    "embedding": (lambda e: e[jnp.array([[0, 2], [2, 1]])].mean(1) @ jnp.ones(3), drawn(4, 3)),
    "interpolation": (lambda x, y: jnp.interp(x, jnp.linspace(-2, 2, 5), y), V, drawn(5)),
}
LAYERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    # Variables are drawn by compiled programs: not while tests are collected.
    "dense": lambda: layer(flax.Dense(3), SEQUENCE), "convolutional network": lambda: layer(_Cnn(), IMAGES),
    "batch norm": lambda: layer(flax.BatchNorm(use_running_average=True), SEQUENCE),
    "batch norm in training": batch_norm_in_training, "group norm": lambda: layer(flax.GroupNorm(2), SEQUENCE),
    "dropout": lambda: layer(flax.Dropout(0.5, deterministic=True), SEQUENCE),
    "attention": lambda: layer(flax.MultiHeadDotProductAttention(2, qkv_features=8), SEQUENCE),
    "LSTM": lambda: layer(flax.RNN(flax.OptimizedLSTMCell(4)), SEQUENCE),
}
NO_REVERSE = {"while"}
NO_FORWARD = {"custom root", "windows of ties"}
"""A custom_vjp has no tangents, and of equal elements of a window XLA chooses in an order of its own."""
ONCE = {"while"}
OWN_RULES = {"VQ-VAE", "custom root", "clip", "losses of zeros", "cumulative of ties"}
"""Programs in which derivatives were written that the ops do not have: at ties JAX's own, of relu6, logaddexp and cummax."""


def floating(leaf: Any) -> bool:
    return getattr(leaf, "dtype", None) is not None and jnp.issubdtype(leaf.dtype, jnp.inexact)


def prepared(name: str) -> tuple[Any, list[np.ndarray]]:
    """The program as a function of its floating leaves to its floating results, and these leaves."""
    function, *arguments = LAYERS[name]() if name in LAYERS else PROGRAMS[name]
    given, tree = jax.tree.flatten(arguments)
    flags = [floating(leaf) for leaf in given]

    def flat(*values: Any) -> Any:
        rest = iter(values)
        results = function(*jax.tree.unflatten(tree, [next(rest) if f else v for v, f in zip(given, flags, strict=True)]))
        return tuple(leaf for leaf in jax.tree.leaves(results) if floating(leaf))

    return flat, [np.asarray(v) for v, f in zip(given, flags, strict=True) if f]


def close(ours: Any, theirs: Any, tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        b = np.asarray(b)
        scale = np.abs(b[np.isfinite(b)]).max(initial=1)
        found = np.zeros(b.shape, b.dtype) if a is None else a.detach().numpy()
        np.testing.assert_allclose(found, b, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("derivatives", ["jax", "xla"])
@pytest.mark.parametrize("name", [*PROGRAMS, *LAYERS])
def test_a_program_is_as_in_jax(name: str, derivatives: Any) -> None:
    if derivatives == "xla" and name in OWN_RULES:
        pytest.skip("its ops do not have what its author wrote")
    check(name, derivatives)


def check(name: str, derivatives: Any) -> None:
    flat, given = prepared(name)
    computation = from_jax(flat, *given, derivatives=derivatives)
    rng = np.random.default_rng(3)
    values = flat(*map(jnp.asarray, given))  # of NumPy, an int32 and a float32 are a float64
    tangents = [rng.normal(size=np.shape(v)).astype(v.dtype) for v in given]
    cotangents = [rng.normal(size=v.shape).astype(v.dtype) for v in values]
    leaves = [torch.tensor(v, requires_grad=True) for v in given]
    results = computation(*leaves)
    close(results, values, 1e-5)
    if name not in NO_FORWARD:
        moved = xla_torch.jvp(computation)(*map(torch.tensor, (*given, *tangents)))[1]
        close(moved if isinstance(moved, tuple) else [moved], jax.jvp(flat, given, tangents)[1], 1e-4)
    if name in NO_REVERSE:
        return
    back = jax.vjp(flat, *given)[1]
    theirs = back(tuple(map(jnp.asarray, cotangents)))
    torch_cts = [torch.tensor(c) for c in cotangents]
    ours = torch.autograd.grad(results, leaves, torch_cts, allow_unused=True)
    close(ours, theirs, 1e-4)
    if name in ONCE:
        return
    second = jax.vjp(lambda *xs: jax.vjp(flat, *xs)[1](tuple(map(jnp.asarray, cotangents))), *given)[1](tuple(tangents))
    leaves = [torch.tensor(v, requires_grad=True) for v in given]
    first = torch.autograd.grad(computation(*leaves), leaves, torch_cts, create_graph=True, allow_unused=True)
    kept = [(g, torch.tensor(t)) for g, t in zip(first, tangents, strict=True) if g is not None and g.requires_grad]
    found = torch.autograd.grad([g for g, _ in kept], leaves, [t for _, t in kept], allow_unused=True) if kept else [
        None] * len(leaves)
    close(found, second, 1e-3)
