"""Scatters in native loops: carries are updated where they are, and whoever reads one reads what it was before the step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from support.native_programs import native_after
from xla_torch import from_jax
from xla_torch.codegen.compiled import is_available
from xla_torch.kernels.native import NativeLoop

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


def scanned(step: Callable[[Any, Any], tuple[Any, Any]], init: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, places: lax.scan(lambda c, k: step(c, places[k]), init(x), jnp.arange(len(places)))


def two_updates(carry: Any, at: Any) -> Any:
    x, total = carry
    old = x[at]
    return (x.at[at].set(total).at[(at + 1) % 8].add(old), total + x.sum() * 0.01), old


def columns(x: Any, at: Any) -> Any:
    x = x.at[at].set(x[:, at] * 0.5)
    return x.at[:, at].add(1.0), x.sum()


def of_each_other(carry: Any, at: Any) -> Any:
    x, y = carry
    return (x.at[at].set(y[at]), y.at[-at].add(x[at])), x[0]


def exchanged(carry: Any, at: Any) -> Any:
    x, y = carry
    return (y.at[at].set(1.5), x.at[at].add(1.0)), x.sum()


def some_outside(x: Any, at: Any) -> Any:
    return x.at[jnp.array([0, 90, 3])].multiply(2.0, mode="drop"), x.sum()


def in_loops(x: Any, places: Any) -> Any:
    return lax.fori_loop(0, 8, lambda k, x: lax.fori_loop(0, 8, lambda j, x: x.at[j, k].set(x[k, j] + x[j, k]), x), x)


def place_by_place(carry: Any, at: Any) -> Any:
    x, y, z = carry
    x, half = jnp.tanh(x) * 0.9 + y[::-1], x * 0.5
    return (x + half * jnp.abs(half) / (1 + half * half), y.at[at].set(2.0), jnp.where(z > 0.5, z * 0.5, z + 1)), at


def place_by_place_and_read(carry: Any, at: Any) -> Any:
    x, y, z = carry
    return (x * 0.9 + y[::-1], y * 0.5 + z, z * 0.3 + z[::-1]), (x.sum(), z[0])


def inner_part(x: Any, at: Any) -> Any:
    mean = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return x.at[1:-1, 1:-1].set(mean), x.sum()


ROWS: dict[str, tuple[Callable[..., Any], int]] = {
    "two of one carry": (scanned(two_updates, lambda x: (x, jnp.float32(1))), 1),
    "rows and columns": (scanned(columns, lambda x: x), 2),
    "carries of each other": (scanned(of_each_other, lambda x: (x, x + 1)), 1),
    "carries that change places": (scanned(exchanged, lambda x: (x, x * 2)), 1),
    "matrices that change places": (scanned(exchanged, lambda x: (x, x * 2)), 2),
    "place by place": (scanned(place_by_place, lambda x: (x, x * 2, x + 1)), 1),
    "matrices place by place": (scanned(place_by_place, lambda x: (x, x * 2, x + 1)), 2),
    "place by place and read": (scanned(place_by_place_and_read, lambda x: (x, x * 2, x + 1)), 2),
    "points outside": (scanned(some_outside, lambda x: x), 2),
    "a window": (scanned(inner_part, lambda x: x), 2),
    "loops in loops": (in_loops, 2),
}


@pytest.mark.parametrize("size", [8, 40])
@pytest.mark.parametrize("name", ROWS)
def test_updates_are_as_in_xla(name: str, size: int, tmp_path: Path) -> None:
    function, rank = ROWS[name]
    rng = np.random.default_rng(0)
    arguments = rng.normal(size=(size,) * rank).astype(np.float32), rng.integers(0, size + 2, 20).astype(np.int32)
    program = from_jax(function, *arguments)
    with native_after(0.0, tmp_path):
        found = program(*map(torch.from_numpy, arguments))
        assert any(isinstance(m, NativeLoop) for m in program.computation.lowered().modules())
    assert list((tmp_path / "native").glob("loop_*.so"))
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(function)(*arguments)), strict=True):
        np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=1e-5, atol=1e-5)
