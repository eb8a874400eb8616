"""Gradients of LAPACK's routines, which programs call by custom calls: formulas in ops, and calls of the same routines.

So a gradient program calls what its program calls, and runs where that runs, in real XLA too. A routine is under the name that
`hlo/custom_calls.py` has for it. What a phase of vectors is asked is left out where the routine does not say which phase it
chooses (`eigh`, `svd`); in whole losses such parts cancel. Formulas: Giles, "An extended collection of matrix derivative
results" (2008); Magnus, "On differentiating eigenvalues and eigenvectors" (1985).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grad_rules._calculus import conj, convert, iota, masked, pad, scalar_computation, sum_over, zeros
from grad_rules._compositions import derived
from grad_rules._matrices import (
    adjoint,
    as_columns,
    as_rows,
    back_in_order,
    cut,
    diagonal,
    joined,
    matmul,
    mirrored,
    solved_by_adjoint,
    triangle,
    with_diagonal,
)
from xla_torch import functions as ops
from xla_torch.core.shape import Shape
from xla_torch.core.types import S32
from xla_torch.functions.decompositions import permutation
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.functions.lapack import lapack, real_type
from xla_torch.hlo.custom_calls import described, routine_name
from xla_torch.hlo.ir import Instruction


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a routine: its operands, its results, and their cotangents (None for zero)."""

    inst: Instruction
    operands: Sequence[XlaOp]
    results: Sequence[XlaOp]
    cts: Sequence[XlaOp | None]

    @property
    def config(self) -> Mapping[str, Any]:
        """What the call says of itself."""
        return described(self.inst).config

    def letter(self, name: str, default: str) -> str:
        """An entry of it that is a letter."""
        return described(self.inst).letter(name, default)

    def again(self, operands: Sequence[XlaOp]) -> XlaOp:
        """The same routine for other operands of these shapes."""
        inst = self.inst
        return operands[0].builder.add(inst.opcode, operands, inst.attributes, inst.shape, common=dict(inst.common))


Cotangents = Sequence[XlaOp | None]
Rule = Callable[[Call], Cotangents]


@dataclasses.dataclass(frozen=True)
class RoutineRule:
    """The operands' cotangents for those of some results, by their numbers; of the others it knows nothing."""

    results: frozenset[int]
    rule: Rule


ROUTINE_RULES: dict[str, RoutineRule] = {}
"""The rules by the routine's name."""


def routine(*names: str, results: Sequence[int]) -> Callable[[Rule], Rule]:
    """Enter a rule for routines, which knows the cotangents of these results."""
    def enter(rule: Rule) -> Rule:
        ROUTINE_RULES.update({name: RoutineRule(frozenset(results), rule) for name in names})
        return rule

    return enter


def rule_of(inst: Instruction) -> RoutineRule | None:
    """The rule for a custom call, None where its target is no routine with one."""
    return ROUTINE_RULES.get(routine_name(inst.attributes["custom_call_target"]))


# ------------------------------------------------------------------------------------------- LU


@routine("getrf", results=[0])
def _getrf(call: Call) -> Cotangents:
    """``a[order] = l u`` gives ``dl = l low(p), du = up(p) u`` with ``p = l^-1 da[order] u^-1``, by its two triangles; what is
    beyond the square of either follows from these."""
    (ct, *_), (packed, pivots, *_) = call.cts, call.results
    if ct is None:
        return [None]
    rows, columns = packed.shape.dimensions[-2:]
    size = min(rows, columns)
    square, ct_square = (cut(cut(x, -2, 0, size), -1, 0, size) for x in (packed, ct))
    low, up = triangle(square, True, diagonal=False), triangle(square, False)
    inner_low = matmul(adjoint(low), triangle(ct_square, True, diagonal=False)) + triangle(ct_square, True, diagonal=False)
    inner_up = matmul(triangle(ct_square, False), adjoint(up))
    beyond: list[XlaOp] = []
    if rows > size:
        ct_below, below = (cut(x, -2, size, rows) for x in (ct, packed))
        inner_up = inner_up - matmul(adjoint(below), ct_below)
        beyond = [ops.TriangularSolve(square, ct_below, False, False, False, "ADJOINT")]
    if columns > size:
        ct_beside, beside = (cut(x, -1, size, columns) for x in (ct, packed))
        inner_low = inner_low - matmul(ct_beside, adjoint(beside))
        beyond = [ops.TriangularSolve(square, ct_beside, True, True, True, "ADJOINT")]
    inner = triangle(inner_low, True, diagonal=False) + triangle(inner_up, False)
    left = ops.TriangularSolve(square, inner, True, True, True, "ADJOINT")
    found = ops.TriangularSolve(square, left, False, False, False, "ADJOINT")
    whole = joined([found, *beyond], -2 if rows > size else -1)
    return [back_in_order(whole, permutation(pivots - 1, rows))]


