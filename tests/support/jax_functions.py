"""Programs for the entry points to differentiation and batching: functions of JAX, with arguments. The first argument is real."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.oracle import HAS_XLA

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

_R = np.random.RandomState(0)
MATRIX, WIDE, ROW, SQUARE = _R.randn(4, 3), _R.randn(3, 5), _R.randn(3), _R.randn(3, 3)


def elementwise(a, v):
    return jnp.sin(a) * jnp.exp(-a * v) / (1 + a * a)


def mlp_loss(w, x):
    hidden = jnp.tanh(x @ w)
    return -jax.nn.log_softmax(hidden @ w)[:, 0].mean()


def scanned(w, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum()

    return lax.scan(step, jnp.zeros(3), xs)


def newton(a):
    return lax.while_loop(lambda x: (jnp.abs(x * x - a) > 1e-10).any(), lambda x: 0.5 * (x + a / x), a)


def convolved(kernel, image):
    return lax.conv_general_dilated(image, kernel, (1, 2), "SAME")


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"), jnp.cumsum(x, 2)


def placed(x, rows):
    return x[rows] * 2, x.at[rows].add(jnp.sin(x[rows])), lax.dynamic_slice(x, (rows[0], rows[1]), (2, 2))


def updated(x, rows):
    return lax.dynamic_update_slice(x, jnp.cos(x[:2, :2]), (rows[2], rows[0])), jnp.argmax(x, 1)


def through_complex(a, v):
    z = lax.complex(a, a * 2) * jnp.exp(1j * v)
    return jnp.abs(z).sum(), jnp.real(z * z), jnp.imag(jnp.fft.fft(z))


def branched(a, v):
    return lax.cond(a.sum() > 0, lambda a, v: jnp.sin(a) * v, lambda a, v: a + v, a, v)


def switched(a, number):
    return lax.switch(number, [jnp.sin, lambda a: a * 2, jnp.ones_like, jnp.exp], a)


def ordered(a, v):
    return jnp.sort(a * v, axis=0), lax.top_k(v * a[0], 2)[0], a.max(1), jnp.prod(a, 0)


def factored(a):
    m = a @ a.T + 4 * jnp.eye(3)
    lower = jnp.linalg.cholesky(m)
    return lower, lax.linalg.triangular_solve(lower, a, left_side=True, lower=True)


def rearranged(a, v):
    both = jnp.concatenate([a, a * v], 0)
    return both[1:5:2] * 2, jnp.pad(both, ((1, 0), (0, 2)), constant_values=0.5)[::-1], both.reshape(2, -1).T


def noisy(a, key):
    key = jax.random.wrap_key_data(key)
    return a * jax.random.normal(key, a.shape), jnp.where(jax.random.bernoulli(key, 0.5, a.shape), a, 0)


ROWS: list[tuple[Any, tuple[Any, ...]]] = [
    (elementwise, (MATRIX, ROW)), (mlp_loss, (SQUARE, MATRIX)), (scanned, (SQUARE, MATRIX)), (newton, (np.abs(ROW) + 0.5,)),
    (convolved, (_R.randn(3, 2, 3, 3), _R.randn(1, 2, 5, 6))), (pooled, (_R.randn(1, 2, 4, 4),)),
    (placed, (MATRIX, np.array([0, 2, 3]))), (updated, (MATRIX, np.array([0, 2, 3]))), (through_complex, (MATRIX, ROW)),
    (branched, (MATRIX, ROW)), (branched, (-MATRIX, ROW)), (switched, (MATRIX, np.int32(3))), (ordered, (MATRIX, ROW)),
    (factored, (SQUARE,)), (rearranged, (MATRIX, ROW)), (noisy, (ROW, np.array([1, 2], np.uint32))),
]

NAMES = [f"{function.__name__}-{k}" for k, (function, _) in enumerate(ROWS)]
