"""MLIR's own attributes, types and locations in bytecode.

Codes and fields: mlir/include/mlir/IR/BuiltinDialectBytecode.td. A code is the place in its list; what newer versions add stands
behind, so codes keep their meaning.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...core.errors import UnsupportedError
from ...core.types import C64, C128, F32, F64, PRED, PrimitiveType, type_from_text
from .. import ir
from ..text.types import type_text
from .cursor import malformed
from .elements import from_bytes, numpy_type
from .reader import Reader

FRAMES = 256
"""How many frames of a location are kept; deeper stacks, which only harmful files have, are cut."""

# -------------------------------------------------------------------------------------------------------------- attributes


def builtin_attribute(reader: Reader) -> Any:
    begin, code = reader.pos, reader.varint()
    if code >= len(ATTRIBUTES):
        raise malformed("an attribute of an unknown kind", begin, code, f"less than {len(ATTRIBUTES)}")
    return ATTRIBUTES[code](reader)


def dictionary(reader: Reader) -> dict[str, ir.Attribute]:
    return {reader.name(): reader.attribute() for _ in range(reader.count("attributes"))}


def _typed_string(reader: Reader) -> str | bytes:
    found = reader.string()
    reader.type()
    return found


def _flat_symbol(reader: Reader) -> ir.Symbol:
    return ir.Symbol(reader.name())


def _symbol(reader: Reader) -> ir.Symbol:
    root, begin, nested = reader.name(), reader.pos, reader.attributes()
    if not all(isinstance(part, ir.Symbol) for part in nested):
        raise malformed("a symbol's part is no symbol", begin)
    return ir.Symbol(root, tuple([part.name for part in nested]))


def integer_value(bits: int, of: ir.Type) -> ir.Attribute:
    """An integer from its bits, with the sign that its type has."""
    if of is PRED:
        return bool(bits)
    if of.is_unsigned if isinstance(of, PrimitiveType) else isinstance(of, ir.OtherType) and of.text.startswith("ui"):
        return bits
    width = integer_width(of)
    return bits - (1 << width) if bits >> width - 1 else bits


def integer_width(of: ir.Type) -> int:
    """The bits of an integer type; 0 for other types."""
    if of is PRED:
        return 1
    if of == ir.INDEX:
        return 64
    if isinstance(of, PrimitiveType):
        return of.bits if of.is_integral else 0
    found = re.fullmatch(r"[su]?i(\d+)", of.text) if isinstance(of, ir.OtherType) else None
    return int(found[1]) if found else 0


def integer_attribute(reader: Reader) -> ir.Attribute:
    begin, of = reader.pos, reader.type()
    width = integer_width(of)
    if not width:
        raise malformed("an integer whose type is none", begin, of)
    return ir.typed(integer_value(reader.integer(width), of), of)


def float_attribute(reader: Reader) -> float:
    of = reader.type()
    if not isinstance(of, PrimitiveType) or not of.is_floating:
        raise UnsupportedError("unknown float type", subject="MLIR bytecode", got=of, where=f"byte {reader.pos}")
    return ir.typed(reader.floating(of), of)


def _resource(reader: Reader) -> ir.Elements:
    of, begin = reader.type(), reader.pos
    return from_bytes(of, reader.resource(), begin)


def _array(reader: Reader) -> tuple[ir.Attribute, ...]:
    of, number, begin = reader.type(), reader.varint(), reader.pos
    data, dtype = reader.blob(), numpy_type(of)
    if len(data) != number * dtype.itemsize:
        raise malformed("an array that does not fill its data", begin, f"{len(data)} bytes", f"{number} of {dtype}")
    flat = np.frombuffer(data, np.uint8) != 0 if of is PRED else np.frombuffer(data, dtype)
    return ir.typed(tuple(flat.tolist()), of)


def elements(reader: Reader) -> ir.Elements:
    of, begin = reader.type(), reader.pos
    return from_bytes(of, reader.blob(), begin)


def _strings(reader: Reader) -> ir.Elements:
    of, begin, splat = reader.type(), reader.pos, reader.varint()
    if not isinstance(of, ir.Tensor) or not of.is_static:
        raise malformed("elements of a type without sizes", begin, of)
    shape: Any = of.dimensions
    number = 1 if splat else int(np.prod(shape, dtype=object))
    if number > reader.end - reader.pos:
        raise malformed("more strings than there are bytes", begin, number)
    values = np.empty(number, object)
    values[:] = [reader.string() for _ in range(number)]
    return ir.Elements(of, np.broadcast_to(values, shape) if splat else values.reshape(shape))


def _sparse(reader: Reader) -> Any:
    raise UnsupportedError("sparse elements are not supported", subject="MLIR bytecode", where=f"byte {reader.pos}")


def _distinct(reader: Reader) -> ir.Opaque:
    reader.attribute()
    return ir.Opaque("distinct<>")


def _layout(reader: Reader) -> ir.Opaque:
    """An affine map, an integer set or strides, which MLIR of jaxlib 0.12 encodes: how buffers lie, which programs on tensors do
    not say."""
    reader.pos = reader.end
    return ir.Opaque("a layout")


# --------------------------------------------------------------------------------------------------------------- locations


def _location(reader: Reader) -> ir.Location:
    begin, found = reader.pos, reader.attribute()
    if found is not None and not isinstance(found, ir.Location):
        raise malformed("a location that is none", begin, type(found).__name__)
    return found or ir.Location()


def _made(name: str, frames: tuple[tuple[str, int, int], ...]) -> ir.Location | None:
    return ir.Location(name, frames[:FRAMES]) if name or frames else None


def _call(reader: Reader) -> ir.Location | None:
    callee, caller = _location(reader), _location(reader)
    return _made(callee.name, callee.frames + caller.frames)


def _place(reader: Reader) -> ir.Location:
    return ir.Location("", ((reader.name(), reader.varint(), reader.varint()),))


def _range(reader: Reader) -> ir.Location:
    name, numbers = reader.name(), [reader.varint() for _ in range(reader.count("numbers"))]
    return ir.Location("", ((name, numbers[0] if numbers else 0, numbers[1] if len(numbers) > 1 else 0),))


def _fused(reader: Reader) -> ir.Location | None:
    parts = [_location(reader) for _ in range(reader.count("locations"))]
    frames: list[tuple[str, int, int]] = []
    for part in parts:
        frames += part.frames[:FRAMES - len(frames)]
    return _made(";".join([part.name for part in parts if part.name][:FRAMES]), tuple(frames))


def _fused_with_metadata(reader: Reader) -> ir.Location | None:
    found = _fused(reader)
    reader.attribute()
    return found


def _named(reader: Reader) -> ir.Location | None:
    return _made(reader.name(), _location(reader).frames)


ATTRIBUTES = (
    Reader.attributes, dictionary, Reader.string, _typed_string, _flat_symbol, _symbol, Reader.type, lambda reader: True,
    integer_attribute, float_attribute,
    _call, _place, _fused, _fused_with_metadata, _named, lambda reader: None, _resource, _array, elements, _strings, _sparse,
    _distinct, _range, _layout, _layout, _layout)

# ------------------------------------------------------------------------------------------------------------------- types


def builtin_type(reader: Reader) -> ir.Type:
    begin, code = reader.pos, reader.varint()
    if code >= len(TYPES):
        raise malformed("a type of an unknown kind", begin, code, f"less than {len(TYPES)}")
    made = TYPES[code]
    return made(reader) if callable(made) else made


def _integer_type(reader: Reader) -> ir.Type:
    width, sign = divmod(reader.varint(), 4)
    if width == 1 and sign == 0:
        return PRED
    found = type_from_text(f"{'su'[sign == 2]}{width}") if sign in (0, 2) else None
    return found or ir.OtherType(f"{('', 's', 'u', '')[sign]}i{width}")


def _function(reader: Reader) -> ir.FunctionType:
    return ir.FunctionType(reader.types(), reader.types())


def complex_type(reader: Reader) -> ir.Type:
    of = reader.type()
    return {F32: C64, F64: C128}.get(of) or ir.OtherType(f"complex<{type_text(of)}>")


def element_type(reader: Reader) -> Any:
    """The type of a tensor's elements."""
    begin, of = reader.pos, reader.type()
    if not isinstance(of, PrimitiveType | ir.Quantized | ir.OtherType):
        raise malformed("elements that are no scalars", begin, of)
    return of


