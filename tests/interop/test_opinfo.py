"""Operators of torch's own database of calls (OpInfo) by way of `from_torch`: the list of what is known of them is true.

All of them take ten minutes of a core, so a quarter is asked here; `make opinfo` asks all and writes the list.
"""

from __future__ import annotations

import pytest
import torch

from support import opinfo

pytestmark = pytest.mark.slow
KNOWN = opinfo.known()


@pytest.fixture(autouse=True)
def needs_the_database() -> None:
    pytest.importorskip("expecttest")  # which the database imports
    head = opinfo.FILE.read_text(encoding="utf-8").partition(":")[0]
    if f"# torch {torch.__version__.partition('+')[0]}" != head:
        pytest.skip(f"the list is that of {head[2:]}")


@pytest.mark.parametrize(("name", "dtype"), sorted(KNOWN)[::4])
def test_the_list_says_of_an_operator_what_is_true(name: str, dtype: str):
    found, listed = opinfo.fault(name, dtype), KNOWN[name, dtype]
    assert found.partition(":")[0] == listed.partition(":")[0], found


def test_the_list_is_whole_and_has_no_other_values():
    assert sorted(KNOWN) == sorted(opinfo.questions())
    assert [question for question, reason in KNOWN.items() if reason == "other values"] == []
    assert opinfo.written(KNOWN) == opinfo.FILE.read_text(encoding="utf-8")
