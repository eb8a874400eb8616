"""What can be known of a loop before it runs: its counter, its trip count, and the carries it passes through unchanged.

Nothing is rewritten here. A value is followed to where it comes from through tuples, copies, barriers, calls and fusions as
they stand, so that unoptimised text and XLA's fused dumps are understood alike. XLA's own ``known_trip_count`` is compared
with what was found and never believed by itself.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Mapping

from ..core.sizes import integer
from ..core.types import PrimitiveType
from ..hlo.inference import forwarded
from ..hlo.ir import Computation, Instruction, cached_with_arguments
from ..hlo.literals.literal import SizeLiteral
from ..hlo.regions import callee, is_call, is_loop, loop_of
from ..hlo.structure import CONSTANT
from ..opcodes import comparison, elementwise
from .integer_rules import INTEGERS


@dataclasses.dataclass(frozen=True, slots=True)
class CountedLoop:
    """A loop that runs `trip_count` times while element `index` of its carry counts from `start` in steps of `step`."""

    index: int
    start: int
    step: int
    trip_count: int
    invariants: frozenset[int]
    """Elements of the carry that the body passes through unchanged."""

    @property
    def last(self) -> int:
        """The counter's value in the last iteration."""
        return self.start + self.step * (self.trip_count - 1)


def counted_loop(loop: Instruction) -> CountedLoop | None:
    """The loop's counter and trip count, or None where the condition is not a comparison of a counter with a constant.

    The carry must be a tuple. The counter is an integer element that the body changes by a constant; the bound and the
    step may be constants or invariant carries that start as constants. A counter that would wrap around before the
    condition fails is not counted.
    """
    if not is_loop(loop) or not loop.shape.is_tuple:
        return None
    facts = _Facts(loop)
    found = facts.comparison()
    if found is None:
        return None
    index, direction, bound = found
    element_type = loop.shape.tuple_shapes[index].element_type
    start, step = facts.initial(index), facts.step(index)
    if start is None or step is None:
        return None
    if element_type.is_unsigned and step > _range(element_type)[1] // 2:
        step -= 1 << element_type.bits  # adding 2**bits - 1 to an unsigned counter is how it counts down
    count = _trip_count(start, step, bound, direction, element_type)
    if count is None or _announced_trip_count(loop) not in (None, count):
        return None
    return CountedLoop(index, start, step, count, facts.invariants)


def invariant_carries(loop: Instruction) -> frozenset[int]:
    """Elements of a while's tuple carry that its body passes through unchanged (also where it is no counted loop)."""
    return _Facts(loop).invariants


def counters(loop: Instruction) -> dict[int, int]:
    """Elements of a while's tuple carry that its body changes by a known integer, and by which: the loop's counters, also
    where its trip count is not known."""
    if not is_loop(loop) or not loop.shape.is_tuple:
        return {}
    facts = _Facts(loop)
    steps = {k: facts.step(k) for k, shape in enumerate(loop.shape.tuple_shapes)
             if shape.is_scalar and shape.element_type.is_integral}
    return {k: step for k, step in steps.items() if step}


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """``carry[index] <direction> bound`` must hold for a loop to go on. The bound is a number, or else element
    `bound_index` of the carry, which never changes, or neither; `at_most` is the largest value that is known for it."""

    index: int
    direction: str
    bound: int | None
    bound_index: int | None
    at_most: int | None


def limits(loop: Instruction) -> tuple[list[Limit], bool]:
    """The comparisons of carries with what never changes that a while's condition is a conjunction of, and whether there
    is nothing else in it."""
    if not is_loop(loop) or not loop.shape.is_tuple:
        return [], False
    facts = _Facts(loop)
    parts = [facts.limit(term) for term in _conjuncts(_Value(facts.condition.root))]
    return [part for part in parts if part is not None], None not in parts


def trip_bound(loop: Instruction) -> int | None:
    """The most iterations that a while can run, where its condition says so."""
    facts, steps, found = _Facts(loop), counters(loop), []
    for limit in limits(loop)[0]:
        start, step = facts.initial(limit.index), steps.get(limit.index)
        upwards = limit.direction in ("LT", "LE")
        if start is None or step is None or limit.at_most is None or limit.direction == "NE" or (
                not upwards and limit.bound is None):
            continue
        count = _trip_count(start, step, limit.at_most, limit.direction, loop.shape.tuple_shapes[limit.index].element_type)
        if count is not None:
            found.append(count)
    return min(found, default=None)


