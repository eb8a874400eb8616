"""Whole computations for one example as computations for a batch of examples."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functions as ops
from ..autodiff.derivatives import finished
from ..autodiff.flat import flat_parameters
from ..autodiff.sharing import SharingBuilder
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo.ir import Computation
from ..transform.values import elements_of, leaves, regrouped
from .batched_run import Batch, Mapped, with_batch


def batched(name: str, entry: Computation, size: int, axes: Sequence[int | None]) -> Computation:
    """The computation for `size` examples, from parameters that have the batch at these dimensions (None: all examples share
    it) to a result with the batch as dimension 0 of every array. Raises UnsupportedError for ops on dynamic sizes and on
    tokens."""
    builder = SharingBuilder(name)
    values, mapped = [], []
    for k, (parameter, axis) in enumerate(zip(entry.parameters, axes, strict=True)):
        given = builder.parameter(k, _shape_with(parameter.shape, size, axis), parameter.name)
        flat = [_to_front(leaf, axis) for leaf in leaves(elements_of(given))]
        values.append(regrouped(flat, parameter.shape))
        mapped.append(_flags(parameter.shape, axis is not None))
    run = Batch(builder, entry, size, values, mapped)
    return finished(builder, run.filled(run.result, entry.root.shape, run.result_mapped, _flags(entry.root.shape, True)))


def flat_batched(name: str, entry: Computation, size: int,
                 axes: Sequence[int | None]) -> tuple[Computation, list[int | None]]:
    """As `batched`, from flat array arguments with an axis each to flat array results, and the results' axes: 0, or None for
    those that are the same for all examples."""
    builder = SharingBuilder(name)
    rest = iter(axes)
    places: list[int | None] = []

    def with_axis(leaf: Shape) -> Shape:
        places.append(next(rest))
        return _shape_with(leaf, size, places[-1])

    _, given_values = flat_parameters(builder, [p.shape for p in entry.parameters], with_axis)
    given = iter(places)
    values, mapped = [], []
    for parameter, value in zip(entry.parameters, given_values, strict=True):
        own = [next(given) if leaf.is_array else None for leaf in parameter.shape.leaves()]
        values.append(regrouped([_to_front(leaf, a) for leaf, a in zip(leaves(value), own, strict=True)], parameter.shape))
        mapped.append(regrouped([a is not None for a in own], parameter.shape))
    run = Batch(builder, entry, size, values, mapped)
    found = [(leaf, flag) for leaf, flag in zip(leaves(run.result), _flat(run.result_mapped), strict=True) if leaf.shape.is_array]
    return finished(builder, [leaf for leaf, _ in found]), [0 if flag else None for _, flag in found]


def _shape_with(shape: Shape, size: int, axis: int | None) -> Shape:
    """The shape with the batch at `axis`."""
    if axis is None:
        return shape.without_layout()
    if shape.is_tuple:
        return Shape.tuple([_shape_with(s, size, axis) for s in shape.tuple_shapes])
    if not shape.is_array:
        return shape
    sizes = list(shape.dimensions)
    sizes.insert(axis, size)
    return with_batch(shape, size) if axis == 0 else Shape.array(shape.element_type, sizes)


def _to_front(value: XlaOp, axis: int | None) -> XlaOp:
    if not axis or not value.shape.is_array:
        return value
    return ops.Transpose(value, [axis, *(d for d in range(value.shape.rank) if d != axis)])


def _flags(shape: Shape, flag: bool) -> Mapped:
    return regrouped([flag and leaf.is_array for leaf in shape.leaves()], shape)


def _flat(mapped: Mapped) -> list[bool]:
    return [leaf for part in mapped for leaf in _flat(part)] if isinstance(mapped, list) else [mapped]
