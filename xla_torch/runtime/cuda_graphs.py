"""Programs as CUDA graphs: what a program asks of its device is recorded once, and from then on asked for by one call.

A graph reads and writes where it was recorded. So arguments that come at the same place in call after call, as parameters do, are
read where they are, all others are copied to a place of the graph's own, and results are copied from there.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence

import torch

from ..core import tuning
from ..core.forks import Lock, in_child
from ..hlo.ir import Computation, reachable
from ..storage.torch_private import copy_each, looked_at
from .backends import Run
from .graphs import does_more

Tensors = tuple[torch.Tensor, ...]
Capture = Callable[[torch.device, Callable[[], Tensors]], tuple[Tensors, Callable[[], None], int]]
"""Records the kernels that a function launches: the tensors that it returned, a function that writes them anew, and the bytes of
memory that the recording holds."""

Place = tuple[int, tuple[int, ...]] | None

_COPIED_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64, **dict.fromkeys(
    (torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz, torch.float8_e8m0fnu), torch.uint8)}
"""Dtypes that CUDA copies one by one only."""


def records_on(device: torch.device) -> bool:
    """Whether a device can record what it is asked to compute."""
    return device.type == "cuda"


def recorded(name: str, entry: Computation, run: Run, device: torch.device) -> Run:
    """The program's run on a CUDA device, recorded at its second call if it is more than a few operators. The run itself, with a
    RuntimeWarning, where it does not ask the same of its device each time."""
    why = reason_not_recordable(entry)
    if not why:
        return Recorded(name, run, device, captured)
    _warn(name, why)
    return run


def reason_not_recordable(entry: Computation) -> str:
    """Why a program's instructions forbid that one run is replayed for another; empty if they allow it."""
    for instruction in (i for c in reachable([entry]) for i in c.instructions):
        if not instruction.is_parameter and does_more(instruction):
            return f"{instruction.opcode} ({instruction.name}) does more than compute an array of a known size"
    sized = next((i for i in entry.parameters if not i.shape.is_static), None)
    return f"the size of {sized.name} differs from call to call" if sized is not None else ""


def _warn(name: str, why: str) -> None:
    warnings.warn(f"{name} runs call by call and not as a CUDA graph: {why}", RuntimeWarning, stacklevel=2)


class Recorded:
    """The first call runs the program and looks whether it waits for the device, the second records it. Calls from several
    threads take turns, and so does what they ask of several streams."""

    def __init__(self, name: str, run: Run, device: torch.device, capture: Capture):
        self._name, self._run, self._device, self._capture = name, run, device, capture
        self._lock = Lock()
        self._stream: torch.cuda.Stream | None = None
        self._stays = False
        """Whether it has been found that there will be no recording."""
        self._graph: Graph | None = None
        self._places: list[Place] | None = None
        """Where the arguments of the last recording were, and those of the first call before there is one."""
        self._move: set[int] = set()
        """The arguments that have come at several places."""
        _all.add(self)

    def __call__(self, *tensors: torch.Tensor) -> Tensors:
        if self._stays or is_capturing(self._device):
            return self._run(*tensors)
        with self._lock:
            return self._first(tensors) if self._places is None else self._replayed(tensors)

    def _first(self, tensors: Tensors) -> Tensors:
        why, operators, results = looked_at(lambda: self._run(*tensors))
        self._places = [*map(_place, tensors)]
        self._stays = bool(why) or not self._is_worth(operators) or not any(r.numel() for r in results)
        if why:
            self._report(f"it waits for the device at each call of {why}")
        return results

    def _is_worth(self, operators: int) -> bool:
        return operators >= tuning.GRAPH_FROM

    def _report(self, why: str) -> None:
        _warn(self._name, why)

    def _replayed(self, tensors: Tensors) -> Tensors:
        places, graph = [*map(_place, tensors)], self._graph
        if graph is None or not graph.takes(places):
            graph = self._record(tensors, places)
        if graph is None:
            return self._run(*tensors)
        self._follow(graph)
        return graph.replay(tensors)

    def _record(self, tensors: Tensors, places: list[Place]) -> Graph | None:
        assert self._places is not None
        self._move |= {k for k, place in enumerate(places) if place is None or place != self._places[k]}
        self._places = places
        self._graph = None  # the next has its memory
        try:
            self._graph = Graph(self._run, tensors, [None if k in self._move else p for k, p in enumerate(places)],
                                 lambda run: self._capture(self._device, run))
        except RuntimeError as error:
            self._stays = True
            self._report(str(error).partition("\n")[0])
        return self._graph

    def _follow(self, graph: Graph) -> None:
        """What an earlier call asked of another stream comes first."""
        if self._device.type == "cuda":
            stream = torch.cuda.current_stream(self._device)
            if self._stream is not None and stream != self._stream:
                stream.wait_stream(self._stream)
                graph.is_used_by(stream)
            self._stream = stream

    def forget(self) -> None:
        """Drop the recording in a forked process, where CUDA cannot even free it: it stays in memory."""
        _of_parent.append(self._graph)
        self._graph = None


