"""Rows of programs with loops that become native code: ops of floats, and all others in small arrays, with their operands and
regions; and a loop with loops and branches inside."""

from __future__ import annotations

import numpy as np

FLOATS = [
    "add(x, y)", "subtract(x, y)", "multiply(x, y)", "divide(x, y)", "remainder(x, y)", "power(x, y)", "maximum(x, y)",
    "minimum(x, y)", "atan2(x, y)", "abs(x)", "negate(x)", "sign(x)", "exponential(x)", "exponential-minus-one(x)", "log(x)",
    "log-plus-one(x)", "sqrt(x)", "rsqrt(x)", "cbrt(x)", "sine(x)", "cosine(x)", "tan(x)", "tanh(x)", "logistic(x)", "erf(x)",
    "floor(x)", "ceil(x)", "round-nearest-even(x)", "round-nearest-afz(x)", "clamp(y, x, y)", "asin(x)", "acos(x)", "atan(x)",
    "asinh(x)", "acosh(x)", "atanh(x)", "sinh(x)", "cosh(x)",
]

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
