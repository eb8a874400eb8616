"""The forms of modules, functions, calls and returns."""

from __future__ import annotations

from collections.abc import Generator

from ..ir import Attribute, FunctionType, Region, Type
from .reader import Argument, Contents, Form, FormReader, OperationReader, RegionRequest

_VISIBILITIES = ("public", "private", "nested")


def _module(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``module @name attributes {...} { ... }``."""
    attributes: dict[str, Attribute] = {}
    if reader.peek() == "@":
        attributes["sym_name"] = reader.symbol_name()
    attributes |= reader.optional_attributes_with_keyword()
    region = yield RegionRequest([], isolated=True)
    return Contents([], [], attributes, [region])


def _function(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents] | Contents:
    """``func.func private @f(%a: type {...}) -> (type {...}) attributes {...} { ... }``; without a body it is only declared."""
    attributes: dict[str, Attribute] = {}
    if reader.peek() != "@":
        start = reader.skip()
        attributes["sym_visibility"] = word = reader.word("a function's visibility or name")
        if word not in _VISIBILITIES:
            raise reader.error("expects a function's visibility or name", start,
                               expected=f"@name or {' or '.join(_VISIBILITIES)}")
    attributes["sym_name"] = reader.symbol_name()
    arguments, types, argument_attributes = _arguments(reader)
    results, result_attributes = _results(reader) if reader.accept("->") else ([], [])
    attributes["function_type"] = FunctionType(tuple(types), tuple(results))
    if any(argument_attributes):
        attributes["arg_attrs"] = tuple(argument_attributes)
    if any(result_attributes):
        attributes["res_attrs"] = tuple(result_attributes)
    attributes |= reader.optional_attributes_with_keyword()
    if reader.peek() != "{":
        return Contents([], [], attributes, [Region()])
    if len(arguments) != len(types):
        raise reader.error("the arguments of a function with a body have names", expected="%name: type")
    return _body(arguments, attributes)


def _versioned_function(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``vhlo.func_v1 @f(%a: type) -> (type) { ... } {attributes}``."""
    attributes: dict[str, Attribute] = {"sym_name": reader.symbol_name()}
    arguments, types, _ = _arguments(reader)
    results, _ = _results(reader) if reader.accept("->") else ([], [])
    attributes["function_type"] = FunctionType(tuple(types), tuple(results))
    region = yield RegionRequest(arguments, isolated=True)
    return Contents([], [], {**attributes, **reader.optional_attributes()}, [region])


def _body(arguments: list[Argument], attributes: dict[str, Attribute]) -> Generator[RegionRequest, Region, Contents]:
    region = yield RegionRequest(arguments, isolated=True)
    return Contents([], [], attributes, [region])


def _arguments(reader: OperationReader) -> tuple[list[Argument], list[Type], list[dict[str, Attribute]]]:
    """``(%a: type {...}, ...)`` or, of a declaration, ``(type {...}, ...)``: named arguments, all types, all attributes."""
    named: list[Argument] = []
    types: list[Type] = []
    attributes: list[dict[str, Attribute]] = []

    def argument() -> None:
        at = reader.skip()
        name = None
        if reader.peek() == "%":
            name = reader.value_name()
            reader.expect(":", "between an argument and its type")
        types.append(reader.type())
        attributes.append(reader.optional_attributes())
        location = reader.trailing_location()
        if name is not None:
            named.append(Argument(name, types[-1], at, location))

    reader.listed(argument, "(", ")")
    return named, types, attributes


def _results(reader: OperationReader) -> tuple[list[Type], list[dict[str, Attribute]]]:
    """``type`` or ``(type {...}, ...)``."""
    if reader.peek() != "(":
        return [reader.type()], []
    types: list[Type] = []
    attributes: list[dict[str, Attribute]] = []

    def result() -> None:
        types.append(reader.type())
        attributes.append(reader.optional_attributes())

    reader.listed(result, "(", ")")
    return types, attributes


def constant(reader: OperationReader, name: str) -> Form:
    """``5 : index``, ``true``, ``dense<...> : type``."""
    attributes = reader.optional_attributes()
    start = reader.skip()
    value, of = reader.typed_attribute()
    if of is None:
        raise reader.error("a constant has a type", start, expected="value : type")
    return Contents([], [of], {**attributes, "value": value})


def call_contents(reader: OperationReader, attributes: dict[str, Attribute]) -> Contents:
    """What stands behind the name of what is called: ``(%a) {attributes} : types``."""
    operands = reader.values_in_parentheses()
    attributes |= reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes)


def _call(reader: OperationReader, name: str) -> Form:
    """``call @f(%a) {attributes} : types``."""
    return call_contents(reader, {"callee": reader.symbol()})


def _indirect_call(reader: OperationReader, name: str) -> Form:
    """``call_indirect %f(%a) : types``."""
    callee = reader.value()
    operands = reader.values_in_parentheses()
    attributes = reader.optional_attributes()
    return Contents([callee, *operands], reader.signature(operands), attributes)


def _function_value(reader: OperationReader, name: str) -> Form:
    """``constant @f : type``."""
    attributes: dict[str, Attribute] = reader.optional_attributes()
    attributes["value"] = reader.symbol()
    reader.expect(":")
    return Contents([], [reader.type()], attributes)


def terminator(reader: OperationReader, name: str) -> Form:
    """``return {attributes} %a, %b : type, type``, or nothing behind the word."""
    attributes = reader.optional_attributes()
    operands = reader.values_listed()
    attributes |= reader.optional_attributes()
    if operands:
        reader.expect(":", "in front of the types")
        start = reader.skip()
        reader.check_types(operands, reader.types_listed(), start)
    return Contents(operands, [], attributes)


def _cast(reader: OperationReader, name: str) -> Form:
    """``unrealized_conversion_cast %a : types to types``."""
    operands = reader.values_listed()
    if reader.accept(":"):
        start = reader.skip()
        reader.check_types(operands, reader.types_listed(), start)
    if not reader.accept_word("to"):
        raise reader.error("expects 'to' between types", expected="'to'")
    results = reader.types_listed()
    return Contents(operands, results, reader.optional_attributes())


FUNCTIONS: dict[str, FormReader] = {
    "builtin.module": _module,
    "builtin.unrealized_conversion_cast": _cast,
    "func.call": _call,
    "func.call_indirect": _indirect_call,
    "func.constant": _function_value,
    "func.func": _function,
    "func.return": terminator,
    "vhlo.func_v1": _versioned_function,
}

