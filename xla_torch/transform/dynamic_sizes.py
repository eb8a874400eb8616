"""Dynamic sizes settled: the operands of every op have, at run time, sizes that fit together.

An array with a bounded dimension has its actual size at run time. XLA lets such a dimension meet a static one of the same
bound: the static operand then counts only as far as the dynamic one goes. Here that is written out with get-dimension-size
and set-dimension-size, which op bodies and gradient rules know:

- where dimensions must agree (elementwise, dot, sort, ...), static operands are cut to the dynamic one's size, and of several
  dynamic ones that differ at run time the smallest counts, or the last, as in XLA;
- where positions are counted up to the bound (gather, dynamic-update-slice, scatter, ...), the operand is filled up with
  zeros to its bound, and what has the operand's dimensions is cut to the operand's size again;
- a result is dynamic where its operands make it so, whatever the program declares; only the entry's result and what a
  reshape declares static is filled up to its bound.

Unbounded dimensions need none of this: whatever meets one has its size, or size 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .. import ops
from ..builder import XlaBuilder, XlaOp
from ..errors import UnsupportedError
from ..hlo.ir import Computation, Instruction, reachable
from ..lowering.kernels.movement import common_factors
from ..opcodes.contraction import DotDimensionNumbers
from ..opcodes.inference import definition_of, infer_shape
from ..shape import UNBOUNDED, Shape
from ..types import S32, PrimitiveType
from .inline import Replay, Value, as_op, elements_of, kept_facts, leaves, regrouped

Place = tuple[int, int]
"""An operand's number and one of its dimensions."""

_Origins = frozenset[tuple[int, int]]
"""Identities of what a size comes from: an instruction and its dimension, or -1 where the instruction is the size."""


def settle(computation: Computation) -> Computation:
    """The computation, which is in plain form (see `inline`), with settled sizes; itself where it has only static ones.
    Parameters and result keep their shapes. Raises UnsupportedError for an op that has no meaning on a dynamic dimension."""
    instructions = (i for c in reachable([computation]) for i in c.instructions)
    if all(i.shape.is_static and i.opcode != "set-dimension-size" for i in instructions):
        return computation
    builder = XlaBuilder(computation.name)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
    for parameter, original in zip(parameters, computation.parameters, strict=True):
        parameter.instruction.common = kept_facts(original)
    settler = _Settler(builder)
    result = settler.run(computation, [elements_of(p) for p in parameters])
    shape = computation.root.shape
    whole = [settler.filled(v, [d for d in _dynamic(v.shape) if not s.dynamic_flags[d]]) if s.is_array else v
             for v, s in zip(leaves(result), shape.leaves(), strict=True)]
    return builder.finish(as_op(builder, regrouped(whole, shape)))


_STRUCTURE = frozenset({"parameter", "tuple", "get-tuple-element"})
_MAKING = frozenset({"set-dimension-size", "while", "conditional"})
"""Opcodes whose result may be dynamic where operands and declared shape are static."""


