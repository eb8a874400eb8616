"""Native code of what adds up: dots, by loops or by BLAS, and reductions.

Floats of 16 bits are added up in single precision and rounded once, at the end, as torch does; what rounds them again and again
is `Unfit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..core import tuning
from ..core.shape import Shape
from ..core.types import C64, C128, F32, F64, PRED, PrimitiveType
from ..hlo.ir import Computation, Instruction
from ..hlo.structure import CONSTANT
from ..opcodes import comparison, contraction, elementwise, indexing, internal, linalg, movement, reduction, window
from .arrays import ARRAYS, Machine, Value, Writer
from .code import Array, Code, element_of, single
from .elements import HALVES, VECTOR_WORK, Unfit, applied, name_of, typed
from .fourier import factors
from .linalg import require_matrices
from .selections import row_selection, select_rows


@ARRAYS.rule(contraction.dot)
def dot(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """Products in the order of the contracted dimensions, rounded to the type that they are `_summed` in at each step."""
    given, code, result = inst.attributes, writer.code, inst.shape.with_element_type(_summed(inst))
    batch = given.get("lhs_batch_dims", ()), given.get("rhs_batch_dims", ())
    inner = given.get("lhs_contracting_dims", ()), given.get("rhs_contracting_dims", ())
    if blas_routine(writer.machine, inst):
        return _rounded(inst.shape, product(writer, inst, operands))
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
        return applied(elementwise.multiply, of, [lhs.at(left), rhs.at(right)])

    name, (rows, owner) = code.buffer(result), (free[1], rhs) if free[1] else (free[0], lhs)
    kept = result.rank - len(rows)
    if rows and rows[-1] == owner.shape.rank - 1:  # rows are added, which several elements do at once
        code.fill(name, Array(result, lambda _: typed(of, "0")))
        dims = result.dimensions
        with code.loops(dims[:kept]) as outer, code.loops(sizes) as along, code.loops(dims[kept:]) as row:
            place = element_of(result, name, [*outer, *row])
            code.line(f"{place} = {typed(of, f'{place} + {term([*outer, *row], along)}')};")
    else:
        with code.loops(result.dimensions) as outer:
            total = code.local(Shape.array(of), "t", "0")
            with code.loops(sizes, pragma=_side_by_side(code, elementwise.add, of, [total], sizes)) as along:
                code.line(f"{total} = {typed(of, f'{total} + {term(outer, along)}')};")
            code.put(result, name, outer, total)
    code.work += terms_of(inst) * (VECTOR_WORK if of.is_floating else 1) + result.element_count
    return _rounded(inst.shape, code.filled(result, name))


LONG_ROW = 128
"""Elements of a row from which twice as many totals are made side by side. Short rows take longer with them (96 products with 32
elements 0.49 us, and not 0.23); "Sinkhorn", whose rows are 200 exponentials long, takes 1.43 ms and not 1.71."""


def _side_by_side(code: Code, opcode: str, of: PrimitiveType, totals: Sequence[str], sizes: Sequence[int]) -> str:
    """What lets a compiler have several totals for one, in loops of these sizes whose elements meet it by an op; empty where it
    finds that out itself, or their order counts. It is written where the loops are to stand."""
    if opcode not in _NEUTRAL or not of.is_floating or len(totals) > 1:
        return ""
    operator, of_c = OPERATORS.get(opcode, ""), name_of(of)
    if not operator:
        operator = code.name("meet")
        code.line(f"#pragma omp declare reduction({operator}: {of_c}: omp_out = {opcode}_{of_c}(omp_out, omp_in)) "
                  f"initializer(omp_priv = {'-' * (_NEUTRAL[opcode] < 0)}__builtin_inf())")
    innermost = next((n for n in reversed(sizes) if n != 1), 1)
    at_once = (1 + (innermost >= LONG_ROW)) * (4 if of is F64 else 8)
    return f"#pragma omp simd reduction({operator}:{totals[0]}) simdlen({at_once})"


OPERATORS = {elementwise.add: "+", elementwise.multiply: "*"}
"""C's operators of those that add up."""
_NEUTRAL = {elementwise.add: 0.0, elementwise.multiply: 1.0, elementwise.maximum: -math.inf, elementwise.minimum: math.inf}
"""What changes nothing, by the op that totals meet elements with."""


