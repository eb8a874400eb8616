"""LAPACK's routines that are ops, Cholesky factors and triangular solves, and the form in which older programs call all of them.

The other routines are functions in `lowering/kernels/lapack.py`. Older calls (``lapack_sgetrf``) have sizes and flags as scalar
operands before the matrices, and give workspaces as further results. Source: jaxlib/lapack.py of 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import functions as ops
from ..core.types import S32
from ..functions.hlo_builder import XlaOp
from ..functions.lapack import lapack
from ..hlo.custom_calls import described
from .calls import Call, Meaning, parts, zeros
from .solvers import cholesky_factor

_TRANSPOSES = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def potrf(call: Call) -> Sequence[XlaOp]:
    """(the factor in one triangle and the operand's elements in the other, info)."""
    return cholesky_factor(call.operands[0], described(call.instruction).letter("uplo", "L") == "L")


def trsm(call: Call) -> XlaOp:
    """The solution, which LAPACK writes over the right side."""
    call.require_operands(2)
    letter = described(call.instruction).letter
    return ops.TriangularSolve(*call.operands, letter("side", "L") == "L", letter("uplo", "L") == "L",
                               letter("diag", "N") == "U", _TRANSPOSES[letter("trans_x", "N")])


# ------------------------------------------------------------------------------------------- older calls


def _arrays(call: Call, count: int) -> tuple[XlaOp, ...]:
    """The last operands: those that are not sizes and flags."""
    found = call.operands[-count:]
    if len(call.operands) <= count or any(o.shape.rank < 1 for o in found) or any(
            o.shape.rank for o in call.operands[:-count]):
        raise call.refused("its operands are not scalars and then arrays", ", ".join(str(o.shape) for o in call.operands))
    return found


def _flag(call: Call, number: int, *known: int) -> int:
    """A scalar operand that must be one of the numbers."""
    value = int(call.static(number))
    if value not in known:
        raise call.refused(f"operand {number} has a value that is not known", value, " or ".join(map(str, known)))
    return value


def _simply(routine: str, arrays: int, results: int) -> Meaning:
    """Of a routine that gives its results in the order of the newer call, and info behind them."""
    def meaning(call: Call) -> Sequence[XlaOp]:
        given = _arrays(call, arrays)
        made = lapack(_named(routine, given[0]), given, call.results[:results] if results > 1 else call.results[0])
        found = parts(made) if results > 1 else [made]
        return found if found[-1].element_type is S32 else [*found, zeros(call.builder, call.results[results])]

    return meaning


def _named(routine: str, a: XlaOp) -> str:
    names = {"orgqr": "ungqr", "syevd": "heevd", "sytrd": "hetrd"}
    return names.get(routine, routine) if a.element_type.is_complex else routine


def _older_potrf(call: Call) -> Sequence[XlaOp]:
    (a,) = _arrays(call, 1)
    return cholesky_factor(a, lower=bool(_flag(call, 0, 0, 1)))


def _older_trsm(call: Call) -> XlaOp:
    call.require_operands(10)
    left, lower, operation, unit = (_flag(call, k, 0, 1, *([2] if k == 2 else [])) for k in range(4))
    a, b = call.operands[8:]
    found = ops.TriangularSolve(a, b, bool(left), bool(lower), bool(unit), ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")[operation])
    return ops.Mul(found, ops.Broadcast(call.operands[7], found.shape.dimensions))


def _older_gesdd(call: Call) -> Sequence[XlaOp]:
    whole, vectors = _flag(call, 0, 0, 1), _flag(call, 1, 0, 1)
    return parts(lapack("gesdd", _arrays(call, 1), call.results[:5], mode="N" if not vectors else "A" if whole else "S"))


def _older_syevd(call: Call) -> Sequence[XlaOp]:
    given = _arrays(call, 1)
    return parts(lapack(_named("syevd", given[0]), given, call.results[:3], mode="V", uplo="L" if _flag(call, 0, 0, 1) else "U"))


def _older_sytrd(call: Call) -> Sequence[XlaOp]:
    given = _arrays(call, 1)
    return parts(lapack(_named("sytrd", given[0]), given, call.results[:5], uplo="L" if _flag(call, 1, 0, 1) else "U"))


def _older_geev(call: Call) -> Sequence[XlaOp]:
    """Workspaces, then (eigenvalues, left and right eigenvectors, info)."""
    (a,) = _arrays(call, 1)
    first = 2 if a.element_type.is_complex else 3
    letters: dict[str, Any] = {f"compute_{side}": chr(_flag(call, k, ord("V"), ord("N")))
                               for k, side in ((2, "left"), (3, "right"))}
    found = parts(lapack("geev", [a], call.results[first:], **letters))
    return [*(zeros(call.builder, w) for w in call.results[:first]), *found]


_OLDER: dict[str, Meaning] = {
    "getrf": _simply("getrf", 1, 3), "geqrf": _simply("geqrf", 1, 2), "orgqr": _simply("orgqr", 2, 1),
    "ungqr": _simply("orgqr", 2, 1), "geqp3": _simply("geqp3", 2, 3), "potrf": _older_potrf, "gesdd": _older_gesdd,
    "syevd": _older_syevd, "heevd": _older_syevd, "sytrd": _older_sytrd, "hetrd": _older_sytrd, "geev": _older_geev}

MEANINGS: dict[str, Meaning] = {
    **{f"lapack_{kind}{name}_ffi": meaning for kind in "sdcz" for name, meaning in (("potrf", potrf), ("trsm", trsm))},
    **{f"lapack_{kind}{name}": meaning for kind in "sdcz" for name, meaning in _OLDER.items()},
    **{f"blas_{kind}trsm": _older_trsm for kind in "sdcz"}}
"""The routines by target."""
