"""Shardings in terms of a mesh: partitions form a grid whose axes have names, and dimensions of an array are cut along axes.

Newer HLO text has them as ``{mesh['x'=2,'y'=2], [{'x'}, {}]}``, and Shardy as ``#sdy.sharding<@mesh, [{"x"}, {}]>``, with the
mesh elsewhere; in frontend attributes that survives the way to HLO.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..core.errors import UnsupportedError
from .replica_groups import MOST_DEVICES, parse_devices
from .scanner import Scanner

_axis_size = re.compile(r"['\"]([^'\"]++)['\"]\s*+=\s*+([0-9]{1,18})")
_axis_name = re.compile(r"['\"]([^'\"]++)['\"](?:\s*+:\s*+\(([0-9]{1,18})\)([0-9]{1,18}))?")
_symbol = re.compile(r"@([\w.$-]++|\"[^\"]*+\")")
_priority = re.compile(r"p[0-9]++")
_entry = re.compile(r"([\w.$-]++|\"[^\"]*+\")\s*+=\s*+#sdy\.mesh<")
_device_ids = re.compile(r"device_ids\s*+=\s*+")

REDUCTIONS = ("sum", "max", "min")
"""How parts along unreduced axes give the array, by the numbers that Shardy and XLA's protos have for it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh, or the part of it that has `before` times `size` of its places up to its end."""

    name: str
    before: int = 1
    size: int = 0

    def __str__(self) -> str:
        return f"'{self.name}':({self.before}){self.size}" if self.size else f"'{self.name}'"


@dataclasses.dataclass(frozen=True, slots=True)
class Mesh:
    """Names and sizes of the axes, and which partition is where (() for 0, 1, ...)."""

    axes: tuple[tuple[str, int], ...] = ()
    devices: tuple[int, ...] = ()

    @property
    def device_count(self) -> int:
        return math.prod(size for _, size in self.axes)

    def coordinates(self) -> dict[str, np.ndarray]:
        """For each axis the place on it of partition 0, 1, ..."""
        count = self.device_count
        places = np.arange(count)
        if self.devices:
            places[list(self.devices)] = np.arange(count)
        sizes = [size for _, size in self.axes]
        found = np.unravel_index(places, sizes) if sizes else ()
        return dict(zip((name for name, _ in self.axes), found, strict=True))

    def __str__(self) -> str:
        listed = ",".join(f"'{name}'={size}" for name, size in self.axes)
        ids = f", device_ids=({','.join(map(str, self.devices))})" if self.devices else ""
        return f"mesh[{listed}]{ids}"


@dataclasses.dataclass(frozen=True, slots=True)
class MeshSharding:
    """The axes that each dimension is cut along; `open_dimensions` may be cut along further ones."""

    mesh: Mesh
    dimensions: tuple[tuple[Axis, ...], ...]
    open_dimensions: frozenset[int] = frozenset()
    replicated: tuple[Axis, ...] = ()
    unreduced: tuple[Axis, ...] = ()
    manual: tuple[Axis, ...] = ()
    reduction: str = "sum"

    @property
    def device_count(self) -> int:
        return self.mesh.device_count

    def tiles(self, cut_along: Collection[str] | None = None) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
        """How often each dimension is cut; each partition's tile; and its group, in which the partitions together have the
        array. With `cut_along` only those axes cut, and groups differ in the others; else groups differ in manual axes."""
        at, sizes = self.mesh.coordinates(), dict(self.mesh.axes)
        count = self.mesh.device_count
        kept = [[a for a in axes if cut_along is None or a.name in cut_along] for axes in self.dimensions]
        counts = tuple(math.prod(a.size or sizes[a.name] for a in axes) for axes in kept)
        tiles = _number([a for axes in kept for a in axes], at, sizes, count)
        apart = self.manual if cut_along is None else [Axis(name) for name in sizes if name not in cut_along]
        return counts, tiles, _number(apart, at, sizes, count)

    def sums(self, along: Collection[str] | None = None) -> np.ndarray | None:
        """The number of the sum that each partition has a summand of; None where none is summed. With `along` only sums along
        those axes count. Raises UnsupportedError where parts are reduced by another operation."""
        at, sizes = self.mesh.coordinates(), dict(self.mesh.axes)
        summed = [a for a in self.unreduced if along is None or a.name in along]
        if summed and self.reduction != "sum":
            raise UnsupportedError("the parts of an array are reduced by another operation than a sum", got=str(self),
                                   expected="parts that are summed", hint="reduce the array before it gets this sharding")
        for axis in summed:  # where a partition stands, but for its place along what is summed
            step = sizes[axis.name] // (axis.before * axis.size) if axis.size else 1
            at[axis.name] = at[axis.name] - at[axis.name] // step % (axis.size or sizes[axis.name]) * step
        return _number(list(map(Axis, sizes)), at, sizes, self.mesh.device_count) if summed else None

    def __str__(self) -> str:
        dims = [_listed([*map(str, axes), *["?"] * (d in self.open_dimensions)]) for d, axes in enumerate(self.dimensions)]
        parts = [str(self.mesh), f"[{', '.join(dims)}]"]
        for word in ("replicated", "unreduced", "manual"):
            if axes := getattr(self, word):
                reduction = self.reduction if word == "unreduced" and self.reduction != "sum" else ""
                parts.append(f"{word}={reduction}{_listed(map(str, axes))}")
        return ", ".join(parts)


