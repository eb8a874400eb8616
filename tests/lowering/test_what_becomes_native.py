"""Which loops become native code: those in which it has less work than torch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from support.native_programs import loop_of_rows, natively, run_both
from support.native_rows import SUM
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

@needs_compiler
@pytest.mark.parametrize(("window", "is_native"), [
    ("size=4000 pad=3999_0", True), ("size=4000 pad=0_3999", True), ("size=4001 pad=4000_0", False)])
def test_running_sums_are_one_pass(window: str, is_native: bool) -> None:
    """Each of their windows by itself would be more than torch's calls take."""
    row = f"f32[4000] reduce-window(z, s), window={{{window}}}, to_apply=sum"
    assert natively(loop_of_rows([row], {"z": "f32[4000]", "s": "f32[]"}, SUM)) == is_native


@needs_compiler
@pytest.mark.parametrize("size", [tuning.NATIVE_SORT, tuning.NATIVE_SORT + 1, 300, tuning.NATIVE_MERGE, tuning.NATIVE_MERGE + 1])
def test_long_rows_are_torch_s_to_sort(size: int, tmp_path: Path) -> None:
    text = loop_of_rows([f"f32[{size}] sort(a), dimensions={{0}}, to_apply=before"], {"a": f"f32[{size}]"}, SUM)
    assert natively(text) == (size <= tuning.NATIVE_MERGE)
    given = np.random.default_rng(0).normal(size=size).astype("f4")
    for result in run_both(text, [given], tmp_path):
        np.testing.assert_array_equal(result[0], np.sort(given))


BEFORE_OF_TWO = """
before_of_two {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""


@needs_compiler
@pytest.mark.parametrize("size", [tuning.NATIVE_SORT, tuning.NATIVE_SORT + 1, 16 * 13 + 1, tuning.NATIVE_MERGE])
@pytest.mark.parametrize("along", [0, 1])
def test_equal_elements_stay_in_order(size: int, along: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of few different keys, with their places beside them, also where a row's elements lie apart."""
    monkeypatch.setattr(tuning, "NATIVE_UNDER", math.inf)
    dims = [3, 3]
    dims[along] = size
    of = f"s32[{dims[0]},{dims[1]}]"
    sort = f"({of}, {of}) sort(k, p), dimensions={{{along}}}, is_stable=true, to_apply=before_of_two"
    text = loop_of_rows([sort], {"k": of, "p": of}, BEFORE_OF_TWO)
    assert natively(text)
    keys = np.random.default_rng(0).integers(0, 5, dims, np.int32)
    places = np.argsort(keys, along, kind="stable").astype(np.int32)
    numbers = np.broadcast_to(np.arange(size, dtype=np.int32).reshape([-1 if d == along else 1 for d in range(2)]), dims)
    for result in run_both(text, [keys, numbers.copy()], tmp_path):
        np.testing.assert_array_equal(result[0], np.take_along_axis(keys, places, along))
        np.testing.assert_array_equal(result[1], places)


@needs_compiler
@pytest.mark.parametrize(("row", "is_native"), [
    ("f32[300,300] add(m, m)", True), ("f32[300,301] add(n, n)", False),
    ("f32[600,301] concatenate(n, n), dimensions={0}", False),
    ("f32[300,300] sine(m)", False), ("c64[300,301] multiply(c, c)", True)])
def test_large_bodies_stay_in_torch(row: str, is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for complex numbers, which torch computes one by one."""
    monkeypatch.setattr(tuning, "NATIVE_ELEMENTS", 300 * 300 * torch.get_num_threads())
    assert natively(loop_of_rows([row], {"m": "f32[300,300]", "n": "f32[300,301]", "c": "c64[300,301]"})) == is_native
