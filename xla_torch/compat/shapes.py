"""Provide element types, layouts and shapes as XLA's client library does.

Properties of xla_torch are methods here. Each class holds the class of xla_torch with the same name, which `given` returns.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import layouts, shape, types
from ..core.errors import InvalidArgument
from ..proto.schema import message_class
from ..proto.shapes import write_shape
from .errors import raising_methods

__all__ = ["DTYPE_TO_XLA_ELEMENT_TYPE", "XLA_ELEMENT_TYPE_TO_DTYPE", "Layout", "PrimitiveType", "ProgramShape", "Shape",
           "ShapeIndex", "dtype_to_etype", "shape_from_pyval"]


def given(value: Any) -> Any:
    """A value of the client library's classes as xla_torch has it, also in lists; any other value as it is."""
    if isinstance(value, (list, tuple)):
        return [given(v) for v in value]
    of_xla_torch = getattr(type(value), "of_xla_torch", None)
    return value if of_xla_torch is None else of_xla_torch(value)


_NUMBERS = {"PRIMITIVE_TYPE_INVALID": 0} | {t.name: t.number for t in types.PrimitiveType}


class _OfNumber(enum.IntEnum):
    def of_xla_torch(self) -> types.PrimitiveType:
        """The element type. Raises InvalidArgument for the invalid one."""
        found = types.type_from_number(int(self))
        if found is None:
            raise InvalidArgument("not an element type", got=self.name, expected="PrimitiveType.F32 and the like")
        return found


PrimitiveType: Any = _OfNumber("PrimitiveType", _NUMBERS, module=__name__)
"""XLA's element types, with their numbers."""

XLA_ELEMENT_TYPE_TO_DTYPE: dict[Any, np.dtype] = {PrimitiveType(t.number): np.dtype(np.object_) if t.numpy is None else t.numpy
                                                  for t in types.PrimitiveType
                                                  if t.is_array or t in (types.TUPLE, types.TOKEN)}
DTYPE_TO_XLA_ELEMENT_TYPE = {str(t.numpy): PrimitiveType(t.number) for t in types.PrimitiveType if t.numpy is not None}


def dtype_to_etype(dtype: Any) -> Any:
    """The element type of a NumPy dtype. Raises KeyError where there is none."""
    return DTYPE_TO_XLA_ELEMENT_TYPE[str(np.dtype(dtype))]


@raising_methods
class Layout:
    """Hold the order of an array's dimensions in memory."""

    def __init__(self, minor_to_major: Sequence[int], tiling: Sequence[Sequence[int]] = (), element_size_in_bits: int = 0):
        self.own = layouts.Layout(tuple(minor_to_major), tuple(layouts.Tile(tuple(t)) for t in tiling),
                                  element_size_in_bits=element_size_in_bits)

    @classmethod
    def of(cls, own: layouts.Layout) -> Layout:
        """A layout of xla_torch."""
        made = cls.__new__(cls)
        made.own = own
        return made

    def of_xla_torch(self) -> layouts.Layout:
        return self.own

    def minor_to_major(self) -> tuple[int, ...]:
        return self.own.minor_to_major

    def tiling(self) -> list[tuple[int, ...]]:
        return [tile.dimensions for tile in self.own.tiles]

    def element_size_in_bits(self) -> int:
        return self.own.element_size_in_bits

    def to_string(self) -> str:
        return str(self.own)

    __str__ = __repr__ = to_string

    def __eq__(self, other: object) -> bool:
        return self.own == other.own if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.own)