class _Settler(Replay):
    """Rebuilds a computation with settled sizes."""

    def __init__(self, builder: XlaBuilder):
        super().__init__(builder)
        self._sizes: dict[tuple[int, int], XlaOp] = {}
        self._known_origins: dict[tuple[int, int], _Origins] = {}

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        given = [leaf for o in operands for leaf in leaves(o)]
        opcode = instruction.opcode
        static = instruction.shape.is_static and all(o.shape.is_static for o in given)
        if opcode in _STRUCTURE or (static and opcode not in _MAKING):
            return super().visit(instruction, operands, arguments)
        rule = _RULES.get(opcode)
        if rule is None and definition_of(opcode).elementwise:
            rule = _elementwise
        arrays = [as_op(self.builder, o) for o in operands]
        return rule(self, instruction, arrays) if rule else self.again(instruction, arrays)

    def again(self, instruction: Instruction, operands: Sequence[XlaOp], attributes: dict[str, Any] | None = None) -> Value:
        """The instruction over settled operands, dynamic where they make it so."""
        inferred = infer_shape(instruction.opcode, instruction.shape, [o.shape for o in operands], instruction.attributes)
        return self.append(instruction, operands, _with_flags(instruction.shape, inferred), attributes)

    def append(self, instruction: Instruction, operands: Sequence[XlaOp], shape: Shape,
                attributes: dict[str, Any] | None = None) -> Value:
        clone = Instruction(instruction.opcode, shape, [o.instruction for o in operands],
                            instruction.attributes if attributes is None else attributes, instruction.name,
                            kept_facts(instruction), instruction.line, instruction.column)
        return elements_of(self.builder.append(clone))

    # ---- sizes

    def size(self, operand: XlaOp, dimension: int) -> XlaOp:
        """The size of a dimension at run time."""
        key = (id(operand.instruction), dimension)
        if key not in self._sizes:
            self._sizes[key] = self.builder.add("get-dimension-size", [operand], {"dimensions": (dimension,)})
        return self._sizes[key]

    def cut(self, value: XlaOp, dimension: int, like: XlaOp, other: int) -> XlaOp:
        """`value` with the size in `dimension` that `like` has in its dimension `other`, where that one is dynamic."""
        if not _bounded(like.shape, other):
            return value
        return self.builder.add("set-dimension-size", [value, self.size(like, other)], {"dimensions": (dimension,)})

    def filled(self, operand: XlaOp, dimensions: Iterable[int], value: XlaOp | None = None) -> XlaOp:
        """The operand with these dimensions, as far as they are dynamic, filled up to their bounds: with the scalar `value`,
        or else with zeros."""
        given, dimensions = operand, [d for d in dimensions if _bounded(operand.shape, d)]
        for d in dimensions:
            flags = [f and k != d for k, f in enumerate(operand.shape.dynamic_flags)]
            bound = self.builder.constant(operand.shape.dimensions[d])
            operand = self.builder.add("set-dimension-size", [operand, bound], {"dimensions": (d,)},
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

    def agree(self, operands: Sequence[XlaOp], groups: Iterable[Sequence[Place]], last: bool = False) -> list[XlaOp]:
        """The operands, where a group of their dimensions has dynamic ones with one size in all of it: the smallest of the
        dynamic ones or, if `last`, that of the last one. What then lacks elements is filled up with zeros."""
        result = list(operands)
        for group in groups:
            dynamic = [(operands[k], d) for k, d in group if _bounded(operands[k].shape, d)]
            if not dynamic:
                continue
            origins = [self._origins(o.instruction, d) for o, d in dynamic]
            wanted = origins[-1] if last else frozenset().union(*origins)
            size = self._smallest(dict(zip(origins, dynamic, strict=True)), wanted)
            for k, d in group:
                given = operands[k]
                if not given.shape.dynamic_flags[d] or (
                        _bounded(given.shape, d) and self._origins(given.instruction, d) != wanted):
                    result[k] = self.builder.add("set-dimension-size", [result[k], size], {"dimensions": (d,)})
        return result

    def _smallest(self, known: dict[_Origins, tuple[XlaOp, int]], wanted: _Origins) -> XlaOp:
        """The size with the origins `wanted`, which are those of a known dimension or of several together."""
        if wanted in known:
            return self.size(*known[wanted])
        return functools.reduce(ops.Min, (self.size(*place) for place in known.values()))

    def _origins(self, instruction: Instruction, dimension: int) -> _Origins:
        """What the size of a dynamic dimension comes from: it is the smallest of these. Equal origins make equal sizes."""
        key = (id(instruction), dimension)
        if key not in self._known_origins:
            same = _same_size(instruction, dimension)
            if instruction.opcode == "set-dimension-size" and instruction.attributes["dimensions"] == (dimension,):
                found = self._size_origins(instruction.operands[1])
            else:
                found = self._origins(*same) if same else frozenset([key])
            self._known_origins[key] = found
        return self._known_origins[key]

    def _size_origins(self, size: Instruction) -> _Origins:
        if size.opcode == "get-dimension-size":
            return self._origins(size.operands[0], size.attributes["dimensions"][0])
        if size.opcode == "minimum":
            return self._size_origins(size.operands[0]) | self._size_origins(size.operands[1])
        return frozenset([(id(size), -1)])

    def follow(self, operands: Sequence[XlaOp], leader: int, others: Iterable[int]) -> list[XlaOp]:
        """The operands, the others with the leader's sizes: cut where it is dynamic, filled up where it is static."""
        result, shape = list(operands), operands[leader].shape
        for k in others:
            result[k] = self.filled(result[k], [d for d in range(shape.rank) if not shape.dynamic_flags[d]])
        pairs = [[(k, d) for k in (leader, *others)] for d in range(shape.rank) if shape.dynamic_flags[d]]
        return self.agree(result, pairs)

    # ---- loops and branches

    def region(self, computation: Computation, shape: Shape) -> Computation:
        """A computation of one parameter, which now has this shape."""
        builder = XlaBuilder(computation.name)
        whole = builder.parameter(0, shape, computation.parameters[0].name)
        return builder.finish(as_op(builder, type(self)(builder).run(computation, [elements_of(whole)])))


# ------------------------------------------------------------------------------------------------ shapes


def _bounded(shape: Shape, dimension: int) -> bool:
    """Whether a dimension is dynamic and has a bound."""
    return shape.dynamic_flags[dimension] and shape.dimensions[dimension] != UNBOUNDED


def _dynamic(shape: Shape) -> list[int]:
    """The bounded dynamic dimensions of an array."""
    return [d for d in range(shape.rank) if _bounded(shape, d)] if shape.is_array else []


def _same_size(inst: Instruction, dimension: int) -> tuple[Instruction, int] | None:
    """An operand and its dimension that has the size of the result's dimension, where the op makes them the same."""
    if not inst.operands or not inst.shape.is_array:
        return None
    operand, attributes = inst.operands[0], inst.attributes
    if inst.opcode in ("set-dimension-size", "reverse", "map"):
        return operand, dimension
    if definition_of(inst.opcode).elementwise:
        return next(((o, dimension) for o in inst.operands if o.shape.rank), None)
    if inst.opcode == "transpose":
        return operand, attributes["dimensions"][dimension]
    if inst.opcode == "broadcast" and dimension in attributes["dimensions"]:
        return operand, attributes["dimensions"].index(dimension)
    if inst.opcode == "reduce":
        return operand, [d for d in range(operand.shape.rank) if d not in attributes["dimensions"]][dimension]
    if inst.opcode == "reshape":
        for old, new in common_factors(operand.shape.dimensions, inst.shape.dimensions):
            wide = [d for d in old if operand.shape.dimensions[d] != 1]
            if dimension in new and len(wide) == 1 and operand.shape.dimensions[wide[0]] == inst.shape.dimensions[dimension]:
                return operand, wide[0]
    return None


def _with_flags(declared: Shape, inferred: Shape) -> Shape:
    """The declared shape, dynamic where the inferred one is, without layouts."""
    if declared.is_tuple:
        return Shape.tuple([_with_flags(d, i) for d, i in zip(declared.tuple_shapes, inferred.tuple_shapes, strict=True)])
    if not declared.is_array:
        return declared
    return Shape.array(declared.element_type, declared.dimensions, inferred.dynamic_flags)


def _joined(a: Shape, b: Shape) -> Shape:
    """Shapes of one tree: dynamic where either is."""
    if a.is_tuple:
        return Shape.tuple([_joined(x, y) for x, y in zip(a.tuple_shapes, b.tuple_shapes, strict=True)])
    if not a.is_array:
        return a
    flags = [x or y for x, y in zip(a.dynamic_flags, b.dynamic_flags, strict=True)]
    return Shape.array(a.element_type, a.dimensions, flags)


def _extreme(builder: XlaBuilder, element_type: PrimitiveType, largest: bool) -> XlaOp:
    """The largest or smallest value of a type, as a constant; of a floating one the NaN at that end of the total order."""
    if element_type.is_floating:
        return builder.constant(np.copysign(np.nan, 1 if largest else -1).astype(element_type.numpy))
    if element_type.is_pred:
        return builder.constant(largest)
    bits = element_type.bits - element_type.is_signed
    return builder.constant((1 << bits) - 1 if largest else -(1 << bits) if element_type.is_signed else 0, element_type)


# ------------------------------------------------------------------------------------------------ rules


def _columns(operands: Sequence[XlaOp], numbers: Iterable[int], without: Iterable[int] = ()) -> list[list[Place]]:
    """The dimensions of operands of one rank, those in the same place together."""
    numbers, left_out = list(numbers), set(without)
    return [[(k, d) for k in numbers] for d in range(operands[numbers[0]].shape.rank) if d not in left_out]


def _elementwise(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    return s.again(inst, s.agree(operands, _columns(operands, [k for k, o in enumerate(operands) if o.shape.rank])))


def _clamp(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """The result is dynamic where the operand is: there the last dynamic size counts, elsewhere bounds are filled up."""
    static = [d for d, dynamic in enumerate(operands[1].shape.dynamic_flags) if not dynamic]
    bounds = [k for k in (0, 2) if operands[k].shape.rank]
    operands = [s.filled(o, static) if k in bounds else o for k, o in enumerate(operands)]
    return s.again(inst, s.agree(operands, _columns(operands, sorted([1, *bounds])), last=True))


def _alike(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """All operands have the same dimensions."""
    return s.again(inst, s.agree(operands, _columns(operands, range(len(operands)))))


def _concatenate(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Operands may differ in the dimension that they are joined along."""
    columns = _columns(operands, range(len(operands)), inst.attributes["dimensions"])
    return s.again(inst, s.agree(operands, columns, last=True))


def _scan(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    (along,) = inst.attributes["dimensions"]
    inputs = range(len(operands) - inst.attributes["num_carries"])
    return s.again(inst, s.agree(operands, [[(k, along) for k in inputs]]))


def _reduce(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Arrays of different sizes are each reduced as far as they go: filled up with what a reduction starts from."""
    count = len(operands) // 2
    reduced = inst.attributes.get("dimensions", ())
    mixed = [d for d in reduced if any(not o.shape.dynamic_flags[d] for o in operands[:count])]
    operands = [s.filled(o, mixed, operands[count + k]) if k < count else o for k, o in enumerate(operands)]
    return s.again(inst, s.agree(operands, _columns(operands, range(count), reduced)))


def _dot(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    numbers = _dot_numbers(inst)
    contracted = zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True)
    batch = zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True)
    operands = s.agree(operands, [[(0, i), (1, j)] for i, j in contracted])
    return s.again(inst, s.agree(operands, [[(0, i), (1, j)] for i, j in batch], last=True))


def _dot_numbers(inst: Instruction) -> DotDimensionNumbers:
    return DotDimensionNumbers(*(tuple(inst.attributes.get(name, ())) for name in (
        "lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")))


def _ragged_dot(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Group sizes count rows up to the bound."""
    numbers, lhs, rhs = _dot_numbers(inst), operands[0], operands[1]
    result = s.again(inst, [s.filled(o, _dynamic(o.shape)) for o in operands])
    group = set(inst.attributes.get("rhs_group_dims", ()))
    sources = [*((lhs, d) for d in (*numbers.lhs_batch_dimensions, *numbers.lhs_free(lhs.shape.rank))),
               *((rhs, d) for d in numbers.rhs_free(rhs.shape.rank) if d not in group)]
    assert isinstance(result, XlaOp)
    first = result.shape.rank - len(sources)
    for place, (source, d) in enumerate(sources, first):
        result = s.cut(result, place, source, d)
    return result


def _convolution(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Input features meet the kernel's; the window has the size of the kernel's bounds, and groups divide bounds."""
    numbers = inst.attributes["dim_labels"]
    grouped = inst.attributes.get("feature_group_count", 1) > 1
    batches = inst.attributes.get("batch_group_count", 1) > 1
    image, kernel = operands
    features = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
    image = s.filled(image, [*([features[0]] if grouped else ()), *([numbers.input_batch_dimension] if batches else ())])
    made = numbers.kernel_output_feature_dimension
    kernel = s.filled(kernel, [*numbers.kernel_spatial_dimensions, *([features[1], made] if grouped or batches else ())])
    return s.again(inst, s.agree([image, kernel], [] if grouped else [[(0, features[0]), (1, features[1])]]))


def _slice(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """One element of a dynamic dimension makes a static one: there must be an element."""
    return s.again(inst, [s.filled(operands[0], [d for d, n in enumerate(inst.shape.dimensions) if n == 1])])


def _dynamic_slice(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    sizes = zip(inst.attributes["dynamic_slice_sizes"], operands[0].shape.dimensions, strict=True)
    return s.again(inst, [s.filled(operands[0], [d for d, (n, bound) in enumerate(sizes) if n < bound]), *operands[1:]])


def _dynamic_update_slice(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Places are counted up to the bounds. An update that can be as large as the operand gives the result its size, of a
    smaller one what it has is written."""
    whole = [d for d, n in enumerate(operands[0].shape.dimensions) if operands[1].shape.dimensions[d] == n]
    given, update, *starts = s.agree(operands, [[(0, d), (1, d)] for d in whole], last=True)
    parts = [d for d in range(given.shape.rank) if d not in whole]
    operand, written = s.filled(given, parts), [d for d in parts if _bounded(update.shape, d)]
    if written:
        before = s.builder.add("dynamic-slice", [operand, *starts], {"dynamic_slice_sizes": update.shape.dimensions})
        update = s.covered(s.filled(update, written), update, written, before)
    result = s.again(inst, [operand, update, *starts])
    return _resized(s, result, given, parts)


def _resized(s: _Settler, result: Value, like: XlaOp, dimensions: Iterable[int]) -> Value:
    """Each array of the result, cut to the sizes of `like`."""
    if isinstance(result, list):
        return [_resized(s, part, like, dimensions) for part in result]
    for d in dimensions:
        result = s.cut(result, d, like, d)
    return result


def _gather(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    batching = [*inst.attributes.get("operand_batching_dims", ())]
    operands = s.agree(operands, [[(0, a), (1, b)] for a, b in zip(
        batching, inst.attributes.get("start_indices_batching_dims", ()), strict=True)])
    sizes = enumerate(zip(inst.attributes["slice_sizes"], operands[0].shape.dimensions, strict=True))
    return s.again(inst, [s.filled(operands[0], [d for d, (n, bound) in sizes if n < bound and d not in batching]), operands[1]])


def _scatter(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Updates go as far as there are indices for them, and windows as long as the operand as far as it goes."""
    attributes, count, rank = inst.attributes, len(operands) // 2, operands[0].shape.rank
    inputs, updates, points = range(count), range(count + 1, 2 * count + 1), operands[count].shape.rank
    batching = dict(zip(attributes.get("scatter_indices_batching_dims", ()), attributes.get("input_batching_dims", ()),
                        strict=True))
    absent = {*attributes.get("inserted_window_dims", ()), *batching.values()}
    window = dict(zip([d for d in range(rank) if d not in absent], attributes["update_window_dims"], strict=True))
    indexed = [d for d in range(points) if d != attributes["index_vector_dim"]]
    scattered = [d for d in range(operands[count + 1].shape.rank) if d not in window.values()]
    operands = s.agree(operands, _columns(operands, inputs))
    groups = [[(count, i), *((k, u) for k in updates), *((k, batching[i]) for k in inputs if i in batching)]
              for i, u in zip(indexed, scattered, strict=True)]
    whole = {d: u for d, u in window.items() if operands[count + 1].shape.dimensions[u] == operands[0].shape.dimensions[d]}
    groups += [[(0, d), *((k, u) for k in updates)] for d, u in whole.items() if _bounded(operands[0].shape, d)]
    given = s.agree(operands, groups)
    parts = [d for d in range(rank) if d not in whole and d not in batching.values()]
    result = s.again(inst, [s.filled(o, parts) if k in inputs else o for k, o in enumerate(given)])
    return _resized(s, result, given[0], parts)


def _select_and_scatter(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Windows are counted up to the bound; what is beyond the operand's size is never selected."""
    operand, source, init = operands
    dynamic = _dynamic(operand.shape)
    root = inst.attributes["select"].root
    smallest = root.opcode == "compare" and root.attributes["direction"] in ("LE", "LT")
    beyond = _extreme(s.builder, operand.element_type, largest=smallest)
    if operand.element_type.is_floating:  # NaN is neither less nor greater
        beyond = s.builder.constant(np.inf if smallest else -np.inf, operand.element_type)
    result = s.again(inst, [s.filled(operand, dynamic, beyond), s.filled(source, _dynamic(source.shape), init), init])
    return _resized(s, result, operand, dynamic)


def _topk(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    least = _extreme(s.builder, operands[0].element_type, largest=not inst.attributes.get("largest", True))
    return s.again(inst, [s.filled(operands[0], [operands[0].shape.rank - 1], least)])


def _matrices(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Rows and columns of a square matrix agree, and those of the other operand of a triangular solve with them."""
    rank = operands[0].shape.rank
    square = [(0, rank - 1), (0, rank - 2)]
    if inst.opcode == "triangular-solve":
        square.append((1, rank - 2 if inst.attributes.get("left_side") else rank - 1))
    batch = _columns(operands, range(len(operands)), (rank - 1, rank - 2))
    return s.again(inst, s.agree(operands, [square, *batch]))


def _batch_norm(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    feature = inst.attributes["feature_index"]
    groups = [[(0, feature), *((k, 0) for k in range(1, len(operands)) if operands[k].shape.rank == 1)]]
    if inst.opcode == "batch-norm-grad":
        groups = [[*groups[0], (4, feature)], *_columns(operands, (0, 4), (feature,))]
    return s.again(inst, s.agree(operands, groups))


def _fft(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    shape, count = operands[0].shape, len(inst.attributes["fft_length"])
    if any(_bounded(shape, d) for d in range(shape.rank - count, shape.rank)):
        raise UnsupportedError("a Fourier transform along a dynamic dimension", subject=inst.subject, got=shape,
                               expected="static transformed dimensions", where=inst.where,
                               hint="ops.RemoveDynamicDimension fills the dimension up with zeros")
    return s.again(inst, operands)


def _reshape(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """Dynamic dimensions that become static ones are filled up first."""
    (operand,), shape = operands, inst.shape
    if UNBOUNDED in operand.shape.dimensions or UNBOUNDED in shape.dimensions:
        return s.again(inst, operands)
    static, flags = [], [False] * shape.rank
    for old, new in common_factors(operand.shape.dimensions, shape.dimensions):
        if not any(shape.dynamic_flags[k] for k in new):
            static += old
        elif any(operand.shape.dynamic_flags[k] for k in old):
            for k in new:
                flags[k] = shape.dynamic_flags[k]
    return s.append(inst, [s.filled(operand, static)], shape.with_dimensions(shape.dimensions, flags))


def _broadcast(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    flags = [False] * inst.shape.rank
    for d, flag in zip(inst.attributes.get("dimensions", ()), operands[0].shape.dynamic_flags, strict=True):
        flags[d] = flag
    return s.append(inst, operands, inst.shape.with_dimensions(inst.shape.dimensions, flags))


def _get_size(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """What the program declares static has the size that it declares."""
    declared, (dimension,) = inst.operands[0].shape, inst.attributes["dimensions"]
    if declared.dynamic_flags[dimension]:
        return s.again(inst, operands)
    return s.builder.constant(declared.dimensions[dimension])


def _set_size(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """The dimension is dynamic unless its new size is known to be the bound."""
    (dimension,), (operand, size) = inst.attributes["dimensions"], operands
    literal = size.instruction.attributes.get("literal") if size.instruction.opcode == "constant" else None
    flags = list(operand.shape.dynamic_flags)
    flags[dimension] = inst.shape.dynamic_flags[dimension] or literal is None or int(
        literal.array) != operand.shape.dimensions[dimension]
    return s.append(inst, operands, operand.shape.with_dimensions(operand.shape.dimensions, flags))


def _while(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """A carry is dynamic where the first value or what the body makes of it is."""
    shape, body = _with_flags(inst.shape, operands[0].shape), inst.attributes["body"]
    while (grown := _joined(shape, s.region(body, shape).root.shape)) != shape:
        shape = grown
    regions = {name: s.region(inst.attributes[name], shape) for name in ("condition", "body")}
    return s.append(inst, operands, shape, inst.attributes | regions)


def _conditional(s: _Settler, inst: Instruction, operands: list[XlaOp]) -> Value:
    """The result is dynamic where that of any branch is."""
    rest, regions = iter(operands[1:]), {}
    for name in ("true_computation", "false_computation", "branch_computations"):
        value = inst.attributes.get(name)
        if isinstance(value, Computation):
            regions[name] = s.region(value, next(rest).shape)
        elif value:
            regions[name] = tuple(s.region(b, next(rest).shape) for b in value)
    roots = [b.root.shape for value in regions.values() for b in (value if isinstance(value, tuple) else (value,))]
    shape = functools.reduce(_joined, roots, _with_flags(inst.shape, roots[0]))
    return s.append(inst, operands, shape, inst.attributes | regions)


_RULES: dict[str, Callable[[_Settler, Instruction, list[XlaOp]], Value]] = {
    "batch-norm-grad": _batch_norm, "batch-norm-inference": _batch_norm, "batch-norm-training": _batch_norm,
    "bitcast": _reshape, "broadcast": _broadcast, "cholesky": _matrices, "clamp": _clamp, "concatenate": _concatenate,
    "conditional": _conditional, "convolution": _convolution, "dot": _dot, "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice, "fft": _fft, "gather": _gather, "get-dimension-size": _get_size,
    "map": _alike, "ragged-dot": _ragged_dot, "reduce": _reduce, "reduce-window": _reduce, "reshape": _reshape, "scan": _scan,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter, "set-dimension-size": _set_size, "slice": _slice, "sort": _alike,
    "topk": _topk, "triangular-solve": _matrices, "while": _while}
