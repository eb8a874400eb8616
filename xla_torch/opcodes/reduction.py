"""Op definitions: reduce, map, scan and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..hlo.ir import Computation, Instruction
from ..lowering import numerics
from ..lowering.associative import is_associative
from ..lowering.kernels import reduction as kernels
from ..lowering.kernels.window import reduce_in_order
from ..lowering.monoids import Monoid, highest, kind_of_reducer, lowest, monoid
from ..lowering.values import Host, apply_region, emit, evaluator
from ..shape import Shape
from ..transform.recognise import reducer_kinds
from ..transform.recognise_reduce import Selection, counts_along, keeps_every_carry, running_reducer, selection
from ..types import PrimitiveType
from .attributes import Bool, Dims, Float, Int, Region
from .definition import op
from .shapes import require, require_arrays

# ------------------------------------------------------------------------------------------------ shapes


def check_reducer(to_apply: Computation, operands: Sequence[Shape], inits: Sequence[Shape]) -> tuple[PrimitiveType, ...]:
    """Rule R1: a reducer of N values takes N accumulated and N new scalars and returns N scalars. The result's element types.

    Float types may differ in width between the reducer, the operands and the inits.
    """
    count, signature = len(operands), to_apply.program_shape
    results = signature.result.tuple_shapes if signature.result.is_tuple else (signature.result,)
    require(len(signature.parameters) == 2 * count, "the reducer takes another number of parameters",
            got=f"{len(signature.parameters)} parameters", expected=f"{2 * count}: {count} accumulated, {count} new")
    require(len(results) == count, "the reducer returns another number of values", got=signature.result,
            expected=f"{count} scalars")
    for k, (result, operand, init) in enumerate(zip(results, operands, inits, strict=True)):
        accumulated, new = signature.parameters[k], signature.parameters[count + k]
        require(result.is_scalar, f"result {k} of the reducer is not a scalar", got=result, expected="a scalar")
        require(accumulated.compatible(result), f"result {k} of the reducer is not of the type of parameter {k}",
                got=result, expected=accumulated)
        require(result.compatible(init, ignore_precision=True), f"init value {k} does not fit result {k} of the reducer",
                got=init, expected=result)
        require(new.compatible(Shape.array(operand.element_type), ignore_precision=True),
                f"operand {k} does not fit parameter {count + k} of the reducer", got=operand, expected=f"elements of {new}")
        require(new.compatible(accumulated, ignore_precision=True), f"parameters {k} and {count + k} of the reducer differ",
                got=new, expected=accumulated)
    return tuple(r.element_type for r in results)


def split_operands(operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The N arrays and the N init values of a variadic reduction."""
    count = len(operands) // 2
    require(len(operands) > 0 and len(operands) % 2 == 0, "a reduction takes as many init values as arrays",
            got=f"{len(operands)} operands", expected="an even number, at least 2")
    return operands[:count], operands[count:]


