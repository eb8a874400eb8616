"""How ops are resolved, a rule for each, and which dimensions of results have an operand's sizes (see `resolving_tables`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ml_dtypes
import numpy as np

from ...core.errors import UnsupportedError
from ...core.shape import UNBOUNDED
from ...core.sizes import common_factors
from ...core.types import PrimitiveType, has_infinity
from ...functions.hlo_builder import Builder, XlaOp
from ...hlo.ir import Instruction
from ...hlo.schema import Trait
from ...hlo.structure import CONSTANT
from ...opcodes import comparison, indexing, linalg, reduction
from ...opcodes.contraction import DotDimensionNumbers
from ..values import Value
from .resolver import Place, SizeResolver, bounded, dynamic_dimensions
from .resolving_tables import RULES, SOURCES

# ------------------------------------------------------------------------------------------------ dimensions that agree


def _columns(operands: Sequence[XlaOp], numbers: Iterable[int], without: Iterable[int] = ()) -> list[list[Place]]:
    """The dimensions of operands of one rank, those in the same place together."""
    numbers, left_out = list(numbers), set(without)
    return [[(k, d) for k in numbers] for d in range(operands[numbers[0]].shape.rank) if d not in left_out]


@RULES.by_trait(Trait.ELEMENTWISE)
def _elementwise(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """What has size 1 at run time broadcasts. (XLA gives a select that size too, and takes whatever the memory holds there.)"""
    arrays = [k for k, o in enumerate(operands) if o.shape.rank]
    return s.again(inst, s.agree(operands, _columns(operands, arrays), stretch=True))


@RULES.rule("clamp")
def _clamp(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """The result is dynamic where the operand is: there the last dynamic size counts, elsewhere bounds are filled up."""
    static = [d for d, dynamic in enumerate(operands[1].shape.dynamic_flags) if not dynamic]
    bounds = [k for k in (0, 2) if operands[k].shape.rank]
    operands = [s.filled(o, static) if k in bounds else o for k, o in enumerate(operands)]
    return s.again(inst, s.agree(operands, _columns(operands, sorted([1, *bounds])), last=True))


@RULES.rule("map")
def _map(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    return s.again(inst, s.agree(operands, _columns(operands, range(len(operands))), stretch=True))


@RULES.rule("sort")
def _sort(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    return s.again(inst, s.agree(operands, _columns(operands, range(len(operands)))))


@RULES.rule("concatenate")
def _concatenate(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Operands may differ in the dimension that they are joined along."""
    columns = _columns(operands, range(len(operands)), inst.attributes["dimensions"])
    return s.again(inst, s.agree(operands, columns, last=True))


