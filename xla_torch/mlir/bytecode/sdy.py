"""Attributes of Shardy in bytecode, as their text, which is what they are handed on as.

Codes and fields: shardy/dialect/sdy/ir/bytecode.td. Parts that never stand alone (axes, shardings of one dimension) are the text
that they have inside of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...hlo.mesh_sharding import REDUCTIONS
from .. import ir
from .cursor import malformed
from .reader import Reader


def sdy_attribute(reader: Reader) -> ir.Opaque:
    begin, code = reader.pos, reader.varint()
    if code >= len(_ATTRIBUTES):
        raise malformed("an attribute of an unknown kind of sdy", begin, code, f"less than {len(_ATTRIBUTES)}")
    return ir.Opaque(_ATTRIBUTES[code](reader))


def sdy_type(reader: Reader) -> ir.Type:
    raise malformed("a type of a dialect that has none", reader.pos)


def _inner(found: Any, offset: int, prefix: str = "", suffix: str = "") -> str:
    """The text of an attribute without what stands around it when it stands alone."""
    if not isinstance(found, ir.Opaque):
        raise malformed("a part of a sharding that is none", offset, type(found).__name__)
    return found.text.removeprefix(prefix).removesuffix(suffix)


def _parts(reader: Reader, prefix: str = "", suffix: str = "") -> str:
    begin = reader.pos
    return ", ".join([_inner(found, begin, prefix, suffix) for found in reader.attributes()])


def _quoted(text: str | bytes, offset: int) -> str:
    if isinstance(text, bytes):
        raise malformed("a name that is no UTF-8", offset, text[:40])
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _name(reader: Reader) -> str:
    return _quoted(reader.string(), reader.pos)


def _manual_axes(reader: Reader) -> str:
    return f"#sdy<manual_axes{{{', '.join(_quoted(reader.name(), reader.pos) for _ in range(reader.count('axes')))}}}>"


def _mesh_axis(reader: Reader) -> str:
    return f"{_name(reader)}={reader.signed()}"


def _mesh(reader: Reader) -> str:
    axes, devices = _parts(reader), reader.signed_list()
    return f"#sdy.mesh<[{axes}]{f', device_ids=[{_numbers(devices)}]' if devices else ''}>"


def _numbers(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _sub_axis(reader: Reader) -> str:
    return f":({reader.signed()}){reader.signed()}"


def _axis(reader: Reader) -> str:
    name, begin, part = _name(reader), reader.pos, reader.optional_attribute()
    return name if part is None else name + _inner(part, begin)


def _dimension(reader: Reader) -> str:
    axes, is_closed = _parts(reader), reader.boolean()
    priority, has_priority = reader.flagged()
    return f"{{{', '.join(filter(None, (axes, '' if is_closed else '?')))}}}{f'p{priority}' if has_priority else ''}"


def _sharding(reader: Reader, unreduced: bool = False, has_reduction: bool = False) -> str:
    begin, mesh = reader.pos, reader.attribute()
    where = f"@{mesh.name}" if isinstance(mesh, ir.Symbol) else _inner(mesh, begin, "#sdy.")
    text = f"#sdy.sharding<{where}, [{_parts(reader)}]"
    parts = {word: _parts(reader) for word in ("replicated", "unreduced")[:1 + unreduced]}
    reduction = _reduction(reader) if has_reduction else ""
    for word, axes in parts.items():
        text += f", {word}={reduction if word == 'unreduced' else ''}{{{axes}}}" if axes else ""
    return text + ">"


def _reduction(reader: Reader) -> str:
    """The word in front of axes along which parts are reduced: none for a sum."""
    begin, number = reader.pos, reader.signed()
    if not 0 <= number < len(REDUCTIONS):
        raise malformed("an unknown reduction of sdy", begin, number, f"less than {len(REDUCTIONS)}")
    return REDUCTIONS[number] if number else ""


def _sharding_per_value(reader: Reader) -> str:
    return f"#sdy.sharding_per_value<[{_parts(reader, '#sdy.sharding')}]>"


def _factor(number: int) -> str:
    """The letter of a factor: i, j, ..., z, z_1, z_2, ..."""
    return chr(ord("i") + number) if 0 <= number <= 17 else f"z_{number - 17}"


def _dimension_factors(reader: Reader) -> str:
    return "".join(map(_factor, reader.signed_list())) or "*"


def _tensor_factors(reader: Reader) -> str:
    return f"[{_parts(reader)}]"


def _rule(reader: Reader) -> str:
    sizes = reader.signed_list()
    text = f"({_parts(reader)})->({_parts(reader)}) {{{', '.join(f'{_factor(k)}={size}' for k, size in enumerate(sizes))}}}"
    for word in ("reduction", "need_replication", "permutation", "blocked_propagation"):
        factors = ", ".join(map(_factor, reader.signed_list()))
        text += f" {word}={{{factors}}}" if factors else ""
    return f"#sdy.op_sharding_rule<{text}{', custom' if reader.boolean() else ''}>"


def _axes(reader: Reader) -> str:
    return f"#sdy<axis_ref_list{{{_parts(reader)}}}>"


def _axes_of_dimensions(reader: Reader) -> str:
    return f"#sdy<list_of_axis_ref_lists[{_parts(reader, '#sdy<axis_ref_list', '>')}]>"


def _exchange(reader: Reader) -> str:
    return f"{{{_parts(reader)}}}: {reader.signed()}->{reader.signed()}"


def _exchanges(reader: Reader) -> str:
    return f"#sdy<all_to_all_param_list[{_parts(reader)}]>"


_ATTRIBUTES: tuple[Callable[[Reader], str], ...] = (
    _manual_axes, _mesh_axis, _mesh, _sub_axis, _axis, _dimension, _sharding, _sharding_per_value, _dimension_factors,
    _tensor_factors, _rule, _axes, _axes_of_dimensions, _exchange, _exchanges, lambda reader: _sharding(reader, True),
    _sharding_per_value, lambda reader: _sharding(reader, True, True))
