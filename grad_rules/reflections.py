"""Gradients of LAPACK's routines that reflect: QR, the unitary matrices of its reflections, and the reductions by similarity.

A reflection is ``H = I - tau v v^H``, and ``H^H`` takes a column to ``(beta, 0, ...)``, where v begins with 1 and beta is real:
``beta^2 = |x|^2``, ``tau = 1 - alpha / beta`` and ``v = x / (alpha - beta)`` for a column x that begins with alpha. Products of
reflections are written as ``I - V T V^H``. A reduction is walked back reflection by reflection: what it was before one is what it
is after it, reflected again, so nothing but the routine's own results is kept.

Where a column needs no reflection (tau is 0), as in every step of a triangular matrix, v and tau jump: near it there is a
reflection of another sign. The factors do not, but for signs, and have the gradient of the turn that keeps them: so does the
unitary factor, which has a rule of its own together with the routine that its reflections come from.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from grad_rules._calculus import conj, convert, iota, masked, put_along, real_part, reshape, sum_over, zeros
from grad_rules._compositions import derived
from grad_rules._fused import Fused, fused
from grad_rules._matrices import adjoint, as_columns, as_rows, cut, halved_diagonal, matmul, mirrored, places, triangle
from grad_rules.lapack import Call, Cotangents, routine
from xla_torch import functions as ops
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.custom_calls import registered, routine_name, target_of
from xla_torch.hlo.gradient_changes import has_target_rule
from xla_torch.hlo.ir import Instruction
from xla_torch.opcodes import internal, movement

# ------------------------------------------------------------------------------------------- unitary matrices


def _vectors(packed: XlaOp) -> XlaOp:
    """The reflections' vectors: the columns below the diagonal, with ones on it."""
    rows, columns = places(packed)
    return ops.Select(ops.Eq(rows, columns), 1.0, triangle(packed, True, diagonal=False))


def _reflected(vectors: XlaOp, taus: XlaOp, x: XlaOp, inverse: bool) -> XlaOp:
    """``H1 H2 ... x``, or the inverse of that product times x: ``T = D (I + N D)^-1``, with the taus D and the upper triangle N
    of ``V^H V``."""
    inner = matmul(adjoint(vectors), vectors)
    inner = inner * as_rows(taus, inner)
    right = matmul(adjoint(vectors), x)
    if inverse:
        right = ops.TriangularSolve(inner, right * as_columns(conj(taus), right), True, False, True, "ADJOINT")
    else:
        right = ops.TriangularSolve(inner, right, True, False, True, "NO_TRANSPOSE") * as_columns(taus, right)
    return x - matmul(vectors, right)


def _unitary(packed: XlaOp, taus: XlaOp) -> list[XlaOp]:
    vectors = _vectors(cut(packed, -1, 0, taus.shape.dimensions[-1]))
    rows, columns = places(packed)
    return [_reflected(vectors, taus, convert(ops.Eq(rows, columns), packed.element_type), inverse=False)]


@routine("orgqr", "ungqr", "ProductOfElementaryHouseholderReflectors", results=[0])
def _orgqr(call: Call) -> Cotangents:
    return derived(_unitary, call.operands, call.cts)


@fused("unitary factor", internal.custom_call)
def _unitary_factor(result: Instruction) -> Fused | None:
    """Q of ``a = q r``, square or tall: ``dq = q (low(c) - low(c)^H) + (1 - q q^H) da r^-1`` with ``c = q^H da r^-1``, in which
    there is no sign that LAPACK chooses."""
    if not _is_own(result, _PRODUCTS):
        return None
    packed, taus = result.operands
    whole = packed.operands[0] if packed.opcode == movement.slice_ and _is_first_columns(packed) else packed
    if not (whole.is_element and taus.is_element and whole.operands[0] is taus.operands[0]):
        return None
    (*_, rows, columns), factors = result.shape.dimensions, taus.operands[0]
    if (whole.attributes["index"], taus.attributes["index"]) != (0, 1) or not _is_own(factors, _FACTORS) or not (
            0 < columns == taus.shape.dimensions[-1] <= rows):
        return None
    source = factors.operands[0]
    beyond = source.shape.dimensions[-1] - columns

    def rule(ct: XlaOp, q: XlaOp, packed: XlaOp) -> XlaOp:
        inner = matmul(adjoint(q), ct)
        found = matmul(q, halved_diagonal(triangle(inner - adjoint(inner), True)))
        if rows > columns:
            found = found + ct - matmul(q, inner)
        found = ops.TriangularSolve(cut(packed, -2, 0, columns), found, False, False, False, "ADJOINT")
        return ops.PadInDim(found, 0.0, found.shape.rank - 1, 0, beyond) if beyond else found

    return Fused(source, rule, (result, packed), elementwise=False, symmetric=False)