def tensor(reader: Reader) -> ir.Tensor:
    return _tensor(reader, None)


def encoded_tensor(reader: Reader) -> ir.Tensor:
    return _tensor(reader, reader.attribute())


def _tensor(reader: Reader, encoding: ir.Attribute) -> ir.Tensor:
    begin, sizes = reader.pos, reader.sizes()
    if any(size is not None and size < 0 for size in sizes):
        raise malformed("a negative size", begin, sizes)
    return ir.Tensor(sizes, element_type(reader), encoding)


def unranked_tensor(reader: Reader) -> ir.Tensor:
    return ir.Tensor(None, element_type(reader))


def tuple_type(reader: Reader) -> ir.TupleType:
    return ir.TupleType(reader.types())


def _array_text(word: str, reader: Reader) -> ir.OtherType:
    sizes = "".join(f"{'?' if size is None else size}x" for size in reader.sizes())
    return ir.OtherType(f"{word}<{sizes}{type_text(reader.type())}>")


def _memory(reader: Reader) -> ir.OtherType:
    found = _array_text("memref", reader)
    reader.attribute()
    return found


def _memory_in_space(reader: Reader) -> ir.OtherType:
    reader.attribute()
    return _memory(reader)


def _unranked_memory(reader: Reader) -> ir.OtherType:
    return ir.OtherType(f"memref<*x{type_text(reader.type())}>")


def _unranked_memory_in_space(reader: Reader) -> ir.OtherType:
    reader.attribute()
    return _unranked_memory(reader)


def _vector(reader: Reader) -> ir.OtherType:
    return _array_text("vector", reader)


def _scalable_vector(reader: Reader) -> ir.OtherType:
    for _ in range(reader.count("flags")):
        reader.byte()
    return _array_text("vector", reader)


TYPES = (
    _integer_type, ir.INDEX, _function, PrimitiveType.BF16, PrimitiveType.F16, F32, F64, ir.OtherType("f80"),
    ir.OtherType("f128"),
    complex_type, _memory, _memory_in_space, ir.OtherType("none"), tensor, encoded_tensor, tuple_type, _unranked_memory,
    _unranked_memory_in_space, unranked_tensor, _vector, _scalable_vector, ir.OtherType("tf32"), PrimitiveType.F8E5M2,
    PrimitiveType.F8E4M3, PrimitiveType.F8E4M3FN, PrimitiveType.F8E5M2FNUZ, PrimitiveType.F8E4M3FNUZ, PrimitiveType.F8E4M3B11FNUZ,
    PrimitiveType.F8E3M4, PrimitiveType.F4E2M1FN, PrimitiveType.F6E2M3FN, PrimitiveType.F6E3M2FN, PrimitiveType.F8E8M0FNU)
