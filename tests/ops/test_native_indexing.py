"""Kernels of gather, scatter and searches in native code: their bits whatever the threads, and what they leave to torch."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels import points as point_kernels
from xla_torch.kernels import reduction as reduction_kernels
from xla_torch.kernels import rows as row_kernels
from xla_torch.opcodes.reducer_kinds import ReducerKind

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tuning, "NATIVE_AFTER", 0.0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))


@pytest.mark.parametrize("threads", [1, 3])
def test_points_are_shared_by_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_kernels, "_FOR_A_THREAD", 1)
    image, places = torch.randn(5, 7, 6), torch.randint(-2, 9, (5, 40, 2), dtype=torch.int32).mT.contiguous().mT
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got = point_kernels.gather(
            image, places, window=(1, 1, 1), index_vector_dim=2, start_index_map=(2, 1), collapsed=(0, 1, 2), offset_dims=(),
            batching=((0, 0),), in_torch=lambda: pytest.fail("in torch"))
    finally:
        torch.set_num_threads(before)
    x, y = (places[..., k].clamp(0, n - 1).long() for k, n in ((0, 6), (1, 7)))
    assert torch.equal(got, image[torch.arange(5)[:, None], y, x])


@pytest.mark.parametrize("rows", [6, 7])
def test_windows_of_many_rows_are_torch_s(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_kernels, "_OFFSETS", 6)
    operand, at = torch.randn(9, 5), torch.tensor([[1, 1], [5, 2]], dtype=torch.int32)
    in_torch = torch.zeros(())
    got = point_kernels.gather(operand, at, window=(rows, 3), index_vector_dim=1, start_index_map=(0, 1), collapsed=(),
                               offset_dims=(1, 2), batching=(), in_torch=lambda: in_torch)
    assert (got is in_torch) == (rows > 6)
    if rows <= 6:
        assert torch.equal(got, torch.stack([operand[1:7, 1:4], operand[3:9, 2:5]]))


@pytest.mark.parametrize(("rows", "width", "order"), [
    (9, 5, "drawn"), (300, 1, "drawn"), (40, 33, "sorted"), (7, 16, "equal"), (1000, 3, "sorted"), (50, 2, "outside"),
    (1, 4, "drawn"),
])
def test_rows_are_added_in_order(rows: int, width: int, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of sums one after another, whatever the threads: each has some of the rows."""
    monkeypatch.setattr(row_kernels, "_FOR_A_THREAD", 64)
    draws = np.random.default_rng(3)
    indices = draws.integers(-3, rows + 3, 200, np.int32)
    indices = {"drawn": indices, "sorted": np.sort(indices), "equal": np.full_like(indices, 4),
               "outside": np.where(indices % 2, -(2**31), 2**31 - 1).astype(np.int32)}[order]
    array, updates = draws.normal(size=(rows, width)).astype("f4"), draws.normal(size=(200, width)).astype("f4")
    want = array.copy()
    for row, update in zip(indices, updates, strict=True):
        if 0 <= row < rows:
            want[row] += update
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            got = torch.from_numpy(array.copy())
            row_kernels.combine_(got, torch.from_numpy(indices), torch.from_numpy(updates), ReducerKind.ADD,
                                 lambda: pytest.fail("in torch"))
            assert np.array_equal(got.numpy(), want)
    finally:
        torch.set_num_threads(before)


def test_one_number_is_added_in_many_places() -> None:
    indices = torch.tensor([3, 1, 3, 7, -1, 3], dtype=torch.int32)
    counts = torch.zeros(5, dtype=torch.int32)
    one = torch.ones((), dtype=torch.int32)
    row_kernels.combine_(counts, indices, one.expand(6), ReducerKind.ADD, lambda: pytest.fail("in torch"))
    assert counts.tolist() == [0, 1, 0, 3, 0]
    rows = torch.zeros(5, 3, dtype=torch.int32)
    row_kernels.combine_(rows, torch.tensor([3, 3, 3, 3, 1, 9, 3]), (2 * one).expand(7, 3), ReducerKind.ADD,
                         lambda: pytest.fail("in torch"))
    assert rows.tolist() == [[0] * 3, [2] * 3, [0] * 3, [10] * 3, [0] * 3]


PLACES = {
    torch.float32: [1.5, -2.0, 7.25, -0.0, 0.0, math.inf, -math.inf], torch.float64: [1.5, -2.0, 1e300, -0.0, 0.0],  # torch's own
    torch.bfloat16: [1.5, -2.0, -0.0, 0.0, math.inf], torch.float16: [1.5, -2.0, -0.0, 0.0, -math.inf], torch.bool: [0, 1],
    torch.uint8: [0, 1, 127, 128, 255], torch.int8: [-128, -1, 0, 127], torch.int16: [-(2**15), 0, 5, 2**15 - 1],
    torch.int32: [-(2**31), -1, 2**31 - 1], torch.int64: [-(2**63), 0, 2**32, 2**63 - 1]}


