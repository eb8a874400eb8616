"""Custom calls that are XLA ops in other words: written as those ops, they print, run and differentiate as they do.

Compiled programs call libraries (LAPACK on CPUs; cuSOLVER, cuBLAS, cuDNN and their kin on GPUs) and routines of XLA's own.
Partitioners and memory placement mark values by calls that only pass them on. `expansion` gives the computation that stands for
one such instruction, `expand` puts it in the place of every one. What each target means, its library's file in
`custom_calls/` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..analysis.opened import check_size
from ..core.errors import UnsupportedError, XlaError
from ..core.shape import Shape
from ..custom_calls import Call, meaning_of
from ..custom_calls.calls import zeros
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.custom_calls import registered, target_of
from ..hlo.ir import Computation, Instruction, reachable
from .canonical import Canonicalizer, canonicalize
from .rewriter import rebuilt
from .values import Value, make_tuple


def expand(computation: Computation, stays: Callable[[str], bool]) -> Computation:
    """The computation in canonical form, with ops in place of the custom calls that have an expansion, except for those whose
    target `stays` a custom call, since the caller has a rule of its own for it. The computation itself where it is so."""
    if not any(_meaning(i, stays) for c in reachable([computation]) for i in c.instructions):
        return canonicalize(computation)
    check_size(computation)
    result = rebuilt(computation, lambda builder: Expander(builder, stays))
    result.is_canonical = True
    return result


def _meaning(instruction: Instruction, stays: Callable[[str], bool]) -> Computation | None:
    if stays(target_of(instruction)):
        return None
    try:
        return expansion(instruction)
    except UnsupportedError:  # it stays as it is, and is named with the others that cannot run
        return None


class Expander(Canonicalizer):
    """The canonicalizer that also puts ops in the place of custom calls."""

    def __init__(self, builder: Builder, stays: Callable[[str], bool]):
        super().__init__(builder)
        self.stays = stays

    def within(self, builder: Builder) -> Canonicalizer:
        return Expander(builder, self.stays)

    def alone(self, computation: Computation) -> Computation:
        return expand(computation, self.stays)

    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        meaning = _meaning(instruction, self.stays)
        return self.run(meaning, operands) if meaning else super().visit(instruction, operands, arguments)


def expansion(instruction: Instruction) -> Computation | None:
    """A computation of the instruction's operands that does what it does if it is a custom call, or None where there is none.

    A function that the user registered for the target goes first. Raises UnsupportedError for a target that has a meaning, but
    none for what the call says of itself.
    """
    target = target_of(instruction)
    meaning = meaning_of(target)
    if meaning is None or registered(target) is not None:
        return None
    builder = Builder(re.sub(r"\W", "_", target))
    operands = tuple(builder.parameter(k, o.shape.without_layout()) for k, o in enumerate(instruction.operands))
    call = Call(builder, instruction, operands)
    try:
        found = meaning(call)
    except UnsupportedError:
        raise
    except XlaError as error:
        raise call.refused(f"its meaning does not fit what it says of itself: {error.what}", error.got, error.expected) from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # configurations are of any JSON
        raise call.refused("its configuration and operands have not the form that its target has", str(error)) from error
    return builder.finish(_result(call, [found] if isinstance(found, XlaOp) else list(found)))


def _result(call: Call, found: list[XlaOp]) -> XlaOp:
    """The call's result of what its meaning gives: a tuple has zeros in the place of workspaces behind that. Raises
    UnsupportedError for other shapes than the call declares."""
    shape = call.instruction.shape
    whole = len(found) == 1 and found[0].shape.compatible(shape)
    workspaces = call.results[len(found):]
    if not whole and not (shape.is_tuple and len(found) <= len(call.results)
                          and all(map(Shape.compatible, (f.shape for f in found), call.results))
                          and all(w.is_array and w.rank <= 1 for w in workspaces)):
        raise call.refused("its meaning gives another shape than it declares", shape.without_layout(),
                           ", ".join(str(f.shape) for f in found))
    return found[0] if whole else make_tuple(call.builder, [*found, *(zeros(call.builder, w) for w in workspaces)])


def why_unknown(instruction: Instruction) -> UnsupportedError | None:
    """Why a custom call whose target has a meaning has none itself; None where it has one, or no meaning is known at all."""
    try:
        expansion(instruction)
    except UnsupportedError as error:
        return error
    return None
