"""Native code of whole arrays: ops that move elements, contract, reduce, loop and branch.

A rule gets the writer and the operands as arrays of code, and gives the array of its result: another way to index the operand
where elements only move, otherwise loops into a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..core.shape import Shape
from ..core.types import F32, F64, PRED
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import Loop, branches_of, loop_of
from ..hlo.rule_tables import RuleTable
from ..hlo.structure import CONSTANT
from ..opcodes import contraction, control, indexing, internal, movement, reduction
from .code import Array, Code, element_of, held, single
from .elements import VECTOR_WORK, Unfit, name_of, number, typed

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

    def iterate(self, loop: Loop, carries: list[Array]) -> None: ...


Rule = Callable[[Any, Instruction, list[Any]], Value]

ARRAYS: RuleTable[Rule] = RuleTable("native array")


# ------------------------------------------------------------------------------------------- elements that move


@ARRAYS.rule(CONSTANT)
def constant(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    value = inst.attributes["literal"].array
    first = value.reshape(-1)[:1]
    if value.size and (value.size == 1 or (value.tobytes() == first.tobytes() * value.size)):
        code = number(first[0], inst.shape.element_type)
        return Array(inst.shape, lambda _: code)
    return held(inst.shape, writer.code.constant(value, inst.shape.element_type))


@ARRAYS.rule(movement.iota)
def iota(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    along: int = inst.attributes["iota_dimension"]
    return Array(inst.shape, lambda index: typed(inst.shape.element_type, index[along]))


@ARRAYS.rule(movement.copy, internal.opt_barrier)
def same(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    return operands[0]


@ARRAYS.rule(movement.broadcast)
def broadcast(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    operand, sizes = writer.code.store(operands[0]), operands[0].shape.dimensions
    dims: tuple[int, ...] = inst.attributes.get("dimensions", ())
    return Array(inst.shape, lambda index: operand.at([index[d] if n != 1 else "0" for d, n in zip(dims, sizes, strict=True)]))


@ARRAYS.rule(movement.reshape, internal.bitcast)
def reshape(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """The memory seen in another shape; without memory, where only dimensions of one come and go the indices do."""
    (operand,), old, new = operands, operands[0].shape.dimensions, inst.shape.dimensions
    if operand.is_single:
        return Array(inst.shape, lambda _: operand.at(["0"] * len(old)), operand.stored)
    if operand.buffer:
        return held(inst.shape, operand.buffer)
    if [n for n in old if n != 1] == [n for n in new if n != 1]:
        def at(index: Sequence[str]) -> str:
            kept = iter([i for i, n in zip(index, new, strict=True) if n != 1])
            return operand.at([next(kept) if n != 1 else "0" for n in old])

        return Array(inst.shape, at, operand.stored)
    return held(inst.shape, writer.code.copy(operand).buffer)


@ARRAYS.rule(movement.transpose)
def transpose(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (operand,), dims = operands, inst.attributes["dimensions"]
    places: list[int] = [dims.index(d) for d in range(len(dims))]
    return Array(inst.shape, lambda index: operand.at([index[k] for k in places]), operand.stored)


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
        code.work += operand.shape.element_count
        with code.loops(operand.shape.dimensions, apart=True) as index:
            target = [_affine(i, 1, start) if d == along else i for d, i in enumerate(index)]
            code.line(f"{element_of(inst.shape, name, target)} = {operand.at(index)};")
        start += operand.shape.dimensions[along]
    return code.filled(inst.shape, name)


@ARRAYS.rule(movement.pad)
def pad(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    (operand, value), code, padding = operands, writer.code, inst.attributes["padding"]
    name = code.buffer(inst.shape)
    code.fill(name, Array(inst.shape, lambda _: value.at(())))
    code.work += operand.shape.element_count
    kept = [_kept(n, size, low, interior + 1) for n, size, (low, _, interior) in
            zip(operand.shape.dimensions, inst.shape.dimensions, padding, strict=True)]
    if all(first < behind for first, behind in kept):  # ranges and no conditions: see `select_@` in functions.py
        with code.loops([behind - first for first, behind in kept], apart=True) as at:
            index = [_affine(i, 1, first) for i, (first, _) in zip(at, kept, strict=True)]
            target = [_affine(i, interior + 1, low) for i, (low, _, interior) in zip(index, padding, strict=True)]
            code.line(f"{element_of(inst.shape, name, target)} = {operand.at(index)};")
    return code.filled(inst.shape, name)


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
    code.work += update.shape.element_count * VECTOR_WORK
    with code.loops(update.shape.dimensions, apart=True) as index:
        target = [i if b == "0" else f"({b} + {i})" for b, i in zip(begin, index, strict=True)]
        code.line(f"{element_of(whole.shape, whole.buffer, target)} = {update.at(index)};")


# ------------------------------------------------------------------------------------------- sums


@ARRAYS.rule(contraction.dot)
def dot(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """Products in the order of the contracted dimensions, rounded to the result's type at each step."""
    given, code, result = inst.attributes, writer.code, inst.shape
    if any(o.shape.element_type is not result.element_type or result.element_type is PRED for o in operands):
        raise Unfit("a product of several types")
    batch = given.get("lhs_batch_dims", ()), given.get("rhs_batch_dims", ())
    inner = given.get("lhs_contracting_dims", ()), given.get("rhs_contracting_dims", ())
    if blas_routine(writer.machine, inst):
        return product(writer, inst, operands)
    lhs, rhs = (code.store(o) for o in operands)
    free = [[d for d in range(o.shape.rank) if d not in (*b, *c)] for o, b, c in zip((lhs, rhs), batch, inner, strict=True)]
    sizes = [lhs.shape.dimensions[d] for d in inner[0]]
    count, of = len(batch[0]), result.element_type

    def term(outer: Sequence[str], along: Sequence[str]) -> str:
        left, right = ["0"] * lhs.shape.rank, ["0"] * rhs.shape.rank
        for places, b, c, f, first in ((left, batch[0], inner[0], free[0], count),
                                       (right, batch[1], inner[1], free[1], count + len(free[0]))):
            for d, i in [*zip(b, outer, strict=False), *zip(c, along, strict=True), *zip(f, outer[first:], strict=False)]:
                places[d] = i
        return f"{lhs.at(left)} * {rhs.at(right)}"

    name = code.buffer(result)
    kept = result.rank - len(free[1])
    if free[1] and free[1][-1] == rhs.shape.rank - 1:  # rows of the right side are added, which several elements do at once
        code.fill(name, Array(result, lambda _: typed(of, "0")))
        dims = result.dimensions
        with code.loops(dims[:kept]) as rows, code.loops(sizes) as along, code.loops(dims[kept:]) as row:
            place = element_of(result, name, [*rows, *row])
            code.line(f"{place} = {typed(of, f'{place} + {term([*rows, *row], along)}')};")
    else:
        with code.loops(result.dimensions) as outer:
            total = code.local(Shape.array(of), "t", "0")
            with code.loops(sizes) as along:
                code.line(f"{total} = {typed(of, f'{total} + {term(outer, along)}')};")
            code.line(f"{element_of(result, name, outer)} = {total};")
    code.work += _terms(inst)
    return code.filled(result, name)


