"""A gather with a number for indices out of bounds is one call where JAX spells it as a mask and a selection, and only there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax import lax

from xla_torch import from_jax
from xla_torch.core import tuning

CALLS = ("take_or_fill", "gather_along_or_fill")

TAKE, ALONG = CALLS

FOUND: dict[str, tuple[str, Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "rows": (TAKE, lambda x, i: jnp.take(x, i, axis=0, mode="fill"), (5, 6), (9,)),
    "columns": (TAKE, lambda x, i: jnp.take(x, i, axis=1, mode="fill"), (5, 6), (9,)),
    "in the middle": (TAKE, lambda x, i: jnp.take(x, i, axis=1, mode="fill"), (2, 5, 3), (9,)),
    "in the middle, as often as there are rows": (TAKE, lambda x, i: jnp.take(x, i, axis=1, mode="fill"), (9, 9, 9), (9,)),
    "a matrix of indices": (TAKE, lambda x, i: jnp.take(x, i, axis=0, mode="fill"), (5, 6), (3, 4)),
    "elements": (TAKE, lambda x, i: jnp.take(x, i, mode="fill"), (5,), (9,)),
    "another number": (TAKE, lambda x, i: x.at[i].get(mode="fill", fill_value=7), (5, 2), (9,)),
    "an index once": (TAKE, lambda x, i: x.at[i].get(mode="fill", fill_value=7), (5, 2), (1,)),
    "along rows": (ALONG, lambda x, i: jnp.take_along_axis(x, i, axis=1), (5, 6), (5, 9)),
    "along rows, one of each": (ALONG, lambda x, i: jnp.take_along_axis(x, i, axis=1), (5, 6), (5, 1)),
    "along columns": (ALONG, lambda x, i: jnp.take_along_axis(x, i, axis=0), (5, 6), (9, 6)),
    "along the middle": (ALONG, lambda x, i: jnp.take_along_axis(x, i, axis=1), (2, 5, 3), (2, 9, 3)),
    "along a vector": (TAKE, lambda x, i: jnp.take_along_axis(x, i, axis=0), (5,), (9,)),
}

WITHOUT_BATCHING = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


def masked(from_: int = 0, to: int = 4, joined: Callable[..., Any] = jnp.logical_and, shown: Any = None) -> Callable[..., Any]:
    """Rows, and NaN by a mask like the one of "fill"."""
    def function(x: Any, i: Any) -> Any:
        rows = lax.gather(x, i[:, None], WITHOUT_BATCHING, (1, x.shape[1]), mode="clip")
        mask = joined(i[:, None] >= from_, i[:, None] <= to).all(1)
        return jnp.where(mask[:, None] if shown is None else shown(mask), rows, math.nan)
    return function


NOT_FOUND: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "from another index on": (masked(from_=1), (5, 6), (9,)),
    "to another index": (masked(to=3), (5, 6), (9,)),
    "either": (masked(joined=jnp.logical_or), (5, 6), (9,)),
    "a mask of columns": (masked(to=8, shown=lambda mask: mask[None, :]), (9, 9), (9,)),
    "a mask of other indices": (
        lambda x, i: jnp.where(((i[::-1] >= 0) & (i[::-1] <= 4))[:, None], x[i.clip(0, 4)], 0), (5, 6), (9,)),
    "a mask that is a constant beside a bound": (lambda x, i: jnp.where(
        jnp.all((np.arange(9)[:, None] % 2 == 1) & (i[:, None] >= 0), 1), x.at[i].get(mode="clip"), 0.0), (5,), (9,)),
    "a bound that is computed": (lambda x, i: jnp.where(
        jnp.all((i[:, None] >= 0) & (i[:, None] <= i[0]), 1), x.at[i].get(mode="clip"), 0.0), (5,), (9,)),
    "pairs": (lambda x, i: x.at[i, i].get(mode="fill", fill_value=0), (5, 6), (9,)),
    "what was gathered is used too": (lambda x, i: (jnp.where((i >= 0) & (i <= 4), lax.gather(
        x, i[:, None], lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="clip"), 0), lax.gather(
        x, i[:, None], lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="clip")), (5,), (9,)),
}


def arguments(shape: tuple[int, ...], places: tuple[int, ...], dtype: Any, index: Any) -> list[np.ndarray]:
    """Indices in bounds, below and above them, and far beyond."""
    drawn = np.random.default_rng(0)
    indices = drawn.integers(-12, 12, places).astype(index)
    if indices.size > 2:
        indices.reshape(-1)[:2] = np.iinfo(index).min, np.iinfo(index).max
    return [(drawn.standard_normal(shape) * 50).astype(dtype), indices]


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """With NumPy's own types and those that it has not."""
    if array.dtype.kind != "V" and array.dtype not in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        return torch.from_numpy(array)
    dtype = torch.bfloat16 if array.dtype == ml_dtypes.bfloat16 else torch.float8_e5m2
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(dtype)


def assert_same(got: torch.Tensor, want: np.ndarray) -> None:
    is_known = got.dtype not in (torch.bfloat16, torch.float8_e5m2)
    np.testing.assert_array_equal(got.numpy() if is_known else got.float().numpy(), want if is_known else want.astype(np.float32))


