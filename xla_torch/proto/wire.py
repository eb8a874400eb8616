"""The bytes of protos: large data of literals taken out before protobuf sees them, and put in again after it.

protobuf would copy a literal's elements into messages of its own and hand them out one by one. So `cut` walks over the bytes (and
only into messages that are large and may hold literals), leaves the large fields of literals out, and notes in each literal
which of the parts that were taken out are its own; `spliced` is the inverse.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from ..core.errors import HloSyntaxError
from .schema import BLOBS, fields_of, messages

Bytes: TypeAlias = bytes | bytearray | memoryview

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types: what follows a field's tag."""

LARGE = 4096
"""Messages and data of fewer bytes are left to protobuf."""

MOST_DEEP = 100
"""How deep messages may lie in each other, as protobuf has it."""

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


# ----------------------------------------------------------------------------------------------------------- taking out


@functools.cache
def _ways() -> dict[str, dict[int, str]]:
    """For each message that may hold literals, by field number, the messages in it that may."""
    inner = {name: {n: kind.removesuffix("*") for n, (kind, _) in fields_of(name).items()} for name in messages()}
    holders = {"LiteralProto"}
    while more := {name for name, kinds in inner.items() if not holders.isdisjoint(kinds.values())} - holders:
        holders |= more
    return {name: {n: kind for n, kind in inner[name].items() if kind in holders} for name in holders}


@functools.cache
def _data_fields() -> frozenset[int]:
    """The numbers of a literal's fields that hold elements."""
    return frozenset(n for n, (_, name) in fields_of("LiteralProto").items()
                     if name.endswith("s") and name not in ("tuple_literals", "dynamic_sizes", "sparse_indices", "blobs"))


def cut(data: memoryview, message: str) -> tuple[bytes, list[memoryview]]:
    """The bytes of a message without the large data of its literals, and these data. Each literal says in its ``blobs`` which
    of them are its own. Raises HloSyntaxError for bytes that are no proto."""
    blobs: list[memoryview] = []
    pieces = _cut(data, 0, len(data), message, blobs, 0)
    return bytes(data) if pieces is None else b"".join(pieces), blobs


def _cut(data: memoryview, start: int, end: int, message: str, blobs: list[memoryview], depth: int) -> list[Bytes] | None:
    """The message in pieces; None where nothing was taken out of it."""
    if depth > MOST_DEEP:
        raise malformed("messages lie too deep in each other", start, f"{MOST_DEEP} at most")
    ways, is_literal = _ways()[message], message == "LiteralProto"
    pieces: list[Bytes] = []
    kept = start
    for field in fields(data, start, end):
        number, wire, tag, value, after = field
        if is_literal and number == BLOBS:
            raise malformed("a literal has a field that no file has", tag)
        if wire != LENGTH:
            continue
        if is_literal and number in _data_fields():
            pieces += [data[kept:tag], _blob(number, len(blobs))]
            blobs.append(data[value:after])
            kept = after
        elif after - value >= LARGE and number in ways:
            inner = _cut(data, value, after, ways[number], blobs, depth + 1)
            if inner is not None:
                pieces += [data[kept:tag], key(number, LENGTH), number_bytes(sum(map(len, inner))), *inner]
                kept = after
    if not pieces:
        return None
    pieces.append(data[kept:end])
    return pieces


def _blob(field: int, number: int) -> bytes:
    body = key(1, VARINT) + number_bytes(field) + key(2, VARINT) + number_bytes(number)
    return key(BLOBS, LENGTH) + number_bytes(len(body)) + body


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


# ----------------------------------------------------------------------------------------------------------- putting in


def spliced(data: bytes, message: str, blobs: Sequence[Bytes]) -> list[Bytes]:
    """The inverse of `cut`: the whole message, in pieces that one after another are its bytes."""
    if not blobs:
        return [data]
    pieces = _spliced(memoryview(data), 0, len(data), message, blobs)
    return [data] if pieces is None else pieces


def _spliced(data: memoryview, start: int, end: int, message: str, blobs: Sequence[Bytes]) -> list[Bytes] | None:
    ways, is_literal = _ways()[message], message == "LiteralProto"
    pieces: list[Bytes] = []
    kept = start
    for number, wire, tag, value, after in fields(data, start, end):
        inner: list[Bytes] | None = None
        if wire == LENGTH and is_literal and number == BLOBS:
            stated = {f.number: varint(data, f.start, f.end)[0] for f in fields(data, value, after)}
            number, inner = stated[1], [blobs[stated.get(2, 0)]]
        elif wire == LENGTH and number in ways:
            inner = _spliced(data, value, after, ways[number], blobs)
        if inner is not None:
            size = sum(memoryview(piece).nbytes for piece in inner)
            pieces += [data[kept:tag], key(number, LENGTH), number_bytes(size), *inner]
            kept = after
    if not pieces:
        return None
    pieces.append(data[kept:end])
    return pieces


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
