"""What programs with dynamic sizes compute: values and gradients of the valid part, against real XLA where it can.

Real XLA for the CPU pads a dynamic array to its bound and returns that buffer: the first elements, row by row, are the array,
what is behind them is anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.dynamic_programs import ARGUMENTS, HEAD, MORE, P, Q, hlo
from support.oracle import needs_xla, run_xla
from xla_torch.errors import InvalidArgument, UnsupportedError


def assert_as_xla(text: str, arguments: Sequence[Any] = ARGUMENTS) -> None:
    """Each of our results is what XLA's buffer begins with."""
    ours = xla_torch.parse_hlo(text).run_numpy(*arguments)
    theirs = run_xla(text, *arguments, known=[mine.size for mine in ours])
    for mine, buffer in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.ravel(), buffer, rtol=1e-5, atol=1e-6)


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
    "f32[<=4,<=6] dynamic-reshape(q, i2, k)", "f32[4,<=6] dynamic-reshape(f, i4, i2)",
    "f32[<=4,<=3,2] dynamic-reshape(q, k, i2, i2)",
    # a program that says static where a dimension is dynamic: what comes of it is dynamic
    "a = f32[8] add(d, p); f32[] reduce(a, z), dimensions={0}, to_apply=add",
    "a = f32[8] add(d, p); s32[] get-dimension-size(a), dimensions={0}",
    "a = f32[8,3] broadcast(d), dimensions={0}; f32[] reduce(a, z), dimensions={0,1}, to_apply=add",
]


@needs_xla
@pytest.mark.parametrize("row", AS_XLA)
def test_values_as_xla(row: str) -> None:
    assert_as_xla(hlo(row))


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
    ("c = pred[8] compare(p, p), direction=EQ; f32[<=8] select(c, d1, d)", [1, 1, 1, 1, 1], _BEYOND),
    ("c = pred[<=8] compare(d, d1), direction=GT; f32[<=8] select(c, d1, d)", [1, 1, 1, 1, 1], _BEYOND),
    ("f32[8] clamp(d, p, d)", [1, 2, 3, 4, 5, 0, 0, 0], _BEYOND),
    ("(f32[<=8], f32[8]) sort(d, p), dimensions={0}, to_apply=gt_first", [5, 4, 3, 2, 1], _BEYOND),
    ("c = c64[<=4,6] complex(e, e); t = c64[<=4,6] fft(c), fft_type=FFT, fft_length={6}; r = f32[<=4,6] real(t); "
     "f32[<=4,1] slice(r), slice={[0:4], [0:1]}", [[-27], [9], [45]], _REFUSED),
    ("f32[8] set-dimension-size(d, i8), dimensions={0}", [1, 2, 3, 4, 5, 0, 0, 0], _BEYOND),
    ("f32[8] add(d, p)", [2, 4, 6, 8, 10, 0, 0, 0], "the rest is anything"),
    ("s = s32[2] constant({2,1}); c = f32[2,6,1] broadcast(one), dimensions={}; "
     "f32[<=4,1] ragged-dot(e, c, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
     "rhs_group_dims={0}",
     [[-27], [9], [45]], _REFUSED),
]


@pytest.mark.parametrize(("row", "want", "because"), OWN_WAY, ids=[row for row, _, _ in OWN_WAY])
def test_values_where_xla_for_the_cpu_has_none(row: str, want: Any, because: str) -> None:
    got = xla_torch.parse_hlo(hlo(row, MORE)).run_numpy(*ARGUMENTS)[0]
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
    assert_as_xla(total, arguments)
    number = xla_torch.parse_hlo(hlo("s32[] get-dimension-size(d), dimensions={0}")).run_numpy(*arguments)
    assert number[0] == min(max(size, 0), 8)


