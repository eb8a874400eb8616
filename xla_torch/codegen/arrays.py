"""Native code of whole arrays: ops that move elements, loop and branch.

A rule gets the writer and the operands as arrays of code, and gives the array of its result: another way to index the operand
where elements only move, otherwise loops into a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ..analysis.loops import invariant_carries
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import Loop, branches_of, loop_of
from ..hlo.rule_tables import RuleTable
from ..hlo.structure import CONSTANT
from ..opcodes import control, indexing, internal, movement
from .code import ANYWHERE, Array, Code, held, single
from .elements import VECTOR_WORK, Unfit, number, typed

Value = Array | list[Array]
"""What an instruction has made: an array, or those of a flat tuple."""


class Machine(Protocol):
    """What native code may use (`loops.py`)."""

    @property
    def routines(self) -> frozenset[str]: ...


class Writer(Protocol):
    """What writes computations (`loops.py`)."""

    @property
    def code(self) -> Code: ...

    @property
    def machine(self) -> Machine: ...

    @property
    def readers(self) -> Mapping[Instruction, Sequence[Instruction]]: ...

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value: ...

    def iterate(self, loop: Loop, carries: list[Array], fixed: Collection[int]) -> None: ...


Rule = Callable[[Any, Instruction, list[Any]], Value]

ARRAYS: RuleTable[Rule] = RuleTable("native array")


# ------------------------------------------------------------------------------------------- elements that move


@ARRAYS.rule(CONSTANT)
def constant(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    value = inst.attributes["literal"].array
    first = value.reshape(-1)[:1]
    if value.size and (value.size == 1 or (value.tobytes() == first.tobytes() * value.size)):
        code = number(first[0], inst.shape.element_type)
        return Array(inst.shape, lambda _: code, reach=ANYWHERE)
    return writer.code.held(inst.shape, writer.code.constant(value, inst.shape.element_type))


@ARRAYS.rule(movement.iota)
def iota(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    along: int = inst.attributes["iota_dimension"]
    return Array(inst.shape, lambda index: typed(inst.shape.element_type, index[along]),
                 reach=ANYWHERE if inst.shape.rank == 1 else 0)


@ARRAYS.rule(movement.copy, internal.opt_barrier)
def same(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    return operands[0]


@ARRAYS.rule(movement.broadcast)
def broadcast(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    operand, sizes = writer.code.store(operands[0]), operands[0].shape.dimensions
    dims: tuple[int, ...] = inst.attributes.get("dimensions", ())
    return Array(inst.shape, lambda index: operand.at([index[d] if n != 1 else "0" for d, n in zip(dims, sizes, strict=True)]),
                 reach=ANYWHERE if operand.is_single else operand.reach if _adds_ones(inst, dims) else 0)


def _adds_ones(inst: Instruction, dims: Sequence[int]) -> bool:
    """Whether a broadcast only has dimensions of one more, and none of them last."""
    (operand,), rank = inst.operands, inst.shape.rank
    return (operand.shape.element_count == inst.shape.element_count and inst.shape.dimensions[-1] != 1
            and list(dims) == sorted(dims) and dims[-1] == rank - 1)


@ARRAYS.rule(movement.reshape, internal.bitcast)
def reshape(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """The memory seen in another shape; without memory, where only dimensions of one come and go the indices do."""
    (operand,), old, new = operands, operands[0].shape.dimensions, inst.shape.dimensions
    if operand.shape.element_type is not inst.shape.element_type:
        raise Unfit("bits as elements of another type")
    if operand.is_single:
        return Array(inst.shape, lambda _: operand.at(["0"] * len(old)), operand.stored, reach=ANYWHERE)
    if operand.buffer:
        return held(inst.shape, operand.buffer, operand.reach)
    if [n for n in old if n != 1] == [n for n in new if n != 1]:
        def at(index: Sequence[str]) -> str:
            kept = iter([i for i, n in zip(index, new, strict=True) if n != 1])
            return operand.at([next(kept) if n != 1 else "0" for n in old])

        return Array(inst.shape, at, operand.stored, reach=operand.reach if old[-1] != 1 != new[-1] else 0)
    return writer.code.held(inst.shape, writer.code.copy(operand).buffer)


@ARRAYS.rule(movement.transpose)
def transpose(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (operand,), dims = operands, inst.attributes["dimensions"]
    places: list[int] = [dims.index(d) for d in range(len(dims))]
    name, order = operand.memory
    return Array(inst.shape, lambda index: operand.at([index[k] for k in places]), operand.stored,
                 lies=(name, [places[d] for d in order]))


@ARRAYS.rule(movement.reverse)
def reverse(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (operand,), dims, sizes = operands, inst.attributes["dimensions"], inst.shape.dimensions
    return Array(inst.shape, lambda index: operand.at(
        [f"({sizes[d] - 1} - {i})" if d in dims else i for d, i in enumerate(index)]), operand.stored)


@ARRAYS.rule(movement.slice_)
def slice_(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (operand,), bounds = operands, inst.attributes["slice"]
    return Array(inst.shape, lambda index: operand.at(
        [_affine(i, stride, start) for i, (start, _, stride) in zip(index, bounds, strict=True)]), operand.stored)


def _affine(index: str, stride: int, start: int) -> str:
    scaled = index if stride == 1 else f"{stride} * {index}"
    return f"({scaled} + {start})" if start else scaled


@ARRAYS.rule(movement.concatenate)
def concatenate(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (along,), code, start = inst.attributes["dimensions"], writer.code, 0
    name = code.buffer(inst.shape)
    for operand in operands:
        _moves(code, operand.shape)
        with code.loops(operand.shape.dimensions, apart=True) as index:
            target = [_affine(i, 1, start) if d == along else i for d, i in enumerate(index)]
            code.put(inst.shape, name, target, operand.at(index))
        start += operand.shape.dimensions[along]
    return code.filled(inst.shape, name)


@ARRAYS.rule(movement.pad)
def pad(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (operand, value), code, padding = operands, writer.code, inst.attributes["padding"]
    name = code.buffer(inst.shape)
    code.fill(name, Array(inst.shape, lambda _: value.at(())))
    _moves(code, operand.shape)
    kept = [_kept(n, size, low, interior + 1) for n, size, (low, _, interior) in
            zip(operand.shape.dimensions, inst.shape.dimensions, padding, strict=True)]
    if all(first < behind for first, behind in kept):  # ranges and no conditions: see `select_@` in functions.py
        with code.loops([behind - first for first, behind in kept], apart=True) as at:
            index = [_affine(i, 1, first) for i, (first, _) in zip(at, kept, strict=True)]
            target = [_affine(i, interior + 1, low) for i, (low, _, interior) in zip(index, padding, strict=True)]
            code.put(inst.shape, name, target, operand.at(index))
    return code.filled(inst.shape, name)


def _moves(code: Code, shape: Shape) -> None:
    """Count the elements of an array on their way to other places, by rows."""
    count, is_long = shape.element_count, shape.rank and shape.dimensions[-1] >= _LONG_ROW
    code.works(shape, count * (VECTOR_WORK if is_long else 1), count * VECTOR_WORK)


_LONG_ROW = 8


def _kept(count: int, size: int, low: int, step: int) -> tuple[int, int]:
    """Which of so many elements, `step` apart from `low` on, are among `size` places: from the first to behind the last."""
    return max(0, -(low // step)), min(count, -(-(size - low) // step))


# ------------------------------------------------------------------------------------------- places known at run time


def starts(code: Code, indices: Sequence[Array], whole: Shape, part: Shape) -> list[str]:
    """Start indices as locals, moved to where all of the part is inside."""
    if len(indices) != whole.rank:
        raise Unfit("start indices in one vector")
    names = []
    for index, size, count in zip(indices, whole.dimensions, part.dimensions, strict=True):
        if size == count:
            names.append("0")
            continue
        names.append(code.name("s"))
        code.line(f"s64 {names[-1]} = clamped_s64((s64){index.at(['0'] * index.shape.rank)}, {size - count});")
    return names


@ARRAYS.rule(indexing.dynamic_slice)
def dynamic_slice(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    operand = writer.code.store(operands[0])
    begin = starts(writer.code, operands[1:], operand.shape, inst.shape)
    view = Array(inst.shape, lambda index: operand.at([i if b == "0" else f"({b} + {i})"
                                                       for b, i in zip(begin, index, strict=True)]))
    return writer.code.copy(view) if view.is_single else view


@ARRAYS.rule(indexing.dynamic_update_slice)
def dynamic_update_slice(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """A copy with the update in it. A loop's carries are updated where they are (`loops.py`)."""
    whole, update = writer.code.copy(operands[0]), operands[1]
    if whole.is_single:
        return writer.code.copy(update)
    write_update(writer.code, whole, update, starts(writer.code, operands[2:], whole.shape, update.shape))
    return whole


