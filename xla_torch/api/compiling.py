"""`compile`: the same program for repeated runs, by torch's compiler or another backend of torch.compile's, or by XLA itself."""

from __future__ import annotations

from typing import Any, TypeVar

from ..runtime.backends import EAGER, XLA, Backend
from ..runtime.computation import XlaComputation
from ..runtime.static import StaticComputation
from ..runtime.steps import entry_point
from ..xla_backend.client import require_client

C = TypeVar("C", bound=XlaComputation)


@entry_point()
def compile(computation: C, backend: Backend = EAGER) -> C:
    """Compile a program for repeated calls with a backend.

    ``inductor`` compiles each group of calls between products, convolutions, sorts and loops with torch's compiler, at the
    first call. Compiled groups are cached on disk, and equal layers compile once. Products, convolutions and sorts stay in
    torch, and loops run in generated C. Results may differ from the program's in their last bits.

    ``cudagraphs`` records a CUDA graph at the second call on a CUDA device and replays it afterwards. Arguments that keep their
    address, such as parameters, are read in place; others are copied. Results are new tensors, and the memory of a run stays
    allocated. The graph is recorded again if a fixed argument moves. Programs of fewer than eight operators and programs on the
    CPU run uncompiled. So do programs that wait for the device (loops and branches that depend on data), have effects, or have
    results of dynamic size; these issue a RuntimeWarning at the first call.

    ``no-cudagraphs`` is the program itself, never as a CUDA graph. Without it, a program on a CUDA device is recorded at its
    third call if ``cudagraphs`` can record it, and within a bound on memory (see docs/performance.md). It is never an error or
    a warning if it can't be recorded.

    ``xla`` compiles the whole program with XLA's CPU compiler at the first call; it needs jaxlib. The logger
    ``xla_torch.runtime.backends`` reports the compile time. It takes programs of one participant without effects and without
    custom calls that XLA lacks. Some programs crash XLA, and the process with it.

    ``fastest`` times the program and, if possible, ``xla`` in the first call, and keeps the faster one. `chosen` and the repr
    report the choice.

    Any other name or function is a backend of torch.compile, and gets the whole program; ``eager`` is the program itself.

    The result is called like the program: arguments are checked, gradients flow, and torch.func transforms work. Derived
    programs (backward passes, tangents, batches, `grad`) are compiled when they first run. Raises InvalidArgument if
    `computation` is not a computation, UnsupportedError if ``xla`` can't take the program, MissingDependency without jaxlib,
    and DeviceError if ``xla`` gets tensors that are not on the CPU. Errors of torch.compile appear at the first call. If
    ``inductor`` can't compile a group (for instance without a C++ compiler), a RuntimeWarning says so and the group stays in
    torch.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.compile(square)(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    if backend == computation.program.backend:
        return computation
    program = computation.program.again(computation.gradient_options, backend)
    if backend == XLA:
        require_client('compile(computation, "xla")')
        program.for_xla  # noqa: B018  (refused at once, where it is)
    compiled: Any = StaticComputation(program)
    return compiled