SIZES = [  # of d and m, which differ at run time; "last" where the last operand counts in XLA, else the smallest does
    ("f32[<=8] add({}, {})", False), ("f32[<=8] map({}, {}), dimensions={{0}}, to_apply=add", False),
    ("c = pred[8] compare(p, p), direction=EQ; f32[<=8] select(c, {}, {})", False),
    ("c = pred[<=8] compare({0}, {0}), direction=EQ; o = f32[<=8] negate({1}); f32[<=8] select(c, {1}, o)", False),
    ("c = pred[<=8] compare({}, {}), direction=EQ; o = f32[8] negate(p); f32[<=8] select(c, p, o)", False),
    ("o = f32[<=8] add({}, {}); f32[<=8] multiply(o, p)", False), ("f32[<=8] clamp({0}, {1}, {0})", None),
    ("f32[<=8] clamp({}, p, {})", 8), ("f32[<=8] clamp(p, {}, {})", True), ("f32[<=8] clamp({}, {}, p)", True),
    ("x = f32[<=8,1] reshape({}); y = f32[<=8,1] reshape({}); f32[<=8,2] concatenate(x, y), dimensions={{1}}", True),
    ("x = f32[<=8,1] reshape({}); y = f32[<=8,1] reshape({}); f32[<=8] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
     "lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}", True),
    ("f32[<=8] dynamic-update-slice({}, {}, i0)", True),
]


@needs_xla
@pytest.mark.parametrize("names", [("d", "m"), ("m", "d")])
@pytest.mark.parametrize(("row", "last"), SIZES)
def test_sizes_that_differ_are_as_in_xla(row: str, last: bool | int | None, names: tuple[str, str]) -> None:
    """`last` is None where the first one counts, a number where that is the size."""
    *before, final = row.format(*names).split("; ")
    shape = final.partition(" ")[0]
    text = hlo("; ".join(["m = f32[<=8] set-dimension-size(p, k), dimensions={0}", *before, f"r = {final}",
                          f"t = s32[] get-dimension-size(r), dimensions={{0}}; ({shape}, s32[]) tuple(r, t)"]))
    mine, size = xla_torch.parse_hlo(text).run_numpy(*ARGUMENTS)
    sizes = {"d": 5, "m": 3}
    first, second = (sizes[name] for name in names)
    counts = first if last is None else last if type(last) is int else second if last else min(first, second)
    known = mine[:min(first, second)]  # beyond the size of one of them XLA reads what was there
    buffer, wanted = run_xla(text, *ARGUMENTS, known=(known.size, 1))
    assert (size, len(mine)) == (*wanted, *wanted) == (counts, counts)
    np.testing.assert_allclose(known.ravel(), buffer)


STRETCHED = [
    "a = f32[<=8] subtract(d, m)", "c = pred[<=8] compare(d, m), direction=GE; a = f32[<=8] convert(c)",
    "a = f32[<=8] map(d, m), dimensions={0}, to_apply=add", "c = f32[<=8] multiply(m, m); a = f32[<=8] add(c, d)",
    "c = f32[<=8] add(d, m); a = f32[<=8] subtract(d2, c)", "c = f32[<=8] add(d, m); a = f32[<=8] multiply(c, d)",
    "x = f32[<=4,6] set-dimension-size(q, n), dimensions={0}; y = f32[4,<=6] set-dimension-size(q, k), dimensions={1}; "
    "v = f32[<=4,<=6] set-dimension-size(x, k), dimensions={1}; o = f32[<=4,<=6] set-dimension-size(y, k), dimensions={0}; "
    "c = f32[<=4,<=6] multiply(v, o); a = f32[<=4] reduce(c, z), dimensions={1}, to_apply=add",
]


@needs_xla
@pytest.mark.parametrize(("n", "k"), [(1, 3), (3, 1), (0, 1), (1, 1), (1, 4), (4, 1), (2, 3)])
@pytest.mark.parametrize("row", STRETCHED)
def test_a_size_of_one_broadcasts_as_in_xla(row: str, n: int, k: int) -> None:
    text = hlo("m = f32[<=8] set-dimension-size(p, k), dimensions={0}; d2 = f32[<=8] set-dimension-size(p, i2), dimensions={0}; "
               f"{row}; t = s32[] get-dimension-size(a), dimensions={{0}}; "
               "r = f32[] reduce(a, z), dimensions={0}, to_apply=add; (s32[], f32[]) tuple(t, r)")
    assert_as_xla(text, (P, Q, np.int32(n), np.int32(k)))


