"""How ops run on a batch: a rule for each op, and one for all that are elementwise (`batching_table` says what it gives)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grad_rules._calculus import scalar_computation

from .. import functions as ops
from ..analysis.reducers import reducer_kinds
from ..core.shape import Shape
from ..core.types import S32, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from ..hlo.checks import is_check
from ..hlo.ir import Instruction
from ..hlo.schema import Trait
from ..opcodes.reducer_kinds import ReducerKind
from ..transform.values import Value, elements_of
from .batched_run import Batch
from .batching_table import RULES

rule = RULES.rule


def _up(dimensions: Sequence[int]) -> tuple[int, ...]:
    """The dimensions, one further back."""
    return tuple(d + 1 for d in dimensions)


# ------------------------------------------------------------------------------------------------ elementwise


@RULES.by_trait(Trait.ELEMENTWISE)
def _elementwise(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    sizes = (batch.size, *inst.shape.dimensions)

    def fitted(value: XlaOp, is_mapped: bool) -> XlaOp:
        if not is_mapped and not value.shape.rank and inst.shape.rank:
            return value  # a scalar bound or predicate, for all elements
        value = batch.full(value, is_mapped)
        return value if value.shape.rank == len(sizes) else ops.BroadcastInDim(value, sizes, [0])

    return batch.same(inst, [fitted(v, m) for v, m in zip(operands, mapped, strict=True)])


@rule("reshape", "bitcast", "bitcast-convert", "copy", "cholesky", "triangular-solve", "fft", "topk", "stochastic-convert",
      "all-reduce", "collective-permute", "collective-broadcast")
def _as_it_is(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    changed = {"inferred_dimension": -1} if "inferred_dimension" in inst.attributes else {}
    return batch.same(inst, batch.all(operands, mapped), **changed)


@rule("opt-barrier", "domain", "add-dependency")
def _passed_on(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    return operands[0]


@rule("custom-call")
def _check(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value | None:
    """A check of all examples, with the numbers of the first one for which it does not hold."""
    if not is_check(inst) or not batch.size:
        return None
    holds, *values = batch.all(operands, mapped)
    numbers = ops.Iota(batch.builder, Shape.array(S32, [batch.size]), 0)
    failing = ops.Select(holds, ops.Broadcast(batch.builder.constant(batch.size - 1, S32), [batch.size]), numbers)
    first = ops.Reduce(batch.builder, failing, batch.builder.constant(batch.size - 1, S32), scalar_computation("Min", S32), [0])
    chosen = [ops.Reshape(ops.DynamicSlice(v, [first], [1]), []) for v in (holds, *values)]
    clone = Instruction(inst.opcode, inst.shape, [c.instruction for c in chosen], inst.attributes, inst.name, inst.common)
    return elements_of(batch.builder.append(clone))


@rule("get-dimension-size")
def _size(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    size = inst.operands[0].shape.dimensions[inst.attributes["dimensions"][0]]
    return ops.Broadcast(batch.builder.constant(size, inst.shape.element_type), [batch.size])


# ------------------------------------------------------------------------------------------------ moved by one dimension


@rule("transpose")
def _transpose(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    return batch.same(inst, operands, dimensions=(0, *_up(inst.attributes["dimensions"])))


@rule("broadcast")
def _broadcast(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    return batch.same(inst, operands, dimensions=(0, *_up(inst.attributes.get("dimensions", ()))))


@rule("reverse", "concatenate", "sort", "all-gather", "reduce-scatter")
def _along_dimensions(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    return batch.same(inst, batch.all(operands, mapped), dimensions=_up(inst.attributes["dimensions"]))


@rule("all-to-all")
def _all_to_all(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    split = inst.attributes.get("dimensions")
    return batch.same(inst, batch.all(operands, mapped), **({"dimensions": _up(split)} if split else {}))


@rule("slice")
def _slice(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    return batch.same(inst, operands, slice=((0, batch.size, 1), *inst.attributes["slice"]))


@rule("pad")
def _pad(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    value, padding = batch.full(operands[0], mapped[0]), ((0, 0, 0), *inst.attributes["padding"])
    if not mapped[1]:
        return batch.same(inst, [value, operands[1]], padding=padding)
    builder = batch.builder
    none = ops.Broadcast(builder.constant(False), value.shape.dimensions)
    outside = ops.Pad(none, builder.constant(True), padding)
    filling = ops.BroadcastInDim(operands[1], outside.shape.dimensions, [0])
    return ops.Select(outside, filling, ops.Pad(value, builder.constant(0, value.element_type), padding))


@rule("map")
def _map(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    return batch.same(inst, batch.all(operands, mapped), dimensions=tuple(range(inst.shape.rank + 1)))


# ------------------------------------------------------------------------------------------------ reductions and windows


def _split(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    count = len(operands) // 2
    return list(operands[:count]), list(operands[count:])


@rule("reduce")
def _reduce(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value | None:
    return _reduction(batch, inst, operands, mapped, dimensions=_up(inst.attributes["dimensions"]))


@rule("reduce-window")
def _reduce_window(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value | None:
    if any(_split(mapped)[1]):
        return None
    return _reduction(batch, inst, operands, mapped, window=(WindowDimension(1), *inst.attributes["window"]))


_COMBINE = {ReducerKind.ADD: ops.Add, ReducerKind.MULTIPLY: ops.Mul, ReducerKind.AND: ops.And, ReducerKind.OR: ops.Or,
            ReducerKind.XOR: ops.Xor}
_NEUTRAL = {ReducerKind.ADD: 0, ReducerKind.MULTIPLY: 1, ReducerKind.AND: -1, ReducerKind.OR: 0, ReducerKind.XOR: 0}


def _reduction(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool], **changed: Any) -> Value | None:
    """An initial value for each example is combined at the end, where the reducer has a neutral element."""
    (arrays, inits), (flags, init_flags) = _split(operands), _split(mapped)
    if not any(init_flags):
        return batch.same(inst, [*batch.all(arrays, flags), *inits], **changed)
    kind = reducer_kinds(inst.attributes["to_apply"])[0]
    if len(arrays) != 1 or kind is None or kind not in _COMBINE or not inst.attributes["dimensions"]:
        return None
    element_type = inst.shape.element_type
    neutral = True if element_type.is_pred and kind is ReducerKind.AND else _NEUTRAL[kind]
    start = batch.builder.constant(neutral % 2**element_type.bits if _unsigned(element_type) else neutral, element_type)
    found = batch.same(inst, [*batch.all(arrays, flags), start], **changed)
    return _COMBINE[kind](ops.BroadcastInDim(inits[0], [batch.size, *inst.shape.dimensions], [0]), found)


def _unsigned(element_type: PrimitiveType) -> bool:
    return element_type.is_integral and not element_type.is_signed and not element_type.is_pred


@rule("select-and-scatter")
def _select_and_scatter(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value | None:
    if mapped[2]:
        return None
    arrays = batch.all(operands[:2], mapped[:2])
    return batch.same(inst, [*arrays, operands[2]], window=(WindowDimension(1), *inst.attributes["window"]))


# ------------------------------------------------------------------------------------------------ products


def _to_front(value: XlaOp, dimension: int) -> XlaOp:
    if dimension == 0:
        return value
    return ops.Transpose(value, [dimension, *(d for d in range(value.shape.rank) if d != dimension)])


@rule("dot")
def _dot(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    """A batched operand beside one that is not has its batch as a free dimension: one large product, not many."""
    names = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    lhs_sum, rhs_sum, lhs_batch, rhs_batch = (tuple(inst.attributes.get(n, ())) for n in names)
    if mapped[0]:
        lhs_sum, lhs_batch = _up(lhs_sum), _up(lhs_batch)
    if mapped[1]:
        rhs_sum, rhs_batch = _up(rhs_sum), _up(rhs_batch)
    if all(mapped):
        lhs_batch, rhs_batch = (0, *lhs_batch), (0, *rhs_batch)
    changed = dict(zip(names, (lhs_sum, rhs_sum, lhs_batch, rhs_batch), strict=True))
    if all(mapped):
        return batch.same(inst, operands, **changed)
    place = len(lhs_batch)
    if mapped[1]:
        place = operands[0].shape.rank - len(lhs_sum)
    sizes = list(inst.shape.dimensions)
    sizes.insert(place, batch.size)
    found = batch.builder.append(Instruction(
        inst.opcode, Shape.array(inst.shape.element_type, sizes), [o.instruction for o in operands],
        {**inst.attributes, **changed}, inst.name))
    return _to_front(found, place)


@rule("convolution")
def _convolution(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    """The batch goes where examples already are; a kernel for each example makes groups of features (or of the batch, where
    there are such)."""
    attributes = inst.attributes
    numbers: ConvolutionDimensionNumbers = attributes["dim_labels"]
    groups, batch_groups = attributes.get("feature_group_count", 1), attributes.get("batch_group_count", 1)
    lhs, rhs = operands
    if mapped == [True, False] and batch_groups == 1:
        return _convolved(batch, inst, _merged(lhs, numbers.input_batch_dimension), rhs, numbers.output_batch_dimension)
    kernel_features = numbers.kernel_output_feature_dimension
    if mapped == [False, True] and groups == batch_groups == 1:
        return _convolved(batch, inst, lhs, _merged(rhs, kernel_features), numbers.output_feature_dimension)
    lhs, rhs = batch.all(operands, mapped)
    rhs = _merged(rhs, kernel_features)
    if batch_groups > 1:
        return _convolved(batch, inst, _merged(lhs, numbers.input_batch_dimension), rhs, numbers.output_feature_dimension,
                          batch_group_count=batch_groups * batch.size)
    return _convolved(batch, inst, _merged(lhs, numbers.input_feature_dimension), rhs, numbers.output_feature_dimension,
                      feature_group_count=groups * batch.size)


def _merged(value: XlaOp, dimension: int) -> XlaOp:
    """The batch made part of another dimension, as its slower part."""
    size, *sizes = value.shape.dimensions
    order = [*range(1, dimension + 1), 0, *range(dimension + 1, value.shape.rank)]
    sizes[dimension] *= size
    return ops.Reshape(value if dimension == 0 else ops.Transpose(value, order), sizes)


def _convolved(batch: Batch, inst: Instruction, lhs: XlaOp, rhs: XlaOp, dimension: int, **changed: Any) -> XlaOp:
    """The convolution, with the batch taken out of this dimension of its result."""
    sizes = list(inst.shape.dimensions)
    sizes[dimension] *= batch.size
    found = batch.builder.append(Instruction(
        inst.opcode, Shape.array(inst.shape.element_type, sizes), [lhs.instruction, rhs.instruction],
        {**inst.attributes, **changed}, inst.name))
    apart = [*sizes[:dimension], batch.size, inst.shape.dimensions[dimension], *sizes[dimension + 1:]]
    return _to_front(ops.Reshape(found, apart), dimension)


# ------------------------------------------------------------------------------------------------ places in arrays


@rule("dynamic-slice")
def _dynamic_slice(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    """Starts that differ make it a gather, which moves windows inside in the same way."""
    operand, *starts = operands
    sizes, rank = inst.attributes["dynamic_slice_sizes"], inst.shape.rank
    if not starts:
        return operand
    if not any(mapped[1:]):
        zero = batch.builder.constant(0, starts[0].element_type)
        return batch.same(inst, [operand, zero, *starts], dynamic_slice_sizes=(batch.size, *sizes))
    places, window = _together(batch, starts, mapped[1:]), tuple(range(1, rank + 1))
    if mapped[0]:
        numbers = ops.GatherDimensionNumbers(window, (), window, 1, (0,), (0,))
        return ops.Gather(operand, places, numbers, [1, *sizes])
    return ops.Gather(operand, places, ops.GatherDimensionNumbers(window, (), tuple(range(rank)), 1), sizes)


@rule("dynamic-update-slice")
def _dynamic_update_slice(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    """Starts that differ make it a scatter, which drops windows that stick out: so they are moved inside first."""
    operand, update = batch.all(operands[:2], mapped[:2])
    starts = operands[2:]
    if not starts:
        return update
    if not any(mapped[2:]):
        return batch.same(inst, [operand, update, batch.builder.constant(0, starts[0].element_type), *starts])
    limits = [n - m for n, m in zip(inst.shape.dimensions, inst.operands[1].shape.dimensions, strict=True)]
    places, window = _together(batch, starts, mapped[2:], limits), tuple(range(1, inst.shape.rank + 1))
    numbers = ops.ScatterDimensionNumbers(window, (), window, 1, (0,), (0,))
    second = Builder("overwrite")
    scalar = Shape.array(inst.shape.element_type)
    second.parameter(0, scalar, "old")
    return ops.Scatter(operand, places, update, second.finish(second.parameter(1, scalar, "new")), numbers, unique_indices=True)


def _together(batch: Batch, starts: Sequence[XlaOp], mapped: Sequence[bool], limits: Sequence[int] | None = None) -> XlaOp:
    """The starts of each example as one index vector, clamped to the limits where given."""
    columns = [ops.Reshape(batch.full(s, m), [batch.size, 1]) for s, m in zip(starts, mapped, strict=True)]
    places = ops.ConcatInDim(batch.builder, columns, 1)
    if limits is None:
        return places
    most = int(np.iinfo(places.element_type.numpy).max)
    bound = batch.builder.constant(np.array([min(n, most) for n in limits], places.element_type.numpy))
    zero = ops.Broadcast(batch.builder.constant(0, places.element_type), places.shape.dimensions)
    return ops.Clamp(zero, places, ops.BroadcastInDim(bound, places.shape.dimensions, [1]))


@rule("gather")
def _gather(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    a = inst.attributes
    own, theirs = tuple(a.get("operand_batching_dims", ())), tuple(a.get("start_indices_batching_dims", ()))
    in_operand = {"collapsed_slice_dims": _up(a["collapsed_slice_dims"]), "start_index_map": _up(a["start_index_map"])}
    window, sizes = _up(a["offset_dims"]), tuple(a["slice_sizes"])
    if not mapped[1]:  # each window holds the whole batch
        return batch.same(inst, operands, **in_operand, offset_dims=(0, *window), slice_sizes=(batch.size, *sizes),
                          operand_batching_dims=_up(own))
    moved = {"offset_dims": window, "index_vector_dim": a["index_vector_dim"] + 1, "indices_are_sorted": False}
    if not mapped[0]:
        return batch.same(inst, operands, **moved, start_indices_batching_dims=_up(theirs))
    return batch.same(inst, operands, **in_operand, **moved, slice_sizes=(1, *sizes), operand_batching_dims=(0, *_up(own)),
                      start_indices_batching_dims=(0, *_up(theirs)))


@rule("scatter")
def _scatter(batch: Batch, inst: Instruction, operands: list[XlaOp], mapped: list[bool]) -> Value:
    a, count = inst.attributes, len(operands) // 2
    own, theirs = tuple(a.get("input_batching_dims", ())), tuple(a.get("scatter_indices_batching_dims", ()))
    arrays = batch.all(operands[:count], mapped[:count])
    updates = batch.all(operands[count + 1:], mapped[count + 1:])
    given = [*arrays, operands[count], *updates]
    moved = {"inserted_window_dims": _up(a["inserted_window_dims"]),
             "scatter_dims_to_operand_dims": _up(a["scatter_dims_to_operand_dims"])}
    window = _up(a["update_window_dims"])
    if not mapped[count]:  # each window holds the whole batch
        return batch.same(inst, given, **moved, update_window_dims=(0, *window), input_batching_dims=_up(own))
    return batch.same(inst, given, **moved, update_window_dims=window, index_vector_dim=a["index_vector_dim"] + 1,
                      input_batching_dims=(0, *_up(own)), scatter_indices_batching_dims=(0, *_up(theirs)),
                      indices_are_sorted=False)
