"""A program for a batch of one size becomes a program for a batch of another, in which each example gets what it got.

Every value that depends on a batched one has the batch in some place (`links.Place`), which follows from op to op by the links
of `link_rules`: an op may have the batch only along a dimension where it treats all places alike. So what an example gets
never depends on how many others there are, and no constant that happens to hold the old size can matter. What is no such program
is refused with the instruction that stands against it.

A value that does not depend on the batch but stands beside one that does (a bias broadcast to all examples, zeros that a loop
begins with) is made again with the new size, from where its examples became equal: `at` goes back to there.

The one way in which examples may meet is by a reduction that gives the same however often an example occurs (and, or, minimum,
maximum: whether a loop goes on for any example, a scale for all); its result belongs to no example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import functions as ops
from ..core.errors import UnsupportedError, XlaError
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import Role, branches_of, has_regions_of_values, is_branching, loop_of, with_regions
from ..hlo.schema import Trait
from ..hlo.structure import CONSTANT
from ..transform.rewriter import Rewriter, carried_metadata, needed_instructions
from ..transform.values import Value, elements_of, leaves, make_tuple
from .rebatching_links import LINKS, Links, Place

Places = Place | None | list[Any]
"""The place of the batch in a value, None where it has none; for a tuple a list, element by element."""


class Rebatch(Rewriter):
    """One run of a canonical computation inside a builder, for `new` examples in the place of `old` ones.

    After `follow`, `result` is its value and `result_places` say where the batch is in it. Raises UnsupportedError.
    """

    def __init__(self, builder: Builder, computation: Computation, old: int, new: int):
        super().__init__(builder)
        self.computation, self.old, self.new = computation, old, new
        self.values: dict[Instruction, Value] = {}
        self.places: dict[Instruction, Places] = {}
        self._again: dict[tuple[Instruction, Place], Value] = {}
        self.meets = False
        """Whether examples meet in a reduction."""

    def follow(self, arguments: Sequence[Value], places: Sequence[Places]) -> None:
        """Run on the parameters' values, with the batch in these places."""
        for instruction in needed_instructions(self.computation):
            if instruction.is_parameter:
                number = instruction.attributes["parameter_number"]
                found = arguments[number], places[number]
            else:
                found = self._run(instruction)
            self.values[instruction], self.places[instruction] = found
        root = self.computation.root
        self.result, self.result_places = self.values[root], self.places[root]

    def _run(self, inst: Instruction) -> tuple[Value, Places]:
        values, places = [self.values[o] for o in inst.operands], [self.places[o] for o in inst.operands]
        if inst.is_tuple:
            return list(values), list(places)
        if inst.shape.is_tuple and inst.has(Trait.FORWARDS):
            return values[0], places[0]
        if inst.is_element:
            (whole,) = places
            assert isinstance(whole, list)
            return self.visit(inst, values, ()), whole[inst.attributes["index"]]
        if not any(has_place(p) for p in places):
            return self.visit(inst, values, ()), tree.everywhere(None, inst.shape, list)
        try:
            if is_branching(inst):
                return self._branches(inst)
            if has_regions_of_values(inst):
                return self._loop(inst)
            place = self._forward(inst)
            return self._made(inst, place), self.in_results(place, inst.shape)
        except XlaError as error:
            raise error.located(subject=inst.subject, where=inst.where) from error.__cause__

    # ---- ops

    def _forward(self, inst: Instruction) -> Any:
        """The place in the result for those in the operands, which must agree."""
        links, found = self._links(inst), None
        for number, operand in enumerate(inst.operands):
            place = self.places[operand]
            if not isinstance(place, Place):
                continue
            there = links.forward(number, place, self.old)
            if there is None:
                raise self._refused(inst, f"it {links.reason}")
            if found is not None and there != found:
                raise self._refused(inst, "it brings each example together with all others")
            found = there
        assert found is not None
        self.meets |= found.dimension < 0
        return found

    def in_results(self, place: Any, shape: Shape) -> Places:
        """What `_forward` found, for every array of the result."""
        return everywhere(place, shape)

    def _links(self, inst: Instruction) -> Links:
        rule = LINKS.find(inst.opcode)
        if rule is None:
            raise self._refused(inst, "of this op it is not known that it treats examples alike")
        if not all(leaf.is_static for shape in (inst.shape, *(o.shape for o in inst.operands)) for leaf in shape.leaves()):
            raise self._refused(inst, "it is about arrays of dynamic size")
        return rule(inst)

    def _needs(self, inst: Instruction, place: Place) -> list[tuple[Instruction, Place | None]]:
        """The operands, each with the place that the batch must have in it for this place in the result."""
        links = self._links(inst)
        wanted = links.backward(place, self.old)
        if wanted is None:
            raise self._refused(inst, f"it {links.reason}")
        pairs: list[tuple[Instruction, Place | None]] = []
        for number, (operand, there) in enumerate(zip(inst.operands, wanted, strict=True)):
            own = self.places[operand]
            if isinstance(own, Place) and links.forward(number, own, self.old) != place:
                raise self._refused(inst, "it brings each example together with all others")
            pairs.append((operand, own if isinstance(own, Place) else there))
        return pairs

    def _made(self, inst: Instruction, place: Place) -> Value:
        """The op with the batch in this place of its result."""
        operands = [self.values[o] if p is None else self.at(o, p) for o, p in self._needs(inst, place)]
        shape = tree.mapped(lambda leaf: resized(leaf, place, self.new, keeps_layout=True), inst.shape, kind=Shape.tuple)
        changed = self._links(inst).changed(place, self.new) if place.dimension >= 0 else {}
        arrays = [next(leaves(o)) for o in operands]
        return elements_of(self.builder.add(inst.opcode, arrays, {**inst.attributes, **changed}, shape, inst.name,
                                            carried_metadata(inst)))

    # ---- values that are the same for all examples

    def at(self, instruction: Instruction, place: Place) -> Value:
        """The instruction's value with the batch in this place: its own, or one made again that is equal for all examples."""
        pending = [(instruction, place)]
        while pending:
            inst, there = pending[-1]
            if self._has(inst, there):
                pending.pop()
                continue
            missing = [] if self._is_leaf(inst) else [(o, p) for o, p in self._sources(inst, there)
                                                      if p is not None and not self._has(o, p)]
            if missing:
                pending.extend(missing)
                continue
            self._again[inst, there] = self._repeated(inst, there)
            pending.pop()
        return self.values[instruction] if self.places[instruction] == place else self._again[instruction, place]

    def _has(self, inst: Instruction, place: Place) -> bool:
        return (inst, place) in self._again or self.places[inst] == place

    def _is_leaf(self, inst: Instruction) -> bool:
        """Whether the value is repeated as it is, or cannot be."""
        return inst.is_parameter or inst.opcode == CONSTANT or has_regions_of_values(inst) or (
            inst.is_element and (inst.operands[0].is_parameter or has_regions_of_values(inst.operands[0])))

    def _sources(self, inst: Instruction, place: Place) -> list[tuple[Instruction, Place | None]]:
        if has_place(self.places[inst]):
            raise self._refused(inst, "what it gives for one example is used for all of them")
        try:
            return [(inst.operands[0], place)] if inst.is_element else self._needs(inst, place)
        except XlaError as error:
            raise error.located(subject=inst.subject, where=inst.where) from error.__cause__

    def _repeated(self, inst: Instruction, place: Place) -> Value:
        """A value that is the same for all examples, for so many of them."""
        if not self._is_leaf(inst):
            if inst.is_element:
                whole = self.at(inst.operands[0], place)
                assert isinstance(whole, list)
                return whole[inst.attributes["index"]]
            return self._made(inst, place)
        if has_place(self.places[inst]):
            raise self._refused(inst, "what it gives for one example is used for all of them")
        dims = inst.shape.dimensions
        apart = (*dims[:place.dimension], place.outer, self.old, place.inner, *dims[place.dimension + 1:])
        if inst.opcode == CONSTANT and not inst.attributes["literal"].elided:
            rows = np.moveaxis(inst.attributes["literal"].array.reshape(apart), place.dimension + 1, 0)
            if not _all_equal(rows):
                raise self._refused(inst, "it has other values for each example")
            one = self.builder.constant(np.ascontiguousarray(rows[0]), inst.shape.element_type)
        else:
            raise self._no_repetition(inst, place)
        many = (*apart[:place.dimension + 1], self.new, *apart[place.dimension + 2:])
        there = [d for d in range(len(many)) if d != place.dimension + 1]
        return ops.Reshape(ops.BroadcastInDim(one, many, there), place.resized(dims, self.new))

    def _no_repetition(self, inst: Instruction, place: Place) -> Exception:
        parameter = inst if inst.is_parameter else inst.operands[0]
        if parameter in self.computation.parameters:
            return Wanted(self, parameter, inst.attributes["index"] if inst.is_element else None, place)
        return self._refused(inst, "a loop or branch that does not depend on the batch gives a value for each example")

    def _refused(self, inst: Instruction, what: str) -> UnsupportedError:
        given = ", ".join(f"{o.shape.without_layout()}{_described(self.places.get(o), self.old)}" for o in inst.operands)
        return UnsupportedError(
            f"the batch cannot have another size: {what}", subject=inst.subject, where=inst.where,
            got=f"{inst.shape.without_layout()} of {given}" if given else inst.shape.without_layout(),
            hint="export the program with a symbolic batch size, or without this op")

    # ---- loops and branches: flat tuples in and out, since computations are in canonical form

    def _loop(self, inst: Instruction) -> tuple[Value, Places]:
        condition, body = loop_of(inst)
        shapes, places = inst.shape.tuple_shapes, self._flat_places(inst.operands[0])
        while True:
            before = list(places)
            stops = self._inside(inst, condition, shapes, places, [])
            turn = self._inside(inst, body, shapes, places, places)
            places = self.joined(self.chosen_by(places, stops.result_places, shapes), turn)
            if places == before:
                break
        rebuilt = {Role.CONDITION: stops.finished([]), Role.BODY: turn.finished(places)}
        whole = self.builder.append(Instruction(
            inst.opcode, self._shape(shapes, places), [self._given(inst.operands[0], places).instruction],
            with_regions(inst, lambda region: rebuilt[region.role]), inst.name, carried_metadata(inst)))
        return elements_of(whole), list(places)

    def _branches(self, inst: Instruction) -> tuple[Value, Places]:
        given, branches = inst.operands[1:], branches_of(inst)
        places = [self._flat_places(o) for o in given]
        results: list[Place | None] = [None] * len(inst.shape.tuple_shapes)
        while True:
            before = [list(p) for p in (results, *places)]
            runs = [self._inside(inst, branch, operand.shape.tuple_shapes, there, results)
                    for branch, operand, there in zip(branches, given, places, strict=True)]
            for run in runs:
                results = self.joined(results, run)
            results = self.chosen_by(results, self.places[inst.operands[0]], inst.shape.tuple_shapes)
            if [results, *places] == before:
                break
        rebuilt = iter([run.finished(results) for run in runs])
        operands = [self._given(operand, there).instruction for operand, there in zip(given, places, strict=True)]
        (selector,) = leaves(self.values[inst.operands[0]])
        whole = self.builder.append(Instruction(
            inst.opcode, self._shape(inst.shape.tuple_shapes, results), [selector.instruction, *operands],
            with_regions(inst, lambda _: next(rebuilt)), inst.name, carried_metadata(inst)))
        return elements_of(whole), list(results)

    def _flat_places(self, carried: Instruction) -> list[Place | None]:
        places = self.places[carried]
        assert isinstance(places, list)
        return list(places)

    def _given(self, carried: Instruction, places: Sequence[Place | None]) -> XlaOp:
        """The tuple that a region is entered with, the batch in these places."""
        return make_tuple(self.builder, [next(leaves(self.values[o] if p is None else self.at(o, p)))
                                         for o, p in zip(carried.operands, places, strict=True)])

    def _inside(self, inst: Instruction, computation: Computation, shapes: Sequence[Shape], places: list[Place | None],
                results: Sequence[Place | None]) -> Rebatch:
        """A run of a region that is entered with the batch in `places`, which get more where the region wants it, and that
        gives it in `results`."""
        while True:
            run = type(self)(Builder(computation.name), computation, self.old, self.new)
            whole = run.builder.parameter(0, self._shape(shapes, places), computation.parameters[0].name)
            try:
                run.follow([elements_of(whole)], [list(places)])
                run.give(inst, results)
                self.meets |= run.meets
                return run
            except Wanted as wanted:
                if wanted.run is not run:
                    raise
                places[wanted.number or 0] = wanted.place

    def joined(self, places: Sequence[Place | None], run: Rebatch) -> list[Place | None]:
        """The places, and where there are none those of the region's result."""
        found = run.result_places
        assert isinstance(found, list)
        return [mine or theirs for mine, theirs in zip(places, found, strict=True)]

    def chosen_by(self, places: list[Place | None], by: Places, shapes: Sequence[Shape]) -> list[Place | None]:
        """The places in what a loop or branch gives, where this is what decides on its way. A scalar has no place, so here
        nothing changes."""
        return places

    def give(self, inst: Instruction, results: Sequence[Place | None]) -> None:
        """Have the batch in these places of a flat result."""
        own = self.result_places if isinstance(self.result_places, list) else []
        for operand, has, wanted in zip(self.computation.root.operands, own, results, strict=False):
            if wanted is not None and has is not None and has != wanted:
                raise self._refused(inst, "what it gives has the batch in another place than what it is given")
            if wanted is not None and has is None:
                self.at(operand, wanted)

    def finished(self, results: Sequence[Place | None]) -> Computation:
        """The region, once `give` was asked for these places in its flat result (none where it is no tuple)."""
        root = self.computation.root
        if not root.is_tuple:
            (only,) = leaves(self.result)
            return self.builder.finish(only)
        return self.builder.finish(self._given(root, results))

    def _shape(self, shapes: Sequence[Shape], places: Sequence[Place | None]) -> Shape:
        return Shape.tuple([s.without_layout() if p is None else resized(s, p, self.new)
                            for s, p in zip(shapes, places, strict=True)])


