"""Small ops put together: fusion instructions, each of which a backend may run as one call.

An op on few elements takes a backend the time of its call, whatever it computes. Ops are grouped by how many others stand between
them and the parameters: what lies between two members of a group is a member, so that a group depends on nothing that depends on
it. Constants that members read are written into each fusion, as far as they are one number. What only gives elements other
places, which takes a backend nothing, stays outside for those who read it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..core import tuning
from ..core.shape import Shape
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction
from ..hlo.structure import CONSTANT, GET_TUPLE_ELEMENT, PARAMETER, TUPLE
from ..opcodes import control, convert, internal, movement

Weight = Callable[[Instruction], int | None]
"""How much an instruction counts for; None where it is none of a fusion."""

_Users = Mapping[Instruction, Sequence[Instruction]]

VIEWS = frozenset({movement.broadcast, movement.reshape, movement.slice_, movement.transpose})
"""Ops that give their operand's elements other places."""


def fuse_small(computation: Computation, weight: Weight, least: int) -> Computation:
    """The computation with fusions of instructions that weigh `least` or more together; itself where there is none. Tuples, and
    their elements, weigh nothing of their own and belong to whom they are for, or from."""
    weights = {i: w for i in computation.instructions if not _is_structure(i) and (w := weight(i)) is not None}
    users = _users(computation)
    groups = [part for group in _groups(computation, weights, users) for part in parts_of(group)
              if sum(weights.get(i, 0) for i in part) >= least]
    if not groups:
        return computation
    return _Rebuilt(computation, groups, users).computation


def _users(computation: Computation) -> _Users:
    """Who reads each instruction, as often as it does."""
    users: dict[Instruction, list[Instruction]] = {i: [] for i in computation.instructions}
    for i in computation.instructions:
        for operand in i.operands:
            users[operand].append(i)
    return users


def _is_structure(i: Instruction) -> bool:
    return i.is_parameter or i.is_tuple or i.is_element


def _groups(computation: Computation, weights: Mapping[Instruction, int], users: _Users) -> list[list[Instruction]]:
    """Members by their number of others between them and the parameters."""
    members = _members(computation, weights, users)
    levels: dict[Instruction, int] = {}
    groups: dict[int, list[Instruction]] = {}
    for i in computation.instructions:
        is_member = i in members
        levels[i] = max((levels[o] + (not is_member and o in members) for o in i.operands), default=0)
        if is_member:
            groups.setdefault(levels[i], []).append(i)
    return list(groups.values())


def _members(computation: Computation, weights: Mapping[Instruction, int], users: _Users) -> set[Instruction]:
    """Those of some weight that backends do not fold to constants. What gives a tuple is one with all that take an element of it;
    a tuple with its one reader; a whole number, which others may need on the host, only where no other reads it."""
    known: set[Instruction] = set()
    for i in computation.instructions:
        is_folded = i.operands and i.opcode not in _NEVER_FOLDED and all(o in known for o in i.operands)
        if i.opcode in (CONSTANT, movement.iota) or is_folded:
            known.add(i)
    members: set[Instruction] = set()
    for i in reversed(computation.instructions):
        if i in known and not i.is_tuple:
            continue
        if i.is_element:
            if i.operands[0] in weights:
                members.add(i)
        elif i.is_tuple:
            if i is not computation.root and _have_one_reader([i], users) and users[i][0] in members:
                members.add(i)
        elif i in weights and (i is not computation.root or i.shape.is_array) and all(
                u in members for u in users[i] if i.shape.is_tuple or _may_be_on_host(i.shape)) and _have_one_reader(
                [o for o in i.operands if o.shape.is_tuple], users):
            members.add(i)
    return {i for i in members if not i.is_element or i.operands[0] in members}


_NEVER_FOLDED = frozenset({control.while_, control.conditional, internal.custom_call})


def _have_one_reader(tuples: Sequence[Instruction], users: _Users) -> bool:
    return all(t.is_tuple and len(set(users[t])) == 1 for t in tuples)


def _may_be_on_host(shape: Shape) -> bool:
    return not shape.rank and not shape.element_type.is_floating and not shape.element_type.is_complex


def parts_of(group: Sequence[Instruction], most: float = math.inf,
             size: Callable[[Instruction], int] = lambda i: 1) -> Iterator[list[Instruction]]:
    """A group in parts of bounded size, none of which depends on a later one. Elements stay with their tuple, and a tuple with
    its reader."""
    part, total = list[Instruction](), 0
    later: dict[Instruction, list[Instruction]] = {}
    for i in group:
        if i.is_element:
            later.setdefault(i.operands[0], []).append(i)
    for i in group:
        if i.is_element or i.is_tuple:
            continue
        if part and total + size(i) > most:
            yield part
            part, total = [], 0
        total += size(i)
        part += [*dict.fromkeys(o for o in i.operands if o.is_tuple), i, *later.get(i, ())]
    yield part


