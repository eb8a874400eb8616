"""Which instruction of one program is which of another, and which has none.

Instructions are counterparts where they are the same op of counterparts, beginning at the parameters. What is left has the same
name, or the same op_name, with the same opcode and sizes; that is only assumed, as optimisers give op_names on to what they make
of an op, and `settle` gives it up where operands or users contradict it. What depends on no parameter (constants,
and what is made of them) is compared where it is used: programs share constants as they like. Operands that are converted to
another element type are taken for what was converted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction
from ..hlo.literals.literal import Literal
from ..hlo.regions import has_regions_of_values, is_loop, regions
from ..hlo.schema import Trait
from ..opcodes.convert import convert

FEW = 64
"""How many numbers of a constant are compared as numbers, whatever their element type; those of larger ones by their bytes."""


class Counterparts:
    """Those of two computations in canonical form, and of the loops and branches inside of them.

    `of` says which instruction of `a` one of `b` is; `results` are the leaves of both results, in their order."""

    def __init__(self, a: Computation, b: Computation):
        self.of: dict[Instruction, Instruction] = {}
        self._assumed: dict[Instruction, None] = {}  # in the order of evaluation
        self._used_by: dict[Instruction, Instruction] = {}
        self._written: dict[Instruction, int] = {}  # what depends on no parameter, by what it says
        self._meanings: dict[Hashable, int] = {}
        self._elements: dict[Instruction, list[int | None]] = {}
        self._first: dict[Instruction, Instruction] = {}  # of equal ones of `a`, which the optimiser may have made one
        self.results = list(zip(leaves_of(a.root), leaves_of(b.root), strict=True))
        self._match(a, b)
        taken = set(self.of.values())
        for theirs, mine in (*self.results, (a.root, b.root)):
            if mine not in self.of and theirs not in taken:
                self._pair(theirs, mine)

    def settle(self, differing: Collection[Instruction]) -> None:
        """Give up what was only assumed of these instructions of `b`, and does not fit those of operands and users."""
        users = _users(self.of), _users(set(self.of.values()))
        back = {theirs: mine for mine, theirs in self.of.items()}
        claimed = dict(self.of)
        sure = {mine for theirs, mine in self.results if self.of.get(mine) is theirs}
        for mine in self._assumed:
            if mine in differing and mine not in sure and not (self._fits(mine, back) and _is_used_alike(mine, claimed, users)):
                del back[self.of.pop(mine)]
        for mine, user in self._used_by.items():
            if user not in self.of:
                self.of.pop(mine, None)

    # ------------------------------------------------------------------------------------------------ matching

    def _match(self, a: Computation, b: Computation) -> None:
        """Note the counterparts of two computations, whose parameters are each other's."""
        for computation in (a, b):
            self._note_written(computation)
        self.of.update(zip(b.parameters, a.parameters, strict=False))
        left: dict[Hashable, list[Instruction]] = {}
        for i in self._moving(a):
            same = left.setdefault(self._structure(i, lambda o: o), [])
            same.append(i)
            self._first[i] = same[0] if is_pure(i) else i
        mine, taken = list(self._moving(b)), set[Instruction]()
        for i in mine:
            self._by_structure(i, left, taken)
        rest = [i for i in mine if i not in self.of]
        others = [i for i in self._moving(a) if i not in taken]
        named = [_alike(key, others, rest) for key in (_by_name, _by_op_name)]
        for i in rest:
            self._by_structure(i, left, taken)
            found = next((n[i] for n in named if i in n and n[i] not in taken), None)
            if i not in self.of and found is not None:
                taken.add(found)
                self._pair(found, i)
            if i in self.of:
                self._assumed[i] = None
        for i in (i for i in mine if i in self.of and has_regions_of_values(i)):
            for x, y in zip(regions(self.of[i]), regions(i), strict=False):
                if x.role is y.role:
                    self._match(x.computation, y.computation)

    def _by_structure(self, mine: Instruction, left: Mapping[Hashable, list[Instruction]], taken: set[Instruction]) -> None:
        if not all(o in self.of or o in self._written for o in map(_converted, mine.operands)):
            return
        same = left.get(self._structure(mine, lambda o: self.of.get(o, o)))
        if same:
            found = min(same, key=lambda i: (i in taken, i.name != mine.name))
            taken.add(found)
            self._pair(found, mine)

    def _pair(self, theirs: Instruction, mine: Instruction) -> None:
        self.of[mine] = theirs
        if has_regions_of_values(mine):
            for y in regions(mine):
                for operand, parameter in zip(y.arguments, y.computation.parameters, strict=False):
                    if operand < len(theirs.operands):
                        self._elements[parameter] = self._carried(theirs.operands[operand], mine.operands[operand])
                        if is_loop(mine):
                            self._elements[mine] = self._elements[parameter]
        # The operands of a quotient, and of the product that XLA makes of it, say different things.
        written = [(theirs, mine)] if theirs.opcode == mine.opcode else []
        while written:  # what is made of constants may be deep
            theirs, user = written.pop()
            for x, y in zip(self._in_order(theirs), self._in_order(user), strict=False):
                if x in self._written and y in self._written and y not in self.of and _kind(x) == _kind(y):
                    self.of[y], self._used_by[y] = x, user
                    written.append((x, y))

    def _carried(self, theirs: Instruction, mine: Instruction) -> list[int | None]:
        """Which element of the tuple `theirs` each of `mine` is: the same, of counterparts, else another, else what is left."""
        free = dict.fromkeys(range(len(theirs.operands)))
        found: list[int | None] = [None] * len(mine.operands)
        ways: list[Callable[[int, int], bool]] = [
            lambda m, n: m == n and self._is_same(theirs.operands[m], mine.operands[n]),
            lambda m, n: self._is_same(theirs.operands[m], mine.operands[n]),
            lambda m, n: m == n and _kind(theirs.operands[m])[1] == _kind(mine.operands[n])[1]]
        for way in ways:
            for n in [n for n, known in enumerate(found) if known is None]:
                known = next((m for m in free if way(m, n)), None)
                if known is not None:
                    found[n] = known
                    free.pop(known)
        return found

    def _is_same(self, theirs: Instruction, mine: Instruction) -> bool:
        if theirs in self._written or mine in self._written:
            return self._written.get(theirs, -1) == self._written.get(mine, -2)
        found = self.of.get(mine)
        return found is not None and self._first.get(found, found) is self._first.get(theirs, theirs)

    # -------------------------------------------------------------------------------------- what an instruction is

    def _note_written(self, computation: Computation) -> None:
        for i in computation.instructions:
            if not i.is_parameter and is_pure(i) and not has_regions_of_values(i) and all(o in self._written for o in i.operands):
                stated = _stated_of(i), tuple(self._written[o] for o in i.operands)
                self._written[i] = self._meanings.setdefault(stated, len(self._meanings))

    def _moving(self, computation: Computation) -> Iterator[Instruction]:
        return (i for i in computation.instructions if i not in self._written and not i.is_parameter)

    def _structure(self, instruction: Instruction, of: Callable[[Instruction], Instruction]) -> Hashable:
        """What an instruction is, but for its element type: opcode, sizes, attributes, and the operands of the first program."""
        operands = [("written", self._written[o]) if o in self._written else ("of", id(self._first.get(of(o), of(o))))
                    for o in map(_converted, instruction.operands)]
        if instruction.has(Trait.COMMUTATIVE):
            operands.sort()
        elements = self._elements.get(instruction.operands[0]) if instruction.is_element else None
        if elements is not None:
            number = elements[instruction.attributes["index"]]
            return instruction.opcode, id(instruction) if number is None else f"index {number}", tuple(operands)
        if instruction.is_element:
            return instruction.opcode, f"index {instruction.attributes['index']}", tuple(operands)
        return _stated_of(instruction), tuple(operands)

    def _in_order(self, instruction: Instruction) -> Sequence[Instruction]:
        """The operands; where their order means nothing, with those behind that depend on no parameter."""
        if not instruction.has(Trait.COMMUTATIVE):
            return instruction.operands
        return sorted(instruction.operands, key=self._written.__contains__)

    def _fits(self, mine: Instruction, back: Mapping[Instruction, Instruction]) -> bool:
        """Whether operands do not contradict: they are counterparts, or neither has one."""
        def fits(x: Instruction, y: Instruction) -> bool:
            x, y = _converted(x), _converted(y)
            if x in self._written or y in self._written:
                return x in self._written and y in self._written
            return self._is_same(x, y) if y in self.of else x not in back

        x, y = self._in_order(self.of[mine]), self._in_order(mine)
        if len(x) != len(y):
            return False
        ways = (x, x[::-1]) if mine.has(Trait.COMMUTATIVE) else (x,)
        return any(all(map(fits, way, y)) for way in ways)


