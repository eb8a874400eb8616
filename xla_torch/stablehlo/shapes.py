"""Rules: the dialects in which dynamic programs compute sizes: ``shape``, ``tensor`` and ``arith``.

Shapes are vectors of sizes, extents and indices are integers (S32, as sizes are in HLO), a witness says whether what it asserts
holds. So these operations are small integer computations, which are folded while a program is converted (`folding.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import UNBOUNDED
from ..core.sizes import Size
from ..core.types import PRED, S32, Kind, PrimitiveType, type_from_text
from ..functions.comparison import Compare, Eq, Select
from ..functions.convert import ConvertElementType
from ..functions.dynamic import GetDimensionSize
from ..functions.elementwise_binary import And, Div, Mul, Rem, Sub
from ..functions.hlo_builder import XlaOp
from ..functions.movement import Broadcast, BroadcastInDim, ConcatInDim, Reshape, Slice
from ..mlir.ir import Elements, Enum, Operation
from ..opcodes import comparison, elementwise, movement
from . import reading_rules
from .attributes import integer, integers, rows_of
from .dynamic import needed
from .elementwise import plain
from .reading_rules import Results, rule
from .scope import Scope, only_block

# ------------------------------------------------------------------------------------------------------------- shapes


def _sizes(scope: Scope, operand: XlaOp) -> XlaOp:
    """The sizes of an array as a vector."""
    shape = operand.shape
    if not any(shape.dynamic_flags) and not any(isinstance(n, Size) for n in shape.dimensions):
        return scope.constant(np.array(shape.dimensions, np.int32))
    return _vector(scope, [_size(scope, operand, d) for d in range(shape.rank)])


def _size(scope: Scope, operand: XlaOp, dimension: int) -> XlaOp:
    if not 0 <= dimension < operand.shape.rank:
        raise InvalidArgument(f"there is no dimension {dimension}", got=operand.shape)
    if operand.shape.dynamic_flags[dimension]:
        return GetDimensionSize(operand, dimension)
    return scope.size(operand.shape.dimensions[dimension])


def _vector(scope: Scope, scalars: Sequence[XlaOp]) -> XlaOp:
    """Scalars as a vector of sizes."""
    if not scalars:
        return scope.constant(np.zeros(0, np.int32))
    return ConcatInDim(scope.builder, [Reshape(_index(s), [1]) for s in scalars], 0)


def _index(value: XlaOp) -> XlaOp:
    return value if value.element_type is S32 else ConvertElementType(value, S32)


def _extents(vector: XlaOp) -> list[XlaOp]:
    """The elements of a vector of sizes. Raises InvalidArgument for one of unknown length."""
    if vector.shape.rank != 1 or UNBOUNDED in vector.shape.dimensions:
        raise InvalidArgument("the rank of a shape is not known", got=vector.shape)
    return [Reshape(Slice(vector, [k], [k + 1], [1]), []) for k in range(vector.shape.dimensions[0])]


@rule("shape.shape_of")
def shape_of(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _sizes(scope, operands[0])


@rule("shape.const_shape")
def const_shape(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.constant(np.array(integers(operation, "shape"), np.int32))


@rule("shape.const_size")
def const_size(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.constant(np.int32(integer(operation, "value")))


@rule("shape.const_witness")
def const_witness(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.constant(np.bool_(integer(operation, "passing")))


@rule("shape.to_extent_tensor", "shape.from_extent_tensor", "shape.value_as_shape", "shape.value_of", "shape.index_to_size",
      "shape.size_to_index")
def same_value(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _index(operands[0])


@rule("shape.from_extents")
def from_extents(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _vector(scope, operands)


@rule("shape.get_extent")
def get_extent(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _extents(operands[0])[_number(scope, operands[1], operands[0].shape.dimensions[0])]


@rule("shape.dim", "tensor.dim")
def dim(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _size(scope, operands[0], _number(scope, operands[1], operands[0].shape.rank))


def _number(scope: Scope, index: XlaOp, count: int) -> int:
    """A known index below `count`."""
    (number,) = needed(scope, index, "the places in a shape")
    if not 0 <= number < count:
        raise InvalidArgument("the place is outside of the shape", got=number, expected=f"0 to {count - 1}")
    return number


@rule("shape.rank", "tensor.rank")
def rank(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Of a tensor, or of a shape, whose elements are its sizes."""
    is_shape = operation.name == "shape.rank" and operands[0].shape.rank == 1 and operands[0].element_type is S32
    return scope.constant(np.int32(operands[0].shape.dimensions[0] if is_shape else operands[0].shape.rank))


