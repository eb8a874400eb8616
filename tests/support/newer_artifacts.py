"""Portable artifacts as versions of StableHLO write them that are newer than the installed jaxlib: its own, with operations in
later versions. (Facts: the log in VhloDialect.td, and stablehlo_legalize_to_vhlo.1_22_0.mlir beside it.)"""

from __future__ import annotations

from collections.abc import Callable

from xla_torch.mlir.bytecode.writing import varint

_PROPERTIES = 8
"""The number of the section of properties."""


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of MLIR's and where it ends."""
    first = data[at]
    if first == 0:
        return int.from_bytes(data[at + 1:at + 9], "little"), at + 9
    length = (first & -first).bit_length()
    return int.from_bytes(data[at:at + length], "little") >> length, at + length


def numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = _number(data, at)
        found.append(number)
    return found


def newer(artifact: bytes, name: str, later: str, change: Callable[[list[list[int]]], list[list[int]]], version: str) -> bytes:
    """An artifact with an operation in its later version; `change` makes the numbers of all properties of the earlier ones."""
    before = artifact
    artifact = artifact.replace(name.encode(), later.encode())
    assert artifact != before or name == later
    assert len(name) == len(later)
    start = artifact.index(b"\0", 5) + 1  # behind the version and the producer
    made, at = artifact[:start].replace(b"StableHLO_v1.17.0", b"StableHLO_v" + version.encode()), start
    while at < len(artifact):
        kind = artifact[at]
        size, begin = _number(artifact, at + 1)
        assert not kind & 0x80, "a section that is aligned"
        data = artifact[begin:begin + size]
        if kind == _PROPERTIES:
            data = _changed(data, change)
        made, at = made + bytes([kind]) + varint(len(data)) + data, begin + size
    return made


def _changed(section: bytes, change: Callable[[list[list[int]]], list[list[int]]]) -> bytes:
    count, at = _number(section, 0)
    found = []
    for _ in range(count):
        size, begin = _number(section, at)
        found.append(numbers(section[begin:begin + size]))
        at = begin + size
    parts = [b"".join(map(varint, part)) for part in change(found)]
    return varint(count) + b"".join(varint(len(part)) + part for part in parts)
