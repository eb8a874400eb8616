"""What one attribute or type is read with: a cursor over its bytes that finds strings, attributes and types by their numbers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from .. import ir
from .cursor import Buffer, Cursor, malformed


def _decoded(text: bytes) -> str | bytes:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


class Strings:
    """The strings of a file, decoded when they are asked for."""

    def __init__(self, data: Buffer, places: list[tuple[int, int]]):
        self._data, self._places = data, places
        self._found: dict[int, str | bytes] = {}

    def value(self, index: int, offset: int) -> str | bytes:
        """A string; bytes where it is no UTF-8. `offset` is where the file asks for it."""
        found = self._found.get(index)
        if found is None:
            if index >= len(self._places):
                raise malformed("a string that is not listed", offset, index, f"less than {len(self._places)}")
            begin, end = self._places[index]
            self._found[index] = found = _decoded(bytes(self._data[begin:end]))
        return found

    def text(self, index: int, offset: int) -> str:
        """A string that has to be text, as names are."""
        found = self.value(index, offset)
        if isinstance(found, bytes):
            raise malformed("a name that is no UTF-8", offset, found[:40])
        return found


class Dialect(NamedTuple):
    name: str
    version: tuple[int, ...]


class Resource(NamedTuple):
    key: str
    kind: int
    begin: int
    end: int


class Source(Protocol):
    """Where a reader finds what its entry names by number."""

    strings: Strings
    resources: list[Resource]

    def nested(self, is_type: bool, index: int, reader: Reader) -> Any: ...


class Reader(Cursor):
    """A cursor over one entry. `weight` and `height` say how much the entry holds, itself included, and how deeply."""

    __slots__ = ("height", "source", "version", "weight")

    def __init__(self, data: Buffer, begin: int, end: int, source: Source, version: tuple[int, ...] = ()):
        super().__init__(data, begin, end)
        self.source, self.version = source, version
        self.weight, self.height = 1, 1

    def attribute(self) -> Any:
        return self.source.nested(False, self.varint(), self)

    def optional_attribute(self) -> Any:
        """An attribute that may be missing: its number and a flag."""
        index, present = self.flagged()
        return self.source.nested(False, index, self) if present else None

    def type(self) -> Any:
        return self.source.nested(True, self.varint(), self)

    def attributes(self) -> tuple[ir.Attribute, ...]:
        return tuple([self.attribute() for _ in range(self.count("attributes"))])

    def types(self) -> tuple[ir.Type, ...]:
        return tuple([self.type() for _ in range(self.count("types"))])

    def string(self) -> str | bytes:
        return self.source.strings.value(self.varint(), self.pos)

    def name(self) -> str:
        """An attribute that is a string that is text."""
        begin, found = self.pos, self.attribute()
        if not isinstance(found, str):
            raise malformed("a name that is no text", begin, type(found).__name__)
        return found

    def boolean(self) -> bool:
        return bool(self.byte())

    def sizes(self) -> tuple[int | None, ...]:
        """Sizes of a tensor, of which the unknown ones are the least integer."""
        return tuple([None if n == -1 << 63 else n for n in self.signed_list()])

    def resource(self) -> memoryview:
        """The bytes of a resource."""
        begin, index = self.pos, self.varint()
        if index >= len(self.source.resources):
            raise malformed("a resource that is not listed", begin, index, f"less than {len(self.source.resources)}")
        found = self.source.resources[index]
        if found.kind != 0 or found.begin == found.end:
            raise malformed("a resource without its data", begin, found.key)
        cursor = Cursor(self.data, found.begin, found.end)
        alignment, size = cursor.varint(), cursor.varint()
        cursor.align(alignment)
        return cursor.take(size)
