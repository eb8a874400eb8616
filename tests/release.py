"""`make release`: the wheel and the sdist, what is in them, whether they run where nothing else is, and the notes.

Everything lies in dist afterwards: the two files, and notes.md, this version's section of CHANGELOG.md. A wheel is tried in an
environment of its own for each Python at hand with the newest torch, and for each older torch with the oldest Python: the demo
runs there, from another folder than this one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from versions import PYTHONS, torch_releases

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def main() -> None:
    """Stops with an error at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description="Build, check and try what is uploaded.")
    parser.add_argument("--python", action="append", help="an interpreter to try the wheel with (default: those on PATH)")
    parser.add_argument("--torch", action="append", help=f"a version to try it with (default: of {', '.join(torch_releases())})")
    options = parser.parse_args()

    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    wrong = wrong_in(wheel.name, zipfile.ZipFile(wheel).namelist(), tracked())
    if wrong:
        sys.exit("\n".join(wrong))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)

    version = wheel.name.split("-")[1]
    (DIST / "notes.md").write_text(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version), encoding="utf-8")
    pythons = options.python or [name for name in map("python{}".format, PYTHONS) if version_of(name)] or [sys.executable]
    for python, torch in pairs(pythons, options.torch or torch_releases()):
        print(f"== {python} ({version_of(python)}), torch {torch}", flush=True)
        try_out(wheel, python, torch)
    print(f"{wheel.name}, {sdist.name} and notes.md are in dist")


def run(*command: object, folder: Path = ROOT) -> None:
    """A command that must succeed. It sees no source of this folder's."""
    hidden = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=hidden, check=False)
    if done.returncode:
        sys.exit(f"failed with {done.returncode}: {' '.join(map(str, command))}")


def version_of(python: str) -> str:
    """The version of an interpreter; nothing where there is none (a launcher of one that is not installed counts as none)."""
    try:
        done = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True,
                              check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def pairs(pythons: Sequence[str], torches: Sequence[str]) -> list[tuple[str, str]]:
    """Each Python with the newest torch, and each older torch with the first Python."""
    return [(python, torches[-1]) for python in pythons] + [(pythons[0], torch) for torch in torches[:-1]]


def try_out(wheel: Path, python: str, torch: str) -> None:
    """The wheel and what it asks for in a new environment, from a folder where nothing else is."""
    with tempfile.TemporaryDirectory(prefix="release") as place:
        folder = Path(place)
        run(python, "-m", "venv", folder / "environment")
        inside = folder / "environment" / "bin"
        run(inside / "pip", "install", "--quiet", f"torch=={torch}.*", wheel, folder=folder)
        run(inside / "xla_torch", "--version", folder=folder)
        run(inside / "python", "-W", "error::ImportWarning", "-m", "xla_torch.demo", folder=folder)


def tracked() -> list[str]:
    """The files of the two packages that git knows."""
    listed = subprocess.run(["git", "ls-files", "xla_torch", "grad_rules"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def wrong_in(name: str, files: Iterable[str], sources: Iterable[str]) -> list[str]:
    """What a wheel should not be: for one platform only, without a file that the packages have, or with others."""
    there = {file for file in files if ".dist-info/" not in file}
    pages = {source for source in sources if source.endswith("README.md")}
    wrong = [] if name.endswith("-py3-none-any.whl") else [f"{name} is not for every platform"]
    wrong += [f"the wheel lacks {file}" for file in sorted(set(sources) - pages - there)]
    return wrong + [f"the wheel has {file}, which git does not know" for file in sorted(there - set(sources))]


def notes(changelog: str, version: str) -> str:
    """A version's section of the changelog, without its heading."""
    found = re.search(rf"^## {re.escape(version)}(?![\w.])[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.S | re.M)
    if found is None or not found[1].strip():
        sys.exit(f"CHANGELOG.md has no section for {version}")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    main()
