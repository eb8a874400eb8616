"""Sums of pads that stand side by side, as one concatenation: the gradient of a program that reads ``weights[k]`` for k = 0..n-1
adds n arrays as large as all weights, each zero but for one part.

Of a tree of additions at least two leaves are such pads, each used by the tree alone, whose parts lie side by side along one
dimension. So each element of the sum is one pad's, to which the others add +0.0: it is the concatenation's, to which +0.0 is
added where it is of floats or complex numbers, as -0.0 became +0.0. One leaf may be any other array: it meets that element
somewhere on the way to the root, and +0.0 before or behind, which again changes -0.0 alone; of two -0.0 the sum was +0.0, as
there is one more pad. (Of two NaN, the sum is either, as ever.) With two other leaves the order of rounding counts: the addition
of both is an other leaf of what is around it.

Computations are in canonical form (see `transform.canonical`).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..analysis.patterns import is_positive_zero
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction, cached_on_computation, reachable
from ..hlo.literals.literal import SizeLiteral
from ..hlo.regions import Region, is_branching, is_loop, with_regions
from ..hlo.structure import CONSTANT
from ..opcodes import elementwise, indexing, movement
from .rewriter import Rewriter, carried_metadata, rebuilt
from .values import Value


def without_padded_sums(computation: Computation) -> Computation:
    """The computation, its loops and branches with sums of pads as concatenations; itself where there are none."""
    if not computation.is_canonical:
        return computation
    made: dict[Computation, Computation] = {}
    for each in reachable([computation]):  # what others run comes before them
        if _sums(each) or any(c in made for i in each.instructions if _is_control(i) for c in i.called_computations):
            made[each] = rebuilt(each, lambda builder: _Joiner(builder, made))
            made[each].is_canonical = True
    return made.get(computation, computation)


def _is_control(i: Instruction) -> bool:
    return is_loop(i) or is_branching(i)


class _Part(NamedTuple):
    """What of a pad is not zero, and where it lies along its one padded dimension."""

    operand: Instruction
    zero: Instruction
    dimension: int
    start: int

    @property
    def end(self) -> int:
        return self.start + self.operand.shape.dimensions[self.dimension]


@dataclasses.dataclass
class _Sum:
    """A tree of additions: the parts of its pads, at most one other leaf and whether that is the first of all, and the
    instructions that it is made of."""

    parts: list[_Part]
    other: Instruction | None = None
    other_first: bool = False
    within: list[Instruction] = dataclasses.field(default_factory=list)

    def joins(self, right: _Sum) -> bool:
        """Whether the sum of both is one of these."""
        has_others = self.other is not None and right.other is not None
        return not has_others and len({s.parts[0].dimension for s in (self, right) if s.parts}) == 1

    def plus(self, right: _Sum) -> _Sum:
        """The sum of both. The longer lists are used again, or deep trees would take the square of their size."""
        long, short = (self, right) if len(self.within) >= len(right.within) else (right, self)
        long.parts += short.parts
        long.within += short.within
        other, first = (right.other, False) if self.other is None else (self.other, self.other_first)
        return _Sum(long.parts, other, first, long.within)

    def in_order(self) -> list[_Part] | None:
        """The parts as they lie; None where they are less than two, or overlap."""
        if len(self.parts) < 2:
            return None
        parts = sorted(self.parts, key=lambda part: (part.start, part.end))
        return parts if all(a.end <= b.start for a, b in itertools.pairwise(parts)) else None


@cached_on_computation
def _sums(computation: Computation) -> Mapping[Instruction, _Sum]:
    """The trees that become concatenations, by their last additions; their parts in order."""
    parts = {i: part for i in computation.instructions if (part := _part_of(i)) is not None}
    if len(parts) < 2:
        return {}
    uses = collections.Counter(o for i in computation.instructions for o in i.operands)
    uses[computation.root] += 1
    sums: dict[Instruction, _Sum] = {}

    def leaf(i: Instruction) -> _Sum:
        if uses[i] == 1 and i in sums:
            return sums[i]
        return _Sum([parts[i]], within=[i]) if uses[i] == 1 and i in parts else _Sum([], i, True)

    for i in computation.instructions:
        if i.opcode != elementwise.add or not all(_is_alike(o.shape, i.shape) for o in i.operands):
            continue
        left, right = map(leaf, i.operands)
        if left.joins(right):
            inner = [o for o in i.operands if uses[o] == 1 and sums.pop(o, None) is not None]
            sums[i] = left.plus(right)
            sums[i].within += inner
    return {i: dataclasses.replace(s, parts=ordered) for i, s in sums.items() if (ordered := s.in_order()) is not None}


def _is_alike(shape: Shape, other: Shape) -> bool:
    """Whether two are arrays of one element type and one size, which is known."""
    return (shape.is_array and shape.is_static and other.is_static and not shape.has_sizes and not other.has_sizes
            and shape.element_type is other.element_type and shape.dimensions == other.dimensions)


def _part_of(i: Instruction) -> _Part | None:
    """What is not zero of a pad, or of an update of zeros at a place that is known."""
    if i.opcode == movement.pad:
        operand, zero = i.operands
        padding = i.attributes["padding"]
        if not _is_one_type(i, operand, zero) or any(low < 0 or high < 0 or interior for low, high, interior in padding):
            return None
        along = [d for d, (low, high, _) in enumerate(padding) if low or high]
        return _Part(operand, zero, along[0], padding[along[0]][0]) if len(along) == 1 else None
    if i.opcode == indexing.dynamic_update_slice and i.operands[0].opcode == movement.broadcast:
        (zero,), operand, starts = i.operands[0].operands, i.operands[1], i.operands[2:]
        if not _is_one_type(i, operand, zero) or len(starts) != i.shape.rank:
            return None
        along = [d for d, (n, size) in enumerate(zip(operand.shape.dimensions, i.shape.dimensions, strict=True)) if n != size]
        start = _number(starts[along[0]]) if len(along) == 1 else None
        if start is None:
            return None
        last = i.shape.dimensions[along[0]] - operand.shape.dimensions[along[0]]
        return _Part(operand, zero, along[0], min(max(start, 0), last))
    return None


def _is_one_type(i: Instruction, operand: Instruction, zero: Instruction) -> bool:
    """Whether an instruction gives its operand's elements, if there are any, among zeros of its type, all sizes known."""
    shapes = i.shape, operand.shape, zero.shape
    return (zero.shape.is_scalar and is_positive_zero(zero) and all(s.element_type is i.shape.element_type for s in shapes)
            and all(s.is_static and not s.has_sizes for s in shapes) and operand.shape.element_count > 0)


