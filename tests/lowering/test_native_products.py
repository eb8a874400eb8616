"""Matrix products in loops of native code, which calls torch's own BLAS: every order of dimensions, beside torch's calls."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import xla_torch
from xla_torch.codegen import sums
from xla_torch.codegen.code import Array, Code
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native import NativeLoop
from xla_torch.storage import torch_private

pytestmark = pytest.mark.skipif(not (is_available() and torch_private.blas()),
                                reason="there is no C compiler, or torch shows no BLAS")

LOOP = """HloModule products
condition {
  carry = (s32[], LHS, RHS, RESULT) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  carry = (s32[], LHS, RHS, RESULT) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  a = LHS get-tuple-element(carry), index=1
  b = RHS get-tuple-element(carry), index=2
  r = RESULT get-tuple-element(carry), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  twice = LHS add(a, a)
  LINES
  TOTAL
  ROOT all = (s32[], LHS, RHS, RESULT) tuple(next, twice, b, ROOT)
}
ENTRY main {
  a = LHS parameter(0)
  b = RHS parameter(1)
  r = RESULT parameter(2)
  start = s32[] constant(0)
  first = (s32[], LHS, RHS, RESULT) tuple(start, a, b, r)
  done = (s32[], LHS, RHS, RESULT) while(first), condition=condition, body=body
  ROOT sum = RESULT get-tuple-element(done), index=3
}
"""

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"

SUMS = {  # what is added to the carry
    "by BLAS": ("sum = RESULT add(r, made)", "sum"),
    "from the right": ("sum = RESULT add(made, r)", "sum"),
    "read before": ("half = RESULT add(r, r)\n  again = RESULT subtract(half, made)\n  sum = RESULT add(r, again)", "sum"),
    "read behind": ("sum = RESULT add(r, made)\n  more = RESULT add(sum, made)", "more"),
}

ROWS: list[tuple[str, str, str, list[str], bool]] = [
    # operands, result, what makes it, whether BLAS does
    ("f32[32,16]", "f32[16,20]", "f32[32,20]", [f"made = f32[32,20] dot(a, b), {PLAIN}"], True),
    ("f64[32,16]", "f64[16,20]", "f64[32,20]", [f"made = f64[32,20] dot(a, b), {PLAIN}"], True),
    *((f"{kind}[32,16]", f"{kind}[16,20]", f"{kind}[32,20]", [f"made = {kind}[32,20] dot(a, b), {PLAIN}"], True)
      for kind in ("c64", "c128")),
    ("f32[16,32]", "f32[16,20]", "f32[32,20]", [
        "made = f32[32,20] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"],
     True),
    ("c64[3,32,16]", "c64[3,16,20]", "c64[3,20,32]", [f"d = c64[3,32,20] dot(a, b), {BATCHED}",
                                                      "made = c64[3,20,32] transpose(d), dimensions={0,2,1}"], True),
    ("f32[32,16]", "f32[20,16]", "f32[32,20]", [
        "made = f32[32,20] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}"],
     True),
    ("f32[16,32]", "f32[20,16]", "f32[32,20]", [
        "made = f32[32,20] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}"],
     True),
    ("f32[3,32,16]", "f32[3,16,20]", "f32[3,32,20]", [f"made = f32[3,32,20] dot(a, b), {BATCHED}"], True),
    ("f32[32,3,16]", "f32[16,20,3]", "f32[3,32,20]", [
        "made = f32[3,32,20] dot(a, b), lhs_batch_dims={1}, rhs_batch_dims={2}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={0}"],
     True),
    ("f32[5,32,4,4]", "f32[4,4,20]", "f32[5,32,20]", [
        "made = f32[5,32,20] dot(a, b), lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1}"], True),
    ("f32[5,32,4,4]", "f32[4,4,20]", "f32[5,32,20]", [
        "made = f32[5,32,20] dot(a, b), lhs_contracting_dims={2,3}, rhs_contracting_dims={1,0}"], True),
    ("f32[600,16]", "f32[16]", "f32[600]", [f"made = f32[600] dot(a, b), {PLAIN}"], True),
    ("f32[16384]", "f32[16384]", "f32[]", ["made = f32[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"], True),
    ("f32[32,16]", "f32[16,20]", "f32[20,32]", [f"d = f32[32,20] dot(a, b), {PLAIN}",
                                                "made = f32[20,32] transpose(d), dimensions={1,0}"], True),
    ("f32[3,32,16]", "f32[3,16,20]", "f32[3,20,32]", [f"d = f32[3,32,20] dot(a, b), {BATCHED}",
                                                      "made = f32[3,20,32] transpose(d), dimensions={0,2,1}"], True),
    ("f32[32,16]", "f32[16,32]", "f32[32,32]", [f"d = f32[32,32] dot(a, b), {PLAIN}",
                                                "t = f32[32,32] transpose(d), dimensions={1,0}",
                                                "made = f32[32,32] subtract(t, d)"], True),
    ("f32[8,16]", "f32[16,20]", "f32[8,20]", [f"made = f32[8,20] dot(a, b), {PLAIN}"], False),
    *((f"{kind}[6,{n}]", f"{kind}[{n}]", f"{kind}[6]", [f"made = {kind}[6] dot(a, b), {PLAIN}"], False)
      for kind in ("f32", "f64", "s32", "c64", "c128") for n in (1, 4, 19)),
    *((f"f32[{n},6]", f"f32[{n}]", "f32[6]", [
        "made = f32[6] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"], False) for n in (1, 2, 9)),
    ("f32[3,2,6]", "f32[3,2]", "f32[3,6]", [
        "made = f32[3,6] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}"],
     False),
    ("s32[32,16]", "s32[16,20]", "s32[32,20]", [f"made = s32[32,20] dot(a, b), {PLAIN}"], False),
]


def drawn(shape: str, seed: int) -> np.ndarray:
    kind, _, dims = shape[:-1].partition("[")
    values = np.random.default_rng(seed).normal(size=[int(n) for n in dims.split(",") if n]) * 3
    values = values + 1j * np.roll(values, 1) if kind[0] == "c" else values
    return values.astype(np.dtype({"f": "f", "s": "i", "c": "c"}[kind[0]] + str(int(kind[1:]) // 8)))


def keep_the_loop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a short loop of large work be native by itself, compiled into this folder."""
    monkeypatch.setenv("XLA_TORCH_CACHE", str(folder))
    for name, value in (("NATIVE_UNDER", math.inf), ("WITHOUT_PASSES", frozenset({"bundles"})), ("UNROLLED_STEPS", 0)):
        monkeypatch.setattr(tuning, name, value)


