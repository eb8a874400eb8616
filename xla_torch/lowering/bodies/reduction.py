"""Op bodies: reduce, map, scan and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...analysis.associativity import is_associative
from ...analysis.patterns import counts_along
from ...analysis.reducers import keeps_every_carry, reducer_kinds, running_reducer
from ...analysis.scaled_sums import scaling_maximum
from ...analysis.selections import Selection, Ties, selection
from ...core import tuning
from ...core.shape import Shape
from ...core.types import F32, F64, PrimitiveType
from ...hlo.attributes import Bool, Dims, Float, Int, Region
from ...hlo.ir import Computation, Instruction
from ...kernels import reduction as kernels
from ...kernels.window import reduce_in_order
from ...opcodes.reduction import split_operands
from ...storage.dtypes import storage_dtype
from ...transform.canonical import without_calls
from .. import numerics
from ..body_table import body
from ..monoids import Monoid, highest, kind_of_reducer, lowest, monoid
from ..ordered import folded_by_a_loop, native_reduction
from ..scalar_regions import works_elementwise
from ..scaled_sums import scaled_sums
from ..values import Host, Value, apply_region, emit, evaluator, region_function

# ------------------------------------------------------------------------------------------------ values


def is_number(value: Value, number: Any) -> bool:
    """Whether an init value is known, and is this number."""
    return isinstance(value, (bool, int, float, complex)) and number is not None and value == number


def init_tensor(init: Value, element_type: PrimitiveType) -> Value:
    """An init value as a tensor or a Python number."""
    if isinstance(init, Host):
        return emit(torch.full, (), init.value, dtype=storage_dtype(element_type), device=evaluator().device)
    return init


def converted(value: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """A tensor in the float type that the reducer computes in."""
    if source is target or isinstance(value, (bool, int, float, complex)):
        return value
    return numerics.normalise(value.to(storage_dtype(target)), target)


# ------------------------------------------------------------------------------------------------ reduce


@body("reduce", numbers="operands")
def reduce(inst: Instruction, *operands: Value, dimensions: Dims, to_apply: Region) -> Value:
    values, inits = split_operands(operands)
    sources = [o.shape for o in inst.operands[:len(values)]]
    results = list(inst.shape.leaves())
    values = [converted(v, s.element_type, r.element_type) for v, s, r in zip(values, sources, results, strict=True)]
    inits = [converted(init_tensor(v, s.shape.element_type), s.shape.element_type, r.element_type)
             for v, s, r in zip(inits, inst.operands[len(values):], results, strict=True)]
    if not dimensions:  # XLA then returns the operands and does not look at the init values
        reduced = [_tensor(v, r) for v, r in zip(values, results, strict=True)]
    else:
        reduced = _reduced(inst, values, inits, dimensions, to_apply)
    return tuple(reduced) if inst.shape.is_tuple else reduced[0]


def _tensor(value: Value, shape: Shape) -> Value:
    """A scalar operand, which may be a number, as a tensor."""
    value = init_tensor(value, shape.element_type)
    return evaluator().number(value, shape.element_type) if isinstance(value, (bool, int, float, complex)) else value


def _reduced(inst: Instruction, values: list[Value], inits: list[Value], dimensions: tuple[int, ...],
             to_apply: Computation) -> list[Value]:
    results = list(inst.shape.leaves())
    empty = any(inst.operands[0].shape.dimensions[d] == 0 for d in dimensions)
    kinds = (kind_of_reducer(to_apply),) if len(values) == 1 else reducer_kinds(to_apply)
    known = [monoid(kind, r.element_type) for kind, r in zip(kinds, results, strict=True)]
    if not empty and all(m is not None for m in known):
        dynamic = any(inst.operands[0].shape.dynamic_flags[d] for d in dimensions)
        ignored = all(m.ignores(init) for m, init in zip(known, inits, strict=True) if m is not None)
        is_one = not dynamic and all(inst.operands[0].shape.dimensions[d] == 1 for d in dimensions)
        if ignored and is_one and results[0].element_type.is_floating:  # gradients of what is spread have such
            return [v.reshape(r.dimensions) for v, r in zip(values, results, strict=True)]
        totals = [m.reduce(v, dimensions, dynamic) for m, v in zip(known, values, strict=True) if m is not None]
        if ignored:
            return totals
        return apply_region(to_apply, [*inits, *totals], results[0].dimensions)
    rule = selection(to_apply) if len(values) > 1 and not empty else None
    if rule is not None and (rule.ties is not Ties.LOWEST or _counts(inst, rule, dimensions)):
        return _selected(inst, rule, values, inits, dimensions, to_apply)
    number = scaling_maximum(without_calls(to_apply)) if len(values) > 1 and not empty else None
    native = None
    if number is not None and _can_be_scaled_whole(inst, dimensions):
        native = _native_by_columns(to_apply, inst.operands[0].shape, dimensions)
        if native is None:
            return scaled_sums(inst, number, values, inits, dimensions)
    associative = is_associative(to_apply)
    if not associative and len(values) > 1 and not results[0].rank:
        looped = folded_by_a_loop(to_apply, values, inits, inst.operands[0].shape)
        if looped is not None:
            return looped
    given = region_function(to_apply), tuple(values), tuple(inits), dimensions
    if associative:
        native = native_reduction(to_apply, inst.operands[0].shape) if native is None else native
        reduced = emit(kernels.reduce_by, *given, native)
    else:
        reduced = emit(reduce_in_order, *given)
    return [reduced[k] for k in range(len(results))]


def _can_be_scaled_whole(inst: Instruction, dimensions: tuple[int, ...]) -> bool:
    """Whether sums scaled to a maximum may be made after it. Narrower floats are rounded wherever two elements meet."""
    shape = inst.operands[0].shape
    wide = all(o.shape.element_type in (F32, F64) for o in inst.operands)
    return wide and not any(shape.dynamic_flags[d] for d in dimensions)


def _native_by_columns(to_apply: Computation, shape: Shape, dimensions: tuple[int, ...]) -> Value | None:
    """What reduces many elements by columns in one pass, as columns are more than one in torch."""
    if shape.has_sizes or shape.rank - 1 in dimensions or shape.element_count < tuning.MET_BY_COLUMNS_FROM:
        return None
    return native_reduction(to_apply, shape)


def _counts(inst: Instruction, rule: Selection, dimensions: tuple[int, ...]) -> bool:
    """Whether the value beside the key counts positions, so that the lowest one is that of the first element."""
    return len(dimensions) == 1 and counts_along(inst.operands[1 - rule.key], dimensions[0])


def _selected(inst: Instruction, rule: Selection, values: list[Value], inits: list[Value], dimensions: tuple[int, ...],
              to_apply: Computation) -> list[Value]:
    """A selecting reducer: find the position of the best key, then take every operand's element there."""
    results, shapes = list(inst.shape.leaves()), [o.shape for o in inst.operands[:len(values)]]
    dim, keys = dimensions[0], numerics.sign_flip(values[rule.key], results[rule.key].element_type)
    if len(dimensions) > 1:
        keys, dim = emit(kernels.in_one_dimension, keys, dimensions), -1
        values = [emit(kernels.in_one_dimension, v, dimensions) for v in values]
    positions = emit(kernels.arg_extreme, keys, dim, rule.largest, rule.ties is Ties.LAST)
    taken = []
    for k, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        if k != rule.key and len(dimensions) == 1 and shape.element_type.is_integral and counts_along(inst.operands[k], dim):
            taken.append(positions.to(storage_dtype(shape.element_type)))
        else:
            taken.append(emit(kernels.take_along, value, positions, dim))
    if _never_chosen(inst, rule, inits, dimensions):
        return taken
    return apply_region(to_apply, [*inits, *taken], results[0].dimensions)


