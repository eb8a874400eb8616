"""Custom calls of LAPACK's routines in native code: by the address that they have in torch's library.

Specification: `custom_calls/lapack.py`, and `kernels/lapack.py` for the results of what fails. LAPACK reads matrices column by
column: the transpose of what lies row by row. Workspace is what the routines' documents call optimal, or more, as with less they
take another way, with other signs of vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..core.shape import Shape
from ..core.types import C64, C128, F32, F64, S32, PrimitiveType, complex_part
from ..hlo.custom_calls import described, routine_name, target_of
from ..hlo.ir import Instruction
from .arrays import Writer
from .code import Array, Code
from .elements import VECTOR_WORK, Unfit, name_of

LETTERS = {F32: "s", F64: "d", C64: "c", C128: "z"}
_BLOCK = 64
"""Columns that LAPACK works on at once, at most, by which it asks for workspace."""


def turned(array: Array) -> Array:
    """The array with its last two dimensions exchanged."""
    *batch, m, n = array.shape.dimensions
    return Array(Shape.array(array.shape.element_type, [*batch, n, m]),
                 lambda index: array.at([*index[:-2], index[-1], index[-2]]), array.stored)


def copied(code: Code, array: Array) -> str:
    """The array in a buffer of its own, also a single element."""
    name = code.buffer(array.shape)
    code.fill(name, array)
    return name


def worked(code: Code, batch: Sequence[int], terms: float) -> None:
    """So many products for each matrix of a batch, which torch's call of LAPACK takes as well."""
    work = math.prod(batch) * terms * VECTOR_WORK
    code.work += work
    code.spared += work


def routine_of(inst: Instruction) -> str:
    """The symbol of the routine that a custom call runs, without LAPACK's underscore."""
    letter = LETTERS.get(inst.operands[0].shape.element_type, "")
    return letter + routine_name(target_of(inst))


class _Call:
    """A routine's call for each matrix of a batch, while its code is written."""

    def __init__(self, writer: Writer, inst: Instruction, array: Array):
        self.code, self.of = writer.code, array.shape.element_type
        *self.batch, self.m, self.n = array.shape.dimensions
        self.count, self.k = math.prod(self.batch), min(self.m, self.n)
        self.real = complex_part(self.of) if self.of.is_complex else self.of
        self.routine = routine_of(inst)
        if self.routine not in writer.machine.routines:
            raise Unfit(f"torch's library does not show {self.routine}")
        if self.routine not in self.code.routines:
            self.code.routines.append(self.routine)

    def buffer(self, *dims: int, of: PrimitiveType | None = None) -> str:
        """Memory for an array of each matrix."""
        return self.code.buffer(Shape.array(of or self.of, [*self.batch, *dims]))

    def work(self, count: int, of: PrimitiveType | None = None) -> str:
        """Memory that the routine works in."""
        return self.code.buffer(Shape.array(of or self.of, [max(2, count)]))

    def made(self, name: str, *dims: int, of: PrimitiveType | None = None) -> Array:
        return self.code.filled(Shape.array(of or self.of, [*self.batch, *dims]), name)

    def run(self, at: str, info: str, *arguments: object) -> None:
        """Call the routine: strings are letters or expressions, and integers are handed over by their addresses."""
        given = ", ".join(f"&(s32){{{a}}}" if isinstance(a, int) else str(a) for a in arguments)
        self.code.line(f"((void (*)()){self.routine})({given}, &{info}[{at}]);")

    def has_bad(self, name: str, at: str, size: int) -> str:
        """A local that says whether a matrix has an element that is not finite."""
        code, parts, bad = self.code, 2 if self.of.is_complex else 1, self.code.name("bad")
        code.line(f"pred {bad} = 0;")
        with code.loops([size * parts]) as (i,):
            code.line(f"{bad} |= !__builtin_isfinite((({name_of(self.real)} *)({name} + {at} * {size}))[{i}]);")
        return bad

    def nan(self, at: str, *arrays: tuple[str, int, bool]) -> None:
        """NaN as the elements of a matrix's arrays: names, sizes, and whether their numbers are real ones."""
        for name, size, is_real in arrays:
            with self.code.loops([size]) as (i,):
                self.code.line(f"{name}[{at} * {size} + {i}] = {'' if is_real else '0 + '}__builtin_nan(\"\");")


