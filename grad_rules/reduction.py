"""Gradients of reduce, map, scan and the batch normalisations, which are sums in disguise.

Sums, extremes and selections (argmax with its value) have a formula. Any other reducer, products included, is composed of
elementwise steps and differentiated as such. Ties share equally, as in JAX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grad_rules._calculus import (
    broadcast_over,
    convert,
    filled,
    full,
    masked,
    nan_where_nan,
    others,
    present,
    size_of,
    sum_all,
    sum_over,
    zeros,
)
from grad_rules._compositions import Cotangents, apply, derived, gradient_of
from grad_rules._expand import reduce_by_halves
from grad_rules._table import vjp
from xla_torch.analysis.patterns import counts_along
from xla_torch.analysis.reducers import reducer_kinds
from xla_torch.analysis.selections import selection
from xla_torch.core.shape import Shape
from xla_torch.functions import (
    BatchNormGrad,
    BroadcastInDim,
    Call,
    Eq,
    GetDimensionSize,
    GetTupleElement,
    Gt,
    Lt,
    Max,
    Not,
    Rsqrt,
    Scan,
    Tuple,
)
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Computation, Instruction, live_instructions
from xla_torch.opcodes.reducer_kinds import ReducerKind

# -------------------------------------------------------------------------------------------------------- reduce

_LINEAR_OR_EXTREME = (ReducerKind.ADD, ReducerKind.MAXIMUM, ReducerKind.MINIMUM)


def _reduce(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, dimensions: Sequence[int],
            to_apply: Computation) -> Cotangents:
    count = len(operands) // 2
    arrays, inits = operands[:count], operands[count:]
    cts, outs = (ct, out) if inst.shape.is_tuple else ((ct,), (out,))
    if not dimensions:  # nothing is combined, not even with init
        return [*cts, *[None] * count]
    kinds = reducer_kinds(to_apply)
    if all(c is None or kind in _LINEAR_OR_EXTREME for c, kind in zip(cts, kinds, strict=True)):
        pairs = [(None, None) if c is None else
                 _sum(c, x, dimensions) if kind is ReducerKind.ADD else _extreme(c, o, x, i, dimensions, kind)
                 for kind, c, o, x, i in zip(kinds, cts, outs, arrays, inits, strict=True)]
        return [*(x for x, _ in pairs), *(i for _, i in pairs)]
    chosen = _chosen_position(inst, dimensions, to_apply)
    if chosen is not None:
        here = Eq(arrays[chosen], broadcast_over(outs[chosen], arrays[0].shape.dimensions, dimensions))
        return [*(None if c is None else masked(here, broadcast_over(c, x.shape.dimensions, dimensions))
                  for c, x in zip(cts, arrays, strict=True)), *[None] * count]
    whole = (*(filled(x, dimensions, i) for x, i in zip(arrays, inits, strict=True)), *inits)
    there = present(arrays[0], dimensions)
    if there is None:
        return derived(lambda *values: reduce_by_halves(values[:count], values[count:], dimensions, to_apply), whole, cts)
    *found, _ = derived(lambda *values: reduce_by_halves(values[:count], values[count:-1], dimensions, to_apply, values[-1]),
                        (*whole, there), cts)
    return found


def _sum(ct: XlaOp, array: XlaOp, dimensions: Sequence[int]) -> tuple[XlaOp, XlaOp]:
    return broadcast_over(ct, array.shape.dimensions, dimensions), sum_all(ct)


def _extreme(ct: XlaOp, out: XlaOp, array: XlaOp, init: XlaOp, dimensions: Sequence[int],
             kind: ReducerKind | None) -> tuple[XlaOp, XlaOp]:
    """max and min: to the elements that are the result, in equal shares; to init where no element is. Where the result is NaN,
    so are all cotangents, as in JAX."""
    sizes, beside = array.shape.dimensions, Lt if kind is ReducerKind.MAXIMUM else Gt
    here = Not(beside(array, broadcast_over(out, sizes, dimensions)))  # all elements where the result is NaN
    number = sum_over(convert(here, ct.element_type), dimensions)
    share = nan_where_nan(out, ct / Max(number, zeros(number) + 1))
    to_init = nan_where_nan(out, masked(Eq(number, zeros(number)), ct))
    return masked(here, broadcast_over(share, sizes, dimensions)), sum_all(to_init)


def _chosen_position(inst: Instruction, dimensions: Sequence[int], reducer: Computation) -> int | None:
    """The operand that says which element a selecting reducer kept: one that counts along the reduced dimension."""
    if len(dimensions) != 1 or selection(reducer) is None:
        return None
    count = len(inst.operands) // 2
    return next((k for k in range(count) if counts_along(inst.operands[k], dimensions[0])
                 and inst.operands[k].shape.element_type.is_integral), None)


vjp("reduce", operands=_reduce)

# ----------------------------------------------------------------------------------------------------------- map


def _map(ct: XlaOp, operands: tuple[XlaOp, ...], to_apply: Computation) -> list[XlaOp]:
    """The derivative of the scalar computation, mapped."""
    return apply(gradient_of(to_apply, [True]), [*operands, ct])


vjp("map", operands=_map)

# ---------------------------------------------------------------------------------------------------------- scan


def _scan(ct: Any, operands: tuple[XlaOp, ...], wanted: tuple[Any, ...], inst: Instruction, dimensions: Sequence[int],
          num_carries: int, is_reverse: bool, to_apply: Computation) -> Cotangents:
    """Run the steps again, keeping the carries that each step began with; then scan the other way with the step's gradient.

    Only what that gradient reads is kept and handed to it: a step that is linear in what is wanted needs no carries, so that
    its way back is linear in its cotangent also as a program."""
    (dimension,) = dimensions
    inputs, inits = operands[:len(operands) - num_carries], operands[len(operands) - num_carries:]
    step = _Step(to_apply, len(inputs), num_carries, wanted)
    recorded = Scan(inputs, inits, step.recording(), dimension, is_reverse)
    carries = [GetTupleElement(recorded, step.outputs + k) for k in range(num_carries)]
    outer = list(ct)
    final = [zeros(operands[0], Shape.array(i.element_type, i.shape.dimensions)) if c is None else c
             for c, i in zip(outer[step.outputs:], inits, strict=True)]
    backward, read = step.backward([c is not None for c in outer[:step.outputs]])
    whole = [*inputs, *carries, *(c for c in outer[:step.outputs] if c is not None)]
    # A scan needs something to go along. What nothing reads is no operand, or the way back would ask for it.
    back = Scan([whole[k] for k in read] or [zeros(inputs[0])],
                [c for c, flag in zip(final, step.moving_carries, strict=True) if flag], backward, dimension, not is_reverse)
    results = iter([GetTupleElement(back, k) for k in range(len(back.shape.tuple_shapes))])
    return [next(results) if flag else None for flag in [*step.moving_inputs, *step.moving_carries]]


class _Step:
    """The computation of one step of a scan: (inputs, carries) to (outputs, carries), and which of them are differentiated:
    wanted inputs, and all floating carries if anything is wanted that they could depend on."""

    def __init__(self, computation: Computation, inputs: int, carries: int, wanted: Sequence[Any]):
        self.computation, self.inputs, self.carries = computation, inputs, carries
        self.shapes = computation.program_shape.parameters
        self.results = computation.root.shape.tuple_shapes
        self.outputs = len(self.results) - carries
        floating = [s.element_type.is_differentiable for s in self.shapes]
        self.moving_inputs = [bool(w) and f for w, f in zip(wanted[:inputs], floating[:inputs], strict=True)]
        self.moving_carries = floating[inputs:]

    def recording(self) -> Computation:
        """The step, its carries at the start as further outputs."""
        builder = Builder(f"recording_{self.computation.name}")
        values = [builder.parameter(i, s) for i, s in enumerate(self.shapes)]
        result = Call(builder, self.computation, values)
        parts = [GetTupleElement(result, k) for k in range(len(self.results))]
        return builder.finish(Tuple(builder, [*parts[:self.outputs], *values[self.inputs:], *parts[self.outputs:]]))

    def backward(self, given: Sequence[bool]) -> tuple[Computation, list[int]]:
        """The step's gradient, (inputs, carries, cotangents of outputs; cotangents of the new carries) to (cotangents of
        inputs; cotangents of the carries), and which of the values before the semicolon it reads: it takes only these, or
        the first where it reads none.
        What is not differentiated is left out."""
        moving = [*self.moving_inputs, *self.moving_carries]
        flags = [*given, *self.moving_carries]
        gradient = gradient_of(self.computation, flags, moving)
        kept = {p.attributes["parameter_number"] for p in live_instructions(gradient) if p.is_parameter}
        count = len(self.shapes) + sum(given)
        read = [k for k in range(count) if k in kept]
        builder = Builder(f"backward_{self.computation.name}")
        shapes = [*self.shapes, *(s for s, flag in zip(self.results, flags, strict=True) if flag)]
        numbers = {k: number for number, k in enumerate([*(read or [0]), *range(count, len(shapes))])}
        values = [builder.parameter(numbers[k], s) if k in numbers else full(builder, 0, s.without_layout())
                  for k, s in enumerate(shapes)]
        found = Call(builder, gradient, values)
        return builder.finish(Tuple(builder, [GetTupleElement(found, k) for k, flag in enumerate(moving) if flag])), read


vjp("scan", operands=_scan)

# ------------------------------------------------------------------------------------------- batch normalisation


def _along(x: XlaOp, shape: Shape, feature_index: int) -> XlaOp:
    """A value for each feature, repeated over an array."""
    return BroadcastInDim(x, shape.dimensions, [feature_index])


def _per_feature(x: XlaOp, feature_index: int) -> XlaOp:
    return sum_over(x, others([feature_index], x.shape.rank))


def _deviation(operand: XlaOp, mean: XlaOp, feature_index: int) -> XlaOp:
    return operand - _along(mean, operand.shape, feature_index)


def _count_of_each(operand: XlaOp, feature_index: int) -> XlaOp | float:
    """How many elements a feature has."""
    shape, along = operand.shape, others([feature_index], operand.shape.rank)
    dynamic = [d for d in along if shape.dynamic_flags[d]]
    if not dynamic:
        return float(max(size_of(shape, along), 1))
    known = size_of(shape, [d for d in along if d not in dynamic])
    count = math.prod((GetDimensionSize(operand, d) for d in dynamic), start=operand.builder.constant(known))
    return convert(count, operand.element_type)


def _trained(ct: tuple[XlaOp | None, ...], out: tuple[XlaOp, ...], operand: XlaOp, scale: XlaOp, epsilon: float,
             feature_index: int) -> XlaOp:
    """The output's part is batch-norm-grad; the batch mean and variance are plain averages."""
    (_, mean, variance), (ct_output, ct_mean, ct_variance) = out, ct
    count = _count_of_each(operand, feature_index)
    total = zeros(operand)
    if ct_output is not None:
        total = GetTupleElement(BatchNormGrad(operand, scale, mean, variance, ct_output, epsilon, feature_index), 0)
    if ct_mean is not None:
        total = total + _along(ct_mean / count, operand.shape, feature_index)
    if ct_variance is not None:
        total = total + _along(ct_variance * 2 / count, operand.shape, feature_index) * _deviation(operand, mean, feature_index)
    return total


