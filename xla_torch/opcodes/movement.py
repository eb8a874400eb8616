"""Schemas: data movement and constants."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence

from ..core.shape import UNBOUNDED, Shape
from ..core.types import PRED, PrimitiveType, higher_precision, same_type_ignoring_precision
from ..hlo.attributes import Dims, Int, LiteralWithShape, Padding, SliceBounds
from ..hlo.literals.literal import Literal
from ..hlo.schema import Trait, op
from ..hlo.structure import CONSTANT, PARAMETER
from .shapes import merge_size, require, require_arrays, require_declared, require_declared_array

# --------------------------------------------------------------------------------------------- shapes


def broadcast_shape(declared: Shape | None, operand: Shape, *, dimensions: Sequence[int]) -> Shape:
    """Operand dimension i becomes result dimension `dimensions[i]`; the sizes must be equal, the order is free."""
    require_arrays(operand)
    require(len(dimensions) == operand.rank, "one entry of dimensions is needed for each operand dimension",
            got=f"{operand}, dimensions {list(dimensions)}")
    if declared is None:
        require(not dimensions, "the result shape must be written", expected="a shape between '=' and the opcode")
        return operand.without_layout()
    require_declared_array(declared)
    require_distinct(dimensions, declared.rank, "dimensions")
    for position, d in enumerate(dimensions):
        require(sizes_agree(operand.dimensions[position], declared.dimensions[d]), "operand and result sizes differ",
                got=f"{operand} dimension {position} ({operand.dimensions[position]}), "
                    f"result dimension {d} ({declared.dimensions[d]})",
                expected="equal sizes", hint="use reshape and broadcast (BroadcastInDim) to stretch a dimension of size 1")
    return declared.with_element_type(operand.element_type).without_layout()


def reshape_shape(declared: Shape | None, operand: Shape, *, inferred_dimension: int = -1) -> Shape:
    """Any shape with as many elements."""
    shape = require_declared_array(declared)
    require_arrays(operand)
    unbounded = UNBOUNDED in operand.dimensions or UNBOUNDED in shape.dimensions
    require(unbounded or operand.element_count == shape.element_count, "mismatched element counts",
            got=f"{operand} ({operand.element_count} elements) to {shape} ({shape.element_count} elements)",
            expected="equal element counts")
    require(-1 <= inferred_dimension < shape.rank, "inferred_dimension is out of range", got=inferred_dimension)
    return shape.with_element_type(operand.element_type).without_layout()


def transpose_shape(declared: Shape | None, operand: Shape, *, dimensions: Sequence[int]) -> Shape:
    """Result dimension i is operand dimension `dimensions[i]`."""
    require_arrays(operand)
    require(sorted(dimensions) == list(range(operand.rank)), "the permutation does not fit the operand",
            got=f"{list(dimensions)} for {operand}", expected=f"each of 0..{operand.rank - 1} once")
    flags = operand.dynamic_flags
    return operand.with_dimensions([operand.dimensions[d] for d in dimensions], [flags[d] for d in dimensions])


def reverse_shape(declared: Shape | None, operand: Shape, *, dimensions: Sequence[int]) -> Shape:
    require_arrays(operand)
    require_distinct(dimensions, operand.rank, "dimensions")
    return operand.without_layout()


def slice_shape(declared: Shape | None, operand: Shape, *, slice: Sequence[tuple[int, int, int]]) -> Shape:
    """ceil((limit - start) / stride) in each dimension. A dynamic dimension of which one element is taken is static. Of an
    unbounded one a limit of `UNBOUNDED` takes all."""
    require_arrays(operand)
    require(len(slice) == operand.rank, "one [start:limit:stride] is needed for each dimension",
            got=f"{len(slice)} for {operand}")
    sizes, flags = list[int](), list[bool]()
    for d, (start, limit, stride) in enumerate(slice):
        size = operand.dimensions[d]
        given = f"[{start}:{limit}:{stride}] in dimension {d} of {operand}"
        if limit == size == UNBOUNDED:
            require((start, stride) == (0, 1), "an unbounded slice does not take all of the dimension", got=given,
                    expected="start 0 and stride 1")
            sizes.append(UNBOUNDED)
            flags.append(True)
            continue
        require(start >= 0, "a start index is negative", got=given)
        require(size == UNBOUNDED or limit <= size, "a limit index is beyond the dimension", got=given)
        require(start <= limit, "a start index is beyond the limit", got=given)
        require(stride > 0, "a stride is not positive", got=given)
        sizes.append(-(-(limit - start) // stride))
        flags.append(operand.dynamic_flags[d] and sizes[-1] != 1)
    return operand.with_dimensions(sizes, flags)


def concatenate_shape(declared: Shape | None, *operands: Shape, dimensions: Sequence[int]) -> Shape:
    """Sizes add up along the one dimension; all other dimensions and the ranks are equal."""
    require(bool(operands), "concatenate needs at least one operand", got=0)
    require_arrays(*operands)
    require(len(dimensions) == 1, "concatenate takes one dimension", got=list(dimensions))
    first, dimension = operands[0], dimensions[0]
    require(0 <= dimension < first.rank, "the dimension to concatenate along is out of range",
            got=f"dimension {dimension} of {first}", hint="reshape scalars to [1] first" if not first.rank else "")
    element_type = first.element_type
    for position, other in enumerate(operands[1:], 1):
        require(other.rank == first.rank, "ranks differ", got=f"operand 0 {first}, operand {position} {other}")
        require(same_type_ignoring_precision(element_type, other.element_type), "element types differ",
                got=f"operand 0 {first}, operand {position} {other}")
        element_type = higher_precision(element_type, other.element_type) if element_type.is_floating else element_type
        for d, (a, b) in enumerate(zip(first.dimensions, other.dimensions, strict=True)):
            require(d == dimension or sizes_agree(a, b), f"sizes differ in dimension {d}",
                    got=f"operand 0 {first}, operand {position} {other}",
                    expected=f"equal sizes in every dimension but {dimension}")
    columns = zip(*(zip(o.dimensions, o.dynamic_flags, strict=True) for o in operands), strict=True)
    merged = [_joined(column) if d == dimension else merge_size(column) for d, column in enumerate(columns)]
    return Shape.array(element_type, [size for size, _ in merged], [flag for _, flag in merged])


def _joined(column: Sequence[tuple[int, bool]]) -> tuple[int, bool]:
    """Size and dynamic flag of the dimension that operands are joined along."""
    if any(size == UNBOUNDED for size, _ in column):
        return UNBOUNDED, True
    return sum(size for size, _ in column), any(flag for _, flag in column)


def pad_shape(declared: Shape | None, operand: Shape, padding_value: Shape, *,
              padding: Sequence[tuple[int, int, int]]) -> Shape:
    """low + n + (n - 1) * interior + high in each dimension; low and high may be negative."""
    require_arrays(operand, padding_value)
    require(padding_value.is_scalar, "the padding value is not a scalar", got=padding_value)
    require(same_type_ignoring_precision(operand.element_type, padding_value.element_type),
            "operand and padding value have different element types", got=f"{operand}, {padding_value}")
    require(len(padding) == operand.rank, "one low_high_interior is needed for each dimension",
            got=f"{len(padding)} for {operand}")
    sizes: list[int] = []
    for d, (low, high, interior) in enumerate(padding):
        size = operand.dimensions[d]
        require(interior >= 0, "interior padding is negative", got=f"{interior} in dimension {d}")
        padded = UNBOUNDED if size == UNBOUNDED else low + size + max(size - 1, 0) * interior + high
        require(padded >= 0 or padded == UNBOUNDED, "the padded size is negative",
                got=f"{padded}: {low}_{high}_{interior} in dimension {d} of {operand}")
        sizes.append(padded)
    return Shape.array(_common_type(operand, padding_value), sizes, operand.dynamic_flags)


def iota_shape(declared: Shape | None, *, iota_dimension: int) -> Shape:
    """Any static array of rank 1 or more, not of PRED."""
    shape = require_declared_array(declared)
    require(shape.is_static, "iota of a dynamic shape", got=shape, hint="use ops.SetDimensionSize on a static iota")
    require(shape.element_type is not PRED, "iota of PRED", got=shape, expected="an integer, float or complex type")
    require(0 <= iota_dimension < shape.rank, "iota_dimension is out of range", got=f"{iota_dimension} for {shape}")
    return shape.without_layout()


def constant_shape(declared: Shape | None, *, literal: Literal) -> Shape:
    require(declared is None or declared.compatible(literal.shape), "the literal does not fit the declared shape",
            got=literal.shape, expected=declared)
    return declared or literal.shape


def parameter_shape(declared: Shape | None, *, parameter_number: int) -> Shape:
    require(parameter_number >= 0, "the parameter number is negative", got=parameter_number)
    return require_declared(declared)


def copy_shape(declared: Shape | None, operand: Shape) -> Shape:
    """The operand's shape; tuples are allowed, and the layout may change."""
    return operand.without_layout()


