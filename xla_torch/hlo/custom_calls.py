"""What is known of custom calls without running them: what a call says of itself, and which targets have a function.

A target is looked up, in this order, among the user's own (`registered`), those that are plain XLA ops in other words
(`transform/expand_custom_calls.py`), and the routines of LAPACK, JAX and XLA that programs for the CPU call (`ROUTINES`).
The functions of the first two tables are opaque here; `lowering/custom_calls.py` runs them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..core.forks import cached_property
from ..core.shape import Shape
from .backend_config import parse_config
from .ir import Instruction


@dataclasses.dataclass(frozen=True)
class CustomCall:
    """What a custom call says of itself: its target, the result's shape, its configuration, and the operands' shapes."""

    target: str
    shape: Shape
    opaque: str = ""
    operands: tuple[Shape, ...] = ()

    @property
    def opaque_bytes(self) -> bytes:
        """The configuration as the bytes that the program has."""
        return self.opaque.encode("utf-8", "surrogateescape")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as a dict: of JSON, or of MLIR attributes (``{uplo = 76 : ui8}``); empty for other text."""
        return parse_config(self.opaque)

    def letter(self, name: str, default: str) -> str:
        """A configuration entry that LAPACK calls by a letter, which is written as the letter's number."""
        value = self.config.get(name, default)
        return chr(value) if isinstance(value, int) else str(value)


def target_of(instruction: Instruction) -> str:
    """The target of a custom call, "" of other instructions."""
    return instruction.attributes.get("custom_call_target", "")


def described(instruction: Instruction) -> CustomCall:
    """What a custom-call instruction says of itself."""
    return CustomCall(target_of(instruction), instruction.shape.without_layout(),
                      str(instruction.common.get("backend_config", "")),
                      tuple(o.shape.without_layout() for o in instruction.operands))


# ------------------------------------------------------------------------------------------- targets of gradients

_VJP = re.compile(r"xla_torch\.vjp(?:\[([\d,]+)\])?\.")


def vjp_target(target: str, wanted: Sequence[bool]) -> str:
    """The target of the custom call that computes a target's gradient, from the operands and the result's cotangents.
    `wanted` flags the floating and complex operands that get one: in brackets stand their numbers, if those are not all."""
    numbers = "" if all(wanted) else f"[{','.join(str(k) for k, flag in enumerate(wanted) if flag)}]"
    return f"xla_torch.vjp{numbers}.{target}"


def is_vjp_target(target: str) -> bool:
    """Whether a target is that of a gradient: of what `vjp_target` gives."""
    return _VJP.match(target) is not None


def differentiated(target: str) -> tuple[str, tuple[int, ...] | None] | None:
    """For the target of a gradient: the target that it is the gradient of, and the numbers of the wanted operands (None: all).
    None for any other target."""
    match = _VJP.match(target)
    if match is None:
        return None
    return target[match.end():], tuple(map(int, match.group(1).split(","))) if match.group(1) else None


# ------------------------------------------------------------------------------------------- targets with a function


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """What runs for a target. It gets the operands as tensors, and the `CustomCall` as keyword ``call`` if `takes_call`."""

    run: Callable[..., Any]
    vjp: Callable[..., Any] | None = None
    takes_call: bool = True
    check: Callable[[Instruction], None] | None = None
    """Raises for an instruction that it cannot run for."""
    no_gradient: str = ""
    """Why it has no gradient, as far as that is known without running it."""
    own: bool = False
    """Whether it is ours, of which it is known that torch's autograd follows it."""


_registered: dict[str, Function] = {}
"""The user's functions by target, for the whole process, as XLA's own registry of custom calls is."""


def register(target: str, function: Function) -> None:
    """Let a function run for custom calls of a target, in place of any before it."""
    _registered[target] = function


def unregister(target: str) -> None:
    """Forget the function registered for a target. Raises KeyError where there is none."""
    del _registered[target]


def registered(target: str) -> Function | None:
    """The function that the user has registered for the target."""
    return _registered.get(target)


@dataclasses.dataclass(frozen=True, slots=True)
class Routine:
    """A routine that we have a function for (`lowering/kernels/lapack.py`): what it computes, and why it has no gradient and
    what to do instead, where that is so."""

    what: str
    no_gradient: tuple[str, str] | None = None


_LAPACK = re.compile(r"lapack_[sdcz](\w+?)_ffi")

ROUTINES: dict[str, Routine] = {
    "geqrf": Routine("QR, as reflectors"),
    "geqp3": Routine("QR with column pivots"),
    "orgqr": Routine("Q of reflectors"),
    "ungqr": Routine("Q of reflectors"),
    "ormqr": Routine("the product of Q with a matrix"),
    "unmqr": Routine("the product of Q with a matrix"),
    "getrf": Routine("LU with row pivots"),
    "gesdd": Routine("singular values"),
    "gesvd": Routine("singular values"),
    "syevd": Routine("eigenvalues of a symmetric matrix"),
    "heevd": Routine("eigenvalues of a Hermitian matrix"),
    "geev": Routine("eigenvalues"),
    "gees": Routine("the Schur form", (
        "the Schur form and its vectors are not unique: what they are is the routine's choice, which has jumps where eigenvalues "
        "meet or swap (JAX differentiates them neither)",
        "use the eigenvalues of lax.linalg.eig, or eigh for a symmetric matrix")),
    "gehrd": Routine("the Hessenberg form"),
    "sytrd": Routine("the tridiagonal form of a symmetric matrix"),
    "hetrd": Routine("the tridiagonal form of a Hermitian matrix"),
    "gtsv": Routine("the solution of a tridiagonal system"),
    "tridiagonal_solve_perturbed_ffi": Routine("the solution of a tridiagonal system, pivots kept from zero"),
    "cpu_csr_sparse_dense_ffi": Routine("the product of a sparse matrix with a dense one"),
    "Qr": Routine("QR, as reflectors"),
    "ProductOfElementaryHouseholderReflectors": Routine("Q of reflectors"),
}
"""The routines by name: LAPACK's without the letter of the type, JAX's and XLA's under the targets themselves."""


def routine_name(target: str) -> str:
    """The name of a target's routine: of ``lapack_sgeqrf_ffi``, ``geqrf``."""
    match = _LAPACK.fullmatch(target)
    return match.group(1) if match else target


def is_routine(instruction: Instruction) -> bool:
    """Whether an instruction calls a routine that gives the same again. A function of the user's may count its calls."""
    target = target_of(instruction)
    return (routine_name(target) in ROUTINES and registered(target) is None
            and not instruction.attributes.get("custom_call_has_side_effect"))


def why_no_gradient(target: str) -> tuple[str, str] | None:
    """Why custom calls of the target have no gradient and what to do instead, as far as is known without running one; None
    where they may have one."""
    own = f"register_gradient({target!r}, rule)"
    function = registered(target)
    if function is not None:
        return (function.no_gradient, own) if function.no_gradient else None
    gradient = differentiated(target)
    if gradient is not None:
        return why_no_gradient(gradient[0])
    routine = ROUTINES.get(routine_name(target))
    if routine is None:
        return "no function is known for it", f"register_custom_call({target!r}, function), or {own}"
    return routine.no_gradient and (routine.no_gradient[0], f"{routine.no_gradient[1]}, or {own}")
