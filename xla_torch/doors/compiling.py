"""`compile`: the same program for repeated runs, by torch's compiler or another backend of torch.compile's."""

from __future__ import annotations

from typing import Any, TypeVar

from ..running.computation import XlaComputation, door
from ..running.program import EAGER, Backend
from ..running.static import StaticComputation

C = TypeVar("C", bound=XlaComputation)


@door()
def compile(computation: C, backend: Backend = EAGER) -> C:
    """The program for repeated runs, by a backend.

    ``inductor`` leaves products, convolutions, sorts and loops to torch and to native code, which is made before the first call
    ends; of what stands between it has torch's compiler make one function for each group of calls, at the first call, and keep it
    on disk: equal layers are compiled once, and loops are never written out. Numbers may differ in their last bits from those of
    the program itself. Every other backend is one of torch.compile's, by name or as a function such as it takes, and gets the
    whole program; ``eager`` is the program itself.

    It is called like the program: arguments are checked, gradients flow, transforms of torch.func work. The programs of the way
    back, of tangents and of batches that calls derive are compiled too, each when it first runs, and so is what `grad` and the
    like make of it. Raises InvalidArgument for something that is no computation; torch.compile's own errors at the first call.
    Where ``inductor`` cannot compile a group (there is no C++ compiler), a RuntimeWarning says so and its calls stay in torch.
    """
    if backend == computation.program.backend:
        return computation
    compiled: Any = StaticComputation(computation.program.again(computation.gradient_options, backend))
    return compiled
