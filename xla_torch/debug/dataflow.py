"""What the values of one run were made of, through loops by iteration and through the branches that were taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..hlo.ir import Computation, Instruction
from ..hlo.regions import Region, branches_of, has_regions_of_values, is_branching, is_loop, loop_of, regions
from .steps import Step

Place = tuple[tuple[str, int], ...]


class Node(NamedTuple):
    """An instruction, evaluated in these iterations of the loops around it."""

    instruction: Instruction
    place: Place


class Dataflow:
    """A run of a computation in canonical form: `order` says when each node was evaluated."""

    def __init__(self, computation: Computation):
        self.order: dict[Node, int] = {}
        self._last: dict[tuple[Place, str], int] = {}
        self._owners: dict[Instruction, list[tuple[Instruction, Region]]] = {}
        self._note_owners(computation)

    def see(self, step: Step) -> Node:
        """Note a step of the run, and say which node it is."""
        node = Node(step.instruction, step.place)
        self.order[node] = len(self.order)
        if step.place:
            name, number = step.place[-1]
            self._last[step.place[:-1], name] = max(number, self._last.get((step.place[:-1], name), 0))
        return node

    def sources(self, node: Node) -> Iterator[Node]:
        """The nodes that its value was made of; elements of carries and of results of branches by themselves."""
        instruction, place = node
        if not instruction.is_element:
            yield from (Node(o, place) for o in instruction.operands)
            return
        whole, index = instruction.operands[0], instruction.attributes["index"]
        if is_loop(whole):
            iterations = self._last.get((place, whole.name), 0)
            yield _carried(whole, index, place, iterations)
            yield Node(loop_of(whole).condition.root, (*place, (whole.name, iterations)))
        elif is_branching(whole):
            yield Node(whole.operands[0], place)
            taken = [b.root for b in branches_of(whole) if Node(b.root, place) in self.order]
            yield from (Node(root.operands[index], place) for root in taken)
        elif whole in self._owners:
            yield from self._from_outside(whole, index, place)
        else:
            yield Node(whole, place)

    def _from_outside(self, parameter: Instruction, index: int, place: Place) -> Iterator[Node]:
        for owner, region in self._owners[parameter]:
            if not region.is_repeated:
                yield from (Node(owner.operands[number].operands[index], place) for number in region.arguments)
            elif place and place[-1][0] == owner.name:
                yield _carried(owner, index, place[:-1], place[-1][1])

    def _note_owners(self, computation: Computation) -> None:
        for owner in filter(has_regions_of_values, computation.instructions):
            for region in regions(owner):
                for parameter in region.computation.parameters:
                    self._owners.setdefault(parameter, []).append((owner, region))
                self._note_owners(region.computation)


def _carried(loop: Instruction, index: int, place: Place, iterations: int) -> Node:
    """What the loop carries after so many iterations."""
    if not iterations:
        return Node(loop.operands[0].operands[index], place)
    return Node(loop_of(loop).body.root.operands[index], (*place, (loop.name, iterations - 1)))


def is_wiring(instruction: Instruction) -> bool:
    """Whether it only hands values on: tuples, elements of them, what runs regions of values."""
    return instruction.is_tuple or has_regions_of_values(instruction) or (
        instruction.is_element and (instruction.operands[0].is_parameter or has_regions_of_values(instruction.operands[0])))