_GEMM = {F32: "sgemm", F64: "dgemm"}
_GEMM_FROM = 1 << 13
"""Products from which a call of BLAS is faster than loops."""



def blas_routine(machine: Machine, inst: Instruction) -> str:
    """The routine of BLAS that computes a dot; empty where loops do."""
    routine = _GEMM.get(inst.shape.element_type, "")
    return routine if routine in machine.routines and _terms(inst) >= _GEMM_FROM else ""


def _terms(inst: Instruction) -> int:
    dims = inst.operands[0].shape.dimensions
    return inst.shape.element_count * math.prod(dims[d] for d in inst.attributes.get("lhs_contracting_dims", ()))


def product(writer: Writer, inst: Instruction, operands: Sequence[Array], into: str = "") -> Array:
    """Matrix products by BLAS, one for each place of the batch. They are no work that torch would save. With `into` they are
    added to what stands in a buffer, turned round if those who read the result do that."""
    given, code, result = inst.attributes, writer.code, inst.shape
    batch = given.get("lhs_batch_dims", ()), given.get("rhs_batch_dims", ())
    inner = given.get("lhs_contracting_dims", ()), given.get("rhs_contracting_dims", ())
    routine, count = blas_routine(writer.machine, inst), len(batch[0])
    if routine not in code.routines:
        code.routines.append(routine)
    made = [_as_matrices(code, *o) for o in zip(operands, batch, inner, strict=True)]
    # Where all who read the result turn it round, it is the product of the two in the other order.
    is_turned = result.rank == count + 2 and all(turns(reader) for reader in writer.readers[inst])
    (a, a_turned, m, k), (b, b_straight, n, _) = reversed(made) if is_turned else made
    dims = (*result.dimensions[:count], result.dimensions[-1], result.dimensions[-2]) if is_turned else result.dimensions
    shape = Shape.array(result.element_type, dims)
    name, of = into or code.buffer(shape), name_of(result.element_type)
    with code.loops([math.prod(dims[:count])]) as (at,):
        left, right, target = (f"{p} + {at} * {size}" for p, size in ((a, m * k), (b, n * k), (name, m * n)))
        turned = f"{int(a_turned)}, {int(not b_straight)}"
        code.line(f"product_{of}({routine}, {turned}, {m}, {n}, {k}, {left}, {right}, {int(bool(into))}, {target});")
    if not is_turned:
        return code.filled(shape, name)
    return Array(result, lambda index: element_of(shape, name, [*index[:count], index[-1], index[-2]]))