def _listed(texts: Sequence[str] | map[str]) -> str:
    return "{" + ", ".join(texts) + "}"


def _number(axes: Sequence[Axis], at: Mapping[str, np.ndarray], sizes: Mapping[str, int], count: int) -> np.ndarray:
    """The place of each partition in a grid of these axes, row-major."""
    number = np.zeros(count, np.int64)
    for axis in axes:
        size = axis.size or sizes[axis.name]
        number = number * size + at[axis.name] // (sizes[axis.name] // (axis.before * size)) % size
    return number


# ------------------------------------------------------------------------------------------------ reading


def parse_mesh_sharding(scanner: Scanner) -> MeshSharding:
    """Read ``['x'=2,'y'=2], [{'x'}, {}], manual={'y'}`` behind the word ``mesh``. Raises HloSyntaxError."""
    start = scanner.pos
    axes = tuple(scanner.listed(lambda: _sized_axis(scanner), "[", "]"))
    scanner.expect(",")
    devices: tuple[int, ...] = ()
    if scanner.looking_at("device_ids"):
        scanner.match(_device_ids, "device_ids=")
        devices = tuple(parse_devices(scanner).reshape(-1).tolist())
        scanner.expect(",")
    return _placed(scanner, _mesh(scanner, axes, devices, start), with_priorities=False)


def _attribute_scanner(text: str) -> Scanner:
    """A scanner of a frontend attribute, whose quotes JAX escaped twice in 2024 and early 2025."""
    return Scanner(text.replace('\\"', '"'))


def parse_meshes(text: str) -> dict[str, Mesh]:
    """The meshes of a Shardy module, as the frontend attribute ``xla.sdy.meshes`` has them. Raises HloSyntaxError."""
    scanner = _attribute_scanner(text)

    def entry() -> tuple[str, Mesh]:
        start = scanner.skip()
        name = scanner.match(_entry, "name = #sdy.mesh<").group(1).strip('"')
        axes = tuple(scanner.listed(lambda: _sized_axis(scanner), "[", "]"))
        devices: tuple[int, ...] = ()
        if scanner.accept(","):
            scanner.match(_device_ids, "device_ids=")
            devices = tuple(scanner.listed(scanner.integer, "[", "]"))
        scanner.expect(">")
        return name, _mesh(scanner, axes, devices, start)

    return dict(scanner.listed(entry))


def parse_sdy_shardings(text: str, meshes: Mapping[str, Mesh]) -> list[MeshSharding]:
    """The shardings in ``#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>``. Raises HloSyntaxError."""
    scanner = _attribute_scanner(text)
    scanner.expect("#sdy.sharding_per_value<")
    found = scanner.listed(lambda: _sdy_sharding(scanner, meshes), "[", "]")
    scanner.expect(">")
    return found


