"""What the benchmarks share: a table that is printed as it grows and goes into README.md, seconds, memory, and processes."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from support import tables

Run = Callable[[], Any]
PAGE = pathlib.Path(__file__).with_name("README.md")


class Table:
    """Prints its rows as they come. It stands in the part of `PAGE` that is named after the script."""

    def __init__(self, script: str, header: Sequence[str], threads: int | None = None):
        self.name, self.header = pathlib.Path(script).name, header
        self.rows: list[Sequence[str]] = []
        self.machine = machine(threads or torch.get_num_threads())
        print(f"{self.machine}\n\n{tables.markdown(header, [])}", end="", flush=True)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)
        print(tables.line(cells), end="", flush=True)

    def end(self, below: str = "", write: bool = False) -> None:
        print(f"\n{below}")
        if write:
            tables.write_part(PAGE, self.name, f"{self.machine}\n\n{tables.markdown(self.header, self.rows)}\n{below}")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """What every benchmark with a table takes."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", default="", help="a part of the name of what is measured")
    made.add_argument("--write", action="store_true", help="put the table into tests/benchmarks/README.md")
    return made


def machine(threads: int) -> str:
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in ("torch", "jaxlib", "numpy"))
    model = next((line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())
    if torch.cuda.is_available():
        model = f"{model}, {torch.cuda.get_device_name()}"
    load = f"{threads} threads, load {os.getloadavg()[0]:.1f} at the start"
    return f"{datetime.date.today()}: {model}, {load}; Python {platform.python_version()}, {versions}"


def timed(run: Run) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def settled(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float, runs: int) -> tuple[float, float]:
    """The ratio of both times in turns, after so many seconds of calls of ours, and the other's seconds."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        ours()
    mine, others = list[float](), list[float]()
    for _ in range(runs):
        mine.append(timed(ours)[0])
        others.append(timed(theirs)[0])
    return statistics.median(a / b for a, b in zip(mine, others, strict=True)), statistics.median(others)


def mean_and_worst(title: str, ratios: Sequence[float]) -> str:
    """The geometric mean of ratios and the worst, in words."""
    return f"{title} {math.exp(statistics.mean(map(math.log, ratios))):.2f} (worst {max(ratios):.1f})"


def in_child(script: str, *arguments: str, environment: Mapping[str, str] | None = None, without: tuple[str, ...] = (),
             limit: float | None = None) -> Any:
    """What a script prints as JSON in its last line, in a process of its own, whose environment is without names that begin so;
    None where that takes more seconds than the limit. Raises CalledProcessError if it fails."""
    root = pathlib.Path(__file__).parents[2]
    given = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    given |= {"PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")]), **(environment or {})}
    try:
        done = subprocess.run([sys.executable, script, *arguments], env=given, check=True, stdout=subprocess.PIPE, text=True,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def resident(name: str) -> int:
    """Bytes of this process in memory: now (VmRSS), or at most (VmHWM) since it started or `forget_peak`. For Linux."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")