_PRODUCTS = frozenset({"orgqr", "ungqr", "ProductOfElementaryHouseholderReflectors"})
_FACTORS = frozenset({"geqrf", "Qr"})


def _is_own(instruction: Instruction, names: frozenset[str]) -> bool:
    """Whether it calls one of these routines, and no user has said what that means."""
    target = target_of(instruction)
    return routine_name(target) in names and registered(target) is None and not has_target_rule(target)


def _is_first_columns(packed: Instruction) -> bool:
    source = packed.operands[0].shape.dimensions
    return packed.attributes["slice"] == tuple((0, n, 1) for n in (*source[:-1], packed.shape.dimensions[-1]))


@routine("ormqr", "unmqr", results=[0])
def _ormqr(call: Call) -> Cotangents:
    left, inverse = (bool(call.config.get(name, default)) for name, default in (("left", True), ("transpose", False)))

    def product(packed: XlaOp, taus: XlaOp, c: XlaOp) -> list[XlaOp]:
        vectors = _vectors(cut(packed, -1, 0, taus.shape.dimensions[-1]))
        if left:
            return [_reflected(vectors, taus, c, inverse)]
        return [adjoint(_reflected(vectors, taus, adjoint(c), not inverse))]

    return derived(product, call.operands, call.cts)


# ------------------------------------------------------------------------------------------- reductions


@dataclasses.dataclass(frozen=True)
class _Reduction:
    """Which columns are reduced: `count` of them from `first` on, in this order or `backwards`; in column c the element `below`
    the diagonal is beta, and what is beyond it, before row `end`, is made zero. If `both_sides`, ``H^H a H`` is what follows."""

    count: int
    end: int
    first: int = 0
    below: int = 0
    both_sides: bool = False
    backwards: bool = False


class _State(NamedTuple):
    """What a reduction has made of the matrices, and its cotangent."""

    x: XlaOp
    ct: XlaOp


def _before(how: _Reduction, packed: XlaOp, taus: XlaOp, ct_packed: XlaOp, ct_taus: XlaOp, after: _State) -> XlaOp:
    """The cotangent of the matrices that were reduced, from those of vectors and taus, and of what they were reduced to."""
    builder = packed.builder
    init = ops.Tuple(builder, [builder.constant(0), *after, packed, taus, ct_packed, ct_taus])
    condition, body = Builder("reflections_left"), Builder("reflect_back")
    condition.finish(ops.Lt(ops.GetTupleElement(condition.parameter(0, init.shape), 0), how.count))
    carry = body.parameter(0, init.shape)
    number, x, ct, *given = (ops.GetTupleElement(carry, k) for k in range(7))
    step = _Step(how, number, *given)
    ops.Tuple(body, [number + 1, *step.before(_State(x, ct)), *given])
    return ops.GetTupleElement(ops.While(condition.finish(), body.finish(), init), 2)


