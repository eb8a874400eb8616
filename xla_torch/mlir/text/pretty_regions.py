"""The forms of StableHLO's operations that print their regions in a way of their own: reduce, while, scan."""

from __future__ import annotations

import re
from collections.abc import Generator

from ..ir import Attribute, Block, Operation, Region, Tensor, Type, Value
from .reader import Argument, Contents, Form, FormReader, OperationReader, RegionRequest
from .scanner import BLANK, NAME

_applies = re.compile(rf"{BLANK}applies{BLANK}({NAME})")


def _reduce(reader: OperationReader, name: str) -> Form:
    """``reduce(%a init: %b), (%c init: %d) across dimensions = [1] {attributes} : types reducer(...) (...) { ... }``; where the
    region is one operation, ``reduce(%a init: %b) applies op across dimensions = [1] : types``."""
    inputs, inits = [], []
    while True:
        reader.expect("(", "before an operand and its init")
        inputs.append(reader.value())
        if not reader.accept_word("init"):
            raise reader.error("expects 'init:'", expected="'init:'")
        reader.expect(":")
        inits.append(reader.value())
        reader.expect(")", "after an operand and its init")
        if not reader.accept(","):
            break
    operands = inputs + inits
    start = reader.skip()
    applied = _applies.match(reader.text, reader.pos)
    if applied:
        reader.pos = applied.end()
        if len(inputs) != 1:
            raise reader.error("only a reduction of one operand applies one operation", start)
    for word in ("across", "dimensions"):
        if not reader.accept_word(word):
            raise reader.error("expects 'across dimensions ='", expected="'across dimensions ='")
    reader.expect("=")
    attributes: dict[str, Attribute] = {"dimensions": reader.integers()}
    attributes |= reader.optional_attributes()
    results = reader.signature(operands)
    if applied:
        region = _of_one_operation(applied[1], name, operands[0].type, reader.line_and_column(start))
        end = reader.pos
        location = reader.trailing_location()
        reader.pos = end  # it is that of the whole too, and read once more
        for made in region.blocks[0].operations:
            reader.located(made, location)
        return Contents(operands, results, attributes, [region])
    return _with_reducer(reader, operands, results, attributes, len(inputs))


def _of_one_operation(applied: str, name: str, type: Type, place: tuple[int, int]) -> Region:
    """The region of an operation that applies another to two scalars."""
    scalar = Tensor((), type.element) if isinstance(type, Tensor) else type
    block = Block([scalar, scalar])
    made = Operation(applied, list(block.arguments), [scalar], {}, None, None, *place)
    end = Operation(f"{name.partition('.')[0]}.return", [made.results[0]], (), {}, None, None, *place)
    block.operations = [made, end]
    return Region([block])


def _with_reducer(reader: OperationReader, operands: list[Value], results: list[Type], attributes: dict[str, Attribute],
                  count: int) -> Generator[RegionRequest, Region, Contents]:
    """``reducer(%a: t, %b: t) (%c: u, %d: u) { ... }``: two arguments for each operand; the block has the first ones first."""
    if not reader.accept_word("reducer"):
        raise reader.error("expects the reducer", expected="'reducer'")
    pairs: list[list[Argument]] = []
    while reader.peek() == "(":
        pairs.append(reader.arguments())
        if len(pairs[-1]) != 2:
            raise reader.error("a reducer has two arguments for each operand")
    if len(pairs) != count:
        raise reader.error(f"a reducer of {count} operands has {count} pairs of arguments")
    attributes = attributes | reader.optional_attributes_with_keyword()
    region = yield RegionRequest([p[0] for p in pairs] + [p[1] for p in pairs])
    return Contents(operands, results, attributes, [region])


def _while(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``while(%x = %a, %y = %b) : types attributes {...} cond { ... } do { ... }``."""
    names: list[tuple[str, int]] = []
    operands: list[Value] = []

    def carried() -> None:
        at = reader.skip()
        names.append((reader.value_name(), at))
        reader.expect("=")
        operands.append(reader.value())

    reader.listed(carried, "(", ")")
    types: list[Type] = []
    if reader.accept(":"):
        start = reader.skip()
        types = reader.types_listed()
        reader.check_types(operands, types, start)
    elif operands:
        raise reader.error("expects ':' and the types of what the loop carries", expected="':'")
    attributes = reader.optional_attributes_with_keyword()
    arguments = [Argument(n, t, at) for (n, at), t in zip(names, types, strict=True)]
    regions = []
    for word in ("cond", "do"):
        if not reader.accept_word(word):
            raise reader.error(f"expects {word!r}", expected=repr(word))
        regions.append((yield RegionRequest(arguments)))
    return Contents(operands, types, attributes, regions)


def _scan(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``scan(%a) inits (%b) dimension=0 attributes {...} { ... } : types``."""
    inputs = reader.values_in_parentheses()
    if not reader.accept_word("inits"):
        raise reader.error("expects 'inits'", expected="'inits'")
    inits = reader.values_in_parentheses()
    if not reader.accept_word("dimension"):
        raise reader.error("expects 'dimension'", expected="'dimension'")
    reader.expect("=")
    attributes: dict[str, Attribute] = {"dimension": reader.integer()}
    attributes |= reader.optional_attributes_with_keyword()
    region = yield RegionRequest()
    operands = inputs + inits
    results = reader.signature(operands)
    attributes["operandSegmentSizes"] = len(inputs), len(inits)
    attributes["resultSegmentSizes"] = len(results) - len(inits), len(inits)
    return Contents(operands, results, attributes, [region])


REGIONS: dict[str, FormReader] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.scan": _scan,
    "stablehlo.while": _while,
}
