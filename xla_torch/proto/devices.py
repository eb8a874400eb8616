"""Shardings and replica groups in protos: by way of the text that XLA would print for them, which has one reader."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..core.errors import HloSyntaxError, UnsupportedError
from ..hlo.attributes import ReplicaGroups
from ..hlo.mesh_sharding import REDUCTIONS, Axis, MeshSharding
from ..hlo.replica_groups import parse_replica_groups
from ..hlo.scanner import Scanner
from ..hlo.sharding import Iota, Sharding, ShardingKind
from .context import Reading, Writing
from .metadata import metadata_from_text, metadata_text

_TYPES = (ShardingKind.REPLICATED, ShardingKind.MAXIMAL, ShardingKind.TUPLE, ShardingKind.TILED, ShardingKind.MANUAL,
          ShardingKind.UNKNOWN, ShardingKind.UNREDUCED)
"""Kinds by their number in OpSharding."""

_GROUPS = ("shard_as", "shard_like")

# ------------------------------------------------------------------------------------------------------------ shardings


def read_sharding(proto: Any, reading: Reading) -> Sharding:
    """The sharding of an OpSharding. Raises HloSyntaxError for one that says nothing sensible."""
    data = proto.SerializeToString()
    found = reading.shardings.get(data)
    if found is None:
        found = reading.shardings[data] = Sharding.parse(_sharding_text(proto, reading))
    return found


def _sharding_text(proto: Any, reading: Reading) -> str:
    if proto.HasField("named_sharding"):
        return _named_text(proto.named_sharding, reading)
    if not 0 <= proto.type < len(_TYPES):
        raise HloSyntaxError("a sharding has an unknown type", got=proto.type)
    kind = _TYPES[proto.type]
    if kind == ShardingKind.TUPLE:
        return "{" + ", ".join(_sharding_text(p, reading) for p in proto.tuple_shardings) + "}"
    words = [str(kind)]
    if kind == ShardingKind.MAXIMAL:
        words.append(f"device={proto.tile_assignment_devices[0] if proto.tile_assignment_devices else 0}")
    elif kind == ShardingKind.TILED:
        words = [f"devices={_listed(proto.tile_assignment_dimensions)}{_devices_text(proto)}", *_subgroups(proto)]
    if proto.is_shard_group:
        words.append(f"{_GROUPS[proto.shard_group_type == 1]} {proto.shard_group_id}")
    if proto.metadata:
        words.append(_metadata_text(proto.metadata, reading))
    return "{" + " ".join(words) + "}"


def _metadata_text(listed: Sequence[Any], reading: Reading) -> str:
    texts = [f"{{{metadata_text(m, reading)}}}" for m in listed]
    return f"metadata={texts[0] if len(texts) == 1 else '{' + ', '.join(texts) + '}'}"


def _devices_text(proto: Any) -> str:
    if proto.iota_reshape_dims:
        return "<=" + _iota_text(proto.iota_reshape_dims, proto.iota_transpose_perm)
    return ",".join(map(str, proto.tile_assignment_devices))


def _iota_text(dims: Sequence[int], permutation: Sequence[int]) -> str:
    turned = "" if len(dims) == 1 else f"T({','.join(map(str, permutation))})"
    return _listed(dims) + turned


def _subgroups(proto: Any) -> list[str]:
    if proto.last_tile_dims:
        kinds = [str(_TYPES[t]) if 0 <= t < len(_TYPES) else str(t) for t in proto.last_tile_dims]
        return [f"last_tile_dims={{{', '.join(kinds)}}}"]
    return ["last_tile_dim_replicate"] if proto.replicate_on_last_tile_dim else []


def _named_text(proto: Any, reading: Reading) -> str:
    if not 0 <= proto.reduction_op < len(REDUCTIONS):
        raise UnsupportedError("a sharding's parts are reduced by an unknown operation", got=proto.reduction_op,
                               expected=" or ".join(f"{k} ({word})" for k, word in enumerate(REDUCTIONS)))
    if not proto.mesh.axes and len(proto.mesh.device_ids) == 1:
        return f"{{single_device[device_id={proto.mesh.device_ids[0]}]}}"
    dims = ["{" + ", ".join([*_axes(d.axes, proto.mesh), *["?"] * (not d.is_closed)]) + "}" for d in proto.dim_shardings]
    parts = [_mesh_text(proto.mesh), f"[{', '.join(dims)}]"]
    for word in ("replicated", "unreduced", "manual"):
        if axes := getattr(proto, f"{word}_axes"):
            reduction = REDUCTIONS[proto.reduction_op] if word == "unreduced" else ""
            parts.append(f"{word}={reduction}{{{', '.join(_axes(axes, proto.mesh))}}}")
    if proto.metadata:
        parts.append(_metadata_text(proto.metadata, reading))
    return "{" + ", ".join(parts) + "}"


def _mesh_text(proto: Any) -> str:
    axes = ",".join(f"'{axis.name}'={axis.size}" for axis in proto.axes)
    if proto.device_ids:
        return f"mesh[{axes}], device_ids=({','.join(map(str, proto.device_ids))})"
    if proto.HasField("iota_transform"):
        iota = proto.iota_transform
        return f"mesh[{axes}], device_ids=({_iota_text(iota.reshape_dims, iota.transpose_perm)})"
    return f"mesh[{axes}]"


def _axes(listed: Sequence[Any], mesh: Any) -> list[str]:
    found = []
    for axis in listed:
        if not 0 <= axis.mesh_axis_index < len(mesh.axes):
            raise HloSyntaxError("a mesh has no such axis", got=axis.mesh_axis_index)
        part = f":({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}" if axis.HasField("sub_axis_info") else ""
        found.append(f"'{mesh.axes[axis.mesh_axis_index].name}'{part}")
    return found


def _listed(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"


def write_sharding(sharding: Sharding, proto: Any) -> None:
    """Fill an OpSharding."""
    if sharding.mesh is not None:
        proto.named_sharding.SetInParent()
        _write_mesh_sharding(sharding.mesh, proto.named_sharding)
        _write_metadata(sharding.metadata, proto.named_sharding.metadata)
        return
    proto.type = _TYPES.index(sharding.kind)
    for element in sharding.elements:
        write_sharding(element, proto.tuple_shardings.add())
    proto.tile_assignment_dimensions.extend(sharding.tile_dims or ((1,) if sharding.kind == ShardingKind.MAXIMAL else ()))
    if isinstance(sharding.devices, Iota):
        proto.iota_reshape_dims.extend(sharding.devices.dims)
        proto.iota_transpose_perm.extend(sharding.devices.permutation)
    else:
        proto.tile_assignment_devices.extend(sharding.devices)
    if sharding.subgroups == (ShardingKind.REPLICATED,):
        proto.replicate_on_last_tile_dim = True
    else:
        proto.last_tile_dims.extend(map(_TYPES.index, sharding.subgroups))
    if sharding.group is not None:
        proto.is_shard_group = True
        proto.shard_group_type, proto.shard_group_id = _GROUPS.index(sharding.group[0]), sharding.group[1]
    _write_metadata(sharding.metadata, proto.metadata)


def _write_metadata(text: str, listed: Any) -> None:
    if not text:
        return
    scanner = Scanner(text)
    entries = scanner.listed(scanner.balanced) if re.match(r"\{\s*\{", text) else [text]
    for entry in entries:
        metadata_from_text(entry, listed.add())


def _write_mesh_sharding(sharding: MeshSharding, proto: Any) -> None:
    names = [name for name, _ in sharding.mesh.axes]
    for name, size in sharding.mesh.axes:
        proto.mesh.axes.add(name=name, size=size)
    proto.mesh.device_ids.extend(sharding.mesh.devices)
    for number, axes in enumerate(sharding.dimensions):
        dimension = proto.dim_shardings.add(is_closed=number not in sharding.open_dimensions)
        _write_axes(axes, names, dimension.axes)
    for word in ("replicated", "unreduced", "manual"):
        _write_axes(getattr(sharding, word), names, getattr(proto, f"{word}_axes"))
    proto.reduction_op = REDUCTIONS.index(sharding.reduction)


def _write_axes(axes: Sequence[Axis], names: Sequence[str], listed: Any) -> None:
    for axis in axes:
        added = listed.add(mesh_axis_index=names.index(axis.name))
        if axis.size:
            added.sub_axis_info.pre_size, added.sub_axis_info.size = axis.before, axis.size


# -------------------------------------------------------------------------------------------------------- replica groups


def read_groups(proto: Any, _: Reading) -> ReplicaGroups | None:
    """The replica groups of an exchange, in whichever of the forms they are in; None where none are given."""
    which = proto.WhichOneof("replica_group_list")
    if which == "iota_collective_device_list":
        return _parsed(_iota_groups(proto.iota_collective_device_list))
    if which == "mesh_axes_replica_group_list":
        by_mesh = proto.mesh_axes_replica_group_list
        return _parsed(f"{_mesh_text(by_mesh.mesh)} {{{','.join(_axes(by_mesh.axes, by_mesh.mesh))}}}")
    listed = proto.replica_groups
    if which == "collective_device_list":
        if proto.collective_device_list.HasField("iota_replica_group_list"):
            return _parsed(_iota_groups(proto.collective_device_list.iota_replica_group_list))
        listed = proto.collective_device_list.replica_groups
    return ReplicaGroups(tuple(tuple(group.replica_ids) for group in listed)) if listed else None


def _iota_groups(proto: Any) -> str:
    shape = _listed([proto.num_replica_groups, proto.num_devices_per_group])
    return f"{shape}<={_iota_text(proto.iota_reshape_dims, proto.iota_transpose_perm)}"


def _parsed(text: str) -> ReplicaGroups:
    return ReplicaGroups(parse_replica_groups(Scanner(text)), text)


_iota_form = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*\]\s*<=\s*\[([\d,\s]+)\](?:\s*T\s*\(([\d,\s]+)\))?")
_mesh_form = re.compile(
    r"mesh\[([^\]]*)\](?:\s*,\s*device_ids\s*=\s*\((\[[\d,\s]*\]\s*(?:T\s*\([\d,\s]*\))?|[\d,\s]*)\))?\s*\{(.*)\}")
_mesh_axis = re.compile(r"['\"]([^'\"]+)['\"]\s*=\s*(\d+)")
_group_axis = re.compile(r"['\"]([^'\"]+)['\"](?:\s*:\s*\((\d+)\)(\d+))?")


def write_groups(proto: Any, value: ReplicaGroups, _: Writing) -> None:
    """The groups in the form in which the program has them."""
    text = value.text.strip()
    if match := _iota_form.fullmatch(text):
        into = proto.iota_collective_device_list
        into.num_replica_groups, into.num_devices_per_group = int(match.group(1)), int(match.group(2))
        _write_iota(match.group(3), match.group(4), into.iota_reshape_dims, into.iota_transpose_perm)
    elif match := _mesh_form.fullmatch(text):
        _write_mesh_groups(match, proto.mesh_axes_replica_group_list)
    else:
        proto.collective_device_list.SetInParent()
        for group in value.groups:
            proto.collective_device_list.replica_groups.add(replica_ids=group)


def _write_iota(dims: str, permutation: str | None, into_dims: Any, into_permutation: Any) -> None:
    into_dims.extend(map(int, dims.split(",")))
    into_permutation.extend(map(int, permutation.split(","))) if permutation else into_permutation.extend(range(len(into_dims)))


def _write_mesh_groups(match: re.Match[str], into: Any) -> None:
    axes, ids, chosen = match.groups()
    names = []
    for name, size in _mesh_axis.findall(axes):
        into.mesh.axes.add(name=name, size=int(size))
        names.append(name)
    if ids and ids.startswith("["):
        dims, _, permutation = ids[1:].partition("]")
        iota = into.mesh.iota_transform
        _write_iota(dims, re.sub(r"[T()\s]", "", permutation), iota.reshape_dims, iota.transpose_perm)
    elif ids:
        into.mesh.device_ids.extend(map(int, ids.split(",")))
    for name, before, size in _group_axis.findall(chosen):
        added = into.axes.add(mesh_axis_index=names.index(name))
        if size:
            added.sub_axis_info.pre_size, added.sub_axis_info.size = int(before), int(size)
