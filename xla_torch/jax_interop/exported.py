"""Files of `jax.export` (`Exported.serialize()`): what stands around the program, without jax.

The file is a flatbuffer; the numbers of its fields are those of jax/_src/export/serialization.fbs, whose versions only ever added
fields. `exported_main.py` makes the program a function of the function's own arguments.
"""

from __future__ import annotations

import dataclasses

from ..core.types import PrimitiveType
from ..mlir.bytecode.parser import MAGIC
from ..pytree.nodes import MAX_DEPTH, Kind
from ..pytree.structure import Structure
from .flatbuffer import Data, Table, is_exported, malformed

_P = PrimitiveType
_TYPES: tuple[PrimitiveType | str, ...] = (
    _P.PRED, _P.S8, _P.S16, _P.S32, _P.S64, _P.U8, _P.U16, _P.U32, _P.U64, _P.F16, _P.F32, _P.F64, _P.C64, _P.C128, _P.BF16,
    _P.S4, _P.U4, _P.F8E4M3B11FNUZ, _P.F8E4M3FN, _P.F8E4M3FNUZ, _P.F8E5M2, _P.F8E5M2FNUZ, "float0", _P.F8E4M3, _P.F8E3M4,
    _P.F8E8M0FNU, _P.F4E2M1FN, "key<fry>", "key<rbg>", "key<unsafe_rbg>")
_MEMORY_SPACES = ("", "device", "host", "any")
_AXIS_TYPES = ("", "auto", "explicit", "manual")
_CHECKS = ("platform", "custom_call", "shape_assertions")
_VJP_ORDERS = 16


