"""A text without its large literals, which are read from the bytes of the file.

Text of a program is decoded before it is parsed, and of a program with large constants nearly all of it is digits. So those are
cut out first: the parser sees a short text, with an empty literal in place of each large one, and asks for what was there where
it reads one: for the text of a list, and for the bytes that hexadecimal digits spell, which are decoded as their end is looked
for. What is cut out need not be a literal (it may stand in a string), and its text need not be right: whoever reads a short
text reads the whole one instead where a cut was not asked for or anything was wrong, so that errors show the text as it is.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from typing import NamedTuple

import numpy as np

from .hex_text import unhexed
from .memory import give_back

LARGE = 1 << 16
"""From how much text a literal is cut out. The patterns of literals' beginnings look so far."""

_FILE = 1 << 20
"""From how much text large literals are looked for."""

_FIRST, _MOST = 1 << 18, 1 << 20
"""How many bytes are searched at once for the end of a literal: at first, and at most."""

_CLOSING = {ord("{"): (b")", b"}"), ord("["): (b">", b"]")}
"""By the first byte of a list what comes behind it, and what its last byte is."""


class _Literal(NamedTuple):
    """A literal in the text: where it ends, what it holds, what stands in its place, how many lines end in it, and how many
    characters come behind the last of these."""

    end: int
    body: memoryview
    shown: str = ""
    lines: int = 0
    tail: int = 0


@dataclasses.dataclass(slots=True)
class _Cut:
    literal: _Literal
    position: int
    length: int
    taken: bool = False


class CutText:
    """The short text, and what was cut out of it."""

    def __init__(self, text: str, cuts: list[_Cut]):
        self.text, self._cuts = text, cuts
        self._positions = [cut.position for cut in cuts]
        self._lines = [0, *itertools.accumulate(cut.literal.lines for cut in cuts)]
        self._by_position = dict(zip(self._positions, cuts, strict=True))

    def take(self, position: int) -> memoryview | None:
        """What was cut out at a position of the short text, the text of a list or bytes that were hexadecimal digits; None where
        nothing was."""
        cut = self._by_position.get(position)
        if cut is None:
            return None
        cut.taken = True
        return cut.literal.body

    @property
    def all_taken(self) -> bool:
        """Whether all that was cut out was asked for."""
        return all(cut.taken for cut in self._cuts)

    def place(self, position: int, line: int, column: int) -> tuple[int, int]:
        """The line and the column in the whole text of a position in the short one, given those in the short one."""
        before = bisect.bisect_left(self._positions, position)
        line_start, added = position - column + 1, 0
        for cut in reversed(self._cuts[:before]):
            if cut.position < line_start:
                break
            if cut.literal.lines:
                column = position - (cut.position + len(cut.literal.shown)) + cut.literal.tail + 1
                break
            added += cut.length - len(cut.literal.shown)
        return line + self._lines[before], column + added


def cut_text(data: memoryview, begins: re.Pattern[bytes]) -> CutText | None:
    """A text in UTF-8 without its large literals; None where it has none, and where it is not UTF-8.

    `begins` matches what stands in front of a large literal. That begins behind the match: a list in brackets, or hexadecimal
    digits up to a quote.
    """
    if len(data) < _FILE:
        return None
    parts: list[str] = []
    cuts: list[_Cut] = []
    done = searched = length = 0
    while match := begins.search(data, searched):
        start = match.end()
        found = _listed(data, start, *closing) if (closing := _CLOSING.get(data[start])) else _hexadecimal(data, start)
        if found is None:  # it has no end, so that nothing behind it can be told
            break
        searched = found.end
        if closing and data[searched - 1:searched].tobytes() != closing[1]:  # no list after all
            continue
        if not _append(parts, data[done:start]):
            return None
        length += len(parts[-1])
        cuts.append(_Cut(found, length, found.end - start))
        parts.append(found.shown)
        length += len(found.shown)
        done = searched
    if not cuts or not _append(parts, data[done:]):
        return None
    return CutText("".join(parts), cuts)


def _append(parts: list[str], data: memoryview) -> bool:
    try:
        parts.append(str(data, "utf-8"))
    except UnicodeDecodeError:
        return False
    give_back(data)
    return True


def _hexadecimal(data: memoryview, start: int) -> _Literal | None:
    found = unhexed(data, start, len(data))
    return None if found is None or found[1] == len(data) else _Literal(found[1], found[0].data)


def _listed(data: memoryview, start: int, behind: bytes, last: bytes) -> _Literal | None:
    at, size, depth, lines, line_start = start, _FIRST, 0, 0, start
    while at < len(data):
        part = data[at:at + size]
        chunk = bytes(part)
        give_back(part)
        place, depth = _closing(chunk, depth) if behind == b")" else (chunk.find(behind), 0)
        if place >= 0:
            chunk = chunk[:place].rstrip()
        if b"\n" in chunk:
            lines += chunk.count(b"\n")
            line_start = at + chunk.rfind(b"\n") + 1
        if place >= 0:
            end = at + len(chunk)
            return _Literal(end, data[start:end], chr(data[start]) + last.decode(), lines, end - line_start)
        at, size = at + len(chunk), min(2 * size, _MOST)
    return None


def _closing(chunk: bytes, depth: int) -> tuple[int, int]:
    """Where the parenthesis closes that is open in front of `depth` others; else -1, and how many others are open at the end."""
    close, opening = chunk.find(b")"), chunk.find(b"(")
    if not depth and (opening < 0 or 0 <= close < opening):
        return close, 0
    letters = np.frombuffer(chunk, np.uint8)
    depths = depth + np.cumsum((letters == ord("(")).astype(np.int8) - (letters == ord(")")).astype(np.int8), dtype=np.int32)
    closed = np.flatnonzero(depths < 0)
    return (int(closed[0]), 0) if closed.size else (-1, int(depths[-1]))
