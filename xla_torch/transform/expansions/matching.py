"""Is a part of a program the spelling of a function? A template is such a spelling, a computation of the function's operands.

Templates are elementwise as a whole, so one of `TEMPLATE_SIZE` elements stands for arrays of all dimensions, and one of a scalar
for scalars. Inside there may be tables of coefficients, and arrays with dimensions beside these. The comparison is by structure,
from the result backwards: the same ops of the same, whatever they are called and however often equal ops are written down; a
constant is its value, wherever it was broadcast from. Loops and reducers inside are compared in the same way.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...analysis.reducers import reducer_kind
from ...core.shape import Shape
from ...hlo.inference import splat_of
from ...hlo.ir import Computation, Instruction
from ...hlo.literals.literal import Literal
from ...opcodes import internal, movement, reduction, window

TEMPLATE_SIZE = 23
"""No size of anything else in a template, and too small for a compiler to treat it in a way of its own."""

Outline = tuple[Any, ...] | None
"""An opcode and its operands' outlines, three levels deep; None where anything may stand."""
_LEVELS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Match:
    """Where a template fits: the values of its parameters, and the instructions between these and the result."""

    sources: tuple[Instruction, ...]
    inner: tuple[Instruction, ...]


def element_dimension(shape: Shape) -> int | None:
    """The dimension of a template's array that stands for all dimensions of a program's arrays; None where there is none."""
    return shape.dimensions.index(TEMPLATE_SIZE) if TEMPLATE_SIZE in shape.dimensions else None


def outline(root: Instruction, levels: int = _LEVELS) -> Outline:
    """What the top of a template looks like, by which most of what does not fit is told apart at once."""
    if root.is_parameter or splat_of(root) is not None or not levels:
        return None
    return (root.opcode, *(outline(o, levels - 1) for o in root.operands))


def looks_like(root: Instruction, expected: Outline) -> bool:
    """Whether an instruction and those before it have an outline."""
    if expected is None:
        return True
    return (root.opcode == expected[0] and len(root.operands) == len(expected) - 1
            and all(map(looks_like, root.operands, expected[1:])))


def match(template: Computation, root: Instruction) -> Match | None:
    """How the template fits the value of `root`, None where it does not."""
    if template.root.shape.rank and not root.shape.rank:
        return None
    comparison = _Comparison(root.shape.dimensions)
    count = len(template.parameters)
    if not comparison.same(template.root, root) or len(comparison.sources) != count:
        return None
    sources = tuple(comparison.sources[k] for k in range(count))
    return Match(sources, tuple(i for i in comparison.inner if i not in sources))