# -------------------------------------------------------------------------------------------- following values


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    """An instruction as seen from one call: `arguments` are the callee's parameters, None at the outermost level."""

    instruction: Instruction
    arguments: tuple[_Value, ...] | None = None

    def operand(self, number: int) -> _Value:
        return _Value(self.instruction.operands[number], self.arguments)


def _origin(value: _Value) -> _Value:
    """Where the value is computed: copies, barriers, calls, and elements taken out of tuples are looked through."""
    while True:
        instruction = value.instruction
        if forwarded(instruction) is not None:
            value = value.operand(0)
        elif is_call(instruction):
            value = _inside(value)
        elif instruction.is_parameter and value.arguments is not None:
            value = value.arguments[instruction.attributes["parameter_number"]]
        elif instruction.is_element:
            whole, index = _origin(value.operand(0)), instruction.attributes["index"]
            element = _element_operand(whole, index)
            if element is None:
                return value
            value = element
        else:
            return value


def _inside(value: _Value) -> _Value:
    """The root of the computation that a call runs, seen from that call."""
    return _Value(callee(value.instruction).root, tuple(value.operand(k) for k in range(len(value.instruction.operands))))


def _element(whole: _Value, index: int) -> _Value | None:
    """Where element `index` of a tuple value comes from, or None where the tuple itself hides it."""
    element = _element_operand(_origin(whole), index)
    return None if element is None else _origin(element)


def _element_operand(whole: _Value, index: int) -> _Value | None:
    """The operand that element `index` of a tuple is: of a `tuple`, or of a loop that passes this element through."""
    instruction = whole.instruction
    if instruction.is_tuple:
        return whole.operand(index)
    if is_loop(instruction) and instruction.shape.is_tuple and _passes(loop_of(instruction).body, index):
        return _element_operand(_origin(whole.operand(0)), index)
    return None


@cached_with_arguments
def _passes(body: Computation, index: int) -> bool:
    """Whether a loop's body hands element `index` of its parameter on unchanged."""
    element = _element(_Value(body.root), index)
    return element is not None and _carry_index(element) == index


# ------------------------------------------------------------------------------------------- what a loop does


class _Facts:
    """Questions about one while whose carry is a tuple."""

    def __init__(self, loop: Instruction):
        self.condition, self.body = loop_of(loop)
        self.init = _Value(loop.operands[0])
        self.next = _Value(self.body.root)
        self.invariants = frozenset(k for k in range(len(loop.shape.tuple_shapes)) if _passes(self.body, k))

    def initial(self, index: int) -> int | None:
        """Element `index` of the initial carry, where it is a known integer."""
        element = _element(self.init, index)
        return None if element is None else _evaluate(element, lambda _: None)

    def comparison(self) -> tuple[int, str, int] | None:
        """The condition as (carry index, direction, bound), or None where it is anything else."""
        root = _origin(_Value(self.condition.root))
        if root.instruction.opcode != comparison.compare:
            return None
        direction = root.instruction.attributes["direction"]
        for side, other, word in ((0, 1, direction), (1, 0, _MIRRORED[direction])):
            index = _carry_index(_origin(root.operand(side)))
            bound = self._known(root.operand(other))
            if index is not None and index not in self.invariants and bound is not None:
                return index, word, bound
        return None

    def limit(self, term: _Value) -> Limit | None:
        """A term of the condition as a limit, or None where it is anything else."""
        if term.instruction.opcode != comparison.compare:
            return None
        direction = term.instruction.attributes["direction"]
        for side, other, word in ((0, 1, direction), (1, 0, _MIRRORED[direction])):
            index, bound = _carry_index(_origin(term.operand(side))), _origin(term.operand(other))
            if index is None or index in self.invariants or not bound.instruction.shape.element_type.is_integral:
                continue
            at, known = _carry_index(bound), self._known(bound)
            if known is not None or at in self.invariants:
                return Limit(index, word, known, None if known is not None else at, self._at_most(bound))
            if self._at_most(bound) is not None:
                return Limit(index, word, None, None, self._at_most(bound))
        return None

    def _at_most(self, value: _Value) -> int | None:
        """The largest value that is known for an integer: a minimum is at most each of its operands."""
        origin = _origin(value)
        known = self._known(origin)
        if known is None and origin.instruction.opcode == elementwise.minimum:
            terms = [self._known(origin.operand(k)) for k in range(2)]
            return min((t for t in terms if t is not None), default=None)
        return known

    def step(self, index: int) -> int | None:
        """What the body adds to carry `index`, where that is a known integer."""
        root = _element(self.next, index)
        if root is None or root.instruction.opcode not in (elementwise.add, elementwise.subtract):
            return None
        left, right = _origin(root.operand(0)), _origin(root.operand(1))
        if root.instruction.opcode == elementwise.subtract:
            amount = self._known(right) if _carry_index(left) == index else None
            return None if amount is None else -amount
        for counter, amount in ((left, right), (right, left)):
            if _carry_index(counter) == index:
                return self._known(amount)
        return None

    def _known(self, value: _Value) -> int | None:
        """A value inside the loop that is the same known integer in every iteration."""
        return _evaluate(_origin(value), lambda index: self.initial(index) if index in self.invariants else None)