@dataclasses.dataclass(frozen=True)
class Aval:
    """An argument or result. A size is a text where it is an expression of dimension variables (``2*b + 1``). The type is a text
    for those that no array has: ``float0`` (which stands for no tangent), and PRNG keys, ``key<fry>``."""

    shape: tuple[int | str, ...]
    dtype: PrimitiveType | str
    memory_space: str = ""

    @property
    def is_static(self) -> bool:
        return all(isinstance(size, int) for size in self.shape)


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Devices along named axes. `device_kind`, `num_cores` and `platform` are those of the machine, where they are known."""

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[str, ...]
    device_kind: str = ""
    num_cores: int = 0
    platform: str = ""


@dataclasses.dataclass(frozen=True)
class NamedSharding:
    """How an array lies on a mesh: for each dimension the axes that share it."""

    mesh: Mesh
    partitions: tuple[tuple[str, ...], ...]
    reduced: tuple[str, ...] = ()
    unreduced: tuple[str, ...] = ()
    memory_kind: str = ""


@dataclasses.dataclass(frozen=True)
class HloSharding:
    """How an array lies on devices, as older files have it: an OpSharding proto in bytes."""

    proto: bytes


Sharding = NamedSharding | HloSharding | None


@dataclasses.dataclass(frozen=True)
class ExportedFile:
    """A function that `jax.export` wrote. `in_tree` is the form of ``(args, kwargs)``.

    `module` is the StableHLO program in bytes (`mlir.bytecode.parse` reads it); of the arguments it takes those of
    `module_kept_var_idx`, behind an index of the platform where there are several, and a token for each ordered effect. `vjp` is
    the function's own derivative: its arguments are the function's, then a cotangent for each result, flat; its results are the
    cotangents of the arguments.
    """

    fun_name: str
    in_tree: Structure
    in_avals: tuple[Aval, ...]
    out_tree: Structure
    out_avals: tuple[Aval, ...]
    nr_devices: int
    in_shardings: tuple[Sharding, ...]
    out_shardings: tuple[Sharding, ...]
    platforms: tuple[str, ...]
    ordered_effects: tuple[str, ...]
    unordered_effects: tuple[str, ...]
    disabled_safety_checks: tuple[str, ...]
    module: memoryview
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    uses_global_constants: bool
    vjp: ExportedFile | None = None

    @property
    def vjp_order(self) -> int:
        """How often it can be differentiated by what the file holds."""
        return 0 if self.vjp is None else 1 + self.vjp.vjp_order


def read_exported(data: bytes | bytearray | memoryview) -> ExportedFile:
    """The contents of a `jax.export` file. The program is a view of `data`.

    Raises HloSyntaxError with the byte for what is no such file, or contradicts itself.
    """
    if not is_exported(data):
        raise malformed("this is no file of jax.export", 0, bytes(data[:8]))
    return _exported(Data(data).root(), 0)


def _exported(table: Table, order: int) -> ExportedFile:
    if order > _VJP_ORDERS:
        raise malformed("derivatives of too high an order", table.at, order, f"at most {_VJP_ORDERS}")
    unique = [_aval(t) for t in table.tables(19)]
    meshes = [_mesh(t) for t in table.tables(20)]
    shardings: list[Sharding] = [None, *(_named_sharding(t, meshes) for t in table.tables(21))]
    in_avals, out_avals = _avals(table, 22, 3, unique), _avals(table, 23, 5, unique)
    module, vjp = table.blob(13), table.table(17)
    if module is None or bytes(module[:len(MAGIC)]) != MAGIC:
        raise malformed("the file has no program", table.at)
    found = ExportedFile(
        table.text(1) or "", _structure(table, 2, len(in_avals)), in_avals, _structure(table, 4, len(out_avals)), out_avals,
        table.number(18, "I") or table.number(6, "h"), _shardings(table, 24, 7, shardings, meshes),
        _shardings(table, 25, 8, shardings, meshes), table.texts(9), _effects(table, 10), _effects(table, 11),
        tuple([_check(t) for t in table.tables(12)]), module, table.number(14, "H"), table.numbers(15, "H"),
        bool(table.number(16, "B")), None if vjp is None else _exported(vjp, order + 1))
    kept = found.module_kept_var_idx
    if any(k >= len(in_avals) for k in kept) or list(kept) != sorted(set(kept)):
        raise malformed("the program's arguments are not those of the function", table.at, kept, f"of {len(in_avals)}")
    return found


# ---------------------------------------------------------------------------------------------------- arguments and results


def _chosen(indices: tuple[int, ...], of: list, offset: int) -> tuple:
    if any(k >= len(of) for k in indices):
        raise malformed("an entry that is not listed", offset, max(indices), f"less than {len(of)}")
    return tuple([of[k] for k in indices])


def _avals(table: Table, indices: int, listed: int, unique: list[Aval]) -> tuple[Aval, ...]:
    """By their numbers among those that differ or, in older files, one by one."""
    numbers = table.numbers(indices, "I")
    return _chosen(numbers, unique, table.at) if numbers else tuple([_aval(t) for t in table.tables(listed)])


def _aval(table: Table) -> Aval:
    kind, dtype, space = table.number(0, "b"), table.number(2, "b"), table.number(3, "b")
    if kind != 0 or not 0 <= dtype < len(_TYPES) or not 0 <= space < len(_MEMORY_SPACES):
        raise malformed("an argument of an unknown kind", table.at, f"kind {kind}, type {dtype}, memory space {space}")
    sizes = [int(text) if text.isdecimal() and len(text) < 19 else text for text in table.texts(1)]
    return Aval(tuple(sizes), _TYPES[dtype], _MEMORY_SPACES[space])


def _effects(table: Table, field: int) -> tuple[str, ...]:
    return tuple([t.text(0) or "" for t in table.tables(field)])


def _check(table: Table) -> str:
    """A check that was left out: ``platform``, ``custom_call: target``."""
    kind, target = table.number(0, "b"), table.text(1)
    if not 0 <= kind < len(_CHECKS):
        raise malformed("a check of an unknown kind", table.at, kind)
    return f"{_CHECKS[kind]}: {target}" if target else _CHECKS[kind]


# ------------------------------------------------------------------------------------------------------------------- trees

_LEAF, _NONE, _TUPLE, _LIST, _DICT, _CUSTOM = range(6)
_ATOMS = {_LEAF: Kind.LEAF, _NONE: Kind.NONE}
_PLAIN = {_TUPLE: Kind.TUPLE, _LIST: Kind.LIST}


def _structure(table: Table, field: int, leaves: int) -> Structure:
    found = table.table(field)
    if found is None:
        raise malformed("a tree is missing", table.at)
    made = _tree(found, 0)
    if made.leaf_count != leaves:
        raise malformed("a tree that does not fit its leaves", found.at, f"{made.leaf_count} leaves", leaves)
    return made


def _tree(table: Table, depth: int) -> Structure:
    if depth >= MAX_DEPTH:
        raise malformed("the tree is too deep", table.at, expected=f"at most {MAX_DEPTH} levels")
    kind, children = table.number(0, "b"), [_tree(t, depth + 1) for t in table.tables(1)]
    if kind in _ATOMS and not children:
        return Structure(_ATOMS[kind])
    if kind in _PLAIN:
        return Structure(_PLAIN[kind], tuple(children))
    if kind == _DICT:
        keys = table.texts(2)
        if len(keys) != len(children) or list(keys) != sorted(set(keys)):
            raise malformed("a dict whose keys do not fit its children", table.at, keys, f"{len(children)}, sorted")
        return Structure(Kind.DICT, tuple(children), keys)
    if kind == _CUSTOM:
        data = table.blob(4)
        return Structure.exported(table.text(3) or "", b"" if data is None else bytes(data), children)
    raise malformed("a node of an unknown kind", table.at, kind)


# --------------------------------------------------------------------------------------------------------------- shardings


def _shardings(table: Table, indices: int, listed: int, unique: list[Sharding], meshes: list[Mesh]) -> tuple[Sharding, ...]:
    numbers = table.numbers(indices, "I")
    return _chosen(numbers, unique, table.at) if numbers else tuple([_sharding(t, meshes) for t in table.tables(listed)])


def _sharding(table: Table, meshes: list[Mesh]) -> Sharding:
    named, proto = table.table(2), table.blob(1)
    if named is not None:
        return _named_sharding(named, meshes)
    return None if proto is None else HloSharding(bytes(proto))


def _named_sharding(table: Table, meshes: list[Mesh]) -> NamedSharding:
    own, spec = table.table(0), table.table(1)
    if meshes:
        mesh = _chosen((table.number(3, "I"),), meshes, table.at)[0]
    elif own is not None:
        mesh = _mesh(own)
    else:
        raise malformed("a sharding without a mesh", table.at)
    if spec is None:
        raise malformed("a sharding without its partitions", table.at)
    return NamedSharding(mesh, tuple([t.texts(0) for t in spec.tables(0)]), spec.texts(1), spec.texts(2), table.text(2) or "")


def _mesh(table: Table) -> Mesh:
    sizes, names, types = table.numbers(0, "I"), table.texts(1), table.numbers(2, "b")
    if len(sizes) != len(names) or any(not 0 <= t < len(_AXIS_TYPES) for t in types):
        raise malformed("a mesh whose axes do not fit their names", table.at, f"{len(sizes)} sizes, {len(names)} names")
    device = table.table(3)
    machine = ("", 0, "") if device is None else (device.text(0) or "", device.number(1, "I"), device.text(2) or "")
    return Mesh(names, sizes, tuple([_AXIS_TYPES[t] for t in types]), *machine)
