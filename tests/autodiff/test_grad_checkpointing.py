"""Loops cut into segments, and the memory that gradients of loops take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.counting import Counted
from support.gradient_loops import (
    COUNTED,
    WHILES,
    H,
    W,
    check,
    counted_as_it_goes,
    in_a_scan,
    in_itself,
    loop_shapes,
    rows_written,
)
from support.jax_oracle import compare, program, to_torch
from support.oracle import HAS_XLA, needs_xla
from xla_torch.autodiff.options import GradientOptions

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax


@needs_xla
@pytest.mark.parametrize("checkpoint", [2, "sqrt"])
@pytest.mark.parametrize("function", WHILES, ids=lambda f: f.__name__)
def test_segments_of_a_while(function, checkpoint):
    check(function, GradientOptions(loop_checkpoint=checkpoint))


@needs_xla
@pytest.mark.parametrize("checkpoint", [4, "sqrt"])
@pytest.mark.parametrize("function", [counted_as_it_goes, rows_written, in_a_scan, in_itself], ids=lambda f: f.__name__)
def test_segments_of_a_while_with_a_bound(function, checkpoint):
    check(function, GradientOptions(loop_checkpoint=checkpoint, loop_bound=60), on_xla=True)


@needs_xla
@pytest.mark.parametrize("checkpoint", [1, 3, 100, "sqrt"])
@pytest.mark.parametrize("function", COUNTED, ids=lambda f: f.__name__)
def test_segments_of_a_counted_loop(function, checkpoint):
    check(function, GradientOptions(loop_checkpoint=checkpoint), on_xla=checkpoint == 3)


@needs_xla
def test_only_the_carries_between_segments_are_kept():
    def function(w, h):
        return lax.fori_loop(0, 100, lambda i, h: jnp.tanh(h @ w) * jnp.exp(h), h)

    found = loop_shapes(xla_torch.vjp(program(function, W, H), options=GradientOptions(loop_checkpoint=20)).entry)
    assert "f64[5,2,3]" in found
    assert "f64[20,2,3]" in found
    assert "f64[100,2,3]" not in found
    found = loop_shapes(xla_torch.vjp(program(function, W, H), options=GradientOptions(memory_bound=1000)).entry)
    assert "f64[10,2,3]" in found
    assert "f64[100,2,3]" not in found


@needs_xla
def test_what_becomes_a_carry_is_kept_once():
    """The result of one iteration, which its way back needs, is the next one's carry."""
    computation = program(lambda w, h: lax.fori_loop(0, 9, lambda i, h: jnp.tanh(h @ w), h), W, H)
    forward = next(i for i in xla_torch.vjp(computation).entry.instructions if i.opcode == "while")
    assert [str(s) for s in forward.shape.tuple_shapes].count("f64[9,2,3]") == 1


@needs_xla
def test_weight_gradients_are_added_up_in_place():
    def function(w, h):
        return lax.fori_loop(0, 9, lambda i, h: jnp.tanh(h @ w), h)

    w = np.random.RandomState(2).randn(96, 96) * 0.1
    derivative = xla_torch.vjp(program(function, w, w[:2]))
    given = [to_torch(w), to_torch(w[:2]), torch.ones(2, 96, dtype=torch.float64)]
    assert "torch.addmm(" in derivative.python_code()
    made = Counted.of(derivative, *given).made
    assert made < 4 * 96 * 96 * 8
    want = jax.vjp(function, w, w[:2])[1](np.ones((2, 96)))
    compare(derivative(*given), [np.asarray(g) for g in want], 1e-9)
    assert (given[2] == 1).all()


@needs_xla
@pytest.mark.parametrize("turned", [False, True])
def test_a_product_is_not_added_later_than_its_factors_live(turned):
    """The sum of products is carried beside the buffer that the products read and that each iteration overwrites."""
    def function(a, total):
        def step(i, c):
            a, total = c
            product = (a @ a).T if turned else a @ a
            return a.at[i].set(jnp.sin(a[i + 1])), total + product

        return lax.fori_loop(0, 5, step, (a, total))

    a, total = np.random.RandomState(3).randn(2, 80, 80)
    found = program(function, a, total)(to_torch(a), to_torch(total))
    for got, want in zip(found, function(a, total), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-9)


# ------------------------------------------------------------------------------------------------ memory


WIDTH = 32
ROW = 4 * WIDTH


def long_while(n):
    """A loop of n steps that does not know it."""
    def function(w, h):
        return lax.while_loop(lambda c: c[1].sum() < n, lambda c: (jnp.tanh(c[0] * w), c[1] + 1), (h, jnp.zeros(1, "f")))[0].sum()

    return function


def long_scan(n):
    return lambda w, h: lax.fori_loop(0, n, lambda i, h: jnp.tanh(h * w), h).sum()


@needs_xla
@pytest.mark.parametrize("make", [long_while, long_scan])
def test_memory_is_one_row_for_each_iteration_and_the_root_of_that_with_segments(make):
    w, h = np.full(WIDTH, 1.01, np.float32), np.ones(WIDTH, np.float32)

    def peak(n: int, **options: Any) -> int:
        derivative = xla_torch.value_and_grad(program(make(n), w, h), options=GradientOptions(**options))
        return Counted.of(derivative, to_torch(w), to_torch(h)).peak

    assert 900 * ROW < peak(900) < 900 * ROW * 1.1 + 40 * ROW
    assert peak(900, loop_checkpoint="sqrt") < 120 * ROW
    assert peak(900, loop_checkpoint=30) < 120 * ROW


@needs_xla
@pytest.mark.parametrize("checkpoint", [None, "sqrt"])
@pytest.mark.parametrize("make", [long_while, long_scan])
def test_ten_thousand_steps_train(make, checkpoint):
    w, h = np.full(WIDTH, 1.3, np.float32), np.ones(WIDTH, np.float32)
    options = GradientOptions(loop_checkpoint=checkpoint)
    module = xla_torch.nn.XlaModule(program(make(10_000), w, h), parameters=[to_torch(w)], gradient_options=options)
    before = module(to_torch(h))
    before.backward()
    with torch.no_grad():
        for parameter in module.parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
            parameter -= 0.01 * parameter.grad
    assert module(to_torch(h)) < before


@needs_xla
def test_a_view_does_not_keep_what_it_looks_into():
    def function(w, h):
        def step(c):
            large = jnp.tanh(jnp.broadcast_to(c[0], (200, WIDTH)) * w)
            return large[7], c[1] + 1

        return lax.while_loop(lambda c: c[1].sum() < 50, step, (h, jnp.zeros(1, "f")))[0].sum()

    w, h = np.full(WIDTH, 1.01, np.float32), np.ones(WIDTH, np.float32)
    derivative = xla_torch.grad(program(function, w, h), (1,), options=GradientOptions())
    assert Counted.of(derivative, to_torch(w), to_torch(h)).peak < 50 * 200 * ROW * 1.5
