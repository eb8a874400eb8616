"""Derivatives of every elementwise op and function that has a rule against mpmath, which knows them exactly, at special points.

Ops that are not elementwise have differences of values as their truth; the last table says which tests hold them against these.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

import xla_torch
from grad_rules import TABLE, GradientKind
from grad_rules._functions import FUNCTIONS
from support.exact_derivatives import ROWS, Point, Row

SLOW_TWICE = {"incomplete_beta", "igamma", "igammac"}
"""Functions of which the second derivative is a large program."""

WEIGHTS = (1.0, 0.5, 0.25)


def agree(found: list[np.ndarray], want: list[Point], row: Row, rtol: float) -> None:
    """All values are those that are wanted, NaN where it is; None asks nothing."""
    wrong = [(k, point, got, exact) for point, each, given in zip(row.points, want, zip(*found, strict=True), strict=True)
             for k, exact, got in zip(row.moving, each, given, strict=True)
             if exact is not None and not _same(got, exact, rtol, row.atol)]
    assert not wrong, f"(argument, point, found, exact): {wrong[:8]}"


def _same(got: float, exact: float, rtol: float, atol: float) -> bool:
    return bool(got == exact or abs(got - exact) <= rtol * abs(exact) + atol or (math.isnan(got) and math.isnan(exact)))


@functools.cache
def slopes(number: int) -> list[tuple[Point, bool]]:
    row = ROWS[number]
    return [row.slopes(point) for point in row.points]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=map(str, ROWS))
def test_first_derivatives(number: int) -> None:
    """Of both modes, everywhere."""
    row, want = ROWS[number], [values for values, _ in slopes(number)]
    computation, ones = row.computation(), np.ones(len(row.points))
    agree(list(xla_torch.vjp(computation, row.moving).run_numpy(*row.arguments, ones)), want, row, row.rtol)
    agree([xla_torch.jvp(computation, [k]).run_numpy(*row.arguments, ones)[-1] for k in row.moving], want, row, row.rtol)


@pytest.mark.parametrize("number", [
    pytest.param(k, id=row.name, marks=[pytest.mark.slow] if row.name in SLOW_TWICE else []) for k, row in enumerate(ROWS)])
def test_second_derivatives(number: int) -> None:
    """Where there is a first one and everything is finite: at infinity these are products of 0 and infinity, as in JAX."""
    row, ones, count = ROWS[number], np.ones(len(ROWS[number].points)), len(ROWS[number].moving)
    want = []
    for point, (values, regular) in zip(row.points, slopes(number), strict=True):
        asked = regular and np.isfinite([*values, *point]).all() and not row.once(*point)
        bends = row.bends(point, WEIGHTS) if asked else (None,) * count
        want.append(tuple(b if b is not None and math.isfinite(b) else None for b in bends))
    assert any(b is not None for bends in want for b in bends)
    twice = xla_torch.vjp(xla_torch.vjp(row.computation(), row.moving), row.moving)
    found = twice.run_numpy(*row.arguments, ones, *[w * ones for w in WEIGHTS[:count]])
    agree(list(found), want, row, 10 * row.rtol)


@pytest.mark.parametrize("number", range(len(ROWS)), ids=map(str, ROWS))
def test_each_point_has_an_expected_value(number: int) -> None:
    """NaN comes of NaN, or an edge says why it is there; a row that allows for lost digits says why."""
    row = ROWS[number]
    unsaid = [point for point, (values, regular) in zip(row.points, slopes(number), strict=True)
              if regular and np.isnan(values).any() and not np.isnan(point).any()]
    assert not unsaid
    assert all(edge.reason for edge in row.edges)
    assert row.lost or row.atol < 1e-300


# ------------------------------------------------------------------------------------------------------- completeness

CONTRACTION, CONTROL = "test_grad_contraction.py", "test_grad_control.py"
MOVEMENT, REDUCTION = "test_grad_movement.py", "test_grad_reduction.py"
COLLECTIVE = "../support/collective_rows.py"


def _rows(file: str, *opcodes: str) -> dict[str, tuple[str, str]]:
    return {opcode: (file, f'"{opcode}"') for opcode in opcodes}


COVERED_BY: dict[str, tuple[str, str]] = {
    **_rows("test_grad_elementwise.py", "select", "clamp", "convert", "reduce-precision", "complex", "real", "imag",
            "bitcast-convert"),
    **_rows(CONTRACTION, "dot", "ragged-dot", "convolution", "cholesky", "triangular-solve", "fft"),
    **_rows(MOVEMENT, "dynamic-slice", "dynamic-update-slice", "gather", "scatter", "bitcast", "opt-barrier", "broadcast",
            "reshape", "transpose", "reverse", "copy", "slice", "concatenate", "pad"),
    **_rows(REDUCTION, "reduce", "map", "scan", "batch-norm-training", "batch-norm-inference", "batch-norm-grad", "sort", "topk",
            "reduce-window"),
    **_rows(COLLECTIVE, "all-gather", "all-to-all", "collective-permute", "collective-broadcast",
            "reduce-scatter"),
    "all-reduce": (COLLECTIVE, '"all-reduce add"'), "collective-reduce": (COLLECTIVE, "collective-reduce"),
    "ragged-all-to-all": (COLLECTIVE, "ragged-all-to-all"),
    **{f"{opcode}-{half}": (COLLECTIVE, f'"{opcode} in two halves"')
       for opcode in ("all-reduce", "all-gather", "collective-permute") for half in ("start", "done")},
    "scaled-dot": (CONTRACTION, "ops.ScaledDot"), "set-dimension-size": (CONTROL, "ops.SetDimensionSize"),
    "dynamic-reshape": (CONTROL, "ops.DynamicReshape"), "rng": (CONTROL, "ops.RngUniform"),
    "select-and-scatter": (REDUCTION, "ops.SelectAndScatterWithGeneralPadding"),
    "custom-call": ("../interop/test_lapack.py", "custom-call"),
    **{opcode: (CONTROL, opcode) for opcode in ("add-dependency", "domain", "copy-start", "copy-done")},
}
"""Where ops that are no functions of real numbers with a formula are held against differences of values, or against JAX."""


def _differentiable() -> set[str]:
    return {o for o, entry in TABLE.items() if entry.kind in (GradientKind.FORMULA, GradientKind.LINEAR)}


def test_every_op_and_function_with_a_rule_is_asked() -> None:
    assert (_differentiable() | set(FUNCTIONS)) - {row.name for row in ROWS} - set(COVERED_BY) == set()
    assert not set(COVERED_BY) - _differentiable()


@pytest.mark.parametrize("opcode", COVERED_BY)
def test_tests_of_other_ops_are_there(opcode: str) -> None:
    file, words = COVERED_BY[opcode]
    assert words in (Path(__file__).parent / file).read_text()
