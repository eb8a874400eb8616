"""Loops without the carries that nothing reads: no value behind the loop, not its condition, no carry that is read itself.

Derivatives make such loops: of what a loop computed, the way back may need some, and a tangent that is wanted alone none.
Computations are in canonical form (see `transform.canonical`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from ..functions.hlo_builder import Builder
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction, cached_with_arguments, reachable
from ..hlo.regions import Region, is_branching, is_loop, loop_of, with_regions
from .rewriter import Rewriter, carried_metadata, rebuilt
from .values import Value, as_op, element, elements_of, make_tuple

Read = dict[Instruction, set[int]]
"""Which carries of each loop are read behind it."""


def without_dead_carries(computation: Computation) -> Computation:
    """The computation, each loop with the carries that are read, or itself where all are."""
    for each in reachable([computation]):
        if any(map(is_loop, each.instructions)):
            _, read = _live(each, [each.root])
            if any(len(_needed_carries(loop, carries)) < len(loop.shape.tuple_shapes) for loop, carries in read.items()):
                return rebuilt(computation, _Slimmer)
    return computation


class _Slimmer(Rewriter):
    """Rebuilds a computation and the loops in it. What is made of a region is `made` once, though several may run it."""

    def __init__(self, builder: Builder):
        super().__init__(builder)
        self.made: dict[tuple[Computation, bool, tuple[int, ...] | None], Computation] = {}

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        live, read = _live(computation, [computation.root])
        return self.results(dict.fromkeys([*computation.parameters, *live]), read, arguments)[computation.root]

    def results(self, instructions: Iterable[Instruction], read: Read, arguments: Sequence[Value]) -> dict[Instruction, Value]:
        values: dict[Instruction, Value] = {}
        for inst in instructions:
            if is_loop(inst):
                values[inst] = self.loop(inst, _initial(inst, values), read[inst])
                continue
            operands = [values[o] for o in inst.operands]
            if is_branching(inst):
                values[inst] = self.copy(inst, operands, with_regions(inst, self.branch))
            else:
                values[inst] = self.visit(inst, operands, arguments)
        return values

    def branch(self, region: Region) -> Computation:
        return self._once(region, None)

    def loop(self, loop: Instruction, initial: list[Any], wanted: set[int]) -> Value:
        """The loop with the carries that are read; the others have their first values, or none."""
        kept = _needed_carries(loop, wanted)
        regions = with_regions(loop, lambda region: self._once(region, tuple(kept)))
        carry = make_tuple(self.builder, [as_op(self.builder, initial[k]) for k in kept])
        found = elements_of(self.builder.append(Instruction(
            loop.opcode, carry.shape, [carry.instruction], regions, loop.name, carried_metadata(loop), loop.line, loop.column)))
        assert isinstance(found, list)
        return [found[kept.index(k)] if k in kept else first for k, first in enumerate(initial)]

    def _once(self, region: Region, kept: tuple[int, ...] | None) -> Computation:
        """A branch, or a loop's condition or body over the kept carries."""
        key = region.computation, region.gives_result, kept
        if key not in self.made:
            self.made[key] = rebuilt(region.computation, self._within) if kept is None else self._slim(region, kept)
        return self.made[key]

    def _within(self, builder: Builder) -> _Slimmer:
        inside = type(self)(builder)
        inside.made = self.made
        return inside

    def _slim(self, region: Region, kept: Sequence[int]) -> Computation:
        computation = region.computation
        builder, (parameter,) = Builder(computation.name), computation.parameters
        shapes = parameter.shape.tuple_shapes
        given = builder.parameter(0, parameter.shape.tuple([shapes[k] for k in kept]), parameter.name)
        carry: list[Any] = [element(given, kept.index(k)) if k in kept else None for k in range(len(shapes))]
        root = computation.root
        targets = [root.operands[k] for k in kept] if region.gives_result and root.is_tuple else [root]
        values = self._within(builder).results(*_live(computation, targets), [carry])
        results = [values[t] for t in targets]
        return builder.finish(as_op(builder, results[0] if targets == [root] else results))


def _initial(loop: Instruction, values: dict[Instruction, Value]) -> list[Any]:
    """The carries' first values; None for those that nothing has needed."""
    (operand,) = loop.operands
    if operand.is_tuple:
        return [values.get(part) for part in operand.operands]
    whole = values[operand]
    assert isinstance(whole, list)
    return whole


def _live(computation: Computation, targets: Sequence[Instruction]) -> tuple[list[Instruction], Read]:
    """What the targets and the effects are computed from, through loops by way of the carries that are read only, and which
    those are. Loops are entered last one first, so that all readers of one are known before it."""
    place = {inst: number for number, inst in enumerate(computation.instructions)}
    effects = [i for i in computation.instructions if has_effect(i)]
    read: Read = {i: set() for i in effects if is_loop(i)} | {i: _all_of(i) for i in targets if is_loop(i)}
    waiting = [*targets, *effects]
    found: set[Instruction] = set()
    loops: list[int] = []
    while waiting or loops:
        if not waiting:
            loop = computation.instructions[-heapq.heappop(loops)]
            waiting = [loop.operands[0].operands[k] for k in _needed_carries(loop, read[loop])]
            continue
        inst = waiting.pop()
        if inst in found:
            continue
        found.add(inst)
        for operand in inst.operands:
            if is_loop(operand):
                read[operand] = read.get(operand, set()) | _read_by(inst, operand)
        if _is_open(inst):
            heapq.heappush(loops, -place[inst])
        else:
            waiting += inst.operands
    return [i for i in computation.instructions if i in found], read


def _is_open(inst: Instruction) -> bool:
    """Whether a loop's carries are known one by one."""
    return is_loop(inst) and inst.operands[0].is_tuple


def _all_of(value: Instruction) -> set[int]:
    return set(range(len(value.shape.tuple_shapes)))


def _read_by(reader: Instruction, value: Instruction) -> set[int]:
    """Which elements of a tuple an instruction reads."""
    return {reader.attributes["index"]} if reader.is_element else _all_of(value)


@cached_with_arguments
def _carries_read(computation: Computation, targets: tuple[Instruction, ...]) -> frozenset[int]:
    """Which carries a loop's condition or body needs for these targets and its effects."""
    (carry,) = computation.parameters
    return frozenset().union(*(_read_by(i, carry) for i in _live(computation, targets)[0] if carry in i.operands))


def _needed_carries(loop: Instruction, wanted: set[int]) -> list[int]:
    """The carries that the wanted ones, the condition and effects are computed from."""
    condition, body = loop_of(loop)
    needed = wanted | _carries_read(condition, (condition.root,))
    if not body.root.is_tuple:
        return list(range(len(loop.shape.tuple_shapes)))
    while True:
        more = needed | _carries_read(body, tuple(body.root.operands[k] for k in sorted(needed)))
        if more == needed:
            return sorted(needed)
        needed = more
