"""Gradients of loops of unknown length as plain HLO: what real XLA runs of the texts that we print, where no bound is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax import lax

import xla_torch
from support.gradient_loops import (
    WHILES,
    XS,
    B,
    H,
    R,
    W,
    check,
    doubling,
    in_a_scan,
    in_itself,
    unrolled,
    weights_inside,
)
from support.jax_oracle import compare, evaluated_in_steps, program, to_torch
from support.oracle import run_xla
from xla_torch.autodiff.options import GradientOptions
from xla_torch.core import tuning
from xla_torch.errors import DifferentiationError
from xla_torch.hlo.custom_calls import unregister

PORTABLE = GradientOptions(portable=True)


def is_plain(text: str) -> bool:
    return "xla_torch." not in text and "[?" not in text


@pytest.mark.parametrize("function", WHILES, ids=lambda f: f.__name__)
def test_xla_runs_the_gradients_text(function: Any) -> None:
    """The program keeps its stacks, and what is printed has none."""
    want = unrolled(function)
    text = xla_torch.vjp(program(function, W, B, H, XS), want.argnums).to_hlo_text()
    assert is_plain(text)
    compare(run_xla(text, W, B, H, XS, *want.cotangents), want.gradients, 1e-9)


@pytest.mark.parametrize("function", WHILES, ids=lambda f: f.__name__)
def test_short_segments(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many snapshots; and our own runtime does the same."""
    monkeypatch.setattr(tuning, "SEGMENT", 1)
    check(function, PORTABLE)


@pytest.mark.parametrize("checkpoint", [None, 4, "sqrt"])
@pytest.mark.parametrize("function", [doubling, in_a_scan, in_itself], ids=lambda f: f.__name__)
def test_segments_of_the_users_choice(function: Any, checkpoint: Any) -> None:
    check(function, GradientOptions(portable=True, loop_checkpoint=checkpoint), on_xla=True)


def long(h: Any, n: Any) -> Any:
    return lax.while_loop(lambda c: c[1] < n, lambda c: (c[0] + jnp.sin(3 * c[0]) / n, c[1] + 1), (h, 0.0))[0]


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 63, 65, 128, 1000, 4097])
def test_any_number_of_iterations(n: int) -> None:
    h, ct = np.linspace(0.1, 1, 5), np.ones(5)
    derivative = xla_torch.vjp(program(long, h, np.float64(3)), [0])
    (want,) = derivative(*map(to_torch, (h, np.float64(n), ct)))
    compare(run_xla(derivative.to_hlo_text(), h, np.float64(n), ct), [want.numpy()], 1e-11)


COUNTING = """HloModule counting
goes_on {
  c = (f64[2], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(c), index=1
  n = s32[] get-tuple-element(c), index=2
  ROOT less = pred[] compare(i, n), direction=LT
}
step {
  c = (f64[2], s32[], s32[]) parameter(0)
  x = f64[2] get-tuple-element(c), index=0
  i = s32[] get-tuple-element(c), index=1
  n = s32[] get-tuple-element(c), index=2
  y = f64[2] custom-call(x), custom_call_target="test.counted_sine"
  z = f64[2] add(x, y)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT all = (f64[2], s32[], s32[]) tuple(z, next, n)
}
ENTRY main {
  x = f64[2] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  init = (f64[2], s32[], s32[]) tuple(x, zero, n)
  loop = (f64[2], s32[], s32[]) while(init), condition=goes_on, body=step
  ROOT y = f64[2] get-tuple-element(loop), index=0
}"""


@pytest.mark.parametrize("n", [10, 100, 700])
def test_iterations_are_run_again_a_logarithm_of_times(n: int) -> None:
    """Once with their rows kept, and between snapshots. Counting calls nothing, and the call's gradient has its result."""
    calls: list[int] = []

    def sine(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.sin(x)

    xla_torch.register_custom_call("test.counted_sine", sine, vjp=lambda ct, out, x: (ct * torch.cos(x),))
    try:
        derivative = xla_torch.grad(xla_torch.parse_hlo(COUNTING), options=PORTABLE)
        derivative(torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor(n, dtype=torch.int32))
    finally:
        unregister("test.counted_sine")
    again = n / 2 * max(0, math.log2(n / tuning.SEGMENT))
    assert n <= len(calls) <= n + again + 2 * tuning.SEGMENT


@pytest.mark.parametrize("function", [doubling, *(pytest.param(f, marks=pytest.mark.slow) for f in (weights_inside, in_a_scan))],
                         ids=lambda f: f.__name__)
def test_the_gradient_of_a_gradient(function: Any) -> None:
    def first(w: Any, b: Any, h: Any, xs: Any) -> Any:
        return sum(leaf.sum() for leaf in jax.tree.leaves(function(w, b + w[2], h + w[:2], xs)) if leaf.dtype == W.dtype)

    direction = R.randn(3, 3)
    want = evaluated_in_steps(jax.grad(lambda w, d: jnp.vdot(jax.grad(first)(w, B, H, XS), d)), W, direction,
                              known_by=(first, (W, B, H, XS)))
    derivative = xla_torch.vjp(xla_torch.grad(program(first, W, B, H, XS)), (0,))
    text = derivative.to_hlo_text()
    assert is_plain(text)
    compare(run_xla(text, W, B, H, XS, direction), want, 1e-8)


# ------------------------------------------------------------------------------------------------ what cannot be

RANDOM = """HloModule random
goes_on {
  c = (f64[3], f64[]) parameter(0)
  i = f64[] get-tuple-element(c), index=1
  five = f64[] constant(5)
  ROOT less = pred[] compare(i, five), direction=LT
}
step {
  c = (f64[3], f64[]) parameter(0)
  x = f64[3] get-tuple-element(c), index=0
  i = f64[] get-tuple-element(c), index=1
  zero = f64[] constant(0)
  one = f64[] constant(1)
  r = f64[3] rng(zero, one), distribution=rng_uniform
  y = f64[3] multiply(x, r)
  next = f64[] add(i, one)
  ROOT all = (f64[3], f64[]) tuple(y, next)
}
ENTRY main {
  x = f64[3] parameter(0)
  zero = f64[] constant(0)
  init = (f64[3], f64[]) tuple(x, zero)
  loop = (f64[3], f64[]) while(init), condition=goes_on, body=step
  ROOT y = f64[3] get-tuple-element(loop), index=0
}"""


def test_random_numbers_are_not_drawn_again() -> None:
    """Then there are stacks, or it is said that there is no other way."""
    program = xla_torch.parse_hlo(RANDOM)
    assert "xla_torch.tape_push" in xla_torch.grad(program).to_hlo_text()
    with pytest.raises(DifferentiationError, match=r"(?s)has no gradient in plain HLO.*loop_bound"):
        xla_torch.grad(program, options=PORTABLE)
    assert is_plain(xla_torch.grad(program, options=GradientOptions(portable=True, loop_bound=9)).to_hlo_text())