_all: weakref.WeakSet[Recorded] = weakref.WeakSet()
_of_parent: list[Graph | None] = []


@in_child
def _forget() -> None:
    for each in tuple(_all):
        each.forget()


class Graph:
    """A recording for arguments at certain places, and anywhere where that is None."""

    def __init__(self, run: Run, tensors: Tensors, places: Sequence[Place],
                 capture: Callable[[Callable[[], Tensors]], tuple[Tensors, Callable[[], None], int]]):
        self._places, self._switches = places, _switches()
        with torch.inference_mode(False), torch.no_grad():  # buffers are written in later calls, in that mode or not
            self._own = {k: torch.empty_like(tensors[k]) for k, place in enumerate(places) if place is None}
            given = [self._own.get(k, tensor) for k, tensor in enumerate(tensors)]
            self._results, self._again, held = capture(lambda: _apart_from(given, run(*given)))
        self.nbytes = held + sum(tensor.untyped_storage().nbytes() for tensor in self._own.values())
        self._copy_own, self._copy_results = _Copies(self._own), _Copies(dict(enumerate(self._results)))

    def takes(self, places: Sequence[Place]) -> bool:
        return (all(mine is None or mine == theirs for mine, theirs in zip(self._places, places, strict=True))
                and self._switches == _switches())

    def is_used_by(self, stream: torch.cuda.Stream) -> None:
        """The memory for copied arguments is not given to others before the stream is done with it."""
        for tensor in self._own.values():
            tensor.record_stream(stream)

    def replay(self, tensors: Tensors) -> Tensors:
        self._copy_own(self._own, tensors)
        self._again()
        results = [*map(torch.empty_like, self._results)]
        self._copy_results(results, self._results)
        return tuple(results)


class _Copies:
    """Tensors by their numbers, in groups that one call copies."""

    def __init__(self, tensors: Mapping[int, torch.Tensor]):
        found: dict[torch.dtype, list[int]] = {}
        for number, tensor in tensors.items():
            found.setdefault(tensor.dtype, []).append(number)
        self._groups = [(numbers, _COPIED_AS.get(dtype)) for dtype, numbers in found.items()]

    def __call__(self, to: Mapping[int, torch.Tensor] | Sequence[torch.Tensor], by: Sequence[torch.Tensor]) -> None:
        for numbers, dtype in self._groups:
            ours, theirs = [to[k] for k in numbers], [by[k] for k in numbers]
            if dtype is not None:
                ours, theirs = [t.view(dtype) for t in ours], [t.view(dtype) for t in theirs]
            copy_each(ours, theirs)


def _apart_from(given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Tensors:
    """Results as they lie in memory, with copies of those that are arguments: the recording would keep the caller's memory."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in given}
    plain = [r.resolve_conj().resolve_neg() for r in results]
    return tuple([r.clone() if r.untyped_storage().data_ptr() in taken else r for r in plain])


def _place(tensor: torch.Tensor) -> Place:
    """Where a tensor lies, and how; None for one that is not what lies there."""
    if tensor.is_conj() or tensor.is_neg():
        return None
    return tensor.data_ptr(), tensor.stride()


def is_capturing(device: torch.device) -> bool:
    """Whether somebody records a CUDA graph on this thread, in which no other can be replayed."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _switches() -> tuple[object, ...]:
    """The global switches of torch that choose kernels."""
    cudnn = torch.backends.cudnn
    return (torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.matmul.fp32_precision,
            cudnn.enabled, cudnn.deterministic, cudnn.benchmark)


def captured(device: torch.device, run: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None], int]:
    """`Capture` by CUDA. Raises RuntimeError for what it cannot record. Other threads may use the device meanwhile."""
    try:
        return _captured(device, run)
    except RuntimeError:
        with contextlib.suppress(RuntimeError):  # torch's random numbers count as recorded until a recording has ended well
            _captured(device, lambda: (torch.zeros(1, device=device),))
        raise


def _captured(device: torch.device, run: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None], int]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        before = torch.cuda.memory_reserved()  # a graph has memory of its own, which grows from nothing
        results = run()
        held = torch.cuda.memory_reserved() - before
    return results, graph.replay, held
