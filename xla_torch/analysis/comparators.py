"""What a comparator orders by, read off its instructions: the keys of a sort.

Pure functions of the IR. They answer None for what they do not know; the callers then evaluate the region itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from ..core.types import PrimitiveType
from ..hlo.inference import origin
from ..hlo.ir import Computation, Instruction
from ..hlo.structure import CONSTANT, PARAMETER
from ..opcodes import comparison, elementwise


@dataclasses.dataclass(frozen=True, eq=False)
class SortKey:
    """One key of a lexicographic comparator: elements are ordered by an expression of their own values.

    `expression` is written over the comparator's left-hand parameters (number 2k stands for operand k). Where it is just
    operand k, `operand` is k; `canonical` says that -0 and NaNs are made +0 and one positive NaN before comparing.
    `total_order` is the comparison's type.
    """

    expression: Instruction
    descending: bool
    total_order: bool
    operand: int | None
    canonical: bool

    @property
    def element_type(self) -> PrimitiveType:
        return self.expression.shape.element_type

    @property
    def operands(self) -> tuple[int, ...]:
        """The operands of the sort that the expression is made of."""
        nodes = _postorder(self.expression)
        return tuple(sorted({n.attributes["parameter_number"] // 2 for n in nodes if n.is_parameter}))

    def computation(self) -> Computation:
        """The expression as a computation of one scalar for each of `operands`."""
        place = {operand: position for position, operand in enumerate(self.operands)}
        rebuilt: dict[Instruction, Instruction] = {}
        for instruction in _postorder(self.expression):
            attributes = dict(instruction.attributes)
            if instruction.is_parameter:
                attributes["parameter_number"] = place[attributes["parameter_number"] // 2]
            operands = [rebuilt[o] for o in instruction.operands]
            rebuilt[instruction] = Instruction(instruction.opcode, instruction.shape, operands, attributes, instruction.name)
        return Computation("sort_key", rebuilt.values(), rebuilt[self.expression])


def comparator_keys(computation: Computation) -> tuple[SortKey, ...] | None:
    """The keys, first one most significant, of a comparator that orders lexicographically; None for any other.

    Understood are comparisons LT and GT of one expression of the left with the same expression of the right element (either
    way round), joined as ``lt0 or (eq0 and rest)``, as ``select(eq0, rest, lt0)``, or as the stable-sort form
    ``select(less(a, b) == less(b, a), rest, less(a, b))``. Calls in it must have been opened.
    """
    return _Comparator().keys(computation.root)


def compared_in_order(computation: Computation) -> str:
    """How C writes a computation that does nothing but compare its first parameter with its second, as numbers: ``>=``. Empty for
    any other. Calls in it must have been opened."""
    root = origin(computation.root)
    if root.opcode != comparison.compare or _is_total_order(root):
        return ""
    left, right = (o.attributes.get("parameter_number") if o.is_parameter else None for o in map(origin, root.operands))
    written = _IN_C if (left, right) == (0, 1) else _MIRRORED if (left, right) == (1, 0) else {}
    return written.get(root.attributes["direction"], "")


_IN_C = {"GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_MIRRORED = {"GE": "<=", "GT": "<", "LE": ">=", "LT": ">"}


def is_of_an_order(computation: Computation, but_for_nan: bool = False) -> bool:
    """Whether a choice between two elements compares one expression of both in an order that all its values have: choices in a
    tree are then those made one after another. Calls in it must have been opened.

    NaN has no place in the order of floats, but by TOTALORDER. `but_for_nan` asks for elements that are none.
    """
    root = origin(computation.root)
    if root.opcode != comparison.compare or root.attributes["direction"] not in ("LT", "LE", "GT", "GE"):
        return False
    reader, element_type = _Comparator(), root.operands[0].shape.element_type
    (left, left_sides), (right, right_sides) = map(reader.expression, root.operands)
    if left != right or {left_sides, right_sides} != {frozenset({0}), frozenset({1})}:
        return False
    if element_type.is_integral or element_type.is_pred or _is_total_order(root):
        return True
    return but_for_nan and element_type.is_floating and all(origin(o).is_parameter for o in root.operands)


class _Comparator:
    """Reads one comparator. Expressions get a number by structure, in which left and right parameters look alike."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._facts: dict[Instruction, tuple[int, frozenset[int]]] = {}

    def keys(self, root: Instruction) -> tuple[SortKey, ...] | None:
        root = origin(root)
        if root.opcode == comparison.compare:
            key = self._key(root)
            return None if key is None else (key,)
        if root.opcode == elementwise.or_:
            for less, rest in (root.operands, root.operands[::-1]):
                rest = origin(rest)
                if rest.opcode == elementwise.and_:
                    for equal, inner in (rest.operands, rest.operands[::-1]):
                        found = self._joined(less, equal, inner)
                        if found is not None:
                            return found
            return None
        if root.opcode == comparison.select:
            test, on_true, on_false = root.operands
            return self._joined(on_false, test, on_true) or self._joined(on_true, test, on_false, "NE")
        return None

    def _joined(self, less: Instruction, equal: Instruction, rest: Instruction,
                direction: str = "EQ") -> tuple[SortKey, ...] | None:
        """The keys of `less`, then, where `equal` says that these are equal, of `rest`."""
        equal, less = origin(equal), origin(less)
        if equal.opcode != comparison.compare or equal.attributes["direction"] != direction:
            return None
        first = self.keys(less)
        if first is None or not (self._same_key(first, equal) or self._is_tie(less, equal)):
            return None
        second = self.keys(rest)
        return None if second is None else first + second

    def _same_key(self, keys: tuple[SortKey, ...], equal: Instruction) -> bool:
        """`equal` compares for equality just what the one key compares for order."""
        (left, left_sides), (right, right_sides) = map(self.expression, equal.operands)
        return (len(keys) == 1 and left == right and {*left_sides, *right_sides} == {0, 1}
                and left == self.expression(keys[0].expression)[0] and _is_total_order(equal) == keys[0].total_order)

    def _is_tie(self, less: Instruction, equal: Instruction) -> bool:
        """`equal` asks whether `less` of (a, b) and of (b, a) agree."""
        one, other = (origin(o) for o in equal.operands)
        if other is less:
            one, other = other, one
        if one is not less or other.opcode != comparison.compare or less.opcode != comparison.compare:
            return False
        if one.attributes != other.attributes:
            return False
        a, b = (self.expression(o) for o in less.operands)
        c, d = (self.expression(o) for o in other.operands)
        return (a, b) == (d, c)

    def _key(self, compare: Instruction) -> SortKey | None:
        if compare.attributes["direction"] not in ("LT", "GT"):
            return None
        (left, left_sides), (right, right_sides) = map(self.expression, compare.operands)
        if left != right or len(left_sides) != 1 or len(right_sides) != 1 or left_sides == right_sides:
            return None
        swapped = 1 in left_sides
        expression = origin(compare.operands[1 if swapped else 0])
        operand, canonical = _canonicalised(expression)
        return SortKey(expression, (compare.attributes["direction"] == "GT") != swapped, _is_total_order(compare), operand,
                       canonical)

    def expression(self, instruction: Instruction) -> tuple[int, frozenset[int]]:
        """The number of an expression's structure, and the sides (0 left, 1 right) of the parameters in it."""
        instruction = origin(instruction)
        for node in _postorder(instruction):
            if node not in self._facts:
                self._facts[node] = self._number(node)
        return self._facts[instruction]

    def _number(self, node: Instruction) -> tuple[int, frozenset[int]]:
        if node.is_parameter:
            number = node.attributes["parameter_number"]
            return self._intern((PARAMETER, number // 2)), frozenset({number % 2})
        operands = [self._facts[o] for o in node.operands]
        attributes = tuple(sorted((k, _hashable(v)) for k, v in node.attributes.items()))
        structure = (node.opcode, node.shape.without_layout(), attributes, tuple(n for n, _ in operands))
        return self._intern(structure), frozenset().union(*(sides for _, sides in operands))

    def _intern(self, structure: Hashable) -> int:
        return self._numbers.setdefault(structure, len(self._numbers))


def _is_total_order(compare: Instruction) -> bool:
    return compare.attributes.get("type") == "TOTALORDER"


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else repr(value)


def _canonicalised(expression: Instruction) -> tuple[int | None, bool]:
    """The operand that an expression is, and whether it is canonicalised; (None, False) for other expressions.

    Canonicalising a float is what JAX does: ``x == 0 ? 0 : x`` and ``x != x ? nan : x``, in either order.
    """
    done: set[str] = set()
    inner = origin(expression)
    while inner.opcode == comparison.select:
        test, constant, other = (origin(o) for o in inner.operands)
        kind = _canonicalisation(test, constant)
        if kind is None or _source(test.operands[0]) is not _source(other):
            return None, False
        done.add(kind)
        inner = other
    if not inner.is_parameter or len(done) == 1:
        return None, False
    return inner.attributes["parameter_number"] // 2, len(done) == 2


def _canonicalisation(test: Instruction, constant: Instruction) -> str | None:
    if test.opcode != comparison.compare or _is_total_order(test) or constant.opcode != CONSTANT:
        return None
    value = constant.attributes["literal"].value
    if not isinstance(value, np.ndarray) or value.shape or constant.shape.element_type.is_complex:
        return None
    direction, (left, right) = test.attributes["direction"], map(origin, test.operands)
    if direction == "NE" and left is right and np.isnan(value) and not np.signbit(value):
        return "nan"
    if direction == "EQ" and right.opcode == CONSTANT and value == 0 and not np.signbit(value):
        compared = right.attributes["literal"].value
        return "zero" if isinstance(compared, np.ndarray) and not compared.shape and compared == 0 else None
    return None


def _source(expression: Instruction) -> Instruction:
    """The innermost value that selects choose from."""
    expression = origin(expression)
    while expression.opcode == comparison.select:
        expression = origin(expression.operands[2])
    return expression


def _postorder(root: Instruction) -> Sequence[Instruction]:
    """The instructions that `root` depends on, operands first, itself last."""
    order: dict[Instruction, None] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in order:
            stack.append((node, True))
            stack.extend((o, False) for o in node.operands if o not in order)
    return list(order)
