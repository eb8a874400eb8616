"""Transcendental functions of float32 in native code (`codegen/transcendental.py`): how exact they are over all numbers, at
edges, beside real XLA, and which of them a compiler makes vectors of."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.native_programs import loop_of_rows, native_after, natively, run_both
from support.oracle import run_xla
from xla_torch.codegen.compiled import OPTIONS, compiler, is_available
from xla_torch.codegen.elements import VECTOR_ELEMENTS, element_work
from xla_torch.codegen.functions import used_in
from xla_torch.codegen.loops import TYPES, loop_source
from xla_torch.core import tuning
from xla_torch.hlo.ir import Instruction
from xla_torch.kernels.native import can_fuse, machine, options
from xla_torch.transform.canonical import canonicalize

pytestmark = pytest.mark.skipif(not is_available() or not can_fuse(), reason="functions need a compiler and a fused multiply-add")

FUNCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "exponential": (np.exp, 0.66), "exponential-minus-one": (np.expm1, 0.501), "log": (np.log, 0.501),
    "log-plus-one": (np.log1p, 0.501), "logistic": (lambda x: torch.sigmoid(torch.from_numpy(x)).numpy(), 2.49),
    "tanh": (np.tanh, 0.76), "sinh": (np.sinh, 0.501), "cosh": (np.cosh, 0.501), "asinh": (np.arcsinh, 0.501),
    "acosh": (np.arccosh, 0.501), "atanh": (np.arctanh, 0.501), "sine": (np.sin, 0.501), "cosine": (np.cos, 0.501),
    "tan": (np.tan, 0.501), "asin": (np.arcsin, 0.501), "acos": (np.arccos, 0.501), "atan": (np.arctan, 0.501),
    "cbrt": (np.cbrt, 0.501), "erf": (lambda x: torch.erf(torch.from_numpy(x)).numpy(), 0.504),
    "power": (np.power, 0.501), "atan2": (np.arctan2, 0.501),
}
"""Each function in double precision, and by how many units of the last place it may err."""

TWO = ("power", "atan2")
NOT_XLA_S = ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
"""Ops that XLA for the CPU does not compile."""

EDGES = np.array([0.0, 1.0, 0.5, 2.0, 3.0, 2.5, np.inf, np.nan, 2.0**-149, 2.0**-126, 1 - 2.0**-24, 1 + 2.0**-23, 1e-3, 1e-10,
                  30.0, 88.7228, 88.73, 89.41, 89.42, 103.9, 104.5, 700.5, 3.9199, 3.92, np.pi / 2, np.pi, 16777215.0, 16777216.0,
                  2.0**76, 2.0**76 * (1 - 2.0**-24), 1.1e38, 3.4028235e38], np.float32)
"""What functions have limits at, or have in their code."""
EDGES = np.concatenate([EDGES, -EDGES])


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "NATIVE_UNDER", math.inf)


def natively_computed(op: str, x: np.ndarray, y: np.ndarray, folder: Path) -> np.ndarray:
    size = f"f32[{x.size}]"
    text = loop_of_rows([f"{size} {op}({'x, y' if op in TWO else 'x'})"], {"x": size, "y": size}, steps=1)
    with native_after(0.0, folder):
        (got,) = xla_torch.parse_hlo(text).run_numpy(x, y)
    return got


def check(op: str, x: np.ndarray, y: np.ndarray, folder: Path) -> None:
    function, bound = FUNCTIONS[op]
    got = natively_computed(op, x, y, folder)
    with np.errstate(all="ignore"):
        exact = function(*(a.astype(np.float64) for a in ((x, y) if op in TWO else (x,))))
        want = exact.astype(np.float32)
        ends = ~np.isfinite(want) | (want == 0)
        np.testing.assert_array_equal(got[ends], want[ends], err_msg=op)
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]), err_msg=op)
        least = np.maximum(np.abs(want), np.finfo(np.float32).tiny)
        error = np.abs(got - exact) / np.spacing(least).astype(np.float64)
        normal = ~ends & (np.abs(want) >= np.finfo(np.float32).tiny)
        assert error[normal].max() <= bound, (op, x[normal][error[normal].argmax()])
        if op != "logistic":  # it is 0 where e^-x is infinite, as torch's
            assert error[~ends].max() <= max(bound, 0.77), op


@pytest.mark.parametrize("op", FUNCTIONS)
def test_numbers_of_all_sizes(op: str, tmp_path: Path) -> None:
    """Of all bits, of usual sizes, and results of all sizes of powers."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32) for _ in range(2))
    x[::2], y[::2] = rng.uniform(-20, 20, 1 << 17), np.rint(rng.uniform(-20, 20, 1 << 17))
    x[::8], y[::8] = rng.uniform(0.5, 2, 1 << 15), rng.uniform(-120, 120, 1 << 15)
    check(op, x, y, tmp_path)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_edges(op: str, tmp_path: Path) -> None:
    check(op, np.repeat(EDGES, len(EDGES)), np.tile(EDGES, len(EDGES)), tmp_path)


