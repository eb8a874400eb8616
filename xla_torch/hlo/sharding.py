"""What ``sharding={...}`` says: which part of an array each partition holds (hlo/SPEC.md, Shardings).

`parse_sharding` reads it in the form that XLA would print it in; `Sharding.grid` is its meaning. Text that names the axes of
a mesh is read by `mesh_sharding.py`.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from .mesh_sharding import MeshSharding, parse_mesh_sharding
from .replica_groups import MOST_DEVICES
from .scanner import Scanner, nearest


class ShardingKind(enum.StrEnum):
    """How an array lies on the partitions of a program."""

    REPLICATED = enum.auto()
    """All have the whole array."""
    MANUAL = enum.auto()
    """Each has an array of its own."""
    UNKNOWN = enum.auto()
    UNREDUCED = enum.auto()
    """Each has a summand."""
    MAXIMAL = enum.auto()
    """One has it."""
    TILED = enum.auto()
    """Each has a tile."""
    MESH = enum.auto()
    """Each has a tile, said in terms of a mesh's axes."""
    TUPLE = enum.auto()
    """Said for each array of a tuple."""


KINDS = (ShardingKind.REPLICATED, ShardingKind.MANUAL, ShardingKind.UNKNOWN, ShardingKind.UNREDUCED, ShardingKind.MAXIMAL)
"""The kinds that text says in a word of their own."""

_SUBGROUPS = (ShardingKind.MANUAL, ShardingKind.UNREDUCED, ShardingKind.REPLICATED)
"""What a dimension of a tiling beyond the array's may be, in the order in which XLA writes them."""

_WORDS = (*KINDS, "devices", "device", "last_tile_dim_replicate", "last_tile_dims", "shard_as", "shard_like", "metadata", "mesh",
          "single_device")


@dataclasses.dataclass(frozen=True, slots=True)
class Grid:
    """An array cut in `counts` tiles along its dimensions: the number (row-major) of the tile that each partition holds, and
    the number of the group in which it does: partitions of one group hold the whole array together. With `sums` each holds a
    summand of its tile, and those whose sum has one number add up to it."""

    counts: tuple[int, ...]
    tiles: np.ndarray
    groups: np.ndarray
    sums: np.ndarray | None = None

    @property
    def partitions(self) -> int:
        return len(self.tiles)

    def summands(self, partition: int) -> list[int]:
        """The partitions that together have what this one has, in order: itself, if nothing is summed."""
        return [partition] if self.sums is None else np.flatnonzero(self.sums == self.sums[partition]).tolist()


@dataclasses.dataclass(frozen=True, slots=True)
class Iota:
    """0, 1, ... over these dimensions, transposed: ``[4,2]T(1,0)``."""

    dims: tuple[int, ...]
    permutation: tuple[int, ...]

    @property
    def ids(self) -> np.ndarray:
        return np.arange(math.prod(self.dims)).reshape(self.dims).transpose(self.permutation).reshape(-1)

    def simplified(self) -> Iota:
        """The same numbers without dimensions of 1, and with neighbours that stay together as one."""
        order = [d for d in self.permutation if self.dims[d] != 1]
        kept = sorted(order)
        runs: list[list[int]] = []
        for place in map(kept.index, order):
            if runs and place == runs[-1][-1] + 1:
                runs[-1].append(place)
            else:
                runs.append([place])
        firsts = sorted(run[0] for run in runs)
        sizes = {run[0]: math.prod(self.dims[kept[k]] for k in run) for run in runs}
        return Iota(tuple(sizes[f] for f in firsts) or (1,), tuple(firsts.index(run[0]) for run in runs) or (0,))

    def transposed(self, tile_dims: Sequence[int], order: Sequence[int], ascending: Sequence[int]) -> Iota | None:
        """In a grid of `tile_dims`, transposed to `order`, with the last dimensions `ascending` sorted; None if not an iota."""
        given = [self.dims[d] for d in self.permutation]
        parts = _common_parts(given, tile_dims)
        if parts is None:
            return None
        # Each part stands in one given dimension and in one of the grid.
        of_given, of_tile = ([k for k, group in enumerate(groups) for _ in group] for groups in parts)
        sizes = [size for group in parts[0] for size in group]
        in_iota = sorted(range(len(sizes)), key=lambda p: (self.permutation[of_given[p]], p))
        after = [p for d in order for p in range(len(sizes)) if of_tile[p] == d and d not in ascending]
        after += [p for p in in_iota if of_tile[p] in ascending]
        return Iota(tuple(sizes[p] for p in in_iota), tuple(in_iota.index(p) for p in after)).simplified()

    def __str__(self) -> str:
        text = "[" + ",".join(map(str, self.dims)) + "]"
        return text if len(self.dims) == 1 else f"{text}T({','.join(map(str, self.permutation))})"