class _Step:
    """One reflection, walked back. Numbers of each matrix have the batch's dimensions."""

    def __init__(self, how: _Reduction, number: XlaOp, packed: XlaOp, taus: XlaOp, ct_packed: XlaOp, ct_taus: XlaOp):
        self.how, rank, self.batch = how, packed.shape.rank, packed.shape.dimensions[:-2]
        index = number + how.first if how.backwards else how.first + how.count - 1 - number
        self.column = index - how.below if how.below < 0 else index
        pivot = self.column + how.below
        rows = iota(packed, (*packed.shape.dimensions[:-1], 1), rank - 2)
        self.is_pivot = ops.Eq(rows, pivot)
        self.in_tail = ops.Lt(rows, pivot) if how.below < 0 else ops.And(ops.Gt(rows, pivot), ops.Lt(rows, how.end))
        self.v = ops.Select(self.is_pivot, 1.0, masked(self.in_tail, self._column_of(packed)))
        self.turn = zeros(self.v)
        """The cotangent of a turn that makes the column zero where there is no reflection, but for the pivot's size."""
        self.ct_v = masked(self.in_tail, self._column_of(ct_packed))
        self.tau, self.ct_tau = (reshape(ops.DynamicSliceInDim(t, index, 1, rank - 2), self.batch) for t in (taus, ct_taus))

    def _column_of(self, x: XlaOp) -> XlaOp:
        return ops.DynamicSliceInDim(x, self.column, 1, x.shape.rank - 1)

    def before(self, after: _State) -> _State:
        """What was before this reflection, of what is after it."""
        v, tau = self.v, self.tau
        between = after.x - _times(tau, matmul(v, matmul(adjoint(v), after.x)))
        ct = self._left(after.ct, between)
        x = between
        if self.how.both_sides:
            x = between - _times(conj(tau), matmul(matmul(between, v), adjoint(v)))
            ct = self._right(ct, x)
        is_column = ops.Eq(places(x)[1], self.column)
        found = self._of_column(self._column_of(x), self._column_of(after.x))
        spread = ops.BroadcastInDim(found, x.shape.dimensions, range(x.shape.rank))
        return _State(x, ct + masked(is_column, spread))

    def _left(self, ct: XlaOp, x: XlaOp) -> XlaOp:
        """The cotangent of x in ``H^H x``; those of v and tau are added to theirs."""
        v, tau = self.v, self.tau
        across, ct_across = matmul(adjoint(v), x), matmul(adjoint(v), ct)
        self.ct_tau = self.ct_tau - conj(_sum(matmul(ct_across, adjoint(across))))
        self.ct_v = self.ct_v - _times(tau, matmul(ct, adjoint(across))) - _times(conj(tau), matmul(x, adjoint(ct_across)))
        pivot = adjoint(self._pivot(v))
        self.turn = self.turn + matmul(x, adjoint(matmul(pivot, ct))) - matmul(ct, adjoint(matmul(pivot, x)))
        return ct - _times(tau, matmul(v, ct_across))

    def _right(self, ct: XlaOp, x: XlaOp) -> XlaOp:
        """The same of ``x H``."""
        v, tau = self.v, self.tau
        along, ct_along = matmul(x, v), matmul(ct, v)
        self.ct_tau = self.ct_tau - _sum(matmul(adjoint(along), ct_along))
        self.ct_v = self.ct_v - _times(conj(tau), matmul(adjoint(x), ct_along)) - _times(tau, matmul(adjoint(ct), along))
        pivot = self._pivot(v)
        self.turn = self.turn + matmul(adjoint(x), matmul(ct, pivot)) - matmul(adjoint(ct), matmul(x, pivot))
        return ct - _times(conj(tau), matmul(ct_along, adjoint(v)))

    def _of_column(self, column: XlaOp, reduced: XlaOp) -> XlaOp:
        """The cotangent of the column that the reflection is made from, of v and tau."""
        kind, done = column.element_type, ops.Eq(self.tau, zeros(self.tau))
        at_pivot = [convert(_sum(masked(self.is_pivot, c)), kind) for c in (column, reduced)]
        alpha, beta = at_pivot[0], convert(real_part(at_pivot[1]), kind)
        beta = ops.Select(done, 1.0, beta)
        apart = ops.Select(done, 1.0, alpha - beta)
        ct_v = masked(self.in_tail, self.ct_v)
        along = -_sum(conj(self.v) * ct_v) / conj(apart)
        ct_alpha = along - self.ct_tau / beta
        ct_beta = convert(real_part(conj(alpha) * self.ct_tau / (beta * beta) - along), kind)
        x = masked(ops.Or(self.is_pivot, self.in_tail), column)
        found = _times(ct_beta / beta, x) + _times(1.0 / conj(apart), ct_v)
        found = found + masked(self.is_pivot, _spread(ct_alpha, found))
        return ops.Select(_spread(done, found), self._of_turn(alpha), found)

    def _of_turn(self, alpha: XlaOp) -> XlaOp:
        """The cotangent of a column that is ``(alpha, 0, ...)``; the pivot's is that of its phase."""
        size = ops.Select(ops.Eq(alpha, zeros(alpha)), math.inf, alpha)
        part = masked(self.in_tail, self.turn) + masked(self.is_pivot, self.turn * 0.5)
        return part / _spread(size, part)

    def _pivot(self, like: XlaOp) -> XlaOp:
        """The column that is 1 at the pivot, and 0 elsewhere."""
        return convert(self.is_pivot, like.element_type)


