"""Literals: constant values of any shape, held as NumPy arrays (ml_dtypes for narrow types) in logical order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...core.errors import InvalidArgument
from ...core.forks import cached_property
from ...core.shape import Shape
from ...core.sizes import Size
from ...core.types import type_from_numpy

_PIECE = 1 << 16
"""Elements that are compared at once: whole arrays would need as much memory again."""


@dataclasses.dataclass(frozen=True, eq=False)
class Literal:
    """Hold a constant of a `shape`.

    `value` is a NumPy array of the shape's dimensions and dtype, or a tuple of Literals for a tuple shape. `elided` marks a
    literal read from ``constant({...})``: its contents are unknown, and running it raises an error. Equality compares bits, so
    NaN payloads and signed zeros count.

    >>> builder = XlaBuilder("constant")
    >>> program = builder.build(ops.ConstantLiteral(builder, np.array([1, 2], np.int8)))
    >>> program()
    tensor([1, 2], dtype=torch.int8)
    >>> literal = xla_torch.Literal.of([1, 1], np.int8)
    >>> str(literal.shape), literal.array, literal.bits, literal.splat.array, literal.on_devices
    ('s8[2]', array([1, 1], dtype=int8), b'\\x01\\x01', array(1, dtype=int8), {})
    """

    shape: Shape
    value: np.ndarray | tuple[Literal, ...]
    elided: bool = False

    @staticmethod
    def of(value: Any, dtype: DTypeLike | None = None) -> Literal:
        """Make a literal from any NumPy array-like.

        Raises InvalidArgument for dtypes that XLA lacks.
        """
        array: np.ndarray = np.asarray(value, dtype)
        element_type = type_from_numpy(array.dtype)
        if element_type is None:
            raise InvalidArgument("no XLA element type for this NumPy dtype", subject="literal", got=array.dtype)
        return Literal(Shape.array(element_type, array.shape), array)

    @property
    def array(self) -> np.ndarray:
        """Return the NumPy array of a literal that is not a tuple."""
        assert isinstance(self.value, np.ndarray)
        return self.value

    def __reduce__(self) -> tuple[Any, ...]:
        return Literal, (self.shape, self.value, self.elided)  # without what is kept with it

    @cached_property
    def on_devices(self) -> dict[Any, Any]:
        """What a run time keeps of it, by device: programs that share a constant share that."""
        return {}

    @cached_property
    def splat(self) -> Literal | None:
        """The scalar that all elements are, bit for bit; None where they differ, or there are none."""
        if not self.shape.is_array or self.elided:
            return None
        if not self.shape.rank:
            return self
        elements = self.array.reshape(-1)
        if not elements.size or elements[:1].tobytes() != elements[-1:].tobytes():  # so are nearly all that differ
            return None
        bits = np.ascontiguousarray(elements).view(np.uint8).reshape(elements.size, -1)
        if not all((bits[k:k + _PIECE] == bits[0]).all() for k in range(0, len(bits), _PIECE)):
            return None
        return Literal(Shape.array(self.shape.element_type), elements[:1].reshape(()))

    @property
    def bits(self) -> bytes:
        """Return the bytes of the value in row-major order; a tuple concatenates its elements."""
        if isinstance(self.value, tuple):
            return b"".join(v.bits for v in self.value)
        return np.ascontiguousarray(self.value).tobytes()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (isinstance(other, Literal) and self.shape.compatible(other.shape) and self.elided == other.elided
                and _equal_bits(self.value, other.value))

    def __hash__(self) -> int:
        """By the shape and some of the elements: hashing must not read them all."""
        first = self.value if isinstance(self.value, tuple) else self.value.reshape(-1)[:16].tobytes()
        return hash((self.shape.without_layout(), first))

    def __repr__(self) -> str:
        return f"Literal({self.shape})"


class SizeLiteral(Literal):
    """A scalar constant that is a size. Of one that stands for many, asking for the `value` tells it (see `sizes.py`)."""

    def __init__(self, shape: Shape, size: Size):
        for name, given in (("shape", shape), ("size", size), ("elided", False)):
            object.__setattr__(self, name, given)

    size: Size

    @property
    def value(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        return np.array(int(self.size), self.shape.element_type.numpy)


def _equal_bits(a: np.ndarray | tuple[Literal, ...], b: np.ndarray | tuple[Literal, ...]) -> bool:
    """Whether values of one shape have the same bits."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return a == b
    left, right = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (a, b))
    return a.dtype == b.dtype and np.array_equal(left, right)
