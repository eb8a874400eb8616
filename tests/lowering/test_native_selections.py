"""Reductions of rows that select, as native code: what each row has, with all special values, is what its region gives step by
step, what torch gives and what XLA gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import native_after, natively, run_both
from support.oracle import needs_xla, run_xla
from xla_torch.codegen import sums
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

DTYPES = {"f32": "f4", "f64": "f8", "s8": "i1", "s32": "i4", "s64": "i8", "u8": "u1", "u64": "u8"}

# When the old place stays, and the key: `p` where the old one is better or NaN, `e` where they are equal, `l` where the old place
# is lower.
SPELLINGS = {
    "first": ("or(p, e)", "select(c, a, b)"),
    "lowest": ("or(p, el)", "select(c, a, b)"),
    "lowest, of keys the last": ("or(p, el)", "select(p, a, b)"),  # as JAX has it, which takes the place only
    "first, of keys the last": ("or(p, e)", "EXTREME(a, b)"),
    "last": ("or(p, p)", "select(c, a, b)"),
}


LOOP = """going {
  p = (s32[], OFDIMS, TODIMS, OF[], TO[], OFROWS, TOROWS) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  ROOT r = pred[] compare(i, one), direction=LT
}
body {
  p = (s32[], OFDIMS, TODIMS, OF[], TO[], OFROWS, TOROWS) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x_given = OFDIMS get-tuple-element(p), index=1
  x = OFDIMS opt-barrier(x_given)
  w = TODIMS get-tuple-element(p), index=2
  s = OF[] get-tuple-element(p), index=3
  t = TO[] get-tuple-element(p), index=4
  keys = KEYS
  beside = BESIDE
  found = (OFROWS, TOROWS) reduce(keys, beside, s, t), dimensions={1}, to_apply=chosen
  v = OFROWS get-tuple-element(found), index=0
  k = TOROWS get-tuple-element(found), index=1
  ROOT r = (s32[], OFDIMS, TODIMS, OF[], TO[], OFROWS, TOROWS) tuple(next, x_given, w, s, t, v, k)
}
ENTRY main {
  x = OFDIMS parameter(0)
  w = TODIMS parameter(1)
  s = OF[] parameter(2)
  t = TO[] parameter(3)
  zero = s32[] constant(0)
  v = OFROWS broadcast(s), dimensions={}
  k = TOROWS broadcast(t), dimensions={}
  first = (s32[], OFDIMS, TODIMS, OF[], TO[], OFROWS, TOROWS) tuple(zero, x, w, s, t, v, k)
  done = (s32[], OFDIMS, TODIMS, OF[], TO[], OFROWS, TOROWS) while(first), condition=going, body=body
  values = OFROWS get-tuple-element(done), index=5
  places = TOROWS get-tuple-element(done), index=6
  ROOT r = (OFROWS, TOROWS) tuple(values, places)
}
"""


def region(spelling: str, key: str, index: str, largest: bool) -> str:
    keeps, value = SPELLINGS[spelling]
    return f"""chosen {{
  a = {key}[] parameter(0)
  i = {index}[] parameter(1)
  b = {key}[] parameter(2)
  j = {index}[] parameter(3)
  o = pred[] compare(a, b), direction={'GT' if largest else 'LT'}
  n = pred[] compare(a, a), direction=NE
  p = pred[] or(o, n)
  e = pred[] compare(a, b), direction=EQ
  l = pred[] compare(i, j), direction=LT
  el = pred[] and(e, l)
  c = pred[] {keeps}
  v = {key}[] {value.replace("EXTREME", "maximum" if largest else "minimum")}
  w = {index}[] select(c, i, j)
  ROOT r = ({key}[], {index}[]) tuple(v, w)
}}
"""


def folded(spelling: str, keys: np.ndarray, places: np.ndarray, init: Any, beside: Any, largest: bool) -> tuple[Any, Any]:
    """What the region makes of a row, step by step."""
    a, i = init, beside
    for b, j in zip(keys, places, strict=True):
        p, e = bool(a > b if largest else a < b) or bool(a != a), bool(a == b)
        c = p or {"first": e, "lowest": e and bool(i < j), "last": False}[spelling.partition(",")[0]]
        a, i = a if (p if "keys the last" in spelling else c) else b, i if c else j
    return a, i


@pytest.fixture
def selected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shapes of the reductions that are two passes."""
    found, select_rows = list[str](), sums.select_rows

    def noted(writer: Any, inst: Any, *rest: Any) -> Any:
        found.append(str(inst.shape))
        return select_rows(writer, inst, *rest)

    monkeypatch.setattr(sums, "select_rows", noted)
    monkeypatch.setattr(tuning, "NATIVE_UNDER", math.inf)
    return found


