"""`compile`: the same program for repeated runs, by torch's compiler or another backend of torch.compile's, or by XLA itself."""

from __future__ import annotations

from typing import Any, TypeVar

from ..runtime.backends import EAGER, XLA, Backend
from ..runtime.computation import XlaComputation, door
from ..runtime.static import StaticComputation
from ..xla_backend.client import require_client

C = TypeVar("C", bound=XlaComputation)


@door()
def compile(computation: C, backend: Backend = EAGER) -> C:
    """The program for repeated runs, by a backend.

    ``inductor`` leaves products, convolutions, sorts and loops to torch and to native code, which is made before the first call
    ends; of what stands between it has torch's compiler make one function for each group of calls, at the first call, and keep it
    on disk: equal layers are compiled once, and loops are never written out. Numbers may differ in their last bits from those of
    the program itself.

    ``cudagraphs`` is the program itself, and on CUDA devices a CUDA graph: the second call records what it asks of the device,
    later ones ask for all of it at once, which for programs of many small kernels, loops above all, takes a tenth of the time.
    Arguments that come at the same place in call after call, as parameters do, are read where they are; others are copied, and
    results are new tensors. The memory of a run stays taken. Recorded anew where arguments that had a place move. Programs of
    fewer than eight operators, and on the CPU all, run as they are; so do, with a RuntimeWarning at the first call, those that
    wait for the device (a loop whose end depends on numbers, a branch), that have effects, or whose results' sizes are found
    while they run.

    ``xla`` is XLA's own compiler for the CPU, through jaxlib, which it needs: the whole program is compiled at the first call,
    for tenths of a second to many seconds (the log of ``xla_torch.runtime.backends`` says how long), and reads tensors where they
    are. It takes programs of one participant without effects and without custom calls that XLA does not know; there are programs
    that end XLA, and with it the process, instead of being refused. ``fastest`` runs the program and, where it can, ``xla`` in
    turn in the first call, a few times each, and keeps the faster: `chosen` and the repr say which it was. What XLA compiles in
    vain is part of that call. Times are those of this call's arguments on this machine as it was.

    Every other backend is one of torch.compile's, by name or as a function such as it takes, and gets the whole program;
    ``eager`` is the program itself.

    It is called like the program: arguments are checked, gradients flow, transforms of torch.func work. The programs of the way
    back, of tangents and of batches that calls derive are compiled too, each when it first runs, and so is what `grad` and the
    like make of it. Raises InvalidArgument for something that is no computation; UnsupportedError for what ``xla`` does not take,
    MissingDependency where jaxlib is not there, DeviceError at a call for tensors of other devices than the CPU; torch.compile's
    own errors at the first call. Where ``inductor`` cannot compile a group (there is no C++ compiler), a RuntimeWarning says so
    and its calls stay in torch.

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
