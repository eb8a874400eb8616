"""The bytes of protos: fields, numbers of variable length and lists of them, without the protobuf library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from ..core.errors import HloSyntaxError

Bytes: TypeAlias = bytes | bytearray | memoryview

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types: what follows a field's tag."""

BLOBS = 536870911
"""A field of LiteralProto that is in no file: `wire.cut` puts there which parts of the bytes it has taken out."""

_CHUNK = 1 << 20
"""Bytes of varints that are decoded at a time, so that what is needed meanwhile stays small."""


def malformed(what: str, offset: int, expected: str = "") -> HloSyntaxError:
    """The error of bytes that are no proto."""
    return HloSyntaxError(what, subject="HLO proto", expected=expected, where=f"byte {offset}")


def _wrong_elements(what: str, expected: str) -> HloSyntaxError:
    """The error of elements that are not those of their literal, which the caller knows."""
    return HloSyntaxError(what, expected=expected)


def varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. Raises HloSyntaxError for one that does not end."""
    value = shift = 0
    for position in range(at, min(end, at + 10)):
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
    raise malformed("a number is cut off or too long", at)


class Field(NamedTuple):
    """A field in the bytes: where its tag begins, and where its value does and ends."""

    number: int
    wire: int
    tag: int
    start: int
    end: int


def fields(data: Bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two places. Raises HloSyntaxError with the place where the bytes are none."""
    at = start
    while at < end:
        tag = at
        key, at = (data[at], at + 1) if data[at] < 128 else varint(data, at, end)
        number, wire = key >> 3, key & 7
        if not 0 < number <= BLOBS:
            raise malformed(f"there is no field {number}", tag)
        value = at
        if wire == LENGTH:
            size, value = varint(data, at, end)
            at = value + size
        elif wire == VARINT:
            at = varint(data, at, end)[1]
        elif wire in (FIXED32, FIXED64):
            at += 4 if wire == FIXED32 else 8
        else:
            raise malformed(f"there is no wire type {wire}", tag)
        if at > end:
            raise malformed("a field is cut off", tag, f"{at - end} more bytes")
        yield Field(number, wire, tag, value, at)


def key(field: int, wire: int) -> bytes:
    """A field's tag."""
    return number_bytes(field << 3 | wire)


def number_bytes(value: int) -> bytes:
    """A number that is not negative as a varint."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


# --------------------------------------------------------------------------------------------------------------- varints

_ENDS = np.array([0, *((1 << 8 * n) - 1 for n in range(1, 9)), 2**64 - 1, 2**64 - 1], np.uint64)
"""What to keep of eight bytes, by the length of the varint that begins them."""


def decoded(data: Bytes, count: int, dtype: np.dtype) -> np.ndarray:
    """`count` packed varints as an array of an integer or boolean type. Raises HloSyntaxError for another number of them.

    All at once, in chunks: a varint's end is a byte below 128; the eight bytes from its beginning are read as one number, whose
    groups of seven bits are pushed together.
    """
    raw = np.frombuffer(data, np.uint8)
    if not count <= raw.size <= 10 * count:
        raise _wrong_elements(f"a literal has {raw.size} bytes of elements", f"{count} elements of 1 to 10 bytes")
    found = np.empty(count, dtype)
    done = at = 0
    while at < raw.size:
        chunk = raw[at:at + _CHUNK]
        ends = np.flatnonzero(chunk < 128)
        if not ends.size or done + ends.size > count:
            raise _wrong_elements("a literal has more elements than its shape, or one that is cut off", str(count))
        found[done:done + ends.size] = _numbers(chunk, ends, found.dtype)
        done += ends.size
        at += int(ends[-1]) + 1
    if done != count:
        raise _wrong_elements(f"a literal has {done} elements", str(count))
    return found


def _numbers(chunk: np.ndarray, ends: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The varints of a chunk that end at these places."""
    if ends.size == chunk.size:
        return chunk.astype(dtype)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise _wrong_elements("an element of a literal is too long", "at most 10 bytes")
    padded = np.concatenate([chunk[:ends[-1] + 1], np.zeros(16, np.uint8)])
    words = np.ndarray((padded.size - 8,), "<u8", padded, strides=(1,))
    eight = words[starts] & _ENDS[lengths]
    values = eight & np.uint64(127)
    # Of 32 bits, no more than five groups of seven count.
    for group in range(1, 5 if dtype.itemsize <= 4 else 8):
        values |= (eight >> np.uint64(group)) & np.uint64(127 << 7 * group)
    if dtype.itemsize > 4 and (longer := np.flatnonzero(lengths > 8)).size:
        further = padded[starts[longer] + 8].astype(np.uint64) & np.uint64(127)
        last = np.where(lengths[longer] > 9, padded[starts[longer] + 9], 0).astype(np.uint64) & np.uint64(1)
        values[longer] |= further << np.uint64(56) | last << np.uint64(63)
    return values != 0 if dtype == np.bool_ else values.astype(dtype)


def encoded(values: np.ndarray) -> bytes:
    """Integers as packed varints; negative ones, of any width, take ten bytes."""
    flat = values.reshape(-1)
    return b"".join(_encoded(flat[at:at + _CHUNK // 8]) for at in range(0, flat.size, _CHUNK // 8))


def _encoded(values: np.ndarray) -> bytes:
    if values.dtype.kind == "i":
        values = values.astype(np.int64)
    wide = values.astype(np.uint64)
    if not (wide > 127).any():
        return wide.astype(np.uint8).tobytes()
    groups = wide[:, None] >> (np.arange(10, dtype=np.uint64) * np.uint64(7))
    used = groups != 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    return ((groups & np.uint64(127)).astype(np.uint8) | (more * np.uint8(128)))[used].tobytes()
