"""Native code with gcc's sanitizers of addresses and undefined behaviour compiled in, in child processes; slow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.stored_programs import SHARED

pytestmark = pytest.mark.slow
PROGRAMS, EACH, CASES = 2000, 100, 8
"""Drawn programs, those of one test, and the parts of the conformance cases."""
TESTS = Path(__file__).parents[1]


def sanitizers() -> str:
    """The libraries that a process loads before all others, so that they see its memory. Skips where gcc has none."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("no gcc")
    asked = [["gcc", f"-print-file-name={name}.so"] for name in ("libasan", "libubsan")]
    found = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for command in asked]
    if not all(os.path.isabs(path) for path in found):  # gcc repeats the name of a library that it does not have
        pytest.skip("gcc has no sanitizers")
    return " ".join(found)


def run_sanitized(cache: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "LD_PRELOAD": sanitizers(), "CC": "gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined",
        "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "XLA_TORCH_NATIVE_AFTER": "0",
        "XLA_TORCH_CACHE": str(cache), "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "fuzz.sanitized", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def assert_clean(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{done.stdout[-200:]}\n{done.stderr[-6000:]}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sanitized")


def test_a_read_behind_an_array_ends_the_process(cache: Path) -> None:
    done = run_sanitized(cache, "overrun")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.parametrize("first", range(0, PROGRAMS, EACH))
def test_native_code_of_drawn_programs(first: int, cache: Path) -> None:
    assert_clean(run_sanitized(cache, "drawn", first, first + EACH, "low" if first // EACH % 2 else "plain"))


@pytest.mark.parametrize("part", range(CASES))
def test_native_code_of_conformance_cases(part: int, cache: Path) -> None:
    if not (SHARED / "conformance").exists():
        pytest.skip("no conformance beside the checkout")
    assert_clean(run_sanitized(cache, "conformance", part, CASES))