@raising_methods
class Shape:
    """Hold an array, tuple or token shape: ``Shape("f32[2,3]{1,0}")``, or a static method."""

    def __init__(self, s: str):
        self.own = shape.Shape.parse(s)

    @staticmethod
    def of(own: shape.Shape) -> Shape:
        """A shape of xla_torch."""
        made = Shape.__new__(Shape)
        made.own = own
        return made

    def of_xla_torch(self) -> shape.Shape:
        return self.own

    # ---- making shapes

    @staticmethod
    def array_shape(type: Any, dims: Sequence[int] = (), layout: Sequence[int] | None = None,
                    dynamic_dimensions: Sequence[bool] | None = None) -> Shape:
        """An array of a NumPy dtype or a PrimitiveType; `layout` is minor to major, by default the last dimension first."""
        order = None if layout is None else layouts.Layout(tuple(layout))
        return Shape.of(shape.Shape.array(given(type), dims, () if dynamic_dimensions is None else dynamic_dimensions, order))

    @staticmethod
    def scalar_shape(type: Any) -> Shape:
        return Shape.array_shape(type)

    @staticmethod
    def tuple_shape(shapes: Sequence[Shape]) -> Shape:
        return Shape.of(shape.Shape.tuple(given(tuple(shapes))))

    @staticmethod
    def token_shape() -> Shape:
        return Shape.of(shape.Shape.token())

    def with_major_to_minor_layout_if_absent(self) -> Shape:
        return Shape.of(_laid_out(self.own))

    def set_dynamic_dimension(self, dimension: int, is_dynamic: bool) -> None:
        flags = list(self.own.dynamic_flags)
        if not 0 <= dimension < len(flags):
            raise InvalidArgument("there is no such dimension", subject="set_dynamic_dimension", got=dimension, expected=self.own)
        flags[dimension] = is_dynamic
        self.own = shape.Shape.array(self.own.element_type, self.own.dimensions, flags, self.own.layout)

    # ---- asking shapes

    def dimensions(self) -> tuple[int, ...]:
        return self._array("dimensions").dimensions

    def rank(self) -> int:
        return self._array("rank").rank

    def layout(self) -> Layout:
        array = self._array("layout")
        return Layout.of(array.layout or layouts.default_layout(array.rank))

    def xla_element_type(self) -> Any:
        return PrimitiveType(self.own.element_type.number)

    def element_type(self) -> np.dtype:
        """As a NumPy dtype. Raises InvalidArgument for a tuple."""
        return XLA_ELEMENT_TYPE_TO_DTYPE[PrimitiveType(self._array("element_type").element_type.number)]

    def numpy_dtype(self) -> np.dtype:
        """As `element_type`; of a tuple the dtype of Python's objects."""
        return np.dtype(np.object_) if self.is_tuple() else self.element_type()

    def is_tuple(self) -> bool:
        return self.own.is_tuple

    def is_array(self) -> bool:
        return self.own.is_array

    def is_token(self) -> bool:
        return self.own.is_token

    def is_static(self) -> bool:
        return self.own.is_static

    def is_dynamic(self) -> bool:
        return not self.own.is_static

    def is_dynamic_dimension(self, dimension: int) -> bool:
        return self._array("is_dynamic_dimension").dynamic_flags[dimension]

    def tuple_shapes(self) -> list[Shape]:
        if not self.is_tuple():
            raise InvalidArgument("not a tuple", subject="tuple_shapes", got=self.own)
        return [Shape.of(part) for part in self.own.tuple_shapes]

    def leaf_count(self) -> int:
        return self.own.leaf_count

    def to_serialized_proto(self) -> bytes:
        """A ShapeProto."""
        proto = message_class("ShapeProto")()
        write_shape(self.own, proto)
        return proto.SerializeToString(deterministic=True)

    def _array(self, subject: str) -> shape.Shape:
        if not self.own.is_array:
            raise InvalidArgument("not an array", subject=subject, got=self.own)
        return self.own

    def __eq__(self, other: object) -> bool:
        return self.own == other.own if isinstance(other, Shape) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        return self.own.to_text()


def _laid_out(own: shape.Shape) -> shape.Shape:
    if own.is_tuple:
        return shape.Shape.tuple([_laid_out(part) for part in own.tuple_shapes])
    if not own.is_array or own.layout is not None:
        return own
    return shape.Shape.array(own.element_type, own.dimensions, own.dynamic_dimensions)


@raising_methods
class ProgramShape:
    """Hold the parameter shapes and the result shape of a program."""

    def __init__(self, params: Sequence[Shape], result: Shape):
        self._params, self._result = list(params), result

    @classmethod
    def of(cls, own: shape.ProgramShape) -> ProgramShape:
        """A program's shape of xla_torch."""
        return cls([Shape.of(p) for p in own.parameters], Shape.of(own.result))

    def parameter_shapes(self) -> list[Shape]:
        return list(self._params)

    def result_shape(self) -> Shape:
        return self._result

    def __repr__(self) -> str:
        parameters = ", ".join(f"(unknown): {given(p)}" for p in self._params)
        return f"({parameters}) -> {given(self._result)}"


class ShapeIndex(tuple):
    """Hold the path to a part of a tuple shape."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "{" + ",".join(map(str, self)) + "}"


def shape_from_pyval(pyval: Any, layout: Sequence[int] | None = None) -> Shape:
    """The shape of a NumPy array or scalar, or of a tuple of such. Raises NotImplementedError for a layout of a tuple."""
    if not isinstance(pyval, tuple):
        return Shape.array_shape(pyval.dtype, np.shape(pyval), layout)
    if layout is not None:
        raise NotImplementedError("shape_from_pyval takes no layout for tuples")
    return Shape.tuple_shape([shape_from_pyval(part) for part in pyval])
