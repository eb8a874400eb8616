"""The large data of literals in protos, taken out before protobuf sees them, and put in again after it.

protobuf would copy a literal's elements into messages of its own and hand them out one by one. So `cut` walks over the bytes (and
only into messages that are large and may hold literals), leaves the large fields of literals out, and notes in each literal
which of the parts that were taken out are its own; `spliced` is the inverse.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .schema import fields_of, messages
from .wire import BLOBS, LENGTH, VARINT, Bytes, fields, key, malformed, number_bytes, varint

LARGE = 4096
"""Messages and data of fewer bytes are left to protobuf."""

MOST_DEEP = 100
"""How deep messages may lie in each other, as protobuf has it."""


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