@needs_xla
@pytest.mark.parametrize("names", ["d, m", "m, d"])
def test_products_of_sizes_that_differ(names: str) -> None:
    text = hlo(f"m = f32[<=8] set-dimension-size(p, k), dimensions={{0}}; f32[] dot({names}), lhs_contracting_dims={{0}}, "
               "rhs_contracting_dims={0}")
    assert_as_xla(text)


def test_one_size_is_looked_at_once() -> None:
    """Where operands have their size from one place nothing is cut."""
    text = hlo("a = f32[<=8] add(d, p); b = f32[<=8] exponential(d); c = f32[<=8] multiply(a, b); t = f32[1,<=8] reshape(c); "
               "u = f32[<=8,1] transpose(t), dimensions={1,0}; v = f32[<=8] reshape(u); f32[<=8] subtract(v, d)")
    assert xla_torch.parse_hlo(text).python_code().count(".set_dimension_size(") == 2


# ------------------------------------------------------------------------------------------------ gradients

WEIGHTS = torch.arange(1.0, 17)
GRADIENTS: list[tuple[str, str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = [
    ("mixed", "f32[<=8] multiply(d, p)", lambda p, q: p[:5] * p[:5]),
    ("one element broadcasts", "c = f32[<=8] multiply(d, d1); f32[<=8] multiply(c, d)", lambda p, q: p[:5] * p[:1] * p[:5]),
    ("one row broadcasts", "r = f32[<=4,6] set-dimension-size(q, i1), dimensions={0}; c = f32[<=4,6] multiply(r, e); "
     "f32[<=4,6] sine(c)", lambda p, q: (q[:1] * q[:3]).sin()),
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
    ("dynamic reshape by dimension", "c = f32[<=4,<=6] dynamic-reshape(q, i2, k); f32[<=4,<=6] multiply(c, c)",
     lambda p, q: q[:2, :3] ** 2),
    ("reshape of columns", "c = f32[<=24] reshape(f); f32[<=24] multiply(c, c)", lambda p, q: q[:, :3].flatten() ** 2),
    ("reshape of both", "c = f32[<=24] reshape(g); f32[<=24] multiply(c, c)", lambda p, q: q[:3, :3].flatten() ** 2),
    ("split columns", "c = f32[<=4,<=3,2] reshape(g); f32[<=4,<=3,2] multiply(c, c)", lambda p, q: q[:3, :3].flatten() ** 2),
    ("convolution", "i = f32[1,1,<=8] reshape(d); c = f32[1,1,3] reshape(p3); o = f32[1,1,<=8] convolution(i, c), "
     "window={size=3 pad=2_0}, dim_labels=bf0_io0->bf0; f32[1,1,<=8] multiply(o, o)",
     lambda p, q: torch.nn.functional.conv1d(torch.constant_pad_nd(p[None, :5], [2, 0]), p[None, None, :3])[0] ** 2),
    ("convolved features", "i = f32[1,<=8,1] reshape(d); c = f32[8,1,1] reshape(p); f32[1,1,1] convolution(i, c), "
     "window={size=1}, dim_labels=bf0_io0->bf0", lambda p, q: (p[:5] * p[:5]).sum()),
    ("normalised", "t = (f32[<=4,6], f32[6], f32[6]) batch-norm-training(e, w, w), epsilon=0.1, feature_index=1; "
     "a = f32[<=4,6] get-tuple-element(t), index=0; v = f32[6] get-tuple-element(t), index=2; "
     "b = f32[<=4,6] broadcast(v), dimensions={1}; c = f32[<=4,6] multiply(a, b); f32[<=4,6] multiply(c, q)",
     lambda p, q: _normalised(p, q[:3]) * q[:3].var(0, correction=0) * q[:3]),
    ("sums that depend", "f32[] reduce(d, z), dimensions={0}, to_apply=tilted",
     lambda p, q: functools.reduce(lambda a, b: a * 0.5 + b.sin(), p[:5], torch.tensor(0.0))),
    ("product that starts", "two = f32[] constant(2); f32[] reduce(d, two), dimensions={0}, to_apply=mul",
     lambda p, q: 2 * p[:5].prod()),
    ("rows of products", "two = f32[] constant(2); c = f32[6] reduce(g, two), dimensions={0}, to_apply=mul; "
     "s = f32[6] slice(p), slice={[0:6]}; f32[6] multiply(c, s)", lambda p, q: 2 * q[:3, :3].prod(0) * p[:3]),
    ("windows of some", "c = f32[<=6] reduce-window(d, z), window={size=3}, to_apply=max; f32[<=6] multiply(c, c)",
     lambda p, q: p[:5].unfold(0, 3, 1).amax(1) ** 2),
    ("transform", "c = c64[<=4,6] complex(e, e); t = c64[<=4,6] fft(c), fft_type=FFT, fft_length={6}; "
     "r = f32[<=4,6] real(t); f32[<=4,6] multiply(r, r)", lambda p, q: torch.fft.fft(torch.complex(q[:3], q[:3])).real ** 2),
]


def _normalised(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    mean, variance = q.mean(0), q.var(0, correction=0)
    return (q - mean) * (variance + 0.1).rsqrt() * p[:6] + p[:6]


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


@pytest.mark.parametrize(("row", "reference"), [row[1:] for row in GRADIENTS], ids=[row[0] for row in GRADIENTS])
def test_tangents_are_those_of_the_valid_part(row: str, reference: Callable[..., torch.Tensor]) -> None:
    """Of the value, and of the gradient."""
    computation = xla_torch.parse_hlo(hlo(row, _GRADIENT_HEAD))
    p, q = torch.tensor(P) / 3, torch.tensor(Q) / 9
    sizes = torch.tensor(5, dtype=torch.int32), torch.tensor(3, dtype=torch.int32)
    directions = torch.linspace(-1, 1, 8), torch.linspace(2, -1, 24).reshape(4, 6)
    _, found = xla_torch.jvp(computation, (0, 1))(p, q, *sizes, *directions)
    theirs = [t.clone().requires_grad_() for t in (p, q)]
    gradients = torch.autograd.grad(reference(*theirs).sum(), theirs, create_graph=True, allow_unused=True)
    along = sum(((g * d).sum() for g, d in zip(gradients, directions, strict=True) if g is not None), torch.tensor(0.0))
    torch.testing.assert_close(found.sum(), along.detach())
    turned = torch.autograd.grad(along, theirs, allow_unused=True) if along.requires_grad else (None, None)
    ct = torch.ones_like(computation(p, q, *sizes))
    second = xla_torch.jvp(xla_torch.vjp(computation, (0, 1)), (0, 1))(p, q, *sizes, ct, *directions)[1]
    wanted = [torch.zeros_like(t) if g is None else g for t, g in zip(theirs, turned, strict=True)]
    torch.testing.assert_close(list(second), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("row", [row for row in AS_XLA if "reduce-precision" not in row])
def test_tangents_and_gradients_fit(row: str) -> None:
    """Whatever has a gradient has a tangent, and they are each other's transposes."""
    computation = xla_torch.parse_hlo(hlo(row))
    shapes = [s for s in computation.program_shape.result.leaves() if s.element_type.is_differentiable]
    if not shapes:
        return
    p, q = torch.tensor(P) / 3, torch.tensor(Q) / 9
    sizes = torch.tensor(5, dtype=torch.int32), torch.tensor(3, dtype=torch.int32)
    directions = torch.linspace(-1, 1, 8), torch.linspace(2, -1, 24).reshape(4, 6)
    *_, tangents = xla_torch.jvp(computation, (0, 1))(p, q, *sizes, *directions)
    tangents = tangents if isinstance(tangents, tuple) else (tangents,)
    found = xla_torch.vjp(computation, (0, 1))(p, q, *sizes, *map(torch.ones_like, tangents))
    torch.testing.assert_close(sum((g * d).sum() for g, d in zip(found, directions, strict=True)),
                               sum(t.sum().real for t in tangents), rtol=1e-4, atol=1e-4)