@RULES.rule("scan")
def _scan(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    (along,) = inst.attributes["dimensions"]
    inputs = range(len(operands) - inst.attributes["num_carries"])
    return s.again(inst, s.agree(operands, [[(k, along) for k in inputs]]))


@RULES.rule("reduce", "reduce-window")
def _reduce(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Arrays of different sizes are each reduced as far as they go: filled up with what a reduction starts from."""
    count = len(operands) // 2
    reduced = inst.attributes.get("dimensions", ())
    mixed = [d for d in reduced if any(not o.shape.dynamic_flags[d] for o in operands[:count])]
    operands = [s.filled(o, mixed, operands[count + k]) if k < count else o for k, o in enumerate(operands)]
    return s.again(inst, s.agree(operands, _columns(operands, range(count), reduced)))


@RULES.rule("dot")
def _dot(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    numbers = _dot_numbers(inst)
    contracted = zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True)
    batch = zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True)
    operands = s.agree(operands, [[(0, i), (1, j)] for i, j in contracted])
    return s.again(inst, s.agree(operands, [[(0, i), (1, j)] for i, j in batch], last=True))


def _dot_numbers(inst: Instruction) -> DotDimensionNumbers:
    return DotDimensionNumbers(*(tuple(inst.attributes.get(name, ())) for name in (
        "lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")))


@RULES.rule("ragged-dot")
def _ragged_dot(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Group sizes count rows up to the bound."""
    numbers, lhs, rhs = _dot_numbers(inst), operands[0], operands[1]
    result = s.again(inst, [s.filled(o, dynamic_dimensions(o.shape)) for o in operands])
    group = set(inst.attributes.get("rhs_group_dims", ()))
    sources = [*((lhs, d) for d in (*numbers.lhs_batch_dimensions, *numbers.lhs_free(lhs.shape.rank))),
               *((rhs, d) for d in numbers.rhs_free(rhs.shape.rank) if d not in group)]
    assert isinstance(result, XlaOp)
    first = result.shape.rank - len(sources)
    for place, (source, d) in enumerate(sources, first):
        result = s.cut(result, place, source, d)
    return result


@RULES.rule("convolution")
def _convolution(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Input features meet the kernel's; the window has the size of the kernel's bounds, and groups divide bounds."""
    numbers = inst.attributes["dim_labels"]
    grouped = inst.attributes.get("feature_group_count", 1) > 1
    batches = inst.attributes.get("batch_group_count", 1) > 1
    image, kernel = operands
    features = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
    image = s.filled(image, [*([features[0]] if grouped else ()), *([numbers.input_batch_dimension] if batches else ())])
    made = numbers.kernel_output_feature_dimension
    kernel = s.filled(kernel, [*numbers.kernel_spatial_dimensions, *([features[1], made] if grouped or batches else ())])
    return s.again(inst, s.agree([image, kernel], [] if grouped else [[(0, features[0]), (1, features[1])]]))


@RULES.rule("slice")
def _slice(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """One element of a dynamic dimension makes a static one: there must be an element."""
    return s.again(inst, [s.filled(operands[0], [d for d, n in enumerate(inst.shape.dimensions) if n == 1])])


@RULES.rule("dynamic-slice")
def _dynamic_slice(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    sizes = zip(inst.attributes["dynamic_slice_sizes"], operands[0].shape.dimensions, strict=True)
    return s.again(inst, [s.filled(operands[0], [d for d, (n, bound) in enumerate(sizes) if n < bound]), *operands[1:]])


@RULES.rule("dynamic-update-slice")
def _dynamic_update_slice(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Places are counted up to the bounds. An update that can be as large as the operand gives the result its size, of a
    smaller one what it has is written."""
    whole = [d for d, n in enumerate(operands[0].shape.dimensions) if operands[1].shape.dimensions[d] == n]
    given, update, *starts = s.agree(operands, [[(0, d), (1, d)] for d in whole], last=True)
    parts = [d for d in range(given.shape.rank) if d not in whole]
    operand, written = s.filled(given, parts), [d for d in parts if bounded(update.shape, d)]
    if written:
        before = s.builder.add(indexing.dynamic_slice, [operand, *starts], {"dynamic_slice_sizes": update.shape.dimensions})
        update = s.covered(s.filled(update, written), update, written, before)
    result = s.again(inst, [operand, update, *starts])
    return _resized(s, result, given, parts)


def _resized(s: SizeResolver, result: Value, like: XlaOp, dimensions: Iterable[int]) -> Value:
    """Each array of the result, cut to the sizes of `like`."""
    if isinstance(result, list):
        return [_resized(s, part, like, dimensions) for part in result]
    for d in dimensions:
        result = s.cut(result, d, like, d)
    return result


@RULES.rule("gather")
def _gather(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    batching = [*inst.attributes.get("operand_batching_dims", ())]
    operands = s.agree(operands, [[(0, a), (1, b)] for a, b in zip(
        batching, inst.attributes.get("start_indices_batching_dims", ()), strict=True)])
    sizes = enumerate(zip(inst.attributes["slice_sizes"], operands[0].shape.dimensions, strict=True))
    return s.again(inst, [s.filled(operands[0], [d for d, (n, bound) in sizes if n < bound and d not in batching]), operands[1]])


@RULES.rule("scatter")
def _scatter(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Updates go as far as there are indices for them, and windows as long as the operand as far as it goes."""
    attributes, count, rank = inst.attributes, len(operands) // 2, operands[0].shape.rank
    inputs, updates, points = range(count), range(count + 1, 2 * count + 1), operands[count].shape.rank
    batching = dict(zip(attributes.get("scatter_indices_batching_dims", ()), attributes.get("input_batching_dims", ()),
                        strict=True))
    absent = {*attributes.get("inserted_window_dims", ()), *batching.values()}
    window = dict(zip([d for d in range(rank) if d not in absent], attributes["update_window_dims"], strict=True))
    indexed = [d for d in range(points) if d != attributes["index_vector_dim"]]
    scattered = [d for d in range(operands[count + 1].shape.rank) if d not in window.values()]
    operands = s.agree(operands, _columns(operands, inputs))
    groups = [[(count, i), *((k, u) for k in updates), *((k, batching[i]) for k in inputs if i in batching)]
              for i, u in zip(indexed, scattered, strict=True)]
    whole = {d: u for d, u in window.items() if operands[count + 1].shape.dimensions[u] == operands[0].shape.dimensions[d]}
    groups += [[(0, d), *((k, u) for k in updates)] for d, u in whole.items() if bounded(operands[0].shape, d)]
    given = s.agree(operands, groups)
    parts = [d for d in range(rank) if d not in whole and d not in batching.values()]
    result = s.again(inst, [s.filled(o, parts) if k in inputs else o for k, o in enumerate(given)])
    return _resized(s, result, given[0], parts)


@RULES.rule("select-and-scatter")
def _select_and_scatter(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Windows are counted up to the bound; what is beyond the operand's size is never selected."""
    operand, source, init = operands
    dynamic = dynamic_dimensions(operand.shape)
    root = inst.attributes["select"].root
    smallest = root.opcode == comparison.compare and root.attributes["direction"] in ("LE", "LT")
    beyond = _extreme(s.builder, operand.element_type, largest=smallest)
    if operand.element_type.is_floating:  # NaN is neither less nor greater
        kind = operand.element_type
        largest = np.inf if has_infinity(kind) else float(ml_dtypes.finfo(kind.numpy).max)  # pyright: ignore[reportArgumentType]
        beyond = s.builder.constant(largest if smallest else -largest, operand.element_type)
    result = s.again(inst, [s.filled(operand, dynamic, beyond), s.filled(source, dynamic_dimensions(source.shape), init), init])
    return _resized(s, result, operand, dynamic)


@RULES.rule("topk")
def _topk(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    least = _extreme(s.builder, operands[0].element_type, largest=not inst.attributes.get("largest", True))
    return s.again(inst, [s.filled(operands[0], [operands[0].shape.rank - 1], least)])


@RULES.rule("cholesky", "triangular-solve")
def _matrices(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Rows and columns of a square matrix agree, and those of the other operand of a triangular solve with them."""
    rank = operands[0].shape.rank
    square = [(0, rank - 1), (0, rank - 2)]
    if inst.opcode == linalg.triangular_solve:
        square.append((1, rank - 2 if inst.attributes.get("left_side") else rank - 1))
    batch = _columns(operands, range(len(operands)), (rank - 1, rank - 2))
    return s.again(inst, s.agree(operands, [square, *batch]))


@RULES.rule("batch-norm-grad", "batch-norm-inference", "batch-norm-training")
def _batch_norm(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    feature = inst.attributes["feature_index"]
    groups = [[(0, feature), *((k, 0) for k in range(1, len(operands)) if operands[k].shape.rank == 1)]]
    if inst.opcode == reduction.batch_norm_grad:
        groups = [[*groups[0], (4, feature)], *_columns(operands, (0, 4), (feature,))]
    return s.again(inst, s.agree(operands, groups))


@RULES.rule("fft")
def _fft(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    shape, count = operands[0].shape, len(inst.attributes["fft_length"])
    if any(bounded(shape, d) for d in range(shape.rank - count, shape.rank)):
        raise UnsupportedError("a Fourier transform along a dynamic dimension", subject=inst.subject, got=shape,
                               expected="static transformed dimensions", where=inst.where,
                               hint="use ops.RemoveDynamicDimension, which pads the dimension with zeros")
    return s.again(inst, operands)


@RULES.rule("bitcast", "reshape")
def _reshape(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Dynamic dimensions that become static ones are filled up first."""
    (operand,), shape = operands, inst.shape
    if UNBOUNDED in operand.shape.dimensions or UNBOUNDED in shape.dimensions:
        return s.again(inst, operands)
    static, flags = [], [False] * shape.rank
    for old, new in common_factors(operand.shape.dimensions, shape.dimensions):
        if not any(shape.dynamic_flags[k] for k in new):
            static += old
        elif any(operand.shape.dynamic_flags[k] for k in old):
            for k in new:
                flags[k] = shape.dynamic_flags[k]
    return s.append(inst, [s.filled(operand, static)], shape.with_dimensions(shape.dimensions, flags))


@RULES.rule("broadcast")
def _broadcast(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    flags = [False] * inst.shape.rank
    for d, flag in zip(inst.attributes.get("dimensions", ()), operands[0].shape.dynamic_flags, strict=True):
        flags[d] = flag
    return s.append(inst, operands, inst.shape.with_dimensions(inst.shape.dimensions, flags))


@RULES.rule("get-dimension-size")
def _get_size(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """What the program declares static has the size that it declares."""
    declared, (dimension,) = inst.operands[0].shape, inst.attributes["dimensions"]
    if declared.dynamic_flags[dimension]:
        return s.again(inst, operands)
    return s.builder.constant(declared.dimensions[dimension])


@RULES.rule("set-dimension-size")
def _set_size(s: SizeResolver, inst: Instruction, operands: list[XlaOp]) -> Value:
    """The dimension is dynamic unless its new size is known to be the bound."""
    (dimension,), (operand, size) = inst.attributes["dimensions"], operands
    literal = size.instruction.attributes.get("literal") if size.instruction.opcode == CONSTANT else None
    flags = list(operand.shape.dynamic_flags)
    flags[dimension] = inst.shape.dynamic_flags[dimension] or literal is None or int(
        literal.array) != operand.shape.dimensions[dimension]
    return s.append(inst, operands, operand.shape.with_dimensions(operand.shape.dimensions, flags))


def _extreme(builder: Builder, element_type: PrimitiveType, largest: bool) -> XlaOp:
    """The largest or smallest value of a type, as a constant; of a floating one the NaN at that end of the total order."""
    if element_type.is_floating:
        return builder.constant(np.copysign(np.nan, 1 if largest else -1).astype(element_type.numpy))
    if element_type.is_pred:
        return builder.constant(largest)
    bits = element_type.bits - element_type.is_signed
    return builder.constant((1 << bits) - 1 if largest else -(1 << bits) if element_type.is_signed else 0, element_type)


# ------------------------------------------------------------------------------------------------ sizes that ops keep


@SOURCES.rule("set-dimension-size", "reverse", "map")
def _own_place(inst: Instruction, dimension: int) -> tuple[Instruction, int]:
    return inst.operands[0], dimension


@SOURCES.by_trait(Trait.ELEMENTWISE)
def _first_array(inst: Instruction, dimension: int) -> tuple[Instruction, int] | None:
    return next(((o, dimension) for o in inst.operands if o.shape.rank), None)


@SOURCES.rule("transpose")
def _permuted(inst: Instruction, dimension: int) -> tuple[Instruction, int]:
    return inst.operands[0], inst.attributes["dimensions"][dimension]


@SOURCES.rule("broadcast")
def _placed(inst: Instruction, dimension: int) -> tuple[Instruction, int] | None:
    placed = inst.attributes.get("dimensions", ())
    return (inst.operands[0], placed.index(dimension)) if dimension in placed else None


@SOURCES.rule("reduce")
def _not_reduced(inst: Instruction, dimension: int) -> tuple[Instruction, int]:
    operand = inst.operands[0]
    return operand, [d for d in range(operand.shape.rank) if d not in inst.attributes["dimensions"]][dimension]


@SOURCES.rule("reshape")
def _reshaped(inst: Instruction, dimension: int) -> tuple[Instruction, int] | None:
    operand = inst.operands[0]
    for old, new in common_factors(operand.shape.dimensions, inst.shape.dimensions):
        wide = [d for d in old if operand.shape.dimensions[d] != 1]
        if dimension in new and len(wide) == 1 and operand.shape.dimensions[wide[0]] == inst.shape.dimensions[dimension]:
            return operand, wide[0]
    return None
