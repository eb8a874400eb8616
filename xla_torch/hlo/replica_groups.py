"""The three spellings of replica groups in HLO text (hlo/SPEC.md, Replica groups in text)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from .scanner import Scanner, nearest

Groups = tuple[tuple[int, ...], ...]

_mesh_axis = re.compile(r"['\"]([^'\"]++)['\"]\s*+=\s*+([0-9]{1,18})")
_group_axis = re.compile(r"['\"]([^'\"]++)['\"](?:\s*+:\s*+\(([0-9]{1,18})\)([0-9]{1,18}))?")
MOST_DEVICES = 2**20
"""Devices that groups may have: ids are kept one by one, and no machine has so many."""
_device_ids = re.compile(r"device_ids\s*+=\s*+")


def parse_replica_groups(scanner: Scanner) -> Groups:
    """Read ``{{0,1},{2,3}}``, ``[2,2]<=[4]`` or ``mesh['a'=2,'b'=2] {'a'}``. Raises HloSyntaxError."""
    if scanner.looking_at("{"):
        return tuple(scanner.listed(lambda: tuple(scanner.listed(scanner.integer))))
    start = scanner.pos
    if scanner.accept_word("mesh"):
        return _mesh_groups(scanner, start)
    shape = scanner.listed(scanner.integer, "[", "]")
    scanner.expect("<=", "in an iota list of replica groups")
    at = scanner.skip()
    ids = _iota(scanner)
    if (ids.ndim > 1) != (scanner.text.find("T", at, scanner.pos) >= 0):
        raise scanner.error("ids over several dimensions, and only they, are transposed", at, "[4] or [2,2]T(1,0)")
    if len(shape) != 2 or min(shape) < 1 or shape[0] * shape[1] != ids.size:
        raise scanner.error("the replica groups do not hold all ids", start, f"[groups,size] whose product is {ids.size}")
    return _rows(ids.reshape(shape))


def _mesh_groups(scanner: Scanner, start: int) -> Groups:
    """Groups vary along the named axes of a mesh of devices; ``'a':(2)3`` names a part of an axis."""

    def axis() -> tuple[str, int]:
        match = scanner.match(_mesh_axis, "an axis of the mesh, as in 'a'=2")
        return match.group(1), int(match.group(2))

    def chosen_axis() -> tuple[str, int, int | None]:
        name, before, size = scanner.match(_group_axis, "the name of an axis in quotes").groups()
        return name, int(before or 1), int(size) if size else None

    axes = dict(scanner.listed(axis, "[", "]"))
    ids = _consecutive(scanner, start, list(axes.values()))
    if scanner.accept(","):
        scanner.match(_device_ids, "device_ids=")
        ids = parse_devices(scanner)
    chosen = scanner.listed(chosen_axis)
    if ids.size != math.prod(axes.values()):
        raise scanner.error("the mesh's device ids do not fill its axes", start, f"{math.prod(axes.values())} ids")
    if any(before < 1 or size == 0 for _, before, size in chosen):
        raise scanner.error("a part of a mesh axis has no size", start, "sizes of 1 or more")
    unknown = [name for name, _, _ in chosen if name not in axes]
    if unknown:
        raise scanner.error(f"the mesh has no axis {unknown[0]!r}", start, hint=nearest(unknown[0], axes))
    parts = _split_axes(scanner, start, axes, chosen)
    if math.prod(size for size, order in parts if order is not None) < 2:
        raise scanner.error("a group along axes of a mesh has more than one member", start)
    fixed = [place for place, (_, order) in enumerate(parts) if order is None]
    varying = [place for _, place in sorted((order, place) for place, (_, order) in enumerate(parts) if order is not None)]
    grid = ids.reshape([size for size, _ in parts]).transpose(fixed + varying)
    return _rows(grid.reshape(-1, math.prod(parts[place][0] for place in varying)))


def _consecutive(scanner: Scanner, start: int, dims: Sequence[int]) -> np.ndarray:
    """The ids of so many devices as are in a grid of these sizes."""
    if min(dims, default=1) < 1 or math.prod(dims) > MOST_DEVICES:
        raise scanner.error("a grid of devices has a wrong size", start,
                            f"sizes of 1 or more, and {MOST_DEVICES} devices at most")
    return np.arange(math.prod(dims))


def _split_axes(scanner: Scanner, start: int, axes: Mapping[str, int],
                chosen: Sequence[tuple[str, int, int | None]]) -> list[tuple[int, int | None]]:
    """The mesh's axes, split where only a part is chosen: the size of each, and its place among the chosen or None."""
    parts: list[tuple[int, int | None]] = []
    for name, size in axes.items():
        done = 1
        for before, length, order in sorted((before, length or size, order)
                                            for order, (axis, before, length) in enumerate(chosen) if axis == name):
            if before % done or size % (before * length):
                raise scanner.error(f"the mesh axis {name!r} of size {size} has no such part", start)
            parts += [(before // done, None), (length, order)]
            done = before * length
        parts.append((size // done, None))
    return parts


def parse_devices(scanner: Scanner) -> np.ndarray:
    """``(3,1,2,0)`` or ``([2,2]T(1,0))``."""
    scanner.expect("(")
    if not scanner.looking_at("["):
        scanner.pos -= 1
        return np.array(scanner.listed(scanner.integer, "(", ")"))
    ids = _iota(scanner)
    scanner.expect(")")
    return ids


def _iota(scanner: Scanner) -> np.ndarray:
    """``[4,2]T(1,0)``: 0, 1, ... over these dimensions, transposed."""
    start = scanner.skip()
    dims = scanner.listed(scanner.integer, "[", "]")
    ids = _consecutive(scanner, start, dims).reshape(dims)
    if not scanner.accept("T"):
        return ids
    permutation = scanner.listed(scanner.integer, "(", ")")
    if sorted(permutation) != list(range(len(dims))):
        raise scanner.error("the transpose of an iota list is not a permutation of its dimensions", start)
    return ids.transpose(permutation)


def _rows(groups: np.ndarray) -> Groups:
    return tuple(tuple(row) for row in groups.tolist())
