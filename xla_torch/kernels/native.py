"""Native code (`xla_torch/codegen`) in the place of torch's calls as soon as there is any, and made once that is worth it.

A loop begins in torch, unless its code is on disk. When its steps, in this call and those before, have taken some time, it is
compiled beside them, and goes on natively from the state that it has reached by then. One that is known to have enough steps for
that time is compiled from its lowering on. The native function runs for a fraction of a second at a time, so that users can
interrupt it; a loop in the loop asks for signals itself.
"""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
import math
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import torch

from ..codegen.compiled import MachineCode, machine_code
from ..codegen.loops import ASKED, Machine, Source
from ..core import tuning
from ..core.budget import running
from ..storage import torch_private

_T = TypeVar("_T")

Tensors = tuple[torch.Tensor, ...]

_CHECK_EVERY = 16
_SECONDS_AT_ONCE = 0.05
_COUNTERS = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}


class NativeLoop(torch.nn.Module):
    """A loop's source, and what has been made of it. `widths` are the bytes of an element of each carry and `dims` their sizes,
    `counters` and `varying` say which of them the loop passes on, as integers and as tensors; the others are `fixed`. Tensors at
    the places `owned` among those passed on are the loop's own to write to."""

    def __init__(self, source: Source, widths: Sequence[int], dims: Sequence[tuple[int, ...]], counters: Sequence[int],
                 varying: Sequence[int], owned: Collection[int]):
        super().__init__()
        self.source, self.widths, self.counters, self.varying = source, tuple(widths), tuple(counters), tuple(varying)
        self.owned = frozenset(owned)
        self.fixed = tuple(k for k in range(len(dims)) if k not in {*counters, *varying})
        self.bytes = [width * math.prod(sizes) for width, sizes in zip(widths, dims, strict=True)]
        self.given = tuple(self.bytes[k] for k in (*self.varying, *self.fixed))
        self.seconds = 0.0
        self.code: MachineCode | None = None
        self.constants: list[int] = []
        """Where the source's constants are, as soon as there is `code`."""
        self.refused = False
        self.whole: MachineCode | None = None
        """Code of all that stands around the loop, with the loop in it: while that is on its way, it has none made of its own."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None, "constants": [], "whole": None}

    def expect(self, steps: int) -> None:
        """Begin to compile if a run of so many steps will take long, so that this goes on while the program is being lowered."""
        if steps * self.source.calls * tuning.NATIVE_CALL >= made_after(self.source.text):
            self._make()

    def begin(self) -> None:
        """Begin to compile, beside whatever comes next."""
        if not math.isinf(tuning.NATIVE_AFTER):
            self._found().make()

    def _make(self) -> None:
        if self.whole is None or self.whole.function is not None or self.whole.error:
            self._found().make()

    def _found(self) -> MachineCode:
        if self.code is None:
            self.constants = [constant.ctypes.data for constant in self.source.constants]
            self.code = machine_code(self.source.text, options())
        return self.code

    def takes(self, carried: Tensors, fixed: Tensors) -> bool:
        """Whether these tensors may go to native code, here and now."""
        if self.refused or math.isinf(tuning.NATIVE_AFTER) or torch.compiler.is_compiling() or torch_private.is_watched():
            return False
        return all(map(_fits, self.given, (*carried, *fixed)))

    def is_there(self) -> bool:
        """Whether there is native code already, so that a run begins with it."""
        return self.code is not None and self.code.function is not None

    def watch(self, carried: Tensors, fixed: Tensors, steps: int = 0) -> Watch | None:
        """What says in a run of the loop, of so many steps if that is known, when to go on natively; None where that cannot be,
        for these tensors or at all."""
        if not self.takes(carried, fixed):
            return None
        code = self._found()
        self.expect(steps)
        if tuning.NATIVE_AFTER == 0:
            code.make()
            code.wait()
        if warned_once(code, "a loop"):
            self.refused = True
            return None
        return Watch(self)

    def is_ready(self, seconds: float) -> bool:
        """Whether to go on natively, after so many seconds in torch."""
        assert self.code is not None
        if self.code.function is None and seconds >= made_after(self.source.text):
            self._make()
        return self.code.function is not None

    def finish(self, counters: Sequence[int], carried: Tensors, fixed: Tensors) -> tuple[tuple[int, ...], Tensors]:
        """The last counters and carried values of the loop from this state on."""
        numbers = [_COUNTERS[self.widths[k]](number) for k, number in zip(self.counters, counters, strict=True)]
        results = [t if slot in self.owned and t.is_contiguous() else t.clone(memory_format=torch.contiguous_format)
                   for slot, t in enumerate(carried)]
        still = [tensor.contiguous() for tensor in fixed]
        scratch = torch.empty(self.source.scratch, dtype=torch.uint8) if self.source.scratch else None
        places = [0] * len(self.bytes)
        for k, number in zip(self.counters, numbers, strict=True):
            places[k] = ctypes.addressof(number)
        for k, tensor in zip((*self.varying, *self.fixed), (*results, *still), strict=True):
            places[k] = tensor.data_ptr()
        places += self.constants
        places.append(0 if scratch is None else scratch.data_ptr())
        places += [torch_private.blas()[name] for name in self.source.routines]
        if self.source.asks:
            places += [*asked(), 0, 0, 0]
        self._run(array.array("q", places))
        return tuple([number.value for number in numbers]), tuple(results)

    def _run(self, places: array.array[int]) -> None:
        """All the steps that are left."""
        assert self.code is not None
        assert self.code.function is not None
        steps, begun, first = 1 << 8, time.perf_counter(), places.buffer_info()[0]
        while (going := self.code.function(steps, first)) > 0:
            now = time.perf_counter()
            steps <<= now - begun < _SECONDS_AT_ONCE
            begun = now
        if going < 0:
            raise_from(places[-3:])


@functools.cache
def asked() -> tuple[int, ...]:
    """The functions of Python's by which native code asks whether to stop."""
    return tuple(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in ASKED)