def _gesdd(writer: Writer, inst: Instruction, a: Array) -> list[Array]:
    """(a, singular values, U, V^H, info)."""
    call, mode = _Call(writer, inst, a), described(inst).letter("mode", "S")
    m, n, k, code = call.m, call.n, call.k, call.code
    columns, rows = (m, n) if mode == "A" else (k, k)
    matrix, values, info = copied(code, turned(a)), call.buffer(k, of=call.real), call.buffer(of=S32)
    left, right = (call.buffer(columns, m), call.buffer(n, rows)) if mode != "N" else (call.work(1), call.work(1))
    size = 4 * k * k + 7 * k + 2 * m * n + 3 * max(m, n) + 2 * _BLOCK * (m + n)
    work, integers = call.work(size), call.work(8 * k, S32)
    reals = [call.work(max(5 * k * k + 7 * k, 2 * max(m, n) * k + 2 * k * k + k), call.real)] * call.of.is_complex
    with code.loops([call.count]) as (at,):
        bad = call.has_bad(matrix, at, m * n)
        vectors = [left, m, right, n] if mode == "N" else [
            f"{left} + {at} * {columns * m}", m, f"{right} + {at} * {n * rows}", rows]
        with code.block(f"if (!{bad})"):
            call.run(at, info, f'"{mode}"', m, n, f"{matrix} + {at} * {m * n}", m, f"{values} + {at} * {k}", *vectors,
                     work, size, *reals, integers)
        with code.block("else"):
            code.line(f"{info}[{at}] = -4;")
            call.nan(at, (values, k, True),
                     *[(left, columns * m, not call.of.is_complex), (right, n * rows, not call.of.is_complex)] * (mode != "N"))
    worked(code, call.batch, 20 * m * n * k)
    parts = ([turned(call.made(left, columns, m)), turned(call.made(right, n, rows))] if mode != "N"
             else [_zeros(s) for s in inst.shape.tuple_shapes[2:4]])
    return [a, call.made(values, k, of=call.real), *parts, call.made(info, of=S32)]


def _zeros(shape: Shape) -> Array:
    return Array(shape, lambda _: f"(({name_of(shape.element_type)})0)")


def _syevd(writer: Writer, inst: Instruction, a: Array) -> list[Array]:
    """(eigenvectors, eigenvalues in ascending order, info) of one triangle."""
    call, letter = _Call(writer, inst, a), described(inst).letter
    mode, uplo, code, n = letter("mode", "V"), letter("uplo", "L"), call.code, call.n
    given, order = turned(a), "<=" if uplo == "L" else ">="
    matrix = copied(code, Array(given.shape, lambda i: f"({i[-2]} {order} {i[-1]} ? {given.at(i)} : 0)"))
    values, info = call.buffer(n, of=call.real), call.buffer(of=S32)
    size, whole = (2 + _BLOCK) * n + 2 * n * n + 1, 1 + 5 * n + 2 * n * n
    work, integers = call.work(size), call.work(3 + 5 * n, S32)
    reals = [call.work(whole, call.real), whole] if call.of.is_complex else []
    with code.loops([call.count]) as (at,):
        bad = call.has_bad(matrix, at, n * n)
        with code.block(f"if (!{bad})"):
            call.run(at, info, f'"{mode}"', f'"{uplo}"', n, f"{matrix} + {at} * {n * n}", n, f"{values} + {at} * {n}",
                     work, size, *reals, integers, 3 + 5 * n)
        with code.block("else"):
            code.line(f"{info}[{at}] = 1;")
            call.nan(at, (values, n, True), (matrix, n * n, not call.of.is_complex))
    worked(code, call.batch, 10 * n * n * n)
    vectors = a if mode == "N" else turned(call.made(matrix, n, n))
    return [vectors, call.made(values, n, of=call.real), call.made(info, of=S32)]


