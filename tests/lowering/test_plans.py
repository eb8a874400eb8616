"""Plans: small programs with ops that native code does not know, as one native call that calls torch for these alone."""

from __future__ import annotations

import copy
import gc
import math
import threading
import weakref
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
from xla_torch.core import tuning
from xla_torch.kernels.native_plans import NativePlan

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path) -> Iterator[None]:
    with native_after(0.0, tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "BUNDLE_LEAST", 2)
        yield


def plans_of(function: Any) -> list[NativePlan]:
    return [m for m in function.computation.lowered().modules() if isinstance(m, NativePlan)]


def unknown(x: jax.Array) -> jax.Array:
    """A sorting by magnitude: no op of native code where a row is longer than `tuning.NATIVE_MERGE`, here set to 0."""
    return jax.lax.sort(x)


def scan(x: jax.Array) -> Any:
    def step(a: jax.Array, _: None) -> Any:
        b = unknown(a @ a.T + jnp.sin(a))
        return a * 0.9 + 0.1 * jnp.cos(b), b[0]
    return jax.lax.scan(step, x, None, length=6)


def while_with_branch(x: jax.Array) -> Any:
    def step(carry: Any) -> Any:
        k, a = carry
        b = unknown(a)
        a = jax.lax.cond(b[0, 0] > 0, lambda a: unknown(jnp.sin(a)), lambda a: a * 0.9 + jnp.cos(b), a)
        return k + 1, a
    return jax.lax.while_loop(lambda carry: (carry[0] < 9) & (carry[1][0, 0] < 100), step, (0, x))


def exchanged_carries(x: jax.Array) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + unknown(c[1]) * 0.1, c[2] + i, c[2]), (x, x * 2 + 1, 0.0, 1.0))


def nested(x: jax.Array) -> Any:
    def inner(i: Any, a: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda j, b: unknown(b * 0.5 + i) - j, a) + x
    return jax.lax.fori_loop(0, 4, inner, x), jax.lax.fori_loop(0, 0, inner, x)


def switched(x: jax.Array) -> Any:
    branches = [unknown, lambda a: a * 2, lambda a: unknown(a + 1)[::-1]]
    return [jax.lax.switch(k + (x[0, 0] > 100).astype(int), branches, x) for k in (-3, 0, 1, 2, 9)]


def without_elements(x: jax.Array) -> Any:
    def step(carry: Any, _: None) -> Any:
        a, e = carry
        a = jnp.concatenate([unknown(a), e], 0) + jnp.sum(e) + jnp.pad(e, ((1, 3), (0, 0)), constant_values=0.5)[:1]
        return (a, e * 2), e
    return jax.lax.scan(step, (x, jnp.zeros((0, x.shape[1]))), None, length=4)


def results_of_all_kinds(x: jax.Array) -> Any:
    a = unknown(jnp.sin(x))
    return a, a.T, x, x, a, jnp.float32(3) * jnp.ones(2), a[0] + a[1], jnp.arange(3)


def callback(x: jax.Array) -> Any:
    def step(a: jax.Array, _: None) -> Any:
        b = jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(a.shape, a.dtype), a)
        return a + b * 0.1, b.sum()
    return jax.lax.scan(step, x, None, length=4)


def linear_algebra(x: jax.Array) -> Any:
    def step(a: jax.Array, _: None) -> Any:
        w, v = jnp.linalg.eigh(a + a.T)
        s = jnp.linalg.svd(a, compute_uv=False)
        return a * 0.5 + jnp.abs(v * v) * 0.1, (w, s)
    return jax.lax.scan(step, x, None, length=3)


def _updated(read: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]) -> Callable[[jax.Array], Any]:
    """A loop that updates a row of a buffer and reads the buffer: `read` takes it, a row number and a row, and gives the row to
    write and the next one."""
    def function(x: jax.Array) -> Any:
        def step(k: Any, carry: Any) -> Any:
            buffer, row = carry
            written, row = read(buffer, k, row)
            return jax.lax.dynamic_update_slice(buffer, written[None], (k, 0)), row
        return jax.lax.fori_loop(0, x.shape[0], step, (x, x[0]))
    return function


