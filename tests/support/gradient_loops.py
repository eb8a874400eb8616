"""Loops to differentiate, and what their gradients are: JAX's, of the same steps run one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import xla_torch
from support.jax_oracle import Vjp, compare, program, to_torch
from support.oracle import HAS_XLA, run_xla
from xla_torch.autodiff.options import GradientOptions
from xla_torch.hlo.ir import Computation, reachable

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

R = np.random.RandomState(0)
W, B, H, XS = R.randn(3, 3), R.randn(3), R.randn(2, 3), R.randn(5, 2, 3)


# ------------------------------------------------------------------------------------------------ their length depends on data


def doubling(w, b, h, xs):
    return lax.while_loop(lambda h: (h * h).sum() < 100, lambda h: h * 1.5 + jnp.sin(h), h)


def counted_as_it_goes(w, b, h, xs):
    return lax.while_loop(lambda c: (c[1] ** 2).sum() < 50, lambda c: (c[0] + 1, c[1] * 1.3 + xs[c[0] % 5]), (0, h))


def weights_inside(w, b, h, xs):
    def step(c):
        h, n = c
        return jnp.tanh(h @ w + b) * (1 + n), n + 0.25

    return lax.while_loop(lambda c: c[1] < 2.0, step, (h, 0.0))


def no_iterations(w, b, h, xs):
    return lax.while_loop(lambda h: h.sum() > 1e9, lambda h: h @ w, h)


def rows_written(w, b, h, xs):
    def step(c):
        i, rows, total = c
        row = jnp.tanh(rows[i] @ w)
        return i + 1, rows.at[i + 1].set(row * xs[i]), total + jnp.abs(row).sum()

    start = jnp.concatenate([h[None], xs[1:] * 0 + b])
    return lax.while_loop(lambda c: (c[2] < 3.0) & (c[0] < 4), step, (0, start, 0.0))


def rows_rewritten(w, b, h, xs):
    def step(c):
        i, rows = c
        row = rows[i % 5]
        return i + 1, rows.at[(i + 1) % 5].set(jnp.tanh(row @ w) * rows[(i + 2) % 5] + 1.6 * row)

    return lax.while_loop(lambda c: (c[1] ** 2).sum() < 300, step, (0, xs + b))


def run_time_bound(w, b, h, xs):
    n = (jnp.abs(h).sum() * 2).astype(jnp.int32)
    return lax.fori_loop(0, n, lambda i, h: jnp.tanh(h @ w) * xs[i % 5] + i, h)


def counting_down(w, b, h, xs):
    n = (jnp.abs(h).sum() * 2).astype(jnp.int32)
    return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 2, jnp.sin(c[1] @ w) + c[0]), (n, h))


def newton(w, b, h, xs):
    a = b * b + 1

    def step(c):
        return 0.5 * (c[0] + a / c[0]), c[1] + 1

    return lax.while_loop(lambda c: (jnp.abs(c[0] * c[0] - a).max() > 1e-9) & (c[1] < 50), step, (a, 0))


def tuples_in_tuples(w, b, h, xs):
    def step(c):
        (h, (n, g)), x = c
        return (jnp.sin(h) + x, (n + 1, g * jnp.cos(h))), x

    return lax.while_loop(lambda c: c[0][1][0] < jnp.abs(c[1]).sum(), step, ((h, (jnp.int8(0), h)), xs[0]))


def in_a_scan(w, b, h, xs):
    def outer(h, x):
        g, n = lax.while_loop(lambda c: (c[0] ** 2).sum() < 20, lambda c: (c[0] * 1.4 + x, c[1] + 1), (h, 0))
        return jnp.tanh(g @ w), g * n

    return lax.scan(outer, h, xs)


def around_a_scan(w, b, h, xs):
    def step(h):
        return lax.scan(lambda h, x: (jnp.tanh(h @ w) * 2 + x, None), h, xs)[0] + h

    return lax.while_loop(lambda h: (h * h).sum() < 60, step, h)


def in_itself(w, b, h, xs):
    def step(c):
        inner = lax.while_loop(lambda g: (g * g).sum() < 30, lambda g: g * 1.7 + b, c[0])
        return jnp.sin(inner) + c[0] * 0.1, c[1] + jnp.abs(inner).mean()

    return lax.while_loop(lambda c: c[1] < 6.0, step, (h, 0.0))


def in_a_branch(w, b, h, xs):
    def loop(h):
        return lax.while_loop(lambda h: (h * h).sum() < 40, lambda h: h * 1.5 + b, h)

    return lax.cond(h.sum() < 100, loop, lambda h: h @ w, h)


def around_a_branch(w, b, h, xs):
    def step(c):
        return lax.cond(c[1] % 2 == 0, lambda h: jnp.sin(h) * 3, lambda h: h @ w + b, c[0]), c[1] + 1

    return lax.while_loop(lambda c: jnp.abs(c[0]).max() * c[1] < 9, step, (h, 0))


def in_a_scan_in_a_branch(w, b, h, xs):
    return lax.cond(h.sum() < 100, lambda h: in_a_scan(w, b, h, xs)[0], lambda h: h, h)


def two_in_a_row(w, b, h, xs):
    first = lax.while_loop(lambda h: (h * h).sum() < 40, lambda h: h * 1.5 + b, h)
    return lax.while_loop(lambda h: (h * h).sum() > 1, lambda h: jnp.tanh(h @ w) * 0.5, first), first


def in_a_call(w, b, h, xs):
    return jax.jit(doubling)(w, b, jax.jit(newton)(w, b, h, xs)[0] * h, xs)


def integers_and_bits(w, b, h, xs):
    def step(c):
        h, key, n = c
        key = key * jnp.uint32(1664525) + jnp.uint32(1013904223)
        return jnp.where((key >> 16) % 2 == 0, jnp.tanh(h) + b, h * 1.5), key, n + (key >> 31)

    return lax.while_loop(lambda c: c[2] < 4, step, (h, jnp.uint32(7), jnp.uint32(0)))[0]


WHILES = [doubling, counted_as_it_goes, weights_inside, no_iterations, rows_written, rows_rewritten, run_time_bound,
          counting_down, newton, tuples_in_tuples, in_a_scan, around_a_scan, in_itself, in_a_branch, around_a_branch,
          in_a_scan_in_a_branch, two_in_a_row, in_a_call, integers_and_bits]


# ------------------------------------------------------------------------------------------------ their length is known


def scanned(w, b, h, xs):
    return lax.scan(lambda h, x: (jnp.tanh(h @ w + x) + b, h * 2), h, xs)


def nested(w, b, h, xs):
    def outer(h, x):
        g, ys = lax.scan(lambda g, y: (jnp.tanh(g * y + x[0] @ w), g * b), h[0], x)
        return h * g + ys.sum(0), ys

    return lax.scan(outer, h, xs)


def counting_from_two(w, b, h, xs):
    return lax.fori_loop(2, 9, lambda i, h: jnp.cos(h) * i + b, h)


def down_in_twos(w, b, h, xs):
    return lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 2, jnp.tanh(c[1] @ w) * xs[c[0] // 2] + c[0]), (9, h))[1]


def buffer(w, b, h, xs):
    start = jnp.concatenate([h[None], xs[1:] * 0 + b])
    return lax.fori_loop(0, 4, lambda i, rows: rows.at[i + 1].set(jnp.tanh(rows[i] @ w) * xs[i]), start)


def two_counters(w, b, h, xs):
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] + 3, c[2] * b + jnp.sin(c[2]) * c[1]), (0, 7, h))


COUNTED = [scanned, nested, counting_from_two, down_in_twos, buffer, two_counters]


# ------------------------------------------------------------------------------------------------ what is right


def unrolled(function: Callable[..., Any], arguments: Sequence[Any] = (W, B, H, XS)) -> Vjp:
    """JAX's gradients of the function run step by step in Python, for JAX has none of a while."""
    return Vjp(function, arguments, in_steps=True)


def check(function: Callable[..., Any], options: GradientOptions, on_xla: bool = False) -> None:
    computation, want = program(function, W, B, H, XS), unrolled(function)
    derivative = xla_torch.vjp(computation, want.argnums, options=options)
    given = (W, B, H, XS, *want.cotangents)
    compare(derivative(*map(to_torch, given)), want.gradients, 1e-9)
    if on_xla:
        compare(run_xla(derivative.to_hlo_text(), *given), want.gradients, 1e-9)


def loop_shapes(computation: Computation) -> list[str]:
    """The shapes of all that loops carry."""
    loops = [i for c in reachable([computation]) for i in c.instructions if i.opcode == "while"]
    return [str(leaf) for loop in loops for leaf in loop.shape.leaves()]
