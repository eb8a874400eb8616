"""The largest elements of rows in native loops, with their places: the same bits as in torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.native_programs import loop_of_rows, natively, run_both
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


def special(name: str) -> np.ndarray:
    """Zeros of both signs, infinities and NaNs of both signs, or the limits of integers."""
    if name == "pred":
        return np.array([False, True])
    if name.startswith("f"):
        return np.array([0.0, -0.0, 1.0, -1.0, 2.5, 1e-3, np.inf, -np.inf, np.nan, -np.nan], f"f{int(name[1:]) // 8}")
    dtype = np.dtype(f"{'i' if name[0] == 's' else 'u'}{int(name[1:]) // 8}")
    limits = np.iinfo(dtype)
    return np.array([0, 1, 2, 7, 31, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)


@needs_compiler
@pytest.mark.parametrize("k", [1, 3, 33])
@pytest.mark.parametrize("name", ["f32", "f64", "s8", "s32", "s64", "u8", "u32", "u64", "pred"])
def test_the_largest_elements_as_torch(name: str, k: int, tmp_path: Path) -> None:
    """Of two rows each, with ties, zeros of both signs and NaNs, and the limits of integers."""
    given = np.random.default_rng(k).permutation(np.concatenate([special(name)] * 20))
    given = np.stack([given[:len(given) // 2], given[len(given) // 2:]])
    size = given.shape[1]
    k = min(k, size)
    rows = [f"({name}[2,{k}], s32[2,{k}]) topk(x), k={k}, largest={way}" for way in ("true", "false")]
    text = loop_of_rows(rows, {"x": f"{name}[2,{size}]"})
    assert natively(text)
    for one, other in zip(*run_both(text, [given], tmp_path), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("k", [tuning.NATIVE_SORT, tuning.NATIVE_SORT + 1])
def test_many_of_the_largest_elements_are_torch_s_to_find(k: int, tmp_path: Path) -> None:
    text = loop_of_rows([f"(f32[{k}], s32[{k}]) topk(a), k={k}, largest=true", *["f32[300] negate(a)"] * 12], {"a": "f32[300]"})
    assert natively(text) == (k <= tuning.NATIVE_SORT and is_available())
    given = np.random.default_rng(0).normal(size=300).astype("f4")
    for values, places, *_ in run_both(text, [given], tmp_path):
        np.testing.assert_array_equal(values, np.sort(given)[::-1][:k])
        np.testing.assert_array_equal(given[places], values)
