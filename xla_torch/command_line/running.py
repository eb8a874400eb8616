"""What runs programs: `run`, alone or as one of the processes that torchrun has started, and `replay`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch.distributed as dist

from .. import distributed
from ..api.dumps import compared, stored_run
from ..api.whole_files import are_whole, own_part, own_path, save
from ..core import progress, tuning
from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..debug.files import DIFFERENT
from ..debug.recording import replay as replayed
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes
from .inputs import Sizes, device_of, drawn, program_of, stored
from .messages import Message

_VALUES = 1000
"""How many elements of an array are printed as JSON; larger ones are for --save."""


@dataclass(frozen=True)
class _Options:
    """What `run` is asked for."""

    file: Path
    args: Path | None
    random: int | None
    whole: bool
    save: Path | None
    device: str
    replicas: int | None
    partitions: int | None
    timeout: float
    sizes: Sizes


def run(**given: Any) -> Message:
    """Run the program; how long each part took is told on standard error."""
    options = _Options(**given)
    if options.args is not None and options.random is not None:
        raise click.UsageError("--args and --random exclude each other", click.get_current_context(silent=True))
    start = time.perf_counter()
    loaded = program_of(options.file, options.sizes)
    loading = time.perf_counter() - start
    computation = _of_sizes(options, loaded)
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return _run_as(options, computation, None, device_of(options.device), loading)
    with _joined(options, computation) as (session, device):
        return _run_as(options, computation, session, device, loading)


def _of_sizes(options: _Options, computation: XlaComputation) -> XlaComputation:
    """The program that is run: that for the arguments' sizes, where those are unknown, or for the sizes that are said."""
    unknown = of_unknown_sizes(computation)
    if unknown is None:
        return computation
    if options.args is None:
        return unknown.at(options.sizes)
    return unknown.specialised(*_arguments(options, unknown, tuning.environment("RANK", int, 0, "a number")))


def _run_as(options: _Options, computation: XlaComputation, session: distributed.Processes | None, device: torch.device,
            loading: float) -> Message:
    number = 0 if session is None else session.numbers[0]
    if computation.partitioning.about and number == 0:
        print(computation.partitioning, file=sys.stderr)
    snapshot = stored_run(options.file, number) if options.args is None and options.random is None else None
    arguments = _arguments(options, computation, number) if snapshot is None else snapshot[0]
    if options.whole and options.args is None:
        raise InvalidArgument("random arguments are not whole", subject="--whole", got="--random", expected="--args data.npz")
    if options.whole or (options.args is not None and are_whole(computation, arguments)):
        arguments = own_part(computation, arguments, session)
    start = time.perf_counter()
    with progress.doing("lowering"):
        computation.prepare(device)
    lowered = time.perf_counter()
    with progress.doing("running"):
        results = computation.run_numpy(*arguments, device=device)
    seconds = {"load": loading, "lower": lowered - start, "run": time.perf_counter() - lowered}
    print(f"loaded in {seconds['load']:.3f} s, lowered in {seconds['lower']:.3f} s, run in {seconds['run']:.3f} s on {device}",
          file=sys.stderr)
    if options.save is not None:
        save(options.save, computation, results, session)
    shapes = [leaf for leaf in computation.program_shape.result.leaves() if leaf.is_array]
    against = "" if snapshot is None or snapshot[1] is None else compared(results, snapshot[1])
    participant = None if session is None else number
    return Message(lambda: _text(participant, results, shapes, against),
                lambda: _facts(participant, results, shapes, against) | {"device": str(device), "seconds": seconds})


def _text(participant: int | None, results: Sequence[np.ndarray], shapes: Sequence[Shape], against: str) -> str:
    lines = [] if participant is None else [f"participant {participant}"]
    for place, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        text = np.array2string(result, threshold=20, edgeitems=3, separator=", ", max_line_width=110)
        lines.append(f"out{place}  {shape}\n{text}")
    return "\n".join([*lines, against] if against else lines)


def _facts(participant: int | None, results: Sequence[np.ndarray], shapes: Sequence[Shape], against: str) -> dict[str, Any]:
    found: dict[str, Any] = {} if participant is None else {"participant": participant}
    found["results"] = [{"name": f"out{place}", "shape": str(shape), "values": _values(result, shape)}
                        for place, (result, shape) in enumerate(zip(results, shapes, strict=True))]
    return found | ({"stored": against} if against else {})


def _values(result: np.ndarray, shape: Shape) -> Any:
    """As nested lists; None where they are too many."""
    if result.size > _VALUES:
        return None
    element_type = shape.element_type
    if element_type.is_complex:
        return result.astype(np.complex128).tolist()
    if element_type.is_pred:
        return result.astype(np.bool_).tolist()
    if element_type.is_integral:
        return result.astype(np.int64 if element_type.is_signed else np.uint64).tolist()
    return result.astype(np.float64).tolist()


@contextlib.contextmanager
def _joined(options: _Options, computation: XlaComputation) -> Iterator[tuple[distributed.Processes, torch.device]]:
    """Take part in the program with the other processes that torchrun has started."""
    own = f"cuda:{tuning.environment('LOCAL_RANK', int, 0, 'a number') % max(1, torch.cuda.device_count())}"
    device = device_of(own if options.device == "cuda" else options.device)
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.cuda.set_device(device)
    module = computation.module
    replicas = options.replicas or (module.replica_count if "replica_count" in module.header else None)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo")
    try:
        with distributed.of_process_group(num_replicas=replicas, num_partitions=options.partitions or module.num_partitions,
                                         timeout=options.timeout) as session:
            session.check(computation)
            yield session, device
    finally:
        dist.destroy_process_group()


def _arguments(options: _Options, computation: XlaComputation, number: int) -> list[np.ndarray]:
    signature = computation.program_shape
    if options.args is not None:
        return stored(own_path(options.args, number), signature.parameters, signature.parameter_names)
    if options.random is not None:
        return drawn(options.random + number, signature.parameters)
    if signature.parameters:
        raise InvalidArgument("the program takes arguments", subject="run", got="none", expected=signature,
                              hint="pass --args data.npz, or --random 0 to try it")
    return []


def replay(file: Path, device: str | None) -> Message:
    """Run what was recorded once more."""
    found = replayed(file, None if device is None else device_of(device))
    return Message(lambda: str(found), lambda: {"same": found.same, "same_state": found.same_state,
                                                "recorded": dict(found.versions),
                                             "here": dict(found.here), "words": str(found)}, 0 if found.same else DIFFERENT)
