"""Which message of XLA's protos some bytes are, told by their content, without the protobuf library.

A proto does not say what it is. But a module has computations, these have instructions, and an instruction has an opcode: where
that is found tells which message this is.
"""

from __future__ import annotations

import re

from ..core.errors import HloSyntaxError
from .wire import LENGTH, VARINT, Field, fields, varint

MODULE, PROTO, WITH_CONFIG = "HloModuleProto", "HloProto", "HloModuleProtoWithConfig"
SNAPSHOT, UNOPTIMIZED = "HloSnapshot", "HloUnoptimizedSnapshot"
DELIMITED = "delimited HloUnoptimizedSnapshot"
"""The form in which XLA writes large ones: behind the proto's length, and its arguments behind the proto."""

_opcode = re.compile(rb"[a-z][a-z0-9-]*")


def kind_of(data: memoryview) -> str | None:
    """Which of the messages bytes are, by their content; None for none of them."""
    try:
        return _kind(data) or (DELIMITED if _is_delimited(data) else None)
    except HloSyntaxError:
        try:
            return DELIMITED if _is_delimited(data) else None
        except HloSyntaxError:
            return None


def _kind(data: memoryview) -> str | None:
    if _is_module(data, 0, len(data)):
        return MODULE
    parts = list(fields(data, 0, len(data)))
    first = _first(parts, 1)
    if first is None:
        return None
    if not _is_module(data, first.start, first.end):
        inner = _first(list(fields(data, first.start, first.end)), 1)
        return SNAPSHOT if inner is not None and _is_module(data, inner.start, inner.end) else None
    if any(part.number == 3 and part.wire == VARINT for part in parts):
        return UNOPTIMIZED
    second = _first(parts, 2)
    if second is None:
        return PROTO
    own = {part.number for part in fields(data, second.start, second.end)}
    return UNOPTIMIZED if own <= {1, 2} else WITH_CONFIG


def _is_delimited(data: memoryview) -> bool:
    size, start = varint(data, 0, len(data))
    if not 0 < size <= len(data) - start:
        return False
    return _kind(data[start:start + size]) in (UNOPTIMIZED, PROTO)


def _is_module(data: memoryview, start: int, end: int) -> bool:
    """Whether the bytes are a module: the first of its computations has an instruction, and that an opcode."""
    try:
        computation = _first_of(data, start, end, 3)
        instruction = computation and _first_of(data, computation.start, computation.end, 2)
        opcode = instruction and _first_of(data, instruction.start, instruction.end, 2)
    except HloSyntaxError:
        return False
    return opcode is not None and _opcode.fullmatch(data[opcode.start:opcode.end]) is not None


def _first_of(data: memoryview, start: int, end: int, number: int) -> Field | None:
    return next((f for f in fields(data, start, end) if f.number == number and f.wire == LENGTH), None)


def _first(parts: list[Field], number: int) -> Field | None:
    return next((f for f in parts if f.number == number and f.wire == LENGTH), None)
