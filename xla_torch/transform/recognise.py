"""What a region computes, read off its instructions: the kind of a reducer, the sort keys of a comparator.

Pure functions of the IR. They answer None for what they do not know; the callers then evaluate the region itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from ..hlo.ir import Computation, Instruction
from ..types import PrimitiveType

# --------------------------------------------------------------------------------------------- reducers

_COMMUTATIVE = frozenset({"add", "multiply", "minimum", "maximum", "and", "or", "xor"})
_TRANSPARENT = frozenset({"copy", "reshape", "bitcast", "opt-barrier"})


def reducer_kind(computation: Computation) -> str | None:
    """What a computation of two scalars (accumulated, new) to one scalar of the same type does.

    One of "add", "multiply", "minimum", "maximum", "and", "or", "xor", "subtract" (accumulated minus new), "first" and
    "second" (the parameter itself), or None. Computing in a wider type and converting back is looked through: one step
    gives the same value.
    """
    parameters = computation.parameters
    if len(parameters) != 2 or computation.root.shape.is_tuple:
        return None
    return _kind(computation.root, parameters[0], parameters[1])


def reducer_kinds(computation: Computation) -> tuple[str | None, ...]:
    """The kinds of the N results of a computation of 2N scalars, where result k depends on parameters k and N + k only."""
    parameters, root = computation.parameters, strip(computation.root)
    count = len(parameters) // 2
    if not root.shape.is_tuple:
        return (reducer_kind(computation),)
    if root.opcode != "tuple" or len(root.operands) != count:
        return (None,) * count
    return tuple(_kind(r, parameters[k], parameters[count + k]) for k, r in enumerate(root.operands))


def _kind(root: Instruction, left: Instruction, right: Instruction) -> str | None:
    root = strip(root)
    element_type = left.shape.element_type
    if root.shape.element_type is not element_type or right.shape.element_type is not element_type:
        return None
    if root is left or root is right:
        return "first" if root is left else "second"
    if root.opcode == "call":
        operands = [strip(o) for o in root.operands]
        return reducer_kind(root.attributes["to_apply"]) if operands == [left, right] else None
    wide = strip(root.operands[0]) if root.opcode == "convert" else None
    if wide is not None and not _widens(element_type, wide.shape.element_type):
        return None
    step = wide or root
    if step.opcode not in _COMMUTATIVE and step.opcode != "subtract":
        return None
    operands = [strip(o) if wide is None else _widened(o) for o in step.operands]
    if operands == [left, right]:
        return step.opcode
    return step.opcode if operands == [right, left] and step.opcode in _COMMUTATIVE else None


def _widened(instruction: Instruction) -> Instruction | None:
    instruction = strip(instruction)
    return strip(instruction.operands[0]) if instruction.opcode == "convert" else None


def _widens(narrow: PrimitiveType, wide: PrimitiveType) -> bool:
    """Whether an add, multiply, min or max done in `wide` and converted back is the same as one done in `narrow`."""
    if narrow.is_floating:
        return wide.is_floating and wide.bits >= 2 * narrow.bits
    same_sign = narrow.is_integral and narrow.kind is wide.kind
    return wide.bits > narrow.bits and (same_sign or (narrow.is_unsigned and wide.is_signed))


def strip(instruction: Instruction) -> Instruction:
    """The instruction behind copies and reshapes of scalars."""
    while instruction.opcode in _TRANSPARENT and instruction.operands[0].shape.compatible(instruction.shape):
        instruction = instruction.operands[0]
    return instruction


# --------------------------------------------------------------------------------------------- comparators


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
        return tuple(sorted({n.attributes["parameter_number"] // 2 for n in nodes if n.opcode == "parameter"}))

    def computation(self) -> Computation:
        """The expression as a computation of one scalar for each of `operands`."""
        place = {operand: position for position, operand in enumerate(self.operands)}
        rebuilt: dict[Instruction, Instruction] = {}
        for instruction in _postorder(self.expression):
            attributes = dict(instruction.attributes)
            if instruction.opcode == "parameter":
                attributes["parameter_number"] = place[attributes["parameter_number"] // 2]
            operands = [rebuilt[o] for o in instruction.operands]
            rebuilt[instruction] = Instruction(instruction.opcode, instruction.shape, operands, attributes, instruction.name)
        return Computation("sort_key", rebuilt.values(), rebuilt[self.expression])


def comparator_keys(computation: Computation) -> tuple[SortKey, ...] | None:
    """The keys, first one most significant, of a comparator that orders lexicographically; None for any other.

    Understood are comparisons LT and GT of one expression of the left with the same expression of the right element (either
    way round), joined as ``lt0 or (eq0 and rest)``, as ``select(eq0, rest, lt0)``, or as the stable-sort form
    ``select(less(a, b) == less(b, a), rest, less(a, b))``. A comparator that calls another one is read as if it stood there.
    """
    if any(i.opcode == "call" for i in computation.instructions):
        from .inline import inline

        computation = inline(computation)
    return _Comparator().keys(computation.root)


class _Comparator:
    """Reads one comparator. Expressions get a number by structure, in which left and right parameters look alike."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._facts: dict[Instruction, tuple[int, frozenset[int]]] = {}

    def keys(self, root: Instruction) -> tuple[SortKey, ...] | None:
        root = strip(root)
        if root.opcode == "compare":
            key = self._key(root)
            return None if key is None else (key,)
        if root.opcode == "or":
            for less, rest in (root.operands, root.operands[::-1]):
                rest = strip(rest)
                if rest.opcode == "and":
                    for equal, inner in (rest.operands, rest.operands[::-1]):
                        found = self._joined(less, equal, inner)
                        if found is not None:
                            return found
            return None
        if root.opcode == "select":
            test, on_true, on_false = root.operands
            return self._joined(on_false, test, on_true) or self._joined(on_true, test, on_false, "NE")
        return None

    def _joined(self, less: Instruction, equal: Instruction, rest: Instruction,
                direction: str = "EQ") -> tuple[SortKey, ...] | None:
        """The keys of `less`, then, where `equal` says that these are equal, of `rest`."""
        equal, less = strip(equal), strip(less)
        if equal.opcode != "compare" or equal.attributes["direction"] != direction:
            return None
        first = self.keys(less)
        if first is None or not (self._same_key(first, equal) or self._is_tie(less, equal)):
            return None
        second = self.keys(rest)
        return None if second is None else first + second

    def _same_key(self, keys: tuple[SortKey, ...], equal: Instruction) -> bool:
        """`equal` compares for equality just what the one key compares for order."""
        (left, left_sides), (right, right_sides) = map(self._of, equal.operands)
        return (len(keys) == 1 and left == right and {*left_sides, *right_sides} == {0, 1}
                and left == self._of(keys[0].expression)[0] and _is_total_order(equal) == keys[0].total_order)

    def _is_tie(self, less: Instruction, equal: Instruction) -> bool:
        """`equal` asks whether `less` of (a, b) and of (b, a) agree."""
        one, other = (strip(o) for o in equal.operands)
        if other is less:
            one, other = other, one
        if one is not less or other.opcode != "compare" or less.opcode != "compare" or one.attributes != other.attributes:
            return False
        a, b = (self._of(o) for o in less.operands)
        c, d = (self._of(o) for o in other.operands)
        return (a, b) == (d, c)

    def _key(self, compare: Instruction) -> SortKey | None:
        if compare.attributes["direction"] not in ("LT", "GT"):
            return None
        (left, left_sides), (right, right_sides) = map(self._of, compare.operands)
        if left != right or len(left_sides) != 1 or len(right_sides) != 1 or left_sides == right_sides:
            return None
        swapped = 1 in left_sides
        expression = strip(compare.operands[1 if swapped else 0])
        operand, canonical = _canonicalised(expression)
        return SortKey(expression, (compare.attributes["direction"] == "GT") != swapped, _is_total_order(compare), operand,
                       canonical)

    def _of(self, instruction: Instruction) -> tuple[int, frozenset[int]]:
        """The number of an expression's structure, and the sides (0 left, 1 right) of the parameters in it."""
        instruction = strip(instruction)
        for node in _postorder(instruction):
            if node not in self._facts:
                self._facts[node] = self._number(node)
        return self._facts[instruction]

    def _number(self, node: Instruction) -> tuple[int, frozenset[int]]:
        if node.opcode == "parameter":
            number = node.attributes["parameter_number"]
            return self._intern(("parameter", number // 2)), frozenset({number % 2})
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
    inner = strip(expression)
    while inner.opcode == "select":
        test, constant, other = (strip(o) for o in inner.operands)
        kind = _canonicalisation(test, constant)
        if kind is None or _source(test.operands[0]) is not _source(other):
            return None, False
        done.add(kind)
        inner = other
    if inner.opcode != "parameter" or len(done) == 1:
        return None, False
    return inner.attributes["parameter_number"] // 2, len(done) == 2


def _canonicalisation(test: Instruction, constant: Instruction) -> str | None:
    if test.opcode != "compare" or _is_total_order(test) or constant.opcode != "constant":
        return None
    value = constant.attributes["literal"].value
    if not isinstance(value, np.ndarray) or value.shape or constant.shape.element_type.is_complex:
        return None
    direction, (left, right) = test.attributes["direction"], map(strip, test.operands)
    if direction == "NE" and left is right and np.isnan(value) and not np.signbit(value):
        return "nan"
    if direction == "EQ" and right.opcode == "constant" and value == 0 and not np.signbit(value):
        compared = right.attributes["literal"].value
        return "zero" if isinstance(compared, np.ndarray) and not compared.shape and compared == 0 else None
    return None


def _source(expression: Instruction) -> Instruction:
    """The innermost value that selects choose from."""
    expression = strip(expression)
    while expression.opcode == "select":
        expression = strip(expression.operands[2])
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