def _never_chosen(inst: Instruction, rule: Selection, inits: list[Value], dimensions: tuple[int, ...]) -> bool:
    """Whether the result does not change when the init values are left out."""
    key_type = inst.operands[rule.key].shape.element_type
    if not is_number(inits[rule.key], lowest(key_type) if rule.largest else highest(key_type)):
        return False
    if rule.ties is Ties.LAST:
        return True
    # On a tie all keys equal the init key: the first element is found, whose count is 0.
    beside = [k for k in range(len(inits)) if k != rule.key]
    return len(beside) == 1 and len(dimensions) == 1 and counts_along(inst.operands[beside[0]], dimensions[0]) and is_number(
        inits[beside[0]], 0)


# ------------------------------------------------------------------------------------------------ map and scan


@body("map")
def map_(inst: Instruction, *operands: Value, to_apply: Region, dimensions: Dims | None) -> Value:
    parameters = to_apply.program_shape.parameters
    values = [converted(v, o.shape.element_type, p.element_type)
              for v, o, p in zip(operands, inst.operands, parameters, strict=True)]
    return apply_region(to_apply, values, inst.shape.dimensions)[0]


@body("scan")
def scan(inst: Instruction, *operands: Value, dimensions: Dims, num_carries: Int, to_apply: Region, is_reverse: Bool,
         is_associative: Bool | None) -> Value:
    count, dim = len(operands) - num_carries, dimensions[0]
    element_type = inst.operands[0].shape.element_type
    known = monoid(running_reducer(to_apply, count), element_type) if num_carries == 1 else None
    # Torch adds up narrow floats in a wider type: the same only if the order of additions does not matter.
    if known is not None and (is_associative or element_type.is_integral or element_type.bits >= 32):
        if not inst.operands[0].shape.dimensions[dim]:
            return operands[0], operands[1]  # torch's running sum of the init alone would lose the sign of zero
        return _running_scan(known, operands[0], operands[1], dim, is_reverse)
    leaves = list(inst.shape.leaves())
    if is_associative and count == num_carries and keeps_every_carry(to_apply) and works_elementwise(to_apply):
        results = emit(kernels.scan_by, region_function(to_apply), tuple(operands[:count]), tuple(operands[count:]), dim,
                       is_reverse)
        return tuple(results[k] for k in range(len(leaves)))
    made = tuple((s.dimensions, storage_dtype(s.element_type)) for s in leaves[:len(leaves) - num_carries])
    results = emit(kernels.scan, region_function(to_apply, elementwise=False), tuple(operands[:count]), tuple(operands[count:]),
                   dim, is_reverse, made)
    return tuple(results[k] for k in range(len(leaves)))


