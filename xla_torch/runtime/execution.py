"""How a program runs: lowered for each device, by the backend that it has, with what each of them keeps."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.fx
from torch.autograd.profiler import record_function

from ..analysis.peak import peak_bytes
from ..core.budget import running
from ..core.errors import UnsupportedError
from ..core.forks import Lock, cached_property
from ..hlo.checks import is_check
from ..hlo.ir import Module
from ..kernels.native import make_native, wait_for_compilation
from ..lowering.custom_calls import check_custom_calls
from ..lowering.programs import freeing, lower
from ..partitioning.state import Partitioning
from ..storage import torch_private
from ..storage.torch_private import direct, is_traced, transforms_are_active
from . import backends, graphs
from .automatic_graphs import Automatic, recorded_from_third_call
from .backends import CALL_BY_CALL, CUDAGRAPHS, EAGER, FASTEST, INDUCTOR, XLA, Backend, Choice, FreeingRun, Run
from .caches import Cache, RuleCache
from .cuda_graphs import recorded, records_on
from .plain_runs import run_without_autograd, without_grad
from .watching import watching

_log = logging.getLogger(__name__)


class Runnable(graphs.Program, Protocol):
    """What running needs of a `Program` (see there)."""

    @property
    def module(self) -> Module: ...

    @property
    def partitioning(self) -> Partitioning: ...

    @property
    def cotangents(self) -> int: ...

    def stablehlo(self) -> bytes: ...


class Execution:
    """A program's modules and runners, each made once for a device. With `ranges`, torch's profiler sees the instructions."""

    def __init__(self, program: Runnable, backend: Backend, ranges: bool = False):
        self._program, self._name, self._backend, self._ranges = program, program.name, backend, ranges
        self.choices: dict[torch.device, Choice] = {}  # that the fastest backend made
        lock = Lock()
        self._lowered: Cache[torch.device, torch.fx.GraphModule] = Cache(lock)
        self._runs: Cache[torch.device, Run] = Cache(lock)
        self._freeing_runs: Cache[torch.device, FreeingRun] = Cache(lock)
        self._traced_runs: Cache[torch.device, Run] = Cache(lock)
        self._graphed: Cache[torch.device, torch.fx.GraphModule] = Cache(lock)
        self._reasons: RuleCache[tuple[bool, ...], str] = RuleCache(lock)

    def lowered(self, device: torch.device) -> torch.fx.GraphModule:
        """See `Program.lowered`."""
        return self._lowered.get(device, self._lower)

    def runner(self, device: torch.device) -> Run:
        """See `Program.runner`."""
        return self._runs.get(device, self._make_run)

    def run(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """See `Program.run`."""
        if torch_private.profiler_is_on() and self._with_profiler_ranges is not None:
            with record_function(self._name):
                return self._with_profiler_ranges.run(tensors, device)
        self._within_limits()
        if (watched := watching()) is not None:
            return watched(self._name, self._program.canonical, tensors, device)
        if is_traced() or any(map(torch_private.is_batched_by_autograd, tensors)):
            return self._run_traced(tensors, device)
        return run_without_autograd(self._name, self._runs, self._make_run, device, *tensors)

    def run_plain(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """See `Program.run_plain`."""
        if torch_private.profiler_is_on() or running() is not None or watching() is not None:
            return self.run(tensors, device)
        return without_grad(self._name, self._runs.get(device, self._make_run), *tensors)

    def run_freeing(self, tensors: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """See `Program.run_freeing`."""
        if torch_private.profiler_is_on() and self._with_profiler_ranges is not None:
            with record_function(self._name):
                return self._with_profiler_ranges.run_freeing(tensors, device)
        self._within_limits()
        if (watched := watching()) is not None:
            given = tuple(tensors)
            tensors.clear()
            return watched(self._name, self._program.canonical, given, device)
        if is_traced() or any(map(torch_private.is_batched_by_autograd, tensors)):
            return self._run_traced(tensors, device)
        return run_without_autograd(self._name, self._freeing_runs, self._make_freeing_run, device, tensors)

    def _run_traced(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """The results, by calls that write over nothing; by such as torch has in graphs, where it makes one."""
        if torch_private.is_graphed() and not transforms_are_active():
            return graphs.into_graph(self._program, self._graphed, tensors, device)
        return run_without_autograd(self._name, self._traced_runs, self._make_traced_run, device, *tensors)

    def reason_not_capturable(self, needed: tuple[bool, ...]) -> str:
        """See `Program.reason_not_capturable`."""
        return self._reasons.get(needed, lambda needed: graphs.reason_not_capturable(self._program, needed))

    @cached_property
    def _with_profiler_ranges(self) -> Execution | None:
        """The program with ranges for torch's profiler. None if it has them already, or if another compiler runs it."""
        return None if self._ranges or not self._is_lowered else Execution(self._program, self._backend, ranges=True)

    def _within_limits(self) -> None:
        if (block := running()) is not None:
            block.takes_bytes(self._name, lambda: peak_bytes(self._program.canonical))

    @property
    def _is_lowered(self) -> bool:
        return self._backend in (EAGER, CALL_BY_CALL, INDUCTOR, CUDAGRAPHS)

    def _lower(self, device: torch.device) -> torch.fx.GraphModule:
        canonical = self._program.canonical
        check_custom_calls(canonical)
        if self._program.partitioning.about:
            _log.info("%s: %s", self._name, self._program.partitioning)
        module = lower(canonical, device, fuses=self._backend == INDUCTOR, ranges=self._ranges)
        if self._backend == INDUCTOR:
            make_native(module)
        return module

    def _make_run(self, device: torch.device) -> Run:
        program, shape = self._program, self._program.program_shape
        if device.type == "meta" and shape.result.is_static:
            return backends.run_without_data(shape.result)
        if self._is_lowered:
            by_itself = self._backend == EAGER and not self._ranges
            if records_on(device) and (by_itself or self._backend == CUDAGRAPHS):
                make = recorded_from_third_call if by_itself else recorded
                return make(self._name, program.canonical, direct(self.lowered(device)), device)
            return wait_for_compilation(self.lowered(device), direct, lambda run: self._runs.put(device, run))
        if self._backend == XLA:
            return backends.xla_run(self._name, shape, program.stablehlo, device)
        if self._backend == FASTEST:
            of = {EAGER: Execution(program, EAGER).runner, XLA: self._xla_with_all_checks}
            made = {name: functools.partial(make, device) for name, make in of.items()}
            return backends.fastest_run(made, lambda choice: self.choices.__setitem__(device, choice))
        check_custom_calls(program.canonical)
        return backends.compiled_run(lower(program.canonical, device, blocks=False), self._backend)

    def _xla_with_all_checks(self, device: torch.device) -> Run:
        """XLA, which leaves checks out, where there are none."""
        if any(is_check(i) for c in self._program.module.computations for i in c.instructions):
            raise UnsupportedError("XLA does not run the program's checks of values", subject=self._name)
        return Execution(self._program, XLA).runner(device)

    def _make_traced_run(self, device: torch.device) -> Run:
        check_custom_calls(self._program.canonical)
        return direct(lower(self._program.canonical, device, overwrites=False))

    def _make_freeing_run(self, device: torch.device) -> FreeingRun:
        if self._is_lowered and device.type != "meta" and self._backend != CUDAGRAPHS:
            run = self._runs.get(device, self._make_run)
            module = freeing(self.lowered(device), self._program.cotangents)
            if isinstance(run, Automatic):
                return run.freeing(direct(module))
            return wait_for_compilation(module, direct, lambda run: self._freeing_runs.put(device, run))
        return backends.consuming(self._runs.get(device, self._make_run))
