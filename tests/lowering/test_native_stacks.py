"""Gradients of loops of unknown length: what the forward loop keeps is on stacks, which plans have in native memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import native_after
from xla_torch.codegen.compiled import is_available
from xla_torch.codegen.plans import DRIVER
from xla_torch.core import tuning
from xla_torch.errors import LimitError
from xla_torch.kernels import native_plans
from xla_torch.kernels.native_plans import NativePlan
from xla_torch.runtime.computation import XlaComputation

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path) -> Iterator[None]:
    with native_after(0.0, tmp_path):
        yield


def newton(x: jax.Array) -> Any:
    return jnp.sum(jax.lax.while_loop(lambda w: jnp.any(jnp.abs(w * jnp.exp(w) - x) > 1e-6),
                                      lambda w: w - (w * jnp.exp(w) - x) / (jnp.exp(w) * (w + 1)), jnp.log1p(x)))


def collatz(x: jax.Array) -> Any:
    def step(carry: Any) -> Any:
        k, a = carry
        return k + 1, jax.lax.cond(a[0] > 1, lambda a: a * 0.3 + jnp.sin(a[::-1]), lambda a: a * a + 0.5, a)
    return jnp.sum(jax.lax.while_loop(lambda carry: (carry[0] < 200) & (jnp.sum(carry[1]) < 40), step, (0, x))[1])


def nested(x: jax.Array) -> Any:
    def inner(a: jax.Array) -> Any:
        return jax.lax.while_loop(lambda a: jnp.sum(a) < 9, lambda a: a * 1.5 + 0.1, a)
    def outer(carry: Any) -> Any:
        k, a = carry
        return k + 1, inner(a * 0.5) * 1.7 + jnp.cos(a)
    return jnp.sum(jax.lax.while_loop(lambda c: (jnp.sum(c[1]) < 300) & (c[0] * c[1][0] < 20), outer, (0, x))[1])


def within_scan(x: jax.Array) -> Any:
    def step(a: jax.Array, b: jax.Array) -> Any:
        a = jax.lax.while_loop(lambda a: jnp.sum(a) < 20, lambda a: a * 1.2 + b * b, a)
        return a * 0.1, a
    return jnp.sum(jax.lax.scan(step, x, jnp.stack([x, x * 2, x + 1]))[1])


def with_a_step_of_torch(x: jax.Array) -> Any:
    return jnp.sum(jax.lax.while_loop(lambda a: jnp.max(a) < 50, lambda a: jnp.cumsum(jax.lax.sort(a * 1.1))[::-1] + 0.1, x))


def never_begun(x: jax.Array) -> Any:
    return jnp.sum(jax.lax.while_loop(lambda a: jnp.sum(a) < -1, jnp.exp, x) ** 2)


def two_kinds(x: jax.Array) -> Any:
    def step(carry: Any) -> Any:
        z, a = carry
        return z * z * 0.5 + a[:1], a * 1.1 + jnp.abs(z) * 0.1
    z, a = jax.lax.while_loop(lambda c: jnp.sum(c[1]) < 30, step, (x * (0.5 + 0.2j), x))
    return jnp.sum(a) + jnp.sum(jnp.real(z))


LOOPS: list[Callable[[jax.Array], Any]] = [newton, collatz, nested, within_scan, with_a_step_of_torch, never_begun, two_kinds]
GIVEN = np.array([0.5, 1.25, 2.0])


def program(function: Callable[[jax.Array], Any], dtype: Any = np.float64) -> XlaComputation:
    with jax.enable_x64(True):
        return xla_torch.from_jax(function, GIVEN.astype(dtype)).computation


def in_torch(computation: XlaComputation, *arguments: torch.Tensor) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "NATIVE_AFTER", float("inf"))
        return computation(*arguments)


def plans_of(computation: XlaComputation) -> list[NativePlan]:
    return [m for m in computation.program.lowered(torch.device("cpu")).modules() if isinstance(m, NativePlan)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_a_value_and_its_gradient_are_one_plan_and_torch_s(function: Callable[[jax.Array], Any], dtype: Any) -> None:
    x = torch.from_numpy(GIVEN.astype(dtype))
    want = in_torch(xla_torch.value_and_grad(program(function, dtype)), x)
    ours = xla_torch.value_and_grad(program(function, dtype))
    for _ in range(3):
        torch.testing.assert_close(ours(x), want, rtol=1e-5 if dtype is np.float32 else 1e-13, atol=0)
    assert not [m for m in ours.program.lowered(torch.device("cpu")).graph.nodes if "while" in m.name and m.op == "call_function"]


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_stacks_pass_from_the_forward_program_to_the_backward_program(function: Callable[[jax.Array], Any]) -> None:
    _, want = in_torch(xla_torch.value_and_grad(program(function)), torch.from_numpy(GIVEN))
    ours = program(function)
    for _ in range(3):
        x = torch.tensor(GIVEN, requires_grad=True)
        ours(x).backward()
        torch.testing.assert_close(x.grad, want, rtol=1e-13, atol=0)


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_stacks_pass_between_plans_whose_native_code_is_not_there(function: Callable[[jax.Array], Any], tmp_path: Path) -> None:
    value, want = in_torch(xla_torch.value_and_grad(program(function)), torch.from_numpy(GIVEN))
    with native_after(3600.0, tmp_path):
        x = torch.tensor(GIVEN, requires_grad=True)
        program(function)(x).backward()
        got = xla_torch.value_and_grad(program(function))(x.detach())
    torch.testing.assert_close((*got, x.grad), (value, want, want), rtol=1e-13, atol=0)


def test_a_forward_plan_gives_its_rows_to_torch_and_gets_them_back() -> None:
    ours, x = program(newton), torch.tensor(GIVEN, requires_grad=True)
    loss = ours(x)
    with pytest.MonkeyPatch.context() as patch:  # the backward program is torch's, whose stacks are the forward plan's rows
        patch.setattr(tuning, "NATIVE_AFTER", float("inf"))
        loss.backward()
    torch.testing.assert_close(x.grad, in_torch(xla_torch.grad(program(newton)), x.detach()), rtol=1e-13, atol=0)


def test_gradients_of_gradients_have_stacks() -> None:
    x, direction = torch.tensor(GIVEN), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    want = in_torch(xla_torch.jvp(xla_torch.grad(program(collatz))), x, direction)
    torch.testing.assert_close(xla_torch.jvp(xla_torch.grad(program(collatz)))(x, direction), want, rtol=1e-12, atol=0)


STACKS = """HloModule stacks
ENTRY e {
  x = f64[2] parameter(0)
  y = f64[2] parameter(1)
  n = f64[?,2] custom-call(), custom_call_target="xla_torch.tape_new"
  a = f64[?,2] custom-call(n, x), custom_call_target="xla_torch.tape_push"
  b = f64[?,2] custom-call(a, y), custom_call_target="xla_torch.tape_push"
  s = f64[2] add(x, y)
  c = f64[?,2] custom-call(a, s), custom_call_target="xla_torch.tape_push"
  p = (f64[2], f64[?,2]) custom-call(b), custom_call_target="xla_torch.tape_pop"
  p0 = f64[2] get-tuple-element(p), index=0
  p1 = f64[?,2] get-tuple-element(p), index=1
  q = (f64[2], f64[?,2]) custom-call(p1), custom_call_target="xla_torch.tape_pop"
  q0 = f64[2] get-tuple-element(q), index=0
  q1 = f64[?,2] get-tuple-element(q), index=1
  r = (f64[2], f64[?,2]) custom-call(q1), custom_call_target="xla_torch.tape_pop"
  r0 = f64[2] get-tuple-element(r), index=0
  r1 = f64[?,2] get-tuple-element(r), index=1
  t = (f64[2], f64[?,2]) custom-call(c), custom_call_target="xla_torch.tape_pop"
  t0 = f64[2] get-tuple-element(t), index=0
  m = f64[2] multiply(t0, p0)
  ROOT o = (f64[2], f64[2], f64[2], f64[2], f64[?,2], f64[?,2], f64[?,2]) tuple(p0, q0, r0, m, b, c, r1)
}"""


def test_a_stack_may_have_several_readers_and_has_zeros_below() -> None:
    x, y = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([3.0, 5.0], dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "BUNDLE_LEAST", 1)
        ours = xla_torch.parse_hlo(STACKS)
        for _ in range(2):
            found = ours(x, y)
            want = [y, x, 0 * x, (x + y) * y, torch.stack([x, y]), torch.stack([x, x + y]), x.new_empty((0, 2))]
            torch.testing.assert_close(list(found), want, rtol=0, atol=0)
    assert plans_of(ours)


def test_nothing_stays_on_a_stack_after_a_call_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = xla_torch.value_and_grad(program(newton))
    x = torch.from_numpy(GIVEN)
    ours(x)
    (plan,) = (p for p in plans_of(ours) if p.plan.stacks)
    (instance,) = plan._idle
    assert not instance.arena[:instance.first - instance.arena.data_ptr() + 8 * len(plan.plan.stacks)].any()

    monkeypatch.setattr(native_plans, "DRIVER", DRIVER.replace("malloc(sizeof(cell) + size)", "0"))
    without_memory = xla_torch.value_and_grad(program(newton))
    with pytest.raises(LimitError, match="a loop of unknown length"):
        without_memory(x)
