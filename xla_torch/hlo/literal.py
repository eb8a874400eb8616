"""Literals: constant values of any shape, held as NumPy arrays (ml_dtypes for narrow types) in logical order."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument
from ..shape import Shape
from ..types import type_from_numpy


@dataclasses.dataclass(frozen=True, eq=False)
class Literal:
    """A constant. `value` is an ndarray of the shape's type and dimensions; for a tuple, a tuple of Literals.

    `elided` marks a literal read from ``constant({...})``: its contents are unknown, and running it is an error.
    Equality is bitwise, so that NaN payloads and signed zeros count.
    """

    shape: Shape
    value: np.ndarray | tuple[Literal, ...]
    elided: bool = False

    @staticmethod
    def of(value: object, dtype: object = None) -> Literal:
        """A literal from anything NumPy understands. Raises InvalidArgument for dtypes that XLA does not have."""
        array = np.asarray(value, dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
        element_type = type_from_numpy(array.dtype)
        if element_type is None:
            raise InvalidArgument("no XLA element type for this NumPy dtype", subject="literal", got=array.dtype)
        return Literal(Shape.array(element_type, array.shape), array)

    @property
    def array(self) -> np.ndarray:
        """The ndarray of a non-tuple literal."""
        assert isinstance(self.value, np.ndarray)
        return self.value

    @cached_property
    def bits(self) -> bytes:
        """The value's bytes in row-major order; of a tuple, its elements' one after another."""
        if isinstance(self.value, tuple):
            return b"".join(v.bits for v in self.value)
        return np.ascontiguousarray(self.value).tobytes()

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Literal) and self.shape.compatible(other.shape) and self.elided == other.elided
                and self.bits == other.bits)

    def __hash__(self) -> int:
        return hash((self.shape.without_layout(), self.bits))

    def __repr__(self) -> str:
        return f"Literal({self.shape})"
