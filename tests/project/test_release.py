"""What `make release` looks for, and what the usual service runs: the Makefile's targets."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import release
import versions

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changelog\n\n## 0.2.0, unreleased\n\n- new\n\n## 0.1.0\n\n### Part\n\n- old\n"
NAME, FILES = "xla_torch-1-py3-none-any.whl", ["xla_torch/a.py", "grad_rules/b.py", "xla_torch/c.hlo"]


@pytest.mark.parametrize(("version", "expected"), [("0.2.0", "- new\n"), ("0.1.0", "### Part\n\n- old\n")])
def test_notes_are_the_versions_section(version: str, expected: str):
    assert release.notes(CHANGELOG, version) == expected


@pytest.mark.parametrize("version", ["0.1", "0.3.0", "2.0"])
def test_a_version_without_notes_is_not_released(version: str):
    with pytest.raises(SystemExit, match="no section"):
        release.notes(CHANGELOG, version)


@pytest.mark.parametrize(("name", "files", "messages"), [
    (NAME, FILES, []), (NAME, [*FILES, "xla_torch-1.dist-info/METADATA"], []),
    ("xla_torch-1-cp311-cp311-linux_x86_64.whl", FILES, ["not for every platform"]),
    (NAME, FILES[:2], ["lacks xla_torch/c.hlo"]), (NAME, [*FILES, "tests/t.py"], ["has tests/t.py"])])
def test_what_is_wrong_in_a_wheel(name: str, files: list[str], messages: list[str]):
    found = release.wrong_in(name, files, [*FILES, "xla_torch/README.md"])
    assert len(found) == len(messages)
    assert all(words in line for words, line in zip(messages, found, strict=True))


def test_every_python_and_every_torch_is_tried_once_at_least():
    assert release.pairs(["a", "b"], ["1", "2"]) == [("a", "2"), ("b", "2"), ("a", "1")]


@pytest.mark.slow
def test_a_wheel_has_what_the_packages_have(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path),
                    str(ROOT)], check=True)
    wheel, = tmp_path.glob("*.whl")
    assert release.wrong_in(wheel.name, zipfile.ZipFile(wheel).namelist(), release.tracked()) == []


# ------------------------------------------------------------------------------------------------------ the service

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_call_targets_that_are_there(path: Path):
    text = path.read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1].split())  # type: ignore[index]
    called = re.findall(r"run: make ([\w-]+)", text)
    assert called
    assert set(called) <= targets
    assert not re.search(r"/(?:work|root|home|tmp|opt)/", text)


def test_workflows_try_the_pythons_that_are_stated():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tried = set(re.findall(r'"(3\.\d+)"', (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")))
    assert stated == tried == set(versions.PYTHONS)
