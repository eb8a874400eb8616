"""Stored values: rounding to narrow types against ml_dtypes, the boundary, NumPy and numbers there and back, and order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.fx

from support.agreement import (
    ALL,
    COMPLEX,
    NARROW_FLOATS,
    NARROW_INTS,
    assert_agree,
    dtype_of,
    element_type,
    special_values,
)
from xla_torch.errors import InvalidArgument
from xla_torch.lowering import numerics
from xla_torch.storage.dtypes import storage_dtype, torch_dtype
from xla_torch.types import TUPLE, U16, U32, U64

EVERY = (*ALL, "f8e8m0fnu", "s1", "u1")


def floats_of_all_kinds() -> np.ndarray:
    """float32 values of every magnitude, ties among them."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 2**32, 100_000, np.uint32)
    near = (rng.normal(size=50_000) * 2.0 ** rng.integers(-20, 20, 50_000)).astype(np.float32).view(np.uint32)
    ties = [(near & np.uint32(0xFFFFFFFF << keep & 0xFFFFFFFF)) | np.uint32(1 << (keep - 1)) for keep in (19, 20, 21, 22, 23)]
    special = np.array([0.0, np.inf, np.nan, 464, 448, 480, 240, 248, 57344, 61440, 15.5, 15.75, 6, 5, 7, 30, 31], np.float32)
    return np.concatenate([raw.view(np.float32), near.view(np.float32), *(t.view(np.float32) for t in ties), special, -special])


@pytest.mark.parametrize("text", [*NARROW_FLOATS, "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu"])
def test_rounding_is_that_of_ml_dtypes(text: str) -> None:
    values = floats_of_all_kinds()
    if text in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"):  # ml_dtypes makes +0 of negative NaNs, XLA -0 of all
        values = values[~(np.isnan(values) & np.signbit(values))]
    with np.errstate(all="ignore"):
        want = values.astype(dtype_of(text))
    got = numerics.normalise(torch.from_numpy(values), element_type(text))
    assert_agree(numerics.numpy_from_storage(got, element_type(text)), want, inputs=(values,))


@pytest.mark.parametrize("text", [*NARROW_INTS, "s1", "u1"])
def test_narrow_integers_wrap(text: str) -> None:
    kind = element_type(text)
    wide = torch.arange(-128, 128, dtype=torch.int8)
    got = numerics.normalise(wide if kind.is_signed else wide.view(torch.uint8), kind)
    assert numerics.numpy_from_storage(got, kind).tolist() == wide.numpy().astype(dtype_of(text)).tolist()


@pytest.mark.parametrize("text", EVERY)
def test_numpy_there_and_back(text: str) -> None:
    kind, values = element_type(text), special_values(text)
    stored = numerics.storage_from_numpy(values, kind)
    assert stored.dtype is storage_dtype(kind)
    back = numerics.numpy_from_storage(stored, kind)
    assert_agree(back, values)
    again = numerics.to_storage(numerics.from_storage(stored, kind), kind)
    assert numerics.from_storage(stored, kind).dtype is torch_dtype(kind)
    assert_agree(numerics.numpy_from_storage(again, kind), values)


@pytest.mark.parametrize("text", EVERY)
def test_numbers_there_and_back(text: str) -> None:
    kind, values = element_type(text), special_values(text)
    for value in values:
        number = numerics.number_from_numpy(value, kind)
        assert type(number) in (bool, int, float, complex)
        assert_agree(numerics.numpy_scalar(number, kind).reshape(1), np.array([value], values.dtype))


NUMBERS = [
    ("f32", np.float32(0.1), 0.1), ("f32", np.float32(1 / 3), 0.33333334), ("f64", np.float64(0.1), 0.1),
    ("u32", np.uint32(2**32 - 1), -1),
    ("u64", np.uint64(2**63), -(2**63)), ("u16", np.uint16(65535), -1), ("u8", np.uint8(255), 255), ("pred", np.True_, True),
    ("bf16", ml_dtypes.bfloat16(0.1), 0.10009765625), ("s4", np.array(-8, ml_dtypes.int4), -8), ("c64", np.complex64(1j), 1j),
]


@pytest.mark.parametrize(("text", "scalar", "number"), NUMBERS)
def test_numbers(text: str, scalar: Any, number: Any) -> None:
    got = numerics.number_from_numpy(scalar, element_type(text))
    assert got == number
    assert type(got) is type(number)


