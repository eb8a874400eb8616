"""Attributes and types of the dialects StableHLO, MHLO, CHLO and quant in bytecode.

Codes and fields: stablehlo/dialect/StablehloBytecode.cpp and ChloBytecode.cpp, xla/mlir_hlo/mhlo/IR/mhlo_bytecode.cc,
mlir/include/mlir/Dialect/Quant/IR/QuantDialectBytecode.td. Fields that text leaves out (empty lists, zero) are left out here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import HloSyntaxError, UnsupportedError
from ...core.types import PrimitiveType, type_from_text
from .. import ir
from ..text.types import type_text
from .cursor import malformed
from .reader import Reader

# ------------------------------------------------------------------------------------------------------------------- enums

ENUMS: dict[str, tuple[str | None, ...]] = {
    "comparison_direction": ("EQ", "NE", "GE", "GT", "LE", "LT"),
    "comparison_type": ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED", "WEAKORDER"),
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "precision": ("DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"),
    "rng_algorithm": ("DEFAULT", "THREE_FRY", "PHILOX"),
    "rng_distribution": (None, "UNIFORM", "NORMAL"),
    "transpose": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "result_accuracy_mode": ("DEFAULT", "HIGHEST", "TOLERANCE"),
    "kind": ("sharding",),
    "fusion_kind": ("kLoop", "kInput", "kOutput", "kCustom"),
}
"""The words of each enumeration by their numbers."""


def enum(reader: Reader, dialect: str, kind: str) -> ir.Enum:
    """One of `ENUMS` by its number."""
    begin, number = reader.pos, reader.varint()
    words = ENUMS[kind]
    word = words[number] if number < len(words) else None
    if word is None:
        raise malformed("a value that its enumeration does not have", begin, number, ", ".join(filter(None, words)))
    return ir.Enum(f"{dialect}.{kind}", word)


# ----------------------------------------------------------------------------------------------------------------- structs


class Field(NamedTuple):
    name: str
    read: Callable[[Reader], Any]
    omitted: tuple[Any, ...] = ()
    """Values for which text leaves the field out."""


def _lists(*names: str) -> list[Field]:
    return [Field(name, Reader.signed_list, ((),)) for name in names]


def _number(name: str) -> Field:
    return Field(name, Reader.signed)


def struct(reader: Reader, kind: str, fields: list[Field]) -> ir.Struct:
    found = {field.name: (field.read(reader), field.omitted) for field in fields}
    return ir.Struct(kind, {name: value for name, (value, omitted) in found.items() if value not in omitted})


_INDEX_VECTOR = Field("index_vector_dim", Reader.signed, (0,))
_CONV = [f for side, *numbers in (("input", "batch", "feature"), ("kernel", "input_feature", "output_feature"),
                                  ("output", "batch", "feature"))
         for f in (*(_number(f"{side}_{n}_dimension") for n in numbers), Field(f"{side}_spatial_dimensions", Reader.signed_list))]
_DOT = _lists("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
_GATHER = [*_lists("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims",
                   "start_index_map"), _INDEX_VECTOR]
_GATHER_WITHOUT_BATCH = [*_lists("offset_dims", "collapsed_slice_dims", "start_index_map"), _INDEX_VECTOR]
_SCATTER = [*_lists("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
                    "scatter_dims_to_operand_dims"), _INDEX_VECTOR]
_SCATTER_WITHOUT_BATCH = [*_lists("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"), _INDEX_VECTOR]
_CHANNEL = [_number("handle"), _number("type")]
ALIAS = [Field("output_tuple_indices", Reader.signed_list), _number("operand_index"),
         Field("operand_tuple_indices", Reader.signed_list)]
_ALGORITHM = [*(Field(name, Reader.type) for name in ("lhs_precision_type", "rhs_precision_type", "accumulation_type")),
              *map(_number, ("lhs_component_count", "rhs_component_count", "num_primitive_operations")),
              Field("allow_imprecise_accumulation", Reader.boolean)]
ACCURACY = [Field("atol", Reader.double, (0.0,)), Field("rtol", Reader.double, (0.0,)), Field("ulps", Reader.signed, (0,)),
            Field("mode", Reader.attribute)]
_MESH_GROUPS = [Field("mesh", Reader.attribute), Field("axes", Reader.attributes)]
SUB_AXIS = [_number("pre_size"), _number("size")]
_AXIS = [Field("name", Reader.string), Field("sub_axis_info", lambda r: r.attribute() if r.boolean() else None, (None,))]
_MESH_AXIS = [Field("name", Reader.string), _number("size")]
_MESH = [Field("axes", Reader.attribute), Field("device_ids", lambda r: r.attribute() if r.boolean() else None, (None,))]


def bounds(reader: Reader, dialect: str) -> ir.Struct:
    return ir.Struct(f"{dialect}.bounds", {"bounds": reader.sizes()})


def _argument_alias(reader: Reader, dialect: str) -> ir.Opaque:
    """Which result an argument may share its memory with, which is handed on as text."""
    inside, result, within, must = reader.signed_list(), reader.signed(), reader.signed_list(), reader.varint()
    fields = [f"tuple_indices = {list(inside)}"] if inside else []
    fields += [f"result_index = {[result, *within]}", *(["must_alias"] if must else [])]
    return ir.Opaque(f"#{dialect}.result_alias<{', '.join(fields)}>")


class _Layouts(NamedTuple):
    """A struct; of several layouts, which different versions write, the one that fills the entry."""

    name: str
    layouts: tuple[list[Field], ...]

    def read(self, reader: Reader, dialect: str) -> ir.Struct:
        begin, last = reader.pos, len(self.layouts) - 1
        for number, fields in enumerate(self.layouts):
            reader.pos = begin
            try:
                found = struct(reader, f"{dialect}.{self.name}", fields)
                if reader.is_empty:
                    return found
            except HloSyntaxError:
                if number == last:
                    raise
        raise malformed("an attribute that does not fill its entry", begin, f"{dialect}.{self.name}")


def _struct(name: str, *layouts: list[Field]) -> _Layouts:
    return _Layouts(name, layouts)


_HLO: tuple[str | _Layouts | Callable[[Reader, str], Any], ...] = (
    _argument_alias, _struct("channel_handle", _CHANNEL), "comparison_direction", "comparison_type",
    _struct("conv", _CONV), _struct("dot", _DOT), "fft_type", _struct("gather", _GATHER, _GATHER_WITHOUT_BATCH), "precision",
    "rng_algorithm", "rng_distribution", _struct("scatter", _SCATTER, _SCATTER_WITHOUT_BATCH), "transpose", bounds)

_ATTRIBUTES: dict[str, tuple[str | _Layouts | Callable[[Reader, str], Any], ...]] = {
    "stablehlo": (*_HLO, _struct("output_operand_alias", ALIAS), _struct("dot_algorithm", _ALGORITHM), "result_accuracy_mode",
                  _struct("result_accuracy", ACCURACY), _struct("replica_group_mesh_axes", _MESH_GROUPS),
                  _struct("sub_axis_info", SUB_AXIS), _struct("axis_ref", _AXIS), _struct("mesh_axis", _MESH_AXIS),
                  _struct("mesh", _MESH)),
    "mhlo": (*_HLO, "kind", "fusion_kind", _struct("output_operand_alias", ALIAS), "result_accuracy_mode",
             _struct("result_accuracy", ACCURACY)),
    "chlo": ("comparison_direction", "comparison_type"),
}
"""What each dialect's codes stand for."""


