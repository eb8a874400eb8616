"""Whole computations for a batch of one size as computations for a batch of another."""

from __future__ import annotations

from collections.abc import Sequence

from ..autodiff.derivatives import finished
from ..autodiff.sharing import SharingBuilder
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..hlo import tree
from ..hlo.ir import Computation
from ..transform.values import elements_of, leaves
from .rebatched_run import Rebatch, Wanted, everywhere, resized
from .rebatching_groups import in_groups
from .rebatching_links import Place
from .rebatching_values import of_one


def rebatched(entry: Computation, by_calls: Computation | None, arguments: Sequence[int], axes: Sequence[int], old: int,
              new: int) -> tuple[Computation, Computation | None]:
    """A canonical computation for `new` examples in the place of `old` ones, which the numbered parameters have along these
    axes; and what derivatives are found by, made of the entry with calls of computations that bring derivatives (None where
    there are none, and where examples meet). Raises UnsupportedError that names the instruction which stands against it."""
    axis_of = dict(zip(arguments, axes, strict=True))
    if old == 1:
        return of_one(entry, entry, axis_of, new), by_calls and of_one(entry, by_calls, axis_of, new)
    builder = SharingBuilder(entry.name)
    run = Rebatch(builder, entry, old, new)
    values, places = [], []
    for number, parameter in enumerate(entry.parameters):
        there = everywhere(Place(axis_of[number]) if number in axis_of else None, parameter.shape)
        shape = tree.mapped(lambda leaf, place: leaf if place is None else resized(leaf, place, new), parameter.shape, there,
                            kind=Shape.tuple)
        values.append(elements_of(builder.parameter(number, shape, parameter.name)))
        places.append(there)
    try:
        run.follow(values, places)
    except Wanted as wanted:
        number = wanted.parameter.attributes["parameter_number"]
        raise UnsupportedError(
            f"the batch cannot have another size: parameter {number} has a value for each example, but is not in argnums",
            subject=wanted.parameter.subject, got=wanted.parameter.shape.without_layout(),
            hint=f"name it too: argnums with {number}") from None
    found = finished(builder, run.result)
    if by_calls is None or run.meets:
        return found, None
    return found, in_groups(by_calls, axis_of, list(leaves(run.result_places)), old, new)