def check_reduction_operands(operands: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """Arrays of the same dimensions and as many init values; returns both."""
    require_arrays(*operands)
    arrays, inits = split_operands(operands)
    _require_same_dimensions(arrays)
    return arrays, inits


def _require_same_dimensions(shapes: Sequence[Shape]) -> None:
    for k, shape in enumerate(shapes):
        require(shape.compatible(shapes[0].with_element_type(shape.element_type)),
                f"operand {k} has other dimensions than operand 0", got=shape, expected=shapes[0])


def reduction_result(shapes: Sequence[Shape], to_apply: Computation) -> Shape:
    """One array, or the tuple that the reducer returns also for N = 1."""
    return Shape.tuple(shapes) if to_apply.root.shape.is_tuple else shapes[0]


def _reduce_shape(declared: Shape | None, *operands: Shape, dimensions: tuple[int, ...], to_apply: Computation) -> Shape:
    arrays, inits = check_reduction_operands(operands)
    rank = arrays[0].rank
    for d in dimensions:
        require(0 <= d < rank, "a reduced dimension is out of range", got=d, expected=f"0 to {rank - 1} for {arrays[0]}")
    require(len(set(dimensions)) == len(dimensions), "a dimension is reduced twice", got=list(dimensions))
    kept = [d for d in range(rank) if d not in dimensions]
    dims, flags = [arrays[0].dimensions[d] for d in kept], [arrays[0].dynamic_flags[d] for d in kept]
    types = check_reducer(to_apply, arrays, inits)
    return reduction_result([Shape.array(t, dims, flags) for t in types], to_apply)


def _map_shape(declared: Shape | None, *operands: Shape, to_apply: Computation,
               dimensions: tuple[int, ...] | None = None) -> Shape:
    require_arrays(*operands)
    require(len(operands) > 0, "map needs at least one operand", got=0)
    signature, first = to_apply.program_shape, operands[0]
    _require_same_dimensions(operands)
    written = tuple(range(first.rank)) if dimensions is None and declared is not None else tuple(dimensions or ())
    require(written == tuple(range(first.rank)), "map works on all dimensions in order", got=dimensions,
            expected=list(range(first.rank)))
    require(len(signature.parameters) == len(operands), "the computation takes another number of parameters",
            got=len(operands), expected=len(signature.parameters))
    for k, (parameter, operand) in enumerate(zip(signature.parameters, operands, strict=True)):
        require(parameter.compatible(Shape.array(operand.element_type), ignore_precision=True),
                f"operand {k} does not fit parameter {k} of the computation", got=operand, expected=f"elements of {parameter}")
    require(signature.result.is_scalar, "the computation does not return a scalar", got=signature.result)
    return Shape.array(signature.result.element_type, first.dimensions, first.dynamic_dimensions)


def _scan_shape(declared: Shape | None, *operands: Shape, dimensions: tuple[int, ...], num_carries: int, to_apply: Computation,
                **_: Any) -> Shape:
    require_arrays(*operands)
    require(len(dimensions) == 1, "scan runs along one dimension", got=list(dimensions))
    require(0 <= num_carries <= len(operands), "num_carries is out of range", got=num_carries, expected=f"0 to {len(operands)}")
    dim, count = dimensions[0], len(operands) - num_carries
    inputs, inits = operands[:count], operands[count:]
    require(count > 0, "scan needs at least one input", got=f"{len(operands)} operands, {num_carries} of them carries")
    for k, x in enumerate(inputs):
        require(0 <= dim < x.rank, f"input {k} has no dimension {dim}", got=x)
        require(x.dimensions[dim] == inputs[0].dimensions[dim], f"input {k} has another size along dimension {dim}",
                got=x, expected=inputs[0].dimensions[dim])
    signature = to_apply.program_shape
    elements = [_without(x, dim) for x in inputs]
    require(len(signature.parameters) == len(operands), "the computation takes another number of parameters",
            got=len(signature.parameters), expected=f"{count} elements and {num_carries} carries")
    for k, (parameter, given) in enumerate(zip(signature.parameters, [*elements, *inits], strict=True)):
        require(parameter.compatible(given), f"parameter {k} of the computation does not fit", got=parameter, expected=given)
    results = signature.result.tuple_shapes if signature.result.is_tuple else (signature.result,)
    require(len(results) >= num_carries, "the computation returns fewer values than there are carries", got=signature.result)
    made = len(results) - num_carries
    for k, (result, init) in enumerate(zip(results[made:], inits, strict=True)):
        require(result.compatible(init), f"carry {k} changes its shape", got=result, expected=init)
    for k, result in enumerate(results[:made]):
        require(result.is_array and dim <= result.rank, f"output {k} has no place for dimension {dim}", got=result)
    size, flag = inputs[0].dimensions[dim], inputs[0].dynamic_flags[dim]
    stacked = [Shape.array(r.element_type, (*r.dimensions[:dim], size, *r.dimensions[dim:]),
                           (*r.dynamic_flags[:dim], flag, *r.dynamic_flags[dim:])) for r in results[:made]]
    return Shape.tuple([*stacked, *(i.without_layout() for i in inits)])


def _without(shape: Shape, dim: int) -> Shape:
    """The shape with one dimension dropped."""
    return shape.with_dimensions(shape.dimensions[:dim] + shape.dimensions[dim + 1:],
                                 shape.dynamic_flags[:dim] + shape.dynamic_flags[dim + 1:])


# ------------------------------------------------------------------------------------------------ values


def is_number(value: Any, number: Any) -> bool:
    """Whether an init value is known, and is this number."""
    return isinstance(value, (bool, int, float, complex)) and number is not None and value == number


def init_tensor(init: Any, element_type: PrimitiveType) -> Any:
    """An init value as a tensor or a Python number."""
    if isinstance(init, Host):
        return emit(torch.full, (), init.value, dtype=element_type.carrier, device=evaluator().device)
    return init


def converted(value: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    """A tensor in the float type that the reducer computes in."""
    if source is target or isinstance(value, (bool, int, float, complex)):
        return value
    return numerics.normalise(value.to(target.carrier), target)


# ------------------------------------------------------------------------------------------------ reduce


@op("reduce", infer=_reduce_shape, numbers="operands", stablehlo="reduce")
def reduce(inst: Instruction, *operands: Any, dimensions: Dims, to_apply: Region) -> Any:
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


def _tensor(value: Any, shape: Shape) -> Any:
    """A scalar operand, which may be a number, as a tensor."""
    value = init_tensor(value, shape.element_type)
    return evaluator().number(value, shape.element_type) if isinstance(value, (bool, int, float, complex)) else value


def _reduced(inst: Instruction, values: list[Any], inits: list[Any], dimensions: tuple[int, ...],
             to_apply: Computation) -> list[Any]:
    results = list(inst.shape.leaves())
    empty = any(inst.operands[0].shape.dimensions[d] == 0 for d in dimensions)
    kinds = (kind_of_reducer(to_apply),) if len(values) == 1 else reducer_kinds(to_apply)
    known = [monoid(kind, r.element_type) for kind, r in zip(kinds, results, strict=True)]
    if not empty and all(m is not None for m in known):
        dynamic = any(inst.operands[0].shape.dynamic_flags[d] for d in dimensions)
        totals = [m.reduce(v, dimensions, dynamic) for m, v in zip(known, values, strict=True) if m is not None]
        if all(m.ignores(init) for m, init in zip(known, inits, strict=True) if m is not None):
            return totals
        return apply_region(to_apply, [*inits, *totals], results[0].dimensions)
    rule = selection(to_apply) if len(values) > 1 and not empty else None
    if rule is not None and (rule.ties != "lowest" or _counts(inst, rule, dimensions)):
        return _selected(inst, rule, values, inits, dimensions, to_apply)
    from ..lowering.regions import function

    kernel = kernels.reduce_by if is_associative(to_apply) else reduce_in_order
    reduced = emit(kernel, function(to_apply), tuple(values), tuple(inits), dimensions)
    return [reduced[k] for k in range(len(results))]


def _counts(inst: Instruction, rule: Selection, dimensions: tuple[int, ...]) -> bool:
    """Whether the value beside the key counts positions, so that the lowest one is that of the first element."""
    return len(dimensions) == 1 and counts_along(inst.operands[1 - rule.key], dimensions[0])


def _selected(inst: Instruction, rule: Selection, values: list[Any], inits: list[Any], dimensions: tuple[int, ...],
              to_apply: Computation) -> list[Any]:
    """A selecting reducer: find the position of the best key, then take every operand's element there."""
    results, shapes = list(inst.shape.leaves()), [o.shape for o in inst.operands[:len(values)]]
    dim, keys = dimensions[0], numerics.sign_flip(values[rule.key], results[rule.key].element_type)
    if len(dimensions) > 1:
        keys, dim = emit(kernels.in_one_dimension, keys, dimensions), -1
        values = [emit(kernels.in_one_dimension, v, dimensions) for v in values]
    positions = emit(kernels.arg_extreme, keys, dim, rule.largest, rule.ties == "last")
    taken = []
    for k, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        if k != rule.key and len(dimensions) == 1 and shape.element_type.is_integral and counts_along(inst.operands[k], dim):
            taken.append(positions.to(shape.element_type.carrier))
        else:
            taken.append(emit(kernels.take_along, value, positions, dim))
    if _never_chosen(inst, rule, inits, dimensions):
        return taken
    return apply_region(to_apply, [*inits, *taken], results[0].dimensions)


def _never_chosen(inst: Instruction, rule: Selection, inits: list[Any], dimensions: tuple[int, ...]) -> bool:
    """Whether the result does not change when the init values are left out."""
    key_type = inst.operands[rule.key].shape.element_type
    if not is_number(inits[rule.key], lowest(key_type) if rule.largest else highest(key_type)):
        return False
    if rule.ties == "last":
        return True
    # On a tie all keys equal the init key: the first element is found, whose count is 0.
    beside = [k for k in range(len(inits)) if k != rule.key]
    return len(beside) == 1 and len(dimensions) == 1 and counts_along(inst.operands[beside[0]], dimensions[0]) and is_number(
        inits[beside[0]], 0)


# ------------------------------------------------------------------------------------------------ map and scan


@op("map", infer=_map_shape, stablehlo="map")
def map_(inst: Instruction, *operands: Any, to_apply: Region, dimensions: Dims | None = None) -> Any:
    parameters = to_apply.program_shape.parameters
    values = [converted(v, o.shape.element_type, p.element_type)
              for v, o, p in zip(operands, inst.operands, parameters, strict=True)]
    return apply_region(to_apply, values, inst.shape.dimensions)[0]


@op("scan", infer=_scan_shape, stablehlo="chlo.scan")
def scan(inst: Instruction, *operands: Any, dimensions: Dims, num_carries: Int, to_apply: Region, is_reverse: Bool = False,
         is_associative: Bool | None = None) -> Any:
    from ..lowering.regions import function, works_elementwise

    count, dim = len(operands) - num_carries, dimensions[0]
    element_type = inst.operands[0].shape.element_type
    known = monoid(running_reducer(to_apply, count), element_type) if num_carries == 1 else None
    # Torch adds up narrow floats in a wider type: the same only if the order of additions does not matter.
    if known is not None and (is_associative or element_type.is_integral or element_type.bits >= 32):
        return _running_scan(known, operands[0], operands[1], dim, is_reverse)
    leaves = list(inst.shape.leaves())
    if is_associative and count == num_carries and keeps_every_carry(to_apply) and works_elementwise(to_apply):
        results = emit(kernels.scan_by, function(to_apply), tuple(operands[:count]), tuple(operands[count:]), dim, is_reverse)
        return tuple(results[k] for k in range(len(leaves)))
    made = tuple((s.dimensions, s.element_type.carrier) for s in leaves[:len(leaves) - num_carries])
    results = emit(kernels.scan, function(to_apply, elementwise=False), tuple(operands[:count]), tuple(operands[count:]), dim,
                   is_reverse, made)
    return tuple(results[k] for k in range(len(leaves)))


def _running_scan(known: Monoid, value: Any, init: Any, dim: int, reverse: bool) -> tuple[Any, Any]:
    """A scan whose outputs and carry are the running sum (product, maximum, minimum) that starts from the init."""
    start, before = init.unsqueeze(dim), (slice(None),) * dim
    totals = known.running(torch.cat([value, start] if reverse else [start, value], dim), dim, reverse)
    if reverse:
        return totals[(*before, slice(None, -1))], totals.select(dim, 0)
    return totals[(*before, slice(1, None))], totals.select(dim, -1)


# ------------------------------------------------------------------------------------------------ batch normalisation


def _check_batch_norm(operand: Shape, features: Sequence[tuple[str, Shape]], feature_index: int) -> None:
    require_arrays(operand, *(s for _, s in features))
    require(operand.element_type.is_floating, "the operand is not floating", got=operand, expected="a floating type")
    require(0 <= feature_index < operand.rank, "feature_index is out of range", got=feature_index,
            expected=f"0 to {operand.rank - 1} for {operand}" if operand.rank else "an operand of rank 1 or more")
    expected = operand.with_dimensions([operand.dimensions[feature_index]])
    for name, shape in features:
        require(shape.compatible(expected), f"{name} does not have one element for each feature", got=shape, expected=expected)


def _batch_norm_training_shape(declared: Shape | None, operand: Shape, scale: Shape, offset: Shape, *, epsilon: float,
                               feature_index: int) -> Shape:
    _check_batch_norm(operand, [("scale", scale), ("offset", offset)], feature_index)
    return _with_features(operand, scale, feature_index)


def _batch_norm_inference_shape(declared: Shape | None, operand: Shape, scale: Shape, offset: Shape, mean: Shape, variance: Shape,
                                *, epsilon: float, feature_index: int) -> Shape:
    _check_batch_norm(operand, [("scale", scale), ("offset", offset), ("mean", mean), ("variance", variance)], feature_index)
    return operand.without_layout()


def _batch_norm_grad_shape(declared: Shape | None, operand: Shape, scale: Shape, batch_mean: Shape, batch_var: Shape,
                           grad_output: Shape, *, epsilon: float, feature_index: int) -> Shape:
    _check_batch_norm(operand, [("scale", scale), ("batch_mean", batch_mean), ("batch_var", batch_var)], feature_index)
    require(grad_output.compatible(operand), "grad_output does not have the operand's shape", got=grad_output, expected=operand)
    return _with_features(operand, scale, feature_index)


def _with_features(operand: Shape, scale: Shape, feature_index: int) -> Shape:
    """The operand's shape and twice one value for each of its features, which are dynamic where the operand's are."""
    features = scale.with_dimensions([operand.dimensions[feature_index]], [operand.dynamic_flags[feature_index]])
    return Shape.tuple([operand.without_layout(), features, features])


def _per_feature(inst: Instruction, feature_index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions other than the feature's, and the shape in which values of each feature meet the operand."""
    rank = inst.operands[0].shape.rank
    return (tuple(d for d in range(rank) if d != feature_index),
            tuple(-1 if d == feature_index else 1 for d in range(rank)))


@op("batch-norm-training", infer=_batch_norm_training_shape, stablehlo="batch_norm_training")
def batch_norm_training(inst: Instruction, operand: Any, scale: Any, offset: Any, *, epsilon: Float, feature_index: Int) -> Any:
    others, column = _per_feature(inst, feature_index)
    if others:
        variance, mean = torch.var_mean(operand, others, correction=0)
    else:
        variance, mean = operand - operand, operand
    scaled = (operand - mean.reshape(column)) * (torch.rsqrt(variance + epsilon) * scale).reshape(column)
    return scaled + offset.reshape(column), mean, variance


@op("batch-norm-inference", infer=_batch_norm_inference_shape, stablehlo="batch_norm_inference")
def batch_norm_inference(inst: Instruction, operand: Any, scale: Any, offset: Any, mean: Any, variance: Any, *, epsilon: Float,
                         feature_index: Int) -> Any:
    _, column = _per_feature(inst, feature_index)
    scaled = (operand - mean.reshape(column)) * (torch.rsqrt(variance + epsilon) * scale).reshape(column)
    return scaled + offset.reshape(column)


@op("batch-norm-grad", infer=_batch_norm_grad_shape, stablehlo="batch_norm_grad")
def batch_norm_grad(inst: Instruction, operand: Any, scale: Any, batch_mean: Any, batch_var: Any, grad_output: Any, *,
                    epsilon: Float, feature_index: Int) -> Any:
    others, column = _per_feature(inst, feature_index)
    scales = torch.rsqrt(batch_var + epsilon)
    centred = operand - batch_mean.reshape(column)
    along = grad_output * centred
    mean_along = _over(torch.mean, along, others) * scales * scales
    inner = grad_output - _over(torch.mean, grad_output, others).reshape(column) - centred * mean_along.reshape(column)
    return (inner * (scale * scales).reshape(column), _over(torch.sum, along, others) * scales,
            _over(torch.sum, grad_output, others))


def _over(function: Callable[..., Any], value: Any, dims: tuple[int, ...]) -> Any:
    """Sum or mean over dimensions; over none, torch would take all."""
    return function(value, dims) if dims else value
