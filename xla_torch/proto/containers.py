"""The protos that hold modules, told apart by their content: modules, protos around them, snapshots with arguments and results.

A proto does not say what it is. But a module has computations, these have instructions, and an instruction has an opcode: where
that is found tells which message this is.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from ..core.errors import HloSyntaxError
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.ir import Module
from ..hlo.literals.literal import Literal
from .kinds import DELIMITED, MODULE, SNAPSHOT, UNOPTIMIZED, kind_of
from .large_data import cut, spliced
from .literals import packed_elements, read_literal
from .reading import read_module
from .schema import message_class
from .shapes import Shapes
from .wire import Bytes, malformed, number_bytes, varint


@dataclasses.dataclass(frozen=True)
class HloFile:
    """A proto that was read: which message it is, the message itself, and the large data that were taken out of it.

    The message has every field of the file, known or not, and `to_bytes` writes all of them.
    """

    kind: str
    message: Any
    blobs: list[memoryview]
    rest: memoryview

    @property
    def module_proto(self) -> Any:
        """The HloModuleProto in it."""
        if self.kind == MODULE:
            return self.message
        return self.message.hlo.hlo_module if self.kind == SNAPSHOT else self.message.hlo_module

    def module(self) -> Module:
        """The program. Raises as `read_module` does."""
        return read_module(self.module_proto, self.blobs)

    def arguments(self) -> list[list[Literal]]:
        """For each partition the arguments that were stored; for a snapshot of a whole program one list."""
        shapes = Shapes()
        if self.kind == DELIMITED:
            return list(self._arguments_behind(shapes))
        partitions = [self.message] if self.kind == SNAPSHOT else self.message.partitions if self.kind == UNOPTIMIZED else []
        return [[read_literal(literal, self.blobs, shapes) for literal in p.arguments] for p in partitions]

    def result(self) -> Literal | None:
        """The result that was stored, if one was."""
        if self.kind != SNAPSHOT or not self.message.HasField("result"):
            return None
        return read_literal(self.message.result, self.blobs, Shapes())

    def to_bytes(self) -> bytes:
        """The file's bytes again, with all fields that are not known here."""
        name = UNOPTIMIZED if self.kind == DELIMITED else self.kind
        data = b"".join(spliced(self.message.SerializeToString(), name, self.blobs))
        return number_bytes(len(data)) + data + self.rest if self.kind == DELIMITED else data

    def _arguments_behind(self, shapes: Shapes) -> Iterator[list[Literal]]:
        at = 0
        for partition in self.message.partitions:
            found = []
            for descriptor in partition.arguments_descriptors:
                end = at + descriptor.argument_size_bytes
                if end > len(self.rest):
                    raise malformed("an argument of the snapshot is cut off", at, f"{end - len(self.rest)} more bytes")
                found.append(_raw_literal(self.rest[at:end], shapes))
                at = end
            yield found


def read_proto(data: Bytes) -> HloFile:
    """Read any of the protos above. Raises HloSyntaxError, with the place, for bytes that are none of them."""
    view = memoryview(data)
    kind = kind_of(view)
    if kind is None:
        raise HloSyntaxError("not an HLO proto", subject="HLO proto", got=f"bytes that begin with {bytes(view[:8])!r}",
                             expected="an HloModuleProto, an HloProto, or a snapshot")
    start = end = 0
    if kind == DELIMITED:
        size, start = varint(view, 0, len(view))
        end = start + size
    body = view[start:end or len(view)]
    name = UNOPTIMIZED if kind == DELIMITED else kind
    small, blobs = cut(body, name)
    try:
        message = message_class(name).FromString(small)
    except DecodeError as error:
        raise HloSyntaxError("protobuf cannot read the bytes", subject=name, got=str(error)) from None
    return HloFile(kind, message, blobs, view[end:] if end else view[:0])


def _raw_literal(data: memoryview, shapes: Shapes) -> Literal:
    """A literal as XLA serialises it outside of protos: the size of its shape, the shape, and its elements; truth values eight
    in a byte, other narrow types as many as it holds, the first in the low bits."""
    if len(data) < 8:
        raise malformed("an argument of the snapshot is cut off", 0, "a size of 8 bytes")
    size = struct.unpack("<q", data[:8])[0]
    if not 0 <= size <= len(data) - 8:
        raise malformed("the shape of an argument is cut off", 0, f"{size} bytes")
    try:
        shape = shapes.read(message_class("ShapeProto").FromString(bytes(data[8:8 + size])))
    except DecodeError as error:
        raise malformed(f"the shape of an argument cannot be read: {error}", 8) from None
    literal, end = _raw_elements(data, 8 + size, shape)
    if end != len(data):
        raise malformed("something follows an argument of the snapshot", end)
    return literal


def _raw_elements(data: memoryview, at: int, shape: Shape) -> tuple[Literal, int]:
    if shape.is_tuple:
        parts = []
        for part in shape.tuple_shapes:
            literal, at = _raw_elements(data, at, part)
            parts.append(literal)
        return Literal(shape.without_layout(), tuple(parts)), at
    if not shape.is_array:
        raise malformed(f"a literal cannot have the shape {shape}", at)
    at += 4 * shape.rank if not shape.is_static else 0
    bits = 1 if shape.element_type is PRED else shape.element_type.bits
    size = -(-shape.element_count * bits // 8)
    if at + size > len(data):
        raise malformed(f"the elements of a literal of {shape} are cut off", at, f"{size} bytes")
    return packed_elements(data[at:at + size], shape, bits), at + size
