"""`make versions`: an environment for each corner of the supported versions, and what passes in it.

Each corner installs the package with its test requirements, then runs the demo, the conformance cases and a part of the fast
tests. `--write` puts the rows into docs/supported-versions.md. An interpreter that PATH does not have leaves its row as it is.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "supported-versions.md"
CONFORMANCE = ROOT.parent / "shared" / "conformance" / "run.py"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LIBRARIES = ("torch", "jax", "numpy", "flax", "protobuf")
HEADINGS = ("corner", "Python", *LIBRARIES, "demo", "conformance", "tests", "date")


@dataclass(frozen=True)
class Corner:
    """One set of versions: an interpreter, and the arguments that make pip choose."""

    name: str
    python: str
    pins: tuple[str, ...] = ()
    """Requirements in addition to those of the package."""
    options: tuple[str, ...] = ()
    """Options of `uv pip install`."""


@functools.cache
def project() -> dict[str, list[str]]:
    """The requirements that pyproject.toml states: the package's own under "", others under the name of their extra."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": read["dependencies"], **read["optional-dependencies"]}


def lowest(requirements: Sequence[str]) -> tuple[str, ...]:
    """Each requirement with a lower bound, at that bound: ``numpy==2.0.*`` for ``numpy>=2.0``."""
    found = (re.match(r"([\w-]+)>=([\d.]+)", requirement) for requirement in requirements)
    return tuple(f"{match[1]}=={match[2]}.*" for match in found if match)


def torch_releases() -> tuple[str, ...]:
    """The minor versions of torch that pyproject.toml allows, oldest first."""
    (bounds,) = filter(None, (re.fullmatch(r"torch>=2\.(\d+),<2\.(\d+)", requirement) for requirement in project()[""]))
    return tuple(f"2.{minor}" for minor in range(int(bounds[1]), int(bounds[2])))


def corners() -> list[Corner]:
    """The oldest versions, those of development, the newest two of torch, and the newest of everything on each Python."""
    oldest = lowest([*project()[""], *project()["jax"]])
    before = torch_releases()[-2]
    return [
        Corner("oldest", PYTHONS[0], oldest),
        Corner("development", PYTHONS[0], options=("--constraint", "constraints.txt")),
        Corner(f"torch-{before}", PYTHONS[0], (f"torch=={before}.*",)),
        *(Corner(f"newest-{python}", python) for python in PYTHONS),
    ]


def main() -> None:
    """Exits with 1 where something failed in a corner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="corners whose name contains this text")
    parser.add_argument("--part", default="0/10", metavar="K/N", help="the part of the fast tests (default: the first tenth)")
    parser.add_argument("--unbounded", action="store_true", help="let the newest torch be newer than pyproject.toml allows")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-versions", help="where the environments are made")
    parser.add_argument("--keep", action="store_true", help="use environments that exist, and keep them")
    parser.add_argument("--write", action="store_true", help=f"write the rows to {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()

    status = 0
    for corner in corners():
        if options.only and not any(text in corner.name for text in options.only):
            continue
        if shutil.which(f"python{corner.python}") is None:
            print(f"{corner.name}: no python{corner.python} on PATH", flush=True)
            continue
        row = measure(corner, options)
        print(" | ".join(row), flush=True)
        status |= any("failed" in cell for cell in row)
        if options.write:
            write(row)
    sys.exit(status)


def measure(corner: Corner, options: argparse.Namespace) -> list[str]:
    """A corner's row, from an environment that is made for it."""
    place = options.folder / re.sub(r"\W+", "-", corner.name)
    if not (options.keep and place.exists()):
        install(corner, place, options.unbounded)
    python = place / "bin" / "python"
    row = [corner.name, *installed(python), demo(python), conformance(python), tests(python, options.part)]
    if not options.keep:
        shutil.rmtree(place)
    return [*row, datetime.date.today().isoformat()]


def install(corner: Corner, place: Path, unbounded: bool) -> None:
    """A new environment with the package, editable, and its tests' requirements."""
    arguments = ["--editable", ".[test]", *corner.pins, *corner.options]
    if unbounded and not (corner.pins or corner.options):
        override = place.parent / "override.txt"
        override.parent.mkdir(parents=True, exist_ok=True)
        override.write_text("torch\n", encoding="utf-8")
        arguments += ["--override", str(override)]
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", f"python{corner.python}", place], cwd=ROOT, check=True)
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", place / "bin" / "python", *arguments], cwd=ROOT, check=True)


def installed(python: Path) -> list[str]:
    """The versions of Python and of the libraries in an environment."""
    code = ("import json, platform; from importlib.metadata import version; "
            f"print(json.dumps([platform.python_version(), *map(version, {LIBRARIES})]))")
    return json.loads(run(python, "-c", code).stdout)


def demo(python: Path) -> str:
    done = run(python, "-m", "xla_torch.demo")
    return "passes" if not done.returncode else _failed(done)


def conformance(python: Path) -> str:
    """How many of the conformance cases pass, where the checkout has them beside it."""
    if not CONFORMANCE.exists():
        return "not here"
    done = run(python, CONFORMANCE)
    counts = "".join(re.findall(r"^(\d+ of \d+) cases pass", done.stdout, re.M))
    return counts if not done.returncode else f"failed: {counts}"


def tests(python: Path, part: str) -> str:
    """What pytest counts in a part of the fast tests."""
    done = run(python, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "-p", "no:cacheprovider", "-m", "not slow",
               "--part", part)
    print(done.stdout, file=sys.stderr, flush=True)
    counted = re.findall(r"^(?:=+ )?(\d+ (?:passed|failed|skipped|error)[^=\n]*?) in [\d.]+s", done.stdout, re.M)
    return counted[-1] if counted else _failed(done)


def run(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    hidden = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([python, *map(str, arguments)], cwd=ROOT, env={**hidden, "OMP_NUM_THREADS": "1"}, capture_output=True,
                          text=True, check=False)


def _failed(done: subprocess.CompletedProcess[str]) -> str:
    print(done.stdout, done.stderr, file=sys.stderr, flush=True)
    return f"failed with {done.returncode}"


def write(row: Sequence[str]) -> None:
    """Replace a corner's row in the page's table, or add it."""
    PAGE.write_text(with_row(PAGE.read_text(encoding="utf-8"), row), encoding="utf-8")


def with_row(page: str, row: Sequence[str]) -> str:
    """The page with a row in the place of that of the same name, or after the last one."""
    lines = page.splitlines(keepends=True)
    table = list(_rows(lines))
    place = next((k for k in table if lines[k].startswith(f"| {row[0]} |")), None)
    line = f"| {' | '.join(row)} |\n"
    if place is None:
        lines.insert(table[-1] + 1, line)
    else:
        lines[place] = line
    return "".join(lines)


def _rows(lines: Sequence[str]) -> Iterator[int]:
    """The numbers of the lines of the table of corners, its head included."""
    start = lines.index(f"| {' | '.join(HEADINGS)} |\n")
    for k in range(start, len(lines)):
        if not lines[k].startswith("|"):
            return
        yield k


if __name__ == "__main__":
    main()
