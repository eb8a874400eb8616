"""The properties of operations: since version 5 of the encoding an operation's own attributes lie apart, and have no names.

An operation writes a number for each, and for those that may be missing a flag beside it (`bytecode_property_table.py` says which
there are). Sizes of groups of operands follow; before version 6 they stood among the others, as attributes.
"""

from __future__ import annotations

from ...core.errors import HloSyntaxError, UnsupportedError
from .. import ir
from .cursor import Cursor, malformed
from .entries import Entries
from .property_table import LAYOUTS, Layout
from .reader import Reader


def read_properties(name: str, cursor: Cursor, entries: Entries, version: int) -> dict[str, ir.Attribute]:
    """The properties of an operation from their bytes."""
    layouts, begin = LAYOUTS.get(name), cursor.pos
    if cursor.is_empty:
        return {}
    if layouts is None:
        raise UnsupportedError("unknown operation properties", subject=name, where=f"byte {begin}",
                               hint="write it with an older version of StableHLO or of the other dialect")
    for number, layout in enumerate(layouts):
        reader = Reader(cursor.data, begin, cursor.end, entries)
        try:
            found = _read(layout, reader, version)
            if reader.is_empty:
                return found
        except HloSyntaxError:
            if number == len(layouts) - 1:
                raise
    raise malformed("properties that are not those of the operation", begin, f"{cursor.end - begin} bytes", name)


def _read(layout: Layout, reader: Reader, version: int) -> dict[str, ir.Attribute]:
    found: dict[str, ir.Attribute] = {}
    groups = [int(field[1:]) for field in layout if field.startswith("*")]
    kinds = ("operandSegmentSizes", "resultSegmentSizes")[:len(groups)]
    fields = layout[:len(layout) - len(groups)]
    if version < 6:
        fields = sorted((*fields, *kinds))
    for field in fields:
        value = reader.optional_attribute() if field.endswith("?") else reader.attribute()
        if value is not None:
            found[field.rstrip("?")] = value
    if version >= 6:
        found |= {kind: _sparse(reader, number) for kind, number in zip(kinds, groups, strict=True)}
    return found


def _sparse(reader: Reader, length: int) -> tuple[int, ...]:
    """A short list of numbers, most of which may be zero."""
    begin, found = reader.pos, [0] * length
    number, is_sparse = reader.flagged()
    if number > length:
        raise malformed("more numbers than there are groups", begin, number, length)
    bits = reader.varint() if is_sparse and number else 0
    for place in range(number):
        value = reader.varint()
        if is_sparse:
            place, value = value & (1 << min(bits, 8)) - 1, value >> min(bits, 8)
        if place >= length:
            raise malformed("a group that does not exist", begin, place, f"less than {length}")
        found[place] = value
    return tuple(found)
