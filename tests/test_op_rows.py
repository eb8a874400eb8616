"""Every row of the op table with every element type, in every form, against real XLA; and that the table is whole."""

from __future__ import annotations

import collections
import inspect
import re
from pathlib import Path

import pytest

import sweep
from op_rows import ROWS, Row, check
from oracle import needs_xla
from xla_torch import ops

EACH = [pytest.param(row, kind, id=f"{row.name} {kind}") for row in ROWS for kind in row.types]

ELSEWHERE = {
    "test_internal.py": ("CustomCall", "CustomCallWithLayout", "CustomCallWithComputation", "Infeed", "Outfeed", "Recv",
                         "RecvFromHost", "Send", "SendToHost"),
    "test_documented_names.py": ("CustomCallWithConvDnums", "InfeedWithToken", "OutfeedWithToken", "RecvWithToken",
                                 "SendWithToken", "RecvDone", "RecvStart", "SendDone", "SendStart", "RngGetAndUpdateState"),
    "document_signatures.py": ("PartitionID", "RecvToHost", "RecvWithTokens", "SendWithTokens"),
    "test_window.py": ("MakePadding",),
}
"""Functions that need more than arguments: a peer, a feed, a registered target; and those that make no op."""


@needs_xla
@pytest.mark.parametrize(("row", "kind"), EACH)
def test_row_agrees_with_xla(row: Row, kind: str) -> None:
    check(row, kind, examples=2)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), EACH)
def test_many_examples_agree_with_xla(row: Row, kind: str) -> None:
    check(row, kind, examples=6)


def test_every_function_has_a_row() -> None:
    """A parameter is in every row, and the gradient of a custom call is no function of the documents."""
    functions = {name for name, value in vars(ops).items() if name[0].isupper() and inspect.isfunction(value)}
    rows = {name for row in ROWS for name in row.functions.split()}
    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    assert sorted(functions - rows - elsewhere - {"Parameter", "CustomCallVjp"}) == []
    assert sorted((rows | elsewhere) - vars(ops).keys()) == []
    assert sorted(rows & elsewhere) == []


@pytest.mark.parametrize(("file", "names"), ELSEWHERE.items())
def test_functions_without_a_row_are_tested_elsewhere(file: str, names: tuple[str, ...]) -> None:
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_rows_have_names_of_their_own() -> None:
    assert [name for name, count in collections.Counter(row.name for row in ROWS).items() if count > 1] == []


def test_the_page_names_every_row() -> None:
    """What was measured may be older than the rows; which rows there are, their types and tolerances may not."""
    written = sweep.PAGE.read_text(encoding="utf-8")
    missing = [line for line in sweep.stated(sweep.page({})) if line not in sweep.stated(written)]
    assert missing == [], f"run {sweep.COMMAND}"
    assert len(sweep.stated(written)) == len(ROWS), f"run {sweep.COMMAND}"