def _conjuncts(value: _Value) -> list[_Value]:
    """The terms of a conjunction."""
    origin = _origin(value)
    if origin.instruction.opcode != elementwise.and_:
        return [origin]
    return [term for k in range(2) for term in _conjuncts(origin.operand(k))]


def _carry_index(origin: _Value) -> int | None:
    """k where the value is element k of the loop's own parameter."""
    instruction = origin.instruction
    if not instruction.is_element:
        return None
    whole = _origin(origin.operand(0))
    is_carry = whole.instruction.is_parameter and whole.arguments is None
    return instruction.attributes["index"] if is_carry else None


def _evaluate(origin: _Value, carry: Callable[[int], int | None], depth: int = 8) -> int | None:
    """The scalar integer that a value is known to have; `carry` answers for elements of the loop's parameter."""
    instruction = origin.instruction
    shape = instruction.shape
    if not shape.is_scalar or not shape.element_type.is_integral or not depth:
        return None
    if instruction.opcode == CONSTANT:
        literal = instruction.attributes["literal"]
        if isinstance(literal, SizeLiteral):
            return integer(literal.size)
        return None if literal.elided else int(literal.array)
    if (rule := INTEGERS.get(instruction.opcode)) is not None:
        terms = [_evaluate(_origin(origin.operand(k)), carry, depth - 1) for k in range(len(instruction.operands))]
        known = [t for t in terms if t is not None]
        return None if len(known) < len(terms) else _wrap(rule(*known), shape.element_type)
    index = _carry_index(origin)
    return None if index is None else carry(index)


_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _range(element_type: PrimitiveType) -> tuple[int, int]:
    bits = element_type.bits
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if element_type.is_signed else (0, (1 << bits) - 1)


def _wrap(number: int, element_type: PrimitiveType) -> int:
    low, high = _range(element_type)
    if low <= number <= high:
        return number
    return (number - low) % (high - low + 1) + low


def _trip_count(start: int, step: int, bound: int, direction: str, element_type: PrimitiveType) -> int | None:
    """How often ``i = start; while i <direction> bound: i += step`` runs; None for ever, or until it wraps around."""
    if not _HOLDS[direction](start, bound):
        return 0
    if step == 0:
        return None
    if direction == "EQ":
        count = 1
    elif direction == "NE":
        if (bound - start) % step or (bound - start) // step < 0:
            return None
        count = (bound - start) // step
    else:
        upwards = direction in ("LT", "LE")
        if upwards != (step > 0):
            return None
        distance = abs(bound - start) + (direction in ("LE", "GE"))
        count = -(-distance // abs(step))
    low, high = _range(element_type)
    return count if low <= start + count * step <= high else None


_HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne}


def _announced_trip_count(loop: Instruction) -> int | None:
    """XLA's ``known_trip_count`` in the backend config, if it is written there."""
    found = re.search(r'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"?(\d+)', str(loop.common.get("backend_config", "")))
    return int(found.group(1)) if found else None
