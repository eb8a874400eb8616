"""What is known of a file while its instructions are read or written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import HloSyntaxError
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.ir import Computation, Instruction
from ..hlo.literals.literal import Literal
from ..hlo.schema import OpSchema
from ..hlo.sharding import Sharding
from .shapes import Shapes
from .wire import Bytes


class Reading:
    """A module that is being read. `schema`, `operands` and `shape` are those of the instruction at hand."""

    def __init__(self, blobs: Sequence[memoryview], payloads: Sequence[bytes]):
        self.blobs, self.payloads = blobs, payloads
        self.shapes = Shapes()
        self.computations: dict[int, Computation] = {}
        self.shardings: dict[bytes, Sharding] = {}
        self.schema: OpSchema = None  # pyright: ignore[reportAttributeAccessIssue]
        self.operands: Sequence[Instruction] = ()
        self.shape = Shape.token()

    def called(self, proto: Any) -> tuple[Computation, ...]:
        """The computations that an instruction calls. Raises HloSyntaxError for one that does not stand before."""
        found = tuple(self.computations.get(number) for number in proto.called_computation_ids)
        if None in found:
            missing = proto.called_computation_ids[found.index(None)]
            raise HloSyntaxError("a computation that is called does not exist, or not before its caller", got=f"id {missing}",
                                 expected="the id of an earlier computation")
        return found  # pyright: ignore[reportReturnType]

    def selects_by_truth(self, proto: Any) -> bool:
        """Whether an instruction's first operand is a truth value, and so its computations are those of true and false."""
        return bool(self.operands) and self.operands[0].shape.element_type is PRED

    def elided(self) -> Literal:
        """A literal of the instruction's shape whose contents were left out of the file."""
        def of(shape: Shape) -> Literal:
            if shape.is_tuple:
                return Literal(shape, tuple(map(of, shape.tuple_shapes)), elided=True)
            if shape.element_type.numpy is None:
                raise HloSyntaxError("a constant cannot have this shape", got=shape)
            return Literal(shape, np.broadcast_to(np.zeros((), shape.element_type.numpy), shape.dimensions), elided=True)

        return of(self.shape.without_layout())

    def payload(self, proto: Any) -> bytes:
        """The bytes of a Payload, or those of the module's that it refers to."""
        which = proto.WhichOneof("payload_source")
        if which != "id":
            return proto.value
        if not 0 <= proto.id < len(self.payloads):
            raise HloSyntaxError("a payload is missing", got=f"number {proto.id}", expected=f"one of {len(self.payloads)}")
        return self.payloads[proto.id]


class Writing:
    """A module that is being written. `schema` and `instruction` are those at hand."""

    def __init__(self) -> None:
        self.blobs: list[Bytes] = []
        self.computations: dict[int, int] = {}
        self.schema: OpSchema = None  # pyright: ignore[reportAttributeAccessIssue]
        self.instruction: Instruction = None  # pyright: ignore[reportAttributeAccessIssue]
        self.calls: dict[int, int] = {}

    def call(self, place: int, computation: Computation) -> None:
        """Note that the instruction calls a computation, at this place of its list."""
        self.calls[place] = self.computations[id(computation)]

    def literal_shape(self, literal: Literal) -> Shape:
        """The shape to write a literal with: a constant's own, with its layout."""
        return self.instruction.shape if self.instruction.shape.compatible(literal.shape) else literal.shape
