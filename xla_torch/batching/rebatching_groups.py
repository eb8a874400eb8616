"""A program for a batch, run for a batch of another size in groups of the old one.

Where examples do not meet, that gives what the program for the new size gives, and needs nothing of the program but that it runs
for a batch of groups. So it is what derivatives are found by where the program brings some: of these, too, it is known only what
they are for the old size. The last group is filled up with the first example, which then gets no cotangent from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import functions as ops
from ..autodiff.derivatives import finished
from ..autodiff.sharing import SharingBuilder
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo import tree
from ..hlo.ir import Computation
from ..transform.values import elements_of, leaves, regrouped
from .batched_run import Batch
from .rebatched_run import resized
from .rebatching_links import Place


def in_groups(entry: Computation, axis_of: Mapping[int, int], places: Sequence[Place | None], old: int, new: int) -> Computation:
    """The computation for `new` examples, which the numbered parameters have along these axes, and the results' leaves in these
    places; None is for those that have no batch."""
    builder, groups = SharingBuilder(entry.name), -(-new // old)
    values, mapped = [], []
    for number, parameter in enumerate(entry.parameters):
        place = Place(axis_of[number]) if number in axis_of else None
        flags = tree.mapped(lambda leaf, place=place: leaf.is_array and place is not None, parameter.shape, kind=list)
        shape = tree.mapped(lambda leaf, flag, place=place: resized(leaf, place, new) if flag and place else leaf,
                            parameter.shape, flags, kind=Shape.tuple)
        given = leaves(elements_of(builder.parameter(number, shape, parameter.name)))
        values.append(regrouped([_apart(v, place, new, old, groups) if flag and place else v
                                 for v, flag in zip(given, leaves(flags), strict=True)], parameter.shape))
        mapped.append(flags)
    run = Batch(builder, entry, groups, values, mapped)
    results = [_together(value, flag, place, leaf, old, new) for value, flag, place, leaf in zip(
        leaves(run.result), leaves(run.result_mapped), places, entry.root.shape.leaves(), strict=True)]
    return finished(builder, regrouped(results, entry.root.shape))


def _apart(value: XlaOp, place: Place, new: int, old: int, groups: int) -> XlaOp:
    """The examples in groups, each where the program for the old size takes it, the groups in front."""
    d, sizes = place.dimension, value.shape.dimensions
    rest = [n for k, n in enumerate(sizes) if k != d]
    front = _moved(value, d, 0)
    if groups * old > new:
        first = ops.SliceInDim(front, 0, 1, 1, 0)
        more = ops.BroadcastInDim(ops.Reshape(first, rest), [groups * old - new, *rest], range(1, len(rest) + 1))
        front = ops.ConcatInDim(value.builder, [front, more], 0)
    return _moved(ops.Reshape(front, [groups, old, *rest]), 1, 1 + d)


def _together(value: XlaOp, mapped: bool, place: Place | None, leaf: Shape, old: int, new: int) -> XlaOp:
    """A result of all groups as that of the new batch; of what has no batch, that of the first group."""
    if place is None:
        return ops.Reshape(ops.SliceInDim(value, 0, 1, 1, 0), leaf.dimensions) if mapped else value
    sizes, d = leaf.dimensions, place.dimension
    if not mapped:
        value = ops.BroadcastInDim(value, [-(-new // old), *sizes], range(1, len(sizes) + 1))
    groups, slower, faster = value.shape.dimensions[0], [*sizes[:d], place.outer], [place.inner, *sizes[d + 1:]]
    apart = _moved(ops.Reshape(value, [groups, *slower, old, *faster]), 1 + len(slower), 1)
    examples = ops.SliceInDim(ops.Reshape(apart, [groups * old, *slower, *faster]), 0, new, 1, 0)
    return ops.Reshape(_moved(examples, 0, len(slower)), [*sizes[:d], place.outer * new * place.inner, *sizes[d + 1:]])


def _moved(value: XlaOp, source: int, target: int) -> XlaOp:
    """The value with a dimension at another place."""
    order = list(range(value.shape.rank))
    order.insert(target, order.pop(source))
    return value if source == target else ops.Transpose(value, order)
