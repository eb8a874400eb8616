"""Dynamic sizes resolved: the operands of every op have, at run time, sizes that fit together.

An array with a bounded dimension has its actual size at run time. XLA lets such a dimension meet a static one of the same
bound: the static operand then counts only as far as the dynamic one goes. Here that is written out with get-dimension-size
and set-dimension-size, which op bodies and gradient rules know:

- where dimensions must agree (elementwise, dot, sort, ...), static operands are cut to the dynamic one's size, and of several
  dynamic ones that differ at run time the smallest counts, or the last, as in XLA; in elementwise ops one of size 1 broadcasts;
- where positions are counted up to the bound (gather, dynamic-update-slice, scatter, ...), the operand is filled up with
  zeros to its bound, and what has the operand's dimensions is cut to the operand's size again;
- a result is dynamic where its operands make it so, whatever the program declares; only the entry's result and what a
  reshape declares static is filled up to its bound.

Unbounded dimensions need none of this: whatever meets one has its size, or size 1.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ... import functions as ops
from ...core.shape import UNBOUNDED, Shape
from ...core.types import S32
from ...functions.hlo_builder import Builder, XlaOp
from ...hlo import tree
from ...hlo.inference import infer_shape
from ...hlo.ir import Computation, Instruction, reachable
from ...hlo.regions import Region, callee, has_regions_of_values, is_loop, loop_of, with_regions
from ...opcodes import dynamic, elementwise
from ..rewriter import Rewriter, carried_metadata
from ..stops import is_stop, stopped
from ..values import Value, as_op, elements_of, leaves, regrouped
from .resolving_tables import RULES, SOURCES

Place = tuple[int, int]
"""An operand's number and one of its dimensions."""

_Origins = frozenset[Hashable]
"""Identities of what a size comes from: an instruction and its dimension, or -1 where the instruction is the size; or a set of
origins, of whose sizes it is the smallest. Several make the size to which they broadcast, so in any order the same."""


def resolve_sizes(computation: Computation) -> Computation:
    """The computation, which is in canonical form, with resolved sizes; itself where it has only static ones.
    Parameters and result keep their shapes. Raises UnsupportedError for an op that has no meaning on a dynamic dimension."""
    instructions = (i for c in reachable([computation]) for i in c.instructions)
    if all(i.shape.is_static and i.opcode != dynamic.set_dimension_size for i in instructions):
        return computation
    builder = Builder(computation.name)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
    for parameter, original in zip(parameters, computation.parameters, strict=True):
        parameter.instruction.common = carried_metadata(original)
    resolver = SizeResolver(builder)
    result = resolver.run(computation, [elements_of(p) for p in parameters])
    shape = computation.root.shape
    whole = [resolver.filled(v, [d for d in dynamic_dimensions(v.shape) if not s.dynamic_flags[d]]) if s.is_array else v
             for v, s in zip(leaves(result), shape.leaves(), strict=True)]
    return builder.finish(as_op(builder, regrouped(whole, shape)))


