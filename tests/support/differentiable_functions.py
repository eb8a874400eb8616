"""JAX functions, each with a trait that reverse mode must get right, and their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.oracle import HAS_XLA

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

R = np.random.RandomState(0)
A, B, V = R.randn(4, 3), R.randn(3, 5), R.randn(3)


def dense(a, b):
    return jnp.tanh(a @ b)


def reused(a, v):
    y = a * v
    return (y + y * y + jnp.exp(y) * v).sum()


def several_results(a, v):
    return jnp.sin(a), a.argmax(1), (v * 2, a.sum() + v.sum())


def unused_argument(a, b):
    return a * 2


def constant_result(a):
    return jnp.ones(3), a * 2


def cross_entropy(a, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(a), labels[:, None], 1).mean()


def layer_norm(a, v):
    centred = a - a.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * v


def two_branches(a, v):
    return lax.cond(a.sum() > 0, lambda a, v: jnp.sin(a) * v, lambda a, v: a + v @ jnp.ones((3, 3)), a, v)


def branches_of_other_operands(a, v):
    return lax.cond(a.sum() > 100, lambda: a * 2, lambda: a * v)


def many_branches(a, i):
    return lax.switch(i, [jnp.sin, lambda a: a * 2, jnp.ones_like, jnp.exp], a)


def branch_in_branch(a, v):
    return lax.cond(v[0] > 0, lambda a: lax.cond(v[1] > 0, jnp.sin, jnp.cos, a) * 2, lambda a: a * v, a)


def custom_derivative(a):
    return jax.nn.relu(a) + jax.nn.logsumexp(a, 0)


def complex_product(a, v):
    z = lax.complex(a, a * 2) * jnp.exp(1j * v)
    return jnp.abs(z).sum(), z * z


def complex_argument(z):
    return z * z + jnp.conj(z), jnp.real(z) * 2, jnp.abs(z)


def table_lookup(a, rows):
    return jnp.sin(a[rows])


def sorted_values(a, v):
    return jnp.sort(a, axis=0) * v, lax.top_k(v, 2)[0]


def random_noise(a, key):
    key = jax.random.wrap_key_data(key)
    return a * jax.random.normal(key, a.shape), jnp.where(jax.random.bernoulli(key, 0.5, a.shape), a, 0)


def joined_and_cut(a, v):
    both = jnp.concatenate([a, a * v], 0)
    return both[1:5:2] * 2, jnp.pad(both, ((1, 0), (0, 2)))[::-1]


PROGRAMS: list[tuple[Any, tuple[Any, ...]]] = [
    (dense, (A, B)), (reused, (A, V)), (several_results, (A, V)), (unused_argument, (A, B)), (constant_result, (A,)),
    (cross_entropy, (A, np.array([0, 2, 1, 1]))), (layer_norm, (A, V)), (two_branches, (A, V)), (two_branches, (-A, V)),
    (branches_of_other_operands, (A, V)), (many_branches, (A, np.int32(2))), (many_branches, (A, np.int32(7))),
    (branch_in_branch, (A, V)), (custom_derivative, (A,)), (complex_product, (A, V)),
    (complex_argument, (A + 1j * A[::-1],)), (table_lookup, (A, np.array([2, 0, 2]))), (sorted_values, (A, V)),
    (random_noise, (A, np.array([1, 2], np.uint32))), (joined_and_cut, (A, V)),
]
