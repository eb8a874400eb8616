"""Loops without what is the same in each step: it is computed before the loop, and is one more carry, which the body passes on.

Inner loops come first, so that what changes in neither of two loops leaves both. What moves is pure and cannot fail, as a loop
may take no step. Views and copies move only with what is computed of them; whatever has an effect, draws or exchanges, is a
barrier, a custom call, a loop or a branch, or is of dynamic size, stays where it is, and so does what is made of constants alone,
which the lowering folds. Computations are in canonical form (see `transform.canonical`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..analysis.loops import counted_loop, invariant_carries
from ..core import tuning
from ..core.shape import Shape
from ..core.sizes import unnamed
from ..functions.hlo_builder import Builder
from ..hlo.ir import (
    Computation,
    Instruction,
    cached_on_computation,
    cached_with_arguments,
    live_instructions,
    reachable,
)
from ..hlo.regions import Loop, Region, has_regions_of_values, is_branching, is_loop, loop_of, with_regions
from ..hlo.schema import Trait
from ..opcodes import movement
from .equal_ops import repeats
from .rewriter import Rewriter, needed_instructions, rebuilt
from .values import Value, as_op, elements_of


def without_invariant_code(computation: Computation) -> Computation:
    """The computation, what does not change in its loops moved out of them; itself where nothing moves."""
    if not computation.is_canonical or not _moves(computation):
        return computation
    return rebuilt(computation, _Mover)


def _moves(computation: Computation) -> bool:
    """Whether anything leaves a loop, here or in what this runs."""
    return any(map(_leaves_loops, reachable([computation])))


@cached_on_computation
def _leaves_loops(computation: Computation) -> bool:
    return any(is_loop(i) and any(_moved(i, loop_of(i))) for i in computation.instructions)


class _Mover(Rewriter):
    """Rebuilds a computation and the loops and branches in it. What is made of a region is `made` once, though several run it."""

    def __init__(self, builder: Builder):
        super().__init__(builder)
        self.made: dict[Computation, Computation] = {}

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if is_loop(instruction):
            return self.loop(instruction, operands)
        if is_branching(instruction):
            return self.copy_control(instruction, operands, with_regions(instruction, self.region))
        return super().visit(instruction, operands, arguments)

    def region(self, region: Region) -> Computation:
        computation = region.computation
        if computation not in self.made:
            self.made[computation] = rebuilt(computation, self._within) if _moves(computation) else computation
        return self.made[computation]

    def _within(self, builder: Builder) -> _Mover:
        inside = type(self)(builder)
        inside.made = self.made
        return inside

    def loop(self, loop: Instruction, operands: list[Value]) -> Value:
        """The loop, behind what leaves it."""
        (carry,) = operands
        attributes = with_regions(loop, self.region)
        inside = Loop(attributes["condition"], attributes["body"])
        moved = _moved(loop, inside)
        if not any(moved) or not isinstance(carry, list):
            return self.copy_control(loop, operands, attributes)
        more = [v for computation, wanted in zip(inside, moved, strict=True) for v in self._values(computation, wanted, carry)]
        count, places = len(carry), {i: k for k, i in enumerate((*moved.condition, *moved.body), len(carry))}
        whole = [as_op(self.builder, v) for v in (*carry, *more)]
        shape = Shape.tuple([v.shape for v in whole])
        attributes |= {name: self._with_more(computation, shape, places) for name, computation in inside._asdict().items()}
        found = self.copy_control(loop, [list(whole)], attributes)
        assert isinstance(found, list)
        return found[:count]

    def _values(self, computation: Computation, wanted: Sequence[Instruction], carry: Value) -> list[Value]:
        """The values of instructions of a loop, for its first carry."""
        values: dict[Instruction, Value] = {}
        for i in live_instructions(computation, wanted):
            values[i] = self.visit(i, [values[o] for o in i.operands], [carry])
        return [values[i] for i in wanted]

    def _with_more(self, computation: Computation, carry: Shape, places: Mapping[Instruction, int]) -> Computation:
        """A loop's condition or body for a longer carry, in which the values of some instructions have their places."""
        builder, (parameter,) = Builder(computation.name), computation.parameters
        given = elements_of(builder.parameter(0, carry, parameter.name))
        assert isinstance(given, list)
        count, inside = len(parameter.shape.tuple_shapes), self._within(builder)
        values: dict[Instruction, Value] = {}
        for i in needed_instructions(computation):
            place = places.get(i)
            values[i] = inside.visit(i, [values[o] for o in i.operands], [given[:count]]) if place is None else given[place]
        result = values[computation.root]
        return builder.finish(as_op(builder, [*result, *given[count:]] if isinstance(result, list) else result))


