"""Native code of small linear algebra: triangular systems, factors of matrices, and the custom calls of LAPACK's routines.

Specification: hlo/SPEC.md, Linear algebra; `custom_calls/lapack.py`. The loops are functions of `matrices.py`. Larger matrices
are LAPACK's, whose blocked code is faster than a plain loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..core import tuning
from ..core.shape import Shape
from ..core.types import F32, F64, S32
from ..hlo.custom_calls import registered, routine_name, target_of
from ..hlo.ir import Instruction
from ..opcodes import internal, linalg
from . import lapack
from .arrays import ARRAYS, Value, Writer
from .code import Array, Code, Index, element_of
from .elements import VECTOR_WORK, Unfit, name_of
from .lapack import copied, turned


def _small(shape: Shape) -> tuple[int, int]:
    """Rows and columns of matrices that have loops here."""
    if shape.element_type not in (F32, F64):
        raise Unfit(f"matrices of {shape.element_type.text} are LAPACK's")
    m, n = shape.dimensions[-2:]
    if max(m, n) > tuning.NATIVE_MATRIX:
        raise Unfit(f"a matrix of {max(m, n)} rows or columns is LAPACK's")
    return m, n


def _worked(code: Code, batch: Sequence[int], terms: float) -> None:
    """So many products for each matrix of a batch. LAPACK takes as long for one, and others for several matrices at once."""
    code.work += math.prod(batch) * terms * VECTOR_WORK
    code.spared += terms * VECTOR_WORK


@ARRAYS.rule(linalg.triangular_solve)
def triangular_solve(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """One unknown after another. x op(a) = b is op(a)' x' = b', so that the unknowns are rows and the one triangle the other."""
    code, given, result = writer.code, inst.attributes, inst.shape
    a, b = operands
    (n, _), left = _small(a.shape), given.get("left_side", False)
    is_flipped = (given["transpose_a"] != "NO_TRANSPOSE") != (not left)
    is_lower = given.get("lower", False) != is_flipped
    matrices = a.buffer or copied(code, a)
    right = b if left else turned(b)
    shape, k, count = right.shape, right.shape.dimensions[-1], math.prod(result.dimensions[:-2])
    name = copied(code, right)
    with code.loops([count]) as (at,):
        code.line(f"solve_{name_of(result.element_type)}({n}, {k}, {int(is_lower)}, {int(given.get('unit_diagonal', False))}, "
                  f"{matrices} + {at} * {n * n}, {'1, ' * is_flipped}{n}{', 1' * (not is_flipped)}, {name} + {at} * {n * k});")
    _worked(code, result.dimensions[:-2], n * n * k / 2)
    made = code.filled(shape, name)
    return made if left else turned(made)


