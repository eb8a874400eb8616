"""Operations of `ir.py` as MLIR text: modules and functions as MLIR prints them, all else in the generic form.

Every reader of MLIR takes the generic form. Attributes are Python values here, so the widths of integers that are not 64 bits
wide stand in a table. Values have numbers of their own in each function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...core.errors import UnsupportedError
from ...core.types import PrimitiveType
from ..ir import (
    INDEX,
    Block,
    Elements,
    Enum,
    FunctionType,
    Location,
    Opaque,
    Operation,
    OtherType,
    Struct,
    Symbol,
    Tensor,
    TupleType,
    Type,
    Value,
)

_bare = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")

_UNITS = ("use_global_device_ids",)
"""Flags that are there or not."""

_NARROW = {"api_version": "i32", "exponent_bits": "i32", "mantissa_bits": "i32", "mhlo.num_replicas": "i32",
           "mhlo.num_partitions": "i32", "tf.aliasing_output": "i32", "operandSegmentSizes": "i32",
           "resultSegmentSizes": "i32", "version": "i32", "index": "i32"}
"""Integers of other widths than 64 bits, by the attribute's name."""


def integer_type(name: str) -> PrimitiveType:
    """The type of an attribute's integers, by its name."""
    return PrimitiveType.S32 if name in _NARROW else PrimitiveType.S64


def is_unit(name: str) -> bool:
    return name in _UNITS


def print_module(module: Operation) -> str:
    """The text of a ``builtin.module`` of functions."""
    attributes = {k: v for k, v in module.attributes.items() if k != "sym_name"}
    name = f" @{_symbol(module.symbol)}" if module.symbol else ""
    stated = f" attributes {_dictionary(attributes)}" if attributes else ""
    lines = [f"module{name}{stated} {{"]
    for function in module.regions[0].blocks[0].operations:
        lines += _Function().lines(function)
    return "\n".join([*lines, "}", ""])


class _Function:
    """The text of one function, and the names of its values."""

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}
        self._count = 0

    def lines(self, function: Operation) -> Iterator[str]:
        block, attributes = function.regions[0].blocks[0], function.attributes
        of = attributes["function_type"]
        assert isinstance(of, FunctionType)
        given = attributes.get("arg_attrs") or ({},) * len(of.inputs)
        arguments = ", ".join(f"{self._named(a, 'arg')}: {type_text(a.type)}{_after(g)}{_location(a.location)}"
                              for a, g in zip(block.arguments, given, strict=True))
        given = attributes.get("res_attrs") or ({},) * len(of.results)
        results = ", ".join(type_text(t) + _after(g) for t, g in zip(of.results, given, strict=True))
        visibility = attributes.get("sym_visibility", "public")
        yield f"  func.func {visibility} @{_symbol(function.symbol)}({arguments}) -> ({results}) {{"
        yield from self._operations(block, "    ")
        yield "  }"

    def _named(self, value: Value, stem: str = "") -> str:
        name = self._names[value] = f"%{stem}{self._count}"
        self._count += 1
        return name

    def _operations(self, block: Block, indent: str) -> Iterator[str]:
        for operation in block.operations:
            yield from self._operation(operation, indent)

    def _operation(self, operation: Operation, indent: str) -> Iterator[str]:
        operands = ", ".join(self._names[v] for v in operation.operands)
        name = f'"{operation.name}"({operands})'
        attributes = f" {_dictionary(operation.attributes)}" if operation.attributes else ""
        taken = ", ".join(type_text(v.type) for v in operation.operands)
        given = ", ".join(type_text(v.type) for v in operation.results)
        end = f"{attributes} : ({taken}) -> ({given}){_location(operation.location)}"
        if not operation.regions:
            yield f"{indent}{self._results(operation)}{name}{end}"
            return
        # What a region defines is named before the results of its operation, which it does not see.
        regions = [list(self._region(r.blocks[0], indent + "  ")) for r in operation.regions]
        opening = f"{indent}{self._results(operation)}{name} ("
        for number, lines in enumerate(regions):
            yield opening + "{"
            yield from lines
            opening = indent + "}" + (", " if number + 1 < len(regions) else "")
        yield f"{indent}}}){end}"

    def _results(self, operation: Operation) -> str:
        return ", ".join(self._named(r) for r in operation.results) + " = " if operation.results else ""

    def _region(self, block: Block, indent: str) -> Iterator[str]:
        if block.arguments:
            yield f"{indent[2:]}^bb0({', '.join(f'{self._named(a)}: {type_text(a.type)}' for a in block.arguments)}):"
        yield from self._operations(block, indent)


def _location(location: Location | None) -> str:
    if location is None or not (location.name or location.frames):
        return ""
    file = f"{_quoted(location.frames[0][0])}:{location.frames[0][1]}:{location.frames[0][2]}" if location.frames else ""
    if not location.name:
        return f" loc({file})"
    return f" loc({_quoted(location.name)}({file}))" if file else f" loc({_quoted(location.name)})"


def _after(attributes: dict[str, Any]) -> str:
    return f" {_dictionary(attributes)}" if attributes else ""


# ------------------------------------------------------------------------------------------------------------------- types