def ran(text: str, arguments: Sequence[np.ndarray], after: float,
        monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, NativeLoop]:
    """The result of a program whose loop is native `after` so many seconds, and the loop."""
    monkeypatch.setattr(tuning, "NATIVE_AFTER", after)
    program = xla_torch.parse_hlo(text)
    (result,) = program.run_numpy(*arguments)
    (loop,) = [m for m in program.lowered().modules() if isinstance(m, NativeLoop)]
    return result, loop


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize(("lhs", "rhs", "result", "lines", "by_blas"), ROWS, ids=[str(k) for k in range(len(ROWS))])
def test_products_as_torch(lhs: str, rhs: str, result: str, lines: list[str], by_blas: bool, total: str, tmp_path: Path,
                           monkeypatch: pytest.MonkeyPatch) -> None:
    text = LOOP.replace("LINES", "\n  ".join(lines)).replace("TOTAL", SUMS[total][0]).replace("ROOT)", f"{SUMS[total][1]})")
    text = text.replace("LHS", lhs).replace("RHS", rhs).replace("RESULT", result)
    arguments = [drawn(lhs, 0), drawn(rhs, 1), drawn(result, 2)]
    keep_the_loop(tmp_path, monkeypatch)
    want, _ = ran(text, arguments, math.inf, monkeypatch)
    got, loop = ran(text, arguments, 0.0, monkeypatch)
    assert bool(loop.source.routines) == by_blas
    assert loop.code is not None
    assert loop.code.function is not None
    is_added = by_blas and total in ("by BLAS", "from the right") and got.ndim > 0 and len(lines) < 3
    assert (", 1, a3 + " in loop.source.text) == is_added
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)


