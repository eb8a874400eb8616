"""Schemas: reduce, map, scan and batch normalisation."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..hlo.attributes import Bool, Dims, Float, Int, Region
from ..hlo.ir import Computation
from ..hlo.schema import Trait, op
from .shapes import require, require_arrays

# ------------------------------------------------------------------------------------------------ shapes


def check_reducer(to_apply: Computation, operands: Sequence[Shape], inits: Sequence[Shape]) -> tuple[PrimitiveType, ...]:
    """The result's element types. A reducer of N values takes N accumulated and N new scalars and returns N scalars (Operation
    Semantics, Reduce).

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
    written = tuple(range(first.rank)) if not dimensions and declared is not None else tuple(dimensions or ())
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
    elements = [without_dimension(x, dim) for x in inputs]
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


def without_dimension(shape: Shape, dim: int) -> Shape:
    """The shape with one dimension dropped."""
    return shape.with_dimensions(shape.dimensions[:dim] + shape.dimensions[dim + 1:],
                                 shape.dynamic_flags[:dim] + shape.dynamic_flags[dim + 1:])


# ------------------------------------------------------------------------------------------------ reduce


@op("reduce", infer=_reduce_shape, stablehlo="reduce", element_region=1)
def reduce(*operands, dimensions: Dims, to_apply: Region): ...


# ------------------------------------------------------------------------------------------------ map and scan


@op("map", infer=_map_shape, stablehlo="map", element_region=1)
def map_(*operands, to_apply: Region, dimensions: Dims | None = None): ...


@op("scan", infer=_scan_shape, stablehlo="chlo.scan", traits=Trait.MIXED_PRECISION, returns_tuple=True)
def scan(*operands, dimensions: Dims, num_carries: Int, to_apply: Region, is_reverse: Bool = False,
         is_associative: Bool | None = None): ...


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


@op("batch-norm-training", infer=_batch_norm_training_shape, stablehlo="batch_norm_training")
def batch_norm_training(operand, scale, offset, *, epsilon: Float, feature_index: Int): ...


@op("batch-norm-inference", infer=_batch_norm_inference_shape, stablehlo="batch_norm_inference")
def batch_norm_inference(operand, scale, offset, mean, variance, *, epsilon: Float, feature_index: Int): ...


@op("batch-norm-grad", infer=_batch_norm_grad_shape, stablehlo="batch_norm_grad")
def batch_norm_grad(operand, scale, batch_mean, batch_var, grad_output, *, epsilon: Float, feature_index: Int): ...
