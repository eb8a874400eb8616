"""Whatever a program's way depends on is listed, with how tests go both ways: `tests/data/thresholds.txt`."""

from __future__ import annotations

import importlib

import pytest

from support.low_thresholds import LOW, lower_thresholds
from support.thresholds import ROOT, compared, importing, listed

REASONS = ("no switch: ", "drawn: ", "open: ")


def test_every_constant_that_is_compared_is_listed() -> None:
    found, stated = compared(), set(listed())
    assert not found - stated, "say in tests/data/thresholds.txt how tests get to both sides of it"
    assert not stated - found, "nothing is compared with it any more"
    assert list(listed()) == sorted(stated)


@pytest.mark.parametrize(("constant", "how"), listed().items())
def test_a_threshold_is_tested_on_both_sides(constant: str, how: str) -> None:
    assert (how == "low") == (constant in LOW), "`low` is said of those that low_thresholds.py lowers, and of no others"
    path, _, name = how.partition("::")
    is_test = path.startswith("tests/") and f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    assert how == "low" or is_test or how.startswith(REASONS)


def test_what_is_lowered_is_lower_wherever_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, low in LOW.items():
        module, _, name = constant.rpartition(".")
        assert low < getattr(importlib.import_module(f"xla_torch.{module}"), name), constant
        assert importing(constant) <= LOW.keys(), "a module that imports it by value keeps what it had"
    lower_thresholds(monkeypatch.setattr)
    assert LOW["core.tuning.BLOCK"] == importlib.import_module("xla_torch.core.tuning").BLOCK


def test_few_are_not_straddled() -> None:
    """Those that are open are to become fewer."""
    assert sum(how.startswith("open: ") for how in listed().values()) <= 16
