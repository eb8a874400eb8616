"""Operations of `ir.py` as MLIR bytecode, which our reader and MLIR's own read.

Version 4 of the encoding: attributes stand with their names, so that what is read does not depend on which properties an
operation has in the reader's version of its dialect. An attribute or type is an entry of bytes that name others by number, and
equal ones are one entry; what its dialect has no encoding for stands as text. See `bytecode.py` for where things lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...core.errors import UnsupportedError
from ...core.types import PRED, PrimitiveType
from .. import ir
from ..text.printing import attribute_text, integer_type, is_unit, type_text
from . import builtin
from .dialects import ENUMS, encoding_of
from .operations import ATTRIBUTES, OPERANDS, REGIONS, RESULTS
from .reader import Reader

VERSION = 4
_PRODUCER = b"xla_torch"
_MAGIC = b"ML\xefR"
_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, _OPERATIONS = range(5)
_UNKNOWN_SIZE = -1 << 63

# ------------------------------------------------------------------------------------------------------------------- numbers


def varint(value: int) -> bytes:
    """A number of 64 bits: as many zeros at the end of its first byte as bytes follow."""
    for following in range(8):
        if value < 1 << 7 * (following + 1):
            return (value << following + 1 | 1 << following).to_bytes(following + 1, "little")
    return b"\0" + value.to_bytes(8, "little")


def signed(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def _flagged(value: int, flag: bool) -> bytes:
    return varint(value << 1 | flag)


def _blob(data: bytes) -> bytes:
    return varint(len(data)) + data


def _section(number: int, data: bytes) -> bytes:
    return bytes([number]) + varint(len(data)) + data


def _counted(parts: Sequence[bytes]) -> bytes:
    return varint(len(parts)) + b"".join(parts)


def _integer(value: int, bits: int) -> bytes:
    """An integer whose width is known."""
    value &= (1 << bits) - 1
    return bytes([value]) if bits <= 8 else signed(value - (1 << 64) if value >> 63 else value)


# ------------------------------------------------------------------------------------------------------------------- tables


class _Numbers:
    """What is named by number: each thing once, in the order of first use."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __call__(self, key: Any) -> int:
        return self.of.setdefault(key, len(self.of))