def calls(program: Any) -> list[str]:
    return [name for name in CALLS if f".{name}(" in program.python_code()]


@pytest.mark.parametrize("after", [0.0, math.inf], ids=["native", "torch"])
@pytest.mark.parametrize(("dtype", "index"), [
    (np.float32, np.int32), (np.float64, np.int64), (np.int8, np.int32), (np.complex64, np.int32), (np.complex128, np.int64),
    (np.float16, np.int32), (ml_dtypes.bfloat16, np.int32), (ml_dtypes.float8_e5m2, np.int32)])
@pytest.mark.parametrize("name", FOUND)
def test_one_call_fills_up(name: str, dtype: Any, index: Any, after: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_AFTER", after)
    monkeypatch.setattr(tuning, "BUNDLED_UP_TO", 0)
    want, function, shape, places = FOUND[name]
    with jax.enable_x64(True):
        arrays = arguments(shape, places, dtype, index)
        program, theirs = from_jax(function, *arrays), np.asarray(jax.jit(function)(*arrays))
    tensors = [as_tensor(a) for a in arrays]
    assert calls(program) == ([] if dtype in (np.complex64, np.complex128, ml_dtypes.float8_e5m2) else [want])
    assert_same(program(*tensors), theirs)
    strided = [t.mT.contiguous().mT if t.dim() > 1 else torch.stack([t, t], 1)[:, 0] for t in tensors]
    assert_same(program(*strided), theirs)


@pytest.mark.parametrize("name", FOUND)
def test_gradients(name: str) -> None:
    _, function, shape, places = FOUND[name]
    x, i = arguments(shape, places, np.float32, np.int32)
    tensor = torch.from_numpy(x).requires_grad_()
    from_jax(function, x, i)(tensor, torch.from_numpy(i)).nan_to_num().square().sum().backward()
    theirs = jax.grad(lambda x: (jnp.nan_to_num(function(x, i)) ** 2).sum())(x)
    assert tensor.grad is not None
    np.testing.assert_allclose(tensor.grad.numpy(), theirs, rtol=1e-6)


@pytest.mark.parametrize(("moved", "is_counted"), [
    (lambda i: i, False), (lambda i: jnp.where(i < 0, i + 5, i), True), (lambda i: jnp.where(i < 0, i + 4, i), False),
    (lambda i: jnp.where(i < 1, i + 5, i), False), (lambda i: jnp.where(i <= 0, i + 5, i), False),
    (lambda i: jnp.where(i < 0, i[::-1] + 5, i), False), (lambda i: jnp.where(i < 0, i, i + 5), False)])
def test_negative_indices_that_count_from_the_end(moved: Callable[[Any], Any], is_counted: bool,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The call counts them itself, if they are counted from that end."""
    monkeypatch.setattr(tuning, "BUNDLED_UP_TO", 0)
    x, i = arguments((5, 6), (40,), np.float32, np.int32)
    program = from_jax(lambda x, i: masked()(x, moved(i)), x, i)
    assert calls(program) == [TAKE]
    assert ("nan, True)" in program.python_code()) == is_counted
    assert_same(program(torch.from_numpy(x), torch.from_numpy(i)), np.asarray(jax.jit(lambda x, i: masked()(x, moved(i)))(x, i)))


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_something_else(name: str) -> None:
    function, shape, places = NOT_FOUND[name]
    arrays = arguments(shape, places, np.float32, np.int32)
    program = from_jax(function, *arrays)
    assert calls(program) == []
    for got, want in zip(jax.tree_util.tree_leaves(program(*map(torch.from_numpy, arrays))),
                         jax.tree_util.tree_leaves(jax.jit(function)(*arrays)), strict=True):
        np.testing.assert_array_equal(got.numpy(), np.asarray(want))


def test_a_mask_that_is_an_argument_beside_a_bound() -> None:
    def function(x: Any, i: Any, m: Any) -> Any:
        return jnp.where(jnp.all(m & (i[:, None] >= 0), axis=1), x.at[i].get(mode="promise_in_bounds"), 0.0)

    arrays = np.arange(5, dtype=np.float32), np.array([0, 3, 2], np.int32), np.array([[True], [False], [True]])
    program = from_jax(function, *arrays)
    np.testing.assert_array_equal(program(*map(torch.from_numpy, arrays)).numpy(), jax.jit(function)(*arrays))
    assert calls(program) == []


@pytest.mark.parametrize("mode", ["clip", "promise_in_bounds"])
def test_elements_along_a_dimension_are_torch_s_gather(mode: str) -> None:
    x, i = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32), np.array([[[7], [-2], [3]]] * 4, np.int32)
    i = np.broadcast_to(i if mode == "clip" else i.clip(0, 4), (4, 3, 6)).copy()
    function = lambda x, i: jnp.take_along_axis(x, i, axis=1, mode=mode)  # noqa: E731
    got = from_jax(function, x, i)(torch.from_numpy(x), torch.from_numpy(i))
    np.testing.assert_array_equal(got.numpy(), jax.jit(function)(x, i))