def _scale(ct: XlaOp | None, operand: XlaOp, mean: XlaOp, variance: XlaOp, epsilon: float, feature_index: int) -> XlaOp | None:
    if ct is None:
        return None
    return _per_feature(ct * _deviation(operand, mean, feature_index), feature_index) * Rsqrt(variance + epsilon)


vjp("batch-norm-training",
    operand=_trained,
    scale=lambda ct, out, operand, epsilon, feature_index: _scale(ct[0], operand, out[1], out[2], epsilon, feature_index),
    offset=lambda ct, feature_index: None if ct[0] is None else _per_feature(ct[0], feature_index))

vjp("batch-norm-inference",
    operand=lambda ct, scale, variance, epsilon, feature_index: ct * _along(
        scale * Rsqrt(variance + epsilon), ct.shape, feature_index),
    scale=lambda ct, operand, mean, variance, epsilon, feature_index: _scale(
        ct, operand, mean, variance, epsilon, feature_index),
    offset=lambda ct, feature_index: _per_feature(ct, feature_index),
    mean=lambda ct, scale, variance, epsilon, feature_index: -(
        _per_feature(ct, feature_index) * (scale * Rsqrt(variance + epsilon))),
    variance=lambda ct, operand, scale, mean, variance, epsilon, feature_index:
        -0.5 * (_scale(ct, operand, mean, variance, epsilon, feature_index) * scale / (variance + epsilon)))


