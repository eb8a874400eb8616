"""What the forms of operations are read with: values by their names, lists of types, arguments of regions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

from ...hlo.scanner import nearest
from ..ir import Attribute, Region, Type, Value
from .locations import LocationReader, Node
from .scanner import BLANK, SUFFIX
from .types import type_text

_operand = re.compile(rf"{BLANK}%({SUFFIX})(?:#(\d{{1,9}}))?")
_value_name = re.compile(rf"{BLANK}%({SUFFIX})")
_TENSOR = r"tensor<[^<>\"()]*>"
_plain_signature = re.compile(rf"\((?:{_TENSOR}(?:, (?=t))?)*+\) -> (?:{_TENSOR}|\((?:{_TENSOR}(?:, (?=t))?)++\))")


class Argument(NamedTuple):
    """An argument of a region's first block, as it is written in front of the region."""

    name: str
    type: Type
    position: int
    location: Node | None = None


@dataclasses.dataclass(slots=True)
class RegionRequest:
    """What a form that reads a region asks for, with the cursor in front of the brace. Without `arguments` a label may give them,
    and a region without anything has no block. An `isolated` region sees no values from outside."""

    arguments: list[Argument] | None = None
    isolated: bool = False


class Contents(NamedTuple):
    """An operation but for its name."""

    operands: list[Value]
    results: list[Type] | tuple[Type, ...]
    attributes: dict[str, Attribute]
    regions: list[Region] | None = None


Form: TypeAlias = Contents | Generator[RegionRequest, Region, Contents]
"""What reading a form gives: the contents, or a generator that asks for the regions and returns the contents."""

FormReader: TypeAlias = "Callable[[OperationReader, str], Form]"


class OperationReader(LocationReader):
    """A cursor that knows the values that are defined where it stands."""

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self.values: dict[str, list[Value]] = {}
        self._signatures: dict[str, tuple[list[Type], list[Type]]] = {}

    # ---- values

    def value(self) -> Value:
        """``%name`` or ``%name#2``."""
        match = _operand.match(self.text, self.pos)
        if not match:
            raise self.error("expects a value (%name)", expected="a value (%name)")
        found = self.values.get(match[1])
        number = int(match[2]) if match[2] else 0
        if found is None or number >= len(found):
            raise self._unknown(match, found)
        self.pos = match.end()
        return found[number]

    def values_listed(self) -> list[Value]:
        """``%a, %b``; may be empty."""
        if self.peek() != "%":
            return []
        found = [self.value()]
        while self.accept(","):
            found.append(self.value())
        return found

    def values_in_parentheses(self) -> list[Value]:
        self.expect("(")
        found = self.values_listed()
        self.expect(")", "after operands")
        return found

    def value_name(self) -> str:
        """The name of a value that is being defined."""
        match = _value_name.match(self.text, self.pos)
        if not match:
            raise self.error("expects the name of a value (%name)", expected="a name with '%'")
        self.pos = match.end()
        return match[1]

    def argument(self) -> Argument:
        """``%name : type``, with a location or not."""
        at, name = self.skip(), self.value_name()
        self.expect(":", "between an argument and its type")
        return Argument(name, self.type(), at, self.trailing_location())

    def arguments(self) -> list[Argument]:
        """``(%a: type, ...)``."""
        return self.listed(self.argument, "(", ")")

    def _unknown(self, match: re.Match[str], found: list[Value] | None) -> Exception:
        start = match.start(1) - 1
        if found is not None:
            return self.error(f"%{match[1]} has {len(found)} results", start, expected=f"a number below {len(found)}")
        hint = nearest(match[1], list(self.values)[-1000:])
        if re.compile(rf"^\s*%{re.escape(match[1])}(?:\s*[=,]|:\d)", re.M).search(self.text, start):
            hint = "it is defined further below, or in another region"
        return self.error(f"the value %{match[1]} is not defined here", start, hint=hint)

    # ---- types of operands and results

    def check_types(self, operands: list[Value], types: list[Type] | tuple[Type, ...], start: int) -> None:
        """Raise unless the operands have these types, which stand at `start`."""
        if len(operands) != len(types):
            raise self.error(f"{len(operands)} operands, but {len(types)} types", start, expected="a type for each operand")
        for number, (operand, wanted) in enumerate(zip(operands, types, strict=True)):
            if operand.type is not wanted and operand.type != wanted:
                raise self.error(f"operand {number} is defined with another type", start,
                                 expected=f"{type_text(operand.type)}, not {type_text(wanted)}")

    def function_type(self, operands: list[Value]) -> list[Type]:
        """``(types) -> types``, the types before the arrow being those of the operands; gives the results'. One type alone may
        lack its parentheses."""
        start = self.skip()
        match = _plain_signature.match(self.text, start)
        known = self._signatures.get(match[0]) if match else None
        if match and known:
            types, results = known
            self.check_types(operands, types, start)
            self.pos = match.end()
            return results
        types = self.types_in_parentheses() if self.peek() == "(" else self.types_listed()
        self.check_types(operands, types, start)
        self.expect("->", "between the types of operands and results")
        results = self.result_types()
        if match and match.end() == self.pos:
            self._signatures[match[0]] = types, results
        return results

    def signature(self, operands: list[Value]) -> list[Type]:
        """``: (types) -> types``."""
        self.expect(":", "in front of the types")
        return self.function_type(operands)

    def optional_attributes(self) -> dict[str, Attribute]:
        """``{...}`` or nothing."""
        return self.dictionary() if self.peek() == "{" else {}

    def optional_attributes_with_keyword(self) -> dict[str, Attribute]:
        """``attributes {...}`` or nothing."""
        return self.dictionary() if self.accept_word("attributes") else {}
