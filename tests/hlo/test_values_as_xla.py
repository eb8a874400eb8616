"""Values equal those of XLA bit by bit, on arguments for which the order of additions does not matter. For values that differ, a
row of `tests/documents/values.txt` states both sides, and both are tested."""

from __future__ import annotations

import numpy as np
import pytest

import xla_torch
from support import oracle
from support.agreement import distance
from support.value_differences import Example, check, value_differences
from support.value_rows import Row, rows

ORDERS = [pytest.param(row, marks=oracle.as_older) if row.name.startswith(("sort-at-most", "sort-at-least")) else row
          for row in rows()]
"""Comparators that are no order have no right answer, and newer XLA gives another."""


@oracle.needs_xla
@pytest.mark.parametrize("row", ORDERS, ids=lambda row: row.name)
def test_values_are_those_of_xla(row: Row) -> None:
    got, want = xla_torch.parse_hlo(row.text).run_numpy(*row.arrays), oracle.run_xla(row.text, *row.arrays)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        wrong = ~(_same(mine, theirs) | (row.ulps > 0) & (distance(mine, theirs) <= row.ulps))
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.size}: {mine[wrong][:5]}, XLA {theirs[wrong][:5]}"


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where elements are the same, zeros with their signs; one NaN is as good as another."""
    with np.errstate(invalid="ignore"):
        wide_a, wide_b = (x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in (a, b))
        signs = np.signbit(wide_a.real) == np.signbit(wide_b.real)
        return ((a == b) & (signs | (a != 0) | np.iscomplexobj(a))) | ((a != a) & (b != b))


@oracle.needs_xla
@pytest.mark.parametrize("example", [e for d in value_differences() for e in d.examples], ids=lambda example: example.where)
def test_differences_are_as_stated(example: Example) -> None:
    """A row that fails says that XLA has changed, or that we have."""
    try:
        check(example)
    except BaseException as error:
        error.add_note(example.call)
        raise


def test_differences_can_be_read() -> None:
    assert all(d.xla and d.here and d.examples for d in value_differences())
    words = " ".join(f"{d.title} {d.xla} {d.here}" for d in value_differences())
    assert len(words.split()) < 1200, "to be read in five minutes"