# ------------------------------------------------------------------------------------------- singular values


@routine("gesdd", "gesvd", results=[1, 2, 3])
def _gesdd(call: Call) -> Cotangents:
    _, values, left, right, _ = call.results
    _, ct_values, ct_left, ct_right, _ = call.cts
    if call.letter("mode", "S") == "N":
        (left, right), ct_left, ct_right = _singular_vectors(call.operands[0]), None, None
    if ct_left is None is ct_right and ct_values is None:
        return [None]
    size = values.shape.dimensions[-1]
    thin_left, thin_right = cut(left, -1, 0, size), cut(right, -2, 0, size)
    ct_left = None if ct_left is None else _of_thin(ct_left, left, size)
    ct_right = None if ct_right is None else adjoint(_of_thin(adjoint(ct_right), adjoint(right), size))
    return [_svd(thin_left, values, thin_right, ct_left, ct_values, ct_right)]


def _singular_vectors(a: XlaOp) -> tuple[XlaOp, XlaOp]:
    """(u, v^H), thin, of matrices of which only the singular values are there."""
    kind, (*batch, rows, columns) = a.element_type, a.shape.dimensions
    size = min(rows, columns)
    results = [a.shape.without_layout(), Shape.array(real_type(kind), (*batch, size)), Shape.array(kind, (*batch, rows, size)),
               Shape.array(kind, (*batch, size, columns)), Shape.array(S32, batch)]
    found = lapack("gesdd", [a], results, mode="S")
    return ops.GetTupleElement(found, 2), ops.GetTupleElement(found, 3)


def _of_thin(ct: XlaOp, vectors: XlaOp, size: int) -> XlaOp:
    """The cotangent of the first columns of a unitary matrix, in which the others are what is orthogonal to these: they turn
    as the first ones make them."""
    count = vectors.shape.dimensions[-1]
    if count == size:
        return ct
    first, rest = cut(vectors, -1, 0, size), cut(vectors, -1, size, count)
    return cut(ct, -1, 0, size) - matmul(rest, matmul(adjoint(cut(ct, -1, size, count)), first))


def _svd(left: XlaOp, values: XlaOp, right: XlaOp, ct_left: XlaOp | None, ct_values: XlaOp | None,
         ct_right: XlaOp | None) -> XlaOp:
    """The cotangent of ``a = left values right``, thin."""
    kind, size = left.element_type, values.shape.dimensions[-1]
    inner = zeros(left, left.shape.with_dimensions((*left.shape.dimensions[:-2], size, size)))
    s_columns, s_rows = (convert(f(values, inner), kind) for f in (as_rows, as_columns))
    phase: XlaOp | None = None
    beyond: list[XlaOp] = []
    if ct_left is not None:
        from_left = matmul(adjoint(left), ct_left)
        inner = inner + (from_left - adjoint(from_left)) / _apart(values, inner) * s_columns
        phase = diagonal(from_left)
        if left.shape.dimensions[-2] > size:
            beyond.append(matmul((ct_left - matmul(left, from_left)) / convert(as_rows(values, left), kind), right))
    if ct_right is not None:
        from_right = matmul(right, adjoint(ct_right))
        inner = inner + s_rows * ((from_right - adjoint(from_right)) / _apart(values, inner))
        phase = -diagonal(from_right) if phase is None else phase - diagonal(from_right)
        if right.shape.dimensions[-1] > size:
            apart = ct_right - matmul(adjoint(from_right), right)
            beyond.append(matmul(left, apart / convert(as_columns(values, right), kind)))
    real = zeros(values) if ct_values is None else ct_values
    on_it = real if not kind.is_complex else ops.Complex(
        real, zeros(values) if phase is None else ops.Imag(phase) / (2.0 * values))
    found = matmul(left, matmul(with_diagonal(inner, on_it), right))
    for part in beyond:
        found = found + part
    return found


def _apart(values: XlaOp, like: XlaOp) -> XlaOp:
    """``v_j^2 - v_i^2``, and 1 on the diagonal."""
    columns, rows = (convert(f(values, like), values.element_type) for f in (as_rows, as_columns))
    return convert(with_diagonal((columns + rows) * (columns - rows), zeros(values) + 1.0), like.element_type)


