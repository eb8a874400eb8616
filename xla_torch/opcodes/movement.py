"""Op definitions: data movement and constants."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import ExecutionError
from ..hlo.literal import Literal
from ..lowering.kernels import movement as kernels
from ..lowering.values import Host, Number, device, emit
from ..shape import UNBOUNDED, Shape
from ..types import PRED, PrimitiveType, higher_precision, same_type_ignoring_precision
from .attributes import Dims, Int, LiteralWithShape, Padding, SliceBounds
from .definition import op
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
                expected="equal sizes", hint="a dimension of size 1 is stretched by reshape and broadcast (BroadcastInDim)")
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
    sizes, flags = [], []
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
            got=f"dimension {dimension} of {first}", hint="scalars are reshaped to [1] first" if not first.rank else "")
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
    sizes = []
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


# --------------------------------------------------------------------------------------------- bodies


@op("broadcast", infer=broadcast_shape, stablehlo="broadcast_in_dim", movement=True, view=True)
def broadcast(inst, operand, *, dimensions: Dims = ()):
    given = inst.operands[0].shape
    order = sorted(range(given.rank), key=dimensions.__getitem__)
    if order != list(range(given.rank)):
        operand = operand.permute(order)
    mapped = {dimensions[d]: d for d in order}
    missing = [d for d in range(inst.shape.rank) if d not in mapped]
    leading = missing == list(range(len(missing)))  # expand prepends dimensions by itself
    for d in () if leading else missing:
        operand = operand.unsqueeze(d)
    # A dynamic dimension keeps the size that the operand has at run time.
    sizes = [-1 if d in mapped and given.dynamic_flags[mapped[d]] else size for d, size in enumerate(inst.shape.dimensions)]
    return operand.expand(sizes) if missing else operand


@op("reshape", infer=reshape_shape, stablehlo="reshape", inferable=False, movement=True, view=True)
def reshape(inst, operand, *, inferred_dimension: Int = -1):
    given = inst.operands[0].shape
    if given.is_static and inst.shape.is_static:
        return operand.reshape(inst.shape.dimensions)
    return emit(kernels.reshape_dynamic, operand, given.dimensions, inst.shape.dimensions, inst.shape.dynamic_flags)


@op("transpose", infer=transpose_shape, stablehlo="transpose", movement=True, view=True)
def transpose(inst, operand, *, dimensions: Dims):
    return operand if list(dimensions) == list(range(len(dimensions))) else operand.permute(dimensions)


@op("reverse", infer=reverse_shape, stablehlo="reverse", movement=True, view=True)
def reverse(inst, operand, *, dimensions: Dims):
    return operand.flip(dimensions) if dimensions else operand


@op("slice", infer=slice_shape, stablehlo="slice", inferable=False, movement=True, view=True)
def slice_(inst, operand, *, slice: SliceBounds):
    full = [(0, size, 1) for size in inst.operands[0].shape.dimensions]
    index: list[builtins.slice] = [
        builtins.slice(None) if bounds == whole else builtins.slice(bounds[0], bounds[1], bounds[2] if bounds[2] != 1 else None)
        for bounds, whole in zip(slice, full, strict=True)]
    while index and index[-1] == builtins.slice(None):
        index.pop()
    if not index:
        return operand
    return operand[tuple(index)] if len(index) > 1 else operand[index[0]]


@op("concatenate", infer=concatenate_shape, stablehlo="concatenate", movement=True)
def concatenate(inst, *operands, dimensions: Dims):
    return torch.cat([_as_result_type(inst, v, o.shape) for v, o in zip(operands, inst.operands, strict=True)], dimensions[0])


@op("pad", infer=pad_shape, stablehlo="pad", numbers="padding_value", movement=True)
def pad(inst, operand, padding_value, *, padding: Padding):
    operand, padding_value = _as_result_type(inst, operand, inst.operands[0].shape), host_value(padding_value)
    sizes = inst.operands[0].shape.dimensions
    # torch crops before it pads, so it cannot crop from what it pads on the other side.
    croppable = all(n == UNBOUNDED or n + min(low, 0) + min(high, 0) >= 0
                    for n, (low, high, _) in zip(sizes, padding, strict=True))
    if isinstance(padding_value, Number) and croppable and not any(interior for _, _, interior in padding):
        edges = [edge for low, high, _ in reversed(padding) for edge in (low, high)]
        return torch.constant_pad_nd(operand, edges, padding_value)
    return emit(kernels.pad, operand, padding_value, padding)


def host_value(value: Any) -> Any:
    """The number (at run time a Python int) that a `Host` stands for; other values unchanged."""
    return value.value if isinstance(value, Host) else value


def _as_result_type(inst: Any, value: Any, given: Shape) -> Any:
    """`value` in the result's carrier, where operands are floats of different widths."""
    return value if given.element_type is inst.shape.element_type else value.to(inst.shape.element_type.carrier)


_EXACT_IOTA_FLOATS = {torch.float16: 2**11, torch.bfloat16: 2**8}


@op("iota", infer=iota_shape, stablehlo="iota", inferable=False)
def iota(inst, *, iota_dimension: Int):
    element_type, sizes = inst.shape.element_type, inst.shape.dimensions
    size = sizes[iota_dimension]
    # Where counting in the type itself would saturate or round, count in int64 and convert, which wraps integers.
    limit = 2 ** (element_type.bits - 1) if element_type.is_integral else _EXACT_IOTA_FLOATS.get(element_type.carrier, 2**24)
    direct = size <= limit and not element_type.is_complex
    line = emit(torch.arange, size, dtype=element_type.carrier if direct else torch.int64, device=device())
    line = line if direct else line.to(element_type.carrier)
    if len(sizes) == 1:
        return line
    return line.view([size if d == iota_dimension else 1 for d in range(len(sizes))]).expand(sizes)


@op("constant", infer=constant_shape, stablehlo="constant", inferable=False)
def constant(inst, *, literal: LiteralWithShape):
    raise ExecutionError("constants are values of the evaluator, not computed by an op body")


@op("parameter", infer=parameter_shape, inferable=False)
def parameter(inst, *, parameter_number: Int):
    raise ExecutionError("a parameter outside of its computation has no value")


@op("copy", infer=copy_shape, movement=True, view=True)
def copy(inst, operand):
    return operand
