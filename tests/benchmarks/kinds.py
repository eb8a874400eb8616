"""Functions of a few arrays, one for each kind of work, as JAX users and as torch users write them. Needs jax."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

ROWS = (4096, 1024)


@dataclasses.dataclass(frozen=True)
class Kind:
    """`function` of JAX arrays, and `by_hand` of the same as tensors, if torch has it."""

    function: Callable[..., Any]
    by_hand: Callable[..., Any] | None
    arguments: Sequence[np.ndarray]


def drawn(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def placed(beside: torch.Tensor, array: np.ndarray) -> torch.Tensor:
    """An array where a tensor is."""
    return torch.from_numpy(array).to(beside.device)


def numbers(bound: int, *dims: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, bound, dims).astype(np.int32)


# ------------------------------------------------------------------------------------------- arrays and rows


def chain() -> Kind:
    return Kind(lambda x: jnp.tanh(jnp.exp(-x * x) + jnp.log1p(jnp.abs(x))) * jax.nn.sigmoid(x),
                lambda x: torch.tanh(torch.exp(-x * x) + torch.log1p(torch.abs(x))) * torch.sigmoid(x), [drawn(1 << 22)])


def softmax() -> Kind:
    return Kind(lambda x: jax.nn.softmax(x, axis=-1), lambda x: torch.softmax(x, -1), [drawn(*ROWS)])


def layer_norm() -> Kind:
    def function(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias

    return Kind(function, lambda x, scale, bias: torch.nn.functional.layer_norm(x, x.shape[-1:], scale, bias),
                [drawn(*ROWS), drawn(ROWS[1]), drawn(ROWS[1])])


def reduction() -> Kind:
    return Kind(lambda x: (x.sum(0), x.max(1)), lambda x: (x.sum(0), x.amax(1)), [drawn(*ROWS)])


def argmax() -> Kind:
    return Kind(lambda x: jnp.argmax(x, -1), lambda x: torch.argmax(x, -1), [drawn(*ROWS)])


def running_sum() -> Kind:
    return Kind(lambda x: jnp.cumsum(x, 1), lambda x: torch.cumsum(x, 1), [drawn(1024, 1024)])


# ------------------------------------------------------------------------------------------- order and places


def sort() -> Kind:
    return Kind(jnp.sort, lambda x: torch.sort(x, stable=True).values, [drawn(1 << 20)])


def sort_by_key() -> Kind:
    def by_hand(keys: torch.Tensor, values: torch.Tensor) -> Any:
        found, order = torch.sort(keys, stable=True)
        return found, values[order]

    return Kind(lambda keys, values: lax.sort((keys, values), num_keys=1), by_hand, [numbers(1 << 16, 1 << 20), drawn(1 << 20)])


def top_k() -> Kind:
    return Kind(lambda x: lax.top_k(x, 16), lambda x: tuple(torch.topk(x, 16)), [drawn(*ROWS)])


def gather() -> Kind:
    return Kind(lambda x, i: x[i], lambda x, i: x[i], [drawn(50_000, 256), numbers(50_000, 16_384)])


def scatter_add() -> Kind:
    return Kind(lambda x, i, u: x.at[i].add(u), lambda x, i, u: x.index_add(0, i, u),
                [drawn(50_000, 64), numbers(50_000, 32_768), drawn(32_768, 64, seed=2)])


def segment_sum() -> Kind:
    return Kind(lambda u, i: jax.ops.segment_sum(u, i, 1000, indices_are_sorted=True),
                lambda u, i: u.new_zeros(1000, u.shape[1]).index_add(0, i, u),
                [drawn(100_000, 32), np.sort(numbers(1000, 100_000))])


def embedding_gradient() -> Kind:
    def by_hand(table: torch.Tensor, i: torch.Tensor, ct: torch.Tensor) -> torch.Tensor:
        table = table.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.embedding(i, table), table, ct)[0]

    return Kind(lambda table, i, ct: jax.vjp(lambda t: t[i], table)[1](ct)[0], by_hand,
                [drawn(20_000, 128), numbers(20_000, 64, 256), drawn(64, 256, 128, seed=2)])


def random_bits() -> Kind:
    return Kind(lambda key: jax.random.bits(key, (1 << 20,), jnp.uint32), None, [np.array([1, 2], np.uint32)])


def random_normals() -> Kind:
    return Kind(lambda key: jax.random.normal(key, (1 << 20,)), None, [np.array([1, 2], np.uint32)])


# ------------------------------------------------------------------------------------------- loops


def counted_loop(steps: int = 1000) -> Kind:
    def by_hand(x: torch.Tensor) -> torch.Tensor:
        for _ in range(steps):
            x = torch.sin(x) * 1.01 + 0.1
        return x

    return Kind(lambda x: lax.fori_loop(0, steps, lambda _, y: jnp.sin(y) * 1.01 + 0.1, x), by_hand, [drawn(10)])


def newton() -> Kind:
    """Square roots, until all are found."""
    def by_hand(a: torch.Tensor) -> torch.Tensor:
        x = a
        while bool((abs(x * x - a) > 1e-4 * a).any()):
            x = 0.5 * (x + a / x)
        return x

    return Kind(lambda a: lax.while_loop(lambda x: jnp.any(jnp.abs(x * x - a) > 1e-4 * a), lambda x: 0.5 * (x + a / x), a),
                by_hand, [np.abs(drawn(64)) * 1e6 + 1])


def attention(positions: int = 1024, heads: int = 8, width: int = 64) -> Kind:
    """What each position takes of those before it."""
    q, k, v = (drawn(1, heads, positions, width, seed=seed) for seed in range(3))

    def function(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(width)
        seen = jnp.tril(jnp.ones((positions, positions), bool))
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1), v)

    def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Kind(function, by_hand, (q, k, v))


def kalman(steps: int = 200) -> Kind:
    """Two states, seen one by one: products and the inverse of small matrices at each step."""
    a, q = np.array([[1, 0.1], [0, 1]], np.float32), np.eye(2, dtype=np.float32) * 0.01

    def step(carry: Any, z: Any, a: Any, q: Any, eye: Any) -> tuple[Any, Any]:
        x, p = carry
        x, p = a @ x, a @ p @ a.T + q
        s = p + eye
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        gain = p @ ((eye * (s[0, 0] + s[1, 1]) - s) / det)
        return x + gain @ (z - x), (eye - gain) @ p

    def function(zs: Any) -> Any:
        eye = jnp.eye(2)

        def body(carry: Any, z: Any) -> Any:
            x, p = step(carry, z, a, q, eye)
            return (x, p), x

        return lax.scan(body, (jnp.zeros(2), eye), zs)[1]

    def by_hand(zs: torch.Tensor) -> torch.Tensor:
        x, p, eye = (make(2, device=zs.device) for make in (torch.zeros, torch.eye, torch.eye))
        move, noise, found = placed(zs, a), placed(zs, q), []
        for z in zs:
            x, p = step((x, p), z, move, noise, eye)
            found.append(x)
        return torch.stack(found)

    return Kind(function, by_hand, [drawn(steps, 2)])


def kalman_solve(states: int = 8, seen: int = 4, steps: int = 200) -> Kind:
    """More states, some of which are seen: a system of equations at each step."""
    rng = np.random.default_rng(0)
    a = (np.eye(states) + 0.01 * rng.standard_normal((states, states))).astype(np.float32)
    h, q = rng.standard_normal((seen, states)).astype(np.float32), np.eye(states, dtype=np.float32) * 0.01

    def step(carry: Any, z: Any, a: Any, h: Any, q: Any, eye: Any, solve: Any) -> tuple[Any, Any]:
        x, p = carry
        x, p = a @ x, a @ p @ a.T + q
        gain = solve(h @ p @ h.T + eye, h @ p).T
        return x + gain @ (z - h @ x), p - gain @ h @ p

    def function(zs: Any) -> Any:
        def body(carry: Any, z: Any) -> Any:
            x, p = step(carry, z, a, h, q, jnp.eye(seen), jnp.linalg.solve)
            return (x, p), x

        return lax.scan(body, (jnp.zeros(states), jnp.eye(states)), zs)[1]

    def by_hand(zs: torch.Tensor) -> torch.Tensor:
        x, p, eye = (placed(zs, m.astype(np.float32)) for m in (np.zeros(states), np.eye(states), np.eye(seen)))
        (move, see, noise), found = (placed(zs, m) for m in (a, h, q)), []
        for z in zs:
            x, p = step((x, p), z, move, see, noise, eye, torch.linalg.solve)
            found.append(x)
        return torch.stack(found)

    return Kind(function, by_hand, [drawn(steps, seen)])


def square_root_filter(states: int = 16, steps: int = 200) -> Kind:
    """The likelihood of a Gaussian process in time: a Cholesky factor and triangular systems at each step."""
    a = (np.eye(states) * 0.9 + 0.01 * np.random.default_rng(0).standard_normal((states, states))).astype(np.float32)

    def function(zs: Any) -> Any:
        def body(p: Any, z: Any) -> Any:
            p = a @ p @ a.T + jnp.eye(states)
            factor = jnp.linalg.cholesky(p + jnp.eye(states))
            white = jax.scipy.linalg.solve_triangular(factor, z, lower=True)
            right = jax.scipy.linalg.solve_triangular(factor, p, lower=True)
            return p - right.T @ right, white @ white / 2 + jnp.log(jnp.diag(factor)).sum()

        return lax.scan(body, jnp.eye(states), zs)[1]

    def by_hand(zs: torch.Tensor) -> torch.Tensor:
        p, move, eye, found = torch.eye(states, device=zs.device), placed(zs, a), torch.eye(states, device=zs.device), []
        for z in zs:
            p = move @ p @ move.T + eye
            factor = torch.linalg.cholesky(p + eye)
            white = torch.linalg.solve_triangular(factor, z[:, None], upper=False)[:, 0]
            right = torch.linalg.solve_triangular(factor, p, upper=False)
            p = p - right.T @ right
            found.append(white @ white / 2 + torch.log(torch.diag(factor)).sum())
        return torch.stack(found)

    return Kind(function, by_hand, [drawn(steps, states)])


def adam(count: int = 100) -> Kind:
    """One update of many small arrays."""
    def function(*flat: Any) -> Any:
        results = []
        for p, g, m, v in (flat[k::count] for k in range(count)):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            results += [p - 1e-3 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v]
        return results

    def by_hand(*flat: torch.Tensor) -> list[torch.Tensor]:
        p, g, m, v = (list(flat[k * count:(k + 1) * count]) for k in range(4))
        m = torch._foreach_add(torch._foreach_mul(m, 0.9), g, alpha=0.1)
        v = torch._foreach_add(torch._foreach_mul(v, 0.999), torch._foreach_mul(g, g), alpha=0.001)
        below = torch._foreach_add(torch._foreach_sqrt(torch._foreach_div(v, 0.001)), 1e-8)
        p = torch._foreach_add(p, torch._foreach_div(torch._foreach_div(m, 0.1), below), alpha=-1e-3)
        return [t for triple in zip(p, m, v, strict=True) for t in triple]

    return Kind(function, by_hand, [np.abs(drawn(32, 32, seed=k)) for k in range(4 * count)])


KINDS: dict[str, Callable[[], Kind]] = {
    "elementwise chain, 4M": chain, "softmax rows": softmax, "layer norm rows": layer_norm, "sums and maxima": reduction,
    "argmax": argmax, "running sum": running_sum, "sort, 1M": sort, "sort by key, 1M": sort_by_key, "top 16 of rows": top_k,
    "gather rows": gather, "scatter-add rows": scatter_add, "segment sum": segment_sum, "embedding gradient": embedding_gradient,
    "random bits, 1M": random_bits, "random normals, 1M": random_normals, "1,000 steps over ten elements": counted_loop,
    "Newton, until found": newton, "Kalman filter, 200 steps": kalman,
    "Kalman filter, 8 states by solve": kalman_solve, "Gaussian filter, 16 states by factors": square_root_filter,
    "Adam, 100 arrays": adam,
    "attention, 1,024 positions": attention,
}