class SizeResolver(Rewriter):
    """Rebuilds a computation with resolved sizes."""

    def __init__(self, builder: Builder):
        super().__init__(builder)
        self._sizes: dict[tuple[int, int], XlaOp] = {}
        self._known_origins: dict[tuple[int, int], _Origins] = {}
        self._regions: dict[tuple[Computation, Hashable], Computation] = {}

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        if instruction.is_parameter or instruction.is_tuple or instruction.is_element:
            return super().visit(instruction, operands, arguments)
        static = instruction.shape.is_static and all(leaf.shape.is_static for o in operands for leaf in leaves(o))
        if static and not (has_regions_of_values(instruction) or instruction.opcode == dynamic.set_dimension_size):
            return super().visit(instruction, operands, arguments)
        arrays = [as_op(self.builder, o) for o in operands]
        if is_stop(instruction):
            return stopped(arrays[0], callee(instruction).derivatives)
        if has_regions_of_values(instruction):
            return self.control(instruction, arrays)
        rule = RULES.find(instruction.opcode)
        return rule(self, instruction, arrays) if rule else self.again(instruction, arrays)

    def again(self, instruction: Instruction, operands: Sequence[XlaOp], attributes: dict[str, Any] | None = None) -> Value:
        """The instruction over resolved operands, dynamic where they make it so."""
        inferred = infer_shape(instruction.opcode, instruction.shape, [o.shape for o in operands], instruction.attributes)
        return self.append(instruction, operands, with_flags(instruction.shape, inferred), attributes)

    def append(self, instruction: Instruction, operands: Sequence[XlaOp], shape: Shape,
                attributes: dict[str, Any] | None = None) -> Value:
        clone = Instruction(instruction.opcode, shape, [o.instruction for o in operands],
                            instruction.attributes if attributes is None else attributes, instruction.name,
                            carried_metadata(instruction), instruction.line, instruction.column)
        return elements_of(self.builder.append(clone))

    # ---- sizes

    def size(self, operand: XlaOp, dimension: int) -> XlaOp:
        """The size of a dimension at run time."""
        key = (id(operand.instruction), dimension)
        if key not in self._sizes:
            self._sizes[key] = self.builder.add(dynamic.get_dimension_size, [operand], {"dimensions": (dimension,)})
        return self._sizes[key]

    def cut(self, value: XlaOp, dimension: int, like: XlaOp, other: int) -> XlaOp:
        """`value` with the size in `dimension` that `like` has in its dimension `other`, where that one is dynamic."""
        if not bounded(like.shape, other):
            return value
        return self.builder.add(dynamic.set_dimension_size, [value, self.size(like, other)], {"dimensions": (dimension,)})

    def filled(self, operand: XlaOp, dimensions: Iterable[int], value: XlaOp | None = None) -> XlaOp:
        """The operand with these dimensions, as far as they are dynamic, filled up to their bounds: with the scalar `value`,
        or else with zeros."""
        given, dimensions = operand, [d for d in dimensions if bounded(operand.shape, d)]
        for d in dimensions:
            flags = [f and k != d for k, f in enumerate(operand.shape.dynamic_flags)]
            bound = self.builder.constant(operand.shape.dimensions[d])
            operand = self.builder.add(dynamic.set_dimension_size, [operand, bound], {"dimensions": (d,)},
                                       operand.shape.with_dimensions(operand.shape.dimensions, flags))
        if value is None or not dimensions:
            return operand
        return self.covered(operand, given, dimensions, ops.Broadcast(value, operand.shape.dimensions))

    def covered(self, filled: XlaOp, given: XlaOp, dimensions: Iterable[int], other: XlaOp) -> XlaOp:
        """`filled`, with the elements of `other` where, in these dimensions, `given` has none."""
        for d in dimensions:
            positions = ops.Iota(self.builder, Shape.array(S32, filled.shape.dimensions), d)
            there = ops.Lt(positions, ops.Broadcast(self.size(given, d), filled.shape.dimensions))
            filled = ops.Select(*self.follow([there, filled, other], 1, (0, 2)))
        return filled

    def agree(self, operands: Sequence[XlaOp], groups: Iterable[Sequence[Place]], last: bool = False,
              stretch: bool = False) -> list[XlaOp]:
        """The operands, where a group of their dimensions has dynamic ones with one size in all of it: the smallest of the
        dynamic ones or, if `last`, that of the last one. What then lacks elements is filled up with zeros. With `stretch`, a
        dynamic dimension that has size 1 when the program runs broadcasts, and the smallest of the others counts."""
        result = list(operands)
        for group in groups:
            found = [(operands[k], d) for k, d in group if bounded(operands[k].shape, d)]
            if not found:
                continue
            wanted, size = self._common(found, last, stretch)
            for k, d in group:
                given = operands[k]
                if given.shape.dynamic_flags[d] and (
                        not bounded(given.shape, d) or self._origins(given.instruction, d) == wanted):
                    continue
                if stretch and bounded(given.shape, d):
                    result[k] = self._stretched(result[k], d)
                result[k] = self.builder.add(dynamic.set_dimension_size, [result[k], size], {"dimensions": (d,)})
        return result

    def _common(self, found: Sequence[tuple[XlaOp, int]], last: bool, stretch: bool) -> tuple[_Origins, XlaOp]:
        """The size that dynamic dimensions come to, and its origins."""
        origins = [self._origins(o.instruction, d) for o, d in found]
        known = dict(zip(origins, found, strict=True))
        wanted = origins[-1] if last else frozenset().union(*origins) if stretch else _smallest(origins)
        if wanted in known:
            return wanted, self.size(*known[wanted])
        size = functools.reduce(_broadcast_size if stretch else ops.Min, (self.size(*place) for place in known.values()))
        self._known_origins[id(size.instruction), -1] = wanted
        return wanted, size

    def _stretched(self, operand: XlaOp, dimension: int) -> XlaOp:
        """The operand with a dynamic dimension filled up to its bound: where it has one element there, with that one."""
        whole, sizes = self.filled(operand, [dimension]), operand.shape.dimensions
        if sizes[dimension] < 2:
            return whole
        limits = [1 if d == dimension else n for d, n in enumerate(sizes)]
        first = ops.Slice(whole, [0] * len(sizes), limits, [1] * len(sizes))
        every = ops.BroadcastInDim(first, sizes, range(len(sizes)))
        return ops.Select(ops.Eq(self.size(operand, dimension), 1), every, whole)

    def _origins(self, instruction: Instruction, dimension: int) -> _Origins:
        """What the size of a dynamic dimension comes from. Equal origins make equal sizes."""
        key = (id(instruction), dimension)
        if key not in self._known_origins:
            source = SOURCES.find(instruction.opcode) if instruction.shape.is_array else None
            same = source(instruction, dimension) if source else None
            if is_stop(instruction):
                same = instruction.operands[0], dimension
            if instruction.opcode == dynamic.set_dimension_size and instruction.attributes["dimensions"] == (dimension,):
                found = self._size_origins(instruction.operands[1])
            else:
                found = self._origins(*same) if same else frozenset([key])
            self._known_origins[key] = found
        return self._known_origins[key]

    def _size_origins(self, size: Instruction) -> _Origins:
        if (id(size), -1) in self._known_origins:
            return self._known_origins[id(size), -1]
        if size.opcode == dynamic.get_dimension_size:
            return self._origins(size.operands[0], size.attributes["dimensions"][0])
        if size.opcode == elementwise.minimum:
            return _smallest(map(self._size_origins, size.operands))
        return frozenset([(id(size), -1)])

    def follow(self, operands: Sequence[XlaOp], leader: int, others: Iterable[int]) -> list[XlaOp]:
        """The operands, the others with the leader's sizes: cut where it is dynamic, filled up where it is static."""
        result, shape = list(operands), operands[leader].shape
        for k in others:
            result[k] = self.filled(result[k], [d for d in range(shape.rank) if not shape.dynamic_flags[d]])
        pairs = [[(k, d) for k in (leader, *others)] for d in range(shape.rank) if shape.dynamic_flags[d]]
        return self.agree(result, pairs)

    # ---- loops and branches

    def control(self, instruction: Instruction, operands: Sequence[XlaOp]) -> Value:
        """A loop's carry is dynamic where its first value or what the body makes of it is; the result of a branching
        instruction where that of any branch is."""
        if is_loop(instruction):
            shape = with_flags(instruction.shape, operands[0].shape)
            body = loop_of(instruction).body
            while (grown := _joined(shape, self.region(body, shape).root.shape)) != shape:
                shape = grown
            attributes = with_regions(instruction, lambda region: self.region(region.computation, shape))
            return self.append(instruction, operands, shape, attributes)
        made: list[Computation] = []

        def resolved(region: Region) -> Computation:
            (given,) = region.arguments
            made.append(self.region(region.computation, operands[given].shape))
            return made[-1]

        attributes = with_regions(instruction, resolved)
        roots = [computation.root.shape for computation in made]
        shape = functools.reduce(_joined, roots, with_flags(instruction.shape, roots[0]))
        return self.append(instruction, operands, shape, attributes)

    def region(self, computation: Computation, shape: Shape) -> Computation:
        """A computation of one parameter, which now has this shape. Those who share it, share the result."""
        key = computation, shape.key
        if key not in self._regions:
            builder = Builder(computation.name)
            whole = builder.parameter(0, shape, computation.parameters[0].name)
            inside = type(self)(builder)
            inside._regions = self._regions
            self._regions[key] = builder.finish(as_op(builder, inside.run(computation, [elements_of(whole)])))
        return self._regions[key]