def test_as_xla(tmp_path: Path) -> None:
    """Where XLA's own functions, which are less exact, have finite values that are no denormal numbers."""
    rng = np.random.default_rng(1)
    x, y = (rng.uniform(-3, 3, 4096).astype(np.float32) for _ in range(2))
    rows = [f"f32[4096] {op}({'x, y' if op in TWO else 'x'})" for op in FUNCTIONS if op not in NOT_XLA_S]
    text = loop_of_rows(rows, dict.fromkeys("xy", "f32[4096]"), steps=1)
    assert natively(text)
    _, got = run_both(text, [x, y], tmp_path)
    for row, mine, theirs in zip(rows, got, run_xla(text, x, y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=3e-6, atol=2e-7, err_msg=row)


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_one_number_alone_is_the_library_s_where_that_is_sooner(op: str, size: int) -> None:
    shape = f"f32[{size}]"
    text = loop_of_rows([f"{shape} {op}({'x, y' if op in TWO else 'x'})"], {"x": shape, "y": shape})
    (loop,) = [i for i in canonicalize(xla_torch.parse_hlo(text).module.entry).instructions if i.opcode == "while"]
    code = loop_source(loop, frozenset(), machine()).text
    alone = {"sine", "cosine", "cosh", "asin", "acos", "atan", "cbrt", "power"}
    function = VECTOR_ELEMENTS[next(name for name in VECTOR_ELEMENTS if str(name) == op)]
    assert (f" f32 {function}(f32 " in code) == (size > 1 or op not in alone)


@pytest.mark.parametrize(("op", "nanoseconds"), [("sine", 0.6), ("tan", 1.2), ("log", 0.4), ("erf", 0.125), ("add", 0.125)])
def test_what_an_element_costs(op: str, nanoseconds: float) -> None:
    (made,) = [i for i in instructions_of(op) if i.opcode == op]
    assert element_work(made, True) == nanoseconds
    assert element_work(made, False) == (0.125 if op == "add" else 8)


def instructions_of(op: str) -> list[Instruction]:
    given = "x, x" if op == "add" else "x"
    text = f"ENTRY e {{ x = f32[4] parameter(0)\n ROOT r = f32[4] {op}({given}) }}"
    return list(xla_torch.parse_hlo(text).module.entry.instructions)


@pytest.mark.slow
@pytest.mark.parametrize("op", FUNCTIONS)
def test_loops_become_vectors(op: str, tmp_path: Path) -> None:
    version = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    if "Free Software" not in version:
        pytest.skip("what other compilers tell of vectors is another text")
    function = VECTOR_ELEMENTS[next(name for name in VECTOR_ELEMENTS if str(name) == op)]
    call = f"{function}({'x[i], y[i]' if op in TWO else 'x[i]'})"
    header = "void run(f32 *restrict r, const f32 *x, const f32 *y)"
    loop = f"{header} {{ for (s64 i = 0; i < 4096; i++) r[i] = {call}; }}"
    text = "\n".join([TYPES, *used_in(loop, {}), loop])
    command = [*compiler(), *OPTIONS, *options(), "-fopt-info-vec", "-o", str(tmp_path / "f.so"), "-"]
    reported = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stderr
    assert "loop vectorized" in reported