# ------------------------------------------------------------------------------------------- eigenvalues


@routine("syevd", "heevd", results=[0, 1])
def _syevd(call: Call) -> Cotangents:
    (a,), (vectors, values, _), (ct_vectors, ct_values, _) = call.operands, call.results, call.cts
    lower = call.letter("uplo", "L") == "L"
    if call.letter("mode", "V") == "N":
        vectors, ct_vectors = _hermitian_vectors(a, lower), None
    if ct_vectors is None is ct_values:
        return [None]
    real = zeros(values) if ct_values is None else ct_values
    if ct_vectors is None:
        inner = with_diagonal(zeros(a), convert(real, a.element_type))
    else:
        apart = convert(_differences(values, a), a.element_type)
        inner = with_diagonal(matmul(adjoint(vectors), ct_vectors) / apart, convert(real, a.element_type))
    return [mirrored(matmul(vectors, matmul(inner, adjoint(vectors))), lower)]


def _hermitian_vectors(a: XlaOp, lower: bool) -> XlaOp:
    """The eigenvectors of matrices of which only the eigenvalues are there."""
    kind, (*batch, size, _) = a.element_type, a.shape.dimensions
    results = [a.shape.without_layout(), Shape.array(real_type(kind), (*batch, size)), Shape.array(S32, batch)]
    found = lapack("heevd" if kind.is_complex else "syevd", [a], results, mode="V", uplo="L" if lower else "U")
    return ops.GetTupleElement(found, 0)


def _differences(values: XlaOp, like: XlaOp) -> XlaOp:
    """``v_j - v_i``, and 1 on the diagonal."""
    found = as_rows(values, like) - as_columns(values, like)
    return with_diagonal(found, zeros(values) + 1.0)


@routine("geev", results=[0, 1, 2, 3])
def _geev(call: Call) -> Cotangents:
    """Eigenvalues, of real matrices as two arrays, and vectors of both sides. Those of the left are those of the right of
    ``a^H``, of which the eigenvalues are the conjugates."""
    (a,) = call.operands
    *parts, left, right, _ = call.results
    *ct_parts, ct_left, ct_right, _ = call.cts
    if call.letter("compute_left", "V") == "N":
        ct_left = None
    values, ct_values = _eigenvalues(parts), _eigenvalues(ct_parts)
    if call.letter("compute_right", "V") == "N":
        right, ct_right = _right_vectors(a, values.element_type), None
    found: list[XlaOp] = []
    if ct_values is not None or ct_right is not None:
        found.append(_eigen(values, right, ct_values, ct_right))
    if ct_left is not None:
        found.append(adjoint(_eigen(conj(values), left, None, ct_left)))
    if not found:
        return [None]
    return [convert(found[0] if len(found) == 1 else found[0] + found[1], a.element_type)]


def _eigenvalues(parts: Sequence[XlaOp | None]) -> Any:
    """Complex numbers of one array or of two, None where these are."""
    if len(parts) == 1:
        return parts[0]
    real, imaginary = parts
    like = imaginary if real is None else real
    if like is None:
        return None
    return ops.Complex(zeros(like) if real is None else real, zeros(like) if imaginary is None else imaginary)


def _right_vectors(a: XlaOp, kind: Any) -> XlaOp:
    """The eigenvectors of matrices of which only the eigenvalues are there."""
    *batch, size, _ = a.shape.dimensions
    complex_values = a.element_type.is_complex
    values = [Shape.array(kind if complex_values else real_type(kind), (*batch, size))] * (1 if complex_values else 2)
    vectors = Shape.array(kind, a.shape.dimensions)
    found = lapack("geev", [a], [*values, vectors, vectors, Shape.array(S32, batch)], compute_left="N", compute_right="V")
    return ops.GetTupleElement(found, len(values) + 1)


def _eigen(values: XlaOp, vectors: XlaOp, ct_values: XlaOp | None, ct_vectors: XlaOp | None) -> XlaOp:
    """The cotangent of ``a`` in ``a vectors = vectors values``, where vectors have length 1 and a real largest element."""
    inner = zeros(vectors)
    if ct_vectors is not None:
        turning = matmul(adjoint(vectors), _unconstrained(vectors, ct_vectors))
        inner = turning / conj(_differences(values, vectors))
    inner = with_diagonal(inner, zeros(values) if ct_values is None else ct_values)
    return solved_by_adjoint(vectors, matmul(inner, adjoint(vectors)))