def _converted(instruction: Instruction) -> Instruction:
    """What is converted to another element type, or the instruction itself."""
    while instruction.opcode == convert:
        instruction = instruction.operands[0]
    return instruction


def _is_used_alike(mine: Instruction, of: Mapping[Instruction, Instruction],
                   users: tuple[Mapping[Instruction, list[Instruction]], Mapping[Instruction, list[Instruction]]]) -> bool:
    """Whether users do not contradict: one of them has a counterpart that uses the counterpart, or none has one."""
    theirs, known = of[mine], users[0].get(mine, ())
    if not known:
        return not users[1].get(theirs)

    def alike(user: Instruction) -> bool:
        other = of[user]
        if user.has(Trait.COMMUTATIVE):
            return theirs in other.operands
        return any(x is theirs and y is mine for x, y in zip(other.operands, user.operands, strict=False))

    return any(map(alike, known))


def _users(instructions: Collection[Instruction]) -> dict[Instruction, list[Instruction]]:
    found: dict[Instruction, list[Instruction]] = {}
    for user in instructions:
        for operand in user.operands:
            found.setdefault(operand, []).append(user)
    return found


def _alike(key: Callable[[Instruction], Hashable], a: Sequence[Instruction],
           b: Sequence[Instruction]) -> dict[Instruction, Instruction]:
    """Instructions of `b` with those of `a` of the same key, in their order where there are as many on both sides."""
    sides: tuple[dict[Hashable, list[Instruction]], ...] = ({}, {})
    for side, instructions in zip(sides, (a, b), strict=True):
        for i in instructions:
            stated = key(i)
            if stated is not None:
                side.setdefault(stated, []).append(i)
    return {y: x for stated, mine in sides[1].items() if len(mine) == len(sides[0].get(stated, ()))
            for x, y in zip(sides[0][stated], mine, strict=True)}