def write_update(code: Code, whole: Array, update: Array, begin: Sequence[str]) -> None:
    code.works(update.shape, work := update.shape.element_count * VECTOR_WORK, work)
    with code.loops(update.shape.dimensions, apart=True) as index:
        target = [i if b == "0" else f"({b} + {i})" for b, i in zip(begin, index, strict=True)]
        code.put(whole.shape, whole.buffer, target, update.at(index))


# ------------------------------------------------------------------------------------------- loops and branches inside


@ARRAYS.rule(control.while_)
def while_(writer: Writer, inst: Instruction, operands: list[list[Array]]) -> Value:
    """A loop in the loop: the carries that it changes lie in memory of their own, which is filled anew each time."""
    fixed = invariant_carries(inst)
    carries = [writer.code.store(o) if k in fixed and not _is_short(writer.code, o) else writer.code.copy(o)
               for k, o in enumerate(operands[0])]
    memory = {c.buffer for c in carries} & writer.code.buffers
    writer.code.buffers -= memory  # which the body must not exchange for the memory of results
    with writer.code.block("for (;;)"), writer.code.interruptible():
        writer.iterate(loop_of(inst), carries, fixed)
    writer.code.buffers |= memory
    return carries


def _is_short(code: Code, array: Array) -> bool:
    """Whether an array lacks the rest of its last vector."""
    return code.vectors(array.shape) > max(array.reach, array.shape.element_count)


@ARRAYS.rule(control.conditional)
def conditional(writer: Writer, inst: Instruction, operands: list[Any]) -> Value:
    """The chosen branch runs, and all write their results to the same places."""
    code, branches = writer.code, branches_of(inst)
    names = [code.local(s, "v") if s.element_count == 1 else code.buffer(s) for s in inst.shape.tuple_shapes]
    selector = code.store(operands[0])
    for k, (branch, operand) in enumerate(zip(branches, operands[1:], strict=True)):
        test = selector.at(()) if selector.shape.element_type is PRED else f"{selector.at(())} == {k}"
        last = "else" if k else "if (1)"
        with code.block(last if k == len(branches) - 1 else f"{'else if' if k else 'if'} ({test})"):
            made = writer.run(branch, [operand])
            assert isinstance(made, list)
            for shape, name, result in zip(inst.shape.tuple_shapes, names, made, strict=True):
                if result.is_single:
                    code.line(f"{name} = {result.at(['0'] * shape.rank)};")
                else:
                    code.fill(name, result)
    shapes = inst.shape.tuple_shapes
    return [single(s, name) if s.element_count == 1 else code.held(s, name) for s, name in zip(shapes, names, strict=True)]
