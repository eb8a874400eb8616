"""Rules: the CHLO dialect, operations that clients have and StableHLO has not: functions, and all that broadcasts implicitly.

An operation for which HLO has an op becomes that op (`erf`, `asin`, `topk`, `ragged-dot`, ...), any other a documented function,
which is made of ops with gradients. Operands of broadcasting operations align at their last dimensions, unless
``broadcast_dimensions`` says for each dimension of the lower-ranked one which dimension of the other it matches; then dimensions
of size 1 stretch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import UNBOUNDED, Shape
from ..core.types import has_infinity
from ..functions.comparison import Eq, Lt
from ..functions.convert import NextAfter
from ..functions.dynamic import GetDimensionSize, SetDimensionSize
from ..functions.elementwise import Abs, Asin, Conj, Imag, Real, Sqrt, Square
from ..functions.elementwise_binary import Complex, Mul, Sub
from ..functions.hlo_builder import XlaOp, broadcast_operands
from ..functions.movement import Broadcast, BroadcastInDim
from ..functions.sorting import TopK
from ..functions.special import BesselI1e, Digamma, Erfc, ErfInv, Lgamma, Zeta, true_polygamma
from ..hlo.literals.literal import Literal
from ..mlir.ir import Elements, Opaque, Operation, Region
from ..opcodes import comparison, control, elementwise, reduction
from . import reading_rules
from .attributes import boolean, fields, integer, integers, word
from .contraction import ragged_product
from .dynamic import dynamic_reshape
from .elementwise import function, plain
from .movement import constant
from .reading_rules import Results, rule
from .scope import Scope, only_block

Binary = Callable[[XlaOp, XlaOp], XlaOp]

# --------------------------------------------------------------------------------------------------------- functions

for _opcode in (elementwise.acos, elementwise.acosh, elementwise.asin, elementwise.asinh, elementwise.atan, elementwise.atanh,
                elementwise.cosh, elementwise.sinh, elementwise.erf, elementwise.tan):
    rule(f"chlo.{_opcode}")(function(_opcode))
rule("chlo.mulhi")(plain(elementwise.mulhi))


def _applied(made_by: Callable[..., XlaOp]) -> reading_rules.Rule:
    """The rule of a documented function of the operands."""

    def apply(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        return made_by(*operands)

    return apply


def _is_infinite(sign: int) -> Callable[[XlaOp], XlaOp]:
    """Whether a float is infinite: of this sign, or for 0 of any."""
    def infinite(operand: XlaOp) -> XlaOp:
        if not has_infinity(operand.element_type):
            return Lt(operand, operand)  # never
        return Eq(Abs(operand) if sign == 0 else operand, np.inf if sign >= 0 else -np.inf)

    return infinite


def _inverse_kernel(operand: XlaOp) -> XlaOp:
    """What the inverse functions of complex numbers share: w such that asin(z) = atan2(Re z, Re w) + sign(Im z) Im w i."""
    if not operand.element_type.is_complex:
        raise UnsupportedError("the kernel of asin and acos takes complex numbers", got=operand.shape)
    one = operand.builder.constant(1, operand.element_type)
    return Complex(Real(Mul(Sqrt(Sub(one, operand)), Sqrt(one + operand))), Abs(Imag(Asin(operand))))


for _name, _function in {
        "bessel_i1e": BesselI1e, "conj": Conj, "digamma": Digamma, "erf_inv": ErfInv, "erfc": Erfc, "lgamma": Lgamma,
        "next_after": NextAfter, "polygamma": true_polygamma, "zeta": Zeta, "square": Square, "is_inf": _is_infinite(0),
        "is_pos_inf": _is_infinite(1), "is_neg_inf": _is_infinite(-1), "_asin_acos_kernel": _inverse_kernel}.items():
    rule(f"chlo.{_name}")(_applied(_function))


# --------------------------------------------------------------------------------------------------------- broadcasting


def _op(opcode: str) -> Binary:
    return lambda lhs, rhs: lhs.builder.add(opcode, [lhs, rhs])


_BROADCASTING: dict[str, Binary] = {
    f"broadcast_{opcode.replace('-', '_')}": _op(opcode) for opcode in (
        elementwise.add, elementwise.and_, elementwise.atan2, elementwise.complex_, elementwise.divide, elementwise.maximum,
        elementwise.minimum, elementwise.multiply, elementwise.or_, elementwise.power, elementwise.remainder,
        elementwise.shift_left, elementwise.shift_right_arithmetic, elementwise.shift_right_logical, elementwise.subtract,
        elementwise.xor)}
_BROADCASTING |= {"broadcast_next_after": NextAfter, "broadcast_polygamma": true_polygamma, "broadcast_zeta": Zeta}


def aligned(operation: Operation, operands: Sequence[XlaOp]) -> tuple[XlaOp, XlaOp]:
    """Two operands with the dimensions of the result."""
    lhs, rhs = operands
    low, high = sorted((lhs.shape.rank, rhs.shape.rank))
    dimensions = integers(operation, "broadcast_dimensions", tuple(range(high - low, high)))
    if low == 0 or (low == high and dimensions == tuple(range(high))):
        dimensions = ()
    return broadcast_operands(operation.name, lhs, rhs, dimensions)


def _broadcasting(made_by: Binary) -> reading_rules.Rule:
    def apply(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        return made_by(*aligned(operation, operands))

    return apply


for _name, _binary in _BROADCASTING.items():
    rule(f"chlo.{_name}")(_broadcasting(_binary))


@rule("chlo.broadcast_compare")
def broadcast_compare(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    attributes = {"direction": word(operation, "comparison_direction")}
    if word(operation, "compare_type", "NOTYPE") == "TOTALORDER":
        attributes["type"] = "TOTALORDER"
    return scope.add(comparison.compare, aligned(operation, operands), attributes)


@rule("chlo.broadcast_select")
def broadcast_select(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """The choices broadcast against each other and against the predicate, of which a scalar stays one."""
    pred, yes, no = operands
    sizes: tuple[int, ...] = ()
    for operand in operands:
        sizes = _merged(operand.shape.dimensions, sizes, operands)
    if UNBOUNDED in sizes:
        raise InvalidArgument("the sizes of the operands are not known", got=", ".join(str(o.shape) for o in operands))
    spread = [_stretched(o, sizes) for o in (yes, no)]
    return scope.add(comparison.select, [pred if not pred.shape.rank else _stretched(pred, sizes), *spread])


def _merged(a: Sequence[int], b: Sequence[int], operands: Sequence[XlaOp]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = ((1,) * (rank - len(s)) + tuple(s) for s in (a, b))
    if any(x != y and 1 not in (x, y) for x, y in zip(left, right, strict=True)):
        raise InvalidArgument("the operands do not fit together", got=", ".join(str(o.shape) for o in operands),
                              expected="dimensions of equal size, or of size 1")
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def _stretched(operand: XlaOp, sizes: Sequence[int]) -> XlaOp:
    if operand.shape.dimensions == tuple(sizes):
        return operand
    return BroadcastInDim(operand, sizes, range(len(sizes) - operand.shape.rank, len(sizes)))


# --------------------------------------------------------------------------------------------------------- constants

rule("chlo.constant")(constant)
rule("chlo.dynamic_reshape")(dynamic_reshape)

_COMPLEX = re.compile(r"#complex\.number<:\s*+f\d++\s++([^\s,>]++),\s*+([^\s,>]++)>")


@rule("chlo.constant_like")
def constant_like(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """The number wherever the operand has an element, in the operand's element type."""
    like = operands[0].shape
    number = Literal(Shape(like.element_type), np.array(_number(operation), like.element_type.numpy))
    if UNBOUNDED in like.dimensions:
        raise InvalidArgument("the operand's sizes are not known", got=like)
    made = Broadcast(scope.builder.constant(number), like.dimensions)
    for dimension, changes in enumerate(like.dynamic_flags):
        if changes:
            made = SetDimensionSize(made, GetDimensionSize(operands[0], dimension), dimension)
    return made


