"""Calls of XLA's own: marks that only pass values on, decompositions and searches that a backend implements, and what
compilers put in for memory and dynamic sizes."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import S32, S64, U32, U64
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.custom_calls import described
from ..opcodes import dynamic, sorting
from .calls import Call, Meaning, parts, zeros

# ------------------------------------------------------------------------------------------- marks and memory


def identity(call: Call) -> XlaOp:
    """Of a mark that a partitioner, a placer of memory or an optimizer put: the value."""
    if len(call.operands) != 1 or not call.operands[0].shape.compatible(call.instruction.shape):
        raise call.refused("a mark that changes the shape has no meaning for one participant",
                           f"{', '.join(str(o.shape) for o in call.operands)} to {call.instruction.shape}", "equal shapes")
    return ops.Copy(call.operands[0])


def nothing(call: Call) -> Sequence[XlaOp]:
    """Of a call that only has its operands computed."""
    return []


def buffer(call: Call) -> XlaOp:
    """Of a buffer that nothing has been written to, zeros."""
    return zeros(call.builder, call.results[0])


# ------------------------------------------------------------------------------------------- decompositions


def lu(call: Call) -> Sequence[XlaOp]:
    """(L and U in one matrix, row exchanges counted from 0, the permutation that they make)."""
    call.require_operands(1)
    call.require_matrices()
    return ops.LU(call.operands[0])


def eigh(call: Call) -> Sequence[XlaOp]:
    """(eigenvectors, eigenvalues in ascending order). The opaque text begins with whether the lower triangle is read."""
    call.require_operands(1)
    call.require_matrices()
    settings = described(call.instruction).opaque.split(",")
    if settings[0] not in ("0", "1"):
        raise call.refused("its configuration does not say which triangle is read", settings[0] or "nothing",
                           "lower,sorted,iterations,tolerance")
    return ops.Eigh(call.operands[0], settings[0] == "1")


# ------------------------------------------------------------------------------------------- searches


def top_k(call: Call) -> Sequence[XlaOp]:
    """(largest values, their indices). Where it is said by an operand how many, it has the result's shape to say it too."""
    x, count = call.operands[0], call.results[0].dimensions[-1]
    if not 0 <= count <= x.shape.dimensions[-1] or len(call.results) < 2 or call.config.get("largest", True) is not True:
        raise call.refused("it asks for what a search for the largest does not give", f"{x.shape} to {call.instruction.shape}")
    return parts(call.builder.add(sorting.topk, [x], {"k": count, "largest": True}))


def partial_reduce(call: Call) -> XlaOp | Sequence[XlaOp]:
    """The first elements of a dimension in the comparator's order: of the answers that are allowed, one that misses nothing.

    Where more are asked for than there are, the rest is filled with the init values.
    """
    width = len(call.results)
    arrays, inits = call.operands[:width], call.operands[width: 2 * width]
    regions = call.instruction.called_computations
    if len(inits) != width or len(regions) != 1 or not isinstance(call.config.get("reduction_dim"), int):
        raise call.refused("it has not one init for each array, a comparator, and a dimension")
    dimension = call.config["reduction_dim"] % arrays[0].shape.rank
    ordered = ops.Sort(list(arrays), regions[0], dimension, is_stable=True)
    columns = parts(ordered) if width > 1 else [ordered]
    found = [_resized(column, init, dimension, result.dimensions[dimension])
             for column, init, result in zip(columns, inits, call.results, strict=True)]
    return found if call.instruction.shape.is_tuple else found[0]


def _resized(x: XlaOp, filler: XlaOp, dimension: int, size: int) -> XlaOp:
    """The first elements of a dimension, with fillers behind where there are fewer."""
    return ops.Pad(x, filler, [(0, size - n if d == dimension else 0, 0) for d, n in enumerate(x.shape.dimensions)])


def radix_sort(call: Call) -> Sequence[XlaOp]:
    """Keys in the order of their values, of floats the total order, and values beside them."""
    keys, descending = call.operands[0], call.config.get("descending", False)
    builder = Builder("order")
    for number, operand in enumerate(call.operands):
        for side in (0, 1):
            builder.parameter(2 * number + side, Shape(operand.element_type))
    compare = ops.GtTotalOrder if descending else ops.LtTotalOrder
    compare(*(XlaOp(builder, i) for i in builder.instructions[:2]))
    found = ops.Sort(list(call.operands), builder.finish(), keys.shape.rank - 1, is_stable=True)
    return parts(found) if len(call.operands) > 1 else [found]


# ------------------------------------------------------------------------------------------- integers of 64 bits on TPUs


