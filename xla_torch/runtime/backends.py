"""How programs run: as they were lowered, by torch.compile's backends, by XLA itself, and by whatever is fastest."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.autograd import forward_ad
from torch.utils import dlpack

from .. import xla_backend
from ..core.errors import DeviceError, ExecutionError, MissingDependency, UnsupportedError
from ..core.forks import Lock
from ..core.shape import ProgramShape, Shape
from ..storage.dtypes import torch_dtype, type_from_torch
from ..storage.torch_private import forward_mode_is_on

_log = logging.getLogger(__name__)

Run = Callable[..., tuple[torch.Tensor, ...]]
"""Flat tensors in, flat tensors out."""
FreeingRun = Callable[[list[torch.Tensor]], tuple[torch.Tensor, ...]]
"""The same from a list, which it empties."""

Backend = str | Callable[..., Any]

EAGER = "eager"
"""The backend that is the lowered program itself."""

INDUCTOR = "inductor"
"""The lowered program too, with native code from the first call on and with groups of calls compiled by torch's compiler.
Backends without a name here are torch.compile's, by name or as functions."""

CUDAGRAPHS = "cudagraphs"
"""The lowered program, on CUDA devices as a CUDA graph."""

CALL_BY_CALL = "no-cudagraphs"
"""The lowered program too, which is never recorded as a CUDA graph."""

XLA = "xla"
"""The backend that is XLA, through jaxlib."""

FASTEST = "fastest"
"""The backend that is the lowered program or XLA, whichever is found to be faster."""

PAIRS = 3
"""How often each candidate runs, in turn, after it has run once, before one of them is kept."""


def consuming(run: Run) -> FreeingRun:
    """The same from a list."""
    def call(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        given = tuple(tensors)
        tensors.clear()
        return run(*given)

    return call


def xla_run(name: str, shape: ProgramShape, stablehlo: Callable[[], bytes], device: torch.device) -> Run:
    """The program compiled by XLA. Raises DeviceError for devices other than the CPU, UnsupportedError for element types that
    torch has no dtype of its own for, arrays of sizes that are not known, and what XLA refuses."""
    if device.type != "cpu":
        raise DeviceError("XLA of jaxlib runs on the CPU here", subject=name, got=device, expected="tensors of the CPU",
                          hint='use compile(computation, "inductor"), which runs on the device of its arguments')
    for leaf in (leaf for part in (*shape.parameters, shape.result) for leaf in part.leaves() if leaf.is_array):
        if not leaf.is_static:  # a result, or what a derivative keeps
            raise UnsupportedError("the xla backend does not support results of dynamic size", subject=name, got=leaf,
                                   expected="arrays of known sizes",
                                   hint='use compile(computation, "fastest"), which runs such programs here')
        if type_from_torch(torch_dtype(leaf.element_type)) is not leaf.element_type:
            raise UnsupportedError(f"torch has no dtype of its own for {leaf.element_type}, so XLA cannot read it where it is",
                                   subject=name, got=leaf,
                                   hint="convert it inside the program, or run the program without compile, which takes it")
    begin = time.perf_counter()
    run = xla_backend.client.executable(stablehlo(), name)
    _log.info("%s: XLA compiled it in %.2f s", name, time.perf_counter() - begin)

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = [dlpack.to_dlpack(_plain(tensor)) for tensor in tensors]
        return tuple([dlpack.from_dlpack(capsule) for capsule in run(given)])

    return call


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in the order of its dimensions."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def run_without_data(result: Shape) -> Run:
    """What a program gives on the meta device, whatever it computes: arrays of its result's shapes and types."""
    leaves = [(leaf.dimensions, torch_dtype(leaf.element_type)) for leaf in result.leaves() if leaf.is_array]
    return lambda *tensors: tuple(torch.empty(dims, dtype=dtype, device="meta") for dims, dtype in leaves)


def compiled_run(module: torch.fx.GraphModule, backend: Backend) -> Run:
    """The program compiled by one of torch.compile's backends. Blocks of elementwise calls are for running call by call: the
    module should have none, as a compiler fuses the calls themselves."""
    compiled = torch.compile(module.forward, backend=backend)  # called without the hooks that a module may have
    return lambda *tensors: compiled(*map(_primal, tensors))


def _primal(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without graph and tangent: nothing is compiled anew for them."""
    if forward_mode_is_on():
        tensor = forward_ad.unpack_dual(tensor).primal
    return tensor.detach() if tensor.requires_grad else tensor


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which backend was kept, and the seconds of the fastest run of each. `refused` says why XLA was no candidate."""

    backend: str
    seconds: Mapping[str, float]
    refused: str = ""

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in self.seconds.items())
        return f"{self.backend}{f' ({times})' if times else ''}" + (f"; no XLA: {self.refused}" if self.refused else "")


def fastest_run(candidates: Mapping[str, Callable[[], Run]], chosen: Callable[[Choice], None]) -> Fastest:
    """The first of the candidates, and those of the others that take the program."""
    (first, make), *others = candidates.items()
    found, refused = {first: make()}, ""
    for name, make in others:
        try:
            xla_backend.client.require_client("XLA")
            found[name] = make()
        except (DeviceError, MissingDependency, UnsupportedError) as error:
            refused = error.what
    return Fastest(found, refused, chosen)


class Fastest:
    """Candidates that take turns in the first call, of which the fastest runs from then on. All give the same results, up to
    rounding, and have no effects where there are several."""

    def __init__(self, candidates: Mapping[str, Run], refused: str, chosen: Callable[[Choice], None]):
        self._candidates, self._refused, self._on_choice = candidates, refused, chosen
        self._kept: Run | None = next(iter(candidates.values())) if len(candidates) == 1 else None
        self._lock = Lock()
        if self._kept is not None:
            chosen(Choice(next(iter(candidates)), {}, refused))

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._kept is None:
            with self._lock:
                if self._kept is None:
                    self._kept = self._chosen(tensors)
        return self._kept(*tensors)

    def _chosen(self, tensors: Sequence[torch.Tensor]) -> Run:
        first, *others = self._candidates
        self._candidates[first](*tensors)
        for name in others:
            try:
                self._candidates[name](*tensors)
            except ExecutionError as error:
                self._candidates, self._refused = {first: self._candidates[first]}, error.what
        seconds = dict.fromkeys(self._candidates, float("inf"))
        for _ in range(PAIRS):
            for name, run in self._candidates.items():
                begin = time.perf_counter()
                run(*tensors)
                seconds[name] = min(seconds[name], time.perf_counter() - begin)
        best = min(seconds, key=seconds.__getitem__)
        self._on_choice(Choice(best, seconds, self._refused))
        return self._candidates[best]