def parse_manual_axes(text: str) -> tuple[str, ...]:
    """The axes in ``#sdy<manual_axes{"x", "y"}>``. Raises HloSyntaxError."""
    scanner = _attribute_scanner(text)
    scanner.expect("#sdy<manual_axes")
    return tuple(scanner.listed(scanner.string))


def _sdy_sharding(scanner: Scanner, meshes: Mapping[str, Mesh]) -> MeshSharding:
    scanner.expect("<")
    start = scanner.skip()
    if scanner.accept_word("mesh"):
        scanner.expect("<")
        mesh = _mesh(scanner, tuple(scanner.listed(lambda: _sized_axis(scanner), "[", "]")), (), start)
        scanner.expect(">")
    else:
        name = scanner.match(_symbol, "@ and the name of a mesh").group(1).strip('"')
        if name not in meshes:
            raise scanner.error("the program has no mesh of this name", start, ", ".join(meshes) or "a mesh")
        mesh = meshes[name]
    scanner.expect(",")
    found = _placed(scanner, mesh)
    scanner.expect(">")
    return found


def _sized_axis(scanner: Scanner) -> tuple[str, int]:
    match = scanner.match(_axis_size, "an axis of the mesh, as in 'x'=2")
    return match.group(1), int(match.group(2))


def _mesh(scanner: Scanner, axes: tuple[tuple[str, int], ...], devices: tuple[int, ...], start: int) -> Mesh:
    count = math.prod(size for _, size in axes)
    if not 1 <= count <= MOST_DEVICES or len(dict(axes)) < len(axes):
        raise scanner.error("a mesh needs axes of other names, and of sizes of 1 or more", start)
    if devices == tuple(range(count)):
        devices = ()
    if devices and sorted(devices) != list(range(count)):
        raise scanner.error("the mesh's device ids do not fill its axes", start, f"each of 0 to {count - 1} once")
    return Mesh(axes, devices)


def _placed(scanner: Scanner, mesh: Mesh, with_priorities: bool = True) -> MeshSharding:
    """``[{'x'}, {?}], replicated={'y'}``: behind the mesh. Shardy writes ``{'x'}p1`` too."""
    sizes, seen, further = dict(mesh.axes), set[Axis](), list[bool]()
    start = scanner.skip()

    def axis() -> Axis | None:
        if scanner.accept("?"):
            return None
        at = scanner.skip()
        name, before, size = scanner.match(_axis_name, "the name of an axis in quotes").groups()
        found = Axis(name, int(before or 1), int(size or 0))
        if name not in sizes or found.before < 1 or sizes[name] % (found.before * (found.size or 1)):
            raise scanner.error(f"the mesh has no axis {name!r}, or no such part of it", at, ", ".join(sizes))
        if found in seen:
            raise scanner.error("an axis is used twice", at)
        seen.add(found)
        return found

    def dimension() -> tuple[Axis, ...]:
        listed = scanner.listed(axis)
        if with_priorities and scanner.text.startswith("p", scanner.pos):
            scanner.match(_priority, "a priority, as in p1")
        further.append(None in listed)
        return tuple(a for a in listed if a is not None)

    dimensions = tuple(scanner.listed(dimension, "[", "]"))
    others: dict[str, tuple[Axis, ...]] = {}
    reduction = "sum"
    while (at := scanner.skip()) and scanner.accept(","):
        word = next((w for w in ("replicated", "unreduced", "manual") if scanner.accept_word(w)), "")
        if not word or word in others:
            scanner.pos = at  # what follows is not ours
            break
        scanner.expect("=")
        if word == "unreduced":
            reduction = next((w for w in REDUCTIONS if scanner.accept_word(w)), reduction)
        others[word] = tuple(a for a in scanner.listed(axis) if a is not None)
    if any(a.name in {b.name for b in seen if b is not a and not (a.size and b.size)} for a in seen):
        raise scanner.error("an axis is used twice", start)
    are_open = frozenset(d for d, is_open in enumerate(further) if is_open)
    return MeshSharding(mesh, dimensions, are_open, **others, reduction=reduction)