def _summed(inst: Instruction) -> PrimitiveType:
    """The type in which a dot is computed, and rounded to its result's at the end. Raises Unfit."""
    types, result = {o.shape.element_type for o in inst.operands}, inst.shape.element_type
    (of, *others) = types
    if others or result is PRED or not (result is of or (result is F32 and of in HALVES)):
        raise Unfit("a product of several types")
    return F32 if of in HALVES else of


def _widened(array: Array) -> Array:
    """An array of floats of 16 bits in the type that native code has their values in; others as they are."""
    if array.shape.element_type not in HALVES:
        return array
    return Array(array.shape.with_element_type(F32), array.at, array.stored)


def _rounded(shape: Shape, array: Array) -> Array:
    """An array in the type of a shape, which it has but for floats of 16 bits."""
    of = shape.element_type
    return Array(shape, lambda index: typed(of, array.at(index)), stored=False) if of in HALVES else array


SET_THREADS = "MKL_Set_Num_Threads_Local"
"""The function of MKL's that says how many threads it has here, and returns what was said before."""
_GEMM = {F32: "sgemm", F64: "dgemm", C64: "cgemm", C128: "zgemm"}
_GEMM_FROM = 1 << 13
"""Products from which a call of BLAS is faster than loops."""
_WIDENED_FROM = 4
"""Those for each element of the operands from which it is where they must be widened for it."""


def blas_routine(machine: Machine, inst: Instruction) -> str:
    """The routine of BLAS that computes a dot; empty where loops do. Raises Unfit."""
    routine, terms = _GEMM.get(_summed(inst), ""), terms_of(inst)
    factors = [o.shape for o in inst.operands]
    if factors[0].element_type in HALVES and terms < _WIDENED_FROM * sum(s.element_count for s in factors):
        return ""
    return routine if routine in machine.routines and terms >= _GEMM_FROM else ""


def terms_of(inst: Instruction) -> int:
    """How many products a dot adds up."""
    dims = inst.operands[0].shape.dimensions
    return inst.shape.element_count * math.prod(dims[d] for d in inst.attributes.get("lhs_contracting_dims", ()))


def _matrix_terms(inst: Instruction, batch: int) -> int:
    """How many products each matrix of a dot adds up, behind so many dimensions of a batch."""
    return terms_of(inst) // math.prod(inst.shape.dimensions[:batch])


def product(writer: Writer, inst: Instruction, operands: Sequence[Array], into: str = "") -> Array:
    """Matrix products by BLAS, one for each place of the batch, in the type that they are `_summed` in. They are no work that
    torch would save. With `into` they are added to what stands in a buffer, turned round if those who read the result do that."""
    given, code, result = inst.attributes, writer.code, inst.shape.with_element_type(_summed(inst))
    batch = given.get("lhs_batch_dims", ()), given.get("rhs_batch_dims", ())
    inner = given.get("lhs_contracting_dims", ()), given.get("rhs_contracting_dims", ())
    routine, count = blas_routine(writer.machine, inst), len(batch[0])
    alone = SET_THREADS if SET_THREADS in writer.machine.routines and _matrix_terms(inst, count) <= tuning.PRODUCT_ALONE else "0"
    for name in (routine, *[alone] * (alone != "0")):
        if name not in code.routines:
            code.routines.append(name)
    made = [_as_matrices(code, *o) for o in zip(map(_widened, operands), batch, inner, strict=True)]
    # Where all who read the result turn it round, it is the product of the two in the other order.
    is_turned = result.rank == count + 2 and all(turns(reader) for reader in writer.readers[inst])
    (a, a_turned, m, k), (b, b_straight, n, _) = reversed(made) if is_turned else made
    dims = (*result.dimensions[:count], result.dimensions[-1], result.dimensions[-2]) if is_turned else result.dimensions
    shape = Shape.array(result.element_type, dims)
    name, of = into or code.buffer(shape), name_of(result.element_type)
    with code.loops([math.prod(dims[:count])]) as (at,):
        left, right, target = (f"{p} + {at} * {size}" for p, size in ((a, m * k), (b, n * k), (name, m * n)))
        turned = f"{int(a_turned)}, {int(not b_straight)}"
        code.line(f"product_{of}({routine}, {alone}, {turned}, {m}, {n}, {k}, {left}, {right}, {int(bool(into))}, {target});")
    if not is_turned:
        return code.filled(shape, name)
    return Array(result, lambda index: element_of(shape, name, [*index[:count], index[-1], index[-2]]),
                 lies=(name, [*range(count), count + 1, count]))


