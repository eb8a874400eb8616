"""MLIR's text, as StableHLO programs use it, to the operations of `ir.py`.

`parse` reads a module: operations in the generic form here, in the forms that their dialects print in `pretty.py`. Regions are
read with a stack of their own: what an operation does around its regions is a generator that asks for each, so that programs
may be nested deeper than Python's calls.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator

from ...core.errors import UnsupportedError, XlaError
from ...hlo.cut_text import CutText
from ..ir import NO_BRANCHES, Attribute, Block, Operation, Region, Value
from ..vhlo import legalize
from .pretty import has_form, reader_of
from .reader import Argument, Contents, Form, OperationReader, RegionRequest
from .scanner import BLANK, NAME, SUFFIX

_header = re.compile(rf'{BLANK}((?:%{SUFFIX}(?::\d+)?\s*(?:,\s*%{SUFFIX}(?::\d+)?\s*)*=)?){BLANK}(?:"([\w$.\-]+)"|({NAME}))')
_VALUE = rf"%{SUFFIX}(?:#\d+)?"
_line = re.compile(rf'{BLANK}%({SUFFIX}) = ((?:stablehlo|mhlo|chlo)\.\w+) ({_VALUE}(?:, {_VALUE})*) : (tensor<[^<>"]*>)'
                   r"(?: loc\(#([\w$.]+)\))?(?=\r?\n)(?!\s*loc\()")
_result = re.compile(rf"\s*%({SUFFIX})(?::(\d+))?\s*")
_label = re.compile(rf"{BLANK}\^({SUFFIX})")
_alias_definition = re.compile(rf"{BLANK}([#!])({NAME}|\d+)\s*=")

REGION_DEPTH = 1000
"""How deep regions may lie in each other: more is no program."""

RESULTS = 10**6
"""How many results an operation may say that it has, before its types are read."""


def parse(text: str, filename: str = "", cuts: CutText | None = None) -> Operation:
    """The ``builtin.module`` of a text; where operations stand outside of any module, a module of them.

    Raises HloSyntaxError, with line and column, for text that is not MLIR, uses values that are not defined, or contradicts its
    own types. `filename` is for messages only, `cuts` what was cut out of the text.
    """
    parser = _Parser(text, filename)
    parser.cuts = cuts
    if text.startswith("\ufeff"):
        raise parser.error("the text begins with a byte order mark", 0, hint="decode it with 'utf-8-sig'")
    try:
        block = parser.read()
    except RecursionError:
        raise parser.error("types, attributes or locations are nested too deep for what is left of Python's stack") from None
    if len(block.operations) == 1 and block.operations[0].name == "builtin.module":
        return block.operations[0]
    return Operation("builtin.module", [], (), {}, [Region([block])])


@dataclasses.dataclass(slots=True)
class _Header:
    """The beginning of an operation: its results' names with their counts, its name, and where it stands."""

    results: list[tuple[str, int]]
    name: str
    position: int
    line: int
    column: int


class _Frame:
    """A region that is being read."""

    __slots__ = ("block", "form", "header", "names", "outside", "region")

    def __init__(self, header: _Header, form: Generator[RegionRequest, Region, Contents]):
        self.header, self.form = header, form
        self.region, self.names = Region(), []
        self.block: Block | None = None
        self.outside: dict[str, list[Value]] | None = None


