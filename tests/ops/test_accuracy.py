"""Elementwise functions are as accurate as `tests/documents/accuracy.md` says, at some of its points; it has all functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("mpmath")
pytest.importorskip("jax")

from support.accuracy import FUNCTIONS, PAGE, TYPES, Function, furthest, ours, points

SAMPLE = 24
"""Of the drawn points; with them all ends of the domain."""
MARGIN = 1.0
"""Units by which another processor's functions may be further off than those that were measured."""


def _messages() -> dict[tuple[str, str], float]:
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    return {(row[0].removeprefix("| "), row[1]): float(row[2]) for row in rows}


def test_the_page_has_all_functions_and_types() -> None:
    assert list(_messages()) == [(f.name, kind) for f in FUNCTIONS for kind in TYPES]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.name)
def test_accuracy(function: Function, kind: str) -> None:
    assert ours(function, kind, SAMPLE) <= _messages()[function.name, kind] * 1.01 + MARGIN


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_far_off_is_measured(kind: str) -> None:
    """The measure itself: what is two units off, up to four by the end of a binade, and NaN, as far as can be."""
    sqrt = next(f for f in FUNCTIONS if f.name == "Sqrt")
    (x,) = points(sqrt, kind, SAMPLE)
    roots, eps = x.astype(float) ** 0.5, float(ml_dtypes.finfo(x.dtype).eps)
    assert furthest(sqrt, kind, roots.astype(x.dtype), SAMPLE) <= 0.51
    assert 1.5 <= furthest(sqrt, kind, (roots * (1 + 2 * eps)).astype(x.dtype), SAMPLE) <= 4.51
    assert furthest(sqrt, kind, np.full_like(x, np.nan), SAMPLE) == np.inf
