"""Reductions, map, scan and batch normalisation under their documented names.

Documents: operation semantics, the sections of the functions' own names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..opcodes import movement, reduction
from ..opcodes.shapes import require
from ._documented import documented, renamed, variadic
from ._regions import mapped, reducer, step
from .hlo_builder import Builder, Liftable, Region, XlaOp, embedded_in, lift

__all__ = ["BatchNormGrad", "BatchNormInference", "BatchNormTraining", "Map", "Reduce", "ReduceAll", "Scan"]

Arrays = XlaOp | Sequence[XlaOp]
Inits = XlaOp | Liftable | Sequence[XlaOp | Liftable]


@variadic("operands...", "init_values...", numbers=True)
@renamed(operand="operands", init_value="init_values", dimensions="dimensions_to_reduce")
@documented
def Reduce(builder: Builder, operands: Arrays, init_values: Inits, computation: Region,
           dimensions_to_reduce: Sequence[int]) -> XlaOp:
    """Combine the elements along some dimensions with a computation.

    ``Reduce(operand, init_value, computation, dimensions_to_reduce)``, or for N arrays at once
    ``Reduce([builder,] operands, init_values, computation, dimensions_to_reduce)`` with lists, or all of them one by one.

    The computation takes N accumulated and N new scalars and returns N scalars (a tuple for N > 1); it must be associative
    and the init values its identity, as XLA combines in any order. All operands have the same dimensions. The result has the
    dimensions that remain, and is a tuple if the computation returns one. Reducing nothing gives the init values; with no
    dimensions to reduce the result is the operand. Raises InvalidArgument for a dimension out of range or given twice, and
    where operands, init values and computation do not fit.

    >>> ops.Reduce(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 0.0, ops.Add, [1])
    tensor([3., 7.])
    >>> ops.Reduce(torch.tensor([3.0, 1.0, 2.0]), float("inf"), lambda x, y: ops.Min(x, y), [0])
    tensor(1.)
    """
    arrays, inits = arrays_and_inits(operands, init_values)
    return builder.add(reduction.reduce, [*arrays, *inits], {
        "dimensions": dimensions_to_reduce, "to_apply": reducer(computation, inits)})


@documented
def ReduceAll(operand: XlaOp, init_value: XlaOp | Liftable, computation: Region) -> XlaOp:
    """Combine all elements of an array with a computation of two scalars (see `Reduce`). The result is a scalar.

    >>> ops.ReduceAll(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 0.0, ops.Add)
    tensor(10.)
    """
    return Reduce(operand.builder, operand, init_value, computation, list(range(operand.shape.rank)))


@variadic("operands...", numbers=True)
@documented
def Map(builder: Builder, operands: Sequence[XlaOp | Liftable], computation: Region, dimensions: Sequence[int] | None = None,
        static_operands: Sequence[XlaOp] = ()) -> XlaOp:
    """Apply a computation of N scalars to N arrays of the same dimensions, element by element.

    Scalars among the operands are broadcast. `dimensions` must be 0, 1, ... up to the rank (older documents have no such
    parameter); `static_operands` are not
    supported, as in XLA. The element type is that of the computation's result. Raises InvalidArgument for other dimensions,
    arrays of different dimensions, and a computation of other parameters or of arrays.

    >>> ops.Map([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], lambda x, y: x * y + 1.0)
    tensor([4., 9.])
    """
    require(not static_operands, "static operands are not supported", hint="pass them as operands")
    given = embedded_in(computation)
    require(given is None or len(given.parameters) == len(operands), "the computation takes another number of parameters",
            got=len(operands), expected=len(given.parameters) if given else "")
    like = next((o for o in operands if isinstance(o, XlaOp)), None)
    types = [like.element_type if like is not None else None] * len(operands)
    if given is not None:
        types = [p.shape.element_type for p in given.parameters]
    lifted = [o if isinstance(o, XlaOp) else builder.constant(o, t) for o, t in zip(operands, types, strict=True)]
    region = mapped(computation, lifted)
    largest = max((o.shape for o in lifted), key=lambda s: s.rank, default=None)
    spread = [_broadcast_scalar(o, largest.dimensions) if largest and largest.rank and o.shape.is_scalar else o for o in lifted]
    if dimensions is None:
        dimensions = range(largest.rank if largest else 0)
    return builder.add(reduction.map_, spread, {"dimensions": dimensions, "to_apply": region})


@documented
def Scan(inputs: Sequence[XlaOp], inits: Sequence[XlaOp | Liftable], to_apply: Region, scan_dimension: int,
         is_reverse: bool = False, is_associative: bool | None = None) -> XlaOp:
    """Apply a computation to the slices of arrays along a dimension, one after another, carrying values along.

    The computation takes one slice of each of the M inputs (their shape without the scan dimension) and K carries, and
    returns N outputs and the K next carries, all in one tuple. The result is the tuple of the outputs of all steps, stacked
    along the scan dimension, and the last carries. `is_reverse` goes from the last slice to the first; outputs stay at
    their slice's place. `is_associative` allows evaluation in another order. Raises InvalidArgument for no inputs, different
    sizes along the scan dimension, and a computation that does not fit.

    >>> sums, last = ops.Scan([torch.tensor([1.0, 2.0, 3.0])], [0.0], lambda x, total: (total + x, total + x), 0)
    >>> sums, last
    (tensor([1., 3., 6.]), tensor(6.))
    """
    require(len(inputs) > 0, "scan needs at least one input")
    require(0 <= scan_dimension < inputs[0].shape.rank, f"input 0 has no dimension {scan_dimension}", got=inputs[0].shape)
    builder, given = inputs[0].builder, embedded_in(to_apply)
    likes = [inputs[0].shape] * len(inits) if given is None else [p.shape for p in given.parameters[len(inputs):]]
    carried = [lift(builder, v, like) for v, like in zip(inits, likes, strict=False)]
    require(len(carried) == len(inits), "the computation takes fewer carries than there are init values", got=len(inits),
            expected=len(carried))
    region = step(to_apply, inputs, carried, scan_dimension)
    attributes = {"dimensions": [scan_dimension], "num_carries": len(carried), "to_apply": region, "is_reverse": is_reverse}
    if is_associative is not None:
        attributes["is_associative"] = is_associative
    return builder.add(reduction.scan, [*inputs, *carried], attributes)


@documented
def BatchNormTraining(operand: XlaOp, scale: XlaOp, offset: XlaOp, epsilon: float, feature_index: int) -> XlaOp:
    """Normalise over all dimensions but `feature_index`, then scale and shift each feature.

    ``scale`` and ``offset`` are rank 1, one element for each feature, of the operand's floating type. The result is the tuple
    (output, batch mean, batch variance); the variance is the biased one, and ``output = scale * (operand - mean) /
    sqrt(variance + epsilon) + offset``. Raises InvalidArgument for operands of other types or sizes and a feature index out of
    range, as the other two do.

    >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> output, mean, variance = ops.BatchNormTraining(x, torch.ones(2), torch.zeros(2), 0.0, 1)
    >>> output, mean, variance
    (tensor([[-1., -1.],
            [ 1.,  1.]]), tensor([ 2., 20.]), tensor([  1., 100.]))
    """
    return operand.builder.add(reduction.batch_norm_training, [operand, scale, offset], {
        "epsilon": epsilon, "feature_index": feature_index})


@documented
def BatchNormInference(operand: XlaOp, scale: XlaOp, offset: XlaOp, mean: XlaOp, variance: XlaOp, epsilon: float,
                       feature_index: int) -> XlaOp:
    """`BatchNormTraining` with mean and variance given, of rank 1 as scale and offset are; only the normalised output, of the
    operand's shape, is returned.

    >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> mean, variance = torch.tensor([2.0, 20.0]), torch.tensor([1.0, 100.0])
    >>> ops.BatchNormInference(x, torch.ones(2), torch.zeros(2), mean, variance, 0.0, 1)
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """
    return operand.builder.add(reduction.batch_norm_inference, [operand, scale, offset, mean, variance], {
        "epsilon": epsilon, "feature_index": feature_index})


@renamed(mean="batch_mean", variance="batch_var")
@documented
def BatchNormGrad(operand: XlaOp, scale: XlaOp, batch_mean: XlaOp, batch_var: XlaOp, grad_output: XlaOp, epsilon: float,
                  feature_index: int) -> XlaOp:
    """Gradients of `BatchNormTraining`'s output: the tuple (grad_operand, grad_scale, grad_offset).

    `batch_mean` and `batch_var` are what training returned, `grad_output` has the operand's shape.

    >>> x, upstream = torch.tensor([[1.0], [3.0], [8.0]]), torch.tensor([[1.0], [0.0], [2.0]])
    >>> output, mean, variance = ops.BatchNormTraining(x, torch.ones(1), torch.zeros(1), 1e-5, 1)
    >>> ops.BatchNormGrad(x, torch.ones(1), mean, variance, upstream, 1e-5, 1)[1:]
    (tensor([1.6984]), tensor([3.]))
    """
    return operand.builder.add(reduction.batch_norm_grad, [operand, scale, batch_mean, batch_var, grad_output], {
        "epsilon": epsilon, "feature_index": feature_index})


# ------------------------------------------------------------------------------------------------ arguments


def arrays_and_inits(operands: Arrays, init_values: Inits) -> tuple[list[XlaOp], list[XlaOp]]:
    """One or several arrays and as many init values; numbers become constants of the array's type."""
    arrays = [operands] if isinstance(operands, XlaOp) else list(operands)
    several = isinstance(init_values, (list, tuple))
    require(several is not isinstance(operands, XlaOp), "one array and several init values, or the other way round",
            got=f"{type(operands).__name__} and {type(init_values).__name__}", expected="both alone, or both in lists")
    values: list[Any] = list(init_values) if several else [init_values]
    require(len(arrays) == len(values) and len(arrays) > 0, "a reduction takes as many init values as arrays",
            got=f"{len(arrays)} arrays, {len(values)} init values")
    return arrays, [lift(a.builder, v, a) for a, v in zip(arrays, values, strict=True)]


def _broadcast_scalar(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    shape = operand.shape.with_dimensions(dimensions)
    return operand.builder.add(movement.broadcast, [operand], {"dimensions": ()}, shape)
