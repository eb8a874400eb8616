"""Attributes and types of VHLO, StableHLO's versioned copy, in bytecode; read as what they are in StableHLO.

Codes and fields: stablehlo/dialect/VhloBytecode.cpp. Codes and encodings never change between versions; new ones are added.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...core.errors import UnsupportedError
from ...core.types import PRED, PrimitiveType
from .. import ir
from ..text.types import type_text
from . import builtin, dialects
from .cursor import malformed
from .reader import Reader

_DIALECT = "stablehlo"


def vhlo_attribute(reader: Reader) -> Any:
    begin, code = reader.pos, reader.varint()
    read = _ATTRIBUTES.get(code)
    if read is None:
        raise _unknown("attribute", code, begin)
    return read(reader)


def _unknown(what: str, code: int, offset: int) -> UnsupportedError:
    return UnsupportedError(f"a VHLO {what} that is not known", subject="MLIR bytecode", got=f"code {code}",
                            where=f"byte {offset}", hint="write it with an older version of StableHLO")


def _boolean(reader: Reader) -> bool:
    begin, value = reader.pos, reader.varint()
    if value > 1:
        raise malformed("a boolean that is none", begin, value)
    return bool(value)


def _enum(kind: str) -> Callable[[Reader], Any]:
    return lambda reader: dialects.enum(reader, _DIALECT, kind)


def _struct(kind: str, fields: list[dialects.Field]) -> Callable[[Reader], Any]:
    return lambda reader: dialects.struct(reader, f"{_DIALECT}.{kind}", fields)


def _axis(reader: Reader) -> ir.Struct:
    name = reader.name()
    part = {"sub_axis_info": reader.attribute()} if reader.varint() else {}
    return ir.Struct(f"{_DIALECT}.axis_ref", {"name": name, **part})


def _groups_of_mesh(reader: Reader) -> ir.Struct:
    """Replica groups by the axes of a mesh, which stands here or has a name."""
    mesh, axes = reader.attribute(), reader.attribute()
    named = ir.Symbol(mesh) if isinstance(mesh, str) else mesh
    return ir.Struct(f"{_DIALECT}.replica_group_mesh_axes", {"mesh": named, "axes": axes})


def _mesh(reader: Reader) -> ir.Struct:
    axes, devices = reader.attribute(), reader.optional_attribute()
    return ir.Struct(f"{_DIALECT}.mesh", {"axes": axes} if devices is None else {"axes": axes, "device_ids": devices})


_ATTRIBUTES: dict[int, Callable[[Reader], Any]] = {
    1: Reader.attributes, 2: _boolean, 3: _enum("comparison_direction"), 4: _enum("comparison_type"),
    5: Reader.varint,  # the version of a custom call's interface, which is an integer in StableHLO
    6: builtin.dictionary, 7: _enum("fft_type"), 8: builtin.float_attribute, 9: builtin.integer_attribute,
    10: _struct("output_operand_alias", dialects.ALIAS), 11: _enum("precision"), 12: _enum("rng_algorithm"),
    13: _enum("rng_distribution"), 14: Reader.string, 15: builtin.elements, 16: _enum("transpose"), 17: Reader.type,
    18: lambda reader: dialects.bounds(reader, _DIALECT), 19: _enum("result_accuracy_mode"),
    20: _struct("result_accuracy", dialects.ACCURACY), 21: _struct("sub_axis_info", dialects.SUB_AXIS), 22: _axis,
    23: _groups_of_mesh, 24: _struct("mesh_axis", [dialects.Field("name", Reader.name), dialects.SUB_AXIS[1]]), 25: _mesh,
}

# ------------------------------------------------------------------------------------------------------------------- types


def vhlo_type(reader: Reader) -> ir.Type:
    begin, code = reader.pos, reader.varint()
    made: Any = _TYPES.get(code)
    if made is None:
        raise _unknown("type", code, begin)
    return made(reader) if isinstance(made, FunctionType) else made


def _function(reader: Reader) -> ir.FunctionType:
    return ir.FunctionType(reader.types(), reader.types())


def _buffer(reader: Reader) -> ir.OtherType:
    sizes = "".join(f"{'?' if size is None else size}x" for size in reader.sizes())
    return ir.OtherType(f"memref<{sizes}{type_text(reader.type())}>")


_P = PrimitiveType
_TYPES: dict[int, Any] = {
    0: PRED, 1: builtin.complex_type, 2: _P.BF16, 3: _P.F16, 4: _P.F32, 5: _P.F64, 6: _P.F8E4M3FN, 7: _P.F8E5M2, 8: _function,
    9: ir.INDEX, 10: _P.S4, 11: _P.S8, 12: _P.S16, 13: _P.S32, 14: _P.S64, 15: _P.U4, 16: _P.U8, 17: _P.U16, 18: _P.U32,
    19: _P.U64, 20: builtin.tensor, 21: builtin.encoded_tensor, 22: ir.TOKEN, 23: builtin.tuple_type, 24: dialects.quantized,
    25: builtin.unranked_tensor, 26: ir.OtherType("!shape.witness"), 27: _P.F8E4M3FNUZ, 28: _P.F8E5M2FNUZ, 29: _P.F8E4M3B11FNUZ,
    30: dialects.quantized_by_axis, 31: _P.S2, 32: _P.U2, 33: ir.OtherType("none"), 34: ir.OtherType("tf32"), 35: _P.F8E4M3,
    36: _P.F8E3M4, 37: _P.F4E2M1FN, 38: _P.F6E2M3FN, 39: _P.F6E3M2FN, 40: _P.F8E8M0FNU, 41: _buffer,
    42: lambda reader: dialects.future(reader.types()),
}