def _running_scan(known: Monoid, value: Value, init: Value, dim: int, reverse: bool) -> tuple[Value, Value]:
    """A scan whose outputs and carry are the running sum (product, maximum, minimum) that starts from the init."""
    start, before = init.unsqueeze(dim), (slice(None),) * dim
    totals = known.running(torch.cat([value, start] if reverse else [start, value], dim), dim, reverse)
    if reverse:
        return totals[(*before, slice(None, -1))], totals.select(dim, 0)
    return totals[(*before, slice(1, None))], totals.select(dim, -1)


def _per_feature(inst: Instruction, feature_index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions other than the feature's, and the shape in which values of each feature meet the operand."""
    rank = inst.operands[0].shape.rank
    return (tuple(d for d in range(rank) if d != feature_index),
            tuple(-1 if d == feature_index else 1 for d in range(rank)))


@body("batch-norm-training")
def batch_norm_training(inst: Instruction, operand: Value, scale: Value, offset: Value, *, epsilon: Float,
                        feature_index: Int) -> Value:
    others, column = _per_feature(inst, feature_index)
    if inst.operands[0].shape.element_count == 0:  # 0 / 0, of which torch warns
        variance = mean = operand.mean(others) if others else operand
    elif others:
        variance, mean = torch.var_mean(operand, others, correction=0)
    else:
        variance, mean = operand - operand, operand
    scaled = (operand - mean.reshape(column)) * (torch.rsqrt(variance + epsilon) * scale).reshape(column)
    return scaled + offset.reshape(column), mean, variance


@body("batch-norm-inference")
def batch_norm_inference(inst: Instruction, operand: Value, scale: Value, offset: Value, mean: Value, variance: Value,
                         *, epsilon: Float, feature_index: Int) -> Value:
    _, column = _per_feature(inst, feature_index)
    scaled = (operand - mean.reshape(column)) * (torch.rsqrt(variance + epsilon) * scale).reshape(column)
    return scaled + offset.reshape(column)


@body("batch-norm-grad")
def batch_norm_grad(inst: Instruction, operand: Value, scale: Value, batch_mean: Value, batch_var: Value,
                    grad_output: Value, *, epsilon: Float, feature_index: Int) -> Value:
    others, column = _per_feature(inst, feature_index)
    scales = torch.rsqrt(batch_var + epsilon)
    centred = operand - batch_mean.reshape(column)
    along = grad_output * centred
    mean_along = _over(torch.mean, along, others) * scales * scales
    inner = grad_output - _over(torch.mean, grad_output, others).reshape(column) - centred * mean_along.reshape(column)
    return (inner * (scale * scales).reshape(column), _over(torch.sum, along, others) * scales,
            _over(torch.sum, grad_output, others))


def _over(function: Callable[..., Any], value: Value, dims: tuple[int, ...]) -> Value:
    """Sum or mean over dimensions; over none, torch would take all."""
    return function(value, dims) if dims else value
