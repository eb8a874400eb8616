"""Loops without the carries that nothing reads: no value behind the loop, not its condition, no carry that is read itself.

Derivatives make such loops: of what a loop computed, the way back may need some, and a tangent that is wanted alone none.
Computations are in plain form (see `inline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..builder import XlaBuilder
from ..hlo.ir import Computation, Instruction, reachable
from ..opcodes.inference import has_effect
from .inline import Replay, Value, as_op, element, elements_of, kept_facts, make_tuple, rebuilt


def without_dead_carries(computation: Computation) -> Computation:
    """The computation, each loop with the carries that are read, or itself where all are."""
    for each in reachable([computation]):
        loops = [i for i in each.instructions if i.opcode == "while"]
        live = dict.fromkeys(_live(each, [each.root])) if loops else {}
        if any(len(_needed_carries(i, _read_of(i, live))) < len(i.shape.tuple_shapes) for i in loops if i in live):
            return rebuilt(computation, _Slimmer)
    return computation


class _Slimmer(Replay):
    """Rebuilds a computation and the loops in it."""

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        wanted = dict.fromkeys([*computation.parameters, *_live(computation, [computation.root])])
        return self.results(list(wanted), arguments)[computation.root]

    def results(self, instructions: Sequence[Instruction], arguments: Sequence[Value]) -> dict[Instruction, Value]:
        values: dict[Instruction, Value] = {}
        for inst in instructions:
            if inst.opcode == "while":
                values[inst] = self.loop(inst, _initial(inst, values), _read_of(inst, instructions))
                continue
            operands = [values[o] for o in inst.operands]
            if inst.opcode == "conditional":
                values[inst] = self.copy(inst, operands, {
                    name: tuple(map(self.region, found)) if isinstance(found, tuple) else self.region(found)
                    for name, found in inst.attributes.items() if found})
            else:
                values[inst] = self.visit(inst, operands, arguments)
        return values

    def region(self, computation: Computation) -> Computation:
        return rebuilt(computation, type(self))

    def loop(self, loop: Instruction, initial: list[Any], wanted: set[int]) -> Value:
        """The loop with the carries that are read; the others have their first values, or none."""
        kept = _needed_carries(loop, wanted)
        regions = {"condition": self._slim(loop.attributes["condition"], kept, whole=False),
                   "body": self._slim(loop.attributes["body"], kept, whole=True)}
        carry = make_tuple(self.builder, [as_op(self.builder, initial[k]) for k in kept])
        found = elements_of(self.builder.append(Instruction(
            "while", carry.shape, [carry.instruction], regions, loop.name, kept_facts(loop), loop.line, loop.column)))
        assert isinstance(found, list)
        return [found[kept.index(k)] if k in kept else first for k, first in enumerate(initial)]

    def _slim(self, computation: Computation, kept: Sequence[int], whole: bool) -> Computation:
        """A loop's condition or body over the kept carries."""
        builder, (parameter,) = XlaBuilder(computation.name), computation.parameters
        shapes = parameter.shape.tuple_shapes
        given = builder.parameter(0, parameter.shape.tuple([shapes[k] for k in kept]), parameter.name)
        carry: list[Any] = [element(given, kept.index(k)) if k in kept else None for k in range(len(shapes))]
        root = computation.root
        targets = [root.operands[k] for k in kept] if whole and root.opcode == "tuple" else [root]
        values = type(self)(builder).results(_live(computation, targets), [carry])
        results = [values[t] for t in targets]
        return builder.finish(as_op(builder, results[0] if targets == [root] else results))


def _initial(loop: Instruction, values: dict[Instruction, Value]) -> list[Any]:
    """The carries' first values; None for those that nothing has needed."""
    (operand,) = loop.operands
    if operand.opcode == "tuple":
        return [values.get(part) for part in operand.operands]
    whole = values[operand]
    assert isinstance(whole, list)
    return whole


def _live(computation: Computation, targets: Iterable[Instruction]) -> list[Instruction]:
    """What the targets and the effects are computed from, through loops by way of the carries that are read only."""
    found: dict[Instruction, None] = {}
    waiting = [*targets, *(i for i in computation.instructions if has_effect(i))]
    while waiting:
        inst = waiting.pop()
        if inst not in found:
            found[inst] = None
            waiting += () if _is_open(inst) else inst.operands
        if not waiting:
            first = [loop.operands[0].operands[k] for loop in found if _is_open(loop)
                     for k in _needed_carries(loop, _read_of(loop, found))]
            waiting = [part for part in first if part not in found]
    return [i for i in computation.instructions if i in found]


def _is_open(inst: Instruction) -> bool:
    """Whether a loop's carries are known one by one."""
    return inst.opcode == "while" and inst.operands[0].opcode == "tuple"


def _read_of(value: Instruction, instructions: Iterable[Instruction]) -> set[int]:
    """Which elements of a tuple some instructions read; all, where one takes it whole or it is the result."""
    readers = [i for i in instructions if value in i.operands]
    if any(i.opcode != "get-tuple-element" for i in readers) or not (readers or value.opcode == "parameter"):
        return set(range(len(value.shape.tuple_shapes)))
    return {i.attributes["index"] for i in readers}


def _needed_carries(loop: Instruction, wanted: set[int]) -> list[int]:
    """The carries that the wanted ones, the condition and effects are computed from."""
    condition, body = loop.attributes["condition"], loop.attributes["body"]
    needed = wanted | _read_of(condition.parameters[0], _live(condition, [condition.root]))
    if body.root.opcode != "tuple":
        return list(range(len(loop.shape.tuple_shapes)))
    while True:
        more = needed | _read_of(body.parameters[0], _live(body, [body.root.operands[k] for k in needed]))
        if more == needed:
            return sorted(needed)
        needed = more
