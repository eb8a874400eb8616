"""Every row of the table of public reports through every entry point that takes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from reports import entry_points, jax_rows, torch_rows
from reports.rows import Row
from support.oracle import needs_xla
from xla_torch.core import tuning

CALLS = (entry_points.called, entry_points.called_in_a_batch, entry_points.called_three_times)
GRADIENTS = (entry_points.by_backward, entry_points.by_functional_gradient)
NATIVELY = ("from_hlo_text", "from_torch")
RULES = {"jax#7652", "jax#16000", "jax#4173", "jax#1249"}
"""Rows about derivatives that an author wrote, which HLO and StableHLO do not have."""


def assert_right(got: list[np.ndarray], want: list[np.ndarray], row: Row) -> None:
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        if row.right is None and not row.gradient:
            assert ours.dtype == theirs.dtype
        tolerance = 1e-4 if row.report == "jax#37635" or ours.dtype in (np.float32, np.complex64) else 1e-9
        wide = np.complex128 if ours.dtype.kind == "c" else np.float64 if ours.dtype.kind in "fV" else ours.dtype
        np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=0 if row.exact else tolerance,
                                   atol=0 if row.exact else tolerance)
        if row.exact:
            np.testing.assert_array_equal(np.signbit(ours[ours == ours]), np.signbit(theirs[theirs == theirs]))


NOT_RIGHT = {("jax#37635", "from_jax_export"), *((report, "compiled_of_jax") for report in (
    "jax#40849", "xla#44705", "tensorflow#118673"))}
"""Numbers of XLA's own. A file of jax.export holds its sum for polygamma, spelled out in ops. Of what it compiles, two reports
say that it is wrong, and the gradient of a maximum of NaN is 0 in what jax.jit compiles too."""


@needs_xla
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:.*vmap:UserWarning")
@pytest.mark.parametrize("row", [*jax_rows.ROWS, *torch_rows.ROWS], ids=str)
def test_reports_are_right_through_every_entry_point(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not row.gradient:
        monkeypatch.setattr(tuning, "NATIVE_AFTER", 0)
    monkeypatch.setenv("XLA_TORCH_CACHE", str(tmp_path))
    is_torch = row in torch_rows.ROWS
    made_by = entry_points.MADE_OF_TORCH if is_torch else entry_points.MADE_OF_JAX
    want, wrong = entry_points.truth(row, is_torch), {}
    for name, make in made_by.items():
        if row.gradient and (row.report in RULES and name in entry_points.LOSES_RULES):
            continue
        if (row.report, name) in NOT_RIGHT:
            continue
        made = make(row)
        expected = [row.by_table] if row.by_table is not None and name in entry_points.LOSES_RULES else want
        calls = GRADIENTS if row.gradient else CALLS[:3 if name in NATIVELY else 2]
        for call in calls:
            try:
                assert_right(call(made, row), expected, row)
            except Exception as error:
                wrong[name, call.__name__] = f"{type(error).__name__}: {str(error).strip()[:300]}"
    assert wrong == {}


def test_the_table_has_rows_of_each_tracker_and_kind() -> None:
    rows = [*jax_rows.ROWS, *torch_rows.ROWS]
    assert len(rows) >= 100
    assert {row.report.partition("#")[0] for row in rows} >= {"jax", "xla", "pytorch", "tensorflow", "numpy"}
    assert sum(row.gradient for row in rows) >= 40
