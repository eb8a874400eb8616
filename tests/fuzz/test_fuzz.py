"""A sample of `make fuzz`, and that it sees what it is for."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from fuzz import fuzz
from fuzz.mutants import DATA, SEEDS, mutant


@pytest.mark.parametrize("kind", SEEDS)
def test_mutants_are_programs_or_errors_of_xla_torch(kind: str) -> None:
    found = {number: fuzz.tried(fuzz.READ[kind], mutant(kind, number)) for number in range(25)}
    assert not {number: what for number, what in found.items() if what is not None}


@pytest.mark.parametrize("path", sorted((DATA / "crashers").iterdir()), ids=lambda p: p.name)
def test_what_was_found_once_stays_mended(path: Path) -> None:
    assert fuzz.tried(fuzz.READ[path.stem.split("-")[0]], path.read_bytes()) is None


@pytest.mark.parametrize("kind", SEEDS)
def test_mutants_are_always_the_same(kind: str) -> None:
    assert [mutant(kind, n) for n in range(10)] == [mutant(kind, n) for n in range(10)]
    assert len({mutant(kind, n) for n in range(10)}) > 5


def test_other_errors_are_found() -> None:
    def fails(data: bytes) -> object:
        raise KeyError(data)

    assert "KeyError" in (fuzz.tried(fails, b"") or "")


def dying(kind: str, numbers: range, into: Connection) -> None:
    """A child that dies of its second mutant."""
    for number in numbers:
        into.send((number, None))
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    into.send((None, None))


@pytest.mark.slow
def test_a_process_that_dies_is_found() -> None:
    assert fuzz.batch("hlo", range(4), dying) == [(1, "ended the process with -9")]