def raise_from(exception: Sequence[int]) -> None:
    """Raise what a handler of signals has raised in native code: its class, itself, and where."""
    ctypes.pythonapi.PyErr_Restore(*map(ctypes.c_void_p, exception))


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether native code may go by a tensor's memory: a plain one or a parameter, on the CPU, whose gradient nobody follows."""
    return (type(tensor) in _PLAIN and tensor.is_cpu and not (tensor.is_neg() or tensor.is_conj())
            and not (tensor.requires_grad and torch.is_grad_enabled()))


class Awaited:
    """A source whose function is run once it is there, and torch's calls until then; `what` it is, for a warning. The function
    `waits` to be made before anything runs where torch's calls have other bits. `own` are options of the compiler for it."""

    def __init__(self, text: str, what: str, waits: bool = False, own: tuple[str, ...] = ()):
        self.text, self.what, self.waits, self.own = text, what, waits, own
        self.seconds = 0.0
        """What torch's calls have taken so far."""
        self.code: MachineCode | None = None
        self.refused = False

    def begin(self) -> None:
        """Begin to compile, beside whatever comes next."""
        if not math.isinf(tuning.NATIVE_AFTER):
            self.code = machine_code(self.text, (*options(), *self.own))
            self.code.make()

    def is_ready(self) -> bool:
        """Whether there is native code. It is made when torch's calls have taken some time, if not before."""
        after = tuning.NATIVE_AFTER
        if self.refused or after == math.inf or torch.compiler.is_compiling() or torch_private.is_watched():
            return False
        if (code := self.code) is None:
            code = self.code = machine_code(self.text, (*options(), *self.own))
        if code.function is None and (self.waits or self.seconds >= made_after(self.text)):
            code.make()
            if self.waits or after == 0:
                code.wait()
        if code.error or code.unkept:
            self.refused = warned_once(code, self.what)
        return code.function is not None

    def timed(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """What torch's calls give in its place, whose time counts for when it is made."""
        begun = time.perf_counter()
        result = call(*arguments)
        self.seconds += time.perf_counter() - begun
        return result

    @property
    def function(self) -> Callable[..., int]:
        """The native function, where it `is_ready`."""
        assert self.code is not None
        assert self.code.function is not None
        return self.code.function


def make_native(module: torch.nn.Module) -> None:
    """Make all the native code of a module and those inside it, and wait for it."""
    found = _within(module)
    for inner in found:
        inner.begin()
    _wait_for(found)


def wait_for_compilation(module: torch.nn.Module, runner: Callable[[Any], Callable[..., _T]],
             settled: Callable[[Callable[..., _T]], None]) -> Callable[..., _T]:
    """Wrap the `runner` of a module so that its second call waits for compilation of the generated C.

    Later calls then compute in the same way, and none competes with a compiler. `settled` receives the runner that does not wait.
    It waits at most as long as `tuning.NATIVE_WAITED_CALLS` calls like the first take, and `tuning.NATIVE_WAIT` seconds, for at
    most `tuning.NATIVE_WAITED` bytes of C, and never within `limits`.
    """
    found, run, calls, seconds = _within(module), runner(module), itertools.count(), 0.0
    if not found:
        return run

    def first(*given: Any) -> _T:
        nonlocal seconds
        if next(calls) and running() is None:
            _settle(found, min(tuning.NATIVE_WAIT, tuning.NATIVE_WAITED_CALLS * seconds))
            settled(run)
        begun = time.perf_counter()
        result = run(*given)
        seconds = time.perf_counter() - begun
        return result

    return first


def _settle(found: Sequence[NativeLoop | Awaited], seconds: float) -> None:
    missing, texts = list[NativeLoop | Awaited](), set[str]()
    for inner in found:
        if inner.code is not None and inner.code.function is None and (
                inner.code.is_begun() or inner.seconds >= tuning.NATIVE_AGAIN * made_after(inner.code.text)):
            missing.append(inner)
            texts.add(inner.code.text)
    if sum(map(len, texts)) <= tuning.NATIVE_WAITED:
        for inner in missing:
            inner.begin()
        _wait_for(missing, seconds)


def _within(module: torch.nn.Module) -> list[NativeLoop | Awaited]:
    """What of a module, and of those inside it, has native code or may have it."""
    return [inner for inner in module.modules() if isinstance(inner, (NativeLoop, Awaited))]


def _wait_for(found: Sequence[NativeLoop | Awaited], seconds: float = math.inf) -> None:
    """Wait for the code that is being made, for so many seconds at most."""
    until = time.monotonic() + seconds
    for inner in found:
        if inner.code is not None:
            inner.code.wait(until - time.monotonic())


_FOR_A_THREAD = 1 << 15
"""Elements that are worth waking a thread for where each takes some arithmetic, as torch counts them."""


def run_on_threads(function: Callable[..., int], rows: int, n: int, places: Sequence[int], kept: int = 0,
                   for_a_thread: int = _FOR_A_THREAD) -> None:
    """Run a function of `codegen/threads.py` on rows of `n` elements, with its own places and so many bytes kept for each element
    of a row. So many elements are worth waking a thread for."""
    threads = min(torch.get_num_threads(), -(-rows * n // for_a_thread)) if _team() else 1
    memory = torch.empty(kept * n * threads, dtype=torch.uint8) if kept else None
    addresses = array.array("q", (*places, 0 if memory is None else memory.data_ptr(), n, threads, *_team()))
    function(rows, addresses.buffer_info()[0])


@functools.cache
def _team() -> tuple[int, ...]:
    """The functions of the OpenMP library that torch itself computes with: start its threads, a thread's number, how many there
    are. Empty where it is another library; native functions then run on one thread."""
    library = ctypes.CDLL(None)
    try:
        found = [getattr(library, name) for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")]
    except AttributeError:
        return ()
    return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in found)


def _fits(size: int, tensor: torch.Tensor) -> bool:
    """Whether a tensor may be a carry of so many bytes."""
    return is_readable(tensor) and tensor.numel() * tensor.element_size() == size


class Watch:
    """How long one run of a loop has gone on in torch."""

    def __init__(self, loop: NativeLoop):
        self.loop, self.begun, self.steps = loop, time.perf_counter(), 0

    def is_due(self) -> bool:
        """Whether to go on natively; asked before each step."""
        self.steps += 1
        return self.steps % _CHECK_EVERY == 1 and self.loop.is_ready(self.loop.seconds + time.perf_counter() - self.begun)

    def end(self) -> None:
        self.loop.seconds += time.perf_counter() - self.begun


def warned_once(code: MachineCode, what: str) -> bool:
    """Whether there will be no native code; whoever asks does so until then."""
    if code.unkept:
        _tell_unkept(str(code.path.parent), code.unkept)
    if code.error:
        warnings.warn(f"{what} stays in torch, because {code.command[0]} does not compile it: {code.error}", RuntimeWarning,
                      stacklevel=4)
    return bool(code.error)


@functools.cache
def _tell_unkept(folder: str, why: str) -> None:
    warnings.warn(f"native code is not kept for other processes, because {folder} cannot be used: {why}. Set XLA_TORCH_CACHE to "
                  "a folder that is yours alone", RuntimeWarning, stacklevel=5)


def made_after(text: str) -> float:
    """Seconds in torch from which on a source is worth compiling, which takes longer the longer it is."""
    return tuning.NATIVE_AFTER * max(1.0, len(text) / tuning.NATIVE_TEXT)


def options() -> tuple[str, ...]:
    """What the compiler may use of this processor; nothing that contracts or reorders."""
    return _OPTIONS.get(torch.backends.cpu.get_cpu_capability(), ())


def machine() -> Machine:
    """What native code may use here."""
    return Machine(can_fuse(), frozenset(torch_private.blas()), tuning.NATIVE_ELEMENTS // torch.get_num_threads())


def can_fuse() -> bool:
    """Whether the compiler may use a fused multiply-add of this processor, without which C's own is a slow function."""
    return "-mfma" in options()


_OPTIONS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")}