@rule("shape.num_elements")
def num_elements(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    found = scope.constant(np.int32(1))
    for extent in _extents(operands[0]):
        found = Mul(found, extent)
    return found


@rule("shape.concat")
def concat(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return ConcatInDim(scope.builder, list(operands), 0)


@rule("shape.split_at")
def split_at(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Two shapes; a negative place counts from the end."""
    count = operands[0].shape.dimensions[0]
    (place,) = needed(scope, operands[1], "the place of a split")
    place = place + count if place < 0 else place
    if not 0 <= place <= count:
        raise InvalidArgument("the place is outside of the shape", got=place, expected=f"0 to {count}")
    return [Slice(operands[0], [0], [place], [1]), Slice(operands[0], [place], [count], [1])]


@rule("shape.broadcast")
def broadcast(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """The shape to which all broadcast: aligned at the end, a size of 1 stretches."""
    columns = _columns(scope, operands)
    found = []
    for column in columns:
        size = column[0]
        for other in column[1:]:
            size = Select(Eq(size, 1), other, size)
        found.append(size)
    return _vector(scope, found)


def _columns(scope: Scope, shapes: Sequence[XlaOp]) -> list[list[XlaOp]]:
    """The sizes that stand above each other, ones where a shape has none."""
    listed = [_extents(s) for s in shapes]
    most = max(map(len, listed), default=0)
    one = scope.constant(np.int32(1))
    return [list(column) for column in zip(*([one] * (most - len(given)) + given for given in listed), strict=True)]


def _all(scope: Scope, truths: Sequence[XlaOp]) -> XlaOp:
    found = scope.constant(np.bool_(True))
    for truth in truths:
        found = And(found, truth)
    return found


@rule("shape.cstr_broadcastable", "shape.is_broadcastable")
def broadcastable(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Whether the sizes above each other are equal, but for ones."""
    truths = []
    for column in _columns(scope, operands):
        largest = column[0]
        for size in column[1:]:
            largest = Select(Eq(largest, 1), size, largest)
        truths += [Compare(Select(Eq(size, 1), largest, size), largest, direction="EQ") for size in column]
    return _all(scope, truths)


@rule("shape.cstr_eq", "shape.shape_eq")
def equal(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    first, *others = (_extents(o) for o in operands)
    if any(len(other) != len(first) for other in others):
        return scope.constant(np.bool_(False))
    return _all(scope, [Eq(a, b) for other in others for a, b in zip(first, other, strict=True)])


@rule("shape.cstr_require")
def require(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    if scope.known(operands[0]) is not None and not scope.known(operands[0]):
        raise InvalidArgument(str(operation.attributes.get("msg", "a required condition does not hold")))
    return operands[0]


@rule("shape.assuming_all")
def assuming_all(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _all(scope, operands)


@rule("shape.any")
def any_of(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """One of several shapes that are equal."""
    return operands[0]


@rule("shape.assuming")
def assuming(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """The region as it stands, where the witness does not say that it may not be entered."""
    if scope.known(operands[0]) is not None and not scope.known(operands[0]):
        raise InvalidArgument("what the program assumes of sizes does not hold")
    for inner in only_block(operation.regions[0]).operations:
        if inner.name == "shape.assuming_yield":
            return [scope.value(v) for v in inner.operands]
        scope.convert(inner)
    raise InvalidArgument("a region ends without a yield")


# ------------------------------------------------------------------------------------------------------------- tensors


@rule("tensor.from_elements")
def from_elements(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Scalars in row-major order."""
    declared = scope.declared(operation)
    if UNBOUNDED in declared.dimensions or len(operands) != math.prod(declared.dimensions):
        raise InvalidArgument("the number of elements does not fit", got=len(operands), expected=declared)
    if not operands:
        return scope.constant(np.zeros(declared.dimensions, declared.element_type.numpy))
    return Reshape(ConcatInDim(scope.builder, [Reshape(o, [1]) for o in operands], 0), declared.dimensions)


@rule("tensor.extract")
def extract(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    operand, *places = operands
    if len(places) != operand.shape.rank:
        raise InvalidArgument("one index is needed for each dimension", got=len(places), expected=operand.shape)
    starts = [_number(scope, p, n) for p, n in zip(places, operand.shape.dimensions, strict=True)]
    return Reshape(Slice(operand, starts, [s + 1 for s in starts], [1] * len(starts)), [])


@rule("tensor.cast")
def cast(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Another type for the same value; the one that says more of it is kept."""
    return operands[0]


@rule("tensor.reshape")
def reshape(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    declared = scope.declared(operation)
    sizes = declared.dimensions if declared.is_static else needed(scope, operands[1], "the result's sizes")
    return scope.add(movement.reshape, [operands[0]], shape=operands[0].shape.with_dimensions(sizes))


@rule("tensor.collapse_shape")
def collapse_shape(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Neighbouring dimensions as one."""
    groups = _groups(operation)
    sizes = [math.prod(operands[0].shape.dimensions[d] for d in group) for group in groups]
    return Reshape(operands[0], sizes)


@rule("tensor.expand_shape")
def expand_shape(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A dimension as several, of which the type leaves out one size at most."""
    declared, sizes = scope.declared(operation), []
    for group, size in zip(_groups(operation), operands[0].shape.dimensions, strict=True):
        written = [declared.dimensions[d] for d in group]
        known = math.prod(n for n in written if n != UNBOUNDED)
        if written.count(UNBOUNDED) > 1 or not known or size % known:
            raise InvalidArgument("the sizes of an expansion are not known", got=declared, expected=f"{size} elements")
        sizes += [size // known if n == UNBOUNDED else n for n in written]
    return Reshape(operands[0], sizes)


def _groups(operation: Operation) -> Sequence[Sequence[int]]:
    given = operation.attributes.get("reassociation", ())
    return [tuple(group) for group in given] if isinstance(given, tuple) else rows_of(operation, "reassociation")


@rule("tensor.splat")
def splat(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return Broadcast(operands[0], scope.declared(operation).dimensions)


@rule("tensor.concat")
def concatenated(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return ConcatInDim(scope.builder, list(operands), integer(operation, "dim"))


# ------------------------------------------------------------------------------------------------------------- arithmetic


@rule("arith.constant", "index.constant")
def constant(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A number, or an array of numbers."""
    declared, value = scope.declared(operation), operation.attributes.get("value")
    if isinstance(value, Elements):
        return scope.constant(value.value.astype(declared.element_type.numpy))
    if not isinstance(value, (bool, int, float)):
        raise InvalidArgument("no number", got=repr(value)[:80])
    if declared.element_type.is_integral and isinstance(value, int):
        value = _wrapped(int(value), declared.element_type)
    return scope.constant(np.array(value, declared.element_type.numpy))


def _wrapped(value: int, element: PrimitiveType) -> int:
    value %= 1 << element.bits
    return value - (1 << element.bits) if element.is_signed and value >> (element.bits - 1) else value


for _name, _opcode in {
        "addi": elementwise.add, "subi": elementwise.subtract, "muli": elementwise.multiply, "andi": elementwise.and_,
        "ori": elementwise.or_, "xori": elementwise.xor, "maxsi": elementwise.maximum, "minsi": elementwise.minimum,
        "divsi": elementwise.divide, "remsi": elementwise.remainder, "shli": elementwise.shift_left,
        "shrsi": elementwise.shift_right_arithmetic, "shrui": elementwise.shift_right_logical, "addf": elementwise.add,
        "subf": elementwise.subtract, "mulf": elementwise.multiply, "divf": elementwise.divide, "remf": elementwise.remainder,
        "maximumf": elementwise.maximum, "minimumf": elementwise.minimum, "negf": elementwise.negate}.items():
    rule(f"arith.{_name}")(plain(_opcode))
for _name, _opcode in {"shape.add": elementwise.add, "shape.mul": elementwise.multiply, "shape.max": elementwise.maximum,
                       "shape.min": elementwise.minimum, "shape.div": elementwise.divide}.items():
    rule(_name)(plain(_opcode))


def _unsigned(opcode: str) -> reading_rules.Rule:
    """The rule of an operation on signless integers that takes them for unsigned ones."""

    def apply(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        made = scope.add(opcode, [_taken_unsigned(o) for o in operands])
        return ConvertElementType(made, operands[0].element_type)

    return apply


def _taken_unsigned(operand: XlaOp) -> XlaOp:
    element = operand.element_type
    if element.kind is not Kind.SIGNED:
        return operand
    unsigned = type_from_text(f"u{element.bits}")
    assert unsigned is not None
    return ConvertElementType(operand, unsigned)


for _name, _opcode in {"divui": elementwise.divide, "remui": elementwise.remainder, "maxui": elementwise.maximum,
                       "minui": elementwise.minimum}.items():
    rule(f"arith.{_name}")(_unsigned(_opcode))


def _rounded_quotient(up: bool) -> reading_rules.Rule:
    """The rule of a signed division that rounds up or down."""

    def apply(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        lhs, rhs = operands
        quotient, rest = Div(lhs, rhs), Rem(lhs, rhs)
        same_sign = Compare(Compare(rest, 0, direction="LT"), Compare(rhs, 0, direction="LT"), direction="EQ")
        off = And(Compare(rest, 0, direction="NE"), same_sign if up else Compare(same_sign, False, direction="EQ"))
        step = ConvertElementType(off, lhs.element_type)
        return quotient + step if up else Sub(quotient, step)

    return apply


rule("arith.ceildivsi")(_rounded_quotient(up=True))
rule("arith.floordivsi")(_rounded_quotient(up=False))

_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE", "LT", "LE", "GT", "GE")
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


@rule("arith.cmpi")
def cmpi(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """The predicate is written as a number, or as a word."""
    given = operation.attributes.get("predicate")
    word = given.value if isinstance(given, Enum) else given
    number = _PREDICATES.index(word) if word in _PREDICATES else word
    if not isinstance(number, int) or not 0 <= number < len(_DIRECTIONS):
        raise InvalidArgument("no such predicate", got=given, expected=", ".join(_PREDICATES))
    taken = [_taken_unsigned(o) for o in operands] if number > 5 else list(operands)
    return scope.add(comparison.compare, taken, {"direction": _DIRECTIONS[number]})


@rule("arith.select")
def select(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(comparison.select, operands)


def _cast(unsigned: bool) -> reading_rules.Rule:
    """The rule of a conversion. Of one truth value as a signed integer the bit is the sign."""

    def apply(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
        (operand,), to = operands, scope.declared(operation).element_type
        if operand.element_type is PRED and not unsigned and to is not PRED:
            return scope.add(elementwise.negate, [ConvertElementType(operand, to)])
        if to is PRED:
            one = operand.builder.constant(1, operand.element_type)
            low = scope.add(elementwise.and_, [operand, BroadcastInDim(one, operand.shape.dimensions, [])])
            return ConvertElementType(low, PRED)
        return ConvertElementType(_taken_unsigned(operand) if unsigned else operand, to)

    return apply


for _name in ("index_cast", "extsi", "trunci", "sitofp", "fptosi", "extf", "truncf"):
    rule(f"arith.{_name}")(_cast(unsigned=False))
for _name in ("index_castui", "extui", "uitofp"):
    rule(f"arith.{_name}")(_cast(unsigned=True))