def require_distinct(dimensions: Sequence[int], rank: int, what: str) -> None:
    """All entries are dimensions of an array of this rank, none twice."""
    listed = list(dimensions)
    require(all(0 <= d < rank for d in listed), f"{what} has an entry out of range", got=listed,
            expected=f"entries of 0..{rank - 1}")
    require(len(set(listed)) == len(listed), f"{what} has an entry twice", got=listed)


def sizes_agree(a: int, b: int) -> bool:
    """Equal, or one of them unbounded."""
    return a == b or UNBOUNDED in (a, b)


def _common_type(a: Shape, b: Shape) -> PrimitiveType:
    same = a.element_type is b.element_type
    return a.element_type if same else higher_precision(a.element_type, b.element_type)


# --------------------------------------------------------------------------------------------- schemas


@op("broadcast", infer=broadcast_shape, stablehlo="broadcast_in_dim",
    traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.FREE)
def broadcast(operand, *, dimensions: Dims = ()): ...


@op("reshape", infer=reshape_shape, stablehlo="reshape",
    traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.FORWARDS | Trait.FREE, inferable=False)
def reshape(operand, *, inferred_dimension: Int = -1): ...


@op("transpose", infer=transpose_shape, stablehlo="transpose", traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.FREE)
def transpose(operand, *, dimensions: Dims): ...