def _number(i: Instruction) -> int | None:
    """A constant index; None where it is another value."""
    literal = i.attributes.get("literal") if i.opcode == CONSTANT and i.shape.is_scalar else None
    return None if literal is None or isinstance(literal, SizeLiteral) or literal.elided else int(literal.array)


class _Joiner(Rewriter):
    """Rebuilds a computation whose loops and branches run what is `made` of theirs."""

    def __init__(self, builder: Builder, made: Mapping[Computation, Computation]):
        super().__init__(builder)
        self.made = made
        self.now: dict[Instruction, Value] = {}

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        self.sums = _sums(computation)
        self.within = {i for each in self.sums.values() for i in each.within}
        return super().run(computation, arguments)

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if instruction in self.sums:
            value = self.joined(instruction, self.sums[instruction])
        elif instruction in self.within:
            value = operands[0]  # which nothing reads
        elif _is_control(instruction):
            value = self.copy_control(instruction, operands, with_regions(instruction, self.region))
        else:
            value = super().visit(instruction, operands, arguments)
        self.now[instruction] = value
        return value

    def region(self, region: Region) -> Computation:
        return self.made.get(region.computation, region.computation)

    def joined(self, instruction: Instruction, found: _Sum) -> XlaOp:
        """A sum as the concatenation of its parts."""
        shape, common = instruction.shape.without_layout(), carried_metadata(instruction)
        whole = self.builder.add(movement.concatenate, self.pieces(found.parts, shape),
                                 {"dimensions": (found.parts[0].dimension,)}, common=dict(common))
        if shape.element_type.is_floating or shape.element_type.is_complex:
            whole = self.builder.add(elementwise.add, [whole, self.zeros(found.parts[0], shape)], common=dict(common))
        if found.other is not None:
            other = self.op(found.other)
            whole = self.builder.add(elementwise.add, [other, whole] if found.other_first else [whole, other], common=common)
        whole.instruction.name, whole.instruction.line = instruction.name, instruction.line
        whole.instruction.column = instruction.column
        return whole

    def pieces(self, parts: Sequence[_Part], shape: Shape) -> Iterator[XlaOp]:
        """Parts in their order, with zeros between them and at either end."""
        along, behind = parts[0].dimension, 0
        for part in parts:
            yield from self.gap(part, shape, behind, part.start)
            yield self.op(part.operand)
            behind = part.end
        yield from self.gap(parts[0], shape, behind, shape.dimensions[along])

    def gap(self, part: _Part, shape: Shape, start: int, end: int) -> Iterator[XlaOp]:
        if start < end:
            yield self.zeros(part, shape.with_dimensions([end - start if d == part.dimension else n
                                                          for d, n in enumerate(shape.dimensions)]))

    def zeros(self, part: _Part, shape: Shape) -> XlaOp:
        return self.builder.add(movement.broadcast, [self.op(part.zero)], {"dimensions": ()}, shape)

    def op(self, instruction: Instruction) -> XlaOp:
        value = self.now[instruction]
        assert isinstance(value, XlaOp)
        return value
