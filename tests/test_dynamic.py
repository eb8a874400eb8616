"""Dynamic sizes: bounded (``<=N``) and unbounded (``?``) dimensions through every op, against real XLA where it can.

Real XLA for the CPU pads a dynamic array to its bound and returns that buffer: the first elements, row by row, are the array,
what is behind them is anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from oracle import needs_xla, run_xla, xla_accepts, xla_canonical
from xla_torch import XlaBuilder, XlaComputation, ops
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.opcodes.contraction import DotDimensionNumbers
from xla_torch.shape import UNBOUNDED, Shape
from xla_torch.types import F32

REGIONS = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
mul {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] multiply(a, b)
}
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}
lt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
neg {
  a = f32[] parameter(0)
  ROOT r = f32[] negate(a)
}
add_two {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  t = f32[] add(b, d)
  ROOT r = (f32[], f32[]) tuple(s, t)
}
gt_first {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
double {
  a = f32[<=8] parameter(0)
  ROOT r = f32[<=8] add(a, a)
}
minus {
  a = f32[<=8] parameter(0)
  ROOT r = f32[<=8] negate(a)
}
under_three {
  a = (s32[], f32[<=8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
step {
  a = (s32[], f32[<=8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  x = f32[<=8] get-tuple-element(a), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[<=8] add(x, x)
  ROOT r = (s32[], f32[<=8]) tuple(j, y)
}
static_step {
  a = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  x = f32[8] get-tuple-element(a), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] add(x, x)
  ROOT r = (s32[], f32[8]) tuple(j, y)
}
static_under_three {
  a = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(a), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
"""

HEAD = """p = f32[8] parameter(0)
q = f32[4,6] parameter(1)
n = s32[] parameter(2)
k = s32[] parameter(3)
d = f32[<=8] set-dimension-size(p, n), dimensions={0}
e = f32[<=4,6] set-dimension-size(q, k), dimensions={0}
f = f32[4,<=6] set-dimension-size(q, k), dimensions={1}
g = f32[<=4,<=6] set-dimension-size(e, k), dimensions={1}
z = f32[] constant(0)
one = f32[] constant(1)
i0 = s32[] constant(0)
i1 = s32[] constant(1)
i2 = s32[] constant(2)
i4 = s32[] constant(4)
w = f32[6] slice(p), slice={[0:6]}
p2 = f32[2] slice(p), slice={[0:2]}
p3 = f32[3] slice(p), slice={[0:3]}
p4 = f32[4] slice(p), slice={[0:4]}
q2 = f32[4,2] slice(q), slice={[0:4], [0:2]}
q4 = f32[4,4] slice(q), slice={[0:4], [0:4]}
r2 = f32[2,6] slice(q), slice={[0:2], [0:6]}
x3 = s32[3] constant({0,1,7})
y3 = s32[3] constant({0,1,3})
d1 = f32[<=8] set-dimension-size(p, i1), dimensions={0}
d4 = f32[<=4] set-dimension-size(p4, i2), dimensions={0}
dx3 = s32[<=3] set-dimension-size(x3, i2), dimensions={0}
dy3 = s32[<=3] set-dimension-size(y3, i2), dimensions={0}"""
"""d has 5 of 8 elements, e and f 3 of 4 rows and of 6 columns, g both."""

P, Q = np.arange(1, 9, dtype=np.float32), (np.arange(24, dtype=np.float32) - 7).reshape(4, 6)
ARGUMENTS = P, Q, np.int32(5), np.int32(3)


def hlo(row: str, head: str = HEAD) -> str:
    """A program whose root is the last instruction of the row; instructions are divided by ``;``."""
    *lines, root = [line.strip() for line in row.split(";")]
    body = [*head.splitlines(), *lines, f"ROOT root = {root}"]
    return "\n".join(["HloModule dynamic", REGIONS + "ENTRY entry {", *(f"  {line}" for line in body), "}"])


def assert_valid_part(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
    """Each of our arrays is what XLA's buffer begins with."""
    assert len(ours) == len(theirs)
    for mine, buffer in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, buffer.ravel()[:mine.size].reshape(mine.shape), rtol=1e-5, atol=1e-6)


