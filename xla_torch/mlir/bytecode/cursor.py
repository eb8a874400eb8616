"""The cursor over MLIR bytecode: numbers of variable length, sections, blobs. What does not fit raises an error with the byte.

Encoding: mlir.llvm.org/docs/BytecodeFormat (a varint's low bits say how many bytes follow; signed ones are zigzag).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.errors import HloSyntaxError
from ...core.types import PrimitiveType

Buffer = bytes | memoryview

MAGIC = b"ML\xefR"
"""The first bytes of MLIR bytecode."""

_FOLLOWING = bytes([8, *((b & -b).bit_length() - 1 for b in range(1, 256))])
"""How many bytes follow a varint's first byte: as many as it has trailing zeros."""


def malformed(what: str, offset: int, got: object = "", expected: object = "") -> HloSyntaxError:
    """The error for bytes that are no bytecode."""
    return HloSyntaxError(what, subject="MLIR bytecode", got=got, expected=expected, where=f"byte {offset}")


class Section(NamedTuple):
    number: int
    begin: int
    end: int


class Cursor:
    """A position in `data`, which ends at `end`. Positions are those of the whole file."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: Buffer, begin: int, end: int):
        self.data, self.pos, self.end = data, begin, end

    @property
    def is_empty(self) -> bool:
        return self.pos >= self.end

    def _truncated(self, wanted: int) -> HloSyntaxError:
        return malformed("the data end in the middle of an entry", self.pos, f"{max(self.end - self.pos, 0)} bytes",
                         f"{wanted} bytes")

    def byte(self) -> int:
        if self.pos >= self.end:
            raise self._truncated(1)
        self.pos += 1
        return self.data[self.pos - 1]

    def varint(self) -> int:
        data, pos = self.data, self.pos
        if pos >= self.end:
            raise self._truncated(1)
        first = data[pos]
        if first & 1:
            self.pos = pos + 1
            return first >> 1
        following = _FOLLOWING[first]
        stop = pos + 1 + following
        if stop > self.end:
            raise self._truncated(stop - pos)
        self.pos = stop
        if first == 0:
            return int.from_bytes(data[pos + 1:stop], "little")
        return int.from_bytes(data[pos:stop], "little") >> (following + 1)

    def flagged(self) -> tuple[int, bool]:
        """A varint whose lowest bit is a flag."""
        value = self.varint()
        return value >> 1, bool(value & 1)

    def signed(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def count(self, what: str) -> int:
        """A varint that counts entries, each of which takes a byte at least."""
        begin, value = self.pos, self.varint()
        if value > self.end - self.pos:
            raise malformed(f"more {what} than there are bytes", begin, value, f"at most {self.end - self.pos}")
        return value

    def signed_list(self) -> tuple[int, ...]:
        return tuple([self.signed() for _ in range(self.count("numbers"))])

    def take(self, size: int) -> memoryview:
        """The next bytes, as a view."""
        begin = self.pos
        if size > self.end - begin:
            raise self._truncated(size)
        self.pos = begin + size
        return memoryview(self.data)[begin:self.pos]

    def blob(self) -> memoryview:
        return self.take(self.varint())

    def align(self, alignment: int) -> None:
        """Skip the padding in front of what lies at a multiple of `alignment`."""
        if alignment == 0 or alignment & alignment - 1:
            raise malformed("an alignment that is no power of two", self.pos, alignment)
        padded = -self.pos % alignment
        self.take(padded)

    def section(self) -> Section:
        begin, marked = self.pos, self.byte()
        size = self.varint()
        if marked & 0x80:
            self.align(self.varint())
        if size > self.end - self.pos:
            raise malformed("a section that ends behind the data", begin, f"{size} bytes", f"at most {self.end - self.pos}")
        found = Section(marked & 0x7F, self.pos, self.pos + size)
        self.pos = found.end
        return found

    def integer(self, bits: int) -> int:
        """An integer whose width is known, as its bits (not negative)."""
        if bits <= 8:
            value = self.byte()
        elif bits <= 64:
            value = self.signed()
        else:
            value = sum((self.signed() & (1 << 64) - 1) << 64 * k for k in range(self.count("words")))
        return value & (1 << bits) - 1

    def double(self) -> float:
        return self.floating(PrimitiveType.F64)

    def floating(self, of: PrimitiveType) -> float:
        bits = self.integer(of.bits)
        return float(np.frombuffer(bits.to_bytes(of.itemsize, "little"), of.numpy)[0])