def is_written_inside(instruction: Instruction) -> bool:
    """Whether a fusion has its own copy of what it reads: a constant that is not large, or the places of an array."""
    if instruction.opcode == CONSTANT:
        shape = instruction.shape
        return shape.is_array and shape.is_static and shape.element_count <= tuning.BUNDLED_UP_TO
    if instruction.opcode in (movement.broadcast, movement.reshape, convert.convert):
        operand = instruction.operands[0]
        return instruction.shape.is_static and operand.shape.element_count == 1 and is_written_inside(operand)
    return instruction.opcode == movement.iota and instruction.shape.is_static


class _Rebuilt:
    """A computation with groups of its instructions as fusions. Each comes as late as who reads it allows; all else keeps its
    order, but for what a fusion reads."""

    def __init__(self, computation: Computation, groups: Sequence[list[Instruction]], users: _Users):
        self.of = {i: number for number, group in enumerate(groups) for i in group}
        self.groups, self.users, self.root = groups, users, computation.root
        self.inputs = [self._inputs(number) for number in range(len(groups))]
        self.built: list[Instruction] = []
        self.now: dict[Instruction, Instruction] = {}
        for i in computation.instructions:
            if i not in self.of or i is computation.root or has_effect(i):  # perhaps nothing reads a fusion of checks
                self._make(i)
        self.computation = Computation(computation.name, self.built, self.now[computation.root], computation.execution_thread)
        self.computation.is_canonical = computation.is_canonical

    def _make(self, wanted: Instruction) -> None:
        """Append an instruction, or its fusion, behind what it needs. No recursion: chains of fusions may be long."""
        stack = [wanted]
        while stack:
            i = stack[-1]
            if i in self.now:
                stack.pop()
                continue
            number = self.of.get(i)
            missing = [o for o in (i.operands if number is None else self.inputs[number]) if o not in self.now]
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            if number is None:
                self._copy(i)
            else:
                self._fuse(number)

    def _copy(self, i: Instruction) -> None:
        operands = [self.now[o] for o in i.operands]
        same = all(new is old for new, old in zip(operands, i.operands, strict=True))
        self.now[i] = i if same else Instruction(i.opcode, i.shape, operands, i.attributes, i.name, i.common, i.line, i.column)
        self.built.append(self.now[i])

    def _inputs(self, number: int) -> list[Instruction]:
        """What a fusion reads that is not in it, each once."""
        return list(dict.fromkeys(o for i in self.groups[number] for o in i.operands
                                  if self.of.get(o) != number and not is_written_inside(o)))

    def _fuse(self, number: int) -> None:
        outside = [i for i in self.groups[number] if i.shape.is_array
                   and (i is self.root or any(self.of.get(u) != number for u in self.users[i]))]
        views = [self._views_of(i, number) for i in outside]
        results = list(dict.fromkeys(chain[0] for chain in views if self.of.get(chain[0]) == number))
        group = _needed(self.groups[number], results)
        read = {operand for i in group for operand in i.operands}
        inputs = [i for i in self.inputs[number] if i in read]
        region = region_of(f"small_fusion_{number}", group, inputs, results)
        fusion = Instruction(control.fusion, region.root.shape, [self.now[i] for i in inputs], {"kind": "kLoop", "calls": region},
                             region.name)
        self.built.append(fusion)
        for k, i in enumerate(results):
            self.now[i] = Instruction(GET_TUPLE_ELEMENT, i.shape, [fusion], {"index": k}, i.name, i.common, i.line, i.column)
            self.built.append(self.now[i])
        for i in dict.fromkeys(view for chain in views for view in chain[1:]):
            self._copy(i)
        for i in self.groups[number]:
            self.now.setdefault(i, fusion)

    def _views_of(self, i: Instruction, number: int) -> list[Instruction]:
        """An instruction's chain of views in a fusion, behind what they are views of."""
        chain = [i]
        while chain[-1].opcode in VIEWS and self.of.get(chain[-1]) == number:
            chain.append(chain[-1].operands[0])
        return chain[::-1]


def _needed(group: Sequence[Instruction], results: Sequence[Instruction]) -> list[Instruction]:
    """Those of a group that have effects, or that its results depend on."""
    needed = {*results, *filter(has_effect, group)}
    for i in reversed(group):
        if i in needed:
            needed.update(i.operands)
    return [i for i in group if i in needed]


def region_of(name: str, group: Sequence[Instruction], inputs: Sequence[Instruction],
              results: Sequence[Instruction]) -> Computation:
    """A computation of instructions: of the values of `inputs` it gives a tuple of those of `results`."""
    inside: dict[Instruction, Instruction] = {}
    built: list[Instruction] = []

    def put(old: Instruction, new: Instruction) -> None:
        inside[old] = new
        built.append(new)

    def clone(old: Instruction) -> None:
        for operand in old.operands:
            if operand not in inside:
                clone(operand)
        operands = [inside[o] for o in old.operands]
        put(old, Instruction(old.opcode, old.shape, operands, old.attributes, old.name, old.common, old.line, old.column))

    for k, i in enumerate(inputs):
        put(i, Instruction(PARAMETER, i.shape, (), {"parameter_number": k}, f"p{k}"))
    for i in group:
        clone(i)
    root = Instruction(TUPLE, Shape.tuple([i.shape for i in results]), [inside[i] for i in results], {}, "results")
    return Computation(name, [*built, root], root)
