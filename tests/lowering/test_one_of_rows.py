"""One element of each row, taken or put there beside elementwise calls on whole rows, costs no array of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from support.oracle import needs_xla
from xla_torch import from_jax
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

pytestmark = [needs_xla, pytest.mark.skipif(not is_available(), reason="there is no C compiler")]

GATHER, SCATTER = "gather", ".scatter("


@pytest.fixture(autouse=True)
def at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    with jax.enable_x64(True):
        yield


def drawn(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(dtype)


def places(*dims: int, size: int = 512, index: Any = np.int32) -> np.ndarray:
    """In bounds, from the end, and beyond both ends."""
    made = np.random.default_rng(1).integers(-size, size, dims).astype(index)
    made.reshape(-1)[:4] = 0, size - 1, size, -size - 1
    return made


def special(array: np.ndarray) -> np.ndarray:
    array.reshape(-1)[:5] = 0.0, -0.0, np.inf, -np.inf, np.nan
    return array


def taken(x: Any, i: Any, **how: Any) -> Any:
    return jnp.take_along_axis(x, i[..., None], axis=-1, **how)[..., 0]


def loss(x: Any, i: Any) -> Any:
    return -jnp.mean(jnp.nan_to_num(taken(jax.nn.log_softmax(x), i)))


DIMENSIONS = lax.ScatterDimensionNumbers((), (1,), (1,), operand_batching_dims=(0,), scatter_indices_batching_dims=(0,))


def put(x: Any, i: Any, u: Any, number: float = 2.0) -> Any:
    return lax.scatter(jnp.full_like(x, number), i[:, None], u, DIMENSIONS) * x


def added(x: Any, i: Any, u: Any) -> Any:
    """What the gradient of a gather puts into zeros."""
    return jax.vjp(lambda y: taken(y, i), x)[1](u)[0] + x


Row = tuple[Callable[..., Any], list[np.ndarray]]

PUT: dict[str, Row] = {
    "cross entropy and its gradient": (jax.value_and_grad(loss), [drawn(64, 512), places(64)]),
    "three dimensions": (jax.value_and_grad(loss), [drawn(4, 16, 512), places(4, 16)]),
    "float64, int64": (jax.value_and_grad(loss), [drawn(64, 512, dtype=np.float64), places(64, index=np.int64)]),
    "a scaled one": (jax.value_and_grad(lambda x, i: loss(3 * x, i)), [drawn(64, 512), places(64)]),
    "added": (added, [special(drawn(64, 512)), places(64), special(drawn(64))]),
    "over a number": (put, [special(drawn(64, 512)), places(64), special(drawn(64))]),
    "over a negative zero": (lambda x, i, u: put(x, i, u, -0.0), [drawn(64, 512), places(64), special(drawn(64))]),
}

NOT_PUT: dict[str, Row] = {
    "two of each row": (lambda x, i, u: jax.vjp(lambda y: jnp.take_along_axis(y, i, axis=1), x)[1](u)[0] + x,
                        [drawn(64, 512), places(64, 2), drawn(64, 2)]),
    "one of each column": (lambda x, i, u: jax.vjp(lambda y: jnp.take_along_axis(y, i, axis=0), x)[1](u)[0] + x,
                           [drawn(512, 64), places(1, 64), drawn(1, 64)]),
    "into an array": (lambda x, i, u: lax.scatter(x, i[:, None], u, DIMENSIONS) * x, [drawn(64, 512), places(64), drawn(64)]),
    "a result": (lambda x, i, u: jax.vjp(lambda y: taken(y, i), x)[1](u)[0], [drawn(64, 512), places(64), drawn(64)]),
    "few elements": (added, [drawn(8, 512), places(8), drawn(8)]),
    "over infinity": (lambda x, i, u: put(x, i, u, math.inf), [drawn(64, 512), places(64), drawn(64)]),
}

TAKEN: dict[str, Row] = {
    "a difference": (lambda x, m, i: taken(x - m[:, None], i), [special(drawn(64, 512)), special(drawn(64)), places(64)]),
    "of differences": (lambda x, m, i: taken(m[:, None] - (x - m[:, None]) * 3, i), [drawn(64, 512), drawn(64), places(64)]),
    "clipped": (lambda x, m, i: taken(x / m[:, None], i, mode="clip"), [special(drawn(64, 512)), special(drawn(64)), places(64)]),
    "of columns": (lambda x, m, i: jnp.take_along_axis(x - m[None], i[None], axis=0)[0],
                   [drawn(512, 64), drawn(64), places(64)]),
    "squares": (lambda x, m, i: taken(x * x, i), [drawn(64, 512), drawn(64), places(64)]),
}

NOT_TAKEN: dict[str, Row] = {
    "of two arrays": (lambda x, y, i: taken(x - y, i), [drawn(64, 512), drawn(64, 512), places(64)]),
    "a value for each column": (lambda x, m, i: taken(x - m, i), [drawn(64, 512), drawn(512), places(64)]),
    "filled with a number": (lambda x, m, i: taken(x - m[:, None], i, mode="fill", fill_value=1),
                             [drawn(64, 512), drawn(64), places(64)]),
    "two of each row": (lambda x, m, i: jnp.take_along_axis(x - m[:, None], i, axis=1),
                        [drawn(64, 512), drawn(64), places(64, 2)]),
}


def assert_xla_s(program: Any, function: Callable[..., Any], arrays: list[np.ndarray]) -> None:
    got, want = (jax.tree_util.tree_leaves(r) for r in (program(*map(torch.from_numpy, arrays)), jax.jit(function)(*arrays)))
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours.numpy(), np.asarray(theirs), rtol=3e-5, atol=1e-7)


@pytest.mark.parametrize("name", PUT)
def test_what_is_put_is_selected(name: str) -> None:
    function, arrays = PUT[name]
    program = from_jax(function, *arrays)
    assert SCATTER not in program.python_code()
    assert_xla_s(program, function, arrays)


@pytest.mark.parametrize("name", ["added", "over a number", "over a negative zero"])
def test_no_bit_is_another_than_a_scatter_s(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arrays = PUT[name]
    got = from_jax(function, *arrays)(*map(torch.from_numpy, arrays))
    monkeypatch.setattr(tuning, "NATIVE_AFTER", math.inf)
    plain = from_jax(function, *arrays)
    assert SCATTER in plain.python_code()
    want = plain(*map(torch.from_numpy, arrays))
    assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))
    assert torch.equal(got.signbit() & ~got.isnan(), want.signbit() & ~want.isnan())


@pytest.mark.parametrize("name", NOT_PUT)
def test_what_stays_a_scatter(name: str) -> None:
    function, arrays = NOT_PUT[name]
    program = from_jax(function, *arrays)
    assert SCATTER in program.python_code()
    assert_xla_s(program, function, arrays)


def reads(program: Any) -> str:
    """What the gather reads."""
    line = next(line for line in program.python_code().splitlines() if GATHER in line and "(" in line)
    return line.partition("(")[2].partition(",")[0]


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_is_computed_after(name: str) -> None:
    function, arrays = TAKEN[name]
    program = from_jax(function, *arrays)
    assert reads(program) in ("x", "p0", "arg0")
    assert_xla_s(program, function, arrays)


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_taken_afterwards(name: str) -> None:
    function, arrays = NOT_TAKEN[name]
    program = from_jax(function, *arrays)
    assert reads(program) not in ("x", "p0", "arg0")
    assert_xla_s(program, function, arrays)


def test_cross_entropy_is_one_block() -> None:
    """The loss is computed after its gradient, for which no chain has to end."""
    function, arrays = PUT["cross entropy and its gradient"]
    code = from_jax(function, *arrays).python_code()
    large = [line for line in code.splitlines() if "blocked(" in line and "(64, 512)" in line]
    assert len(large) == 1, code
