"""Rules: what compilers leave behind, and ops of few readers, in other ops.

What an op is in other ops is said in documented functions and written in its place (`Scope.spelled`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import functions as ops
from ...core.errors import UnsupportedError
from ...core.shape import Shape
from ...core.types import F32, F64, U64, PrimitiveType
from ...functions.dimension_numbers import DotDimensionNumbers
from ...functions.hlo_builder import XlaOp
from ...hlo.ir import Instruction
from ...hlo.schema import OPS
from ...mlir.ir import Value
from ...opcodes import contraction, convert, internal
from ...opcodes.contraction import highest_type
from .scope import Scope
from .writing_rules import rule


@rule(internal.domain, says=tuple(OPS[internal.domain].attributes))
def domain(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """The value itself: a domain is a border for passes of one compiler."""
    return operands


# ------------------------------------------------------------------------------------------------------- bits in memory


@rule(internal.bitcast, says=("result_layout",))
def bitcast(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    source, target = instruction.operands[0].shape, instruction.shape
    if any(source.dynamic_flags) or any(target.dynamic_flags):
        raise UnsupportedError("memory of arrays whose sizes are not known", subject=instruction.subject, got=target)
    return scope.spelled(instruction, operands, lambda x: _reread(x, source, target))


def _reread(x: XlaOp, source: Shape, target: Shape) -> XlaOp:
    """To the order in memory, to the result's elements and sizes there, and to the result's order."""
    order = target.minor_to_major[::-1]
    value = _with_bits(_transposed(x, source.minor_to_major[::-1]), target.element_type)
    sizes = [target.dimensions[d] for d in order]
    if list(value.shape.dimensions) != sizes:
        value = ops.Reshape(value, sizes)
    return _transposed(value, [order.index(d) for d in range(target.rank)])


def _transposed(x: XlaOp, order: Sequence[int]) -> XlaOp:
    return x if list(order) == sorted(order) else ops.Transpose(x, order)


def _with_bits(x: XlaOp, of: PrimitiveType) -> XlaOp:
    """The bits as elements of another type, in rows where it is narrower."""
    if x.element_type is of:
        return x
    if of.bits > x.element_type.bits:
        count = of.bits // x.element_type.bits
        x = ops.Reshape(x, [x.shape.element_count // count, count])
    return ops.BitcastConvertType(x, of)


# ------------------------------------------------------------------------------------------------------- arithmetic


@rule(convert.stochastic_convert)
def stochastic_convert(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    target = instruction.shape.element_type
    if not target.is_integral or target is U64:
        raise UnsupportedError("stochastic conversion to this type", subject=instruction.subject, got=target)
    return scope.spelled(instruction, operands, lambda x, random: _rounded_by_chance(x, random, target))


def _rounded_by_chance(x: XlaOp, random: XlaOp, target: PrimitiveType) -> XlaOp:
    """Away from zero where the fraction, in as many bits as the random ones, is above these."""
    magnitude = ops.Abs(ops.ConvertElementType(x, F64))
    whole = ops.Floor(magnitude)
    above = ops.Gt(ops.Floor((magnitude - whole) * 2.0**x.element_type.bits), ops.ConvertElementType(random, F64))
    rounded = whole + ops.ConvertElementType(above, F64)
    return ops.ConvertElementType(ops.Select(ops.Lt(x, 0), -rounded, rounded), target)


_NUMBERS = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")


@rule(contraction.scaled_dot, says=(*_NUMBERS, "operand_precision"))
def scaled_dot(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    """The product of the scaled operands, in the widest of the types and no narrower than F32."""
    given, target = instruction.attributes, instruction.shape.element_type
    wide = highest_type(F32, target, *(o.shape.element_type for o in instruction.operands))
    numbers = DotDimensionNumbers(*(tuple(given.get(n, ())) for n in _NUMBERS))

    def product(lhs: XlaOp, rhs: XlaOp, lhs_scale: XlaOp, rhs_scale: XlaOp) -> XlaOp:
        found = ops.DotGeneral(_scaled(lhs, lhs_scale, wide), _scaled(rhs, rhs_scale, wide), numbers,
                               given.get("operand_precision") or None, wide)
        return found if wide is target else ops.ConvertElementType(found, target)

    return scope.spelled(instruction, operands, product)


def _scaled(x: XlaOp, scale: XlaOp, wide: PrimitiveType) -> XlaOp:
    """Each entry of the scale stands for a block of elements."""
    x, scale = ops.ConvertElementType(x, wide), ops.ConvertElementType(scale, wide)
    if not scale.shape.rank:
        return x * scale
    pairs = list(zip(x.shape.dimensions, scale.shape.dimensions, strict=True))
    blocks = [n for size, count in pairs for n in (count, size // max(count, 1))]
    spread = ops.BroadcastInDim(scale, blocks, range(0, len(blocks), 2))
    return x * ops.Reshape(spread, x.shape.dimensions)
