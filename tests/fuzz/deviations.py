"""Deviations of XLA's CPU compiler that drawn programs run into: `deviations.txt`.

A line is ``title | pattern``: the title of a row of `tests/documents/values.txt`, which says what XLA does and why, with programs
that a test holds against real XLA; and a regular expression that finds an instruction in which the deviation shows. A difference
counts as known where its result is computed of such an instruction, and judging does not say that the wrong side is here.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import NamedTuple

from fuzz.judging import Difference
from fuzz.programs import Program, needed

PATH = Path(__file__).with_name("deviations.txt")


class Row(NamedTuple):
    """A deviation's title, and the instructions in which it shows."""

    title: str
    pattern: re.Pattern[str]


@functools.cache
def rows() -> list[Row]:
    lines = [line for line in PATH.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [Row(title, re.compile(pattern)) for title, _, pattern in (line.partition(" | ") for line in lines)]


def row_of(program: Program, difference: Difference) -> str | None:
    """The title of the deviation that may explain a difference, None where none does."""
    if difference.wrong in ("here", "both"):
        return None
    lines = [v.line() for v in needed(dataclasses.replace(program, results=[difference.name])).all_values()]
    return next((row.title for row in rows() if any(row.pattern.search(line) for line in lines)), None)
