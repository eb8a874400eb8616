"""The specification that docstrings cite is there to be read."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "xla_torch" / "hlo" / "SPEC.md"
CITED = re.compile(r"hlo/SPEC\.md, ([A-Z][\w\s,]*?)(?=[.:;)])")


def cited() -> dict[str, set[str]]:
    """The headings that a file's text cites, by file."""
    found: dict[str, set[str]] = {}
    for folder in ("xla_torch", "grad_rules", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != Path(__file__):
                headings = {" ".join(heading.split()) for heading in CITED.findall(path.read_text(encoding="utf-8"))}
                found |= {path.relative_to(ROOT).as_posix(): headings} if headings else {}
    return found


def test_cited_headings_are_on_the_page() -> None:
    headings = set(re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.M))
    assert {path: sorted(names - headings) for path, names in cited().items() if names - headings} == {}
    assert len(cited()) > 20


def test_rules_are_not_cited_by_numbers() -> None:
    """Of a document that does not ship with the project."""
    numbered = re.compile(r"\brules? [A-Z]\d|\bspec `?\w+\.md|\b(?:ops|hlo_text|shapes|rng)\.md")
    found = [path.relative_to(ROOT).as_posix() for folder in ("xla_torch", "grad_rules", "tests")
             for path in (ROOT / folder).rglob("*.py")
             if path != Path(__file__) and numbered.search(path.read_text(encoding="utf-8"))]
    assert found == []
