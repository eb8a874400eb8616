"""Shape functions shared by the op families, and the checks they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import UNBOUNDED, Shape
from ..core.types import C64, C128, F32, F64, PRED, Kind, PrimitiveType, higher_precision, same_type_ignoring_precision


def require(condition: bool, what: str, got: object = "", expected: object = "", hint: str = "") -> None:
    """Raise InvalidArgument in the standard error format unless `condition` holds. The caller adds op and place."""
    if not condition:
        raise InvalidArgument(what, got=got, expected=expected, hint=hint)


def require_arrays(*shapes: Shape) -> None:
    """Every operand must be an array: no tuples, tokens or opaques."""
    for position, shape in enumerate(shapes):
        if not shape.is_array:
            raise InvalidArgument(f"operand {position} is not an array", got=shape, expected="an array shape")


def require_declared(declared: Shape | None) -> Shape:
    """The declared shape, for ops whose result does not follow from their operands."""
    if declared is None:
        raise InvalidArgument("the result shape must be written", expected="a shape between '=' and the opcode")
    return declared


def require_declared_array(declared: Shape | None) -> Shape:
    """The declared shape, which must be an array's."""
    shape = require_declared(declared)
    require(shape.is_array, "the result is not an array", got=shape, expected="an array shape")
    return shape


def has_parts(shape: Shape, least: int) -> bool:
    """Whether the shape is a tuple of so many parts, or more."""
    return shape.is_tuple and len(shape.tuple_shapes) >= least


def merge_dynamic(shapes: Sequence[Shape]) -> tuple[bool, ...]:
    """A dimension is dynamic where it is dynamic in any of the shapes (all of one rank)."""
    return tuple(any(flags) for flags in zip(*(s.dynamic_flags for s in shapes), strict=True))


# ------------------------------------------------------------------------------------------- elementwise ops

REAL = (Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT)
ARITHMETIC = (*REAL, Kind.COMPLEX)
INTEGRAL = (Kind.SIGNED, Kind.UNSIGNED)
LOGICAL = (Kind.PRED, *INTEGRAL)
ANY = (Kind.PRED, *ARITHMETIC)
FLOATING = (Kind.FLOAT,)
INEXACT = (Kind.FLOAT, Kind.COMPLEX)

_KIND_NAMES = {Kind.PRED: "PRED", Kind.SIGNED: "signed integer", Kind.UNSIGNED: "unsigned integer", Kind.FLOAT: "floating",
               Kind.COMPLEX: "complex"}


def require_kind(shape: Shape, kinds: Sequence[Kind], what: str = "the operand") -> None:
    """The shape's element type must be of one of the kinds."""
    if shape.element_type.kind not in kinds:
        raise InvalidArgument(f"{what} has an element type that this operation does not take", got=shape,
                              expected="one of: " + ", ".join(_KIND_NAMES[k] for k in kinds))