TURNED: list[tuple[str, str, str, list[str], int]] = [
    # operands, result, what makes it, how many operands are copied
    ("f32[16,32]", "f32[16,20]", "f32[32,20]", ["t = f32[32,16] transpose(a), dimensions={1,0}",
                                                f"made = f32[32,20] dot(t, b), {PLAIN}"], 0),
    ("f32[32,16]", "f32[16,20]", "f32[32,20]", ["s = f32[16,32] transpose(a), dimensions={1,0}",
                                                "t = f32[32,16] transpose(s), dimensions={1,0}",
                                                f"made = f32[32,20] dot(t, b), {PLAIN}"], 0),
    ("c64[16,32]", "c64[20,16]", "c64[32,20]", ["t = c64[32,16] transpose(a), dimensions={1,0}",
                                                "u = c64[16,20] transpose(b), dimensions={1,0}",
                                                f"made = c64[32,20] dot(t, u), {PLAIN}"], 0),
    ("f32[20,32]", "f32[16,32]", "f32[16,20]", ["t = f32[32,20] transpose(a), dimensions={1,0}",
                                                f"made = f32[16,20] dot(b, t), {PLAIN}"], 0),
    ("c64[20,32]", "c64[32,16]", "c64[16,20]", ["t = c64[32,20] transpose(a), dimensions={1,0}",
                                                "u = c64[16,32] transpose(b), dimensions={1,0}",
                                                f"made = c64[16,20] dot(u, t), {PLAIN}"], 0),
    ("f64[3,16,32]", "f64[3,16,20]", "f64[3,32,20]", ["t = f64[3,32,16] transpose(a), dimensions={0,2,1}",
                                                      f"made = f64[3,32,20] dot(t, b), {BATCHED}"], 0),
    ("f32[3,16,32]", "f32[3,16,20]", "f32[3,32,20]", [
        "t = f32[16,32,3] transpose(a), dimensions={1,2,0}",
        "made = f32[3,32,20] dot(t, b), lhs_batch_dims={2}, rhs_batch_dims={0}, lhs_contracting_dims={0}, "
        "rhs_contracting_dims={1}"], 0),
    ("f32[16,3,32]", "f32[3,16,20]", "f32[3,32,20]", ["t = f32[3,32,16] transpose(a), dimensions={1,2,0}",
                                                      f"made = f32[3,32,20] dot(t, b), {BATCHED}"], 1),
    ("f32[3,2,16,32]", "f32[3,2,16,20]", "f32[2,3,32,20]", [
        "t = f32[2,3,32,16] transpose(a), dimensions={1,0,3,2}", "u = f32[2,3,16,20] transpose(b), dimensions={1,0,2,3}",
        # (b stays what it is, and is turned round before the loop.)
        "made = f32[2,3,32,20] dot(t, u), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, "
        "rhs_contracting_dims={2}"], 1),
    ("f32[1,16,1,32]", "f32[16,20]", "f32[32,1,1,20]", ["t = f32[32,1,16,1] transpose(a), dimensions={3,0,1,2}",
                                                        "made = f32[32,1,1,20] dot(t, b), lhs_contracting_dims={2}, "
                                                        "rhs_contracting_dims={0}"], 0),
    ("f32[4,8,5,4]", "f32[5,4,20]", "f32[4,8,20]", ["t = f32[5,4,4,8] transpose(a), dimensions={2,3,0,1}",
                                                    "made = f32[4,8,20] dot(t, b), lhs_contracting_dims={0,1}, "
                                                    "rhs_contracting_dims={0,1}"], 0),
    ("f32[4,8,5,4]", "f32[5,4,20]", "f32[8,4,20]", ["t = f32[8,4,5,4] transpose(a), dimensions={1,0,2,3}",
                                                    "made = f32[8,4,20] dot(t, b), lhs_contracting_dims={2,3}, "
                                                    "rhs_contracting_dims={0,1}"], 1),
    ("f32[32,16]", "f32[16,32]", "f32[32,16]", [f"d = f32[32,32] dot(a, b), {PLAIN}",
                                                "t = f32[32,32] transpose(d), dimensions={1,0}",
                                                f"made = f32[32,16] dot(t, a), {PLAIN}"], 0),
    # The carry is read as it was before the step, whatever becomes of it then.
    ("f32[32,32]", "f32[1,32]", "f32[32,32]", ["t = f32[32,32] transpose(r), dimensions={1,0}",
                                               f"made = f32[32,32] dot(t, a), {PLAIN}"], 0),
    ("f32[32,32]", "f32[1,32]", "f32[32,32]", ["t = f32[32,32] transpose(r), dimensions={1,0}", "three = s32[] constant(3)",
                                               "zero = s32[] constant(0)", f"d = f32[32,32] dot(t, a), {PLAIN}",
                                               "first = f32[1,32] slice(d), slice={[0:1],[0:32]}",
                                               "next_row = f32[1,32] multiply(first, b)",
                                               "made = f32[32,32] dynamic-update-slice(r, next_row, three, zero)"], 0),
]


