"""`vmap`: a program for one example as a program for a batch, for every op, loop and branch (see `transform.batching`)."""

from __future__ import annotations

from collections.abc import Sequence

from . import ops
from .autodiff.flat import flat_parameters
from .autodiff.program import closed, plain_entry
from .autodiff.sharing import SharingBuilder
from .builder import XlaOp
from .computation import XlaComputation
from .errors import InvalidArgument
from .hlo.ir import Computation
from .shape import Shape
from .transform import batching_rules
from .transform.batching import Batch, Mapped, with_batch
from .transform.inline import elements_of, leaves, make_tuple, regrouped

__all__ = ["batching_rules", "vmap"]

Axes = int | None | Sequence[int | None]


def vmap(computation: XlaComputation, size: int, in_axes: Axes = 0) -> XlaComputation:
    """The program for a batch of `size` examples at once.

    `in_axes` says for each parameter (or for all) which dimension of it is the batch; None is for what all examples share.
    A tuple parameter has the same in all its arrays. Every array of the result has the batch as dimension 0. One dot, one
    convolution, one sort then serves all examples; a loop runs until its last example is done, and where examples take
    different branches all are computed. What has no batched form runs in a loop over the examples. Ops with effects that do
    not depend on a batched value (a shared random number) run once.

    Raises InvalidArgument for axes that do not fit the parameters; UnsupportedError for ops on dynamic sizes and on tokens.
    """
    entry = plain_entry(computation)
    axes = _axes_of(entry, in_axes)
    builder = SharingBuilder(f"vmap_{computation.name}")
    values, mapped = [], []
    for k, (parameter, axis) in enumerate(zip(entry.parameters, axes, strict=True)):
        given = builder.parameter(k, _shape_with(parameter.shape, size, axis), parameter.name)
        flat = [_to_front(leaf, axis) for leaf in leaves(elements_of(given))]
        values.append(regrouped(flat, parameter.shape))
        mapped.append(_flags(parameter.shape, axis is not None))
    run = Batch(builder, entry, size, values, mapped)
    result = run.filled(run.result, run.result_mapped, _flags(entry.root.shape, True))
    return closed(builder, result, computation)


def flat_batch(computation: XlaComputation, size: int, axes: Sequence[int | None]) -> tuple[XlaComputation, list[int | None]]:
    """As `vmap`, from flat array arguments with an axis each to flat array results, and the results' axes: 0, or None for
    those that are the same for all examples."""
    entry = plain_entry(computation)
    builder = SharingBuilder(f"vmap_{computation.name}")
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
    whole = make_tuple(builder, [leaf for leaf, _ in found])
    return closed(builder, whole, computation), [0 if flag else None for _, flag in found]


def _axes_of(entry: Computation, in_axes: Axes) -> list[int | None]:
    count = len(entry.parameters)
    axes = list(in_axes) if isinstance(in_axes, Sequence) else [in_axes] * count
    if len(axes) != count:
        raise InvalidArgument("in_axes has the wrong length", subject="vmap", got=len(axes), expected=f"{count}, one a parameter")
    for k, (axis, parameter) in enumerate(zip(axes, entry.parameters, strict=True)):
        ranks = [leaf.rank for leaf in parameter.shape.leaves() if leaf.is_array]
        if axis is not None and not 0 <= axis <= min(ranks, default=0):
            raise InvalidArgument(f"axis {axis} is no place in parameter {k}", subject="vmap", got=parameter.shape,
                                  expected=f"0 to {min(ranks, default=0)}, or None")
    return axes


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