def encoding_of(dialect: str, kind: str) -> tuple[int, list[Field]] | None:
    """The code of a kind of attribute and, of a struct, its fields in the newest layout; None where it has no encoding."""
    for code, found in enumerate(_ATTRIBUTES.get(dialect, ())):
        if isinstance(found, _Layouts) and found.name == kind:
            return code, found.layouts[0]
        if found == kind or (found is bounds and kind == "bounds"):
            return code, []
    return None


def _attribute_of(dialect: str) -> Callable[[Reader], Any]:
    kinds = _ATTRIBUTES[dialect]

    def read(reader: Reader) -> Any:
        begin, code = reader.pos, reader.varint()
        if code >= len(kinds):
            raise malformed(f"an attribute of an unknown kind of {dialect}", begin, code, f"less than {len(kinds)}")
        kind = kinds[code]
        if isinstance(kind, str):
            return enum(reader, dialect, kind)
        return kind.read(reader, dialect) if isinstance(kind, _Layouts) else kind(reader, dialect)

    return read


# ------------------------------------------------------------------------------------------------------------------- types


def future(types: tuple[ir.Type, ...]) -> ir.OtherType:
    return ir.OtherType(f"!stablehlo.future<{', '.join(map(type_text, types))}>")


def _hlo_type(reader: Reader) -> ir.Type:
    begin, code = reader.pos, reader.varint()
    if code == 0:
        return ir.TOKEN
    if code == 1:
        return future(reader.types())
    raise malformed("a type of an unknown kind", begin, code)