AS_XLA = [
    # elementwise, with static operands beside dynamic ones
    "f32[<=8] tanh(d)", "pred[<=8] is-finite(d)", "f32[<=8] add(d, p)", "f32[<=8] add(p, d)", "f32[<=8] add(d, d)",
    "f32[<=8] add(d, d1)", "f32[<=8] add(d1, p)", "f32[<=4,<=6] multiply(g, q)", "pred[<=8] compare(p, d), direction=LT",
    "c = pred[<=8] compare(d, p), direction=EQ; f32[<=8] select(c, d, p)",
    "c = pred[8] compare(p, p), direction=EQ; f32[<=8] select(c, d, p)", "f32[<=8] clamp(z, d, one)", "f32[<=8] clamp(p, d, p)",
    "b = f32[8] broadcast(one), dimensions={}; f32[<=8] add(d, b)",
    "b = f32[<=8] broadcast(one), dimensions={}; f32[<=8] add(d, b)", "c64[<=8] complex(d, p)", "s32[<=8] convert(d)",
    "f32[<=8] copy(d)", "f32[<=8] bitcast(d)", "u32[<=8] bitcast-convert(d)",
    "f32[<=8] reduce-precision(d), exponent_bits=5, mantissa_bits=2", "f32[<=8] map(d), dimensions={0}, to_apply=neg",
    "f32[<=8] map(d, p), dimensions={0}, to_apply=add",
    # movement
    "f32[6,<=4] transpose(e), dimensions={1,0}", "f32[<=8] reverse(d), dimensions={0}", "f32[<=4,6] reverse(e), dimensions={1}",
    "f32[<=16] concatenate(d, p), dimensions={0}", "f32[<=16] concatenate(p, d), dimensions={0}",
    "f32[<=4,12] concatenate(e, q), dimensions={1}", "f32[8,<=6] concatenate(q, f), dimensions={0}",
    "f32[<=11] pad(d, z), padding=1_2", "f32[<=15] pad(d, z), padding=0_0_1", "f32[<=16] pad(d, z), padding=-1_2_1",
    "f32[<=6] pad(d, z), padding=0_-2", "f32[<=4,8] pad(e, z), padding=0_0x1_1", "f32[<=8,3] broadcast(d), dimensions={0}",
    "f32[3,<=8] broadcast(d), dimensions={1}", "f32[<=8,1] reshape(d)", "f32[1,<=8] reshape(d)", "f32[<=24] reshape(e)",
    "f32[<=24] reshape(f)", "f32[<=24] reshape(g)", "f32[<=4,2,3] reshape(e)", "f32[<=8] slice(d), slice={[0:8]}",
    "f32[<=3] slice(d), slice={[4:7]}", "f32[<=4] slice(d), slice={[0:8:2]}", "f32[<=3] slice(d), slice={[1:7:2]}",
    "f32[1] slice(d), slice={[2:3]}", "f32[<=3] slice(d), slice={[0:3]}",
    # indexing: starts are clamped at the bound, not at the size
    "f32[3] dynamic-slice(d, i1), dynamic_slice_sizes={3}", "f32[<=8] dynamic-slice(d, i1), dynamic_slice_sizes={8}",
    "f32[<=4,2] dynamic-slice(e, i0, i1), dynamic_slice_sizes={4,2}", "f32[<=8] dynamic-update-slice(d, p2, i0)",
    "f32[<=8] dynamic-update-slice(d, p2, i4)", "f32[<=8] dynamic-update-slice(d, p2, n)",
    "f32[<=8] dynamic-update-slice(d, p, i0)", "f32[<=8] dynamic-update-slice(d, d, i0)",
    "f32[<=4,6] dynamic-update-slice(e, q2, i0, i1)",
    "f32[<=4,3] gather(e, y3), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, "
    "slice_sizes={4,1}",
    "f32[<=3,6] gather(q, dy3), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,6}",
    "i = s32[2] constant({1,4}); f32[2,<=8] gather(d, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={8}",
    "i = s32[2] constant({1,3}); f32[2,2] gather(d, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={2}",
    "f32[<=8] scatter(d, x3, p3), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=add",
    "f32[8] scatter(p, dx3, p3), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=add",
    "i = s32[2] constant({0,5}); f32[<=4,6] scatter(e, i, q2), update_window_dims={0}, inserted_window_dims={1}, "
    "scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=add",
    "i = s32[2] constant({1,3}); f32[<=4,6] scatter(e, i, r2), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    # reductions ignore what is beyond the size
    "f32[] reduce(d, z), dimensions={0}, to_apply=add", "f32[6] reduce(e, z), dimensions={0}, to_apply=add",
    "f32[<=4] reduce(e, z), dimensions={1}, to_apply=add", "f32[] reduce(d, one), dimensions={0}, to_apply=mul",
    "f32[] reduce(d, z), dimensions={0}, to_apply=max", "f32[] reduce(g, z), dimensions={0,1}, to_apply=add",
    "(f32[], f32[]) reduce(d, p, z, z), dimensions={0}, to_apply=add_two",
    "f32[<=6] reduce-window(d, z), window={size=3}, to_apply=add",
    "f32[<=4,4] reduce-window(e, z), window={size=1x3}, to_apply=add",
    "f32[<=3,6] reduce-window(e, z), window={size=2x1}, to_apply=add",
    "f32[<=8] select-and-scatter(d, d4, z), window={size=2 stride=2}, select=ge, scatter=add",
    "f32[<=8] select-and-scatter(d, p4, z), window={size=2 stride=2}, select=ge, scatter=add",
    "f32[<=8] sort(d), dimensions={0}, to_apply=lt", "f32[<=4,6] sort(e), dimensions={0}, to_apply=lt",
    # contraction
    "f32[] dot(d, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[<=4,4] dot(e, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "f32[6,6] dot(e, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[<=4] dot(e, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "f32[4] dot(f, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "s = f32[6] slice(p), slice={[0:6]}; x = f32[2,1,3] reshape(s); m = f32[<=2,1,3] set-dimension-size(x, i1), dimensions={0}; "
    "c = f32[1,1,3] reshape(p3); f32[<=2,1,3] convolution(m, c), window={size=3 pad=1_1}, dim_labels=bf0_io0->bf0",
    "x = f32[1,<=8,1] reshape(d); c = f32[8,1,1] reshape(p); f32[1,1,1] convolution(x, c), window={size=1}, "
    "dim_labels=bf0_io0->bf0",
    # the rest
    "f32[<=4,6] batch-norm-inference(e, w, w, w, w), epsilon=0.1, feature_index=1",
    "(f32[<=4,6], f32[6], f32[6]) batch-norm-training(e, w, w), epsilon=0.1, feature_index=1",
    "b = pred[] constant(true); f32[<=8] conditional(b, d, d), true_computation=double, false_computation=minus",
    "b = pred[] compare(n, k), direction=LT; f32[<=8] conditional(b, d, d), true_computation=double, false_computation=minus",
    "t = (s32[], f32[<=8]) tuple(i0, d); v = (s32[], f32[<=8]) while(t), condition=under_three, body=step; "
    "x = f32[<=8] get-tuple-element(v), index=1; f32[] reduce(x, z), dimensions={0}, to_apply=add",
    "f32[<=8] call(d), to_apply=double", "(f32[<=8], f32[<=4,6]) tuple(d, e)",
    "f32[<=8] set-dimension-size(d, k), dimensions={0}",
    "s32[] get-dimension-size(d), dimensions={0}", "s32[] get-dimension-size(e), dimensions={1}",
    "f32[<=2,<=4] dynamic-reshape(d, i2, i2)", "f32[<=8] dynamic-reshape(d, k)", "f32[<=8] dynamic-reshape(p, k)",
    # a program that says static where a dimension is dynamic: what comes of it is dynamic
    "a = f32[8] add(d, p); f32[] reduce(a, z), dimensions={0}, to_apply=add",
    "a = f32[8] add(d, p); s32[] get-dimension-size(a), dimensions={0}",
    "a = f32[8,3] broadcast(d), dimensions={0}; f32[] reduce(a, z), dimensions={0,1}, to_apply=add",
]


@needs_xla
@pytest.mark.parametrize("row", AS_XLA)
def test_values_as_xla(row: str) -> None:
    assert_valid_part(xla_torch.parse_hlo(hlo(row)).run_numpy(*ARGUMENTS), run_xla(hlo(row), *ARGUMENTS))


_SPLIT = "XLA for the CPU forgets the size where a dynamic dimension is split"
_REFUSED = "XLA for the CPU refuses"
_BEYOND = "XLA for the CPU reads what is beyond the size"
OWN_WAY: list[tuple[str, Any, str]] = [
    ("f32[2,<=4] reshape(d)", [[1, 2, 3], [4, 5, 0]], _SPLIT),
    ("f32[<=4,2] reshape(d)", [[1, 2], [3, 4], [5, 0]], _SPLIT),
    ("f32[2,4] reshape(d)", [[1, 2, 3, 4], [5, 0, 0, 0]], _SPLIT),
    ("c = f32[<=12,2] reshape(e); f32[2] reduce(c, z), dimensions={0}, to_apply=add", [9, 18], _REFUSED),
    ("f32[<=4,1,<=6] reshape(g)", [[[-7, -6, -5]], [[-1, 0, 1]], [[5, 6, 7]]], _REFUSED),
    ("f32[<=2,4] dynamic-reshape(d, i2, i4)", [[1, 2, 3, 4], [5, 0, 0, 0]], _BEYOND),
    ("f32[1] slice(d), slice={[6:7]}", [0], _BEYOND),
    ("f32[<=2] slice(d), slice={[6:8]}", [], "XLA for the CPU makes a negative size"),
    ("a = f32[<=3] slice(d), slice={[0:3]}; s32[] get-dimension-size(a), dimensions={0}", 3, "XLA for the CPU says 5"),
    ("f32[3] dynamic-slice(d, n), dynamic_slice_sizes={3}", [0, 0, 0], _BEYOND),
    ("f32[2,2] gather(d, y2), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}",
     [[5, 0], [0, 0]], _BEYOND),
    ("f32[8] scatter(p, x3, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
     "index_vector_dim=1, to_apply=add", [2, 4, 3, 4, 5, 6, 7, 8], _BEYOND),
    ("f32[8] dynamic-update-slice(p, u, i1)", [1, 1, 2, 4, 5, 6, 7, 8], _REFUSED),
    ("f32[<=8] dynamic-update-slice(d, u, i4)", [1, 2, 3, 4, 1], _REFUSED),
    ("u16[<=8,2] bitcast-convert(d)", [[0, 16256], [0, 16384], [0, 16448], [0, 16512], [0, 16544]], _REFUSED),
    ("f32[<=8] reduce-window(d, z), window={size=3 pad=1_1}, to_apply=add", [3, 6, 9, 12, 9],
     "XLA for the CPU leaves the padding out of the size"),
    ("f32[<=4] reduce-window(d, z), window={size=3 stride=2 pad=1_1}, to_apply=add", [3, 9, 9],
     "XLA for the CPU leaves the padding out of the size"),
    ("f32[<=8] reduce-window(d, z), window={size=8 pad=7_0}, to_apply=add", [1, 3, 6, 10, 15],
     "XLA for the CPU makes a negative size"),
    ("t = (f32[3], s32[3]) topk(d), k=3, largest=true; s32[3] get-tuple-element(t), index=1", [4, 3, 2], _REFUSED),
    ("t = (f32[4,4], s32[4,4]) topk(f), k=4, largest=false; v = f32[4,4] get-tuple-element(t), index=0; "
     "f32[4,3] slice(v), slice={[0:4], [0:3]}", [[-7, -6, -5], [-1, 0, 1], [5, 6, 7], [11, 12, 13]], _REFUSED),
    ("x = f32[1,1,<=8] reshape(d); c = f32[1,1,3] reshape(p3); f32[1,1,<=6] convolution(x, c), window={size=3}, "
     "dim_labels=bf0_io0->bf0", [[[14, 20, 26]]], _REFUSED),
    ("x = f32[1,1,8] reshape(p); m = f32[<=3] set-dimension-size(p3, i2), dimensions={0}; c = f32[1,1,<=3] reshape(m); "
     "f32[1,1,6] convolution(x, c), window={size=3}, dim_labels=bf0_oi0->bf0", [[[5, 8, 11, 14, 17, 20]]], _REFUSED),
    ("i = s32[4] constant({0,1,3,2}); f32[<=4] gather(e, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, "
     "index_vector_dim=1, slice_sizes={1,1}, operand_batching_dims={0}, start_indices_batching_dims={0}", [-7, 0, 8], _BEYOND),
    ("t = (s32[], f32[8]) tuple(i0, d); v = (s32[], f32[8]) while(t), condition=static_under_three, body=static_step; "
     "x = f32[8] get-tuple-element(v), index=1; f32[] reduce(x, z), dimensions={0}, to_apply=add", 120, "as XLA, where it runs"),
    ("f32[8] clamp(d, p, d)", [1, 2, 3, 4, 5, 0, 0, 0], _BEYOND),
    ("(f32[<=8], f32[8]) sort(d, p), dimensions={0}, to_apply=gt_first", [5, 4, 3, 2, 1], _BEYOND),
    ("c = pred[<=8] compare(d, p), direction=EQ; f32[<=8] select(c, p, p)", [1, 2, 3, 4, 5, 6, 7, 8],
     "as XLA, whose size is not the condition's"),
    ("c = c64[<=4,6] complex(e, e); t = c64[<=4,6] fft(c), fft_type=FFT, fft_length={6}; r = f32[<=4,6] real(t); "
     "f32[<=4,1] slice(r), slice={[0:4], [0:1]}", [[-27], [9], [45]], _REFUSED),
    ("f32[8] set-dimension-size(d, i8), dimensions={0}", [1, 2, 3, 4, 5, 0, 0, 0], _BEYOND),
    ("f32[8] add(d, p)", [2, 4, 6, 8, 10, 0, 0, 0], "the rest is anything"),
    ("s = s32[2] constant({2,1}); c = f32[2,6,1] broadcast(one), dimensions={}; "
     "f32[<=4,1] ragged-dot(e, c, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
     "rhs_group_dims={0}",
     [[-27], [9], [45]], _REFUSED),
]
_MORE = HEAD + """
i8 = s32[] constant(8)
y2 = s32[2] constant({4,7})
u = f32[<=3] set-dimension-size(p3, i2), dimensions={0}"""


@pytest.mark.parametrize(("row", "want", "because"), OWN_WAY, ids=[row for row, _, _ in OWN_WAY])
def test_values_where_xla_for_the_cpu_has_none(row: str, want: Any, because: str) -> None:
    got = xla_torch.parse_hlo(hlo(row, _MORE)).run_numpy(*ARGUMENTS)[0]
    np.testing.assert_allclose(got, want)
    assert got.shape == np.shape(want)


MATRICES = [
    ("x = f32[<=4,4] set-dimension-size(q, k), dimensions={0}; c = f32[<=4,4] cholesky(x), lower=true", (3, 3)),
    ("x = f32[<=4,4] set-dimension-size(q, k), dimensions={0}; "
     "c = f32[4,2] triangular-solve(x, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", (3, 2)),
    ("x = f32[4,<=2] set-dimension-size(b, i1), dimensions={1}; "
     "c = f32[4,<=2] triangular-solve(q, x), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", (4, 1)),
]


@pytest.mark.parametrize(("row", "dims"), MATRICES)
def test_matrices_are_cut_square(row: str, dims: tuple[int, int]) -> None:
    """XLA for the CPU hands LAPACK the padding too. The result has the sizes of the block that there is."""
    matrix = np.eye(4, dtype=np.float32) * 4 + 1
    head = ("q = f32[4,4] parameter(0)\nb = f32[4,2] parameter(1)\nk = s32[] constant(3)\ni1 = s32[] constant(1)\n"
            "z = f32[] constant(0)")
    text = hlo(f"{row}; f32[] reduce(c, z), dimensions={{0,1}}, to_apply=add", head)
    rhs = np.arange(8, dtype=np.float32).reshape(4, 2)
    block = matrix[:dims[0], :dims[0]]
    want = np.linalg.cholesky(block) if "cholesky" in row else np.linalg.solve(np.tril(block), rhs[:dims[0], :dims[1]])
    np.testing.assert_allclose(xla_torch.parse_hlo(text).run_numpy(matrix, rhs)[0], want.sum(), rtol=1e-5)


@pytest.mark.parametrize(("row", "error", "message"), [
    ("c = c64[4,<=6] complex(f, f); c64[4,<=6] fft(c), fft_type=FFT, fft_length={6}", UnsupportedError,
     "along a dynamic dimension"),
    ("x = f32[<=8,1,1] reshape(d); c = f32[1,1,1] reshape(one); f32[1,<=8,1] convolution(c, x), window={size=1}, "
     "dim_labels=bf0_oi0->bf0", InvalidArgument, "output features is dynamic"),
    ("f32[<=8] all-to-all(d), dimensions={0}, replica_groups={{0}}", InvalidArgument, "the split dimension is dynamic"),
    ("s32[<=8] iota(), iota_dimension=0", InvalidArgument, "iota of a dynamic shape"),
])
def test_what_xla_refuses(row: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        xla_torch.parse_hlo(hlo(row)).run_numpy(*ARGUMENTS)


@needs_xla
@pytest.mark.parametrize("size", [-3, 0, 1, 8, 12])
def test_sizes_out_of_range_count_as_the_nearest(size: int) -> None:
    """As for XLA's reductions; its get-dimension-size repeats the number, which we do not."""
    arguments = P, Q, np.int32(size), np.int32(3)
    total = hlo("f32[] reduce(d, z), dimensions={0}, to_apply=add")
    assert_valid_part(xla_torch.parse_hlo(total).run_numpy(*arguments), run_xla(total, *arguments))
    number = xla_torch.parse_hlo(hlo("s32[] get-dimension-size(d), dimensions={0}")).run_numpy(*arguments)
    assert number[0] == min(max(size, 0), 8)


def test_sizes_that_do_not_fit_are_an_error_at_run_time() -> None:
    text = hlo("m = f32[<=8] set-dimension-size(p, k), dimensions={0}; f32[<=8] add(d, m)")
    with pytest.raises(RuntimeError, match="must match"):
        xla_torch.parse_hlo(text).run_numpy(*ARGUMENTS)


# ------------------------------------------------------------------------------------------------ shape inference

SHAPES = {
    "u": "f32[?,3]", "v": "f32[?,3]", "w": "f32[?]", "s": "f32[4,3]", "m": "f32[3,5]", "o": "f32[1,3]", "b": "f32[<=4,3]",
    "cu": "pred[?,3]", "cb": "pred[<=4,3]", "iu": "s32[?]", "w4": "f32[<=4]", "c4": "f32[4]", "w3": "f32[3]", "cx": "c64[?,3]",
    "sq": "f32[<=4,4]", "sb": "f32[4,<=3]", "rm": "f32[2,3,5]", "g": "s32[2]", "image": "f32[?,2,5]", "kernel": "f32[2,4,2]",
    "i": "s32[2]", "up": "f32[2,3]", "z": "f32[]", "k": "s32[]"}
INFERRED = [
    "add(u, v)", "add(u, s)", "add(s, u)", "add(u, o)", "add(o, u)", "add(u, b)", "add(b, s)", "add(s, b)", "tanh(u)",
    "complex(s, b)", "complex(u, s)", "compare(u, s), direction=LT", "select(cu, u, s)", "select(cu, s, s)", "select(cb, s, s)",
    "select(cu, b, s)", "select(cb, u, s)", "select(cb, u, u)", "select(cu, b, u)",
    "clamp(z, u, z)", "clamp(s, u, s)", "clamp(u, s, s)", "clamp(b, s, s)", "atan2(b, s)",
    "map(u, v), dimensions={0,1}, to_apply=add",
    "map(s, b), dimensions={0,1}, to_apply=add", "map(s, u), dimensions={0,1}, to_apply=add",
    "transpose(u), dimensions={1,0}", "reverse(u), dimensions={0}", "concatenate(u, s), dimensions={0}",
    "concatenate(u, v), dimensions={1}", "concatenate(u, s), dimensions={1}", "concatenate(s, u), dimensions={1}",
    "concatenate(b, s), dimensions={0}", "concatenate(b, s), dimensions={1}", "pad(u, z), padding=1_1x0_0",
    "pad(b, z), padding=1_1_1x0_0_0", "reduce(u, z), dimensions={0}, to_apply=add", "reduce(u, z), dimensions={1}, to_apply=add",
    "reduce(u, s, z, z), dimensions={1}, to_apply=add_two", "reduce(b, s, z, z), dimensions={1}, to_apply=add_two",
    "reduce(s, b, z, z), dimensions={1}, to_apply=add_two", "reduce-window(u, z), window={size=2x1}, to_apply=add",
    "select-and-scatter(u, v, z), window={size=1x1}, select=ge, scatter=add", "sort(u), dimensions={0}, to_apply=lt",
    "sort(b, s), dimensions={0}, to_apply=gt_first", "dot(u, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot(u, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    *(f"dot({pair}), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
      for pair in ("u, s", "s, u", "b, u", "s, b", "b, s")),
    "ragged-dot(b, rm, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "convolution(image, kernel), window={size=2}, dim_labels=bf0_io0->bf0",
    "gather(u, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    "gather(s, iu), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    "scatter(u, i, up), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add",
    "scatter(s, iu, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add",
    *(f"batch-norm-training({x}, {y}, {y}), epsilon=0.1, feature_index={d}"
      for x, y, d in (("u", "w3", 1), ("b", "w4", 0), ("b", "c4", 0), ("b", "w3", 1))),
    "batch-norm-inference(b, w4, w4, w4, w4), epsilon=0.1, feature_index=0",
    "batch-norm-inference(s, w4, w4, w4, w4), epsilon=0.1, feature_index=0",
    "batch-norm-grad(b, c4, c4, c4, s), epsilon=0.1, feature_index=0", "topk(u), k=2, largest=true",
    "fft(cx), fft_type=FFT, fft_length={3}", "cholesky(sq)",
    "triangular-solve(sq, sb), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", "real(cx)", "copy(b)",
    *(f"set-dimension-size({x}, k), dimensions={{0}}" for x in "usb"), "get-dimension-size(u), dimensions={0}", "tuple(u, b)",
]


@needs_xla
@pytest.mark.parametrize("row", INFERRED)
def test_inferred_shapes_are_xlas(row: str) -> None:
    text = hlo(row, "\n".join(f"{name} = {shape} parameter({k})" for k, (name, shape) in enumerate(SHAPES.items())))
    ours = xla_torch.parse_hlo(text)
    theirs = xla_torch.parse_hlo(xla_canonical(text))
    assert str(ours.program_shape.result) == str(theirs.program_shape.result)


@pytest.mark.parametrize(("row", "want"), [
    ("dynamic-update-slice", "f32[<=4,3]"), ("slice", "f32[?,2]"), ("slice of one", "f32[1,3]"), ("reshape", "f32[<=12]"),
    ("collapse", "f32[?]"), ("inferred", "f32[?,1,3]"), ("broadcast", "f32[2,?,3]"), ("broadcast in dim", "f32[2,<=4,3]"),
])
def test_shapes_of_what_text_cannot_infer(row: str, want: str) -> None:
    builder = XlaBuilder("shapes")
    u, b, s = (builder.parameter(k, Shape.parse(t)) for k, t in enumerate(("f32[?,3]", "f32[<=4,3]", "f32[4,3]")))
    zero = builder.constant(0)
    made = {"dynamic-update-slice": lambda: ops.DynamicUpdateSlice(s, b, [zero, zero]),
            "slice": lambda: ops.SliceInDim(u, 1, 3, 1, 1), "slice of one": lambda: ops.SliceInDim(b, 1, 2, 1, 0),
            "reshape": lambda: ops.Reshape(b, [12]), "collapse": lambda: ops.Collapse(u, [0, 1]),
            "inferred": lambda: ops.ReshapeWithInferredDimension(u, [-1, 1, 3], 0), "broadcast": lambda: ops.Broadcast(u, [2]),
            "broadcast in dim": lambda: ops.BroadcastInDim(b, [2, 4, 3], [1, 2])}
    assert str(made[row]().shape) == want


# ------------------------------------------------------------------------------------------------ builder, any size


def _adding() -> XlaComputation:
    builder = XlaBuilder("adding")
    return builder.build(ops.Add(*(builder.parameter(k, Shape.array(F32)) for k in range(2))))


X, ROW, COLUMN = torch.arange(15.0).reshape(5, 3), torch.tensor([10.0, 20.0, 30.0]), torch.arange(5.0)
Build = Callable[..., Any]
BUILT: list[tuple[str, Build, list[str], list[torch.Tensor], torch.Tensor]] = [
    ("number", lambda x: ops.Add(x, 1.0), ["?,3"], [X], X + 1),
    ("number left", lambda x: ops.Pow(2.0, x), ["?,3"], [X], 2**X),
    ("bounded", lambda x: ops.Add(x, 1.0), ["<=8,3"], [X], X + 1),
    ("two unknown", ops.Add, ["?,3", "?,3"], [X, X], X + X),
    ("unknown size 1 stretches", ops.Add, ["?,3", "?,3"], [X, X[:1]], X + X[:1]),
    ("beside 1", ops.Mul, ["?,3", "1,3"], [X, X[1:2]], X * X[1:2]),
    ("1 beside unknown", ops.Mul, ["1,3", "?,3"], [X[1:2], X], X * X[1:2]),
    ("beside a size", ops.Add, ["?,3", "5,3"], [X, X], X + X),
    ("row", lambda x, y: ops.Add(x, y, (1,)), ["?,3", "3"], [X, ROW], X + ROW),
    ("column", lambda x, y: ops.Add(x, y, (0,)), ["?,3", "?"], [X, COLUMN], X + COLUMN[:, None]),
    ("bounded row", lambda x, y: ops.Add(x, y, (1,)), ["<=8,3", "3"], [X, ROW], X + ROW),
    ("bounded column", lambda x, y: ops.Add(x, y, (0,)), ["<=8,3", "<=8"], [X, COLUMN], X + COLUMN[:, None]),
    ("bounded beside 1", ops.Add, ["<=8,3", "1,3"], [X, X[1:2]], X + X[1:2]),
    ("bounded beside static", ops.Add, ["<=8,3", "8,3"], [X, torch.ones(8, 3)], X + 1),
    ("outer", ops.Add, ["?,1", "1,?"], [X[:, :1], X[:1]], X[:, :1] + X[:1]),
    ("select", lambda x: ops.Select(ops.Gt(x, 4.0), x, 0.0), ["?,3"], [X], torch.where(X > 4, X, 0)),
    ("clamp", lambda x: ops.Clamp(2.0, x, 6.0), ["?,3"], [X], X.clamp(2, 6)),
    ("clamp bounded", lambda x: ops.Clamp(2.0, x, 6.0), ["<=8,3"], [X], X.clamp(2, 6)),
    ("reshape", lambda x: ops.ReshapeWithInferredDimension(x, [-1, 3, 1], 0), ["?,3"], [X], X[..., None]),
    ("reshape to unknown", lambda x: ops.Reshape(x, [UNBOUNDED]), ["?,3"], [X], X.flatten()),
    ("collapse", lambda x: ops.Collapse(x, [0, 1]), ["?,3"], [X], X.flatten()),
    ("collapse bounded", lambda x: ops.Collapse(x, [0, 1]), ["<=8,3"], [X], X.flatten()),
    ("transpose", lambda x: ops.Transpose(x, [1, 0]), ["?,3"], [X], X.T),
    ("slice", lambda x: ops.Slice(x, [0, 1], [UNBOUNDED, 3]), ["?,3"], [X], X[:, 1:]),
    ("slice in dim", lambda x: ops.SliceInDim(x, 1, 3, 1, 1), ["?,3"], [X], X[:, 1:]),
    ("pad", lambda x: ops.Pad(x, 0.0, [(1, 1, 0), (0, 0, 0)]), ["?,3"], [X], torch.constant_pad_nd(X, [0, 0, 1, 1])),
    ("reverse", lambda x: ops.Rev(x, [0]), ["?,3"], [X], X.flip(0)),
    ("concatenate", lambda x, y: ops.ConcatInDim(x.builder, [x, y], 0), ["?,3", "2,3"], [X, X[:2]], torch.cat([X, X[:2]])),
    ("concatenate beside", lambda x, y: ops.ConcatInDim(x.builder, [x, y], 1), ["?,3", "?,3"], [X, X], torch.cat([X, X], 1)),
    ("reduce", lambda x: ops.Reduce(x, x.builder.constant(0.0), _adding(), [0]), ["?,3"], [X], X.sum(0)),
    ("reduce rows", lambda x: ops.Reduce(x, x.builder.constant(0.0), _adding(), [1]), ["?,3"], [X], X.sum(1)),
    ("mean", lambda x: ops.Div(ops.Reduce(x, x.builder.constant(0.0), _adding(), [0]),
                               ops.ConvertElementType(ops.GetDimensionSize(x, 0), F32)), ["?,3"], [X], X.mean(0)),
    ("softmax", lambda x: ops.Div(ops.Exp(x), ops.Reduce(ops.Exp(x), x.builder.constant(0.0), _adding(), [1]), (0,)), ["?,3"],
     [X], X.softmax(1)),
    ("dot", ops.Dot, ["?,3", "3,3"], [X, X[:3]], X @ X[:3]),
    ("batched dot", lambda x, y: ops.DotGeneral(x, y, DotDimensionNumbers((2,), (1,), (0,), (0,))), ["?,1,3", "?,3,1"],
     [X[:, None], X[..., None]], (X * X).sum(1)[:, None, None]),
    ("convolution", lambda x, y: ops.Conv(x, y, [1], ops.Padding.VALID), ["?,1,3", "1,1,3"], [X[:, None], ROW[None, None]],
     (X @ ROW)[:, None, None]),
    ("broadcast", lambda x: ops.Broadcast(x, [2]), ["?,3"], [X], X.expand(2, 5, 3)),
    ("broadcast in dim", lambda x: ops.BroadcastInDim(x, [2, UNBOUNDED, 3], [1, 2]), ["?,3"], [X], X.expand(2, 5, 3)),
    ("map", lambda x, y: ops.Map(x.builder, [x, y], _adding(), [0, 1]), ["?,3", "?,3"], [X, X], X + X),
    ("dynamic slice", lambda x: ops.DynamicSlice(x, [x.builder.constant(3), x.builder.constant(0)], [2, 3]), ["?,3"], [X], X[3:]),
    ("dynamic reshape", lambda x: ops.DynamicReshape(x, [3, 5], [3, UNBOUNDED], [False, True]), ["?,3"], [X], X.reshape(3, 5)),
    ("remove", lambda x: ops.RemoveDynamicDimension(x, 0), ["<=8,3"], [X], torch.constant_pad_nd(X, [0, 0, 0, 3])),
    ("set", lambda x: ops.SetDimensionSize(x, 2, 0), ["?,3"], [X], X[:2]),
]


def built(make: Build, dims: Sequence[str]) -> XlaComputation:
    builder = XlaBuilder("built")
    return builder.build(make(*(builder.parameter(k, Shape.parse(f"f32[{d}]")) for k, d in enumerate(dims))))


@pytest.mark.parametrize(("make", "dims", "given", "want"), [row[1:] for row in BUILT], ids=[row[0] for row in BUILT])
def test_built_programs_take_any_size(make: Build, dims: list[str], given: list[torch.Tensor], want: torch.Tensor) -> None:
    computation = built(make, dims)
    torch.testing.assert_close(computation(*given), want)
    text = computation.to_hlo_text()
    again = xla_torch.parse_hlo(text)
    assert again.to_hlo_text() == text
    torch.testing.assert_close(again(*given), want)
    np.testing.assert_allclose(computation.run_numpy(*(t.numpy() for t in given))[0], want.numpy(), rtol=1e-6)


@needs_xla
@pytest.mark.parametrize(("make", "dims"), [row[1:3] for row in BUILT], ids=[row[0] for row in BUILT])
def test_xla_reads_built_programs(make: Build, dims: list[str]) -> None:
    assert xla_accepts(built(make, dims).to_hlo_text()) is None


@pytest.mark.parametrize(("dims", "given"), [("<=4,3", (5, 3)), ("?,3", (3,)), ("?,4", (5, 3)), ("<=4,?", (2, 3, 1))])
@pytest.mark.parametrize("numpy", [False, True])
def test_what_does_not_fit_is_refused_at_the_door(dims: str, given: tuple[int, ...], numpy: bool) -> None:
    computation = built(lambda x: ops.Add(x, 1.0), [dims])
    with pytest.raises(InvalidArgument, match=r"argument 0.* has the wrong shape or dtype"):
        computation.run_numpy(np.zeros(given, np.float32)) if numpy else computation(torch.zeros(given))


@pytest.mark.parametrize("rows", [0, 1, 3, 4])
def test_a_bounded_parameter_takes_every_size(rows: int) -> None:
    computation = built(lambda x: ops.Reduce(ops.Add(x, x), x.builder.constant(0.0), _adding(), [0]), ["<=4,3"])
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    np.testing.assert_allclose(computation.run_numpy(x)[0], 2 * x.sum(0))


def test_an_unbounded_dimension_has_no_bound_to_go_back_to() -> None:
    with pytest.raises(InvalidArgument, match="has no bound"):
        built(lambda x: ops.RemoveDynamicDimension(x, 0), ["?,3"])


# ------------------------------------------------------------------------------------------------ text

FORMS = ["f32[<=8] set-dimension-size(p, n), dimensions={0}", "f32[8] set-dimension-size(d, i8), dimensions={0}",
         "s32[] get-dimension-size(d), dimensions={0}", "f32[<=2,<=4] dynamic-reshape(d, i2, i2)",
         "f32[2,<=4] dynamic-reshape(d, i2, i2)", "f32[<=8,1] reshape(d), inferred_dimension=0",
         "(f32[<=8], f32[<=4,6]) tuple(d, e)"]


@needs_xla
@pytest.mark.parametrize("row", FORMS)
def test_text_of_dynamic_shapes(row: str) -> None:
    text = xla_torch.parse_hlo(hlo(row, _MORE)).to_hlo_text()
    assert xla_torch.parse_hlo(text).to_hlo_text() == text
    ours, theirs = (xla_torch.parse_hlo(t).program_shape for t in (text, xla_canonical(text)))
    assert [str(s) for s in (*ours.parameters, ours.result)] == [str(s) for s in (*theirs.parameters, theirs.result)]


def test_an_unbounded_slice_in_text() -> None:
    text = hlo("f32[?,2] slice(u), slice={[0:-9223372036854775808], [0:2]}", "u = f32[?,3] parameter(0)")
    assert xla_torch.parse_hlo(text)(X).tolist() == X[:, :2].tolist()
    with pytest.raises(InvalidArgument, match="does not take all"):
        xla_torch.parse_hlo(text.replace("[0:-", "[1:-"))


# ------------------------------------------------------------------------------------------------ gradients

WEIGHTS = torch.arange(1.0, 17)
GRADIENTS: list[tuple[str, str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = [
    ("mixed", "f32[<=8] multiply(d, p)", lambda p, q: p[:5] * p[:5]),
    ("declared static", "a = f32[8] multiply(d, p); f32[8] add(a, p)", lambda p, q: p[:5] * p[:5] + p[:5]),
    ("concatenate", "c = f32[<=16] concatenate(d, p), dimensions={0}; f32[<=16] multiply(c, weights)",
     lambda p, q: torch.cat([p[:5], p]) * WEIGHTS[:13]),
    ("pad", "c = f32[<=11] pad(d, z), padding=1_2; v = f32[11] slice(weights), slice={[0:11]}; f32[<=11] multiply(c, v)",
     lambda p, q: torch.constant_pad_nd(p[:5], [1, 2]) * WEIGHTS[:8]),
    ("reverse", "c = f32[<=8] reverse(d), dimensions={0}; f32[<=8] multiply(c, p)", lambda p, q: p[:5].flip(0) * p[:5]),
    ("slice", "c = f32[<=4] slice(d), slice={[1:8:2]}; f32[<=4] multiply(c, c)", lambda p, q: p[1:5:2] ** 2),
    ("sort", "c = f32[<=8] sort(d), dimensions={0}, to_apply=lt; f32[<=8] multiply(c, p)", lambda p, q: p[:5].sort()[0] * p[:5]),
    ("dot", "c = f32[6,6] dot(e, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}; f32[6,6] sine(c)",
     lambda p, q: (q[:3].T @ q[:3]).sin()),
    ("log-sum-exp", "m = f32[6] reduce(e, lowest), dimensions={0}, to_apply=max; b = f32[<=4,6] broadcast(m), dimensions={1}; "
     "s = f32[<=4,6] subtract(e, b); powers = f32[<=4,6] exponential(s); "
     "t = f32[6] reduce(powers, z), dimensions={0}, to_apply=add; l = f32[6] log(t); f32[6] add(l, m)",
     lambda p, q: q[:3].logsumexp(0)),
    ("product", "f32[] reduce(d, one), dimensions={0}, to_apply=mul", lambda p, q: p[:5].prod()),
    ("maximum", "f32[] reduce(d, z), dimensions={0}, to_apply=max", lambda p, q: p[:5].max()),
    ("window", "c = f32[<=7] reduce-window(d, z), window={size=2}, to_apply=add; f32[<=7] multiply(c, c)",
     lambda p, q: (p[:4] + p[1:5]) ** 2),
    ("reshape", "c = f32[<=24] reshape(e); v = f32[24] iota(), iota_dimension=0; f32[<=24] multiply(c, v)",
     lambda p, q: q[:3].flatten() * torch.arange(18)),
    ("broadcast", "c = f32[<=8,3] broadcast(d), dimensions={0}; f32[<=8,3] multiply(c, c)", lambda p, q: p[:5] ** 2 * 3),
    ("gather", "c = f32[3,6] gather(e, y), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
     "slice_sizes={1,6}; f32[3,6] sine(c)", lambda p, q: q[[0, 1, 1]].sin()),
    ("scatter", "c = f32[<=8] scatter(d, x, u), update_window_dims={}, inserted_window_dims={0}, "
     "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add; f32[<=8] multiply(c, c)",
     lambda p, q: torch.cat([p[:1] + p[:1], p[1:3], p[3:4] + p[1:2], p[4:5]]) ** 2),
    ("update", "c = f32[<=8] dynamic-update-slice(d, u, i4); f32[<=8] multiply(c, c)",
     lambda p, q: torch.cat([p[:4], p[:1]]) ** 2),
    ("loop", "t = (s32[], f32[<=8]) tuple(i0, d); v = (s32[], f32[<=8]) while(t), condition=under_three, body=step; "
     "last = f32[<=8] get-tuple-element(v), index=1; f32[<=8] multiply(last, p)", lambda p, q: 8 * p[:5] * p[:5]),
    ("branch", "b = pred[] compare(n, k), direction=LT; c = f32[<=8] conditional(b, d, d), true_computation=double, "
     "false_computation=minus; f32[<=8] multiply(c, p)", lambda p, q: -p[:5] * p[:5]),
    ("grown", "f32[8] set-dimension-size(d, i8), dimensions={0}", lambda p, q: p[:5]),
    ("dynamic reshape", "c = f32[<=2,<=4] dynamic-reshape(d, i2, i2); f32[<=2,<=4] multiply(c, c)", lambda p, q: p[:4] ** 2),
]
_GRADIENT_HEAD = HEAD + """
weights = f32[16] constant({1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16})
lowest = f32[] constant(-inf)
i8 = s32[] constant(8)
x = s32[2] constant({0,3})
y = s32[3] constant({0,1,1})
u = f32[2] slice(p), slice={[0:2]}"""


@pytest.mark.parametrize(("row", "reference"), [row[1:] for row in GRADIENTS], ids=[row[0] for row in GRADIENTS])
def test_gradients_are_those_of_the_valid_part(row: str, reference: Callable[..., torch.Tensor]) -> None:
    computation = xla_torch.parse_hlo(hlo(row, _GRADIENT_HEAD))
    p, q = torch.tensor(P) / 3, torch.tensor(Q) / 9
    sizes = torch.tensor(5, dtype=torch.int32), torch.tensor(3, dtype=torch.int32)
    theirs = [t.clone().requires_grad_() for t in (p, q)]
    want = reference(*theirs).sum()
    wanted = [torch.zeros_like(t) if g is None else g for t, g in
              zip(theirs, torch.autograd.grad(want, theirs, allow_unused=True), strict=True)]
    value, gradients = xla_torch.value_and_grad(computation, (0, 1))(p, q, *sizes)
    torch.testing.assert_close(value.sum(), want.detach())
    torch.testing.assert_close(list(gradients), wanted)
    ours = [t.clone().requires_grad_() for t in (p, q)]
    computation(*ours, *sizes).sum().backward()
    torch.testing.assert_close([torch.zeros_like(t) if t.grad is None else t.grad for t in ours], wanted)


@pytest.mark.parametrize("dims", ["<=8,3", "?,3"])
def test_gradients_for_parameters_of_any_size(dims: str) -> None:
    def loss(x: Any, y: Any, row: Any) -> Any:
        total = ops.Mul(ops.Add(ops.Tanh(x), y, (1,)), ops.Add(row, 2.0))
        return ops.Reduce(total, x.builder.constant(0.0), _adding(), [0, 1])

    computation = built(loss, [dims, "3", "1,3"])
    given = [t.clone().requires_grad_() for t in (X / 9, ROW / 9, ROW[None] / 7)]
    theirs = [t.detach().clone().requires_grad_() for t in given]
    computation(*given).backward()
    ((theirs[0].tanh() + theirs[1]) * (theirs[2] + 2)).sum().backward()
    torch.testing.assert_close([t.grad for t in given], [t.grad for t in theirs])
