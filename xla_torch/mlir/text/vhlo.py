"""VHLO's types and attributes in text, as what they are in StableHLO: ``!vhlo.f32_v1``, ``#vhlo.integer_v1<1 : i64>``.

VHLO is the copy of StableHLO that keeps its versions apart; portable artifacts hold it, and are now and then printed. What its
operations are in StableHLO, `vhlo.py` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...core.types import C64, C128, F32, F64, PrimitiveType, type_from_text
from ..ir import TOKEN, Attribute, Enum, FunctionType, OtherType, Quantized, Struct, Tensor, TupleType, Type
from .attributes import AttributeReader
from .scanner import BLANK
from .types import scalar_type

_versioned = re.compile(r"(\w+)_v\d+")
_enum = re.compile(r"<\s*(\w+)_v\d+\s+(\w+)\s*>")
_range = re.compile(rf"{BLANK}(-?\d{{1,19}})\s*:\s*(-?\d{{1,19}})")
_decimal = re.compile(rf"{BLANK}(-?\d+\.\d*(?:[eE][+-]?\d+)?)")

_INTERFACES = ("API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
               "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI")
_SIGNED = 1
"""The flag of a quantized type whose storage has a sign."""


class VersionedReader(AttributeReader):
    """Reads VHLO's types and attributes too."""

    def versioned_type(self, name: str, start: int) -> Type:
        match = _versioned.fullmatch(name)
        word = match[1] if match else ""
        read = _TYPES.get(word)
        if read is not None:
            return read(self)
        scalar = {"bool": "i1", "tf31": "tf32"}.get(word, word)
        found = scalar_type(scalar) if match else None
        if found is None or (isinstance(found, OtherType) and scalar not in _OTHER_SCALARS):
            raise self.error(f"no type of VHLO is called {name!r}", start)
        return found

    def versioned_attribute(self, name: str, start: int) -> Attribute:
        if not name:
            match = self.take(_enum, "a word of VHLO")
            if match[1] == "api_version" and match[2] in _INTERFACES:
                return _INTERFACES.index(match[2])
            return Enum(f"stablehlo.{match[1]}", match[2])
        match = _versioned.fullmatch(name)
        read = _ATTRIBUTES.get(match[1]) if match else None
        if read is None:
            raise self.error(f"no attribute of VHLO is called {name!r}", start)
        return read(self)

    # ---- types

    def _one_type(self) -> Type:
        self.expect("<")
        found = self.type()
        self.expect(">")
        return found

    def _complex_type(self) -> Type:
        start = self.skip()
        part = self._one_type()
        if part not in (F32, F64):
            raise self.error("no complex type has such parts", start)
        return C64 if part is F32 else C128

    def _unranked_type(self) -> Tensor:
        start = self.skip()
        element = self._one_type()
        if isinstance(element, Tensor | TupleType | FunctionType):
            raise self.error("a tensor cannot have elements of this type", start)
        return Tensor(None, element)

    def _tuple_type(self) -> TupleType:
        return TupleType(tuple(self.listed(self.type, "<", ">")))

    def _function_type_in_brackets(self) -> FunctionType:
        start = self.skip()
        found = self._one_type()
        if not isinstance(found, FunctionType):
            raise self.error("expects the type of a function", start)
        return found

    def _quantized_type(self) -> Quantized:
        """``<storage:expressed, scale:zero, low:high, flags>``."""
        self.expect("<")
        start, storage, expressed = self._storage_and_expressed()
        scale = float(self.take(_decimal, "a scale")[1])
        self.expect(":")
        zero_point = self.integer()
        return self._quantized_end(start, storage, expressed, (scale,), (zero_point,), ())

    def _quantized_type_by_axis(self) -> Quantized:
        """``<storage:expressed, axis, [scales], [zeros], low:high, flags>``."""
        self.expect("<")
        start, storage, expressed = self._storage_and_expressed()
        axis = self.integer()
        self.expect(",")
        scales = self.listed(lambda: float(self.take(_decimal, "a scale")[1]), "[", "]")
        self.expect(",")
        zero_points = self.integers()
        return self._quantized_end(start, storage, expressed, tuple(scales), zero_points, (axis,))

    def _storage_and_expressed(self) -> tuple[int, PrimitiveType, PrimitiveType]:
        start, storage = self.skip(), self.type()
        self.expect(":")
        expressed = self.type()
        self.expect(",")
        if not isinstance(storage, PrimitiveType) or not isinstance(expressed, PrimitiveType) or not storage.is_integral:
            raise self.error("these are not the types of a quantized type", start)
        return start, storage, expressed

    def _quantized_end(self, start: int, storage: PrimitiveType, expressed: PrimitiveType, scales: tuple[float, ...],
                       zero_points: tuple[int, ...], axes: tuple[int, ...]) -> Quantized:
        self.expect(",")
        limits = self.take(_range, "the least and the greatest value")
        self.expect(",")
        flags = self.integer()
        self.expect(">")
        stored = type_from_text(f"{'s' if flags & _SIGNED else 'u'}{storage.bits}")
        if stored is None or len(scales) != len(zero_points):
            raise self.error("a quantized type that cannot be", start)
        return Quantized(stored, int(limits[1]), int(limits[2]), expressed, scales, zero_points, axes, (1,) * len(axes))

    # ---- attributes

    def _one_attribute(self) -> Attribute:
        self.expect("<")
        found = self.attribute()
        self.expect(">")
        return found

    def _dictionary_of_strings(self) -> dict[str, Attribute]:
        """``<{#vhlo.string_v1<"a"> = attribute, ...}>``."""
        found: dict[str, Attribute] = {}

        def entry() -> None:
            start, name = self.skip(), self.attribute()
            if not isinstance(name, str) or name in found:
                raise self.error("expects a name that was not given before", start)
            self.expect("=")
            found[name] = self.attribute()

        self.expect("<")
        self.listed(entry)
        self.expect(">")
        return found

    def _alias(self) -> Struct:
        return Struct("stablehlo.output_operand_alias", self.fields("output_operand_alias"))

    def _accuracy(self) -> Struct:
        """Tolerances of 0 are left out, as in StableHLO."""
        fields = self.fields("result_accuracy")
        return Struct("stablehlo.result_accuracy", {k: v for k, v in fields.items() if v != 0})


_OTHER_SCALARS = ("index", "none", "tf32")

_TYPES: dict[str, Callable[[VersionedReader], Type]] = {
    "complex": VersionedReader._complex_type,
    "func": VersionedReader._function_type_in_brackets,
    "quant": VersionedReader._quantized_type,
    "quant_per_axis": VersionedReader._quantized_type_by_axis,
    "tensor": VersionedReader.tensor,
    "token": lambda _: TOKEN,
    "tuple": VersionedReader._tuple_type,
    "unranked_tensor": VersionedReader._unranked_type,
    "witness": lambda _: OtherType("!shape.witness"),
}

_ATTRIBUTES: dict[str, Callable[[VersionedReader], Attribute]] = {
    **dict.fromkeys(("array", "bool", "float", "integer", "string", "tensor", "type"), VersionedReader._one_attribute),
    "dict": VersionedReader._dictionary_of_strings,
    "output_operand_alias": VersionedReader._alias,
    "result_accuracy": VersionedReader._accuracy,
    "type_extensions": lambda reader: Struct("stablehlo.bounds", {"bounds": reader.bounds()}),
}
