"""What commands are given: programs, sizes, devices, and arguments from files or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from ..api import weights
from ..api.arguments import as_written
from ..api.loading import load
from ..core import progress
from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes

Sizes = Mapping[str, int] | None


def program_of(file: Path, sizes: Sizes) -> XlaComputation:
    """The program of a file. Raises InvalidArgument for sizes of one that knows its own."""
    with progress.doing(f"reading {file.name}"):
        computation = load(file)
    if sizes and of_unknown_sizes(computation) is None:
        raise InvalidArgument("the program has no unknown sizes", subject="--sizes", got=computation.program_shape)
    return computation


def device_of(name: str) -> torch.device:
    """A device that is here. Raises InvalidArgument for any other."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("tensors there have no values")
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise InvalidArgument("no such device here", subject="--device", got=name,
                              hint=str(error).partition("\n")[0]) from None
    return device


def stored(path: Path, shapes: Sequence[Shape], names: Sequence[str]) -> list[np.ndarray]:
    """Arguments from an .npz file: by number, by parameter name, or in the file's order."""
    try:
        data = weights.npz(path)
    except InvalidArgument as error:
        raise error.located("--args") from None
    by_number = [f"arg{number}" for number in range(len(shapes))]
    keys = next((k for k in (by_number, list(names)) if set(k) <= set(data)), list(data))
    arrays = [data[key] for key in keys]
    if len(arrays) != len(shapes):
        raise InvalidArgument("wrong number of arrays in the file", subject="--args", got=", ".join(keys) or "none",
                              expected=f"{len(shapes)}: {', '.join(by_number)} or {', '.join(names)}")
    return [as_written(array, shape) for array, shape in zip(arrays, shapes, strict=True)]


def drawn(seed: int, shapes: Sequence[Shape]) -> list[np.ndarray]:
    """Random arguments, the same for the same seed."""
    random = np.random.default_rng(seed)
    return [_drawn(random, shape) for shape in shapes]


def _drawn(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Standard normal floats, integers from 0 to 9 (as many as a narrow type holds), random booleans."""
    element_type, dims = shape.element_type, shape.dimensions
    if element_type.numpy is None or not shape.is_static:
        raise InvalidArgument("no random argument of this shape", subject="--random", got=shape,
                              expected="arrays with static dimensions", hint="--args data.npz")
    if element_type.is_integral or element_type.is_pred:
        values = element_type.bits - element_type.is_signed
        return random.integers(2 if element_type.is_pred else min(10, 2**values), size=dims).astype(element_type.numpy)
    normal = random.standard_normal(dims)
    if element_type.is_complex:
        normal = normal + 1j * random.standard_normal(dims)
    return np.asarray(normal).astype(element_type.numpy)