class _Parser(OperationReader):
    """Reads operations, and keeps the regions that are open."""

    def __init__(self, text: str, filename: str):
        super().__init__(text, filename)
        self._top = Block()
        self._frames: list[_Frame] = []
        self._line, self._line_start, self._counted = 1, 0, 0

    def read(self) -> Block:
        """All operations outside of any region."""
        while True:
            letter = self.peek()
            if letter == "}" and self._frames:
                self._close()
            elif letter == "^" and self._frames:
                self._block()
            elif letter in ("#", "!") and not self._frames:
                self._alias()
            elif not letter or (letter == "{" and not self._frames and self.text.startswith("{-#", self.pos)):
                break
            else:
                self._operation()
        if self._frames:
            header = self._frames[-1].header
            raise self.error(f"the text ends within {header.name}, which begins in line {header.line}", expected="'}'")
        self.give_locations()
        return self._top

    # ---- operations

    def _operation(self) -> None:
        line = _line.match(self.text, self.pos)
        if line and self._line_of_one_type(line):
            return
        match = _header.match(self.text, self.pos)
        if not match:
            raise self.error("expects an operation", expected="an operation")
        results, quoted, bare = match.groups()
        start = match.start(1) if results else match.start(match.lastindex or 2) - (quoted is not None)
        self.pos = match.end()
        if quoted is not None:
            header = _Header(self._result_names(results, start), quoted, start, *self._place(start))
            form: Form = self._generic()
        else:
            name, reader = reader_of(self, bare, match.start(3))
            header = _Header(self._result_names(results, start), name, start, *self._place(start))
            form = reader(self, name)
        if isinstance(form, Contents):
            self._finish(header, form)
        else:
            self._frames.append(frame := _Frame(header, form))
            self._open(frame, None)

    def _line_of_one_type(self, match: re.Match[str]) -> bool:
        """Most lines of most programs, ``%0 = op %a, %b : type``, where all is as it should be; any other is read at leisure."""
        result, name, operands, type, location = match.groups()
        values = self.values
        if result in values or has_form(name):
            return False
        found = []
        for text in operands.split(", "):
            operand, _, number = text[1:].partition("#")
            defined = values.get(operand)
            if defined is None or (number and (len(number) > 9 or int(number) >= len(defined))):
                return False
            found.append(defined[int(number) if number else 0])
        of = self._types.get(type)
        if of is None or any(v.type is not of and v.type != of for v in found):
            return False
        made = Operation(name, found, (of,), {}, None, None, *self._place(match.start(1) - 1))
        self._current().operations.append(made)
        self._define(result, made.results, match.start(1))
        if location is not None:
            self.located_at(made, location, match.start(5) - 1)
        self.pos = match.end()
        return True

    def _result_names(self, text: str, start: int) -> list[tuple[str, int]]:
        """``%a, %b:2 =``."""
        if not text:
            return []
        names = []
        for part in text[:-1].split(","):
            match = _result.fullmatch(part)
            count = int(match[2]) if match[2] and len(match[2]) < 8 else 1 if not match[2] else RESULTS + 1  # pyright: ignore
            if not 0 < count <= RESULTS:
                raise self.error("no operation has so many results", start)
            names.append((match[1], count))  # pyright: ignore[reportOptionalSubscript]
        return names

    def _finish(self, header: _Header, contents: Contents) -> None:
        """Make the operation, and define its results."""
        operands, types, attributes, regions = contents
        refused = None
        if header.name.startswith("vhlo."):
            attributes, refused = self._as_stablehlo(header, attributes)
        made = Operation(header.name, operands, types, attributes, regions, None, header.line, header.column)
        made.refused = refused
        results, defined = made.results, header.results
        if defined:
            if len(defined) == 1 and defined[0][1] == len(results):
                self._define(defined[0][0], results, header.position)
            else:
                self._define_several(header, results)
        self.located(made, self.trailing_location())
        self._current().operations.append(made)

    def _as_stablehlo(self, header: _Header, attributes: dict[str, Attribute]
                      ) -> tuple[dict[str, Attribute], UnsupportedError | None]:
        """What an operation of VHLO is in StableHLO, or why that is not known."""
        try:
            header.name, attributes = legalize(header.name, attributes)
        except UnsupportedError as error:
            error.where = f"line {header.line}, column {header.column}"
            return attributes, error
        except XlaError as error:
            raise self.error(error.what, header.position, error.expected, error.hint) from None
        if header.name == "stablehlo.return" and self._frames and self._frames[-1].header.name == "vhlo.func_v1":
            header.name = "func.return"
        return attributes, None

    def _define_several(self, header: _Header, results: list[Value]) -> None:
        if sum(count for _, count in header.results) != len(results):
            raise self.error(f"{header.name} has {len(results)} results, but names for {sum(c for _, c in header.results)}",
                             header.position)
        at = 0
        for name, count in header.results:
            self._define(name, results[at:at + count], header.position)
            at += count

    def _define(self, name: str, values: list[Value], position: int) -> None:
        if name in self.values:
            raise self.error(f"the value %{name} is defined twice", position)
        self.values[name] = values
        if self._frames:
            self._frames[-1].names.append(name)

    def _current(self) -> Block:
        """The block that operations are put into."""
        if not self._frames:
            return self._top
        frame = self._frames[-1]
        if frame.block is None:
            frame.block = Block()
            frame.region.blocks.append(frame.block)
        return frame.block

    def _place(self, position: int) -> tuple[int, int]:
        """Line and column of a position behind those asked for before."""
        text = self.text
        self._line += _newlines(text, self._counted, position)
        newline = text.rfind("\n", self._counted, position)
        if newline >= 0:
            self._line_start = newline + 1
        self._counted = position
        return self.in_whole_text(position, self._line, position - self._line_start + 1)

    def _generic(self) -> Form:
        """``(operands) <{properties}> ({regions}) {attributes} : (types) -> types``, from behind the name."""
        operands = self.values_in_parentheses()
        if self.peek() == "[":
            raise self.error("branches between blocks are not supported", hint=NO_BRANCHES)
        attributes: dict[str, Attribute] = {}
        if self.accept("<"):
            attributes = self.dictionary()
            self.expect(">", "after properties")
        if self.peek() == "(":
            return self._with_regions(operands, attributes)
        return self._generic_end(operands, attributes, None)

    def _with_regions(self, operands: list[Value],
                      attributes: dict[str, Attribute]) -> Generator[RegionRequest, Region, Contents]:
        self.expect("(")
        regions = [(yield RegionRequest())]
        while self.accept(","):
            regions.append((yield RegionRequest()))
        self.expect(")", "after regions")
        return self._generic_end(operands, attributes, regions)

    def _generic_end(self, operands: list[Value], attributes: dict[str, Attribute], regions: list[Region] | None) -> Contents:
        attributes = {**attributes, **self.dictionary()} if self.peek() == "{" else attributes
        return Contents(operands, self.signature(operands), attributes, regions)

    # ---- regions

    def _open(self, frame: _Frame, done: Region | None) -> None:
        """Let the form go on to its next region, or to its end."""
        try:
            request = next(frame.form) if done is None else frame.form.send(done)
        except StopIteration as stop:
            self._frames.pop()
            self._finish(frame.header, stop.value)
            return
        if len(self._frames) > REGION_DEPTH:
            raise self.error(f"regions are nested more than {REGION_DEPTH} deep")
        self.expect("{", "before a region")
        frame.region, frame.block, frame.names = Region(), None, []
        frame.outside = self.values if request.isolated else None
        if request.isolated:
            self.values = {}
        if request.arguments is not None:
            self._begin_block(frame, request.arguments)

    def _close(self) -> None:
        self.expect("}")
        frame = self._frames[-1]
        for name in frame.names:
            del self.values[name]
        if frame.outside is not None:
            self.values = frame.outside
        self._open(frame, frame.region)

    def _block(self) -> None:
        """``^bb0(%a: type, ...):``."""
        match = _label.match(self.text, self.pos)
        if not match:
            raise self.error("expects the label of a block")
        frame = self._frames[-1]
        if frame.block is not None and not frame.block.operations and frame.block.arguments:
            raise self.error("a block without operations")
        self.pos = match.end()
        arguments = self.arguments() if self.peek() == "(" else []
        self.expect(":", "after the label of a block")
        self._begin_block(frame, arguments)

    def _begin_block(self, frame: _Frame, arguments: list[Argument]) -> None:
        frame.block = Block([a.type for a in arguments])
        frame.region.blocks.append(frame.block)
        for argument, value in zip(arguments, frame.block.arguments, strict=True):
            self._define(argument.name, [value], argument.position)
            self.located(value, argument.location)

    # ---- aliases

    def _alias(self) -> None:
        """``#name = attribute``, ``!name = type`` or ``#name = loc(...)``."""
        match = self.take(_alias_definition, "the definition of an alias")
        kind, name = match.groups()
        if kind == "!":
            self.type_aliases[name] = self.type()
        elif not self.location_alias(name):
            self.aliases["#" + name] = self.attribute()


def _newlines(text: str, start: int, end: int) -> int:
    """How many lines end between two positions. Over long literals, searching is faster than counting."""
    found = 0
    while end - start > 1 << 16 and found < 100:
        start = text.find("\n", start, end) + 1
        if not start:
            return found
        found += 1
    return found + text.count("\n", start, end)