def _unconstrained(vectors: XlaOp, ct: XlaOp) -> XlaOp:
    """The cotangent of vectors of any length and phase, of which the ones given are the multiples that LAPACK chooses."""
    rank = vectors.shape.rank
    rows = [rank - 2]
    along = sum_over(conj(vectors) * ct, rows)
    size = ops.Abs(vectors)
    largest = ops.Reduce(size, 0.0, scalar_computation("Max", size.element_type), rows)
    number = iota(vectors, vectors.shape.dimensions, rank - 2)
    among = ops.Select(ops.Eq(size, as_rows(largest, size)), number, vectors.shape.dimensions[-2])
    first = ops.Eq(number, as_rows(ops.Reduce(among, vectors.shape.dimensions[-2], scalar_computation("Min", S32), rows), among))
    height = sum_over(masked(first, ops.Real(vectors)), rows)
    turned_by = ops.Complex(zeros(height), ops.Imag(along) / height)
    return ct - vectors * as_rows(convert(ops.Real(along), ct.element_type), ct) - masked(first, as_rows(turned_by, ct))


# ------------------------------------------------------------------------------------------- tridiagonal and sparse


@routine("gtsv", results=[3])
def _gtsv(call: Call) -> Cotangents:
    return _tridiagonal(call, call.results[3], call.cts[3], lambda operands: ops.GetTupleElement(call.again(operands), 3))


@routine("tridiagonal_solve_perturbed_ffi", results=[0])
def _gtsv_perturbed(call: Call) -> Cotangents:
    return _tridiagonal(call, call.results[0], call.cts[0], call.again)


def _tridiagonal(call: Call, x: XlaOp, ct: XlaOp | None, solve: Callable[[Sequence[XlaOp]], XlaOp]) -> Cotangents:
    """``a x = b`` gives b the cotangent ``a^-H ct``, and a that times ``-x^H``, of which three diagonals are wanted."""
    lower, middle, upper, _ = call.operands
    if ct is None:
        return [None] * 4
    last = middle.shape.rank - 1
    ct_b = solve([_moved(conj(upper), 1), conj(middle), _moved(conj(lower), -1), ct])

    def along(x: XlaOp) -> XlaOp:
        return -sum_over(ct_b * conj(x), [x.shape.rank - 1])

    return [along(_moved(x, 1, last)), along(x), along(_moved(x, -1, last)), ct_b]


def _moved(x: XlaOp, by: int, dimension: int = -1) -> XlaOp:
    """An array moved by places along a dimension, zeros where nothing comes."""
    dimension %= x.shape.rank
    return pad(x, [(by, -by, 0) if d == dimension else (0, 0, 0) for d in range(x.shape.rank)])


@routine("cpu_csr_sparse_dense_ffi", results=[0])
def _csr_times_dense(call: Call) -> Cotangents:
    return derived(_sparse_product, call.operands, call.cts)


def _sparse_product(data: XlaOp, starts: XlaOp, columns: XlaOp, dense: XlaOp) -> list[XlaOp]:
    """Each element of the sparse matrix takes a row of the dense array to one of the result. Those behind the last row do not."""
    (count,), rest = data.shape.dimensions, range(1, dense.shape.rank)
    rows = starts.shape.dimensions[0] - 1
    begun = ops.ScatterDimensionNumbers((), (0,), (0,), 1)
    ones = ops.Scatter(zeros(starts, Shape.array(S32, (count,))), ops.ConvertElementType(starts, S32),
                       ops.Broadcast(data.builder.constant(1, S32), (rows + 1,)), scalar_computation("Add", S32), begun)
    ended = ops.ReduceWindowWithGeneralPadding(ones, 0, scalar_computation("Add", S32), (count,), (1,), padding=((count - 1, 0),))
    row = ended - 1
    taken = ops.Gather(dense, columns, ops.GatherDimensionNumbers(tuple(rest), (0,), (0,), 1),
                       (1, *(dense.shape.dimensions[d] for d in rest)))
    terms = taken * ops.BroadcastInDim(data, taken.shape.dimensions, [0])
    inside = ops.BroadcastInDim(ops.Lt(row, rows), terms.shape.dimensions, [0])
    result = zeros(dense, dense.shape.with_dimensions((rows, *(dense.shape.dimensions[d] for d in rest))))
    return [ops.Scatter(result, row, masked(inside, terms), scalar_computation("Add", data.element_type),
                        ops.ScatterDimensionNumbers(tuple(rest), (0,), (0,), 1))]