def _no_type(reader: Reader) -> ir.Type:
    raise malformed("a type of a dialect that has none", reader.pos)


# --------------------------------------------------------------------------------------------------------- quantized types


def _storage(reader: Reader, flags: int) -> PrimitiveType:
    """The integers that stand for quantized values; the flags say whether they have a sign."""
    begin, of = reader.pos, reader.type()
    found = type_from_text(f"{'s' if flags & 1 else 'u'}{of.bits}") if isinstance(of, PrimitiveType) else None
    if found is None:
        raise malformed("quantized values that are no integers", begin, of)
    return found


def _expressed(reader: Reader) -> PrimitiveType:
    begin, of = reader.pos, reader.type()
    if not isinstance(of, PrimitiveType):
        raise malformed("quantized values that express no floats", begin, of)
    return of


def quantized(reader: Reader) -> ir.Quantized:
    """One scale and zero point for the whole tensor."""
    flags = reader.varint()
    storage, expressed = _storage(reader, flags), _expressed(reader)
    scale, zero, low, high = reader.double(), reader.signed(), reader.signed(), reader.signed()
    return ir.Quantized(storage, low, high, expressed, (scale,), (zero,))


def quantized_by_axis(reader: Reader) -> ir.Quantized:
    flags = reader.varint()
    storage, expressed, axis = _storage(reader, flags), _expressed(reader), reader.varint()
    low, high = reader.signed(), reader.signed()
    scales = tuple([reader.double() for _ in range(reader.count("scales"))])
    return ir.Quantized(storage, low, high, expressed, scales, reader.signed_list(), (axis,), (1,))


def _quantized_by_block(reader: Reader) -> ir.Quantized:
    flags = reader.varint()
    storage, expressed = _storage(reader, flags), _expressed(reader)
    low, high, axes, block, begin = reader.signed(), reader.signed(), reader.signed_list(), reader.signed_list(), reader.pos
    scales, zeros = reader.attribute(), reader.attribute()
    if not isinstance(scales, ir.Elements) or not isinstance(zeros, ir.Elements):
        raise malformed("scales that are no elements", begin)
    return ir.Quantized(storage, low, high, expressed, tuple(scales.value.astype(np.float64).ravel().tolist()),
                        tuple(zeros.value.astype(np.int64).ravel().tolist()), axes, block)


_QUANTIZED = {4: quantized, 5: quantized_by_axis, 6: _quantized_by_block}


def _quantized_type(reader: Reader) -> ir.Quantized:
    begin, code = reader.pos, reader.varint()
    if code not in _QUANTIZED:
        raise UnsupportedError("only uniform quantized types are supported", subject="MLIR bytecode", got=f"code {code}",
                               where=f"byte {begin}")
    return _QUANTIZED[code](reader)


def _no_attribute(reader: Reader) -> Any:
    raise malformed("an attribute of a dialect that has none", reader.pos)


DECODERS: dict[str, tuple[Callable[[Reader], Any], Callable[[Reader], Any]]] = {
    "stablehlo": (_attribute_of("stablehlo"), _hlo_type), "mhlo": (_attribute_of("mhlo"), _hlo_type),
    "chlo": (_attribute_of("chlo"), _no_type), "quant": (_no_attribute, _quantized_type)}
"""For each dialect what reads its attributes and its types."""
