"""Drawn programs as functions of JAX and of torch, read again by `from_jax` and `from_torch`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch

import xla_torch
from fuzz import judging
from fuzz.programs import Program
from fuzz.running import run_here
from xla_torch import XlaComputation
from xla_torch.core.shape import Shape
from xla_torch.errors import UnsupportedError, XlaError
from xla_torch.storage.dtypes import torch_dtype, type_from_torch
from xla_torch.types import PrimitiveType

Tell = Callable[[str, int, str], None]
AGAIN, INEXPRESSIBLE = "read again", "inexpressible"


class Inexpressible(Exception):
    """A library has no function for a program."""


def _from_jax(computation: XlaComputation) -> XlaComputation:
    import jax

    try:
        function = xla_torch.to_jax(computation)
        examples = [jax.ShapeDtypeStruct(s.dimensions, s.element_type.numpy) for s in computation.program_shape.parameters]
        return xla_torch.from_jax(jax.jit(function), *examples).computation
    except UnsupportedError as error:
        raise Inexpressible(_first_line(error)) from None


def _from_torch(computation: XlaComputation) -> XlaComputation:
    shape = computation.program_shape
    without = sorted({str(s.element_type) for s in (*shape.parameters, *shape.result.leaves()) if not _has_dtype(s.element_type)})
    if without:
        raise Inexpressible(f"torch has no dtype for {', '.join(without)}")
    with torch.no_grad():  # where gradients end torch has an operator that refuses them
        try:
            exported = torch.export.export(_Module(computation), tuple(map(_example, shape.parameters)), strict=False)
        except UnsupportedError as error:
            raise Inexpressible(_first_line(error)) from None
        return xla_torch.from_torch(exported).computation


ENTRY_POINTS = {"from_jax": _from_jax, "from_torch": _from_torch}


class _Module(torch.nn.Module):
    """A computation as a module, which torch.export takes."""

    def __init__(self, computation: XlaComputation):
        super().__init__()
        self._computation = computation

    def forward(self, *arguments: torch.Tensor) -> object:
        return self._computation(*arguments)


def _has_dtype(kind: PrimitiveType) -> bool:
    return type_from_torch(torch_dtype(kind)) is kind


def _example(shape: Shape) -> torch.Tensor:
    return torch.zeros(shape.dimensions, dtype=torch_dtype(shape.element_type))


def _first_line(error: XlaError) -> str:
    return re.sub(r"%?\bp?\d*_?v\d+\b", "", str(error).partition("\n")[0])


def differences(program: Program, names: Sequence[str] = tuple(ENTRY_POINTS)) -> list[str]:
    """What differs, or is refused, where the entry points of these names read a program again. What a library has no function
    for is no difference."""
    return [message for name in names for kind, message in [of(name, program)] if kind == "differ"]


def tried(program: Program, number: int, tell: Tell) -> None:
    """Tell what becomes of a program at each entry point."""
    for name in ENTRY_POINTS:
        kind, message = of(name, program)
        tell(kind, number, message)


def of(name: str, program: Program) -> tuple[str, str]:
    """What becomes of a program at an entry point, and what is to be said of it."""
    if program.replicas * program.partitions > 1:
        return INEXPRESSIBLE, f"{name}: functions of several participants"
    text, given = program.text(), program.given()
    try:
        again = ENTRY_POINTS[name](xla_torch.parse_hlo(text))
        found = judging.differences(program, run_here(text, given, program), run_here(again, given, program))
    except Inexpressible as error:
        return INEXPRESSIBLE, f"{name}: {error}"
    except Exception as error:
        return "differ", f"{name}: {type(error).__name__}: {error}"
    return ("differ", "\n".join(f"{name}, in the place of XLA: {one}" for one in found)) if found else (AGAIN, name)