NORMALISED = [("s4", 9, -7), ("u4", -1, 15), ("s32", 2**31, -(2**31)), ("u32", 2**32 - 1, -1), ("f8e5m2", 300.0, 320.0),
              ("f32", 0.1, 0.1), ("f16", 1e6, float("inf")), ("pred", 1, True)]


@pytest.mark.parametrize(("text", "number", "result"), NORMALISED)
def test_numbers_are_brought_onto_the_grid(text: str, number: Any, result: Any) -> None:
    assert numerics.normalise(number, element_type(text)) == result


def test_memory_is_shared_only_where_it_may_be_written() -> None:
    kind, array = element_type("f32"), np.zeros(4, np.float32)
    assert numerics.storage_from_numpy(array, kind).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    assert numerics.storage_from_numpy(array, kind).data_ptr() != array.ctypes.data
    flipped = np.arange(4, dtype=np.float32)[::-1]
    assert numerics.storage_from_numpy(flipped, kind).tolist() == [3, 2, 1, 0]
    assert numerics.storage_from_numpy(np.array(2.0, np.float32), kind).shape == ()
    assert numerics.storage_from_numpy(np.array(2.0, ml_dtypes.bfloat16), element_type("bf16")).shape == ()
    assert numerics.numpy_from_storage(torch.tensor(3, dtype=torch.int32), U32).shape == ()


def test_lazily_conjugated_tensors() -> None:
    x = torch.tensor([1 + 2j]).conj()
    assert numerics.numpy_from_storage(x, element_type("c64")).tolist() == [1 - 2j]
    assert numerics.numpy_from_storage(x.imag, element_type("f32")).tolist() == [-2.0]


def test_refused() -> None:
    with pytest.raises(InvalidArgument, match="dtype"):
        numerics.storage_from_numpy(np.zeros(2), element_type("f32"))
    for function in (numerics.storage_from_numpy, numerics.number_from_numpy):
        with pytest.raises(InvalidArgument, match="not an element type of arrays"):
            function(np.zeros(()), TUPLE)
    with pytest.raises(InvalidArgument, match="no total order"):
        numerics.total_order_key(torch.zeros(1, dtype=torch.complex64), element_type("c64"))


@pytest.mark.parametrize("kind", [U16, U32, U64])
def test_order_of_stored_unsigned_numbers(kind: Any) -> None:
    values = np.sort(special_values(kind.text))
    stored = numerics.storage_from_numpy(values, kind)
    flipped = numerics.sign_flip(stored, kind)
    assert torch.equal(flipped.sort().values, flipped)
    assert torch.equal(numerics.sign_flip(flipped, kind), stored)
    assert numerics.unsigned_less(stored[:-1], stored[1:], kind).all()
    assert numerics.sign_flip(-1, kind) == 2 ** (kind.bits - 1) - 1


@pytest.mark.parametrize("text", [t for t in EVERY if t not in COMPLEX])
def test_total_order_keys(text: str) -> None:
    """The order of the keys is that of the bits, read as sign and magnitude for floats."""
    kind = element_type(text)
    values = special_values(text)
    if kind.is_floating:
        finite = values[~np.isnan(values.astype(np.float64))]
        order = np.argsort(finite.astype(np.float64), kind="stable")
        values = finite[order]
        keys = numerics.total_order_key(numerics.storage_from_numpy(np.ascontiguousarray(values), kind), kind)
        numbers = values.astype(np.float64)
        assert all(keys[i] < keys[i + 1] for i in range(len(values) - 1) if numbers[i] < numbers[i + 1])
    else:
        keys = numerics.total_order_key(numerics.storage_from_numpy(np.sort(values), kind), kind)
        assert torch.equal(keys.sort().values, keys)


def test_total_order_of_special_floats() -> None:
    x = torch.tensor([float("nan"), float("-inf"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("nan")])
    x[0] = torch.copysign(x[0], torch.tensor(-1.0))
    keys = numerics.total_order_key(x, element_type("f32"))
    assert (keys[1:] > keys[:-1]).all()


@pytest.mark.parametrize("text", EVERY)
def test_everything_works_on_proxies(text: str) -> None:
    """What is traced does what is done at once."""
    kind = element_type(text)
    stored = numerics.storage_from_numpy(special_values(text), kind)

    def program(x: Any) -> Any:
        x = numerics.normalise(numerics.to_storage(numerics.from_storage(x, kind), kind), kind)
        key = x if kind.is_complex else numerics.total_order_key(x, kind)
        return numerics.sign_flip(x, kind), key

    traced = torch.fx.symbolic_trace(program)
    for got, want in zip(traced(stored), program(stored), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