class Wanted(Exception):
    """A parameter that is the same for all examples is wanted with the batch in this place."""

    def __init__(self, run: Rebatch, parameter: Instruction, number: int | None, place: Place):
        super().__init__(f"{parameter.subject} at {place}")
        self.run, self.parameter, self.number, self.place = run, parameter, number, place


# ------------------------------------------------------------------------------------------------ places and shapes


def resized(shape: Shape, place: Place, size: int, keeps_layout: bool = False) -> Shape:
    """The shape of an array with a batch of `size` in this place; layouts are free, unless they are kept. Tokens stay."""
    layout = shape.layout if keeps_layout else None
    return Shape.array(shape.element_type, place.resized(shape.dimensions, size), layout=layout) if shape.is_array else shape


def has_place(places: Places) -> bool:
    """Whether any part of a value has the batch."""
    return any(leaf is not None for leaf in leaves(places))


def everywhere(place: Place | None, shape: Shape) -> Places:
    place = None if place is None or place.dimension < 0 else place
    return tree.mapped(lambda leaf: place if leaf.is_array else None, shape, kind=list)


def _all_equal(rows: np.ndarray) -> bool:
    """Whether all rows are the same, bit by bit."""
    bits = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    return bool((bits == bits[:1]).all())


def _described(places: Places | None, size: int) -> str:
    if not isinstance(places, Place):
        return ""
    merged = f", {places.outer} * {size} * {places.inner}" if places.outer * places.inner > 1 else ""
    return f" (batch in dimension {places.dimension}{merged})"
