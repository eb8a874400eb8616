"""Tests that the documentation names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_NAMED = re.compile(r"`(tests/[\w/]+\.py)?::(\w+)`")


@pytest.mark.parametrize("page", [p for p in PAGES if _NAMED.search(p.read_text(encoding="utf-8"))], ids=lambda p: p.name)
def test_named_tests_exist(page: Path) -> None:
    file, missing = "", []
    for path, name in _NAMED.findall(page.read_text(encoding="utf-8")):
        file = path or file
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8"):
            missing.append(f"{file}::{name}")
    assert missing == []