class _Comparison:
    """One comparison of a template with a part of a program, whose arrays have these dimensions."""

    def __init__(self, dimensions: Sequence[int]):
        self._dimensions = tuple(dimensions)
        self.sources: dict[int, Instruction] = {}
        self.inner: dict[Instruction, None] = {}
        self._inside = 0
        """How deep in computations that the part calls."""

    def same(self, template: Instruction, root: Instruction) -> bool:
        waiting, known = [(template, root)], set()
        while waiting:
            t, a = waiting.pop()
            if (id(t), id(a)) in known:
                continue
            known.add((id(t), id(a)))
            found = self._pair(t, a)
            if found is None:
                return False
            waiting += found
        return True

    def _pair(self, t: Instruction, a: Instruction) -> list[tuple[Instruction, Instruction]] | None:
        """What must be compared besides, for two values to be the same; None where they are not."""
        if not self._same_shape(t.shape, a.shape):
            return None
        if t.is_parameter:
            return [] if self._same_parameter(t.attributes["parameter_number"], a) else None
        number = _number_of(t)
        if number is not None:
            return [] if self._is_number(number, a) else None
        if t.opcode == reduction.reduce:
            a = _in_one_step(a)
        if t.opcode == movement.broadcast and a.opcode == movement.reshape and _adds_elements(t):
            self._note(a)  # in arrays of one element
            return [(t.operands[0], a.operands[0])]
        if t.opcode != a.opcode or len(t.operands) != len(a.operands) or not self._same_attributes(t, a):
            return None
        self._note(a)
        return list(zip(t.operands, a.operands, strict=True))

    def _note(self, a: Instruction) -> None:
        if not self._inside:
            self.inner[a] = None

    def _same_parameter(self, number: int, a: Instruction) -> bool:
        if self._inside:
            return a.is_parameter and a.attributes["parameter_number"] == number
        known = self.sources.setdefault(number, a)
        if known is a:
            return True
        first = splat_of(known)
        return first is not None and self._is_number(first, a)

    def _is_number(self, number: Literal, a: Instruction) -> bool:
        given = splat_of(a)
        if given is None or not _same_bits(number, given):
            return False
        while not self._inside:
            self._note(a)
            if not a.operands:
                break
            a = a.operands[0]
        return True

    def _same_shape(self, t: Shape, a: Shape) -> bool:
        if t.is_tuple or a.is_tuple:
            return (t.is_tuple and a.is_tuple and len(t.tuple_shapes) == len(a.tuple_shapes)
                    and all(map(self._same_shape, t.tuple_shapes, a.tuple_shapes)))
        if not (t.is_array and a.is_array) or t.element_type is not a.element_type or any(a.dynamic_flags):
            return False
        place = element_dimension(t)
        dimensions = t.dimensions if place is None else (*t.dimensions[:place], *self._dimensions, *t.dimensions[place + 1:])
        return a.dimensions == dimensions

    def _same_attributes(self, t: Instruction, a: Instruction) -> bool:
        left, right = (i.schema.attribute_values(i.attributes) for i in (t, a))
        return left.keys() == right.keys() and all(self._same_value(name, t, left[name], right[name]) for name in left)

    def _same_value(self, name: str, instruction: Instruction, t: Any, a: Any) -> bool:
        if isinstance(t, Computation) and isinstance(a, Computation):
            return self._same_computation(t, a)
        expected = self._meant(name, instruction, t)
        return (tuple(a) if isinstance(expected, tuple) else a) == expected

    def _meant(self, name: str, instruction: Instruction, value: Any) -> Any:
        """What an attribute of a template's instruction is for the program's dimensions."""
        of_operand = instruction.opcode in (reduction.reduce, movement.transpose, movement.slice_)
        whole = instruction.operands[0].shape if of_operand else instruction.shape
        match name:
            case "dimensions":
                return tuple(place for d in value for place in self._places(whole, d))
            case "iota_dimension":
                places = self._places(whole, value)
                return places[0] if len(places) == 1 else None
            case "slice" if (place := element_dimension(whole)) is not None and value[place] == (0, TEMPLATE_SIZE, 1):
                return (*value[:place], *((0, n, 1) for n in self._dimensions), *value[place + 1:])
        return value

    def _places(self, t: Shape, dimension: int) -> range:
        """The program's dimensions that one of a template's array stands for."""
        place, more = element_dimension(t), len(self._dimensions) - 1
        if place is None or dimension < place:
            return range(dimension, dimension + 1)
        return range(dimension, dimension + 1 + more) if dimension == place else range(dimension + more, dimension + more + 1)

    def _same_computation(self, t: Computation, a: Computation) -> bool:
        self._inside += 1
        try:
            return len(t.parameters) == len(a.parameters) and self.same(t.root, a.root)
        finally:
            self._inside -= 1


@functools.lru_cache(maxsize=1 << 14)
def _number_of(template: Instruction) -> Literal | None:
    """The constant that an instruction of a template is; templates live as long as the process."""
    return splat_of(template)


def _adds_elements(template: Instruction) -> bool:
    """Whether a broadcast adds the dimension that stands for the program's, and no more."""
    given, place = template.operands[0].shape, element_dimension(template.shape)
    kept = tuple(d for d in range(template.shape.rank) if d != place)
    return place is not None and element_dimension(given) is None and template.attributes["dimensions"] == kept


def _in_one_step(total: Instruction) -> Instruction:
    """A reduction to a scalar, of the whole array: compilers cut large ones in two, windows that lie side by side first."""
    if total.opcode != reduction.reduce or len(total.operands) != 2:
        return total
    array, init = total.operands
    while array.opcode in (movement.reshape, internal.bitcast):
        array = array.operands[0]
    if array.opcode != window.reduce_window or len(array.operands) != 2:
        return total
    kinds = {reducer_kind(i.attributes["to_apply"]) for i in (total, array)}
    side_by_side = all(w.stride == w.size and w.base_dilation == w.window_dilation == 1 for w in array.attributes["window"])
    first, second = splat_of(init), splat_of(array.operands[1])
    if len(kinds) > 1 or kinds == {None} or not side_by_side or first is None or second is None or not _same_bits(first, second):
        return total
    whole = array.operands[0]
    attributes = total.attributes | {"dimensions": tuple(range(whole.shape.rank))}
    return Instruction(total.opcode, total.shape, [whole, init], attributes, total.name)


def _same_bits(a: Literal, b: Literal) -> bool:
    left, right = np.asarray(a.array), np.asarray(b.array)
    both_nan = bool((left != left).all() and (right != right).all())
    return left.dtype == right.dtype and (both_nan or left.tobytes() == right.tobytes())