def unary(*kinds: Kind, result: Callable[[PrimitiveType], PrimitiveType] | None = None) -> Callable[..., Shape]:
    """The shape function of a unary elementwise op on element types of these kinds; `result` maps the element type."""

    def infer(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
        require_arrays(operand)
        require_kind(operand, kinds)
        shape = operand.without_layout()
        return shape if result is None else shape.with_element_type(result(operand.element_type))

    return infer


def binary(*kinds: Kind) -> Callable[..., Shape]:
    """The shape function of a binary elementwise op on element types of these kinds. See `elementwise_shape`."""

    def infer(declared: Shape | None, lhs: Shape, rhs: Shape, **_: Any) -> Shape:
        shape = elementwise_shape([lhs, rhs])
        require_kind(lhs, kinds, "the left operand")
        require_kind(rhs, kinds, "the right operand")
        return shape

    return infer


def elementwise_shape(shapes: Sequence[Shape]) -> Shape:
    """The common shape of operands that must agree, as HLO has no implicit broadcast.

    Element types must be equal, but floating types of different width give the wider one. A dimension is dynamic where it
    is in any operand; an unknown size gives way to a known one.
    """
    require_arrays(*shapes)
    first = shapes[0]
    element_type = first.element_type
    for other in shapes[1:]:
        if not same_type_ignoring_precision(element_type, other.element_type):
            raise InvalidArgument("operands with different element types", got=_listed(shapes), expected="equal element types",
                                  hint="convert one of them with ConvertElementType")
        if not first.compatible(other, ignore_precision=True):
            raise InvalidArgument("operands with incompatible shapes", got=_listed(shapes), expected="equal dimensions",
                                  hint="use BroadcastInDim or the documented functions; HLO does not broadcast implicitly")
        element_type = higher_precision(element_type, other.element_type)
    if all(s.is_static for s in shapes):
        return first.without_layout() if element_type is first.element_type else Shape(element_type, first.dimensions)
    columns = zip(*(zip(s.dimensions, s.dynamic_flags, strict=True) for s in shapes), strict=True)
    sizes = [merge_size(column) for column in columns]
    return Shape.array(element_type, [size for size, _ in sizes], [flag for _, flag in sizes])


def merge_size(column: Sequence[tuple[int, bool]]) -> tuple[int, bool]:
    """Size and dynamic flag of a dimension on which several operands agree. What is unknown beside size 1 stays unknown."""
    known = [(size, flag) for size, flag in column if size != UNBOUNDED]
    if not known or (len(known) < len(column) and known[0] == (1, False)):
        return UNBOUNDED, True
    return known[0][0], any(flag for _, flag in known)


_COMPARISON_TYPES = {Kind.PRED: ("UNSIGNED",), Kind.UNSIGNED: ("UNSIGNED",), Kind.SIGNED: ("SIGNED",),
                     Kind.FLOAT: ("FLOAT", "TOTALORDER"), Kind.COMPLEX: ("FLOAT",)}


def compare_shape(declared: Shape | None, lhs: Shape, rhs: Shape, *, direction: str, type: str = "", **_: Any) -> Shape:
    """Compare: PRED of the operands' common dimensions. A comparison type that is written must be the element type's."""
    shape = elementwise_shape([lhs, rhs])
    allowed = _COMPARISON_TYPES[shape.element_type.kind]
    if type and type not in allowed:
        raise InvalidArgument("the comparison type does not fit the operands", got=f"{type} on {lhs}",
                              expected=" or ".join(allowed))
    return shape.with_element_type(PRED)


def clamp_shape(declared: Shape | None, minimum: Shape, operand: Shape, maximum: Shape, **_: Any) -> Shape:
    """Clamp: the operand's shape. The bounds are scalars or have the operand's dimensions."""
    require_arrays(minimum, operand, maximum)
    for bound in (minimum, maximum):
        if not same_type_ignoring_precision(bound.element_type, operand.element_type):
            raise InvalidArgument("clamp with different element types", got=_listed([minimum, operand, maximum]),
                                  expected="equal element types")
        if not (bound.is_scalar or bound.compatible(operand, ignore_precision=True)):
            raise InvalidArgument("clamp with incompatible shapes", got=_listed([minimum, operand, maximum]),
                                  expected="scalar bounds, or bounds of the operand's dimensions")
    return operand.without_layout()


def select_shape(declared: Shape | None, pred: Shape, on_true: Shape, on_false: Shape, **_: Any) -> Shape:
    """Select: the common shape of `on_true` and `on_false`. `pred` is PRED, a scalar or of the same dimensions; what is
    dynamic or unknown in it is so in the result, unless a dimension of one of the others is unknown."""
    require_arrays(pred, on_true, on_false)
    require(pred.element_type is PRED, "select needs a PRED operand", got=pred, expected="a pred shape")
    shape = elementwise_shape([on_true, on_false])
    if not (pred.is_scalar or pred.with_element_type(shape.element_type).compatible(shape)):
        raise InvalidArgument("select with incompatible shapes", got=_listed([pred, on_true, on_false]),
                              expected="a scalar pred, or one of the other operands' dimensions")
    if pred.is_static:
        return shape
    sizes, flags = list(shape.dimensions), list(shape.dynamic_flags)
    for d, size in enumerate(pred.dimensions):
        if UNBOUNDED not in (on_true.dimensions[d], on_false.dimensions[d]):
            sizes[d] = UNBOUNDED if size == UNBOUNDED else sizes[d]
            flags[d] = flags[d] or pred.dynamic_flags[d]
    return shape.with_dimensions(sizes, flags)


def complex_shape(declared: Shape | None, lhs: Shape, rhs: Shape, **_: Any) -> Shape:
    """Complex: C64 of two F32, C128 of two F64."""
    shape = elementwise_shape([lhs, rhs])
    pair = {F32: C64, F64: C128}.get(lhs.element_type)
    if pair is None or lhs.element_type is not rhs.element_type:
        raise InvalidArgument("complex numbers cannot be made of these element types", got=_listed([lhs, rhs]),
                              expected="two f32 or two f64 operands")
    return shape.with_element_type(pair)


# ------------------------------------------------------------------------------------------- conversions


def convert_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """Convert: the operand's dimensions with the declared element type."""
    require_arrays(operand)
    declared = require_declared_array(declared)
    return operand.without_layout().with_element_type(declared.element_type)


def bitcast_convert_shape(declared: Shape | None, operand: Shape, **_: Any) -> Shape:
    """BitcastConvert: a narrower type appends a dimension that counts its parts, a wider one takes the last dimension away."""
    require_arrays(operand)
    declared = require_declared_array(declared)
    source, target = operand.element_type, declared.element_type
    dims, flags = operand.dimensions, operand.dynamic_flags
    require(source.is_complex == target.is_complex, "cannot convert between complex and real types", got=f"{source} to {target}")
    wide, narrow = max(source.bits, target.bits), min(source.bits, target.bits)
    require(wide % narrow == 0, "bit widths are not multiples of each other", got=f"{source} to {target}")
    ratio = wide // narrow
    if target.bits < source.bits:
        dims, flags = (*dims, ratio), (*flags, False)
    elif target.bits > source.bits:
        require(bool(dims) and dims[-1] in (ratio, UNBOUNDED), "the last dimension does not make one wider element", got=operand,
                expected=f"a last dimension of {ratio}")
        dims, flags = dims[:-1], flags[:-1]
    return Shape.array(target, dims, flags)


def reduce_precision_shape(declared: Shape | None, operand: Shape, *, exponent_bits: int, mantissa_bits: int, **_: Any) -> Shape:
    """ReducePrecision: the shape of a floating operand."""
    require_arrays(operand)
    require_kind(operand, FLOATING)
    require(exponent_bits >= 1, "fewer than 1 exponent bits", got=exponent_bits)
    require(mantissa_bits >= 0, "fewer than 0 mantissa bits", got=mantissa_bits)
    require(max(exponent_bits, mantissa_bits) < 2**31, "more bits than an s32 counts", got=max(exponent_bits, mantissa_bits))
    return operand.without_layout()


def stochastic_convert_shape(declared: Shape | None, operand: Shape, random: Shape, **_: Any) -> Shape:
    """StochasticConvert: a floating operand and unsigned random bits of its width and dimensions, to the declared type."""
    require_arrays(operand, random)
    declared = require_declared_array(declared)
    require_kind(operand, FLOATING)
    require_kind(random, (Kind.UNSIGNED,), "the random operand")
    require(random.element_type.bits == operand.element_type.bits, "random bits of another width than the operand",
            got=_listed([operand, random]), expected=f"u{operand.element_type.bits}")
    require(random.with_element_type(operand.element_type).compatible(operand), "operands with incompatible shapes",
            got=_listed([operand, random]), expected="equal dimensions")
    return operand.without_layout().with_element_type(declared.element_type)


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))