def turns(reader: Instruction) -> bool:
    """Whether this is a transpose that puts the last dimension but one last."""
    dims = reader.attributes.get("dimensions", ())
    return reader.opcode == movement.transpose and dims[-1] == len(dims) - 2


def _as_matrices(code: Code, operand: Array, batch: Sequence[int], inner: Sequence[int]) -> tuple[str, bool, int, int]:
    """A buffer with the operand's matrices one after the other, whether what is summed over comes first in them, and how many
    free places and places summed over they have."""
    dims = operand.shape.dimensions
    free = [d for d in range(len(dims)) if d not in (*batch, *inner)]
    straight, (name, order) = [*batch, *free, *inner], operand.memory
    lie = [d for d in (order if name else range(len(dims))) if dims[d] != 1]
    sizes = math.prod(dims[d] for d in free), math.prod(dims[d] for d in inner)
    for wanted, is_first in ((straight, False), ([*batch, *inner, *free], True)):
        if [d for d in wanted if dims[d] != 1] == lie:
            return name or code.copy(operand).buffer, is_first, *sizes
    moved = Array(Shape.array(operand.shape.element_type, [dims[d] for d in straight]),
                  lambda index: operand.at([index[straight.index(d)] for d in range(len(dims))]))
    return code.copy(moved).buffer, False, *sizes