def low_half(call: Call) -> XlaOp:
    """The lower 32 bits of an integer."""
    return ops.ConvertElementType(_halved(call), U32)


def high_half(call: Call) -> XlaOp:
    """The upper 32 bits of an integer."""
    return ops.ConvertElementType(ops.ShiftRightLogical(_halved(call), 32), U32)


def _halved(call: Call) -> XlaOp:
    call.require_operands(1)
    (x,) = call.operands
    if x.element_type not in (S64, U64):
        raise call.refused("only integers have halves that are known", x.shape, "s64 or u64")
    return ops.ConvertElementType(x, U64)


def from_halves(call: Call) -> XlaOp:
    """An integer of its lower and its upper 32 bits."""
    call.require_operands(2)
    kind = call.results[0].element_type
    if kind not in (S64, U64) or any(o.element_type is not U32 for o in call.operands):
        raise call.refused("only integers have halves that are known", call.results[0], "s64 or u64")
    low, high = (ops.ConvertElementType(o, U64) for o in call.operands)
    return ops.ConvertElementType(ops.Or(ops.ShiftLeft(high, 32), low), kind)


# ------------------------------------------------------------------------------------------- dynamic sizes


def pad_to_static(call: Call) -> Sequence[XlaOp]:
    """(the elements in an array as large as the bounds, the size of each dimension)."""
    call.require_operands(1)
    (x,) = call.operands
    sizes = [ops.GetDimensionSize(x, d) for d in range(x.shape.rank)]
    static = x
    for d, bound in enumerate(x.shape.dimensions):
        if x.shape.dynamic_flags[d]:
            flags = [flag and k > d for k, flag in enumerate(x.shape.dynamic_flags)]
            static = call.builder.add(dynamic.set_dimension_size, [static, call.builder.constant(bound, S32)],
                                      {"dimensions": (d,)}, x.shape.with_dimensions(x.shape.dimensions, flags))
    return [static, *sizes]


def slice_to_dynamic(call: Call) -> XlaOp:
    """An array of which each dynamic dimension has the size that an operand says."""
    x, *sizes = call.operands
    for d, size in enumerate(sizes):
        if call.instruction.shape.dynamic_flags[d]:
            x = ops.SetDimensionSize(x, size, d)
    return x


def dynamic_reduce_window(call: Call) -> XlaOp | Sequence[XlaOp]:
    """A window's reduction whose sizes are operands, which here must be constants."""
    width = (len(call.operands) - 5) // 2
    regions = call.instruction.called_computations
    if len(call.operands) != 2 * width + 5 or width < 1 or len(regions) != 1:
        raise call.refused("it has not arrays, inits, five arrays of sizes, and a reducer", len(call.operands))
    sizes, strides, base, spread = (tuple(map(int, call.static(2 * width + k))) for k in range(4))
    padding = [(int(low), int(high)) for low, high in call.static(2 * width + 4).tolist()]
    found = ops.ReduceWindowWithGeneralPadding(list(call.operands[:width]), list(call.operands[width:2 * width]), regions[0],
                                               sizes, strides, base, spread, padding)
    return parts(found) if found.shape.is_tuple else found


_MARKS = (
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape", "annotate_device_placement", "MoveToHost", "MoveToDevice", "PinToDevice", "PinToDeviceSram",
    "Pin", "Unpin", "LayoutConstraint", "AssumeGatherIndicesInBound", "xla.sdy.PropagationBarrier",
    "ShardBarrierFrom", "ShardBarrierTo")

MEANINGS: dict[str, Meaning] = {
    **dict.fromkeys(_MARKS, identity),
    **dict.fromkeys(("dce_sink", "InspectSharding", "xla.sdy.ShardingGroup"), nothing),
    "AllocateBuffer": buffer, "CreateBuffer": buffer,
    "LuDecomposition": lu, "Eigh": eigh,
    "TopK": top_k, "__gpu$TopK": top_k, "stablehlo.dynamic_top_k": top_k,
    "PartialReduce": partial_reduce, "ApproxTopK": partial_reduce, "stablehlo.dynamic_approx_top_k": partial_reduce,
    "__cub$DeviceRadixSort": radix_sort, "__cub$DeviceRadixSortUnassignedScratchSize": radix_sort,
    "X64SplitLow": low_half, "X64SplitHigh": high_half, "X64Combine": from_halves,
    "PadToStatic": pad_to_static, "SliceToDynamic": slice_to_dynamic,
    "stablehlo.dynamic_reduce_window": dynamic_reduce_window,
}
"""The calls by target."""
