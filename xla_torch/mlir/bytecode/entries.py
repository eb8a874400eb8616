"""The attributes and types of a file: each is read once, when first asked for, by the dialect that wrote it.

They name each other by number, in any order. So reading recurses, but only so far (`_OPEN`): what lies deeper, as long chains of
locations do, is read first from a list. Entries that hold themselves, and such as would unfold to very much, are errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.errors import UnsupportedError
from .. import ir
from .builtin import builtin_attribute, builtin_type
from .cursor import Buffer, malformed
from .dialects import DECODERS
from .reader import Dialect, Reader, Resource, Strings
from .sdy import sdy_attribute, sdy_type
from .text import attribute_of_text, type_of_text
from .vhlo import vhlo_attribute, vhlo_type

_OPEN = 40
"""How many entries are read within each other before those that lie deeper are read first."""

_HEIGHT = 64
"""How deep attributes and types may lie in each other, as in text."""

_WEIGHT = 1 << 24
"""How many attributes and types one may hold, each counted as often as it is named."""

_UNREAD = object()
_READERS = {"builtin": (builtin_attribute, builtin_type), "vhlo": (vhlo_attribute, vhlo_type), "sdy": (sdy_attribute, sdy_type),
            **DECODERS}

Key = tuple[bool, int]
"""Whether an entry is a type, and its number."""


class Entry(NamedTuple):
    """Where an attribute or type lies; `encoded` if the dialect wrote it in its own way, otherwise it is text."""

    dialect: Dialect
    begin: int
    end: int
    encoded: bool


class _TooDeep(Exception):
    """Entries that have to be read before the first one."""

    def __init__(self, keys: list[Key]):
        super().__init__()
        self.keys = keys


class Entries:
    """The attributes and types of a file by their numbers."""

    def __init__(self, data: Buffer, strings: Strings, entries: tuple[list[Entry], list[Entry]], resources: list[Resource]):
        self.data, self.strings, self.resources = data, strings, resources
        self._entries = entries
        self._found: tuple[list[Any], list[Any]] = ([_UNREAD] * len(entries[0]), [_UNREAD] * len(entries[1]))
        self._open: dict[Key, None] = {}
        self._holds: dict[Key, tuple[int, int]] = {}

    def attribute(self, index: int, offset: int) -> Any:
        """An attribute; of a location an `ir.Location`, None where it is unknown. `offset` is where the file asks for it."""
        found = self._found[0]
        if index < len(found) and found[index] is not _UNREAD:
            return found[index]
        return self._read_first((False, index), offset)

    def type(self, index: int, offset: int) -> ir.Type:
        found = self._found[1]
        if index < len(found) and found[index] is not _UNREAD:
            return found[index]
        return self._read_first((True, index), offset)

    def _read_first(self, key: Key, offset: int) -> Any:
        waiting = [key]
        while waiting:
            try:
                found = self._read(waiting[-1], offset)
            except _TooDeep as deep:
                if not set(waiting).isdisjoint(deep.keys):
                    raise malformed("attributes that hold themselves", offset) from None
                waiting += deep.keys
            else:
                waiting.pop()
        return found

    def nested(self, is_type: bool, index: int, reader: Reader) -> Any:
        """What the entry that is being read names."""
        found = self._read((is_type, index), reader.pos)
        weight, height = self._holds.get((is_type, index), (1, 1))
        reader.weight += weight
        reader.height = max(reader.height, height + 1)
        return found

    def _read(self, key: Key, offset: int) -> Any:
        is_type, index = key
        found = self._found[is_type]
        if index >= len(found):
            what = "a type" if is_type else "an attribute"
            raise malformed(f"{what} that is not listed", offset, index, f"less than {len(found)}")
        if found[index] is not _UNREAD:
            return found[index]
        if key in self._open:
            raise malformed("attributes that hold themselves", offset, index)
        if len(self._open) >= _OPEN:
            raise _TooDeep([*list(self._open)[1:], key])
        self._open[key] = None
        try:
            found[index] = value = self._decode(key)
        finally:
            del self._open[key]
        return value

    def _decode(self, key: Key) -> Any:
        is_type, index = key
        entry = self._entries[is_type][index]
        if not entry.encoded:
            return self._text(entry, is_type)
        decoders = _READERS.get(entry.dialect.name)
        if decoders is None:
            raise UnsupportedError("unknown dialect encoding", subject="MLIR bytecode", got=entry.dialect.name,
                                   where=f"byte {entry.begin}")
        reader = Reader(self.data, entry.begin, entry.end, self, entry.dialect.version)
        value = decoders[is_type](reader)
        if not reader.is_empty:
            raise malformed("an attribute or type that does not fill its entry", reader.pos, entry.dialect.name)
        if reader.weight > 1 and not isinstance(value, ir.Location):
            if reader.weight > _WEIGHT or reader.height > _HEIGHT:
                raise malformed("attributes that hold too much, or too deeply", entry.begin, f"{reader.height} deep")
            self._holds[key] = reader.weight, reader.height
        return value

    def _text(self, entry: Entry, is_type: bool) -> Any:
        raw = bytes(self.data[entry.begin:entry.end])
        try:
            text = raw.removesuffix(b"\0").decode()
        except UnicodeDecodeError:
            raise malformed("an attribute's text is no UTF-8", entry.begin, raw[:40]) from None
        return type_of_text(text, entry.begin) if is_type else attribute_of_text(text, entry.begin)
