"""Which programs are recorded as CUDA graphs though nobody asked for it, when, and how much memory their recordings hold.

The first call runs the program, the second looks whether it waits for the device, and the third records it (`cuda_graphs.py`). A
call that somebody observes or limits runs the program, and so does every call of a program that cannot be recorded.
"""

from __future__ import annotations

import itertools
import logging
import weakref

import torch

from ..analysis.peak import peak_bytes
from ..core import tuning
from ..core.budget import running
from ..core.forks import Lock
from ..hlo.custom_calls import differentiated, registered, target_of
from ..hlo.ir import Computation, Instruction, reachable
from ..opcodes import internal
from ..storage.torch_private import is_watched
from .backends import FreeingRun, Run
from .cuda_graphs import Capture, Graph, Place, Recorded, Tensors, captured, is_capturing, reason_not_recordable

_log = logging.getLogger(__name__)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_uses = itertools.count()


def recorded_from_third_call(name: str, entry: Computation, run: Run, device: torch.device) -> Run:
    """The program's run on a CUDA device, recorded at the third call; the run itself where it cannot be recorded."""
    why = _reason_not_automatic(entry)
    if not why:
        return Automatic(name, run, device, captured)
    _log.debug("%s runs call by call and not as a CUDA graph: %s", name, why)
    return run


def _reason_not_automatic(entry: Computation) -> str:
    if not tuning.GRAPHS:
        return "XLA_TORCH_CUDA_GRAPHS is 0"
    called = next((i for c in reachable([entry]) for i in c.instructions if _calls_user(i)), None)
    if called is not None:
        return f"{target_of(called)} is a function of the user's, which may do more in each call than launch kernels"
    if why := reason_not_recordable(entry):
        return why
    needed = peak_bytes(entry)
    return f"it needs {needed} bytes, more than XLA_TORCH_CUDA_GRAPHS_LIMIT" if needed > tuning.GRAPHS_LIMIT else ""


def _calls_user(instruction: Instruction) -> bool:
    if instruction.opcode != internal.custom_call:
        return False
    target = target_of(instruction)
    while (gradient := differentiated(target)) is not None:
        target = gradient[0]
    return registered(target) is not None


class Automatic(Recorded):
    """A run that is recorded at its third call, a few times at most, while all such recordings are within the bound."""

    def __init__(self, name: str, run: Run, device: torch.device, capture: Capture):
        super().__init__(name, run, device, capture)
        self._has_run, self._recordings = False, 0
        self.used = 0
        """When it was replayed last, in the order of all such replays."""

    def __call__(self, *tensors: torch.Tensor) -> Tensors:
        return super().__call__(*tensors) if self._is_due(tensors) else self._run(*tensors)

    def freeing(self, run: FreeingRun) -> FreeingRun:
        """The same from a list, by a `run` that frees what it has read where nothing is recorded."""
        def call(tensors: list[torch.Tensor]) -> Tensors:
            if not self._is_due(tensors):
                return run(tensors)
            given = tuple(tensors)
            tensors.clear()
            return Recorded.__call__(self, *given)

        return call

    def _is_due(self, tensors: Tensors | list[torch.Tensor]) -> bool:
        """Whether this call may be looked at, recorded or replayed."""
        if self._stays or is_capturing(self._device) or running() is not None or is_watched():
            return False
        if any(type(t) not in _PLAIN for t in tensors):
            return False
        had_run, self._has_run = self._has_run, True
        return had_run

    def _is_worth(self, operators: int) -> bool:
        worth = super()._is_worth(operators) and operators <= tuning.GRAPH_UP_TO
        if not worth:
            self._report(f"it has {operators} operators")
        return worth

    def _report(self, why: str) -> None:
        _log.debug("%s runs call by call and not as a CUDA graph: %s", self._name, why)

    def _replayed(self, tensors: Tensors) -> Tensors:
        self.used = next(_uses)
        return super()._replayed(tensors)

    def _record(self, tensors: Tensors, places: list[Place]) -> Graph | None:
        self._graph, self._recordings = None, self._recordings + 1
        if self._recordings > tuning.GRAPH_TIMES:
            self._stays = True
            self._report(f"it was recorded {tuning.GRAPH_TIMES} times")
            return None
        if self._recordings == tuning.GRAPH_TIMES:
            self._move.update(range(len(tensors)))
        graph = super()._record(tensors, places)
        if graph is not None and graph.nbytes > tuning.GRAPHS_LIMIT:
            self._graph, self._stays = None, True
            self._report(f"a recording holds {graph.nbytes} bytes, more than XLA_TORCH_CUDA_GRAPHS_LIMIT")
            return None
        with _lock:
            _holding.add(self)
            _free_oldest()
        return graph

    @property
    def nbytes(self) -> int:
        """The bytes that its recording holds now."""
        graph = self._graph
        return 0 if graph is None else graph.nbytes

    def free(self) -> None:
        """Free the recording. A call that replays it meanwhile keeps it until it has ended."""
        self._graph = None


_lock = Lock()
_holding: weakref.WeakSet[Automatic] = weakref.WeakSet()
"""What may hold a recording."""


def _free_oldest() -> None:
    """Free the least recently used recordings until all are within the bound."""
    held = sorted(_holding, key=lambda each: each.used)
    total = sum(each.nbytes for each in held)
    for each in held:
        if total <= tuning.GRAPHS_LIMIT:
            return
        total -= each.nbytes
        each.free()
        _holding.discard(each)