def _number(operation: Operation) -> complex | bool:
    value: Any = operation.attributes.get("value")
    if isinstance(value, Elements) and value.value.size == 1:
        return value.value.reshape(-1)[0]
    if isinstance(value, (bool, int, float, complex)):
        return value
    parts = _COMPLEX.fullmatch(value.text) if isinstance(value, Opaque) else None
    if parts is None:
        raise InvalidArgument("no number", subject=operation.name, got=repr(value)[:80], where=operation.where)
    return complex(float(parts[1]), float(parts[2]))


# --------------------------------------------------------------------------------------------------------- larger operations


@rule("chlo.top_k")
def top_k(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.parts(TopK(operands[0], integer(operation, "k")), 2)


@rule("chlo.ragged_dot")
def ragged_dot(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return ragged_product(scope, operation, operands, fields(operation, "ragged_dot_dimension_numbers"))


@rule("chlo.scan")
def scan(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Steps along a dimension. HLO counts them by its inputs: where there is none, by one of no use to the region."""
    sizes = integers(operation, "operandSegmentSizes", (len(only_block(operation.regions[0]).arguments) - _carries(operation), 0))
    inputs, dimension = list(operands[:sizes[0]]), integer(operation, "dimension")
    inits, region = list(operands[sizes[0]:]), operation.regions[0]
    attributes: dict[str, Any] = {"dimensions": (dimension,), "num_carries": len(inits)}
    if boolean(operation, "is_reverse"):
        attributes["is_reverse"] = True
    if operation.attributes.get("is_associative") is not None:
        attributes["is_associative"] = boolean(operation, "is_associative")
    elements = [_without(o.shape, dimension) for o in inputs]
    if not inputs:
        count = integer(operation, "scan_dim_size")
        inputs = [Broadcast(scope.builder.constant(False), [1] * dimension + [count])]
    body = _steps(scope, region, elements, [o.shape for o in inits], _without(inputs[0].shape, dimension))
    made = scope.add(reduction.scan, [*inputs, *inits], attributes | {"to_apply": body})
    return scope.parts(made, len(operation.results))


def _carries(operation: Operation) -> int:
    return integers(operation, "resultSegmentSizes", (0, len(operation.results)))[1]


def _steps(scope: Scope, region: Region, elements: Sequence[Shape], carries: Sequence[Shape], counted: Shape) -> Any:
    """The region of one step; it gives a tuple also of one value."""
    inner = Scope(scope.program, scope.program.name("step"), scope)
    given = [inner.builder.parameter(k, s.without_layout()) for k, s in enumerate([*(elements or [counted]), *carries])]
    block = only_block(region)
    inner.bind(block, given if elements else given[1:])
    return inner.builder.finish(inner.add(control.tuple_, inner.block(block)))


def _without(shape: Shape, dimension: int) -> Shape:
    if not 0 <= dimension < shape.rank:
        raise InvalidArgument(f"there is no dimension {dimension} to go along", got=shape)
    return shape.with_dimensions([*shape.dimensions[:dimension], *shape.dimensions[dimension + 1:]],
                                 [*shape.dynamic_flags[:dimension], *shape.dynamic_flags[dimension + 1:]])