class _Leaving(NamedTuple):
    """What of a loop's condition and body is computed before it."""

    condition: Sequence[Instruction]
    body: Sequence[Instruction]


def _moved(loop: Instruction, inside: Loop) -> _Leaving:
    """What leaves a loop that runs these computations."""
    counted = counted_loop(loop)
    if counted is not None and counted.trip_count <= 1:
        return _Leaving((), ())
    fixed = invariant_carries(loop)
    return _Leaving(*(_leaving(computation, fixed) for computation in inside))


@cached_with_arguments
def _leaving(computation: Computation, fixed: frozenset[int]) -> list[Instruction]:
    """Of the instructions whose values follow from these elements of the parameter, those that are worth a carry of their own,
    and are read by what stays."""
    sources = _sources(computation, fixed)
    read, leaving = {computation.root}, list[Instruction]()
    for i in reversed(computation.instructions):
        if i in read and i in sources and _is_worth_it(i, sources[i]):
            leaving.append(i)
        elif i in read or i not in sources:
            read.update(i.operands)
    return leaving[::-1]


def _sources(computation: Computation, fixed: Collection[int]) -> Mapping[Instruction, frozenset[Instruction]]:
    """The instructions whose values follow from elements of the parameter that never change, and from which of them."""
    (carry,) = computation.parameters
    sources: dict[Instruction, frozenset[Instruction]] = {}
    for i in computation.instructions:
        if i.is_element and i.operands[0] is carry:
            if i.attributes["index"] in fixed:
                sources[i] = frozenset([i])
        elif _may_move(i) and all(o in sources for o in i.operands):
            sources[i] = frozenset().union(*(sources[o] for o in i.operands))
    return sources


def _may_move(i: Instruction) -> bool:
    """Whether an instruction gives the same wherever it stands, and ends."""
    is_of_compilers = i.schema.family == "internal" and not i.has(Trait.FREE)  # barriers, custom calls and the like
    return (not is_of_compilers and not i.is_parameter and not i.is_tuple and not has_regions_of_values(i) and repeats(i)
            and all(leaf.is_array and leaf.is_static for leaf in i.shape.leaves()))


def _is_worth_it(i: Instruction, sources: Collection[Instruction]) -> bool:
    """Whether it saves something to keep a value that is computed from these."""
    maker = i.operands[0] if i.is_element else i
    is_view = maker.is_parameter or maker.schema.traits & (Trait.FREE | Trait.FORWARDS)
    if not sources or not i.shape.is_array or (is_view and maker.opcode not in _COPIED):
        return False
    if i.shape.is_scalar and i.schema.elementwise and not i.shape.element_type.is_floating:
        return False  # it counts or bounds loops: `analysis.loops` follows it where it is
    return _is_small_beside(i.shape, [s.shape for s in sources], maker.schema.elementwise and not maker.has(Trait.TRANSCENDENTAL))


_COPIED = frozenset({movement.transpose, movement.slice_})
"""Views of which native code makes an array where a product reads them."""


def _is_small_beside(shape: Shape, sources: Sequence[Shape], is_cheap: bool) -> bool:
    """Whether it takes little memory to keep an array, for what it is computed from. Sizes that stand for many are compared with
    the same alone."""
    if any(unnamed(s.dimensions) == unnamed(shape.dimensions) for s in sources):
        return True
    if shape.has_sizes:
        return False
    count, given = shape.element_count, sum(s.element_count for s in sources if not s.has_sizes)
    return count <= given or count <= (tuning.INVARIANT_ARITHMETIC_UP_TO if is_cheap else tuning.INVARIANT_UP_TO)
