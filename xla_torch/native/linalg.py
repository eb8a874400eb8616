"""Native code of small linear algebra: triangular systems and Cholesky factors of matrices that stay in registers.

Specification: hlo/SPEC.md, Linear algebra. Larger matrices are LAPACK's, whose blocked code is faster than a plain loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.shape import Shape
from ..hlo.ir import Instruction
from ..opcodes import linalg
from .arrays import ARRAYS, Writer
from .code import Array, element_of
from .elements import Unfit

_LARGEST = 8
"""Rows of a matrix up to which its loops are here."""


def _small(matrix: Array) -> int:
    n = matrix.shape.dimensions[-1]
    if n > _LARGEST:
        raise Unfit(f"a matrix of {n} rows is LAPACK's")
    return n


@ARRAYS.rule(linalg.triangular_solve)
def triangular_solve(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """One unknown after another: the right side without what is known, over the diagonal."""
    code, given, result = writer.code, inst.attributes, inst.shape
    a, b = (code.store(o) for o in operands)
    n, left, is_transposed = _small(a), given.get("left_side", False), given["transpose_a"] != "NO_TRANSPOSE"
    # x op(a) = b is op(a)' x' = b', so that the one triangle is the other.
    is_flipped = is_transposed != (not left)
    is_lower = given.get("lower", False) != is_flipped
    name = code.buffer(result)

    def matrix(batch: Sequence[str], row: str, column: str) -> str:
        return a.at([*batch, *((column, row) if is_flipped else (row, column))])

    def place(batch: Sequence[str], unknown: str, free: str) -> list[str]:
        return [*batch, *((unknown, free) if left else (free, unknown))]

    free_size = result.dimensions[-1 if left else -2]
    with code.loops(result.dimensions[:-2]) as batch, code.loops([free_size]) as (free,):
        step = code.name("i")
        with code.block(f"for (s64 {step} = 0; {step} < {n}; {step}++)"):
            row = code.name("i")
            code.line(f"s64 {row} = {step if is_lower else f'{n - 1} - {step}'};")
            total = code.local(Shape.array(result.element_type), "t", b.at(place(batch, row, free)))
            k = code.name("i")
            known = f"s64 {k} = 0; {k} < {row}" if is_lower else f"s64 {k} = {row} + 1; {k} < {n}"
            with code.block(f"for ({known}; {k}++)"):
                code.line(f"{total} -= {matrix(batch, row, k)} * {element_of(result, name, place(batch, k, free))};")
            over = "" if given.get("unit_diagonal", False) else f" / {matrix(batch, row, row)}"
            code.line(f"{element_of(result, name, place(batch, row, free))} = {total}{over};")
    code.work += result.element_count * n
    return code.filled(result, name)


@ARRAYS.rule(linalg.cholesky)
def cholesky(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """Row by row; what is no positive definite matrix is NaN as a whole. Of an upper factor all is transposed."""
    code, result, is_lower = writer.code, inst.shape, inst.attributes.get("lower", False)
    a, n, name = code.store(operands[0]), _small(operands[0]), code.buffer(inst.shape)
    ending = "f" * (result.element_type.bits == 32)

    def at(batch: Sequence[str], row: str, column: str) -> list[str]:
        return [*batch, *((row, column) if is_lower else (column, row))]

    with code.loops(result.dimensions[:-2]) as batch:
        failed, i, j, k = (code.name(stem) for stem in ("f", "i", "i", "i"))
        code.line(f"int {failed} = 0;")
        with code.block(f"for (s64 {i} = 0; {i} < {n}; {i}++)"), code.block(f"for (s64 {j} = 0; {j} < {n}; {j}++)"):
            target = element_of(result, name, at(batch, i, j))
            with code.block(f"if ({j} > {i})"):
                code.line(f"{target} = 0; continue;")
            total = code.local(Shape.array(result.element_type), "t", a.at(at(batch, i, j)))
            with code.block(f"for (s64 {k} = 0; {k} < {j}; {k}++)"):
                left, right = (element_of(result, name, at(batch, row, k)) for row in (i, j))
                code.line(f"{total} -= {left} * {right};")
            code.line(f"if ({i} == {j} && !({total} > 0)) {failed} = 1;")
            diagonal = element_of(result, name, at(batch, j, j))
            code.line(f"{target} = {i} == {j} ? __builtin_sqrt{ending}({total}) : {total} / {diagonal};")
        with code.block(f"if ({failed})"), code.loops(result.dimensions[-2:]) as index:
            code.line(f"{element_of(result, name, [*batch, *index])} = __builtin_nan(\"\");")
    code.work += result.element_count * n
    return code.filled(result, name)
