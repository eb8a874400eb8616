"""Exponentials of two numbers minus the larger of them as native code: one exponential for both, and the values of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import xla_torch
from support.native_programs import loop_of_rows, run_both
from support.oracle import run_xla
from xla_torch.codegen.compiled import is_available
from xla_torch.kernels.native import NativeLoop

needs_compiler = pytest.mark.skipif(not is_available(), reason="there is no C compiler")

PAIR = ["maximum(x, y)", "subtract(x, r0)", "subtract(y, r0)", "exponential(r1)", "exponential(r2)"]
ROWS = {
    "as written": (PAIR, 2), "the other way round": (["maximum(y, x)", *PAIR[1:]], 2),
    "the second one first": ([*PAIR[:3], PAIR[4], PAIR[3]], 2), "interleaved": ([*PAIR[:2], "exponential(r1)", PAIR[2],
                                                                                 "exponential(r3)"], 2),
    "a number and itself": (["maximum(x, x)", "subtract(x, r0)", "subtract(x, r0)", *PAIR[3:]], 0),
    "one of them": ([*PAIR[:4], "negate(r2)"], 0), "the smaller of them": (["minimum(x, y)", *PAIR[1:]], 0),
    "the larger minus them": ([PAIR[0], "subtract(r0, x)", "subtract(r0, y)", *PAIR[3:]], 0),
    "the larger of others": (["maximum(x, z)", *PAIR[1:]], 0),
}


def numbers(of: str) -> list[np.ndarray]:
    """All pairs of special numbers and some others, and further ones."""
    kind = np.dtype(f"f{int(of[1:]) // 8}")
    limits, rng = np.finfo(kind), np.random.default_rng(0)
    some = np.array([0.0, -0.0, 1.0, -1.0, 80, -80, 1000, limits.max, limits.min, limits.tiny, -limits.tiny, limits.tiny / 8,
                     -limits.tiny / 8, np.inf, -np.inf, np.nan, *rng.normal(size=9)], kind)
    pairs = np.repeat(some, len(some)), np.tile(some, len(some))
    return [*pairs, rng.permutation(pairs[0])]


@needs_compiler
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("of", ["f32", "f64"])
def test_values_are_those_of_both(of: str, name: str, tmp_path: Path) -> None:
    (rows, spared), given = ROWS[name], numbers(of)
    shape = f"{of}[{len(given[0])}]"
    text = loop_of_rows([f"{shape} {row}" for row in rows], dict.fromkeys("xyz", shape))
    loop, = (m for m in xla_torch.parse_hlo(text).lowered().modules() if isinstance(m, NativeLoop))
    assert loop.source.text.count(f"1 + (({of})") == spared
    in_torch, native = run_both(text, given, tmp_path)
    assert list((tmp_path / "native").glob("*.so"))
    for mine, torch_s, xla_s in zip(native, in_torch, run_xla(text, *given), strict=True):
        rounding = 4 * np.finfo(mine.dtype).eps
        np.testing.assert_allclose(mine, torch_s, rtol=rounding, atol=np.finfo(mine.dtype).tiny)
        np.testing.assert_allclose(mine, xla_s, rtol=rounding, atol=np.finfo(mine.dtype).tiny)
