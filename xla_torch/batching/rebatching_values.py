"""A program for one example: what it gives for each of several, and where they lie in its results.

Of a batch of one no size tells where it went, and such programs drop and add dimensions of size one freely. So the values are
those of `batching`, which holds for every program, and the run over places (`rebatched_run`) only finds out in which dimension of
a result the batch is. It lets the batch disappear in a reshape, and come back in the same dimension. It refuses all reductions
over the batch: a maximum over a batch of one is each example's own, over a larger one that of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import functions as ops
from ..autodiff.derivatives import finished
from ..autodiff.sharing import SharingBuilder
from ..core.errors import UnsupportedError
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Computation, Instruction
from ..hlo.schema import Trait
from ..transform.values import Value, elements_of, leaves, regrouped
from .batched_run import Batch
from .rebatched_run import Places, Rebatch, has_place, resized
from .rebatching_links import Place, Reshaped

Candidates = tuple[int, ...]
"""The dimensions of size one of which each may be the batch's, the likeliest first; of a batch that is gone, minus one and minus
the dimension that it had."""


class OfOne(Rebatch):
    """The run over places alone, of a program for one example: values stay as they are."""

    def _forward(self, inst: Instruction) -> Any:
        given = [(number, places) for number, operand in enumerate(inst.operands) for places in leaves(self.places[operand])
                 if places is not None]
        seen = [(number, places) for number, places in given if not _is_gone(places)]
        if not seen and not _is_reshape(inst) and not inst.has(Trait.FREE):
            return given[0][1]
        links = self._links(inst)
        if not seen and not isinstance(links, Reshaped):  # a broadcast may make the dimension again
            own = -1 - given[0][1][0]
            return (own,) if own in links.free and inst.shape.dimensions[own] == 1 else given[0][1]
        if isinstance(links, Reshaped):
            return _reshaped(given[0][1], links.before, links.after)
        found: Candidates | None = None
        for number, places in seen:
            linked = (links.forward(number, Place(d), 1) for d in places)
            there = tuple(p.dimension for p in linked if p is not None and p.dimension >= 0)
            if not there:
                over = "reduces over the batch, which of one example is each one's own"
                seen_all = any(links.forward(number, Place(d), 1) is not None for d in places)
                raise self._refused(inst, f"it {over if seen_all else links.reason}")
            found = there if found is None else tuple(d for d in found if d in there)
        if not found:
            raise self._refused(inst, "it brings each example together with all others")
        return found

    def in_results(self, place: Any, shape: Shape) -> Places:
        return tree.mapped(lambda leaf: place if leaf.is_array else None, shape, kind=list)

    def _made(self, inst: Instruction, place: Any) -> Value:
        return self.visit(inst, [self.values[o] for o in inst.operands], ())

    def at(self, instruction: Instruction, place: Any) -> Value:
        return self.values[instruction]

    def joined(self, places: Sequence[Any], run: Rebatch) -> list[Any]:
        found = run.result_places
        assert isinstance(found, list)
        return [_common(mine, theirs) for mine, theirs in zip(places, found, strict=True)]

    def chosen_by(self, places: list[Any], by: Places, shapes: Sequence[Shape]) -> list[Any]:
        if not has_place(by):
            return places
        return [place or ((-1,) if shape.is_array else None) for place, shape in zip(places, shapes, strict=True)]

    def _shape(self, shapes: Sequence[Shape], places: Sequence[Any]) -> Shape:
        return Shape.tuple([s.without_layout() for s in shapes])

    def give(self, inst: Instruction, results: Sequence[Any]) -> None:
        """Whatever the result's places are: `joined` sees to it."""


def _is_gone(places: Candidates) -> bool:
    return places[0] < 0


def _common(mine: Candidates | None, theirs: Candidates | None) -> Candidates | None:
    if mine is None or theirs is None:
        return mine or theirs
    return tuple(d for d in mine if d in theirs) or (mine if _is_gone(mine) else (-1 - mine[0],))