# ------------------------------------------------------------------------------------------------ sizes


def _smallest(sizes: Iterable[_Origins]) -> _Origins:
    """The origins of the smallest of several sizes."""
    parts: set[Hashable] = set()
    for size in sizes:
        (only,) = size if len(size) == 1 else (None,)
        parts |= only if isinstance(only, frozenset) else {size}
    (single,) = parts if len(parts) == 1 else (None,)
    return single if isinstance(single, frozenset) else frozenset([frozenset(parts)])


def _broadcast_size(a: XlaOp, b: XlaOp) -> XlaOp:
    """The size to which two dimensions broadcast: the smaller one, but no 1 where the other is larger."""
    least = ops.Min(a, b)
    return ops.Select(ops.Eq(least, 1), ops.Max(a, b), least)


# ------------------------------------------------------------------------------------------------ shapes


def bounded(shape: Shape, dimension: int) -> bool:
    """Whether a dimension is dynamic and has a bound."""
    return shape.dynamic_flags[dimension] and shape.dimensions[dimension] != UNBOUNDED


def dynamic_dimensions(shape: Shape) -> list[int]:
    """The bounded dynamic dimensions of an array."""
    return [d for d in range(shape.rank) if bounded(shape, d)] if shape.is_array else []


def with_flags(declared: Shape, inferred: Shape) -> Shape:
    """The declared shape, dynamic where the inferred one is, without layouts."""
    each = zip(declared.leaves(), inferred.leaves(), strict=True)
    return tree.grouped([Shape.array(d.element_type, d.dimensions, i.dynamic_flags) if d.is_array else d for d, i in each],
                        declared, Shape.tuple)


def _joined(a: Shape, b: Shape) -> Shape:
    """Shapes of one tree: dynamic where either is."""
    each = zip(a.leaves(), b.leaves(), strict=True)
    return tree.grouped([_joined_arrays(x, y) if x.is_array else x for x, y in each], a, Shape.tuple)


def _joined_arrays(a: Shape, b: Shape) -> Shape:
    return Shape.array(a.element_type, a.dimensions, [x or y for x, y in zip(a.dynamic_flags, b.dynamic_flags, strict=True)])
