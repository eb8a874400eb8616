"""Reductions by associative regions as native code: values beside torch's, for every reducer and every way in which rows, runs
and columns are cut, and what stays in torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import xla_torch
from support.native_programs import native_after, run_both
from support.oracle import run_xla
from support.regions import ASSOCIATIVE, HORNER_OF_TWO, reduce_hlo
from xla_torch import from_jax
from xla_torch.codegen.compiled import is_available
from xla_torch.codegen.reductions import COLUMNS
from xla_torch.core import tuning
from xla_torch.kernels.native_reductions import NativeReduction

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

IN_TORCH = {"greatest common divisor": "it has a loop",
            "sum up to the limit": "it is not proven to be associative", "brackets": "nor is this"}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "REDUCED_NATIVELY_FROM", 1)


def natives(computation: xla_torch.XlaComputation) -> list[NativeReduction]:
    return [m for m in computation.lowered().modules() if isinstance(m, NativeReduction)]


def check(name: str, dims: tuple[int, ...], reduced: Sequence[int], folder: Path, seed: int = 3) -> None:
    rule = ASSOCIATIVE[name]
    text = reduce_hlo(rule.text(), rule.types, rule.identity, dims, reduced)
    given = rule.operands(dims, seed)
    assert bool(natives(xla_torch.parse_hlo(text))) == (name not in IN_TORCH and 0 not in dims)
    in_torch, native = run_both(text, given, folder)
    for a, b in zip(in_torch, native, strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("name", ASSOCIATIVE)
def test_every_reducer_as_torch(name: str, tmp_path: Path) -> None:
    check(name, (3, 37, 4), [1], tmp_path)
    check(name, (2, 70), [1], tmp_path)
    check(name, (9, 70), [1], tmp_path)


@needs_compiler
@pytest.mark.parametrize(("dims", "reduced"), [
    ((1,), [0]), ((7,), [0]), ((15,), [0]), ((16,), [0]), ((33,), [0]), ((500,), [0]), ((5, 40), [0]), ((5, 40), [1]),
    ((5, 40), [0, 1]), ((2, 3, 40), [0, 2]), ((2, 20, 3, 2), [1]), ((4, COLUMNS), [0]), ((4, COLUMNS + 1), [0]),
    ((2, 3, 2 * COLUMNS + 5), [1]), ((0, 4), [1]), ((4, 0), [1]),
])
def test_reductions_as_torch(dims: tuple[int, ...], reduced: Sequence[int], tmp_path: Path) -> None:
    name = next(n for n, rule in ASSOCIATIVE.items() if len(rule.types) == 2)
    check(name, dims, reduced, tmp_path)


def join(one: jax.Array, other: jax.Array) -> jax.Array:
    top = jnp.maximum(one, other)
    return top + jnp.log(jnp.exp(one - top) + jnp.exp(other - top))


def whole(x: jax.Array, axis: int) -> jax.Array:
    return lax.reduce(x, np.float32(-3e38), join, (axis,))


@needs_compiler
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_logarithms_of_sums_of_exponentials(axis: int, threads: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(300, 260)).astype("f4") * 20
    x[3, 4], x[7, :], x[:, 9] = np.inf, -200, 60
    computation = from_jax(lambda x: whole(x, axis), x)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with native_after(0.0, tmp_path):
            assert natives(computation.computation)
            found = computation(torch.from_numpy(x))
            assert list((tmp_path / "native").glob("*.so"))
            turned = computation(torch.from_numpy(x.T.copy()).T)
            gradients = torch.func.grad(lambda x: computation(x).nan_to_num().sum())(torch.from_numpy(np.clip(x, -99, 99)))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found, jax.jit(lambda x: whole(x, axis))(x), rtol=1e-5)
    assert torch.equal(found, turned) or torch.equal(found.isnan(), turned.isnan())
    want = torch.softmax(torch.from_numpy(np.clip(x, -99, 99)), axis)
    torch.testing.assert_close(gradients, want, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_as_xla(tmp_path: Path) -> None:
    rule = next(r for r in ASSOCIATIVE.values() if len(r.types) == 2 and r.types[0][0] in "su")
    text, given = reduce_hlo(rule.text(), rule.types, rule.identity, (6, 90), [1]), rule.operands((6, 90), 5)
    with native_after(0.0, tmp_path):
        for one, other in zip(xla_torch.parse_hlo(text).run_numpy(*given), run_xla(text, *given), strict=True):
            np.testing.assert_array_equal(one, other)


@needs_compiler
@pytest.mark.parametrize("less", [1, 0])
def test_few_elements_are_torch_s(less: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = next(r for r in ASSOCIATIVE.values() if len(r.types) == 2)
    dims = (tuning.REDUCED_NATIVELY_FROM - less,)
    text = reduce_hlo(rule.text(), rule.types, rule.identity, dims, [0])
    assert len(natives(xla_torch.parse_hlo(text))) == 1 - less


def test_what_stays_in_torch(tmp_path: Path) -> None:
    """What is not associative, and whatever a run asks for that stays in torch."""
    order = reduce_hlo(HORNER_OF_TWO.text(), HORNER_OF_TWO.types, HORNER_OF_TWO.identity, (4, 50), [1])
    assert not natives(xla_torch.parse_hlo(order))
    rule = next(r for r in ASSOCIATIVE.values() if len(r.types) == 2)
    computation = xla_torch.parse_hlo(reduce_hlo(rule.text(), rule.types, rule.identity, (4, 50), [1]))
    with native_after(float("inf"), tmp_path):
        computation.run_numpy(*rule.operands((4, 50), 1))
    assert not list(tmp_path.rglob("*.so"))