def _common_parts(a: Sequence[int], b: Sequence[int]) -> tuple[list[list[int]], list[list[int]]] | None:
    """The sizes of both lists cut into the same row of factors, grouped as in each list; None where they do not fit."""
    ends_a, ends_b = ([1, *itertools.accumulate(reversed(sizes), operator.mul)] for sizes in (a, b))
    ends = sorted({*ends_a, *ends_b})
    if ends_a[-1] != ends_b[-1] or any(high % low for low, high in itertools.pairwise(ends)):
        return None

    def groups(bounds: list[int]) -> list[list[int]]:
        cuts = [[high // low for low, high in itertools.pairwise(ends) if start <= low < end]
                for start, end in itertools.pairwise(bounds)]
        return [cut[::-1] for cut in reversed(cuts)]

    return groups(ends_a), groups(ends_b)


@dataclasses.dataclass(frozen=True, slots=True)
class Sharding:
    """Describe how an array, or each array of a tuple, lies on the partitions of a program.

    `kind` is the kind of sharding: replicated, tiled and so on. For a tiling, `tile_dims` holds the number of tiles along each
    dimension, then one number for each of `subgroups`, and `devices` the partition of each tile. A sharding on a named `mesh`
    keeps it. `elements` are the shardings of a tuple, `group` is a pair like ``("shard_as", 1)``, and `metadata` is text. Raises
    InvalidArgument for an unknown kind.

    >>> halves = xla_torch.Sharding.parse("{devices=[2]<=[2]}")
    >>> xla_torch.shard(torch.arange(4), halves), halves.device_count, halves.is_manual
    ([tensor([0, 1]), tensor([2, 3])], 2, False)
    >>> halves.slices([3]), halves.grid(1, 2).counts                      # slice and size of each tile
    ([((slice(0, 2, None),), (2,)), ((slice(2, 3, None),), (2,))], (2,))
    >>> pair = Shape.parse("(f32[4], f32[6])")
    >>> str(halves.of_tuple(pair)), halves.leaves(pair) == (halves, halves)
    ('{{devices=[2]<=[2]}, {devices=[2]<=[2]}}', True)
    >>> halves.check(pair.at([0]), 2), halves.check_rank(1), halves.check_devices(2)      # raise where it does not fit
    (None, None, None)
    """

    kind: ShardingKind
    tile_dims: tuple[int, ...] = ()
    devices: Iota | tuple[int, ...] = ()
    subgroups: tuple[ShardingKind, ...] = ()
    elements: tuple[Sharding, ...] = ()
    mesh: MeshSharding | None = None
    group: tuple[str, int] | None = None
    metadata: str = ""

    def __post_init__(self) -> None:
        if type(self.kind) is not ShardingKind:  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidArgument("not a kind of sharding", subject="Sharding", got=repr(self.kind),
                                  expected="a ShardingKind, or Sharding.parse('{devices=[2,1]<=[2]}')")

    @staticmethod
    def parse(text: str) -> Sharding:
        """Parse HLO text with its braces. Raises HloSyntaxError."""
        scanner = Scanner(text)
        found = parse_sharding(scanner)
        if not scanner.at_end():
            raise scanner.error("something follows the sharding")
        return found

    # ---- meaning

    @property
    def device_count(self) -> int:
        """Return the number of partitions, 0 if the sharding doesn't state it."""
        if self.kind == ShardingKind.TUPLE:
            return max((element.device_count for element in self.elements), default=0)
        if self.mesh is not None:
            return self.mesh.device_count
        return math.prod(self.tile_dims) if self.kind == ShardingKind.TILED else 0

    @property
    def is_manual(self) -> bool:
        """Return whether partitions, or groups of them, have arrays of their own."""
        if self.mesh is not None and self.mesh.manual:
            return True
        return self.kind == ShardingKind.MANUAL or ShardingKind.MANUAL in self.subgroups

    def of_tuple(self, shape: Shape) -> Sharding:
        """Return a tuple sharding that applies this one to each array, if it isn't one."""
        if self.kind == ShardingKind.TUPLE:
            return self
        return Sharding(ShardingKind.TUPLE, elements=(self,) * max(1, sum(1 for _ in shape.leaves())))

    def leaves(self, shape: Shape) -> tuple[Sharding, ...]:
        """Return the sharding of each array in a shape."""
        return self.of_tuple(shape).elements

    def grid(self, rank: int, partitions: int) -> Grid:
        """Return the tile grid for arrays of a rank. Raises InvalidArgument if undetermined."""
        if self.mesh is not None:
            return Grid(*self.mesh.tiles(), self.mesh.sums())
        if self.kind == ShardingKind.TILED:
            return self._tiled_grid()
        if self.kind in (ShardingKind.TUPLE, ShardingKind.UNKNOWN):
            raise InvalidArgument("the sharding does not say what each partition has", got=str(self))
        alone = self.kind == ShardingKind.MAXIMAL
        none = np.zeros(partitions, np.int64)
        groups = np.arange(partitions) if self.kind == ShardingKind.MANUAL else none
        tiles = np.where(np.arange(partitions) == self.devices, 0, -1) if alone else none
        return Grid((1,) * rank, tiles, groups, none if self.kind == ShardingKind.UNREDUCED else None)

    def _tiled_grid(self) -> Grid:
        ids = self.devices.ids if isinstance(self.devices, Iota) else np.array(self.devices)
        places = np.empty(ids.size, np.int64)
        places[ids] = np.arange(ids.size)
        coordinates = np.unravel_index(places, self.tile_dims)
        rank = len(self.tile_dims) - len(self.subgroups)
        groups = np.zeros(ids.size, np.int64)
        for size, kind, at in zip(self.tile_dims[rank:], self.subgroups, coordinates[rank:], strict=True):
            groups = groups * size + at if kind == ShardingKind.MANUAL else groups
        apart = [d for d in range(len(self.tile_dims)) if (*[None] * rank, *self.subgroups)[d] != ShardingKind.UNREDUCED]
        sums = _flat([coordinates[d] for d in apart], [self.tile_dims[d] for d in apart], ids.size)
        return Grid(self.tile_dims[:rank], _flat(coordinates[:rank], self.tile_dims[:rank], ids.size), groups,
                    sums if len(apart) < len(self.tile_dims) else None)

    def slices(self, sizes: Sequence[int], partitions: int = 0) -> list[tuple[tuple[slice, ...] | None, tuple[int, ...]]]:
        """Return each partition's slice of an array of these sizes, with the tile's size.

        Slices exclude padding, and are None if another partition has the whole array. Raises InvalidArgument if undetermined.
        """
        partitions = partitions or self.device_count
        if not partitions:
            raise InvalidArgument("the sharding does not say how many partitions there are", got=str(self))
        if self.is_manual:
            raise InvalidArgument("the sharding does not say what each partition has", got=str(self))
        grid = self.grid(len(sizes), partitions)
        local = tuple(-(-n // count) for n, count in zip(sizes, grid.counts, strict=True))
        found: list[tuple[tuple[slice, ...] | None, tuple[int, ...]]] = []
        tiles: list[int] = grid.tiles.tolist()
        for tile in tiles:
            if tile < 0:
                found.append((None, local))
                continue
            at: tuple[np.intp, ...] = np.unravel_index(tile, grid.counts) if sizes else ()
            starts = [min(int(k) * n, size) for k, n, size in zip(at, local, sizes, strict=True)]
            ends = [min(start + n, size) for start, n, size in zip(starts, local, sizes, strict=True)]
            found.append((tuple(map(slice, starts, ends)), local))
        return found

    def check(self, shape: Shape, partitions: int = 1) -> None:
        """Raise InvalidArgument if it doesn't fit a shape or the number of partitions (1: unknown)."""
        if self.kind == ShardingKind.TUPLE:
            shapes = list(shape.leaves()) if shape.is_tuple else []
            if not shape.is_tuple or len(self.elements) not in (len(shapes), len(shapes) or 1):
                raise InvalidArgument("the sharding of a tuple does not fit the shape", got=f"{self} for {shape}",
                                      expected="one sharding for each array of the tuple")
            for element, leaf in zip(self.elements, shapes, strict=False):
                element.check(leaf, partitions)
            return
        if shape.is_array:
            self.check_rank(shape.rank)
        self.check_devices(partitions)

    def check_rank(self, rank: int) -> None:
        """Raise InvalidArgument if the sharding splits arrays of another rank."""
        own = len(self.mesh.dimensions) if self.mesh is not None else len(self.tile_dims) - len(self.subgroups)
        if (self.mesh is not None or self.kind == ShardingKind.TILED) and own != rank:
            raise InvalidArgument("the sharding is for an array of another rank", got=f"{self} of rank {own}", expected=rank)

    def check_devices(self, partitions: int) -> None:
        """Raise InvalidArgument if it names missing devices. `partitions` up to 1 means unknown."""
        ids = list(self.devices) if isinstance(self.devices, tuple) else []
        if min(ids, default=0) < 0 or len(set(ids)) < len(ids):
            raise InvalidArgument("a device of the sharding is negative or repeated", got=str(self))
        if partitions > 1 and self.device_count not in (0, partitions):
            raise InvalidArgument("the sharding is for another number of partitions", got=f"{self}: {self.device_count}",
                                  expected=f"{partitions}, as the program has")
        if partitions > 1 and max(ids, default=0) >= partitions:
            raise InvalidArgument("the sharding names a missing device", got=str(self),
                                  expected=f"0 to {partitions - 1}")

    # ---- text

    def __str__(self) -> str:
        if self.kind == ShardingKind.TUPLE:
            return "{" + ", ".join(map(str, self.elements)) + "}"
        if self.mesh is not None:
            return "{" + str(self.mesh) + (f", metadata={self.metadata}" if self.metadata else "") + "}"
        words = [self._head()]
        if self.subgroups == (ShardingKind.REPLICATED,):
            words.append("last_tile_dim_replicate")
        elif self.subgroups:
            words.append(f"last_tile_dims={{{', '.join(self.subgroups)}}}")
        if self.group is not None:
            words.append(f"{self.group[0]} {self.group[1]}")
        if self.metadata:
            words.append(f"metadata={self.metadata}")
        return "{" + " ".join(words) + "}"

    def _head(self) -> str:
        if self.kind == ShardingKind.MAXIMAL:
            return f"maximal device={self.devices[0]}" if isinstance(self.devices, tuple) else self.kind
        if self.kind != ShardingKind.TILED:
            return self.kind
        listed = f"<={self.devices}" if isinstance(self.devices, Iota) else ",".join(map(str, self.devices))
        return f"devices=[{','.join(map(str, self.tile_dims))}]{listed}"

    def __repr__(self) -> str:
        return f"Sharding.parse({str(self)!r})"


def _flat(coordinates: Sequence[np.ndarray], dims: Sequence[int], count: int) -> np.ndarray:
    return np.ravel_multi_index(tuple(coordinates), tuple(dims)) if dims else np.zeros(count, np.int64)


# ------------------------------------------------------------------------------------------------ reading


def parse_sharding(scanner: Scanner) -> Sharding:
    """Read a sharding in braces. Raises HloSyntaxError."""
    start = scanner.skip()
    scanner.expect("{")
    if not (scanner.looking_at("{") or scanner.looking_at("}")):
        scanner.pos = start
        return _single(scanner)
    scanner.pos = start
    return Sharding(ShardingKind.TUPLE, elements=tuple(scanner.listed(lambda: _single(scanner))))


class _Fields:
    """What was written between the braces."""

    def __init__(self) -> None:
        self.kind: ShardingKind | None = None
        self.tile_dims: tuple[int, ...] | None = None
        self.devices: Iota | tuple[int, ...] = ()
        self.subgroups: tuple[ShardingKind, ...] = ()
        self.group: tuple[str, int] | None = None
        self.metadata = ""


def _single(scanner: Scanner) -> Sharding:
    start = scanner.skip()
    scanner.expect("{")
    if scanner.accept_word("mesh"):
        return _by_mesh(scanner)
    fields, seen = _Fields(), set[str]()
    while not scanner.accept("}"):
        at = scanner.skip()
        word = scanner.word("a word of a sharding")
        if word in seen or (word in KINDS and fields.kind):
            raise scanner.error("the sharding says this twice", at)
        seen.add(word)
        _field(scanner, fields, word, at)
    return _made(scanner, fields, start)


def _by_mesh(scanner: Scanner) -> Sharding:
    mesh, metadata = parse_mesh_sharding(scanner), ""
    if scanner.accept(","):
        scanner.expect("metadata=")
        metadata = _metadata(scanner)
        metadata = metadata if metadata.startswith("{{") else f"{{{metadata}}}"
    scanner.expect("}")
    return Sharding(ShardingKind.MESH, mesh=mesh, metadata=metadata)


def _field(scanner: Scanner, fields: _Fields, word: str, at: int) -> None:
    if word in KINDS:
        fields.kind = ShardingKind(word)
    elif word in ("shard_as", "shard_like"):
        fields.group = word, scanner.integer()
    elif word == "last_tile_dim_replicate":
        fields.subgroups = (ShardingKind.REPLICATED,)
    elif word == "device":
        scanner.expect("=")
        fields.devices = (scanner.integer(),)
    elif word == "single_device":  # as XLA of jaxlib 0.12 prints a maximal sharding by a mesh
        scanner.expect("[device_id=")
        fields.kind, fields.devices = ShardingKind.MAXIMAL, (scanner.integer(),)
        scanner.expect("]")
    elif word == "devices":
        scanner.expect("=")
        fields.tile_dims = tuple(scanner.listed(scanner.integer, "[", "]"))
        fields.devices = _devices(scanner, fields.tile_dims, at)
    elif word == "last_tile_dims":
        scanner.expect("=")
        fields.subgroups = tuple(scanner.listed(lambda: _subgroup(scanner)))
    elif word == "metadata":
        scanner.expect("=")
        fields.metadata = _metadata(scanner)
    else:
        raise scanner.error(f"a sharding has no {word!r}", at, " ".join(_WORDS), nearest(word, _WORDS))


def _subgroup(scanner: Scanner) -> ShardingKind:
    at = scanner.skip()
    word = scanner.word("a kind of subgroup")
    if word not in _SUBGROUPS:
        raise scanner.error(f"no kind of subgroup is called {word!r}", at, ", ".join(_SUBGROUPS))
    return ShardingKind(word)


def _metadata(scanner: Scanner) -> str:
    """Metadata as it is written, or a list of it."""
    at = scanner.skip()
    scanner.expect("{")
    is_list = scanner.looking_at("{")
    scanner.pos = at
    return "{" + ", ".join(scanner.listed(scanner.balanced)) + "}" if is_list else scanner.balanced()


def _devices(scanner: Scanner, tile_dims: tuple[int, ...], at: int) -> Iota | tuple[int, ...]:
    """``<=[2,2]T(1,0)``, or numbers; as many as there are tiles."""
    count = math.prod(tile_dims)
    if min(tile_dims, default=1) < 1 or count > MOST_DEVICES:
        raise scanner.error("the sharding has a wrong number of tiles", at, f"1 to {MOST_DEVICES}")
    if not scanner.accept("<="):
        ids = [scanner.integer()]
        while scanner.accept(","):
            ids.append(scanner.integer())
        if len(ids) != count:
            raise scanner.error("the sharding does not have a device for each tile", at, f"{count} devices")
        return tuple(ids)
    dims = tuple(scanner.listed(scanner.integer, "[", "]"))
    permutation = (0,)
    if len(dims) > 1:
        scanner.expect("T")
        permutation = tuple(scanner.listed(scanner.integer, "(", ")"))
    if min(dims, default=0) < 1 or math.prod(dims) != count:
        raise scanner.error("the sharding does not have a device for each tile", at, f"{count} devices")
    if sorted(permutation) != list(range(len(dims))):
        raise scanner.error("the transpose of an iota list is not a permutation of its dimensions", at)
    return Iota(dims, permutation).simplified()


def _made(scanner: Scanner, fields: _Fields, start: int) -> Sharding:
    """The sharding in the form in which XLA keeps it."""
    kind, tile_dims, devices = fields.kind, fields.tile_dims, fields.devices
    group, metadata = fields.group, fields.metadata
    if kind == ShardingKind.MAXIMAL:
        if tile_dims is not None or not devices:
            raise scanner.error("a maximal sharding has one device", start, "{maximal device=0}")
        return Sharding(kind, devices=devices, group=group, metadata=metadata)
    if kind:
        if tile_dims is not None or devices or fields.subgroups:
            raise scanner.error(f"a {kind} sharding has no devices", start, f"{{{kind}}}")
        return Sharding(kind, group=group, metadata=metadata)
    if tile_dims is None:
        raise scanner.error("the sharding says neither its kind nor its tiles", start, "{replicated} or {devices=[2,1]<=[2]}")
    if devices == (0,):
        raise scanner.error("a tiling has more than one device", start)
    if len(fields.subgroups) > len(tile_dims):
        raise scanner.error("the tiling has fewer dimensions than subgroups", start)
    return _in_order(Sharding(ShardingKind.TILED, tile_dims, devices, fields.subgroups, group=group, metadata=metadata))


def _in_order(given: Sharding) -> Sharding:
    """Subgroups of one kind as one, in XLA's order, and only those that have more than one member."""
    if not given.subgroups:
        return given
    rank = len(given.tile_dims) - len(given.subgroups)
    data, sizes, kinds = given.tile_dims[:rank], list(given.tile_dims[:rank]), [""] * rank
    for kind, size in zip(given.subgroups, given.tile_dims[rank:], strict=True):
        if size > 1 and kinds and kinds[-1] == kind:
            sizes[-1] *= size
        elif size > 1:
            sizes.append(size)
            kinds.append(kind)
    members = {kind: [k for k, own in enumerate(kinds) if own == kind] for kind in ("", *_SUBGROUPS)}
    kept = [kind for kind in _SUBGROUPS if members[kind]]
    if math.prod(data) == 1 and len(kept) <= 1 and (
            kept != [ShardingKind.UNREDUCED] or set(given.subgroups) == {ShardingKind.UNREDUCED}):
        return Sharding(kept[0] if kept else ShardingKind.REPLICATED, group=given.group, metadata=given.metadata)
    order = [k for places in members.values() for k in places]
    devices = _arranged(given.devices, sizes, order, members[ShardingKind.REPLICATED])
    tile_dims = (*data, *(math.prod(sizes[k] for k in members[kind]) for kind in kept))
    return dataclasses.replace(given, tile_dims=tile_dims, devices=devices, subgroups=tuple(kept))


def _arranged(devices: Iota | tuple[int, ...], sizes: list[int], order: list[int], replicas: list[int]) -> Iota | tuple[int, ...]:
    """Devices in a grid of these sizes, with its dimensions in another order, and those that hold the same ascending."""
    if order == sorted(order) and not replicas:
        return devices
    found = devices.transposed(sizes, order, replicas) if isinstance(devices, Iota) else None
    if found is not None:
        return found
    ids = devices.ids if isinstance(devices, Iota) else np.array(devices)
    ids = ids.reshape(sizes).transpose(order).reshape(-1, math.prod(sizes[k] for k in replicas))
    return tuple(np.sort(ids, axis=1).reshape(-1).tolist())