@ARRAYS.rule(linalg.cholesky)
def cholesky(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    """Of one triangle, the other being zero; what is no positive definite matrix is NaN as a whole."""
    code, result, is_lower = writer.code, inst.shape, inst.attributes.get("lower", False)
    n, _ = _small(result)
    upper, of = code.store(turned(operands[0]) if is_lower else operands[0]), name_of(result.element_type)
    name = copied(code, Array(result, lambda index: f"select_{of}({index[-2]} <= {index[-1]}, {upper.at(index)}, 0)"))
    with code.loops(result.dimensions[:-2]) as batch:
        first = element_of(result, name, [*batch, "0", "0"])
        with code.block(f"if (!cholesky_{of}({n}, &{first}))"), \
                code.loops(result.dimensions[-2:]) as index:
            code.line(f"{element_of(result, name, [*batch, *index])} = __builtin_nan(\"\");")
    _worked(code, result.dimensions[:-2], n * n * n / 3)
    made = code.filled(result, name)
    return turned(made) if is_lower else made


# ------------------------------------------------------------------------------------------- routines


def _getrf(code: Code, a: Array) -> list[Array]:
    """(L and U in one matrix, row swaps counted from 1, info: 0, or the row of the first pivot that is 0)."""
    (*batch, m, n), of = a.shape.dimensions, a.shape.element_type
    k = min(m, n)
    swaps, infos = Shape.array(S32, [*batch, k]), Shape.array(S32, batch)
    factors, pivots, info = copied(code, a), code.buffer(swaps), code.buffer(infos)
    with code.loops([math.prod(batch)]) as (at,):
        code.line(f"{info}[{at}] = lu_{name_of(of)}({m}, {n}, {factors} + {at} * {m * n}, {pivots} + {at} * {k});")
    _worked(code, batch, m * n * k / 3)
    return [code.filled(s, name) for s, name in ((a.shape, factors), (swaps, pivots), (infos, info))]


def _geqrf(code: Code, a: Array) -> list[Array]:
    """(R above and reflectors below the diagonal, the reflectors' factors)."""
    (*batch, m, n), of = a.shape.dimensions, a.shape.element_type
    k = min(m, n)
    taus = Shape.array(of, [*batch, k])
    name, tau, row = copied(code, a), code.buffer(taus), code.buffer(Shape.array(of, [n]))
    with code.loops([math.prod(batch)]) as (at,):
        code.line(f"qr_{name_of(of)}({m}, {n}, {name} + {at} * {m * n}, {tau} + {at} * {k}, {row});")
    _worked(code, batch, m * n * k)
    return [code.filled(a.shape, name), code.filled(taus, tau)]


def _orgqr(code: Code, a: Array, tau: Array) -> list[Array]:
    """Q from its reflectors."""
    (*batch, m, n), of, k = a.shape.dimensions, a.shape.element_type, tau.shape.dimensions[-1]
    name, taus, row = copied(code, a), tau.buffer or copied(code, tau), code.buffer(Shape.array(of, [n]))
    with code.loops([math.prod(batch)]) as (at,):
        code.line(f"reflectors_{name_of(of)}({m}, {n}, {k}, {taus} + {at} * {k}, {name} + {at} * {m * n}, {row});")
    _worked(code, batch, m * n * k)
    return [code.filled(a.shape, name)]


def _gtsv(code: Code, lower: Array, middle: Array, upper: Array, b: Array) -> list[Array]:
    """(the factor's diagonals in place of the three given, the solution, info) of a tridiagonal system."""
    (*batch, n, k), of = b.shape.dimensions, b.shape.element_type
    diagonals, infos = middle.shape, Shape.array(S32, batch)
    given = [a.buffer or copied(code, a) for a in (lower, middle, upper)]
    x, (second, pivots, above), info = copied(code, b), [code.buffer(diagonals) for _ in range(3)], code.buffer(infos)
    with code.loops([math.prod(batch)]) as (at,):
        places = ", ".join(f"{name} + {at} * {n}" for name in (second, pivots, above))
        read = ", ".join(f"{name} + {at} * {n}" for name in given)
        code.line(f"{info}[{at}] = tridiagonal_{name_of(of)}({n}, {k}, {read}, {x} + {at} * {n * k}, {places});")
    _worked(code, batch, 3 * n * k)

    def kept(index: Index) -> str:  # the first and the last of what was given, which are not read
        place = index[-1]
        before = element_of(diagonals, second, [*index[:-1], f"({place} > 0 ? {place} - 1 : 0)"])
        return f"({place} == 0 || {place} == {n - 1} ? {lower.at(index)} : {before})"

    def beyond(index: Index) -> str:
        return f"({index[-1]} == {n - 1} ? {upper.at(index)} : {element_of(diagonals, above, index)})"

    return [Array(diagonals, kept), code.filled(diagonals, pivots), Array(diagonals, beyond), code.filled(b.shape, x),
            code.filled(infos, info)]


_ROUTINES: dict[str, Callable[..., list[Array]]] = {
    "getrf": _getrf, "geqrf": _geqrf, "orgqr": _orgqr, "gtsv": _gtsv, "Qr": _geqrf,
    "ProductOfElementaryHouseholderReflectors": _orgqr}
"""Those of `hlo.custom_calls.ROUTINES` that are loops here."""


def require_matrices(inst: Instruction) -> None:
    """Raise Unfit for an op on matrices that have no loops here, for calls of other routines than these and LAPACK's, and where
    a function of the user's stands in the place of one."""
    if inst.opcode != internal.custom_call:
        _small(inst.operands[0].shape)
        return
    name, shape = routine_name(target_of(inst)), inst.operands[0].shape if inst.operands else Shape.array(S32)
    if registered(target_of(inst)) is not None or name not in {*_ROUTINES, *lapack.ROUTINES}:
        raise Unfit(f"a call of {target_of(inst)} is not in native code")
    if name not in lapack.ROUTINES:
        _require_loops(inst)
    elif not shape.rank or shape.element_type not in lapack.LETTERS:
        raise Unfit(f"{name} of {shape.element_type.text} is no routine of LAPACK's")


def routine_needed(inst: Instruction) -> str:
    """The routine of torch's library that an op calls; empty where it calls none."""
    if inst.opcode != internal.custom_call or routine_name(target_of(inst)) not in lapack.ROUTINES or _has_loops(inst):
        return ""
    return lapack.routine_of(inst)


def _has_loops(inst: Instruction) -> bool:
    """Whether a routine is loops for these matrices."""
    try:
        _require_loops(inst)
    except Unfit:
        return False
    return routine_name(target_of(inst)) in _ROUTINES


def _require_loops(inst: Instruction) -> None:
    """Raise Unfit for a routine on arrays that have no loops here: diagonals of any length, and small matrices."""
    shape = inst.operands[0].shape
    if routine_name(target_of(inst)) != "gtsv":
        _small(shape)
    elif shape.element_type not in (F32, F64) or not shape.element_count:
        raise Unfit(f"a tridiagonal system of {shape.element_type.text} is not in native code")


@ARRAYS.rule(internal.custom_call)
def custom_call(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """A routine of LAPACK."""
    require_matrices(inst)
    target = target_of(inst)
    name = routine_name(target)
    made = _ROUTINES[name](writer.code, *operands) if _has_loops(inst) else lapack.ROUTINES[name](writer, inst, *operands)
    leaves = inst.shape.leaves()
    if [(r.shape.element_type, r.shape.dimensions) for r in made] != [(s.element_type, s.dimensions) for s in leaves]:
        raise Unfit(f"a call of {target} with results of other shapes")
    return made if inst.shape.is_tuple else made[0]