def type_text(given: Type) -> str:
    """The spelling of a type. Raises UnsupportedError for types that only readers know."""
    if isinstance(given, PrimitiveType):
        return _element(given)
    if isinstance(given, OtherType):
        return given.text
    if isinstance(given, TupleType):
        return f"tuple<{', '.join(map(type_text, given.elements))}>"
    if isinstance(given, Tensor) and given.dimensions is not None and isinstance(given.element, PrimitiveType | OtherType):
        sizes = "".join("?x" if n is None else f"{n}x" for n in given.dimensions)
        encoding = f", {attribute_text(given.encoding)}" if given.encoding is not None else ""
        return f"tensor<{sizes}{type_text(given.element)}{encoding}>"
    raise UnsupportedError("this type cannot be written", subject="MLIR", got=given)


def _element(given: PrimitiveType) -> str:
    if given.is_complex:
        return f"complex<f{given.bits // 2}>"
    if given.is_pred:
        return "i1"
    if given.is_integral:
        return f"{'u' if given.is_unsigned else ''}i{given.bits}"
    if given.is_floating:
        return "bf16" if given.name == "BF16" else "f" + given.name[1:]
    raise UnsupportedError("MLIR has no such element type", got=given)


# -------------------------------------------------------------------------------------------------------------- attributes


def _dictionary(given: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{_key(k)} = {attribute_text(v, k)}" for k, v in given.items()) + "}"


def _key(name: str) -> str:
    return name if _bare.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A string: what is not printable ASCII in MLIR's ``\\XX``, byte by byte."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode()) + '"'


def _symbol(name: str) -> str:
    return name if _bare.fullmatch(name) else _quoted(name)


def attribute_text(given: Any, name: str = "") -> str:
    """An attribute, whose name tells the width of numbers."""
    match given:
        case bool() if is_unit(name):
            return "unit"
        case bool():
            return "true" if given else "false"
        case int():
            return f"{given} : {_NARROW.get(name, 'i64')}"
        case float():
            return f"0x{np.float32(given).view(np.uint32):08X} : f32"
        case str():
            return _quoted(given)
        case tuple():
            return _list(given, _NARROW.get(name, "i64"))
        case dict():
            return _dictionary(given)
        case Symbol():
            return f"@{_symbol(given.name)}"
        case Elements():
            return f"dense<{_dense(given)}> : {type_text(given.type)}"
        case Enum():
            dialect, _, kind = given.kind.partition(".")
            return f"#{dialect}<{kind} {given.value}>"
        case Struct():
            return _struct(given)
        case Opaque():
            return given.text
    raise UnsupportedError("this attribute cannot be written", subject="MLIR", got=type(given).__name__)


def _list(given: Sequence[Any], of: str) -> str:
    if all(isinstance(v, bool) for v in given) and given:
        return f"array<i1: {', '.join(map(attribute_text, given))}>"
    if all(isinstance(v, int) for v in given):
        return f"array<{of}: {', '.join(map(str, given))}>" if given else f"array<{of}>"
    return f"[{', '.join(map(attribute_text, given))}]"


def _struct(given: Struct) -> str:
    if given.kind == "stablehlo.bounds":
        return f"#stablehlo.bounds<{', '.join('?' if b is None else str(b) for b in given.fields['bounds'])}>"
    if given.kind == "stablehlo.conv":
        return f"#stablehlo.conv<{_convolved(given.fields)}>"
    return f"#{given.kind}<{', '.join(f'{k} = {_field(v)}' for k, v in given.fields.items())}>"


def _field(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, PrimitiveType | OtherType):
        return type_text(value)
    if isinstance(value, float):
        return f"{value!r}" if "e" not in repr(value) else f"{value:.17e}"
    if isinstance(value, Enum):
        return f"#{value.kind}<{value.value}>"
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else attribute_text(value)


def _convolved(fields: dict[str, Any]) -> str:
    sides = []
    for side, (first, second) in (("input", ("batch", "feature")), ("kernel", ("output_feature", "input_feature")),
                                  ("output", ("batch", "feature"))):
        space = fields[f"{side}_spatial_dimensions"]
        letters = {fields[f"{side}_{first}_dimension"]: first[0], fields[f"{side}_{second}_dimension"]: second[0]}
        letters |= {d: str(k) for k, d in enumerate(space)}
        sides.append("[" + ", ".join(letters[d] for d in range(len(letters))) + "]")
    return f"{sides[0]}x{sides[1]}->{sides[2]}"


def _dense(given: Elements) -> str:
    value, element = np.asarray(given.value), given.type.element
    if not value.size:
        return ""
    if element == INDEX:
        return str(value.tolist())
    assert isinstance(element, PrimitiveType)
    if value.size == 1 or _is_splat(value):
        return _one(value[(0,) * value.ndim], element)
    if element.is_pred or (element.is_integral and element.bits < 8):  # of which MLIR's bytes are not NumPy's
        return str(value.astype(np.bool_ if element.is_pred else np.int8).tolist()).lower()
    return _hex(value)


def _one(value: Any, element: PrimitiveType) -> str:
    if element.is_pred:
        return "true" if value else "false"
    if element.is_integral:
        return str(int(value))
    if element.is_floating:
        text = f"{float(value):.6e}"
        if np.isfinite(float(value)) and float(text) == float(value):
            return text
    return _hex(np.asarray(value))


def _hex(value: np.ndarray) -> str:
    return f'"0x{np.ascontiguousarray(value).tobytes().hex().upper()}"'


def _is_splat(value: np.ndarray) -> bool:
    flat = np.ascontiguousarray(value).reshape(-1).view(np.dtype(f"V{value.itemsize}"))
    return bool(flat[0] == flat[-1] and (flat == flat[0]).all())