def rows_of(key: str, count: int, n: int) -> np.ndarray:
    """Rows of few different values, rows that have one thing only, and rows with one special value at each end."""
    rng, dtype = np.random.default_rng(n), np.dtype(DTYPES[key])
    if dtype.kind == "f":
        some = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5], dtype)
        drawn = [rng.choice(some[at:], n) for at in (0, 1, 3, 5)] + [rng.normal(size=n).astype(dtype)]
    else:
        some = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, 2], dtype)
        drawn = [rng.choice(some[at:], n) for at in (0, 2, 3)] + [rng.integers(0, 100, n).astype(dtype)]
    rows = [*drawn, *(np.full(n, value) for value in some)]
    for value, at in itertools.product(some, (0, n // 2, n - 1)):
        rows.append(rng.permutation(np.arange(n)).astype(dtype))
        rows[-1][at] = value
    return np.stack([rows[k % len(rows)] for k in range(count)])


def inits_of(key: str, largest: bool) -> list[Any]:
    dtype = np.dtype(DTYPES[key])
    if dtype.kind == "f":
        return [np.array(value, dtype) for value in (-math.inf if largest else math.inf, 0.0, -0.0, math.nan, 1.5)]
    return [np.array(value, dtype) for value in (np.iinfo(dtype).min if largest else np.iinfo(dtype).max, 2)]


def check(spelling: str, key: str, index: str, n: int, largest: bool, folder: Path, is_iota: bool = True,
          is_computed: bool = False) -> None:
    count = 48
    beside = f"{index}[{count},{n}] iota(), iota_dimension=1" if is_iota else f"{index}[{count},{n}] copy(w)"
    keys = f"{key}[{count},{n}] {('negate' if key[0] == 'f' else 'not') if is_computed else 'copy'}(x)"
    loop = LOOP.replace("BESIDE", beside).replace("KEYS", keys).replace("DIMS", f"[{count},{n}]").replace("ROWS", f"[{count}]")
    text = "HloModule selects\n" + region(spelling, key, index, largest) + loop.replace("OF", key).replace("TO", index)
    assert natively(text)
    x, native = rows_of(key, count, n), xla_torch.parse_hlo(text)
    w = np.random.default_rng(0).permuted(np.tile(np.arange(n), (count, 1)), axis=1).astype(DTYPES[index])
    seen = (-x if x.dtype.kind == "f" else ~x) if is_computed else x
    for init, t in itertools.product(inits_of(key, largest), (0, 5, 100)):
        given = [x, w, init, np.array(t, DTYPES[index])]
        places = np.tile(np.arange(n), (count, 1)).astype(DTYPES[index]) if is_iota else w
        want = [np.array(v) for v in zip(*(folded(spelling, k, p, init, given[3], largest)
                                           for k, p in zip(seen, places, strict=True)), strict=True)]
        with native_after(0.0, folder):
            got = native.run_numpy(*given)
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=f"{init} {t}")
            np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(theirs[theirs == 0]), err_msg=f"{init} {t}")
    # Of the only element of a row XLA says what it is, whatever the initial value is.
    for theirs in (run_both(text, given, folder)[0], *([run_xla(text, *given)] if n > 1 else [])):
        for one, other in zip(got, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_rows_as_step_by_step(spelling: str, largest: bool, tmp_path: Path, selected: list[str]) -> None:
    """Whose value is another of equal ones than its place's (0 and -0) is as it was, and so is whose ties go to the last."""
    check(spelling, "f32", "s32", 23, largest, tmp_path)
    assert bool(selected) == (spelling in ("first", "lowest"))


@pytest.mark.parametrize(("key", "index", "n"), [
    ("f64", "s64", 65), ("s32", "s32", 16), ("u8", "s32", 33), ("s8", "u8", 17), ("s64", "s32", 19), ("u64", "s64", 16),
    ("f32", "s64", 40), ("f32", "u8", 256)])
@pytest.mark.parametrize("spelling", ["first", "lowest"])
def test_types_as_step_by_step(spelling: str, key: str, index: str, n: int, tmp_path: Path, selected: list[str]) -> None:
    check(spelling, key, index, n, n % 2 == 0, tmp_path)
    assert selected


@pytest.mark.parametrize(("key", "index", "n"), [("f32", "s32", 37), ("f64", "s32", 70), ("u8", "s32", 20), ("f32", "f32", 16)])
def test_computed_keys_and_other_things_beside_them(key: str, index: str, n: int, tmp_path: Path, selected: list[str]) -> None:
    """What stands beside a key may be anything where ties go to the first, and must be its place where they go to the lowest."""
    check("first", key, index, n, True, tmp_path, is_iota=False, is_computed=True)
    assert selected
    selected.clear()
    check("lowest", key, "s32", n, True, tmp_path, is_iota=False)
    assert not selected


@pytest.mark.parametrize(("key", "index", "n", "is_selected"), [
    ("f32", "s32", tuning.SELECTED_FROM, True), ("f32", "s32", tuning.SELECTED_FROM - 1, False), ("f32", "s32", 1, False),
    ("f64", "s32", tuning.SELECTED_DOUBLES_FROM, True), ("f64", "s32", tuning.SELECTED_DOUBLES_FROM - 1, False),
    ("f32", "s8", 128, True), ("f32", "s8", 129, False)])
def test_short_rows_and_numbers_that_are_no_places(key: str, index: str, n: int, is_selected: bool, tmp_path: Path,
                                                   selected: list[str]) -> None:
    check("lowest", key, index, n, True, tmp_path)
    assert bool(selected) == is_selected


@needs_xla
@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("key", ["f32", "f64", "s32", "u8"])
def test_what_jax_makes(key: str, name: str, tmp_path: Path, selected: list[str]) -> None:
    """Also of one row, of rows in three dimensions, of a matrix seen the other way round, and along a dimension that is not the
    last."""
    import jax
    from jax import lax

    x = rows_of(key, 80, 72)

    def of(x: Any) -> tuple[Any, ...]:
        found: Callable[..., Any] = getattr(lax, name)
        return (found(x, 1, "int32"), found(x[3], 0, "int64"), found(x.reshape(4, 20, 72), 2, "int32"), found(x.T, 1, "int32"),
                found(x, 0, "int32"), found(x - x[:1], 1, "int32"), found(x[:, 2:], 1, "int32"))

    def function(x: Any) -> Any:
        first = jax.tree.map(lambda i: i * 0, of(x))
        return lax.fori_loop(0, 2, lambda _, s: (s[0], of(lax.optimization_barrier(s[0]))), (x, first))[1]

    with native_after(0.0, tmp_path):
        got = xla_torch.from_jax(function, x)(torch.from_numpy(x))
    assert len(set(selected)) >= 4
    for mine, theirs in zip(got, jax.jit(of)(x), strict=True):
        np.testing.assert_array_equal(mine.numpy(), np.asarray(theirs))
