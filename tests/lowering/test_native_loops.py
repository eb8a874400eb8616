"""Loops as native code: every op's values beside torch's, in all forms of carries, and what stays in torch."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import leaves_of, loop_of_rows, native_after, natively, run_both
from support.regions import HORNER_OF_TWO, reduce_hlo
from xla_torch.core import tuning
from xla_torch.hlo.rule_tables import TABLES
from xla_torch.kernels.native import NativeLoop
from xla_torch.native.compiled import MachineCode, is_available
from xla_torch.native.loops import Machine, loop_source
from xla_torch.transform.canonical import canonicalize

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


FLOATS = [
    "add(x, y)", "subtract(x, y)", "multiply(x, y)", "divide(x, y)", "remainder(x, y)", "power(x, y)", "maximum(x, y)",
    "minimum(x, y)", "atan2(x, y)", "abs(x)", "negate(x)", "sign(x)", "exponential(x)", "exponential-minus-one(x)", "log(x)",
    "log-plus-one(x)", "sqrt(x)", "rsqrt(x)", "cbrt(x)", "sine(x)", "cosine(x)", "tan(x)", "tanh(x)", "logistic(x)", "erf(x)",
    "floor(x)", "ceil(x)", "round-nearest-even(x)", "round-nearest-afz(x)", "clamp(y, x, y)", "asin(x)", "acos(x)", "atan(x)",
    "asinh(x)", "acosh(x)", "atanh(x)", "sinh(x)", "cosh(x)",
]
INTEGERS = [
    "add(x, y)", "subtract(x, y)", "multiply(x, y)", "divide(x, y)", "remainder(x, y)", "maximum(x, y)", "minimum(x, y)",
    "negate(x)", "not(x)", "and(x, y)", "or(x, y)", "xor(x, y)", "shift-left(x, y)", "shift-right-arithmetic(x, y)",
    "shift-right-logical(x, y)", "clamp(y, x, x)", "popcnt(x)", "count-leading-zeros(x)", "mulhi(x, y)",
]
PREDS = ["add(x, y)", "multiply(x, y)", "maximum(x, y)", "minimum(x, y)", "not(x)", "and(x, y)", "or(x, y)", "xor(x, y)"]
TYPES = ["f32", "f64", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"]


def pairs(name: str) -> list[np.ndarray]:
    """All pairs of a type's special values, and some drawn ones."""
    rng = np.random.default_rng(0)
    if name == "pred":
        some = np.array([False, True])
    elif name.startswith("f"):
        drawn = rng.normal(size=4) * 3
        some = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.5, 1e-3, 30.0, np.inf, -np.inf, np.nan, -np.nan, *drawn],
                        f"f{int(name[1:]) // 8}")
    else:
        dtype = np.dtype(f"{'i' if name[0] == 's' else 'u'}{int(name[1:]) // 8}")
        limits = np.iinfo(dtype)
        some = np.array([int(v) for v in [0, 1, 2, 7, 31, 63, limits.max, limits.max - 1, limits.min, limits.min + 1,
                                          *([-1, -3] if limits.min else [])]], dtype)
    return [np.repeat(some, len(some)), np.tile(some, len(some))]


def rows_of(name: str, size: int) -> list[str]:
    own = PREDS if name == "pred" else FLOATS if name.startswith("f") else INTEGERS + ["abs(x)", "sign(x)"] * (name[0] == "s")
    rows = [f"{name}[{size}] {row}" for row in own]
    rows += [f"pred[{size}] compare(x, y), direction={d}" for d in ("EQ", "NE", "GE", "GT", "LE", "LT")]
    rows += [f"pred[{size}] compare(x, y), direction={d}, type=TOTALORDER" for d in ("EQ", "GE", "LT") if name[0] == "f"]
    rows += [f"{name}[{size}] select(c, x, y)"] + [f"pred[{size}] is-finite(x)"] * name.startswith("f")
    rows += [f"{t}[{size}] bitcast-convert(x)" for t in TYPES[:-1] if name != "pred" and t[1:] == name[1:]]
    return rows + [f"{t}[{size}] convert(x)" for t in TYPES]