def _sum(x: XlaOp) -> XlaOp:
    """The sum of each matrix."""
    return sum_over(x, [x.shape.rank - 2, x.shape.rank - 1])


def _spread(numbers: XlaOp, like: XlaOp) -> XlaOp:
    """Numbers of each matrix in all of its places."""
    return ops.BroadcastInDim(numbers, like.shape.dimensions, range(numbers.shape.rank))


def _times(numbers: XlaOp, x: XlaOp) -> XlaOp:
    return _spread(numbers, x) * x


def _or_zeros(ct: XlaOp | None, like: XlaOp) -> XlaOp:
    return zeros(like) if ct is None else ct


@routine("geqrf", "Qr", results=[0, 1])
def _geqrf(call: Call) -> Cotangents:
    if all(ct is None for ct in call.cts):
        return [None]
    return [_factored(*call.results, *map(_or_zeros, call.cts, call.results))]


def _factored(packed: XlaOp, taus: XlaOp, ct_packed: XlaOp, ct_taus: XlaOp) -> XlaOp:
    after = _State(triangle(packed, False), triangle(ct_packed, False))
    how = _Reduction(taus.shape.dimensions[-1], packed.shape.dimensions[-2])
    return _before(how, packed, taus, ct_packed, ct_taus, after)


@routine("geqp3", results=[0, 2])
def _geqp3(call: Call) -> Cotangents:
    """The factors of the matrix whose columns are in the order found."""
    (packed, order, taus), (ct_packed, _, ct_taus) = call.results, call.cts
    if ct_packed is None is ct_taus:
        return [None, None]
    found = _factored(packed, taus, _or_zeros(ct_packed, packed), _or_zeros(ct_taus, taus))
    columns = packed.shape.rank - 1
    return [put_along(found, as_rows(order - 1, found), columns, packed.shape.dimensions[columns]), None]


@routine("gehrd", results=[0, 1])
def _gehrd(call: Call) -> Cotangents:
    (packed, taus, _), (ct_packed, ct_taus, _) = call.results, call.cts
    if ct_packed is None is ct_taus:
        return [None]
    low, high = int(call.config.get("low", 1)), int(call.config.get("high", packed.shape.dimensions[-1]))
    ct_packed, ct_taus = _or_zeros(ct_packed, packed), _or_zeros(ct_taus, taus)
    rows, columns = places(packed)
    form = ops.Le(rows, columns + 1)
    how = _Reduction(max(high - low, 0), high, low - 1, below=1, both_sides=True)
    return [_before(how, packed, taus, ct_packed, ct_taus, _State(masked(form, packed), masked(form, ct_packed)))]


@routine("sytrd", "hetrd", results=[0, 1, 2, 3])
def _sytrd(call: Call) -> Cotangents:
    """Of Hermitian matrices, which stand in one triangle. The other one passes through."""
    packed, diagonals, off, taus, _ = call.results
    if all(ct is None for ct in call.cts):
        return [None]
    ct_packed, ct_diagonals, ct_off, ct_taus = map(_or_zeros, call.cts[:4], (packed, diagonals, off, taus))
    lower, size, kind = call.letter("uplo", "L") == "L", packed.shape.dimensions[-1], packed.element_type
    rows, columns = places(packed)
    beside = ops.Eq(rows, columns + 1) if lower else ops.Eq(rows + 1, columns)
    half = masked(beside, packed)
    form = half + adjoint(half) + masked(ops.Eq(rows, columns), convert(real_part(packed), kind))
    wide = ops.PadInDim(ct_off, 0, off.shape.rank - 1, *((0, 1) if lower else (1, 0)))  # of the off-diagonal's columns
    on_it, beside_it = (convert(as_rows(ct, packed) + real_part(ct_packed), kind) for ct in (ct_diagonals, wide))
    ct_form = ops.Select(beside, beside_it, masked(ops.Eq(rows, columns), on_it))
    how = _Reduction(max(size - 1, 0), size, below=1 if lower else -1, both_sides=True, backwards=not lower)
    found = mirrored(_before(how, packed, taus, ct_packed, ct_taus, _State(form, ct_form)), lower)
    return [found + triangle(ct_packed, not lower, diagonal=False)]
