"""The snippets of README and of the pages in docs run, one after the other, and print what stands below them; so do README's
commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from support.expected import fits
from support.oracle import needs_xla

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "docs", ROOT / "docs" / "how-to", ROOT / "docs" / "tutorials"]
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted(folder.glob("*.md")))]
SNIPPET = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.S)


def snippets(page: Path) -> list[tuple[str, str | None]]:
    return [(m.group(1), m.group(2)) for m in SNIPPET.finditer(page.read_text(encoding="utf-8"))]


def printed(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "snippet", "exec"), names)
    return out.getvalue()


@needs_xla
@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p)], ids=lambda p: p.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, (code, expected) in enumerate(snippets(page)):
        messages = printed(code, names)
        assert expected is None or fits(messages, expected), f"snippet {number} prints\n{messages}"


def test_links_lead_somewhere() -> None:
    missing = []
    for page in [*PAGES, *(ROOT / "docs").rglob("README.md"), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
            if not (page.parent / link).exists():
                missing.append(f"{page.name}: {link}")
    assert missing == []


# ------------------------------------------------------------------------------------------------ README

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def plain() -> list[str]:
    """Its blocks that are no Python."""
    return [text for language, text in FENCED.findall(README) if language != "python"]


def test_readme_is_a_page() -> None:
    assert len(README.splitlines()) <= 120


def test_make_has_what_readme_names() -> None:
    targets = set(re.findall(r"`make ([\w-]+)", README))
    assert {"demo", "docs", "test"} <= targets
    for target in targets:
        run = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_the_commands_of_the_set_up_run(tmp_path: Path) -> None:
    """As they stand, in a clone; pip takes what it would fetch from where the tests run."""
    commands = next(text for text in plain() if "pip install" in text)
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), "clone"], cwd=tmp_path, check=True)
    there = os.environ | {"PYTHONPATH": sysconfig.get_paths()["purelib"], "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1",
                          "PIP_NO_BUILD_ISOLATION": "0"}  # which is pip's spelling of --no-build-isolation
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path / "clone", env=there, check=True)
    (reported,) = (tmp_path / "clone" / ".venv").rglob("xla_torch-*.dist-info/direct_url.json")
    assert json.loads(reported.read_text(encoding="utf-8"))["url"] == (tmp_path / "clone").as_uri()
