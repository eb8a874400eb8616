"""A run in a file: program, arguments, the state that random numbers come from, results; and the same run again, bit for bit.

The file is an .npz of plain arrays, stored without compression: ``about`` (JSON), ``program`` (the bytes of an HLO proto),
``state``, ``arg0``, ``arg1``, ..., ``out0``, ``out1``, ... Nothing in it is executed but the program, which passes the
checks of `load`; no array is read that says it is larger than its bytes in the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import io
import json
import math
import os
import platform
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..api.arguments import as_written, tensor_of
from ..api.dumps import compared
from ..api.loading import from_hlo_proto
from ..core.errors import DeviceError, InvalidArgument, XlaError
from ..core.printable import printable
from ..core.shape import Shape
from ..hlo.tree import arrays, from_arrays
from ..kernels import random
from ..lowering import numerics
from ..proto.writing import serialized
from ..runtime.backends import CALL_BY_CALL, EAGER
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes
from ..runtime.static import tensor_from_numpy
from ..runtime.steps import require_computation

FORMAT = "xla_torch record 1"

_HEADER = 10_000
"""Bytes of an array's header, at most."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """Hold a replayed run: `computation`, `arguments`, `results`, and the results as `recorded`.

    `versions` describes the recording environment and `here` the current one. `same_state` says whether the random state was
    restored.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> result = xla_torch.debug.record(square, torch.tensor([1.0, 2.0]), path="run.xlarun")
    >>> again = xla_torch.debug.replay("run.xlarun")
    >>> again.same, again.computation.name, again.arguments, again.results, again.recorded
    (True, 'module_e', (tensor([1., 2.]),), (array([1., 4.], dtype=float32),), (array([1., 4.], dtype=float32),))
    >>> again.versions == again.here, again.same_state
    (True, True)
    """

    computation: XlaComputation
    arguments: tuple[torch.Tensor, ...]
    results: tuple[np.ndarray, ...]
    recorded: tuple[np.ndarray, ...]
    versions: Mapping[str, str]
    here: Mapping[str, str]
    same_state: bool = True

    @property
    def same(self) -> bool:
        """Return whether all results have the recorded bits."""
        return _bits(self.results) == _bits(self.recorded)

    def __str__(self) -> str:
        lines = [compared(self.results, self.recorded, "the recorded result")] if self.recorded else ["no results"]
        lines += [] if self.same_state else ["random numbers are others: their state is that of another kind of device"]
        lines += [f"{name}: recorded with {self.versions[name]}, replayed with {self.here.get(name, 'none')}"
                  for name in self.versions if self.versions[name] != self.here.get(name)]
        return "\n".join(lines)


def _bits(results: Sequence[np.ndarray]) -> list[tuple[Any, ...]]:
    return [(array.shape, array.dtype, array.tobytes()) for array in results]


# ---------------------------------------------------------------------------------------------------- record


def record(computation: XlaComputation, *arguments: Any, path: str | os.PathLike[str],
           device: torch.device | str | None = None) -> Any:
    """Run a program, write the run to a file and return the result, without autograd.

    `device` is for programs without arguments. Raises InvalidArgument for a compiled program, whose bits depend on another
    compiler.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.debug.record(square, torch.tensor([1.0, 2.0]), path="run.xlarun")
    tensor([1., 4.])
    """
    require_computation(computation, "record")
    unknown = of_unknown_sizes(computation)
    if unknown is not None:
        computation = unknown.specialised(*arguments)
    if computation.program.backend not in (EAGER, CALL_BY_CALL):
        raise InvalidArgument("a compiled program cannot be recorded", subject="record", got=computation,
                              hint="record the computation that you passed to compile")
    shapes = _inputs(computation)
    given = _flat(arguments, computation.program_shape.parameters)
    if len(given) != len(shapes):
        raise InvalidArgument("wrong number of arguments", subject="record", got=len(given), expected=len(shapes))
    tensors = [tensor_of(value, shape, lambda n=n: f"argument {n}")
               for n, (value, shape) in enumerate(zip(given, shapes, strict=True))]
    where = tensors[0].device if tensors else torch.device(device or "cpu")
    # What a run overwrites and draws is taken before it runs.
    stored = [np.array(_array(tensor, shape)) for tensor, shape in zip(tensors, shapes, strict=True)]
    state, counter = random.state(where)
    result, results = _run(computation, tensors, where)
    about = {"format": FORMAT, "device": where.type, "counter": str(counter), "arguments": len(stored), "results": len(results),
             "versions": _versions()}
    named = {f"arg{n}": array for n, array in enumerate(stored)} | {f"out{n}": array for n, array in enumerate(results)}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, about=_words(json.dumps(about).encode()), state=state,
                 program=_words(b"".join(serialized(computation.module))), **named)
    return result


def _run(computation: XlaComputation, tensors: Sequence[torch.Tensor],
         device: torch.device) -> tuple[Any, tuple[np.ndarray, ...]]:
    """The result for flat arguments, and its arrays."""
    flat = iter(tensors)
    arguments = [from_arrays([next(flat) for leaf in p.leaves() if leaf.is_array], p)
                 for p in computation.program_shape.parameters]
    with torch.no_grad():
        result = computation(*arguments, device=device)
    shape = computation.program_shape.result
    return result, tuple(_array(tensor, leaf) for (tensor, _), leaf in zip(
        arrays(result, shape), [leaf for leaf in shape.leaves() if leaf.is_array], strict=True))


def _inputs(computation: XlaComputation) -> list[Shape]:
    return [leaf for p in computation.program_shape.parameters for leaf in p.leaves() if leaf.is_array]


def _flat(arguments: Sequence[Any], shapes: Sequence[Shape]) -> list[Any]:
    if len(arguments) != len(shapes):
        raise InvalidArgument("wrong number of arguments", subject="record", got=len(arguments), expected=len(shapes))
    return [leaf for argument, shape in zip(arguments, shapes, strict=True) for leaf, _ in arrays(argument, shape)]


def _array(tensor: torch.Tensor, shape: Shape) -> np.ndarray:
    """A tensor of the boundary as the array of its own type."""
    return np.asarray(numerics.numpy_from_storage(numerics.to_storage(tensor.detach(), shape.element_type), shape.element_type),
                      order="C")


def _words(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _versions() -> dict[str, str]:
    """What bits may depend on."""
    def version(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return {"xla_torch": version("xla_torch"), "torch": torch.__version__, "numpy": np.__version__,
            "python": platform.python_version(), "machine": platform.machine(), "threads": str(torch.get_num_threads())}


# ---------------------------------------------------------------------------------------------------- replay


def replay(path: str | os.PathLike[str], device: torch.device | str | None = None) -> Replay:
    """Run a recorded program again on its arguments and compare the results.

    It runs on the recorded kind of device or on `device`, with the recorded random state, and with as many threads if the
    machine has as many processors. Raises InvalidArgument for a file that is not a recording, DeviceError if the device is
    missing, and the errors of `load`.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> result = xla_torch.debug.record(square, torch.tensor([1.0, 2.0]), path="run.xlarun")
    >>> xla_torch.debug.replay("run.xlarun").same
    True
    """
    with _opened(path) as read:
        about = _about(read)
        computation = from_hlo_proto(read("program").tobytes())
        shapes = _inputs(computation)
        results = [leaf for leaf in computation.program_shape.result.leaves() if leaf.is_array]
        if about["arguments"] != len(shapes) or about["results"] != len(results):
            raise _no_record(path, "it has another number of arrays than its program")
        given = [as_written(read(f"arg{n}"), shape) for n, shape in enumerate(shapes)]
        recorded = tuple(as_written(read(f"out{n}"), shape) for n, shape in enumerate(results))
        state = read("state")
    where = torch.device(device or about["device"])
    if where.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError("there is no such device here", subject=os.fspath(path), got=where, hint="replay with device='cpu'")
    tensors = [tensor_from_numpy(array, shape, n).to(where) for n, (array, shape) in enumerate(zip(given, shapes, strict=True))]
    same_state = where.type == about["device"]
    with _threads(about["versions"].get("threads")), random.restored(state if same_state else None, int(about["counter"]), where):
        here = _versions()
        _, found = _run(computation, tensors, where)
    return Replay(computation, tuple(tensors), found, recorded, about["versions"], here, same_state)


@contextlib.contextmanager
def _threads(stated: str | None) -> Iterator[None]:
    """As many threads as are said, where there are so many processors: they may show in the order of a sum."""
    before = torch.get_num_threads()
    wanted = int(stated) if stated is not None and stated.isdecimal() and len(stated) < 6 else before
    if wanted == before or not 0 < wanted <= (os.cpu_count() or 1):
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _about(read: Callable[[str], np.ndarray]) -> dict[str, Any]:
    about = json.loads(read("about").tobytes())
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"it is not a {FORMAT}")
    kinds = {"device": str, "counter": str, "arguments": int, "results": int, "versions": dict}
    if not all(isinstance(about.get(name), kind) for name, kind in kinds.items()) or about["device"] not in ("cpu", "cuda"):
        raise ValueError("it does not say where it ran")
    if not (about["counter"].isdecimal() and int(about["counter"][:40]) < 1 << 128):
        raise ValueError("it does not say what it drew from")
    about["versions"] = {printable(str(name), 40): printable(str(value), 80) for name, value in about["versions"].items()}
    return about


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Callable[[str], np.ndarray]]:
    """What reads the file's arrays by name. All that can be wrong with it is InvalidArgument."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as members:
            size = os.fstat(file.fileno()).st_size
            infos = members.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos) or sum(info.file_size for info in infos) > size:
                raise ValueError("its arrays are not stored as they are")
            yield lambda name: _plain(members.read(f"{name}.npy"))
    except (ValueError, KeyError, EOFError, RecursionError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
        if isinstance(error, XlaError):
            raise
        raise _no_record(path, str(error)) from None


def _plain(data: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file, if it is of numbers and just as large as it says."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if reader is None:
        raise ValueError("it has arrays of another version")
    dimensions, by_columns, dtype = reader(stream, max_header_size=_HEADER)
    if dtype.hasobject or dtype.names or dtype.subdtype or by_columns:
        raise ValueError("it has arrays of other things than numbers")
    if any(size < 0 for size in dimensions) or math.prod(dimensions) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError("it has arrays of another size than they say")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(dimensions).copy()


def _no_record(path: str | os.PathLike[str], why: str) -> InvalidArgument:
    return InvalidArgument("not a recorded run", subject=os.fspath(path), got=why, expected="a file that debug.record wrote")
