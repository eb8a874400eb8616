"""Sizes traced to what sets them: a get-dimension-size asks the value whose size it is, and not one that was made to fit it.

A tangent and a cotangent have their value's sizes. Where they are read of the tangent, a program that is linear in it does not
look so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import functions as ops
from ...core.types import S32
from ...functions.hlo_builder import Builder, XlaOp
from ...hlo.ir import Computation, Instruction
from ...opcodes import dynamic
from ..rewriter import Rewriter, rebuilt
from ..values import Value, as_op, leaves
from .resolver import bounded
from .resolving_tables import SOURCES

Leaf = tuple[int, int]
"""A parameter's number and that of one of its leaves."""


def with_traced_sizes(computation: Computation, like: Mapping[int, Leaf]) -> Computation:
    """The computation, which is in canonical form with resolved sizes, with each size read where it is set. The parameters of
    these numbers are arrays that have the sizes of the leaves `like` them."""
    if all(i.opcode != dynamic.get_dimension_size for i in computation.instructions):
        return computation
    return rebuilt(computation, lambda builder: _Tracer(builder, like))


class _Tracer(Rewriter):
    def __init__(self, builder: Builder, like: Mapping[int, Leaf]):
        super().__init__(builder)
        self._like = like
        self._instead: dict[Instruction, Instruction] = {}

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if instruction.opcode != dynamic.get_dimension_size:
            return super().visit(instruction, operands, arguments)
        return self._size(as_op(self.builder, operands[0]).instruction, instruction.attributes["dimensions"][0], arguments)

    def _size(self, value: Instruction, dimension: int, arguments: Sequence[Value]) -> XlaOp:
        while bounded(value.shape, dimension):
            if value.is_parameter and value.attributes["parameter_number"] in self._like:
                break
            if value.opcode == dynamic.set_dimension_size and value.attributes["dimensions"] == (dimension,):
                return self._set(value, dimension)
            source = SOURCES.find(value.opcode)
            same = source(value, dimension) if source else None
            if same is None or not same[0].shape.dynamic_flags[same[1]]:
                break
            value, dimension = same
        value = self._stand_in(value, arguments)
        return self.builder.add(dynamic.get_dimension_size, [XlaOp(self.builder, value)], {"dimensions": (dimension,)})

    def _stand_in(self, value: Instruction, arguments: Sequence[Value]) -> Instruction:
        """What has the same sizes and is computed from the leaves that parameters are like, in place of these."""
        if value not in self._instead:
            like = self._like.get(value.attributes["parameter_number"]) if value.is_parameter else None
            operands = [self._stand_in(operand, arguments) for operand in value.operands]
            if like is not None:
                self._instead[value] = list(leaves(arguments[like[0]]))[like[1]].instruction
            elif all(a is b for a, b in zip(operands, value.operands, strict=True)):
                self._instead[value] = value
            else:
                again = Instruction(value.opcode, value.shape, operands, value.attributes, value.name, value.common)
                self._instead[value] = self.builder.append(again).instruction
        return self._instead[value]

    def _set(self, value: Instruction, dimension: int) -> XlaOp:
        """What a set-dimension-size makes of the size that it is given."""
        size, bound = XlaOp(self.builder, value.operands[1]), value.shape.dimensions[dimension]
        asked = size.instruction
        if asked.opcode == dynamic.get_dimension_size and \
                asked.operands[0].shape.dimensions[asked.attributes["dimensions"][0]] <= bound:
            return size
        low, high = (self.builder.constant(limit, S32) for limit in (0, bound))
        return ops.Clamp(low, size, high)