class _Tables:
    """The strings, dialects, names of operations, attributes and types of a file."""

    def __init__(self) -> None:
        self.strings, self.dialects, self.names = _Numbers(), _Numbers(), _Numbers()
        self.entries = _Numbers(), _Numbers()  # of attributes, and of types: (dialect, whether encoded, bytes)
        self._types: dict[ir.Type, int] = {}

    def string(self, text: str | bytes) -> bytes:
        return varint(self.strings(text.encode() if isinstance(text, str) else text))

    def name(self, text: str) -> bytes:
        """An attribute that is a string."""
        return varint(self._attribute("builtin", varint(_BUILTIN[Reader.string]) + self.string(text)))

    def _attribute(self, dialect: str, data: bytes, encoded: bool = True) -> int:
        return self.entries[0]((self.dialects(dialect), encoded, data))

    def _type(self, dialect: str, data: bytes, encoded: bool = True) -> int:
        return self.entries[1]((self.dialects(dialect), encoded, data))

    # ---- types

    def type_number(self, given: ir.Type) -> int:
        if given not in self._types:
            self._types[given] = self._made_type(given)
        return self._types[given]

    def type(self, given: ir.Type) -> bytes:
        return varint(self.type_number(given))

    def types(self, given: Iterable[ir.Type]) -> bytes:
        return _counted([self.type(t) for t in given])

    def _made_type(self, given: ir.Type) -> int:
        if given == ir.TOKEN:
            return self._type("stablehlo", varint(0))
        if given in _PLAIN_TYPES:
            return self._type("builtin", varint(_PLAIN_TYPES[given]))
        if isinstance(given, PrimitiveType):
            return self._type("builtin", self._scalar(given))
        if isinstance(given, ir.FunctionType):
            return self._type("builtin", varint(_FUNCTION) + self.types(given.inputs) + self.types(given.results))
        if isinstance(given, ir.TupleType):
            return self._type("builtin", varint(_TUPLE) + self.types(given.elements))
        if isinstance(given, ir.Tensor) and given.dimensions is not None:
            encoding = b"" if given.encoding is None else self.attribute(given.encoding)
            sizes = _counted([signed(_UNKNOWN_SIZE if n is None else n) for n in given.dimensions])
            return self._type("builtin", varint(_ENCODED_TENSOR if encoding else _TENSOR) + encoding + sizes
                              + self.type(given.element))
        text = type_text(given)
        dialect = text[1:].partition(".")[0] if text.startswith("!") else "builtin"
        return self._type(dialect, text.encode() + b"\0", encoded=False)

    def _scalar(self, given: PrimitiveType) -> bytes:
        if given.is_complex:
            part = PrimitiveType.F32 if given.bits == 64 else PrimitiveType.F64
            return varint(_COMPLEX) + self.type(part)
        width = 1 if given is PRED else given.bits
        return varint(_INTEGER) + varint(width << 2 | (2 if given.is_unsigned and given is not PRED else 0))

    # ---- attributes

    def attribute(self, given: Any, name: str = "") -> bytes:
        """An attribute, whose name tells the width of numbers."""
        dialect, data = self._encoded(given, name)
        if data is not None:
            return varint(self._attribute(dialect, data))
        return varint(self._attribute(dialect, attribute_text(given, name).encode() + b"\0", encoded=False))

    def _encoded(self, given: Any, name: str) -> tuple[str, bytes | None]:
        """The dialect of an attribute and its bytes; None where it stands as text."""
        match given:
            case bool() if is_unit(name):
                return "builtin", varint(_UNIT)
            case bool():
                return "builtin", varint(_INTEGER_ATTRIBUTE) + self.type(PRED) + bytes([given])
            case int():
                of = integer_type(name)
                return "builtin", varint(_INTEGER_ATTRIBUTE) + self.type(of) + _integer(given, of.bits)
            case float():
                bits = int(np.float32(given).view(np.uint32))
                return "builtin", varint(_FLOAT_ATTRIBUTE) + self.type(PrimitiveType.F32) + _integer(bits, 32)
            case str() | bytes():
                return "builtin", varint(_BUILTIN[Reader.string]) + self.string(given)
            case tuple():
                return "builtin", self._list(given, name)
            case dict():
                return "builtin", varint(_DICTIONARY) + _counted([self.name(k) + self.attribute(v, k)
                                                                  for k, v in sorted(given.items())])
            case ir.Symbol() if not given.nested:
                return "builtin", varint(_SYMBOL) + self.name(given.name)
            case ir.Elements():
                return "builtin", varint(_ELEMENTS) + self.type(given.type) + _blob(_raw(given))
            case ir.Enum() | ir.Struct():
                dialect, _, kind = given.kind.partition(".")
                return dialect, self._of_dialect(given, dialect, kind)
            case ir.Opaque():
                return given.text[1:].partition(".")[0].partition("<")[0] if given.text.startswith("#") else "builtin", None
            case PrimitiveType() | ir.Tensor() | ir.TupleType() | ir.FunctionType() | ir.OtherType():
                return "builtin", varint(_BUILTIN[Reader.type]) + self.type(given)
        raise UnsupportedError("this attribute cannot be written", subject="MLIR bytecode", got=type(given).__name__)

    def _list(self, given: tuple[Any, ...], name: str) -> bytes:
        if given and all(isinstance(v, bool) for v in given):
            return varint(_ARRAY) + self.type(PRED) + varint(len(given)) + _blob(bytes(given))
        if all(isinstance(v, int) for v in given):
            of = integer_type(name)
            return varint(_ARRAY) + self.type(of) + varint(len(given)) + _blob(np.asarray(given, of.numpy).tobytes())
        return varint(_BUILTIN[Reader.attributes]) + _counted([self.attribute(v) for v in given])

    def _of_dialect(self, given: ir.Enum | ir.Struct, dialect: str, kind: str) -> bytes | None:
        found = encoding_of(dialect, kind)
        if found is None:
            return None
        code, fields = found
        if isinstance(given, ir.Enum):
            return varint(code) + varint(ENUMS[kind].index(given.value))
        if kind == "bounds":
            return varint(code) + _counted([signed(_UNKNOWN_SIZE if n is None else n) for n in given.fields["bounds"]])
        if any(f.read not in _FIELDS for f in fields):
            return None
        return varint(code) + b"".join(
            _FIELDS[f.read](self, given.fields[f.name] if f.name in given.fields else f.omitted[0]) for f in fields)

    # ---- locations

    def location(self, given: ir.Location | None) -> bytes:
        inner = varint(_UNKNOWN_PLACE)
        if given is not None and given.frames:
            file, line, column = given.frames[0]
            inner = varint(_PLACE) + self.name(file) + varint(line) + varint(column)
        if given is not None and given.name:
            inner = varint(_NAMED) + self.name(given.name) + varint(self._attribute("builtin", inner))
        return varint(self._attribute("builtin", inner))

    # ---- sections

    def sections(self) -> bytes:
        # Dialects and names first: they have strings.
        dialects = [_flagged(self.strings(name.encode()), False) for name in self.dialects.of]
        groups = []
        for name in self.names.of:
            dialect, _, own = name.partition(".")
            groups.append(varint(self.dialects.of[dialect]) + varint(1) + varint(self.strings(own.encode())))
        listed = _counted(dialects) + varint(len(groups)) + b"".join(groups)
        strings = list(self.strings.of)
        lengths = _counted([varint(len(s) + 1) for s in reversed(strings)])
        offsets = varint(len(self.entries[0].of)) + varint(len(self.entries[1].of)) + b"".join(
            varint(dialect) + varint(1) + _flagged(len(data), encoded)
            for each in self.entries for dialect, encoded, data in each.of)
        return b"".join([
            _section(_DIALECTS, listed), _section(_ENTRIES, b"".join(data for each in self.entries for _, _, data in each.of)),
            _section(_OFFSETS, offsets), _section(_STRINGS, lengths + b"".join(s + b"\0" for s in strings))])


