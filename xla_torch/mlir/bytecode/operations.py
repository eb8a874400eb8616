"""The operations of a file, in one walk without recursion.

Values are counted within an isolated operation (a function): those of a region stand behind all that the regions around it have,
so numbers are free again when a region ends. StableHLO has no control flow between blocks, so operands are defined before.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ...core.errors import UnsupportedError
from .. import ir
from ..vhlo import legalize
from .cursor import Cursor, Section, malformed
from .entries import Entries
from .properties import read_properties

ATTRIBUTES, RESULTS, OPERANDS, _SUCCESSORS, REGIONS, _USE_LISTS, _PROPERTIES = (1 << k for k in range(7))
_CAST = "builtin.unrealized_conversion_cast"
"""What stands between VHLO and other dialects in artifacts that hold both: VHLO's types are read as what they are elsewhere."""

_NESTING = 512
"""How deep regions may lie in each other."""


class OperationName(NamedTuple):
    """The name of an operation, and whether the writer knew its dialect."""

    text: str
    registered: bool


_Meaning: TypeAlias = tuple[str, dict[str, ir.Attribute], UnsupportedError | None]
"""An operation's name and attributes, and why it is refused where they are not known."""


class _Scope:
    """The values of an isolated operation by their numbers. `next` has for each open region the number of its next value, `end`
    how many there are with it."""

    __slots__ = ("end", "next", "values")

    def __init__(self) -> None:
        self.values: dict[int, ir.Value] = {}
        self.next: list[int] = []
        self.end = 0

    def open(self, count: int) -> None:
        """Begin a region that has `count` values."""
        self.next.append(self.end)
        self.end += count

    def define(self, values: list[ir.Value], offset: int) -> None:
        number = self.next[-1]
        self.next[-1] = stop = number + len(values)
        if stop > self.end:
            raise malformed("more values than their region has", offset)
        for value in values:
            self.values[number] = value
            number += 1

    def rename(self, values: list[ir.Value]) -> None:
        """Other values instead of those that were defined last."""
        first = self.next[-1] - len(values)
        for number, value in enumerate(values, first):
            self.values[number] = value

    def close(self, count: int) -> None:
        self.end -= count
        for number in range(self.end, self.next.pop()):
            del self.values[number]


class _Frame:
    """An operation whose regions are being read."""

    __slots__ = ("block", "blocks", "cursor", "left", "operation", "region", "scope", "values")

    def __init__(self, operation: ir.Operation, cursor: Cursor, scope: _Scope):
        self.operation, self.cursor, self.scope = operation, cursor, scope
        self.region, self.block, self.left, self.values = -1, -1, 0, 0
        self.blocks: list[ir.Block] = []


def read_operations(cursor: Cursor, version: int, names: list[OperationName], entries: Entries,
                    properties: list[Section]) -> ir.Operation:
    """The one operation that a file holds."""
    found = _Walk(version, names, entries, properties).run(cursor)
    if len(found) != 1 or found[0].name != "builtin.module":
        raise malformed("the file holds no single module", cursor.pos, ", ".join(o.name for o in found[:4]))
    return found[0]


