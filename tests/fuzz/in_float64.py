"""Drawn programs as functions of real numbers: all floats are float64, and nothing rounds on purpose."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from fuzz.drawing import literal
from fuzz.programs import Computation, Part, Program, Value
from support.agreement import dtype_of

TILT = 0.0123456789


def in_float64(program: Program) -> Program:
    """The program with float64 for all floats and complex128 for all complex numbers."""
    regions = [Computation(r.name, _rewritten(r.values)) for r in program.regions]
    return dataclasses.replace(
        program, regions=regions, values=_rewritten(program.values),
        arguments={name: _wide_array(array, program.named()[name].part) for name, array in program.arguments.items()})


def _wide_array(array: np.ndarray, part: Part) -> np.ndarray:
    return array.astype(dtype_of(part.wide))


def _rewritten(values: list[Value]) -> list[Value]:
    types = {v.name: v.parts[0].type for v in values}
    return [new for value in values for new in _rewrites(value, types)]


def _rewrites(value: Value, types: dict[str, str]) -> Iterator[Value]:
    """The instruction in float64. A rounding is a copy. Bits of a float become zeros: no gradient depends on them. What is
    clamped moves away from ties with its bounds, where its gradient is a convention."""
    wide = dataclasses.replace(value, parts=tuple(dataclasses.replace(p, type=p.wide) for p in value.parts))
    floating = not value.is_tuple and (value.part.is_float or value.part.is_complex)
    if value.opcode == "reduce-precision":
        yield dataclasses.replace(wide, opcode="copy", attributes="")
    elif value.opcode == "bitcast-convert" and Part(types[value.operands[0]], ()).is_float:
        zeros = np.zeros(value.part.dims, dtype_of(value.part.type))
        yield dataclasses.replace(wide, opcode="constant", operands=(), contents=literal(zeros))
    elif value.opcode == "clamp" and floating:
        low, x, high = value.operands
        scalar = Value(f"{value.name}_tilt", (Part("f64", ()),), "constant", contents=repr(TILT))
        spread = Value(f"{value.name}_tilts", wide.parts, "broadcast", (scalar.name,), "dimensions={}")
        moved = Value(f"{value.name}_moved", wide.parts, "add", (x, spread.name))
        yield from (scalar, spread, moved, dataclasses.replace(wide, operands=(low, moved.name, high)))
    else:
        yield wide
