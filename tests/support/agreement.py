"""Helpers of differential tests: special values of every element type, and comparison with real XLA in units of last place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import xla_torch
import xla_torch.lowering.numerics
from support.oracle import run_xla
from xla_torch.types import PrimitiveType, type_from_text

FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
NARROW_INTS = ("s2", "s4", "u2", "u4")
NARROW_FLOATS = ("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz", "f8e3m4", "f4e2m1fn")
INTS = SIGNED + UNSIGNED
ALL = ("pred", *NARROW_INTS, *INTS, *NARROW_FLOATS, *FLOATS, *COMPLEX)

ALIKE = (("pred",), ("s32", "s64", "s16", "s8"), ("u8", "u16", "u32", "u64"), ("s4", "u4", "s2", "u2", "s1", "u1"),
         ("f32", "f64"), ("bf16", "f16"), (*NARROW_FLOATS, "f8e8m0fnu"), ("c64", "c128"))
"""Element types in groups within which an op mostly takes the same way."""


def one_of_each(kinds: Sequence[str]) -> list[str]:
    """The first of each group of like types: those that the fast tests take, where the slow ones take all."""
    return [next(k for k in group if k in kinds) for group in ALIKE if set(group) & set(kinds)]


def element_type(text: str) -> PrimitiveType:
    found = type_from_text(text)
    assert found is not None
    return found


def dtype_of(text: str) -> np.dtype:
    return xla_torch.lowering.numerics.numpy_dtype(element_type(text))


def special_values(text: str) -> np.ndarray:
    """Values at which operations go wrong: zeros, limits, infinities, NaN, halves, neighbours; and some ordinary ones."""
    kind = element_type(text)
    if kind.is_pred:
        return np.array([False, True])
    if kind.is_integral:
        return _integers(kind)
    if kind.is_complex:
        parts = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.25, np.inf, -np.inf, np.nan, 3.0])
        both = np.stack(np.broadcast_arrays(parts[:, None], parts), -1)
        return both.astype(f"f{kind.bits // 16}").view(dtype_of(text)).reshape(-1)
    if text == "f8e8m0fnu":  # the middle of its range, and NaN: XLA's CPU code flushes the small end to zero, which it lacks
        return np.array([*range(100, 154), 255], np.uint8).view(dtype_of(text))
    if kind.is_narrow:
        return np.arange(1 << kind.bits, dtype=np.uint8).view(dtype_of(text))
    limits = ml_dtypes.finfo(dtype_of(text))
    values = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, 7.0, 0.1, -0.3, 100.25, -99.5, np.inf, -np.inf, np.nan,
              float(limits.max), float(limits.min), float(limits.tiny) * 1024, 0.49999997, 0.49999999999999994, 1e-3, 20.5,
              -20.5, *(np.random.default_rng(0).normal(size=24) * 2)]
    return np.array(values).astype(dtype_of(text))


def _integers(kind: PrimitiveType) -> np.ndarray:
    if kind.bits <= 8:
        return np.arange(1 << kind.bits, dtype=np.uint8).astype(dtype_of(kind.text))
    low = 0 if kind.is_unsigned else -(1 << (kind.bits - 1))
    high = low + (1 << kind.bits) - 1
    values = {0, 1, 2, 3, 5, 7, 8, 100, 127, 128, 255, low, low + 1, high, high - 1, (low + high) // 2, high // 3, kind.bits - 1,
              kind.bits, kind.bits + 1} | ({-1, -2, -3, -7, -8} if low else set())
    return np.array(sorted(values), dtype_of(kind.text))


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every value with every value."""
    count = len(values)
    return np.repeat(values, count), np.tile(values, count)


def elementwise_hlo(opcode: str, operands: list[tuple[str, np.ndarray]], result: str, attributes: str = "") -> str:
    """HLO text of one elementwise instruction; operands are (element type, array)."""
    shape = ",".join(map(str, operands[0][1].shape))
    lines = [f"  p{i} = {text}[{','.join(map(str, array.shape))}] parameter({i})" for i, (text, array) in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    root = f"  ROOT r = {result}[{shape}] {opcode}({names}){attributes}"
    return "\n".join(["HloModule test", "", "ENTRY entry {", *lines, root, "}"])


def run_both(hlo_text: str, *arrays: Any) -> tuple[np.ndarray, np.ndarray]:
    """The result of xla_torch and that of real XLA."""
    return run_ours(hlo_text, *arrays), run_xla(hlo_text, *arrays)[0]


def run_ours(hlo_text: str, *arrays: Any) -> np.ndarray:
    return xla_torch.parse_hlo(hlo_text).run_numpy(*arrays)[0]


def assert_agree(got: np.ndarray, want: np.ndarray, ulps: int = 0, inputs: tuple[np.ndarray, ...] = (),
                 signed_zero: bool = True) -> None:
    """Equal up to so many units in the last place; NaNs are equal, and zeros are equal only with their sign.

    XLA's CPU code flushes subnormal numbers to zero, so those count as zeros.
    """
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if np.iscomplexobj(want):
        got, want = (np.stack([np.real(a), np.imag(a)], -1) for a in (got, want))
        inputs = tuple(np.stack([a, a], -1) for a in inputs)
    good = distance(got, want) <= ulps
    if signed_zero and want.dtype.kind not in "biu" and element_type_of(want).is_floating:
        good &= (want != 0) | (_sign_bit(got) == _sign_bit(want)) | (np.abs(_wide(got)) > 0)
    if not good.all():
        at = [(*(a[~good][k] for a in inputs), f"got {got[~good][k]!r}, XLA {want[~good][k]!r}")
              for k in range(min(8, int((~good).sum())))]
        raise AssertionError(f"{int((~good).sum())} of {good.size} differ: " + "; ".join(map(str, at)))


def element_type_of(array: np.ndarray) -> PrimitiveType:
    found = xla_torch.types.type_from_numpy(array.dtype)
    assert found is not None
    return found


def _wide(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(np.float64)


def _flushed(array: np.ndarray) -> np.ndarray:
    wide = _wide(array)
    narrow = element_type_of(array).bits <= 8
    return wide if narrow else np.where(np.abs(wide) < float(ml_dtypes.finfo(array.dtype).tiny), 0.0, wide)


def _sign_bit(array: np.ndarray) -> np.ndarray:
    return np.signbit(_wide(array))


def distance(got: np.ndarray, want: np.ndarray, of_largest: bool = False) -> np.ndarray:
    """How far real elements are apart, in units in the last place of the wanted one, or of the largest finite one."""
    if not element_type_of(want).is_floating:
        return np.where(got == want, 0, 1 << 30)
    with np.errstate(all="ignore"):
        a, b = _flushed(got), _flushed(want)
        if of_largest:
            want = np.full_like(want, np.where(np.isfinite(b), np.abs(b), 0).max(initial=0.0))
        spacing = np.spacing(np.abs(want)) if want.dtype.kind == "f" else _spacing(want)
        gap = np.abs(a - b) / np.where(np.isfinite(_wide(spacing)), _wide(spacing), 1.0)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0, np.where(np.isfinite(a) & np.isfinite(b), gap, 1 << 30))


def _spacing(want: np.ndarray) -> np.ndarray:
    """Distance to the next value of the same magnitude's binade, for ml_dtypes."""
    limits = ml_dtypes.finfo(want.dtype)
    magnitude = np.maximum(np.abs(_wide(want)), float(limits.tiny))
    return 2.0 ** np.floor(np.log2(magnitude)) * float(limits.eps)
