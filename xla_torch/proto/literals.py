"""LiteralProto to Literal and back.

A proto lists a literal's elements in the order of its layout: numbers packed one after another (integers of 32 and 64 bits as
varints), narrow types as bytes. Large data come as views of the file's bytes (`wire.cut`) and are copied once, into memory that
belongs to the literal: files change, and lie in them as they happen to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import HloSyntaxError, UnsupportedError, XlaError
from ..core.shape import Shape
from ..core.types import MAX_RANK, PRED, PrimitiveType, complex_part
from ..hlo.literals.literal import Literal
from ..hlo.memory import owned
from .large_data import LARGE
from .schema import fields_of
from .shapes import Shapes, write_shape
from .wire import Bytes, decoded, encoded

_NUMBERS = {name: n for n, (_, name) in fields_of("LiteralProto").items()}
_VARINT = ("int32*", "int64*", "uint32*", "uint64*", "bool*")
_SHARED = {"c64": "float*", "c128": "double*"}


def _field(element_type: PrimitiveType) -> str:
    """The name of the field that holds elements of a type."""
    name = f"{element_type.text}s"
    if name not in _NUMBERS:
        raise UnsupportedError(f"XLA's protos have no field for constants of {element_type.text}", subject="HLO proto",
                               hint="convert a constant of f32, or write HLO text")
    return name


def read_literal(proto: Any, blobs: Sequence[memoryview], shapes: Shapes) -> Literal:
    """The literal of a LiteralProto; `blobs` are what `wire.cut` has taken out. Raises HloSyntaxError where the elements are not
    those of the shape."""
    shape = shapes.read(proto.shape)
    try:
        return _literal(proto, shape, blobs, shapes)
    except XlaError as error:
        raise error.located(f"literal of {shape}") from None


def _literal(proto: Any, shape: Shape, blobs: Sequence[memoryview], shapes: Shapes) -> Literal:
    bare = shape.without_layout()
    if shape.is_tuple:
        parts = tuple(read_literal(part, blobs, shapes) for part in proto.tuple_literals)
        if [p.shape for p in parts] != [s.without_layout() for s in shape.tuple_shapes]:
            raise _wrong("the elements of a tuple are not those of its shape", ", ".join(str(p.shape) for p in parts))
        return Literal(bare, parts, elided=any(p.elided for p in parts))
    if not shape.is_array:
        raise _wrong("a literal cannot have this shape", str(shape))
    if proto.sparse_indices:
        raise UnsupportedError("sparse literals are not supported")
    return _placed(_elements(proto, shape, blobs), shape)


def _placed(flat: np.ndarray, shape: Shape) -> Literal:
    """The literal of elements in the order of their layout."""
    order = shape.minor_to_major
    if shape.rank > MAX_RANK:
        raise _wrong(f"a constant has more than {MAX_RANK} dimensions", str(shape))
    physical = flat.reshape([shape.dimensions[d] for d in reversed(order)])
    array = physical.transpose(np.argsort(order[::-1])) if shape.rank else physical
    return Literal(shape.without_layout(), array if array.flags.c_contiguous else np.ascontiguousarray(array))


def packed_elements(data: Bytes, shape: Shape, bits: int) -> Literal:
    """A literal from its elements one after another, each of so many bits."""
    count = shape.element_count
    if bits >= 8:
        return _placed(_from_bytes(data, shape.element_type, count), shape)
    raw = _unpacked(owned(data), bits)[:count]
    return _placed(_alone(raw, shape.element_type, bits), shape)


def _elements(proto: Any, shape: Shape, blobs: Sequence[memoryview]) -> np.ndarray:
    """The elements in the order in which the proto lists them."""
    element_type, count = shape.element_type, shape.element_count
    name = _field(element_type)
    taken = [blob.number for blob in proto.blobs if blob.field == _NUMBERS[name]]
    if any(not 0 <= number < len(blobs) for number in taken):
        raise _wrong("a literal refers to data that are not there", str(taken))
    listed = getattr(proto, name)
    if not taken:
        return _from_protobuf(listed, element_type, count)
    if len(listed):
        raise _wrong("the elements are packed and not packed", name)
    kind = fields_of("LiteralProto")[_NUMBERS[name]][0]
    if kind == "bytes":  # which of several is the last one, as protobuf has it
        return _from_bytes(blobs[taken[-1]], element_type, count)
    data = blobs[taken[0]] if len(taken) == 1 else b"".join(blobs[number] for number in taken)
    if kind in _VARINT:
        return decoded(data, count, _dtype(element_type))
    return _from_bytes(data, element_type, count)


def _from_protobuf(listed: Any, element_type: PrimitiveType, count: int) -> np.ndarray:
    """Elements that protobuf has read: bytes, or a list of numbers."""
    if isinstance(listed, bytes):
        return _from_bytes(listed, element_type, count)
    if element_type.is_complex:
        parts = _checked(np.array(listed, _dtype(complex_part(element_type))), 2 * count)
        return parts.view(_dtype(element_type))
    return _checked(np.array(listed, _dtype(element_type)), count)


def _from_bytes(data: Bytes, element_type: PrimitiveType, count: int) -> np.ndarray:
    dtype = _dtype(element_type)
    size = memoryview(data).nbytes
    if element_type.bits < 8:
        return _narrow(data, element_type, count)
    if size != count * dtype.itemsize:
        raise _wrong(f"a literal has {size} bytes of elements", expected=f"{count * dtype.itemsize}")
    return owned(data).view(dtype)


def _narrow(data: Bytes, element_type: PrimitiveType, count: int) -> np.ndarray:
    """Elements of less than a byte: one in a byte, or as many as it holds, the first in its low bits."""
    raw, bits = owned(data), element_type.bits
    packed = -(-count * bits // 8)
    if raw.size == packed != count:
        raw = _unpacked(raw, bits)[:count]
    if raw.size != count:
        raise _wrong(f"a literal has {raw.size} bytes of elements", expected=f"{count}, or {packed}")
    return _alone(raw, element_type, bits)


def _unpacked(raw: np.ndarray, bits: int) -> np.ndarray:
    """A byte for each element of less than a byte; the first one is in the low bits."""
    return (raw[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)).reshape(-1)


def _alone(raw: np.ndarray, element_type: PrimitiveType, bits: int) -> np.ndarray:
    """Elements in the low bits of bytes as NumPy holds them: with nothing in the high bits."""
    return (raw & np.uint8(2**bits - 1)).view(_dtype(element_type))


def _checked(found: np.ndarray, count: int) -> np.ndarray:
    if found.size != count:
        raise _wrong(f"a literal has {found.size} elements", expected=str(count))
    return found


def _dtype(element_type: PrimitiveType) -> np.dtype:
    assert element_type.numpy is not None
    return element_type.numpy


def _wrong(what: str, got: str = "", expected: str = "") -> HloSyntaxError:
    return HloSyntaxError(what, got=got, expected=expected, subject="")


# --------------------------------------------------------------------------------------------------------------- writing


def write_literal(literal: Literal, shape: Shape, proto: Any, blobs: list[Bytes]) -> None:
    """Fill a LiteralProto with a literal in the layout of `shape`; large data go to `blobs`, for `wire.spliced`."""
    write_shape(shape, proto.shape)
    if isinstance(literal.value, tuple):
        for part, part_shape in zip(literal.value, shape.tuple_shapes, strict=True):
            write_literal(part, part_shape, proto.tuple_literals.add(), blobs)
        return
    order = shape.minor_to_major[::-1]
    array = literal.value if order == tuple(range(shape.rank)) else literal.value.transpose(order)
    name = _field(shape.element_type)
    data = _data(np.ascontiguousarray(array).reshape(-1), fields_of("LiteralProto")[_NUMBERS[name]][0])
    size = memoryview(data).nbytes
    if size >= LARGE:
        proto.blobs.add(field=_NUMBERS[name], number=len(blobs))
        blobs.append(data)
    elif name.endswith("s") and isinstance(getattr(proto, name), bytes):
        setattr(proto, name, bytes(data))
    else:
        parts = array if not shape.element_type.is_complex else np.ascontiguousarray(array).reshape(-1).view(
            _dtype(complex_part(shape.element_type)))
        getattr(proto, name).extend(parts.reshape(-1).tolist())


def _data(flat: np.ndarray, kind: str) -> Bytes:
    """The bytes of elements as a field of this kind has them."""
    if kind in _VARINT and flat.dtype != _dtype(PRED):
        return encoded(flat)
    return flat.view(np.uint8).data  # narrow types are in the low bits, in NumPy as here