@pytest.mark.parametrize("total", ["what is made", "by BLAS", "read behind"])
@pytest.mark.parametrize(("lhs", "rhs", "result", "lines", "copies"), TURNED, ids=[str(k) for k in range(len(TURNED))])
def test_transposes_are_multiplied_where_they_lie(lhs: str, rhs: str, result: str, lines: list[str], copies: int, total: str,
                                                  tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total_line, last = SUMS.get(total, ("", "made"))
    text = LOOP.replace("LINES", "\n  ".join(lines)).replace("TOTAL", total_line).replace("ROOT)", f"{last})")
    text = text.replace("LHS", lhs).replace("RHS", rhs).replace("RESULT", result)
    arguments = [drawn(lhs, 0) / 8, drawn(rhs, 1) / 8, drawn(result, 2)]
    copied: list[object] = []
    as_matrices, copy = sums._as_matrices, Code.copy

    def noted(code: Code, operand: Array, *dims: Sequence[int]) -> tuple[str, bool, int, int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Code, "copy", lambda own, array: copied.append(array) or copy(own, array))
            return as_matrices(code, operand, *dims)

    monkeypatch.setattr(sums, "_as_matrices", noted)
    keep_the_loop(tmp_path, monkeypatch)
    want, _ = ran(text, arguments, math.inf, monkeypatch)
    copied.clear()
    got, loop = ran(text, arguments, 0.0, monkeypatch)
    assert loop.source.routines
    assert len(copied) == copies
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("rows", [15, 16, 17])
def test_small_products_leave_mkl_its_threads(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those up to a limit are computed on one thread, larger ones on as many as MKL takes; behind it has as many as before."""
    if sums.SET_THREADS not in torch_private.blas():
        pytest.skip("torch has no MKL here")
    monkeypatch.setattr(tuning, "PRODUCT_ALONE", 16 * 32 * 32)
    keep_the_loop(tmp_path, monkeypatch)
    text = LOOP.replace("LINES", f"made = RESULT dot(a, b), {PLAIN}").replace("TOTAL", SUMS["by BLAS"][0])
    text = text.replace("ROOT)", "sum)").replace("LHS", f"f32[{rows},32]").replace("RHS", "f32[32,32]")
    text = text.replace("RESULT", f"f32[{rows},32]")
    arguments = [drawn(f"f32[{rows},32]", 0), drawn("f32[32,32]", 1), drawn(f"f32[{rows},32]", 2)]
    want, _ = ran(text, arguments, math.inf, monkeypatch)
    threads = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(torch_private.blas()[sums.SET_THREADS])
    before = threads(3)
    try:
        got, loop = ran(text, arguments, 0.0, monkeypatch)
    finally:
        assert threads(before) == 3
    assert (sums.SET_THREADS in loop.source.routines) == (rows <= 16)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)