@pytest.mark.parametrize("dtype", PLACES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("n", [1, 15, 16, 17, 127, 128, 129, 300])
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_of_rows_are_found_natively(dtype: torch.dtype, n: int, largest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them, in rows that are long enough: of few different numbers, all but one alike, with NaN of either sign."""
    draw, listed = np.random.default_rng(n), torch.tensor(PLACES[dtype], dtype=dtype)
    keys = listed[torch.from_numpy(draw.integers(0, len(listed), (400, n)))]
    keys[::2] = listed[0]
    for r in range(2, 400, 2):
        keys[r, draw.integers(n)] = listed[draw.integers(len(listed))]
    if dtype.is_floating_point:
        either = torch.tensor([math.nan] * 2, dtype=torch.float64).copysign(torch.tensor([1, -1])).to(dtype)
        for r in range(3, 400, 3):
            keys[r, draw.integers(n, size=2)] = either
    values = keys.to(torch.float64 if dtype.is_floating_point else torch.int64)
    best = values.amax(1, keepdim=True) if largest else values.amin(1, keepdim=True)
    want = torch.from_numpy(torch.where(best.isnan(), values.isnan(), values == best).numpy().argmax(1))
    monkeypatch.setattr(tuning, "SEARCHED_FROM", 400 * 16)
    monkeypatch.setattr(tuning, "SEARCHED_ROW", 16)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(reduction_kernels.arg_extreme(keys, 1, largest, False), want)
    finally:
        torch.set_num_threads(before)
    in_torch = torch.zeros(())
    with monkeypatch.context() as patch:
        patch.setattr(reduction_kernels, "_arg_extreme_in_torch", lambda *_: in_torch)
        assert (reduction_kernels.arg_extreme(keys, 1, largest, False) is not in_torch) == (n >= 16)
        assert reduction_kernels.arg_extreme(keys[:1], 1, largest, False) is in_torch
    apart = torch.stack([keys, keys], 2)[..., 0]
    assert torch.equal(reduction_kernels.arg_extreme(apart, 1, largest, False), want)


@pytest.mark.parametrize("dtype", PLACES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(("dims", "dim"), [((7, 40), 0), ((3, 5, 16), 1), ((300, 9), 0), ((2, 3, 2, 1500), 1), ((2, 3, 20), -2)])
@pytest.mark.parametrize("largest", [True, False])
def test_extremes_along_dimensions_before_are_found_natively(dtype: torch.dtype, dims: tuple[int, ...], dim: int, largest: bool,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of equal ones, and of NaN."""
    draw, listed = np.random.default_rng(0), torch.tensor(PLACES[dtype], dtype=dtype)
    keys = listed[torch.from_numpy(draw.integers(0, len(listed), dims))]
    if dtype.is_floating_point:
        keys.view(-1)[::11], keys.view(-1)[5::17] = math.nan, -math.nan
    values = keys.to(torch.float64 if dtype.is_floating_point else torch.int64)
    best = values.amax(dim, keepdim=True) if largest else values.amin(dim, keepdim=True)
    want = torch.from_numpy(torch.where(best.isnan(), values.isnan(), values == best).numpy().argmax(dim))
    monkeypatch.setattr(tuning, "SEARCHED_FROM", 16)
    monkeypatch.setattr(reduction_kernels, "_arg_extreme_in_torch", lambda *_: pytest.fail("in torch"))
    assert torch.equal(reduction_kernels.arg_extreme(keys, dim, largest, False), want)


def test_extremes_of_few_columns_and_other_orders_are_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SEARCHED_FROM", 16)
    keys = torch.randn(40, 30)
    for given in (keys[:, :4], keys[::2], keys[:, ::3], keys.T):
        assert torch.equal(reduction_kernels.arg_extreme(given, 0, True, False), given.argmax(0))


RUNNING = {"sum": (functools.partial(reduction_kernels.running_total, is_product=False), torch.cumsum),
           "product": (functools.partial(reduction_kernels.running_total, is_product=True), torch.cumprod),
           "maximum": (functools.partial(reduction_kernels.running_extreme, largest=True), lambda x, d: torch.cummax(x, d)[0]),
           "minimum": (functools.partial(reduction_kernels.running_extreme, largest=False), lambda x, d: torch.cummin(x, d)[0])}


@pytest.mark.parametrize("kind", RUNNING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64],
                         ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(("dims", "dim"), [((7, 40), 0), ((3, 5, 16), 1), ((1, 1, 9), 0), ((2, 3, 2, 1500), 1)])
def test_running_results_have_torch_s_bits(kind: str, dtype: torch.dtype, dims: tuple[int, ...], dim: int,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers wrap around, sums of float32 are held as float64, NaN stays, and of equal elements the last does."""
    monkeypatch.setattr(tuning, "RUNNING_FROM", 9)
    call, in_torch = RUNNING[kind]
    x = torch.from_numpy(np.random.default_rng(0).normal(size=dims) * 50).to(dtype)
    if dtype.is_floating_point:
        x.view(-1)[::5], x.view(-1)[1::7] = 0.0, -0.0
        x.view(-1)[8] = torch.nan
    want = in_torch(x, dim).to(dtype)
    got = call(x, dim)
    bits = {4: torch.int32, 8: torch.int64}.get(dtype.itemsize, dtype)
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.nan_to_num().view(bits), want.nan_to_num().view(bits))


def test_running_results_of_few_columns_and_other_orders_are_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "RUNNING_FROM", 64)
    for x, is_native in ((torch.ones(8, 8), True), (torch.ones(16, 7), False), (torch.ones(7, 8), False),
                         (torch.ones(8, 16).T, False), (torch.ones(8, 8, dtype=torch.bfloat16), False)):
        found = row_kernels.running(x, 0, ReducerKind.ADD, lambda x=x: x)
        assert (found is not x) == is_native


@pytest.mark.parametrize("rows", [1, 4, 16, 17, 200])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_truths_are_reduced_as_torch_reduces_them(rows: int, dims: tuple[int, ...]) -> None:
    """On both sides of what torch's own functions are called for."""
    draws = np.random.default_rng(rows)
    for share in (0.0, 0.02, 0.98, 1.0):
        truths = torch.from_numpy(draws.random((rows, 64)) < share)
        assert torch.equal(reduction_kernels.any_of(truths.T, dims), torch.any(truths.T, dims))
        assert torch.equal(reduction_kernels.all_of(truths, dims), torch.all(truths, dims))
