"""MLIR bytecode to operations, all versions (0 to 6): StableHLO's and VHLO's, so portable artifacts too.

`parse` reads the tables (strings, names of dialects and operations, where attributes and types lie) at once. Attributes and types
are read when the first operation asks for them (`bytecode_entries.py`), operations in one walk over the last section
(`bytecode_operations.py`). Constants and resources are views of the data.

Encoding: mlir.llvm.org/docs/BytecodeFormat, and what each dialect writes (`bytecode_builtin.py`, `bytecode_dialects.py`,
`bytecode_vhlo.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from .. import ir
from .cursor import MAGIC, Buffer, Cursor, Section, malformed
from .entries import Dialect, Entries, Entry, Resource, Strings
from .operations import OperationName, read_operations

NEWEST = 6
"""The newest version of the encoding: 1 has versions of dialects, 2 lazy regions, 3 orders of uses, 4 block arguments without
locations, 5 properties, 6 sizes of operand segments outside of attributes."""

_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, _OPERATIONS, _RESOURCES, _RESOURCE_OFFSETS, _VERSIONS, _PROPERTIES = range(9)
_NAMES = ("strings", "dialects", "attributes and types", "their offsets", "operations", "resources", "their offsets",
          "dialect versions", "properties")
_NEEDED = (_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, _OPERATIONS)


class Header(NamedTuple):
    """What stands in front of the sections. `producer` is ``StableHLO_v1.0.0`` for a portable artifact."""

    version: int
    producer: str
    end: int


def header(data: Buffer) -> Header:
    """The header of MLIR bytecode. Raises HloSyntaxError where there is none, or a version from the future."""
    if bytes(data[:4]) != MAGIC:
        raise malformed("these are no MLIR bytecode", 0, bytes(data[:4]), MAGIC)
    cursor = Cursor(data, 4, len(data))
    version = cursor.varint()
    if version > NEWEST:
        raise malformed("a version of the encoding that is not known", 4, version, f"at most {NEWEST}")
    producer = bytes(data[cursor.pos:cursor.pos + 256]).partition(b"\0")[0]
    cursor.take(len(producer))
    if cursor.byte():
        raise malformed("the producer's name does not end", cursor.pos)
    return Header(version, producer.decode(errors="replace"), cursor.pos)


def parse(data: Buffer) -> ir.Operation:
    """The ``builtin.module`` that MLIR bytecode (or a portable artifact of StableHLO) holds.

    Constants are views of `data`, which may be a mapped file. Raises HloSyntaxError with the byte for what is no bytecode,
    UnsupportedError for dialects and operations whose encoding is not known.
    """
    if isinstance(data, memoryview) and (data.format != "B" or data.ndim != 1):
        data = data.cast("B")
    head = header(data)
    sections = _sections(Cursor(data, head.end, len(data)))
    strings = _strings(data, sections[_STRINGS])
    dialects, names = _dialects(Cursor(data, *sections[_DIALECTS][1:]), strings, head.version)
    entries = Entries(data, strings, _entries(data, sections, dialects), _resources(data, sections, strings, dialects))
    properties = _properties(data, sections.get(_PROPERTIES))
    where = sections[_OPERATIONS]
    return read_operations(Cursor(data, where.begin, where.end), head.version, names, entries, properties)


def _sections(cursor: Cursor) -> dict[int, Section]:
    found: dict[int, Section] = {}
    while not cursor.is_empty:
        begin, section = cursor.pos, cursor.section()
        if section.number >= len(_NAMES) or section.number in found:
            raise malformed("a section that is not known or stands twice", begin, section.number)
        found[section.number] = section
    missing = [_NAMES[number] for number in _NEEDED if number not in found]
    if missing:
        raise malformed("sections are missing", cursor.pos, expected=", ".join(missing))
    return found


def _strings(data: Buffer, section: Section) -> Strings:
    cursor = Cursor(data, section.begin, section.end)
    sizes = [cursor.varint() for _ in range(cursor.count("strings"))]
    places, end = [], section.end
    for size in sizes:  # the last string's size stands first
        begin = end - size
        if size < 1 or begin < cursor.pos:
            raise malformed("a string that begins outside of its section", cursor.pos, f"{size} bytes")
        places.append((begin, end - 1))
        end = begin
    return Strings(data, places[::-1])


def _dialects(cursor: Cursor, strings: Strings, version: int) -> tuple[list[Dialect], list[OperationName]]:
    dialects, names = [], []
    for _ in range(cursor.count("dialects")):
        index, versioned = (cursor.varint(), False) if version < 1 else cursor.flagged()
        made = cursor.section() if versioned else None
        dialects.append(Dialect(strings.text(index, cursor.pos), _version(cursor.data, made)))
    if version >= 4 and not cursor.is_empty:
        cursor.count("names of operations")
    while not cursor.is_empty:
        dialect = _dialect(cursor, dialects)
        for _ in range(cursor.count("names of operations")):
            index, registered = (cursor.varint(), True) if version < 5 else cursor.flagged()
            text = strings.text(index, cursor.pos)
            names.append(OperationName(f"{dialect.name}.{text}" if dialect.name else text, registered))
    return dialects, names


def _version(data: Buffer, section: Section | None) -> tuple[int, ...]:
    if section is None:
        return ()
    if section.number != _VERSIONS:
        raise malformed("a section of versions is missing", section.begin, section.number)
    cursor, numbers = Cursor(data, section.begin, section.end), []
    while not cursor.is_empty:
        numbers.append(cursor.varint())
    return tuple(numbers)


def _dialect(cursor: Cursor, dialects: list[Dialect]) -> Dialect:
    begin, index = cursor.pos, cursor.varint()
    if index >= len(dialects):
        raise malformed("a dialect that is not listed", begin, index, f"less than {len(dialects)}")
    return dialects[index]


def _entries(data: Buffer, sections: dict[int, Section], dialects: list[Dialect]) -> tuple[list[Entry], list[Entry]]:
    cursor, place = Cursor(data, *sections[_OFFSETS][1:]), sections[_ENTRIES]
    numbers = cursor.count("attributes"), cursor.count("types")
    begin, lists = place.begin, ([], [])
    for number, entries in zip(numbers, lists, strict=True):
        while len(entries) < number:
            dialect = _dialect(cursor, dialects)
            for _ in range(cursor.count("entries")):
                size, encoded = cursor.flagged()
                if size > place.end - begin or len(entries) == number:
                    raise malformed("an entry outside of its section", cursor.pos, f"{size} bytes at {begin}")
                entries.append(Entry(dialect, begin, begin + size, encoded))
                begin += size
    return lists


def _resources(data: Buffer, sections: dict[int, Section], strings: Strings, dialects: list[Dialect]) -> list[Resource]:
    """The resources of dialects, in the order in which attributes count them."""
    if _RESOURCE_OFFSETS not in sections or _RESOURCES not in sections:
        return []
    cursor, place = Cursor(data, *sections[_RESOURCE_OFFSETS][1:]), sections[_RESOURCES]
    begin, found = place.begin, []

    def group() -> list[Resource]:
        nonlocal begin
        made = []
        for _ in range(cursor.count("resources")):
            key, size = strings.text(cursor.varint(), cursor.pos), cursor.varint()
            if size > place.end - begin:
                raise malformed("a resource outside of its section", cursor.pos, f"{size} bytes at {begin}")
            made.append(Resource(key, cursor.byte(), begin, begin + size))
            begin += size
        return made

    for _ in range(cursor.count("groups of resources")):  # those of tools, which no attribute names
        cursor.varint()
        group()
    while not cursor.is_empty:
        _dialect(cursor, dialects)
        found += group()
    return found


def _properties(data: Buffer, section: Section | None) -> list[Section]:
    """Where the properties of operations lie."""
    if section is None:
        return []
    cursor, found = Cursor(data, section.begin, section.end), []
    for _ in range(cursor.count("properties")):
        size = cursor.varint()
        begin = cursor.pos
        cursor.take(size)
        found.append(Section(_PROPERTIES, begin, begin + size))
    return found