@needs_compiler
@pytest.mark.parametrize("name", ["f32"])
def test_elements_as_torch(name: str, tmp_path: Path) -> None:
    check_elements(name, tmp_path)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TYPES) - {"f32"}))
def test_elements_of_all_types_as_torch(name: str, tmp_path: Path) -> None:
    check_elements(name, tmp_path)


def check_elements(name: str, folder: Path) -> None:
    x, y = pairs(name)
    rows = rows_of(name, x.size)
    text = loop_of_rows(rows, {"x": f"{name}[{x.size}]", "y": f"{name}[{x.size}]", "c": f"pred[{x.size}]"}, steps=1)
    assert natively(text)
    with np.errstate(all="ignore"):
        want, got = run_both(text, [x, y, np.arange(x.size) % 3 == 0], folder)
        for row, mine, theirs in zip(rows, got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6 if "32" in row.split()[0] else 1e-13, err_msg=row)
            np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(theirs[theirs == 0]), err_msg=row)


SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
second {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
largest {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  v = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
count {
  p = (s32[], f32[3,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
double {
  p = (s32[], f32[3,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  m = f32[3,4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[3,4] add(m, m)
  ROOT r = (s32[], f32[3,4]) tuple(j, d)
}
plus {
  p = (f32[3,4]) parameter(0)
  m = f32[3,4] get-tuple-element(p), index=0
  d = f32[3,4] add(m, m)
  ROOT r = (f32[3,4]) tuple(d)
}
minus {
  p = (f32[3,4]) parameter(0)
  m = f32[3,4] get-tuple-element(p), index=0
  d = f32[3,4] negate(m)
  ROOT r = (f32[3,4]) tuple(d)
}
before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
after {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  x = f32[] parameter(2)
  y = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
"""
ROWS = [
    "f32[2,3,4] broadcast(m), dimensions={1,2}", "f32[3,4] broadcast(v), dimensions={1}", "f32[12] reshape(m)",
    "f32[1,3,4] reshape(m)",
    "f32[2,6] reshape(m)", "f32[4,3] transpose(m), dimensions={1,0}", "f32[3,4] reverse(m), dimensions={0,1}",
    "f32[2,2] slice(m), slice={[1:3],[0:4:2]}", "f32[1,1] slice(m), slice={[1:2],[2:3]}",
    "f32[3,8] concatenate(m, m), dimensions={1}",
    "f32[7] concatenate(v, u), dimensions={0}", "f32[5,4] pad(m, s), padding=1_1x0_0", "f32[5,9] pad(m, s), padding=0_2x1_1_1",
    "f32[2,5] pad(m, s), padding=-1_0x2_-1", "f32[3,4] iota(), iota_dimension=1", "s32[5] iota(), iota_dimension=0",
    "f32[2,2] dynamic-slice(m, i, one), dynamic_slice_sizes={2,2}",
    "f32[1,1] dynamic-slice(m, i, one), dynamic_slice_sizes={1,1}",
    "f32[3,4] dynamic-update-slice(m, w, one, i)", "f32[3,3] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "f32[4] dot(m, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[] dot(u, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[4,4] dot(m, m), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[2,4] dot(w, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[3,4,4] dot(m, m), lhs_batch_dims={0}, rhs_batch_dims={0}", "f32[3] reduce(m, s), dimensions={1}, to_apply=sum",
    "f32[] reduce(m, s), dimensions={0,1}, to_apply=sum", "f32[4] reduce(m, s), dimensions={0}, to_apply=sum",
    "f32[2,2] constant({{1.5,2},{-inf,nan}})", "f32[3] constant({2,2,2})", "f32[3,4] copy(m)", "f32[3,4] select(flag, m, n)",
    "f32[3,4] clamp(s, m, s)", "f32[3,4] map(m, n), dimensions={0,1}, to_apply=sum",
    "f32[] map(s, s), dimensions={}, to_apply=sum",
    "f32[5,4] gather(m, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,4}",
    "f32[2] gather(m, kk), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, "
    "slice_sizes={1,1}",
    "f32[2,2,3] gather(m, kk), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=0, "
    "slice_sizes={2,3}",
    "f32[2,2] gather(w, kk), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=2, "
    "slice_sizes={1,1}, operand_batching_dims={0}, start_indices_batching_dims={0}",
    "f32[] gather(v, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, slice_sizes={1}",
    "f32[3,4] scatter(m, k, r), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=sum",
    "f32[3,4] scatter(m, kk, p), update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, "
    "index_vector_dim=1, to_apply=second",
    "f32[3,4] scatter(m, kk, b), update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={1,0}, "
    "index_vector_dim=0, to_apply=sum",
    "f32[2,3] scatter(w, kk, bb), update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
    "index_vector_dim=2, to_apply=sum, input_batching_dims={0}, scatter_indices_batching_dims={0}",
    *(f"f32[1] scatter(only, {k}, p), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, "
      "index_vector_dim=1, to_apply=sum" for k in ("pairs", "zeros")),
    "f32[3,4] sort(m), dimensions={0}, to_apply=before", "f32[3,4] sort(m), dimensions={1}, to_apply=before",
    "f32[1,1] sort(point), dimensions={0}, to_apply=before",
    "(s32[5], f32[5]) sort(k, five), dimensions={0}, is_stable=true, to_apply=after",
    "(f32[3,2], s32[3,2]) topk(m), k=2, largest=true", "(f32[3,1], s32[3,1]) topk(m), k=1, largest=false",
    "(f32[1], s32[1]) topk(five), k=1, largest=true", "(s32[5], s32[5]) topk(k), k=5, largest=false",
    "(f32[1,1], s32[1,1]) topk(point), k=1, largest=true",
    "f32[3,4] reduce-window(m, s), window={size=3x1 pad=2_0x0_0}, to_apply=sum",
    "f32[3,4] reduce-window(m, s), window={size=1x4 pad=0_0x0_3}, to_apply=sum",
    "f32[3,5] reduce-window(m, s), window={size=1x4 pad=0_0x4_0}, to_apply=sum",
    "f32[3,4] reduce-window(m, s), window={size=1x4 pad=0_0x3_0}, to_apply=second",
    "f32[3,4] reduce-window(m, s), window={size=1x4 pad=0_0x0_3}, to_apply=second",
    "(f32[4], s32[4]) reduce-window(v, numbers, s, i), window={size=4 pad=3_0}, to_apply=largest",
    "f32[2,2] reduce-window(m, s), window={size=2x2 stride=1x2}, to_apply=sum",
    "f32[3,2] reduce-window(m, s), window={size=2x2 stride=1x2 pad=-1_2x1_1 rhs_dilate=1x2}, to_apply=sum",
    "(f32[4], s32[4]) reduce-window(v, numbers, s, i), window={size=2 pad=0_1}, to_apply=largest",
]
OPERANDS = {"m": "f32[3,4]", "n": "f32[3,4]", "v": "f32[4]", "u": "f32[3]", "w": "f32[2,3]", "s": "f32[]", "flag": "pred[]",
            "k": "s32[5]", "kk": "s32[2,2]", "r": "f32[5,4]", "p": "f32[2]", "b": "f32[1,2,2]", "bb": "f32[2,2]",
            "five": "f32[5]", "point": "f32[1,1]", "numbers": "s32[4]", "only": "f32[1]",
            "pairs": "s32[2,1]", "zeros": "s32[2,1]"}


def operands() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    drawn = [rng.normal(size=size).astype("f4") for size in [(3, 4), (3, 4), (4,), (3,), (2, 3), ()]]
    more = [rng.normal(size=size).astype("f4") for size in [(5, 4), (2,), (1, 2, 2), (2, 2), (5,), (1, 1)]]
    places = [np.array([0, 2, -1, 7, 2], "i4"), np.array([[0, 1], [2, 3]], "i4")]
    return [*drawn[:5], np.asarray(drawn[5], "f4"), np.array(True), *places, *more, np.arange(4, dtype="i4"),
            rng.normal(size=1).astype("f4"), np.array([[0], [1]], "i4"), np.zeros((2, 1), "i4")]


@needs_compiler
def test_arrays_as_torch(tmp_path: Path) -> None:
    text = loop_of_rows(ROWS, OPERANDS, SUM)
    assert natively(text)
    want, got = run_both(text, operands(), tmp_path)
    for row, mine, theirs in zip([r for r in ROWS for _ in leaves_of(r)], got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, err_msg=row)


CONTROL = """body_of_all {
  p = (s32[], f32[3,4], f32[3,4], f32[], f32[5,4], s32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  m = f32[3,4] get-tuple-element(p), index=1
  n = f32[3,4] get-tuple-element(p), index=2
  x = f32[] get-tuple-element(p), index=3
  rows = f32[5,4] get-tuple-element(p), index=4
  places = s32[2] get-tuple-element(p), index=5
  zero = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  init = (s32[], f32[3,4]) tuple(zero, m)
  inner = (s32[], f32[3,4]) while(init), condition=count, body=double
  twice = f32[3,4] get-tuple-element(inner), index=1
  odd = s32[] and(i, one)
  two = s32[] constant(2)
  given = (f32[3,4]) tuple(n)
  chosen = (f32[3,4]) conditional(odd, given, given), branch_computations={plus, minus}
  c = f32[3,4] get-tuple-element(chosen), index=0
  scale = f32[] constant(0.1)
  scales = f32[3,4] broadcast(scale), dimensions={}
  small = f32[3,4] multiply(twice, scales)
  z = f32[] constant(0)
  total = f32[] reduce(small, z), dimensions={0,1}, to_apply=sum
  y = f32[] add(x, total)
  lowest = f32[] constant(-inf)
  numbers = s32[12] iota(), iota_dimension=0
  flat = f32[12] reshape(c)
  best = (f32[], s32[]) reduce(flat, numbers, lowest, zero), dimensions={0}, to_apply=largest
  place = s32[] get-tuple-element(best), index=1
  row = f32[1,4] slice(small), slice={[1:2],[0:4]}
  old = f32[1,4] dynamic-slice(rows, j, zero), dynamic_slice_sizes={1,4}
  new = f32[1,4] add(row, old)
  first = f32[5,4] dynamic-update-slice(rows, new, i, zero)
  written = f32[5,4] dynamic-update-slice(first, old, j, zero)
  placed = s32[1] reshape(place)
  filled = s32[2] dynamic-update-slice(places, placed, odd)
  ROOT r = (s32[], f32[3,4], f32[3,4], f32[], f32[5,4], s32[2]) tuple(j, c, small, y, written, filled)
}
going {
  p = (s32[], f32[3,4], f32[3,4], f32[], f32[5,4], s32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  i = s32[] constant(0)
  m = f32[3,4] parameter(0)
  n = f32[3,4] parameter(1)
  x = f32[] parameter(2)
  rows = f32[5,4] parameter(3)
  places = s32[2] parameter(4)
  t = (s32[], f32[3,4], f32[3,4], f32[], f32[5,4], s32[2]) tuple(i, m, n, x, rows, places)
  ROOT w = (s32[], f32[3,4], f32[3,4], f32[], f32[5,4], s32[2]) while(t), condition=going, body=body_of_all
}
"""


@needs_compiler
@pytest.mark.parametrize("columns", [4, 40])
def test_control_flow_stacks_and_exchanged_carries(columns: int, tmp_path: Path) -> None:
    """Carries that change places, rows of a stack read before and after they are written, loops and branches inside; of arrays
    that are locals of the native function, and of larger ones."""
    rng = np.random.default_rng(2)
    arguments = [rng.normal(size=size).astype("f4") for size in [(3, columns), (3, columns), (), (5, columns)]]
    arguments = [*arguments[:2], np.asarray(arguments[2], "f4"), arguments[3], np.zeros(2, "i4")]
    text = "HloModule control\n" + SUM + CONTROL
    for old, new in [(",4]", f",{columns}]"), ("[12]", f"[{3 * columns}]"), (":4]", f":{columns}]"), ("1,4}", f"1,{columns}}}")]:
        text = text.replace(old, new)
    assert natively(text)
    want, got = run_both(text, arguments, tmp_path)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


NESTED = """HloModule nested
inner_body {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = ARRAY get-tuple-element(p), index=1
  b = ARRAY get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  d = ARRAY subtract(a, b)
  row = f32[1,COLUMNS] slice(b), slice={[2:3],[0:COLUMNS]}
  u = ARRAY dynamic-update-slice(a, row, i, zero)
  v = ARRAY dynamic-update-slice(b, row, i, zero)
  ROOT r = (s32[], ARRAY, ARRAY) tuple(j, RESULTS)
}
inner_going {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = ARRAY get-tuple-element(p), index=1
  b = ARRAY get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  init = (s32[], ARRAY, ARRAY) tuple(zero, a, b)
  inner = (s32[], ARRAY, ARRAY) while(init), condition=inner_going, body=inner_body
  x = ARRAY get-tuple-element(inner), index=1
  y = ARRAY get-tuple-element(inner), index=2
  ROOT r = (s32[], ARRAY, ARRAY) tuple(j, y, x)
}
going {
  p = (s32[], ARRAY, ARRAY) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  i = s32[] constant(0)
  a = ARRAY parameter(0)
  b = ARRAY parameter(1)
  t = (s32[], ARRAY, ARRAY) tuple(i, a, b)
  w = (s32[], ARRAY, ARRAY) while(t), condition=going, body=body
  x = ARRAY get-tuple-element(w), index=1
  y = ARRAY get-tuple-element(w), index=2
  ROOT r = (ARRAY, ARRAY) tuple(x, y)
}
"""


@needs_compiler
@pytest.mark.parametrize("columns", [4, 40])
@pytest.mark.parametrize("results", ["b, a", "d, d", "d, a", "b, d", "u, a", "u, v", "b, v", "u, d"])
def test_a_carry_never_takes_the_memory_of_another(results: str, columns: int, tmp_path: Path) -> None:
    text = NESTED.replace("ARRAY", f"f32[3,{columns}]").replace("COLUMNS", str(columns)).replace("RESULTS", results)
    assert natively(text)
    rng = np.random.default_rng(3)
    want, got = run_both(text, [rng.normal(size=(3, columns)).astype("f4") for _ in range(2)], tmp_path)
    for mine, theirs in zip(got, want, strict=True):
        assert np.array_equal(mine, theirs)


@needs_compiler
def test_a_loop_goes_on_natively_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched over in mid-run and called again: the same results, arguments untouched, and one function for all calls."""
    text = loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM, steps=100)
    old = f"old = f32[3,4] get-tuple-element(carry), index={len(OPERANDS) + 1}"
    text = text.replace("r0 = f32[3,4] add(m, m)", f"{old}\n  r0 = f32[3,4] add(old, m)")
    computation, arguments = xla_torch.parse_hlo(text), [torch.from_numpy(a) for a in operands()]
    before = [a.clone() for a in arguments]
    with native_after(math.inf, tmp_path):
        (want,) = computation(*arguments)
    begun: list[int] = []
    taken: list[float] = []
    make, finish, is_ready = MachineCode.make, NativeLoop.finish, NativeLoop.is_ready

    def made_at_once(code: MachineCode) -> None:
        make(code)
        code.wait()

    def ready_later(loop: NativeLoop, seconds: float) -> bool:
        taken.append(seconds)
        return is_ready(loop, 0.0 if len(taken) == 1 else 1.0)

    def noted(loop: NativeLoop, counters: Sequence[int], *state: tuple[torch.Tensor, ...]) -> object:
        begun.append(counters[0])
        return finish(loop, counters, *state)

    monkeypatch.setattr(MachineCode, "make", made_at_once)
    monkeypatch.setattr(NativeLoop, "finish", noted)
    monkeypatch.setattr(NativeLoop, "is_ready", ready_later)
    monkeypatch.setattr(tuning, "NATIVE_CALL", 0.0)
    with native_after(0.5, tmp_path):
        first, second = computation(*arguments)[0], computation(*arguments)[0]
    assert taken[0] < taken[1]
    assert begun[0] in range(16, 100, 16)
    assert begun[1:] == [0]
    torch.testing.assert_close(first, want)
    torch.testing.assert_close(second, want)
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))
    assert list((tmp_path / "native").glob("loop_*.so"))


@needs_compiler
@pytest.mark.parametrize(("steps", "begins"), [(100_000, True), (2, False)])
def test_a_loop_that_will_take_long_is_compiled_beside_its_steps(steps: int, begins: bool, tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[MachineCode] = []

    def noted(code: MachineCode) -> None:
        begun.append(code)

    monkeypatch.setattr(MachineCode, "make", noted)
    computation = xla_torch.parse_hlo(loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM, steps))
    (loop,) = [m for m in modules(computation) if isinstance(m, NativeLoop)]
    with native_after(0.005, tmp_path):
        assert loop.watch(tuple(torch.zeros(n // 4, dtype=torch.int32) for n in map(loop.bytes.__getitem__, loop.varying)),
                          tuple(torch.zeros(n, dtype=torch.uint8) for n in map(loop.bytes.__getitem__, loop.fixed)), steps)
    assert bool(begun) == begins
    begun.clear()
    with native_after(0.005, tmp_path):
        xla_torch.parse_hlo(loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM, steps)).lowered()
    assert bool(begun) == begins, "lowering knows how many steps there will be"


@needs_compiler
@pytest.mark.parametrize("dims", [(5000,), (70, 80)])
def test_long_reductions_whose_order_matters_are_loops(dims: tuple[int, ...], tmp_path: Path) -> None:
    rule = HORNER_OF_TWO
    text = reduce_hlo(rule.text(), rule.types, rule.identity, dims, list(range(len(dims))))
    in_torch, native = run_both(text, rule.operands(dims, 3), tmp_path)
    for a, b in zip(in_torch, native, strict=True):
        np.testing.assert_array_equal(a, b)
    assert list((tmp_path / "native").glob("loop_*.so"))


def modules(computation: xla_torch.XlaComputation) -> list[torch.nn.Module]:
    return list(computation.lowered().modules())


@pytest.mark.parametrize("row", [
    "c64[3] complex(u, u)", "f32[3,4] reduce-precision(m), exponent_bits=5, mantissa_bits=9", "f16[3,4] convert(m)",
    "f32[3,4] rng(s, s), distribution=rng_uniform",
])
def test_what_stays_in_torch(row: str) -> None:
    minus = "minus_one {\n  a = f32[] parameter(0)\n  ROOT r = f32[] negate(a)\n}\n"
    assert not natively(loop_of_rows([row], OPERANDS, minus))


def test_code_that_does_not_compile_is_told_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, options: tuple[str, ...]) -> MachineCode:
        return MachineCode(text, (sys.executable, "-c", "raise SystemExit('no compiler today')"), tmp_path)

    monkeypatch.setattr("xla_torch.lowering.control.is_available", lambda: True)
    monkeypatch.setattr("xla_torch.kernels.native.machine_code", broken)
    computation = xla_torch.parse_hlo(loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM))
    with native_after(0.0, tmp_path), pytest.warns(RuntimeWarning, match="no compiler today"):
        first = computation.run_numpy(*operands())
    with warnings.catch_warnings(), native_after(0.0, tmp_path):
        warnings.simplefilter("error")
        assert np.array_equal(computation.run_numpy(*operands())[0], first[0])


def test_nothing_of_a_program_s_text_stands_in_the_source() -> None:
    """Names and metadata are a stranger's; the code has none of them."""
    text = loop_of_rows(["f32[3,4] add(m, m)"], OPERANDS, SUM).replace("carry", "import_os")
    text = text.replace("\nbody {", "\nexec_me {").replace("body=body", "body=exec_me")
    computation = canonicalize(xla_torch.parse_hlo(text).module.entry)
    (loop,) = [i for i in computation.instructions if i.opcode == "while"]
    source = loop_source(loop, frozenset(), Machine()).text
    assert "import_os" not in source
    assert "exec_me" not in source


def test_tables_name_ops() -> None:
    assert not set(TABLES["native element"]) & set(TABLES["native array"])
