"""Nested lists of numbers in text, ``{ {1, 2}, {3, 4} }`` or ``[[1, 2], [3, 4]]``, to one flat array, a piece at a time.

A literal's text is many times larger than anything that is made of a piece of it, so that reading takes hardly more memory than
the array. Of each piece the brackets and commas are compared with those that the sizes ask for, and the rest is converted as one
comma-separated text. Nothing is looked at element by element: a piece that does not pass is left to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from ..memory import give_back

BLANKS = b" \t\r\n\f\v"
_BRACKETS = b"[]{}()"
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"," + _BRACKETS))
_KINDS = bytes(1 if c in b"[{(" else 255 if c in b"]})" else 100 if c == ord(",") else 0 for c in range(256))
"""What stands there: brackets, commas or parts of numbers. The next one less this is 1 only where a number stands in front of an
opening bracket or behind a closing one."""

_PIECE = 1 << 17
"""How much text is converted at once: little enough that what is made in between, many times the text, stays in the cache."""

CAREFUL = 1 << 12
"""How much is, where something in a piece is not clean."""

_WHOLE = 1 << 14
"""Up to which length the brackets of a list are kept as a text."""

Convert: TypeAlias = "Callable[[bytes], np.ndarray | None]"
"""Comma-separated values as an array, or None where one of them is malformed."""

Plain: TypeAlias = "Callable[[bytes], bytes | None]"
"""A piece of text without what is neither a number nor a bracket, or None where it is not clean."""


class Stretch:
    """A part of a text, from `start` to `end`; or bytes, whose pages are given back as they are read if they are a mapped file's.
    `text` may itself be a part that begins at `origin`."""

    def __init__(self, text: str | memoryview, start: int, end: int, origin: int = 0):
        self._text, self.start, self.end, self._origin = text, start, end, origin

    def __len__(self) -> int:
        return self.end - self.start

    def raw(self, start: int, end: int) -> bytes:
        """A byte for each character; "?" for those that are no ASCII."""
        part = self._text[start - self._origin:end - self._origin]
        if isinstance(part, str):
            return part.encode("ascii", "replace")
        copied = bytes(part)
        give_back(part)
        return copied

    def piece(self, start: int, size: int, pairs: bool = False) -> bytes:
        """About so much of the text, up to and with a comma (none within a pair in parentheses), or to the end."""
        while start + size < self.end:
            piece = self.raw(start, start + size)
            comma = piece.rfind(b",", 0, max(piece.rfind(b"("), 0) if pairs else size)
            if comma >= 0:
                return piece[:comma + 1]
            size *= 2
        return self.raw(start, self.end)

    def pieces(self, start: int) -> Iterator[bytes]:
        """The text from `start`."""
        while start < self.end:
            yield (piece := self.piece(start, _PIECE))
            start += len(piece)


class ListReader:
    """Reads a list of these sizes. Of complex numbers each is two of `dtype`, in parentheses."""

    def __init__(self, text: Stretch, sizes: tuple[int, ...], brackets: str, dtype: np.dtype, convert: Convert,
                 plain: Plain = bytes, pairs: bool = False):
        self._text, self._pairs, self._convert, self._plain = text, pairs, convert, plain
        self.sizes = (*sizes, 2) if pairs else sizes
        self.count = math.prod(self.sizes)
        self._brackets = Brackets(self.sizes, [brackets] * len(sizes) + ["()"] * pairs)
        self._at = self._careful_until = 0
        self.filled = 0
        fits = len(self._brackets) + self.count <= len(text)  # or memory would be taken for what the text cannot hold
        self._into = np.empty(self.count, dtype) if fits else None
        self._parts = [np.empty(0, dtype)]

    @property
    def values(self) -> np.ndarray:
        """The numbers, one after another, when all are read."""
        return self._into if self._into is not None else np.concatenate(self._parts)

    def read(self, start: int | None = None) -> int | None:
        """Read on from `start`. None when the list is read to its end; else the place of the piece that is not clean, with
        `filled` numbers in front of it."""
        at = self._text.start if start is None else start
        while at < self._text.end:
            careful = at < self._careful_until
            piece = self._text.piece(at, CAREFUL if careful else _PIECE, self._pairs)
            if self._take(piece):
                at += len(piece)
            elif careful:
                return at
            else:
                self._careful_until = at + len(piece)
        return None if self._at == len(self._brackets) else at

    def put(self, numbers: np.ndarray) -> None:
        """The next numbers, read in another way, up to one behind which a comma stands or to the last."""
        self._keep(numbers)
        self._at = self._brackets.before(self.filled)

    def _keep(self, numbers: np.ndarray) -> None:
        if self._into is not None:
            self._into[self.filled:self.filled + len(numbers)] = numbers
        else:
            self._parts.append(numbers)
        self.filled += len(numbers)

    def _take(self, given: bytes) -> bool:
        piece = self._plain(given)
        if piece is None:
            return False
        structure = piece.translate(None, _NOT_STRUCTURE)
        at = self._at + len(structure)
        if structure != self._brackets.part(self._at, at) or not (piece.endswith(b",") or at == len(self._brackets)):
            return False
        kinds = np.frombuffer(piece.translate(_KINDS, BLANKS), np.uint8)
        if (kinds[1:] - kinds[:-1] == 1).any():  # a number on the wrong side of a bracket
            return False
        values = piece.translate(None, _BRACKETS)
        if not self.count:
            self._at = at
            return not values.strip(BLANKS + b",")
        numbers = self._convert(values[:-1] if values.endswith(b",") else values)
        if numbers is None or self.filled + len(numbers) > self.count:
            return False
        self._keep(numbers)
        self._at = at
        return True


class Brackets:
    """The brackets and commas of a list of these sizes, of which any part can be had without the rest. `marks` are the opening
    and the closing bracket of each level."""

    def __init__(self, sizes: tuple[int, ...], marks: list[str]):
        self._sizes, self._marks = sizes, [mark.encode() for mark in marks]
        self._lengths, self._whole = [0], [b""]
        for size, mark in zip(reversed(sizes), reversed(self._marks), strict=True):
            length = 2 + size * self._lengths[0] + max(size - 1, 0)
            item = self._whole[0] + b","
            whole = mark[:1] + (item * size)[:-1] + mark[1:] if length <= _WHOLE else b""
            self._lengths.insert(0, length)
            self._whole.insert(0, whole)
        self._inner = [math.prod(sizes[depth:]) for depth in range(len(sizes))]

    def __len__(self) -> int:
        return self._lengths[0]

    def before(self, number: int) -> int:
        """How many come before a number other than the first, up to the comma and with it; all of them for one behind the
        last."""
        if number == self._inner[0]:
            return len(self)
        closed = sum(number // inner for inner in self._inner)
        opened = sum((number - 1) // inner + 1 for inner in self._inner)
        return number + closed + opened

    def part(self, start: int, stop: int, depth: int = 0) -> bytes:
        """Those from `start` to `stop`."""
        if self._lengths[depth] <= _WHOLE:
            return self._whole[depth][start:stop]
        size, step, mark = self._sizes[depth], self._lengths[depth + 1] + 1, self._marks[depth]
        stop = min(stop, self._lengths[depth])
        if start >= stop:
            return b""
        first, last = max(start - 1, 0) // step, min((stop - 2) // step, size - 1)
        if step > _WHOLE + 1:
            items = [self.part(max(start - at, 0), max(stop - at, 0), depth + 1) + b","[:start < at + step <= stop]
                     for at in range(1 + first * step, 2 + last * step, step)]
            middle = b"".join(items)
            if last == size - 1 and stop == self._lengths[depth]:
                middle = middle[:-1]
            return mark[:1] * (start == 0) + middle + mark[1:] * (stop == self._lengths[depth])
        text = (self._whole[depth + 1] + b",") * (last - first + 1)
        text = text[:-1] + mark[1:] if last == size - 1 else text
        base = 1 + first * step if first else 0
        return (text if first else mark[:1] + text)[start - base:stop - base]