def _by_name(i: Instruction) -> Hashable:
    return (i.name, i.op_name, _kind(i)) if i.name else None


def _by_op_name(i: Instruction) -> Hashable:
    stated = i.op_name or i.name.partition(".")[0]  # XLA numbers names anew, and keeps what stands before the number
    return (stated, _kind(i)) if stated else None


def _kind(instruction: Instruction) -> tuple[str, Hashable]:
    """Opcode and sizes; not those of a loop, to whose carry an optimiser adds, and from which it takes."""
    return instruction.opcode, None if is_loop(instruction) else tuple(leaf.dimensions for leaf in instruction.shape.leaves())


def _stated_of(instruction: Instruction) -> Hashable:
    return _kind(instruction), tuple(sorted((name, _stated(value)) for name, value in instruction.attributes.items()))


def _stated(value: Any) -> str:
    if isinstance(value, Computation):
        return f"{len(value.parameters)} {value.root.opcode}"
    if isinstance(value, tuple):
        return ",".join(map(_stated, value))
    if not isinstance(value, Literal) or isinstance(value.value, tuple):
        return str(value)
    array = value.array
    return repr(array.reshape(-1).tolist()) if array.size <= FEW else hashlib.sha256(array.tobytes()).hexdigest()


def leaves_of(root: Instruction) -> list[Instruction]:
    """What makes each array of a result."""
    if root.is_tuple:
        return [leaf for o in root.operands for leaf in leaves_of(o)]
    return [root for leaf in root.shape.leaves() if leaf.is_array]
