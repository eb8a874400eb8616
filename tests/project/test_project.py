"""The project's own files: the map is true, pins cover what is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = [p for folder in ("xla_torch", "grad_rules", "tests", "notebooks", ".ci") for p in (ROOT / folder).rglob("*")
           if p.suffix in (".py", ".ipynb", ".hlo", ".mlir", "") and p.is_file() and "__pycache__" not in p.parts]
SOURCES += [p for p in ROOT.iterdir() if p.is_file() and p.suffix in (".md", ".toml", ".txt", "") and p.name != ".git"]


def test_the_map_names_only_what_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for row in rows:
        folder = None
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", row):
            places = [ROOT / name, ROOT / "xla_torch" / name] + ([folder / name] if folder else [])
            assert any(place.exists() for place in places), f"{name} in: {row}"
            folder = ROOT / name if name.endswith("/") and folder is None else folder


def test_the_map_names_every_package():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [p.parent.relative_to(ROOT).as_posix() for p in (ROOT / "xla_torch").rglob("*.py")]
    modules = [p.name for p in (ROOT / "xla_torch").glob("*.py") if not p.name.startswith("__")]
    for name in [f"{p}/" for p in packages if p != "xla_torch"] + modules:
        assert f"`{name}`" in text or f"`xla_torch/{name}`" in text, name


def test_a_file_tells_one_story():
    long = {p.relative_to(ROOT).as_posix(): n for p in SOURCES if p.suffix == ".py"
            if (n := len(p.read_text(encoding="utf-8").splitlines())) > 500}
    assert long == {}


def requirement_names(requirements: list[str]) -> set[str]:
    words = (re.match(r"[\w\-]+", r) for r in requirements)
    return {w.group().lower().replace("-", "_") for w in words if w}


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-zoo.txt"])
def test_constraints_pin_every_requirement(file: str):
    pins = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w\-]+==[\w.]+", pin) for pin in pins)
    project = PROJECT["project"]
    extras = [r for name, extra in project["optional-dependencies"].items() for r in extra
              if file == {"zoo": "constraints-zoo.txt", "release": "constraints.txt"}.get(name, file)]
    needed = requirement_names(project["dependencies"] + extras) - {"xla_torch"}
    assert needed <= requirement_names(pins)


def test_nothing_names_a_place_of_a_machine():
    pattern = re.compile(r"(?<![\w.~])/(?:home|root|tmp|work|opt|Users)/")
    found = [f"{path.relative_to(ROOT)}: {line.strip()[:100]}" for path in SOURCES if path != Path(__file__)
             for line in path.read_text().splitlines() if pattern.search(line)]
    assert found == []


def test_no_test_imports_another():
    """What they share stands in `tests/support`."""
    imports = re.compile(r"^\s*(?:from|import) (test_\w+|(?:\w+\.)+test_\w+)\b.*", re.M)
    found = [f"{path.relative_to(ROOT)}: {match.group().strip()}" for path in sorted((ROOT / "tests").rglob("*.py"))
             for match in imports.finditer(path.read_text())]
    assert found == []


def test_test_modules_have_names_of_their_own():
    """They are imported by name alone."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py"]
    tests = [name for name in names if name.startswith("test_")]
    assert sorted(set(tests)) == sorted(tests)


def test_versions_agree():
    import xla_torch

    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "xla_torch.__version__"}
    assert f"## {xla_torch.__version__}" in (ROOT / "CHANGELOG.md").read_text()