IN_PLACE: dict[str, Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]] = {
    "the row itself": lambda b, k, r: (jnp.where(r > 0, r, b[k]), unknown(r[None])[0] * 0.9),
    "another row": lambda b, k, r: (b[::-1][k] + r, unknown(r[None])[0] * 0.9),
    "the sum, beside it": lambda b, k, r: (r, unknown(r[None])[0] * 0.9 + b.sum()),
    "by a call": lambda b, k, r: (r, unknown(b)[0] + r),
    "after a call": lambda b, k, r: (r + 1, unknown(r[None])[0] * b[0] + b[k]),
    "before a call": lambda b, k, r: (unknown(r[None] + b[k])[0], r * b.sum(0)),
    "in a branch": lambda b, k, r: (r, jax.lax.cond(r[0] > 0, lambda: unknown(b)[k] + 1, lambda: b[0]))}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_buffer_that_is_updated_is_read_as_it_was(name: str) -> None:
    function, x = _updated(IN_PLACE[name]), np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    ours = xla_torch.from_jax(function, x)
    for given in (x, -x):
        for found, expected in zip(ours(torch.from_numpy(given)), function(jnp.asarray(given)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


ROWS: list[Callable[[jax.Array], Any]] = [
    scan, while_with_branch, exchanged_carries, nested, switched, without_elements, results_of_all_kinds, callback,
    linear_algebra]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", ROWS, ids=lambda f: f.__name__)
def test_values_are_jax_s(function: Callable[[jax.Array], Any], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_MERGE", 0)
    monkeypatch.setattr(tuning, "NATIVE_SORT", 0)
    with jax.enable_x64(dtype is np.float64):
        x = np.random.default_rng(0).normal(size=(4, 4)).astype(dtype)
        want = jax.tree.leaves(function(jnp.asarray(x)))
        ours = xla_torch.from_jax(function, x)
        assert plans_of(ours) or function is linear_algebra  # whose routines native code calls by itself
        for given in (torch.from_numpy(x), torch.from_numpy(x.T.copy()).t(), torch.from_numpy(x)):
            got = jax.tree.leaves(ours(given))
            assert all(plan.seconds == 0 for plan in plans_of(ours))
            for mine, theirs in zip(got, want, strict=True):
                np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4 if dtype is np.float32 else 1e-9, atol=1e-5)
        assert len({t.data_ptr() for t in got if t.numel()}) == sum(t.numel() > 0 for t in got)


def failing(limit: float) -> Any:
    """A loop whose callback raises once its number exceeds a limit."""
    def check(a: np.ndarray) -> np.ndarray:
        if a.max() > limit:
            raise KeyError("too large")
        return a * 2

    def program(x: jax.Array) -> jax.Array:
        def step(_: Any, a: jax.Array) -> jax.Array:
            return jnp.sin(a) * 0 + jax.pure_callback(check, jax.ShapeDtypeStruct(a.shape, a.dtype), a)
        return jax.lax.fori_loop(0, 5, step, x)
    return program


def test_what_a_callback_raises_is_raised_and_the_next_call_computes() -> None:
    ours = xla_torch.from_jax(failing(100.0), np.ones(3, np.float32))
    assert plans_of(ours)
    for _ in range(2):
        with pytest.raises(Exception, match="too large"):
            ours(torch.full((3,), 90.0))
        torch.testing.assert_close(ours(torch.ones(3)), torch.full((3,), 32.0))


def test_an_interrupt_ends_a_plan() -> None:
    def interrupt(a: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    def program(x: jax.Array) -> jax.Array:
        return jnp.cos(jax.pure_callback(interrupt, jax.ShapeDtypeStruct(x.shape, x.dtype), jnp.sin(x))) + 1

    ours = xla_torch.from_jax(program, np.ones(3, np.float32))
    with pytest.raises(KeyboardInterrupt):
        ours(torch.ones(3))


def test_effects_keep_their_order() -> None:
    seen: list[float] = []

    def program(x: jax.Array) -> jax.Array:
        for k in range(4):
            x = jnp.sin(x) + k
            jax.debug.callback(lambda a: seen.append(float(a)), x[0], ordered=False)
        return x

    ours = xla_torch.from_jax(program, np.ones(3, np.float32))
    ours(torch.ones(3))
    want, x = [], 1.0
    for k in range(4):
        x = math.sin(x) + k
        want.append(x)
    np.testing.assert_allclose(seen, want, rtol=1e-6)


def test_a_callback_may_keep_its_arrays() -> None:
    kept: list[np.ndarray] = []

    def keep(a: np.ndarray) -> np.ndarray:
        kept.append(np.asarray(a))
        return np.asarray(a) + 1

    def program(x: jax.Array) -> jax.Array:
        for _ in range(3):
            x = jax.pure_callback(keep, jax.ShapeDtypeStruct(x.shape, x.dtype), jnp.sin(x) * 2) - 1
        return x

    ours = xla_torch.from_jax(program, np.ones(3, np.float32))
    assert plans_of(ours)
    want = []
    for start in (0.5, -0.25):
        x = np.full(3, start, np.float32)
        ours(torch.from_numpy(x))
        for _ in range(3):
            x = np.sin(x) * 2
            want.append(x)
    for mine, theirs in zip(kept, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_threads_and_recursion_have_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_MERGE", 0)
    monkeypatch.setattr(tuning, "NATIVE_SORT", 0)
    ours = xla_torch.from_jax(scan, np.ones((4, 4), np.float32))
    inputs = [torch.randn(4, 4, generator=torch.Generator().manual_seed(k)) for k in range(4)]
    want = [ours(x) for x in inputs]
    found: dict[int, bool] = {}

    def work(k: int) -> None:
        found[k] = all(torch.equal(a, b) for _ in range(50) for a, b in zip(ours(inputs[k]), want[k], strict=True))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)

    def within(a: np.ndarray) -> np.ndarray:
        return np.asarray(outer(torch.from_numpy(np.array(a)) * 0.5)) if a.max() > 0.5 else np.asarray(a)

    def program(x: jax.Array) -> jax.Array:
        return jnp.sin(jax.pure_callback(within, jax.ShapeDtypeStruct(x.shape, x.dtype), x * 1)) + jnp.cos(x)

    outer = xla_torch.from_jax(program, np.ones(3, np.float32))

    def wanted(x: np.ndarray) -> np.ndarray:
        return np.sin(wanted(x * 0.5) if x.max() > 0.5 else x) + np.cos(x)

    x = np.array([0.1, 0.7, 1.9], np.float32)
    np.testing.assert_allclose(outer(torch.from_numpy(x)).numpy(), wanted(x), rtol=1e-5)


def test_copies_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_MERGE", 0)
    monkeypatch.setattr(tuning, "NATIVE_SORT", 0)
    ours = xla_torch.from_jax(nested, np.ones((4, 4), np.float32))
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    want = ours(x)
    module = copy.deepcopy(plans_of(ours)[0])
    for mine, theirs in zip(module.module(x), want, strict=False):
        assert mine.shape == theirs.shape
    with xla_torch.limits(max_loop_steps=5), pytest.raises(xla_torch.errors.LimitError):
        ours(x)
    torch.testing.assert_close(ours(x), want)


def test_a_large_plan_runs_its_drafts_until_its_chunks_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_MERGE", 0)
    monkeypatch.setattr(tuning, "NATIVE_SORT", 0)
    monkeypatch.setattr(tuning, "DRAFTED_PLAN", 0)
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    want = jax.tree.leaves(scan(jnp.asarray(x)))
    ours = xla_torch.from_jax(scan, x)
    (plan,) = plans_of(ours)
    is_ready = type(plan.chunks[0]).is_ready
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plan.chunks[0]), "is_ready", lambda chunk: bool(chunk.own) and is_ready(chunk))
        for _ in range(2):
            for a, b in zip(jax.tree.leaves(ours(torch.from_numpy(x))), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)
        assert plan.running is plan.drafts
    for a, b in zip(jax.tree.leaves(ours(torch.from_numpy(x))), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert plan.running is plan.chunks
    assert [instance.chunks is plan.chunks for instance in plan._idle] == [True]


@pytest.mark.parametrize("count", [255, 256, 257, 600])
def test_chunks_are_of_bounded_length(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "BUNDLE_MOST", 64)

    def chain(x: jax.Array) -> Any:
        kept = []
        for k in range(count):
            x = jnp.sin(x) if k % 3 else x[::-1] * 0.5 + kept[-2:][0] if kept else x + 1
            kept += [x] * (k % 50 == 0)
        return x, kept

    x = np.linspace(0, 1, 5, dtype=np.float32)
    ours = xla_torch.from_jax(chain, x)
    (plan,) = plans_of(ours)
    assert all(source.calls <= 3 * 64 for source in plan.plan.sources)  # with the constants that they read
    assert not plan.plan.steps
    assert plan.plan.size < 64 * 64
    for mine, theirs in zip(jax.tree.leaves(ours(torch.from_numpy(x))), jax.tree.leaves(chain(jnp.asarray(x))), strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4, atol=1e-6)


def test_memory_is_freed_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_MERGE", 0)
    monkeypatch.setattr(tuning, "NATIVE_SORT", 0)
    ours = xla_torch.from_jax(scan, np.ones((4, 4), np.float32))
    ours(torch.ones(4, 4))
    (plan,) = plans_of(ours)
    (instance,) = plan._idle
    arena = weakref.ref(instance)
    plan._idle.clear()
    gc.disable()
    try:
        del instance
        assert arena() is None
    finally:
        gc.enable()