def turns(reader: Instruction) -> bool:
    """Whether this is a transpose that puts the last dimension but one last."""
    dims = reader.attributes.get("dimensions", ())
    return reader.opcode == movement.transpose and dims[-1] == len(dims) - 2


def _as_matrices(code: Code, operand: Array, batch: Sequence[int], inner: Sequence[int]) -> tuple[str, bool, int, int]:
    """A buffer with the operand's matrices one after the other, whether what is summed over comes first in them, and how many
    free places and places summed over they have."""
    dims = operand.shape.dimensions
    free = [d for d in range(len(dims)) if d not in (*batch, *inner)]
    straight, lie = [*batch, *free, *inner], [d for d, n in enumerate(dims) if n != 1]
    sizes = math.prod(dims[d] for d in free), math.prod(dims[d] for d in inner)
    for order, is_first in ((straight, False), ([*batch, *inner, *free], True)):
        if [d for d in order if dims[d] != 1] == lie:
            return (operand if operand.buffer else code.copy(operand)).buffer, is_first, *sizes
    moved = Array(Shape.array(operand.shape.element_type, [dims[d] for d in straight]),
                  lambda index: operand.at([index[straight.index(d)] for d in range(len(dims))]))
    return code.copy(moved).buffer, False, *sizes


@ARRAYS.rule(reduction.reduce)
def reduce(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """In the order of the elements, whatever the reducer is."""
    half, code, dims, reducer = len(operands) // 2, writer.code, inst.attributes["dimensions"], inst.attributes["to_apply"]
    arrays, inits = operands[:half], [code.store(o) for o in operands[half:]]
    sizes = arrays[0].shape.dimensions
    shapes = inst.shape.tuple_shapes if inst.shape.is_tuple else (inst.shape,)
    kept = [d for d in range(len(sizes)) if d not in dims]
    buffers = [code.buffer(s) for s in shapes]
    before = code.work
    if kept and kept[-1] == len(sizes) - 1 and sizes[-1] > 1 and not any(s.element_count == 1 for s in shapes):
        _reduce_rows(writer, reducer, arrays, inits, dims, list(zip(shapes, buffers, strict=True)))
        code.work = before + arrays[0].shape.element_count * VECTOR_WORK
        made = list(map(code.filled, shapes, buffers))
        return made if inst.shape.is_tuple else made[0]
    with code.loops([sizes[d] for d in kept]) as outer:
        totals = [code.local(i.shape, "t", i.at(())) for i in inits]
        with code.loops([sizes[d] for d in dims]) as inner:
            index = ["0"] * len(sizes)
            for d, i in [*zip(kept, outer, strict=True), *zip(dims, inner, strict=True)]:
                index[d] = i
            now = [code.copy(Array(i.shape, lambda _, a=a: a.at(index))) for a, i in zip(arrays, inits, strict=True)]
            value = writer.run(reducer, [*(single(i.shape, t) for i, t in zip(inits, totals, strict=True)), *now])
            results = value if isinstance(value, list) else [value]
            found = [code.copy(result).at(()) for result in results]
            for total, value in zip(totals, found, strict=True):
                code.line(f"{total} = {value};")
        for shape, name, total in zip(shapes, buffers, totals, strict=True):
            code.line(f"{element_of(shape, name, outer)} = {total};")
    code.work = before + 2 * arrays[0].shape.element_count
    made = list(map(code.filled, shapes, buffers))
    return made if inst.shape.is_tuple else made[0]


def _reduce_rows(writer: Writer, reducer: Computation, arrays: Sequence[Array], inits: Sequence[Array], dims: Sequence[int],
                 results: Sequence[tuple[Shape, str]]) -> None:
    """Each row goes into all results at once, which several elements do together; the order for each of them is the same."""
    code, sizes = writer.code, arrays[0].shape.dimensions
    kept = [d for d in range(len(sizes)) if d not in dims]
    for (shape, name), init in zip(results, inits, strict=True):
        code.fill(name, Array(shape, lambda _, init=init: init.at(())))
    with code.loops([sizes[d] for d in kept[:-1]]) as outer, code.loops([sizes[d] for d in dims]) as inner, \
            code.loops([sizes[kept[-1]]], apart=True) as last:
        index = ["0"] * len(sizes)
        for d, i in [*zip(kept, [*outer, *last], strict=True), *zip(dims, inner, strict=True)]:
            index[d] = i
        totals = [code.copy(Array(i.shape, lambda _, s=s, n=n: element_of(s, n, [*outer, *last])))
                  for (s, n), i in zip(results, inits, strict=True)]
        now = [code.copy(Array(i.shape, lambda _, a=a: a.at(index))) for a, i in zip(arrays, inits, strict=True)]
        value = writer.run(reducer, [*totals, *now])
        found = [code.copy(v).at(()) for v in (value if isinstance(value, list) else [value])]
        for (shape, name), new in zip(results, found, strict=True):
            code.line(f"{element_of(shape, name, [*outer, *last])} = {new};")


# ------------------------------------------------------------------------------------------- loops and branches inside


@ARRAYS.rule(control.while_)
def while_(writer: Writer, inst: Instruction, operands: list[list[Array]]) -> Value:
    """A loop in the loop: the carries that it changes lie in memory of their own, which is filled anew each time."""
    results = loop_of(inst).body.root.operands
    carries = [writer.code.store(o) if _is_handed_on(result, k) else writer.code.copy(o)
               for k, (o, result) in enumerate(zip(operands[0], results, strict=True))]
    memory = {c.buffer for c in carries} & writer.code.buffers
    writer.code.buffers -= memory  # which the body must not exchange for the memory of results
    with writer.code.block("for (;;)"), writer.code.interruptible():
        writer.iterate(loop_of(inst), carries)
    writer.code.buffers |= memory
    return carries


def _is_handed_on(result: Instruction, k: int) -> bool:
    """Whether carry number `k` of a loop stays what it is."""
    return result.is_element and result.operands[0].is_parameter and result.attributes["index"] == k


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
    return [single(s, n) if s.element_count == 1 else held(s, n) for s, n in zip(inst.shape.tuple_shapes, names, strict=True)]