@op("reverse", infer=reverse_shape, stablehlo="reverse", traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.STREAMS)
def reverse(operand, *, dimensions: Dims): ...


@op("slice", infer=slice_shape, stablehlo="slice",
    traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.FREE | Trait.PARTIAL_READ, inferable=False)
def slice_(operand, *, slice: SliceBounds): ...


@op("concatenate", infer=concatenate_shape, stablehlo="concatenate", traits=Trait.MOVES_DATA | Trait.STREAMS)
def concatenate(*operands, dimensions: Dims): ...


@op("pad", infer=pad_shape, stablehlo="pad", traits=Trait.MOVES_DATA | Trait.STREAMS)
def pad(operand, padding_value, *, padding: Padding): ...


@op("iota", infer=iota_shape, stablehlo="iota", traits=Trait.CHEAP, inferable=False)
def iota(*, iota_dimension: Int): ...


@op(CONSTANT, infer=constant_shape, stablehlo="constant", traits=Trait.FREE | Trait.NO_TRAFFIC, inferable=False)
def constant(*, literal: LiteralWithShape): ...


@op(PARAMETER, infer=parameter_shape, traits=Trait.NO_TRAFFIC, inferable=False)
def parameter(*, parameter_number: Int): ...


@op("copy", infer=copy_shape, traits=Trait.MOVES_DATA | Trait.REARRANGES | Trait.FORWARDS | Trait.CHEAP)
def copy(operand): ...
