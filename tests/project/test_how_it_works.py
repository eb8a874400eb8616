"""The tutorial in docs/how-it-works runs as it stands."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-it-works/README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks one after the other, in one module; a dataclass looks for the one that it is defined in."""
    module = types.ModuleType("how_it_works")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for number, block in enumerate(BLOCKS):
        code = block if block.startswith("from __future__") else f"from __future__ import annotations\n{block}"
        exec(compile(code, f"{PAGE.name}, block {number}", "exec"), module.__dict__)
    assert len(BLOCKS) >= 8


def test_it_is_as_small_as_it_says() -> None:
    assert sum(len([line for line in block.splitlines() if line.strip()]) for block in BLOCKS) <= 300


def test_it_names_only_what_exists() -> None:
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE.read_text(encoding="utf-8")))
    root = PAGE.parents[2]
    assert {name for name in named if not any((root / top / name).exists() for top in ("", "xla_torch"))} == set()
