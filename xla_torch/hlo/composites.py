"""Composites that a kernel runs: calls of a decomposition that say in a name and attributes what operation it is.

A composite is a call whose frontend attributes have a name, a version and attributes; XLA also writes ``is_composite``. Its
meaning is the decomposition. Only if the decomposition is known to be what the name says (`Kernel`, which it brings as its
derivatives) it may run in one piece. In canonical form, which has no calls, it is then a custom call of `TARGET`, whose called
computation is the decomposition. `transform/composites.py` makes the one of the other.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

from .ir import Computation, Instruction, Module
from .schema import Control

Mask = tuple[bool, ...]

TARGET = "xla_torch.composite"
VERSION = 1
"""The version of the operations that `kernels/composites.py` knows."""

PREFIX, VJP = "aten.", ".vjp"
"""How kernels are called: after operators of torch, and the ways back after these."""

_KEPT = {"adaptive_max_pool2d": (1,), "adaptive_max_pool3d": (1,), "native_group_norm": (1, 2), "_linalg_solve_ex": (0, 1, 2),
         **dict.fromkeys(("cdist", "cumprod", "logcumsumexp", "pairwise_distance", "cosine_similarity"), (0,)),
         **dict.fromkeys(("embedding_bag", "embedding_bag.padding_idx", "_embedding_bag", "_embedding_bag_forward_only"), (2, 3))}


def kept_results(name: str) -> tuple[int, ...]:
    """The numbers of the results that the way back of a kernel reads."""
    return _KEPT.get(name.removeprefix(PREFIX), ())


@dataclasses.dataclass(eq=False)
class Kernel:
    """What a decomposition is known to be: an operation by its name and attributes (as `kernels.composites` has them). It is what
    the computation brings as its derivatives; these are those of its ops."""

    name: str
    attributes: str
    rules: Sequence[str] = dataclasses.field(default=(), init=False)

    def pullback(self, needed: Mask, demanded: Mask) -> Any:
        """That of the ops."""

    def pushforward(self, present: Mask) -> Any:
        """That of the ops."""


def kernel_of(computation: Computation) -> Kernel | None:
    """What a computation is known to be, None where it is not known to be anything."""
    return computation.derivatives if isinstance(computation.derivatives, Kernel) else None


def is_composite(instruction: Instruction) -> bool:
    """Whether the instruction is a composite in canonical form."""
    return instruction.attributes.get("custom_call_target") == TARGET and bool(instruction.attributes.get("called_computations"))


def decomposition(instruction: Instruction) -> Computation:
    """What a composite in canonical form is a composite of."""
    return instruction.attributes["called_computations"][0]


def name_of(instruction: Instruction) -> str:
    """What a call says that it is a composite of; "" for any other instruction."""
    stated: dict[str, str] = instruction.common.get("frontend_attributes") or {}
    return stated.get("composite.name", "") if instruction.schema.control is Control.CALL else ""


def has_composites(module: Module) -> bool:
    """Whether a module has calls of composites that may have a kernel."""
    return any(name_of(i).startswith(PREFIX) for c in module.computations for i in c.instructions)


def described(kernel: Kernel) -> dict[str, str]:
    """The frontend attributes of a call of a kernel's decomposition."""
    given = ", ".join(f"{name} = {_text(value)}" for name, value in json.loads(kernel.attributes).items())
    return {"composite.name": kernel.name, "composite.attributes": f"{{{given}}}", "composite.version": str(VERSION)}


def _text(value: Any) -> str:
    """A value of JSON as MLIR writes it."""
    if isinstance(value, list):
        return f"[{', '.join(_text(part) for part in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, bool) or value is None:
        return "unit" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{_digits(value)} : f64"
    return f"{value} : i64" if isinstance(value, int) else json.dumps(value)


def _digits(value: float) -> str:
    """A float as MLIR reads it: with a point, or by its bits."""
    if not math.isfinite(value):
        return f"0x{struct.pack('>d', value).hex().upper()}"
    digits, exponent, power = repr(value).partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}{exponent}{power}"