def _raw(given: ir.Elements) -> bytes:
    """Elements as MLIR has them in memory: one that stands for all, or all, truth values eight in a byte."""
    value = np.ascontiguousarray(given.value)
    flat = value.reshape(-1)
    is_splat = flat.size > 1 and value.tobytes() == flat[:1].tobytes() * flat.size
    if is_splat:
        flat = flat[:1]
    if given.type.element is PRED:
        return (b"\xff" if flat[0] else b"\0") if flat.size == 1 else np.packbits(flat != 0, bitorder="little").tobytes()
    if isinstance(given.type.element, PrimitiveType) and given.type.element.is_integral and given.type.element.bits < 8:
        return (flat.astype(np.int8).view(np.uint8) & ((1 << given.type.element.bits) - 1)).tobytes()
    return flat.tobytes()


def _codes() -> tuple[dict[Any, int], dict[Any, int], dict[Any, int]]:
    """The code of each kind of attribute and type is its place in the reader's list."""
    attributes = {read: k for k, read in enumerate(builtin.ATTRIBUTES)}
    types = {read: k for k, read in enumerate(builtin.TYPES)}
    return attributes, types, {t: k for t, k in types.items() if isinstance(t, PrimitiveType | ir.OtherType)}


_BUILTIN, _TYPES, _PLAIN_TYPES = _codes()
_DICTIONARY, _SYMBOL, _UNIT, _INTEGER_ATTRIBUTE, _FLOAT_ATTRIBUTE, _PLACE, _NAMED, _UNKNOWN_PLACE = 1, 4, 7, 8, 9, 11, 14, 15
_ARRAY, _ELEMENTS = 17, 18
_INTEGER, _FUNCTION, _COMPLEX, _TENSOR, _ENCODED_TENSOR, _TUPLE = 0, 2, 9, 13, 14, 15
_FIELDS: dict[Any, Callable[[_Tables, Any], bytes]] = {
    Reader.signed: lambda tables, value: signed(value),
    Reader.signed_list: lambda tables, value: _counted([signed(n) for n in value]),
    Reader.type: lambda tables, value: tables.type(value),
    Reader.boolean: lambda tables, value: bytes([bool(value)]),
    Reader.double: lambda tables, value: _integer(int(np.float64(value).view(np.uint64)), 64),
    Reader.attribute: lambda tables, value: tables.attribute(value),
}
"""How a field is written that the reader reads so."""

