"""Deviations of XLA's CPU compiler that drawn programs run into: `deviations.txt`.

A line is ``title | pattern``: the title of a row of `tests/documents/values.txt`, which says what XLA does and why, with programs
that a test holds against real XLA; and a regular expression for an instruction in which the deviation shows, written as
``opcode(opcode of operand 0, ...)``. A difference counts as known where its result is computed of such an instruction, and where
judging does not say that the wrong side is here.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xla_torch
from fuzz.judging import Difference
from fuzz.programs import Program, needed

PATH = Path(__file__).with_name("deviations.txt")


class Row(NamedTuple):
    """A deviation's title, and the instructions in which it shows."""

    title: str
    pattern: re.Pattern[str]

    def shows_in(self, text: str) -> bool:
        """Whether a module has such an instruction."""
        return any(self.pattern.search(line) for line in written(text))


@functools.cache
def rows() -> list[Row]:
    lines = [line for line in PATH.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [Row(title, re.compile(pattern)) for title, _, pattern in (line.partition(" | ") for line in lines)]


def row_of(program: Program, difference: Difference) -> str | None:
    """The title of the deviation that may explain a difference, None where none does."""
    if difference.wrong in ("here", "both"):
        return None
    text = needed(dataclasses.replace(program, results=[difference.name])).text()
    return next((row.title for row in rows() if row.shows_in(text)), None)


def written(text: str) -> Iterator[str]:
    """The instructions of a module, as patterns are about them."""
    for computation in xla_torch.parse_hlo(text).module.computations:
        for inst in computation.instructions:
            yield f"{inst.opcode}({', '.join(o.opcode for o in inst.operands)})"