def _getrf(writer: Writer, inst: Instruction, a: Array) -> list[Array]:
    """(L and U in one matrix, row swaps counted from 1, info)."""
    call = _Call(writer, inst, a)
    m, n, k, code = call.m, call.n, call.k, call.code
    matrix, pivots, info = copied(code, turned(a)), call.buffer(k, of=S32), call.buffer(of=S32)
    with code.loops([call.count]) as (at,):
        call.run(at, info, m, n, f"{matrix} + {at} * {m * n}", m, f"{pivots} + {at} * {k}")
    worked(code, call.batch, m * n * k / 3)
    return [turned(call.made(matrix, n, m)), call.made(pivots, k, of=S32), call.made(info, of=S32)]


def _geqrf(writer: Writer, inst: Instruction, a: Array) -> list[Array]:
    """(R above and reflectors below the diagonal, the reflectors' factors)."""
    call = _Call(writer, inst, a)
    m, n, k, code = call.m, call.n, call.k, call.code
    matrix, taus, info, work = copied(code, turned(a)), call.buffer(k), call.buffer(of=S32), call.work(_BLOCK * n)
    with code.loops([call.count]) as (at,):
        call.run(at, info, m, n, f"{matrix} + {at} * {m * n}", m, f"{taus} + {at} * {k}", work, max(2, _BLOCK * n))
    worked(code, call.batch, m * n * k)
    return [turned(call.made(matrix, n, m)), call.made(taus, k)]


def _orgqr(writer: Writer, inst: Instruction, a: Array, tau: Array) -> list[Array]:
    """Q from its reflectors."""
    call, k = _Call(writer, inst, a), tau.shape.dimensions[-1]
    m, n, code = call.m, call.n, call.code
    matrix, taus = copied(code, turned(a)), copied(code, tau)
    info, work = call.buffer(of=S32), call.work(_BLOCK * n)
    with code.loops([call.count]) as (at,):
        call.run(at, info, m, n, k, f"{matrix} + {at} * {m * n}", m, f"{taus} + {at} * {k}", work, max(2, _BLOCK * n))
    worked(code, call.batch, m * n * k)
    return [turned(call.made(matrix, n, m))]


def _ormqr(writer: Writer, inst: Instruction, a: Array, tau: Array, c: Array) -> list[Array]:
    """The product of c with Q or its adjoint, on the left or right."""
    config, k = described(inst).config, tau.shape.dimensions[-1]
    left, adjoint = config.get("left", True), config.get("transpose", False)
    call, (rows, columns) = _Call(writer, inst, c), a.shape.dimensions[-2:]
    m, n, code = call.m, call.n, call.code
    reflectors, taus, matrix = copied(code, turned(a)), copied(code, tau), copied(code, turned(c))
    size = _BLOCK * (n if left else m) + _BLOCK * (_BLOCK + 1)
    info, work = call.buffer(of=S32), call.work(size)
    letter = "N" if not adjoint else "C" if call.of.is_complex else "T"
    with code.loops([call.count]) as (at,):
        call.run(at, info, f'"{"L" if left else "R"}"', f'"{letter}"', m, n, k, f"{reflectors} + {at} * {rows * columns}", rows,
                 f"{taus} + {at} * {k}", f"{matrix} + {at} * {m * n}", m, work, size)
    worked(code, call.batch, 2 * m * n * k)
    return [turned(call.made(matrix, n, m))]


ROUTINES: dict[str, Callable[..., list[Array]]] = {
    "gesdd": _gesdd, "syevd": _syevd, "heevd": _syevd, "getrf": _getrf, "geqrf": _geqrf, "orgqr": _orgqr, "ungqr": _orgqr,
    "ormqr": _ormqr, "unmqr": _ormqr}
"""What writes the call of each routine, by its name without the letter of the type."""