class _Walk:
    def __init__(self, version: int, names: list[OperationName], entries: Entries, properties: list[Section]):
        self._version, self._names, self._entries, self._sections = version, names, entries, properties
        self._made: dict[tuple[str, int, int], _Meaning] = {}
        self._properties: dict[tuple[str, int], dict[str, ir.Attribute]] = {}

    def run(self, cursor: Cursor) -> list[ir.Operation]:
        root = ir.Operation("", [], regions=[ir.Region([ir.Block()])])
        scope = _Scope()
        scope.open(0)
        top = _Frame(root, cursor, scope)
        top.region, top.block, top.blocks = 0, 0, root.regions[0].blocks
        top.left = self._block_header(cursor, scope, top.blocks[0])
        stack = [top]
        while stack:
            frame = stack[-1]
            nested = self._advance(frame)
            if nested is None:
                stack.pop()
            else:
                stack.append(nested)
                if len(stack) > _NESTING:
                    raise malformed("regions that lie too deep in each other", cursor.pos, expected=f"at most {_NESTING}")
        return root.regions[0].blocks[0].operations

    def _advance(self, frame: _Frame) -> _Frame | None:
        """Read on until an operation with regions, for which it gives a frame; None at the end."""
        while True:
            operations = frame.blocks[frame.block].operations if frame.blocks else []
            while frame.left:
                frame.left -= 1
                operation, isolated = self._operation(frame)
                if operation.name == _CAST and [v.type for v in operation.operands] == [v.type for v in operation.results]:
                    frame.scope.rename(operation.operands)
                    continue
                operations.append(operation)
                if operation.regions:
                    return self._enter(operation, frame, isolated)
            if not self._next_block(frame):
                return None

    def _enter(self, operation: ir.Operation, frame: _Frame, isolated: bool) -> _Frame:
        cursor, scope = frame.cursor, _Scope() if isolated else frame.scope
        if isolated and self._version >= 2:
            section = cursor.section()
            if section.number != 4:
                raise malformed("a section of operations is missing", section.begin, section.number)
            cursor = Cursor(cursor.data, section.begin, section.end)
        return _Frame(operation, cursor, scope)

    def _next_block(self, frame: _Frame) -> bool:
        """Go to the next block of operations, in this region or one that follows; False when there is none."""
        cursor, scope = frame.cursor, frame.scope
        if frame.blocks and frame.block + 1 < len(frame.blocks):
            frame.block += 1
            frame.left = self._block_header(cursor, scope, frame.blocks[frame.block])
            return True
        if frame.blocks:
            scope.close(frame.values)
        frame.region += 1
        if frame.region >= len(frame.operation.regions):
            frame.blocks = []
            return False
        region = frame.operation.regions[frame.region]
        number = cursor.count("blocks")
        frame.blocks = region.blocks = [ir.Block() for _ in range(number)]
        frame.block, frame.left = 0, 0
        if number:
            frame.values = cursor.varint()
            scope.open(frame.values)
            frame.left = self._block_header(cursor, scope, frame.blocks[0])
        return True

    def _block_header(self, cursor: Cursor, scope: _Scope, block: ir.Block) -> int:
        """Read a block's arguments. Gives the number of its operations."""
        operations, has_arguments = cursor.flagged()
        if not has_arguments:
            return operations
        number, types, locations = cursor.count("arguments"), [], []
        for _ in range(number):
            offset = cursor.pos
            index, located = cursor.flagged() if self._version >= 4 else (cursor.varint(), True)
            types.append(self._entries.type(index, offset))
            locations.append(self._location(cursor.varint(), offset) if located else None)
        block.arguments = [ir.Value(t, block, k) for k, t in enumerate(types)]
        for value, location in zip(block.arguments, locations, strict=True):
            value.location = location
        scope.define(block.arguments, cursor.pos)
        if self._version >= 3 and cursor.byte():
            _skip_use_lists(cursor, number)
        return operations

    def _location(self, index: int, begin: int) -> ir.Location | None:
        location = self._entries.attribute(index, begin)
        if location is not None and not isinstance(location, ir.Location):
            raise malformed("a location that is none", begin, type(location).__name__)
        return location

    def _operation(self, frame: _Frame) -> tuple[ir.Operation, bool]:
        """One operation without its regions, and whether these are isolated."""
        cursor, entries = frame.cursor, self._entries
        begin, index = cursor.pos, cursor.varint()
        if index >= len(self._names):
            raise malformed("an operation whose name is not listed", begin, index, f"less than {len(self._names)}")
        name, mask = self._names[index], cursor.byte()
        location = self._location(cursor.varint(), begin)
        text, attributes, refused = self._attributes(frame, name, mask, begin)
        types = [entries.type(cursor.varint(), begin) for _ in range(cursor.count("results"))] if mask & RESULTS else ()
        operands = self._operands(cursor, frame.scope.values) if mask & OPERANDS else []
        if mask & _SUCCESSORS and cursor.count("successors"):
            raise UnsupportedError("branches between blocks are not supported", subject=text, where=f"byte {begin}",
                                   hint=ir.NO_BRANCHES)
        operation = ir.Operation(text, operands, types, attributes, location=location)
        operation.refused = refused
        if types:
            frame.scope.define(operation.results, begin)
        if mask & _USE_LISTS:
            _skip_use_lists(cursor, len(types))
        isolated = False
        if mask & REGIONS:
            number, isolated = cursor.flagged()
            if number > cursor.end - cursor.pos:
                raise malformed("more regions than there are bytes", begin, number)
            operation.regions = [ir.Region() for _ in range(number)]
        return operation, isolated

    def _operands(self, cursor: Cursor, values: dict[int, ir.Value]) -> list[ir.Value]:
        begin = cursor.pos
        try:
            return [values[cursor.varint()] for _ in range(cursor.count("operands"))]
        except KeyError as error:
            raise malformed("a value that is not defined", begin, error.args[0]) from None

    def _attributes(self, frame: _Frame, name: OperationName, mask: int, begin: int) -> _Meaning:
        """An operation's name and attributes; of VHLO those of StableHLO. Operations often share them, so they are made once."""
        cursor = frame.cursor
        discardable = cursor.varint() if mask & ATTRIBUTES else -1
        properties = cursor.varint() if mask & _PROPERTIES else -1
        key = name.text, discardable, properties
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._meaning(name, discardable, properties, begin)
        text = found[0]
        if text == "stablehlo.return" and frame.operation.name == "func.func":
            text = "func.return"
        return text, dict(found[1]), found[2]

    def _meaning(self, name: OperationName, discardable: int, properties: int, begin: int) -> _Meaning:
        attributes: dict[str, ir.Attribute] = {}
        try:
            for number, read in ((discardable, self._dictionary), (properties, self._properties_of)):
                if number >= 0:
                    attributes.update(read(name, number, begin))
            return *legalize(name.text, attributes, begin), None
        except UnsupportedError as error:
            return name.text, {}, error

    def _dictionary(self, name: OperationName, index: int, begin: int) -> dict[str, ir.Attribute]:
        found = self._entries.attribute(index, begin)
        if not isinstance(found, dict):
            raise malformed("attributes that are no dictionary", begin, type(found).__name__)
        return found

    def _properties_of(self, name: OperationName, index: int, begin: int) -> dict[str, ir.Attribute]:
        if index >= len(self._sections):
            raise malformed("properties that are not listed", begin, index, f"less than {len(self._sections)}")
        place = self._sections[index]
        cursor = Cursor(self._entries.data, place.begin, place.end)
        if not name.registered:  # these have a dictionary
            return self._dictionary(name, cursor.varint(), begin)
        return read_properties(name.text, cursor, self._entries, self._version)


def _skip_use_lists(cursor: Cursor, values: int) -> None:
    """Orders of uses, which matter to nobody here."""
    for _ in range(cursor.count("orders") if values > 1 else 1):
        if values > 1:
            cursor.varint()
        number, _ = cursor.flagged()
        if number > cursor.end - cursor.pos:
            raise malformed("more uses than there are bytes", cursor.pos, number)
        for _ in range(number):
            cursor.varint()