def _is_reshape(inst: Instruction) -> bool:
    return inst.has(Trait.FORWARDS) and bool(inst.operands) and not inst.shape.is_tuple


def _reshaped(places: Candidates, before: Sequence[int], after: Sequence[int]) -> Candidates:
    """The dimensions of size one that may be the batch's; a batch that is gone comes back where it was."""
    if _is_gone(places):
        own = -1 - places[0]
        back = own < len(after) and after[own] == 1 and list(after).count(1) > list(before).count(1)
        return (own,) if back else places
    ones, found = [d for d, size in enumerate(after) if size == 1], []
    for own in places:
        slower, faster = math.prod(before[:own]), math.prod(before[own + 1:])
        alike = [d for d in ones if math.prod(after[:d]) == slower and math.prod(after[d + 1:]) == faster]
        found += sorted(alike, key=lambda d, own=own: d != own)
    if not found and [n for n in before if n != 1] == [n for n in after if n != 1]:
        found = ones  # a transpose of a dimension of size one is a reshape
    return tuple(dict.fromkeys(found)) or (-1 - places[0],)


def of_one(entry: Computation, of_values: Computation, axis_of: dict[int, int], new: int) -> Computation:
    """The computation for `new` examples, which the numbered parameters have along these axes. `of_values` is the entry, or the
    same with calls: what each example's values are made of."""
    run = OfOne(Builder(entry.name), entry, 1, 1)
    shapes = [p.shape for p in entry.parameters]
    places = [run.in_results((axis_of[n],) if n in axis_of else None, shape) for n, shape in enumerate(shapes)]
    run.follow([elements_of(run.builder.parameter(n, p.shape, p.name)) for n, p in enumerate(entry.parameters)], places)

    builder, values = SharingBuilder(entry.name), []
    for number, (shape, there, parameter) in enumerate(zip(shapes, places, entry.parameters, strict=True)):
        wide = tree.mapped(lambda leaf, p: leaf if p is None else resized(leaf, Place(p[0]), new), shape, there, kind=Shape.tuple)
        given = leaves(elements_of(builder.parameter(number, wide, parameter.name)))
        values.append(regrouped([v if p is None else _apart(v, p[0]) for v, p in zip(given, leaves(there), strict=True)],
                                shape))
    mapped = [tree.mapped(lambda _, p: p is not None, shape, p, kind=list) for shape, p in zip(shapes, places, strict=True)]
    batch = Batch(builder, of_values, new, values, mapped)
    results = [_together(entry, shape, value, flag, place) for shape, value, flag, place in zip(
        entry.root.shape.leaves(), leaves(batch.result), leaves(batch.result_mapped), leaves(run.result_places), strict=True)]
    return finished(builder, regrouped(results, entry.root.shape))


def _apart(value: XlaOp, dimension: int) -> XlaOp:
    """The examples in front, each as the program for one takes it."""
    sizes = list(value.shape.dimensions)
    front = ops.Transpose(value, [dimension, *(d for d in range(len(sizes)) if d != dimension)]) if dimension else value
    size, sizes[dimension] = sizes[dimension], 1
    return ops.Reshape(front, [size, *sizes])


def _together(entry: Computation, shape: Shape, value: XlaOp, mapped: bool, places: Candidates | None) -> XlaOp:
    """A result with its examples in the dimension of the one."""
    if not mapped:
        return value
    if places is None or _is_gone(places):
        raise UnsupportedError("the batch cannot have another size: with one example, the batch dimension of the result is "
                               "ambiguous",
                               subject=entry.root.subject, got=shape.without_layout(),
                               hint="export the program for more than one example, or keep the batch as a dimension of its own")
    size, d = value.shape.dimensions[0], places[0]
    sizes = [n for k, n in enumerate(shape.dimensions) if k != d]
    front = ops.Reshape(value, [size, *sizes])
    return ops.Transpose(front, [*range(1, d + 1), 0, *range(d + 1, shape.rank)]) if d else front
