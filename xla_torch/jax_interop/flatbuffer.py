"""Flatbuffers, as far as reading needs them: tables of fields, strings and vectors in one piece of memory.

A table begins with where its description lies, which has for each field how far behind the table's begin it stands, or 0 where
it is missing. What a field refers to lies behind it. Format: flatbuffers.dev/internals. Whatever points out of the data is an
error that names the byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..core.errors import HloSyntaxError
from ..mlir.bytecode.cursor import MAGIC

_TABLES_LIMIT = 1 << 20


def malformed(what: str, offset: int, got: object = "", expected: object = "") -> HloSyntaxError:
    """The error for data that are no flatbuffer, or not the expected one."""
    return HloSyntaxError(what, subject="jax.export file", got=got, expected=expected, where=f"byte {offset}")


class Data:
    """The memory that tables lie in. It counts the tables that were read: where they share parts, a small file may seem huge."""

    def __init__(self, data: bytes | bytearray | memoryview):
        self.view = memoryview(data).cast("B")
        self._left = min(len(self.view), _TABLES_LIMIT)

    def number(self, form: str, at: int) -> int:
        """An integer in a form of `struct` (little-endian)."""
        try:
            return struct.unpack_from("<" + form, self.view, at)[0]
        except struct.error:
            raise malformed("the data end in the middle of an entry", at, f"{len(self.view)} bytes") from None

    def follow(self, at: int) -> int:
        """Where the reference at a place leads, which is always forward."""
        return at + self.number("I", at)

    def root(self) -> Table:
        return Table(self, self.follow(0))

    def count_table(self, at: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise malformed("tables that share their parts too often", at)


class Table:
    """A table. Fields are asked for by number; what is missing is 0, "", empty, or None."""

    __slots__ = ("_data", "_fields", "_size", "at")

    def __init__(self, data: Data, at: int):
        data.count_table(at)
        self._data, self.at = data, at
        fields = at - data.number("i", at)
        if not 0 <= fields < len(data.view):
            raise malformed("a table without a description", at, fields)
        self._fields, self._size = fields, data.number("H", fields)

    def _place(self, field: int) -> int:
        """Where a field stands; 0 where it is missing."""
        entry = 4 + 2 * field
        offset = self._data.number("H", self._fields + entry) if entry + 2 <= self._size else 0
        return self.at + offset if offset else 0

    def number(self, field: int, form: str, default: int = 0) -> int:
        place = self._place(field)
        return self._data.number(form, place) if place else default

    def blob(self, field: int) -> memoryview | None:
        """A vector of bytes, or a string, as a view."""
        place = self._place(field)
        return self._bytes(self._data.follow(place)) if place else None

    def text(self, field: int) -> str | None:
        place = self._place(field)
        return self._text(self._data.follow(place)) if place else None

    def table(self, field: int) -> Table | None:
        place = self._place(field)
        return Table(self._data, self._data.follow(place)) if place else None

    def numbers(self, field: int, form: str) -> tuple[int, ...]:
        """A vector of integers."""
        size = struct.calcsize(form)
        return tuple([self._data.number(form, at) for at in self._elements(field, size)])

    def texts(self, field: int) -> tuple[str, ...]:
        return tuple([self._text(self._data.follow(at)) for at in self._elements(field, 4)])

    def tables(self, field: int) -> list[Table]:
        return [Table(self._data, self._data.follow(at)) for at in self._elements(field, 4)]

    def _elements(self, field: int, size: int) -> Iterator[int]:
        """Where the elements of a vector stand."""
        place = self._place(field)
        if not place:
            return iter(())
        at = self._data.follow(place)
        count = self._data.number("I", at)
        if at + 4 + count * size > len(self._data.view):
            raise malformed("a vector that ends behind the data", at, f"{count} elements of {size} bytes")
        return iter(range(at + 4, at + 4 + count * size, size))

    def _bytes(self, at: int) -> memoryview:
        count = self._data.number("I", at)
        if at + 4 + count > len(self._data.view):
            raise malformed("a vector that ends behind the data", at, f"{count} bytes")
        return self._data.view[at + 4:at + 4 + count]

    def _text(self, at: int) -> str:
        raw = bytes(self._bytes(at))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise malformed("a text that is no UTF-8", at, raw[:40]) from None


def is_exported(data: bytes | bytearray | memoryview) -> bool:
    """Whether these are the bytes of a `jax.export` file: a flatbuffer whose program begins as MLIR bytecode does."""
    try:
        module = Data(data).root().blob(13)
    except HloSyntaxError:
        return False
    return module is not None and bytes(module[:len(MAGIC)]) == MAGIC
