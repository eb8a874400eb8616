"""Every row of the op table with every element type, in every form, against real XLA; and that the table is whole."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import sweep
from support.agreement import one_of_each
from support.functions_without_rows import EXAMPLES
from support.op_rows import ROWS, Row, check
from support.oracle import needs_xla
from xla_torch import ops
from xla_torch.distributed import feeds
from xla_torch.hlo import custom_calls


def each(chosen: Callable[[Sequence[str]], Sequence[str]]) -> list[Any]:
    return [pytest.param(row, kind, id=f"{row.name} {kind}") for row in ROWS for kind in chosen(row.types)]


@needs_xla
@pytest.mark.parametrize(("row", "kind"), each(one_of_each))
def test_row_agrees_with_xla(row: Row, kind: str) -> None:
    check(row, kind, examples=1)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize(("row", "kind"), each(list))
def test_many_examples_agree_with_xla(row: Row, kind: str) -> None:
    check(row, kind, examples=6)


def test_every_function_has_a_row() -> None:
    """A parameter is in every row, and the gradient of a custom call is no function of the documents."""
    functions = {name for name, value in vars(ops).items() if name[0].isupper() and inspect.isfunction(value)}
    rows = {name for row in ROWS for name in row.functions.split()}
    alone = {name for names in EXAMPLES for name in names.split()}
    assert sorted(functions - rows - alone - {"Parameter", "CustomCallVjp"}) == []
    assert sorted((rows | alone) - vars(ops).keys()) == []
    assert sorted(rows & alone) == []


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Feeds that are empty and do not wait long, and custom calls that are forgotten again."""
    monkeypatch.setattr(feeds, "timeout", 5.0)
    monkeypatch.setattr(custom_calls, "_registered", dict(custom_calls._registered))
    feeds.clear()
    yield
    feeds.clear()


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("names", EXAMPLES)
def test_functions_without_a_row(names: str) -> None:
    EXAMPLES[names]()


def test_rows_have_names_of_their_own() -> None:
    assert [name for name, count in collections.Counter(row.name for row in ROWS).items() if count > 1] == []


def test_the_page_names_every_row() -> None:
    """What was measured may be older than the rows; which rows there are, their types and tolerances may not."""
    written = sweep.PAGE.read_text(encoding="utf-8")
    missing = [line for line in sweep.stated(sweep.page({})) if line not in sweep.stated(written)]
    assert missing == [], f"run {sweep.COMMAND}"
    assert len(sweep.stated(written)) == len(ROWS), f"run {sweep.COMMAND}"
