"""What must hold of values while a program runs, as checks in it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .. import functions as ops
from ..core.shape import Shape
from ..core.types import S64
from ..functions.hlo_builder import XlaOp
from ..hlo.checks import TARGET, Assumption
from ..hlo.ir import Instruction
from .values import cast

Where: TypeAlias = Callable[[], "str | None"]
"""Tells where an operator stands in the user's code, or None where its sizes need no check."""


def require(holds: XlaOp, asserted: str, values: Mapping[str, XlaOp], where: str,
            assumption: Assumption | None = None) -> None:
    """Let the program raise where `holds`, ``pred[]``, is false. `values` are numbers that the message names."""
    if _is_fixed(holds.instruction):  # of constants it was decided when torch exported
        return
    config: dict[str, Any] = {"asserted": asserted, "names": list(values), "where": where}
    if assumption is not None:
        config |= {"asserted": str(assumption), "where": assumption.where, "assumption": dataclasses.asdict(assumption)}
    ops.CustomCall(holds.builder, TARGET, [holds, *values.values()], Shape.tuple([]), json.dumps(config), True)


def require_size(x: XlaOp, dim: int, expected: XlaOp | int, asserted: str, where: str,
                 assumption: Assumption | None = None) -> None:
    """Let the program raise where a dynamic dimension is not of a size."""
    size = cast(ops.GetDimensionSize(x, dim), S64)
    wanted = expected if isinstance(expected, XlaOp) else x.builder.constant(expected, S64)
    require(ops.Eq(size, wanted), asserted, {"the size": size}, where, assumption)


def require_values(places: XlaOp, values: XlaOp | int, holds: Callable[[XlaOp, XlaOp], XlaOp], asserted: str,
                   where: Where) -> None:
    """Let the program raise where there are too few or too many values for the places that they are written to."""
    if (line := where()) is not None:
        values = values if isinstance(values, XlaOp) else places.builder.constant(values, S64)
        require(holds(values, places), asserted, {"the places": places, "the values": values}, line)


def _is_fixed(instruction: Instruction) -> bool:
    """Whether a value is made of constants alone."""
    seen, waiting = set[Instruction](), [instruction]
    while waiting:
        one = waiting.pop()
        if one.is_parameter or not one.schema.pure:
            return False
        fresh = [o for o in one.operands if o not in seen]
        seen.update(fresh)
        waiting += fresh
    return True