# --------------------------------------------------------------------------------------------------------------- operations

_ISOLATED = ("builtin.module", "func.func")


class _Writer:
    """Operations in one walk; values are counted as the reader counts them (`bytecode_operations.py`)."""

    def __init__(self) -> None:
        self.tables = _Tables()

    def operation(self, operation: ir.Operation, numbers: dict[ir.Value, int], end: int) -> bytes:
        """An operation, in a region behind whose values the next number is `end`."""
        tables, attributes = self.tables, operation.attributes
        tables.dialects(operation.name.partition(".")[0])
        mask = (bool(attributes) * ATTRIBUTES | bool(operation.results) * RESULTS | bool(operation.operands) * OPERANDS
                | bool(operation.regions) * REGIONS)
        parts = [varint(tables.names(operation.name)), bytes([mask]), tables.location(operation.location)]
        if attributes:
            parts.append(tables.attribute(dict(attributes)))
        if operation.results:
            parts.append(tables.types([r.type for r in operation.results]))
        if operation.operands:
            parts.append(_counted([varint(numbers[v]) for v in operation.operands]))
        if operation.regions:
            isolated = operation.name in _ISOLATED
            parts.append(_flagged(len(operation.regions), isolated))
            inner = b"".join(self._region(r, {} if isolated else numbers, 0 if isolated else end) for r in operation.regions)
            parts.append(_section(_OPERATIONS, inner) if isolated else inner)
        return b"".join(parts)

    def _region(self, region: ir.Region, numbers: dict[ir.Value, int], begin: int) -> bytes:
        values = [v for b in region.blocks for v in (*b.arguments, *(r for o in b.operations for r in o.results))]
        numbers |= {v: begin + k for k, v in enumerate(values)}
        blocks = [self.block(b, numbers, begin + len(values)) for b in region.blocks]
        return varint(len(blocks)) + varint(len(values)) + b"".join(blocks)

    def block(self, block: ir.Block, numbers: dict[ir.Value, int], end: int) -> bytes:
        parts = [_flagged(len(block.operations), bool(block.arguments))]
        if block.arguments:
            parts.append(varint(len(block.arguments)))
            for argument in block.arguments:
                parts.append(_flagged(self.tables.type_number(argument.type), argument.location is not None))
                if argument.location is not None:
                    parts.append(self.tables.location(argument.location))
            parts.append(b"\0")  # no orders of uses
        return b"".join([*parts, *(self.operation(o, numbers, end) for o in block.operations)])


def write_module(module: ir.Operation) -> bytes:
    """The bytecode of a ``builtin.module``. Raises UnsupportedError for what only readers know."""
    writer = _Writer()
    operations = writer.block(ir.Block((), [module]), {}, 0)
    return b"".join([_MAGIC, varint(VERSION), _PRODUCER, b"\0", writer.tables.sections(), _section(_OPERATIONS, operations)])
