"""`compile`: the same program, run through one of torch.compile's backends."""

from __future__ import annotations

from typing import Any, TypeVar

from .computation import XlaComputation, require_computation
from .polymorphic import for_every_size
from .running.program import EAGER, Backend
from .tree_function import JaxFunction

C = TypeVar("C", bound=XlaComputation)


@for_every_size()
def compile(computation: C, backend: Backend = EAGER) -> C:
    """The program for repeated runs, run by a backend of torch.compile's (``inductor``, which fuses it; by name, or a function
    such as torch.compile takes). ``eager`` is the program itself.

    It is called like the program: arguments are checked, gradients flow, transforms of torch.func work. The programs of the way
    back, of tangents and of batches that calls derive are compiled too, each when it first runs, and so is what `grad` and the
    like make of it. Raises InvalidArgument for something that is no computation; torch.compile's own errors at the first call.
    """
    require_computation(computation, "compile")
    if isinstance(computation, JaxFunction):
        return computation.with_computation(compile(computation.computation, backend))  # pyright: ignore[reportReturnType]
    if backend == computation.program.backend:
        return computation
    compiled: Any = XlaComputation(computation.program.again(computation.gradient_options, backend))
    return compiled
