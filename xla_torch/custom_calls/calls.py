"""One custom call while its meaning is built: its operands as ops, what it says of itself, and its results."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import functions as ops
from ..core.errors import UnsupportedError
from ..core.forks import cached_property
from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..functions.lapack import PREFIXES
from ..hlo.custom_calls import described
from ..hlo.ir import Computation, Instruction
from ..hlo.literals.literal import Literal
from ..opcodes import movement


@dataclasses.dataclass(frozen=True)
class Call:
    """A custom call in a builder of its own, in which `operands` are parameters."""

    builder: Builder
    instruction: Instruction
    operands: tuple[XlaOp, ...]

    @property
    def target(self) -> str:
        return self.instruction.attributes["custom_call_target"]

    @cached_property
    def results(self) -> tuple[Shape, ...]:
        """The shapes of its results, without layouts: the elements of a tuple, or the one array."""
        shape = self.instruction.shape.without_layout()
        return tuple(shape.tuple_shapes) if shape.is_tuple else (shape,)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Its configuration, of JSON or of MLIR attributes."""
        return described(self.instruction).config

    def section(self, name: str) -> Mapping[str, Any]:
        """A part of its configuration, which older compilers wrote without the part's name around it."""
        part = self.config.get(name)
        return part if isinstance(part, Mapping) else self.config

    def unpacked(self, *forms: str) -> tuple[Any, ...]:
        """The C struct in its opaque bytes, by the format of Python's `struct` that has its length. Raises UnsupportedError
        where none has."""
        text = self.config.get("opaque", described(self.instruction).opaque)
        opaque = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else b""
        form = next((f for f in forms if struct.calcsize(f) == len(opaque)), None)
        if form is None:
            raise self.refused("its descriptor has another length than those known", f"{len(opaque)} bytes",
                               " or ".join(f"{struct.calcsize(f)} bytes" for f in forms))
        return struct.unpack(form, opaque)

    def static(self, number: int) -> Any:
        """An operand that must be a constant, as a NumPy array."""
        operand = self.instruction.operands[number]
        literal = operand.attributes.get("literal") if operand.opcode == movement.constant else None
        if not isinstance(literal, Literal) or literal.elided:
            raise self.refused(f"operand {number} is not a constant", operand.opcode, "known sizes")
        return literal.array

    def refused(self, what: str, got: object = "", expected: object = "") -> UnsupportedError:
        """The error for a call whose target is known, but not in this form."""
        return UnsupportedError(f"custom call {self.target!r}: {what}", got=got, expected=expected,
                                hint=f"register_custom_call({self.target!r}, function)")

    def require_operands(self, *counts: int) -> None:
        """Raise UnsupportedError unless there is one of these numbers of operands."""
        if len(self.operands) not in counts:
            raise self.refused("it has another number of operands", len(self.operands), " or ".join(map(str, counts)))

    def require_matrices(self) -> None:
        """Raise UnsupportedError unless the first operand has matrices that LAPACK's routines take."""
        if not self.operands or self.operands[0].shape.rank < 2 or self.operands[0].element_type not in PREFIXES:
            raise self.refused("its operand has no matrices", self.operands[0].shape if self.operands else "no operand",
                               "matrices of f32, f64, c64 or c128")


Meaning = Callable[[Call], XlaOp | Sequence[XlaOp]]
"""From a call to its result; a sequence gives the first elements of a tuple, of which the others are workspaces."""


def zeros(builder: Builder, shape: Shape) -> XlaOp:
    """An array of zeros."""
    return ops.Broadcast(builder.constant(0, shape.element_type), shape.dimensions)


def ones(like: XlaOp) -> XlaOp:
    """An array of ones in the shape of another."""
    return ops.Broadcast(like.builder.constant(1, like.element_type), like.shape.dimensions)


def adder(kind: PrimitiveType) -> Computation:
    """The computation that adds two numbers."""
    return _of_two(kind, ops.Add)


def _of_two(kind: PrimitiveType, function: Callable[[XlaOp, XlaOp], XlaOp]) -> Computation:
    builder = Builder(function.__name__.lower())
    function(builder.parameter(0, Shape(kind)), builder.parameter(1, Shape(kind)))
    return builder.finish()


def total(x: XlaOp, dimensions: Iterable[int]) -> XlaOp:
    """The sum over dimensions."""
    return ops.Reduce(x, 0, adder(x.element_type), list(dimensions))


def maximum(x: XlaOp, dimensions: Iterable[int]) -> XlaOp:
    """The largest value of floats over dimensions."""
    return ops.Reduce(x, -math.inf, _of_two(x.element_type, ops.Max), list(dimensions))


def converted(x: XlaOp, element_type: PrimitiveType) -> XlaOp:
    """The value in an element type, by an op only where it has another."""
    return x if x.element_type is element_type else ops.ConvertElementType(x, element_type)


def transposed(x: XlaOp) -> XlaOp:
    """Matrices with rows and columns exchanged."""
    rank = x.shape.rank
    return ops.Transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def adjoint(x: XlaOp) -> XlaOp:
    """Matrices with rows and columns exchanged, conjugated."""
    return ops.Conj(transposed(x)) if x.element_type.is_complex else transposed(x)


def broadcast_like(x: XlaOp, like: Shape, dimensions: Sequence[int]) -> XlaOp:
    """An array broadcast to the dimensions of a shape."""
    return ops.BroadcastInDim(x, like.dimensions, tuple(dimensions))


def parts(op: XlaOp) -> list[XlaOp]:
    """The elements of a tuple."""
    return [ops.GetTupleElement(op, k) for k in range(len(op.shape.tuple_shapes))]
