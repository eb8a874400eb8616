"""Matrix products. Integers are multiplied as they are, and floats in their own type."""

from __future__ import annotations

from .. import functions as ops
from ..core.shape import Shape
from ..functions.contraction import DotDimensionNumbers
from ..functions.hlo_builder import XlaOp
from .operator_rules import rule
from .values import Value, aligned, full, is_number


def product(lhs: XlaOp, rhs: XlaOp, batch: int = 0) -> XlaOp:
    """The last dimension of the left with the first of the right behind the batch."""
    numbers = DotDimensionNumbers((lhs.shape.rank - 1,), (batch,), tuple(range(batch)), tuple(range(batch)))
    return ops.DotGeneral(lhs, rhs, numbers)


@rule("mm")
def _mm(self: XlaOp, mat2: XlaOp) -> XlaOp:
    return product(self, mat2)


@rule("bmm")
def _bmm(self: XlaOp, mat2: XlaOp) -> XlaOp:
    return product(self, mat2, 1)


@rule("addmm")
def _addmm(self: XlaOp, mat1: XlaOp, mat2: XlaOp, beta: Value, alpha: Value, result: Shape) -> XlaOp:
    """``beta * self + alpha * mat1 mat2``, where a beta of 0 leaves the addend out, NaNs and all."""
    multiplied = product(mat1, mat2)
    if not is_number(alpha, 1):
        multiplied = ops.Mul(multiplied, full(multiplied.builder, alpha, multiplied.shape))
    if is_number(beta, 0):
        return multiplied
    addend, = aligned(result.element_type, self, sizes=result.dimensions)
    return ops.Add(addend if is_number(beta, 1) else ops.Mul(addend, full(multiplied.builder, beta, addend.shape)), multiplied)
