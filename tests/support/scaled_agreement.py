"""Helpers of the tests of products: run one instruction here and on real XLA, and compare relative to the result's scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import xla_torch
from support.agreement import dtype_of
from support.oracle import run_xla
from xla_torch.shape import Shape

RELATIVE = {"float64": 1e-12, "complex128": 1e-12, "float32": 1e-5, "complex64": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def one(instruction: str, operands: Sequence[str]) -> str:
    """HLO text of ``instruction`` over parameters p0, p1, ... of these shapes."""
    lines = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(operands)]
    return "\n".join(["HloModule one", "ENTRY e {", *lines, f"  ROOT r = {instruction}", "}"])


def random_array(shape: str, seed: int = 0) -> np.ndarray:
    """Random values of a shape: normal floats, integers of the type's whole range."""
    parsed, rng = Shape.parse(shape), np.random.default_rng(seed)
    dims, kind, dtype = parsed.dimensions, parsed.element_type, dtype_of(parsed.element_type.text)
    if kind.is_pred:
        return rng.random(dims) > 0.5
    if kind.is_integral:
        raw = rng.integers(0, 1 << 63, dims, dtype=np.uint64)
        return raw.astype(np.int64).astype(dtype)
    values = rng.normal(size=dims)
    return (values + 1j * rng.normal(size=dims)).astype(dtype) if kind.is_complex else np.asarray(values).astype(dtype)


def assert_close(got: np.ndarray, want: np.ndarray, relative: float | None = None) -> None:
    """Equal types and sizes; integers equal, floats up to rounding relative to the largest element; NaNs are equal."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind in "biu" or want.dtype.name.startswith(("int", "uint")):
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    tolerance = RELATIVE.get(want.dtype.name, 0.13) if relative is None else relative
    a, b = got.astype(wide), want.astype(wide)
    finite = np.abs(b[np.isfinite(b)])
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, finite.max(initial=0.0)), equal_nan=True)


def assert_agrees(instruction: str, *operands: str, arrays: Sequence[Any] | None = None, relative: float | None = None) -> None:
    """xla_torch and real XLA agree on one instruction, for random operands unless given."""
    text = one(instruction, operands)
    given = [random_array(s, k) for k, s in enumerate(operands)] if arrays is None else arrays
    for got, want in zip(xla_torch.parse_hlo(text).run_numpy(*given), run_xla(text, *given), strict=True):
        assert_close(np.asarray(got), want, relative)


def run_one(instruction: str, operands: Sequence[str], *arrays: Any) -> tuple[np.ndarray, ...]:
    """The results of one instruction here."""
    return xla_torch.parse_hlo(one(instruction, operands)).run_numpy(*arrays)
