"""Helpers of the tests of reductions, windows and regions: HLO texts of them, and comparison with real XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import xla_torch
from support.agreement import dtype_of, element_type
from support.oracle import run_xla

TOLERANCE = {"f64": 1e-12, "c128": 1e-12, "f32": 1e-5, "c64": 1e-5, "f16": 4e-3, "bf16": 3e-2, "f8e4m3fn": 0.3, "f8e5m2": 0.5}
"""Allowed error of a sum or product, relative to the largest result: XLA and torch add in different orders."""

AFFINE = """reducer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  m = f32[] multiply(a, c)
  n = f32[] multiply(b, c)
  o = f32[] add(n, d)
  ROOT t = (f32[], f32[]) tuple(m, o)
}
"""
"""Composition of affine maps: associative, but the order of its operands matters."""


def values(text: str, *dims: int, seed: int = 0, choices: Sequence[Any] | None = None) -> np.ndarray:
    """Random values of an element type; with `choices`, some of these."""
    rng, kind = np.random.RandomState(seed), element_type(text)
    if choices is not None:
        return rng.choice(np.array(choices), dims).astype(dtype_of(text))
    if kind.is_pred:
        return np.asarray(rng.rand(*dims) > 0.5)
    if kind.is_integral:
        limits = ml_dtypes.iinfo(dtype_of(text))
        low, high = max(int(limits.min), -2**62), min(int(limits.max), 2**62)
        return np.asarray(rng.randint(low, high, dims, np.int64)).astype(dtype_of(text))
    real = rng.randn(*dims)
    return np.asarray(real + 1j * rng.randn(*dims) if kind.is_complex else real).astype(dtype_of(text))


def shape_text(text: str, dims: Sequence[int]) -> str:
    return f"{text}[{','.join(map(str, dims))}]"


def without(dims: Sequence[int], dropped: Sequence[int]) -> list[int]:
    return [n for d, n in enumerate(dims) if d not in dropped]


def binary_region(text: str, step: str, name: str = "reducer") -> str:
    """A region of two scalars: an opcode, or the lines of a body over a and b in which T[] stands for their shape."""
    body = step if "ROOT" in step else f"ROOT c = T[] {step}(a, b)"
    return f"{name} {{\n  a = T[] parameter(0)\n  b = T[] parameter(1)\n  {body}\n}}\n".replace("T[]", f"{text}[]")


def module(*parts: str) -> str:
    return "\n".join(["HloModule test\n", *parts])


def entry(parameters: Sequence[str], *lines: str) -> str:
    """The entry computation: parameters p0, p1, ... of these shapes, then lines, the last of them the root."""
    numbered = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(parameters)]
    return "ENTRY main {\n" + "".join(f"  {line}\n" for line in [*numbered, *lines[:-1], f"ROOT {lines[-1]}"]) + "}\n"


def reduce_text(text: str, step: str, dims: Sequence[int], reduced: Sequence[int], init: str) -> str:
    """A reduction of one array."""
    return module(binary_region(text, step), entry(
        [shape_text(text, dims)], f"i = {text}[] constant({init})",
        f"r = {shape_text(text, without(dims, reduced))} reduce(p0, i), dimensions={{{','.join(map(str, reduced))}}}, "
        "to_apply=reducer"))


def ours(text: str, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return xla_torch.parse_hlo(text).run_numpy(*arrays)


def agree(text: str, *arrays: np.ndarray) -> None:
    """xla_torch computes what XLA computes: integers exactly, floats within `TOLERANCE` (where XLA has NaN, NaN)."""
    got, want = ours(text, *arrays), run_xla(text, *arrays)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        close(g, w)


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    text = next((t for t in TOLERANCE if dtype_of(t) == want.dtype), None)
    if text is None:
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    got, want = got.astype(wide), want.astype(wide)
    finite = np.abs(want[np.isfinite(want)])
    scale = max(float(finite.max()), 1e-3) if finite.size else 1.0
    np.testing.assert_allclose(got, want, rtol=TOLERANCE[text], atol=TOLERANCE[text] * scale)
