"""ShapeProto to Shape and back."""

from __future__ import annotations

import re
from typing import Any

from ..core.errors import HloSyntaxError
from ..core.layouts import Layout, Tile
from ..core.shape import UNBOUNDED, ProgramShape, Shape
from ..core.types import BUFFER, TUPLE, PrimitiveType, type_from_number, type_from_text

_LEVELS = "DCSH"
"""The letters of dimension level types in text: dense, compressed, singleton, loose compressed."""


class Shapes:
    """Shapes of one file: equal ones are one object, as the text's reader has it."""

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}

    def read(self, proto: Any) -> Shape:
        """The shape of a ShapeProto. Raises HloSyntaxError for what is no shape."""
        data = proto.SerializeToString()
        found = self._known.get(data)
        if found is None:
            found = self._known[data] = self._made(proto)
        return found

    def _made(self, proto: Any) -> Shape:
        element_type = type_from_number(proto.element_type)
        if element_type is None:
            raise _unknown_type(proto.element_type)
        if element_type in (TUPLE, BUFFER):
            return Shape(element_type, tuple_shapes=tuple(map(self.read, proto.tuple_shapes)))
        if not element_type.is_array:
            return Shape(element_type)
        dimensions = tuple(proto.dimensions)
        flags = tuple(proto.is_dynamic_dimension)
        if any(d < 0 and d != UNBOUNDED for d in dimensions) or len(flags) not in (0, len(dimensions)):
            raise _wrong("a shape has wrong dimensions", f"{element_type.text}{list(dimensions)}")
        flags = tuple(f or d == UNBOUNDED for f, d in zip(flags or (False,) * len(dimensions), dimensions, strict=True))
        layout = self._layout(proto.layout, len(dimensions)) if proto.HasField("layout") else None
        return Shape(element_type, dimensions, layout, flags if any(flags) else ())

    def _layout(self, proto: Any, rank: int) -> Layout | None:
        """A layout; None for that of a scalar, which says nothing."""
        order = tuple(proto.minor_to_major)
        if sorted(order) != list(range(rank)):
            raise _wrong("a layout does not list each dimension once", str(list(order)))
        found = Layout(order, tuple(Tile(tuple(-1 if d == UNBOUNDED else d for d in tile.dimensions)) for tile in proto.tiles),
                       proto.tail_padding_alignment_in_elements or 1, proto.element_size_in_bits, proto.memory_space,
                       tuple(self._other(proto)))
        return found if order or str(found) != "{}" else None

    def _other(self, proto: Any) -> list[tuple[str, str]]:
        """What is only kept, as its text."""
        found: list[tuple[str, str]] = []
        levels = list(proto.dim_level_types)
        if any(levels) or any(not u for u in proto.dim_unique) or any(not o for o in proto.dim_ordered):
            found.append(("D", ",".join(_level(proto, n) for n in range(len(levels)))))
        for key, number in (("#", proto.index_primitive_type), ("*", proto.pointer_primitive_type)):
            if number and (element_type := type_from_number(number)):
                found.append((key, element_type.text))
        if proto.split_configs:
            found.append(("SC", ")(".join(f"{s.dimension}:{','.join(map(str, s.split_indices))}" for s in proto.split_configs)))
        if proto.HasField("physical_shape"):
            found.append(("P", self.read(proto.physical_shape).to_text()))
        if proto.dynamic_shape_metadata_prefix_bytes:
            found.append(("M", str(proto.dynamic_shape_metadata_prefix_bytes)))
        return found


def _level(proto: Any, number: int) -> str:
    level = proto.dim_level_types[number]
    unique = proto.dim_unique[number] if number < len(proto.dim_unique) else True
    ordered = proto.dim_ordered[number] if number < len(proto.dim_ordered) else True
    if not 0 <= level < len(_LEVELS):
        raise _wrong("a layout has an unknown kind of level", str(level))
    return _LEVELS[level] + "+" * (not unique) + "~" * (not ordered)


def write_shape(shape: Shape, proto: Any) -> None:
    """Fill a ShapeProto. As XLA does, arrays get a layout and tails, also where they have the default ones."""
    proto.element_type = shape.element_type.number
    for part in shape.tuple_shapes:
        write_shape(part, proto.tuple_shapes.add())
    if not shape.is_array:
        return
    proto.dimensions.extend(shape.dimensions)
    proto.is_dynamic_dimension.extend(shape.dynamic_flags)
    layout = shape.layout or Layout(shape.minor_to_major)
    into = proto.layout
    into.minor_to_major.extend(layout.minor_to_major)
    into.tail_padding_alignment_in_elements = layout.tail_padding_alignment
    into.element_size_in_bits, into.memory_space = layout.element_size_in_bits, layout.memory_space
    for tile in layout.tiles:
        into.tiles.add().dimensions.extend(UNBOUNDED if d == -1 else d for d in tile.dimensions)
    for key, text in layout.other:
        _write_other(key, text, into)


def _write_other(key: str, text: str, into: Any) -> None:
    if key == "D":
        for word in text.split(","):
            into.dim_level_types.append(_LEVELS.index(word.strip()[0]))
            into.dim_unique.append("+" not in word)
            into.dim_ordered.append("~" not in word)
    elif key in "#*":
        element_type = type_from_text(text)
        number = element_type.number if element_type else 0
        setattr(into, "index_primitive_type" if key == "#" else "pointer_primitive_type", number)
    elif key == "SC":
        for dimension, indices in re.findall(r"(\d+)\s*:\s*([\d,\s]*)", text):
            into.split_configs.add(dimension=int(dimension), split_indices=map(int, filter(None, indices.split(","))))
    elif key == "P":
        write_shape(Shape.parse(text), into.physical_shape)
    elif key == "M":
        into.dynamic_shape_metadata_prefix_bytes = int(text)


def write_program_shape(shape: ProgramShape, proto: Any) -> None:
    """Fill a ProgramShapeProto."""
    for parameter in shape.parameters:
        write_shape(parameter, proto.parameters.add())
    write_shape(shape.result, proto.result)
    proto.parameter_names.extend(shape.parameter_names)


def _wrong(what: str, got: str) -> HloSyntaxError:
    return HloSyntaxError(what, subject="HLO proto", got=got)


def _unknown_type(number: int) -> HloSyntaxError:
    return HloSyntaxError("a shape has an element type that XLA does not have", subject="HLO proto", got=f"number {number}",
                          expected=f"one of {', '.join(t.text for t in PrimitiveType)}")