@ARRAYS.rule(reduction.reduce)
def reduce(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """In the order of the elements, whatever the reducer is, but where it selects. Sums of floats of 16 bits are rounded once, at
    the end."""
    opcode = met_by(inst)
    if _is_rounded_once(inst, opcode):
        return _rounded(inst.shape, _reduced(writer, inst, list(map(_widened, operands)), opcode, is_widened=True)[0])
    chosen = row_selection(writer, inst)
    made = _reduced(writer, inst, operands, opcode) if chosen is None else select_rows(writer, inst, chosen, operands)
    return made if inst.shape.is_tuple else made[0]


def met_by(inst: Instruction) -> str:
    """The op that a reducer is nothing else than; empty where it is more."""
    region = inst.attributes["to_apply"]
    is_one = len(region.parameters) == 2 and set(region.root.operands) == set(region.parameters)
    return region.root.opcode if is_one else ""


def _is_rounded_once(inst: Instruction, opcode: str) -> bool:
    """Whether this is a sum or product of floats of 16 bits, which is computed in single precision and rounded once. Raises Unfit
    for what rounds them again and again."""
    types = {s.element_type for s in (*inst.shape.leaves(), *(o.shape for o in inst.operands))}
    if opcode not in OPERATORS or types.isdisjoint(HALVES):
        _require_exact(inst.attributes["to_apply"])
        return False
    init = inst.operands[1]
    if len(types) > 1 or init.opcode != CONSTANT or float(init.attributes["literal"].array) != _NEUTRAL[opcode]:
        raise Unfit("a sum of floats of 16 bits on from a number, or in another type")
    return True


_LINEAR = frozenset({linalg.cholesky, linalg.triangular_solve, internal.custom_call})


def require_fit(inst: Instruction) -> None:
    """Raise Unfit for an op of types that native code computes no such op of, though it has their elements."""
    if inst.opcode == contraction.dot:
        _summed(inst)
    elif inst.opcode == reduction.reduce:
        _is_rounded_once(inst, met_by(inst))
    elif inst.opcode == window.reduce_window or (inst.opcode == indexing.scatter and not inst.attributes.get("unique_indices")):
        _require_exact(inst.attributes["to_apply"])
    elif inst.opcode in _LINEAR:
        require_matrices(inst)
    elif inst.opcode == linalg.fft:
        for n in inst.attributes["fft_length"]:
            factors(n)


def calls_of(inst: Instruction) -> int:
    """How many calls of torch an op takes: of windows each dimension's places are sliced and combined, of long ones by halves."""
    if inst.opcode != window.reduce_window:
        return 1
    return 1 + 3 * sum(min(w.size - 1, w.size.bit_length()) for w in inst.attributes.get("window", ()))


def _require_exact(region: Computation) -> None:
    """Raise Unfit for a region that rounds floats of 16 bits: where elements meet many times, torch and XLA do so at times of
    their own."""
    for i in region.instructions:
        if i.shape.is_array and i.shape.element_type in HALVES and not i.is_parameter and i.opcode not in _CHOICES:
            raise Unfit(f"{i.opcode} of {i.shape.element_type.text} again and again is not in native code")


_CHOICES = frozenset({CONSTANT, comparison.select, elementwise.maximum, elementwise.minimum})


def _reduced(writer: Writer, inst: Instruction, operands: list[Array], opcode: str,
             is_widened: bool = False) -> list[Array]:
    half, code, dims, reducer = len(operands) // 2, writer.code, inst.attributes["dimensions"], inst.attributes["to_apply"]
    arrays, inits = operands[:half], [code.store(o) for o in operands[half:]]
    sizes = arrays[0].shape.dimensions
    shapes = list(inst.shape.leaves())
    if is_widened:
        shapes = [s.with_element_type(F32) for s in shapes]

    def meet(totals: Sequence[Array], now: Sequence[Array]) -> list[str]:
        if is_widened:
            return [f"{totals[0].at(())} {OPERATORS[opcode]} {now[0].at(())}"]
        value = writer.run(reducer, [*totals, *now])
        return [code.copy(v).at(()) for v in (value if isinstance(value, list) else [value])]

    kept = [d for d in range(len(sizes)) if d not in dims]
    buffers = [code.buffer(s) for s in shapes]
    before = code.work
    if kept and kept[-1] == len(sizes) - 1 and sizes[-1] > 1 and not any(s.element_count == 1 for s in shapes):
        _reduce_rows(code, meet, arrays, inits, dims, list(zip(shapes, buffers, strict=True)))
        code.work = before + arrays[0].shape.element_count * VECTOR_WORK
        return list(map(code.filled, shapes, buffers))
    with code.loops([sizes[d] for d in kept]) as outer:
        totals = [code.local(i.shape, "t", i.at(())) for i in inits]
        pragma = _side_by_side(code, opcode, shapes[0].element_type, totals, [sizes[d] for d in dims])
        with code.loops([sizes[d] for d in dims], pragma=pragma) as inner:
            index = ["0"] * len(sizes)
            for d, i in [*zip(kept, outer, strict=True), *zip(dims, inner, strict=True)]:
                index[d] = i
            now = [code.copy(Array(i.shape, lambda _, a=a: a.at(index))) for a, i in zip(arrays, inits, strict=True)]
            found = meet([single(i.shape, t) for i, t in zip(inits, totals, strict=True)], now)
            for total, value in zip(totals, found, strict=True):
                code.line(f"{total} = {value};")
        for shape, name, total in zip(shapes, buffers, totals, strict=True):
            code.put(shape, name, outer, total)
    code.work = before + 2 * arrays[0].shape.element_count * (VECTOR_WORK if pragma else 1) + shapes[0].element_count
    return list(map(code.filled, shapes, buffers))


def _reduce_rows(code: Code, meet: Callable[[Sequence[Array], Sequence[Array]], list[str]], arrays: Sequence[Array],
                 inits: Sequence[Array], dims: Sequence[int], results: Sequence[tuple[Shape, str]]) -> None:
    """Each row goes into all results at once, which several elements do together; the order for each of them is the same."""
    sizes = arrays[0].shape.dimensions
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
        for (shape, name), new in zip(results, meet(totals, now), strict=True):
            code.put(shape, name, [*outer, *last], new)
