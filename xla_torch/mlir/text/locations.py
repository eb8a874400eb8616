"""Locations in MLIR's text: ``loc("jit(f)/add"("f.py":3:1))``, ``loc(callsite(#loc1 at #loc2))``, ``#loc3 = loc(...)``.

Aliases of locations stand at the end of a file as well as at its beginning, so operations get theirs when all is read.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TypeAlias

from ..ir import Location, Operation, Value
from .scanner import BLANK
from .vhlo import VersionedReader

_alias = re.compile(rf"{BLANK}#([\w$.]+)")
_of_alias = re.compile(rf"{BLANK}loc\(#([\w$.]+)\)")
_opening = re.compile(rf"{BLANK}loc\(")
_place = re.compile(rf"{BLANK}:\s*(\d{{1,9}})\s*:\s*(\d{{1,9}})(?:\s*+to\s*+(?:\d++\s*+)?:\s*+\d++)?")

_FRAMES = 100
"""How many places of a location are kept. Chains of calls are shared in a text, and would grow with each other otherwise."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Alias:
    name: str
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Joined:
    """Parts whose places follow each other. `name` is that of the whole; without, the first part's, or all parts' (`fused`)."""

    parts: tuple[Node, ...]
    name: str | None = None
    fused: bool = False


Node: TypeAlias = Location | _Alias | _Joined
"""A location as it is written. What an alias stands for may not be known yet."""
_NOWHERE = Location()


class LocationReader(VersionedReader):
    """Reads locations, and gives them to operations and arguments at the end."""

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self._location_aliases: dict[str, Node] = {}
        self._located: list[tuple[Operation | Value, Node]] = []

    def trailing_location(self) -> Node | None:
        """The location that may come next, for `located`."""
        text, pos = self.text, self.pos
        match = _of_alias.match(text, pos)
        if match:
            self.pos = match.end()
            return _Alias(match[1], match.start(1) - 1)
        match = _opening.match(text, pos)
        if not match:
            return None
        self.pos = match.end()
        node = self._location()
        self.expect(")", "after a location")
        return node

    def located(self, of: Operation | Value, node: Node | None) -> None:
        """This is where an operation, or an argument of a block, came from, if that was said."""
        if node is not None:
            self._located.append((of, node))

    def located_at(self, operation: Operation, alias: str, position: int) -> None:
        """The operation is at ``#alias``, as stands at `position`."""
        self._located.append((operation, _Alias(alias, position)))

    def location_alias(self, name: str) -> bool:
        """Read what ``#name =`` stands for, if it is a location."""
        match = _opening.match(self.text, self.pos)
        if not match:
            return False
        self.pos = match.end()
        self._location_aliases[name] = self._location()
        self.expect(")", "after a location")
        return True

    def give_locations(self) -> None:
        """Each operation and argument its location. Raises HloSyntaxError for aliases that are not defined, or by way of
        themselves."""
        known: dict[str, Location] = {}
        for located, node in self._located:
            found = self._resolve(node, known)
            located.location = found if found.name or found.frames else None

    # ---- reading

    def _location(self) -> Node:
        self.deeper()
        if alias := _alias.match(self.text, self.pos):
            self.pos = alias.end()
            found: Node = _Alias(alias[1], alias.start(1) - 1)
        elif self.peek() == '"':
            found = self._name_or_place()
        elif self.accept_word("callsite"):
            found = self._call()
        elif self.accept_word("fused"):
            found = self._fused()
        elif self.accept_word("unknown"):
            found = _NOWHERE
        else:
            raise self.error("expects a location", expected="a location")
        self.depth -= 1
        return found

    def _name_or_place(self) -> Node:
        text = self.string_or_bytes()
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        if match := _place.match(self.text, self.pos):
            self.pos = match.end()
            return Location("", ((text, int(match[1]), int(match[2])),))
        if not self.accept("("):
            return Location(text)
        part = self._location()
        self.expect(")", "after the location of a name")
        return _Joined((part,), text)

    def _call(self) -> Node:
        self.expect("(")
        callee = self._location()
        if not self.accept_word("at"):
            raise self.error("expects 'at' between a callee's and a caller's location", expected="'at'")
        caller = self._location()
        self.expect(")")
        return _Joined((callee, caller))

    def _fused(self) -> Node:
        if self.accept("<"):
            self.attribute()
            self.expect(">")
        return _Joined(tuple(self.listed(self._location, "[", "]")), fused=True)

    # ---- what they stand for

    def _resolve(self, node: Node, known: dict[str, Location]) -> Location:
        """A location without aliases. Chains of aliases may be long, so they are walked with a stack."""
        if isinstance(node, Location):
            return node
        waiting, open_aliases = _aliases(node), set()
        while waiting:
            alias = waiting[-1]
            if alias.name in known:
                waiting.pop()
                continue
            if alias.name not in self._location_aliases:
                raise self.error(f"the location #{alias.name} is not defined", alias.position)
            stands_for = self._location_aliases[alias.name]
            needed = [a for a in _aliases(stands_for) if a.name not in known]
            if not needed:
                known[alias.name] = _joined(stands_for, known)
                waiting.pop()
            elif alias.name in open_aliases:
                raise self.error(f"the location #{alias.name} is defined by itself", alias.position)
            else:
                open_aliases.add(alias.name)
                waiting += needed
        return _joined(node, known)


def _aliases(node: Node) -> list[_Alias]:
    """The aliases that a location mentions."""
    if isinstance(node, _Alias):
        return [node]
    return [a for part in node.parts for a in _aliases(part)] if isinstance(node, _Joined) else []


def _joined(node: Node, known: dict[str, Location]) -> Location:
    if isinstance(node, Location):
        return node
    if isinstance(node, _Alias):
        return known[node.name]
    parts = [_joined(p, known) for p in node.parts]
    frames = tuple(f for p in parts for f in p.frames)[:_FRAMES]
    name = node.name if node.name is not None else ";".join(p.name for p in parts if p.name) if node.fused else parts[0].name
    return Location(name, frames)
