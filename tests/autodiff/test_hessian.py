"""Hessians as programs: as JAX's and torch's, of flat programs, functions over trees and programs of unknown sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla, run_xla
from xla_torch.errors import DifferentiationError, UnsupportedError

W = np.linspace(-1, 1, 6).reshape(3, 2)
X = np.linspace(-0.5, 1.5, 3)


@jax.custom_vjp
def odd(x: Any) -> Any:
    return jnp.sin(x)


odd.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * x * x,))

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quadratic": lambda w, x: (x @ w) @ (x @ w),
    "softmax": lambda w, x: jax.nn.logsumexp(x @ w) + jnp.tanh(w).sum() * x[0],
    "a loop": lambda w, x: jax.lax.fori_loop(0, 3, lambda _, h: jnp.sin(h @ w @ w.T), x).sum(),
    "an author's derivative": lambda w, x: odd(x @ w).sum(),
    "several results": lambda w, x: ((w * x[:, None] ** 3).sum(), w),
    "linear": lambda w, x: (x @ w).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("argnum", [0, 1])
def test_as_jax(name: str, argnum: int) -> None:
    function = FUNCTIONS[name]

    def first(*arguments: Any) -> Any:
        return jax.tree.leaves(function(*arguments))[0]

    with jax.enable_x64():
        program = xla_torch.from_jax(function, W, X)
        want = jax.hessian(first, argnum)(W, X)
    found = xla_torch.hessian(program, argnum)(torch.tensor(W), torch.tensor(X))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-9, atol=1e-12)


TEXT = """HloModule m
add { a = f64[] parameter(0) b = f64[] parameter(1) ROOT r = f64[] add(a, b) }
ENTRY e { x = f64[2,2] parameter(0) s = f64[2,2] sine(x) p = f64[2,2] multiply(s, x) z = f64[] constant(0)
  ROOT r = f64[] reduce(p, z), dimensions={0,1}, to_apply=add }"""


def test_of_text_and_again_differentiated() -> None:
    program = xla_torch.hessian(xla_torch.parse_hlo(TEXT, derivatives="as written"))
    x = torch.linspace(-1, 1, 4, dtype=torch.float64).reshape(2, 2).requires_grad_()
    want = torch.autograd.functional.hessian(lambda v: (v.sin() * v).sum(), x)
    torch.testing.assert_close(program(x), want)
    (third,) = torch.autograd.grad(program(x).sum(), x)
    torch.testing.assert_close(third, (-3 * x.sin() - x * x.cos()).detach())


@needs_xla
def test_real_xla_runs_the_hessian_of_a_loop_of_unknown_length() -> None:
    def function(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1].sum()

    x = np.array([0.5, -1.0], np.float32)
    text = xla_torch.from_jax(function, x).to_hlo_text()
    program = xla_torch.hessian(xla_torch.parse_hlo(text, derivatives="as written"))
    (want,) = run_xla(program.to_hlo_text(), x)
    np.testing.assert_allclose(program(torch.tensor(x)).numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_scalar() -> None:
    program = xla_torch.hessian(xla_torch.from_jax(lambda x: x**3, np.float32(2)))
    assert program(torch.tensor(2.0)).item() == pytest.approx(12)


@pytest.mark.parametrize(("function", "argnum", "error", "words"), [
    (lambda w: (w["a"] ** 2).sum(), 0, UnsupportedError, "not a tuple"),
    (lambda w: w["n"].sum() * 1.0, 0, UnsupportedError, "not a tuple"),
])
def test_trees_are_refused(function: Any, argnum: int, error: type[Exception], words: str) -> None:
    program = xla_torch.from_jax(function, {"a": np.ones(2, np.float32), "n": np.ones(2, np.int32)})
    with pytest.raises(error, match=words):
        xla_torch.hessian(program, argnum)


@pytest.mark.parametrize("kind", ["s32", "c64"])
def test_other_arrays_are_refused(kind: str) -> None:
    text = f"HloModule m ENTRY e {{ x = {kind}[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] " + (
        "add(y, y) }" if kind == "s32" else "real(x) }")
    with pytest.raises(DifferentiationError):
        xla_torch.hessian(xla_torch.parse_hlo(text, derivatives="as written"))