def _batch_norm_grad(position: int) -> Any:
    """batch-norm-grad is differentiated through its formula (second derivatives of a training step need it)."""

    def rule(ct: Any, operand: XlaOp, scale: XlaOp, batch_mean: XlaOp, batch_var: XlaOp, grad_output: XlaOp,
             epsilon: float, feature_index: int) -> XlaOp | None:
        def composed(operand: XlaOp, scale: XlaOp, mean: XlaOp, variance: XlaOp, grad: XlaOp) -> list[XlaOp]:
            count = _count_of_each(operand, feature_index)
            deviation, inverse = _deviation(operand, mean, feature_index), Rsqrt(variance + epsilon)
            with_deviation, alone = _per_feature(grad * deviation, feature_index), _per_feature(grad, feature_index)
            slope = with_deviation / (variance + epsilon) / count
            centred = grad - _along(alone / count, grad.shape, feature_index)
            whole = (centred - _along(slope, grad.shape, feature_index) * deviation) * _along(
                scale * inverse, grad.shape, feature_index)
            return [whole, with_deviation * inverse, alone]

        return derived(composed, [operand, scale, batch_mean, batch_var, grad_output], ct)[position]

    return rule


vjp("batch-norm-grad", operand=_batch_norm_grad(0), scale=_batch_norm_grad(1), batch_mean=_batch_norm_grad(2),
    batch_var=_batch_norm_grad(3), grad_output=_batch_norm_grad(4))
