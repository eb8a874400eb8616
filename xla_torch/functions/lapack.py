"""Calls of LAPACK's routines, under the targets and in the layouts with which JAX programs for the CPU call them.

Matrices are [..., m, n], and stand in memory column by column. What each routine takes and gives is told in
`lowering/kernels/lapack.py`, where the routines are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.layouts import Layout
from ..core.shape import Shape
from ..core.types import C64, C128, F32, F64, PrimitiveType
from ..opcodes import internal
from .hlo_builder import XlaOp

__all__: list[str] = []

PREFIXES = {F32: "s", F64: "d", C64: "c", C128: "z"}
"""The letter of each element type that LAPACK knows."""


def real_type(kind: PrimitiveType) -> PrimitiveType:
    """The type of the parts of a complex type; a real type itself."""
    return {C64: F32, C128: F64}.get(kind, kind)


def lapack(routine: str, operands: Sequence[XlaOp], results: Sequence[Shape] | Shape, batch: int | None = None,
           **config: str | bool | int) -> XlaOp:
    """Call a routine: a tuple where `results` are several. The first operand's type is the routine's, and has `batch`
    dimensions in front of its matrices. Letters are written as their numbers, as JAX does."""
    builder, kind = operands[0].builder, operands[0].element_type
    batch = operands[0].shape.rank - 2 if batch is None else batch
    if isinstance(results, Shape):
        shape = _laid_out(results, batch)
    else:
        shape = Shape.tuple([_laid_out(r, batch) for r in results])
    constraints = ", ".join(_laid_out(o.shape, batch).to_text() for o in operands)
    entries = ", ".join(f"{name} = {_attribute(value)}" for name, value in config.items())
    return builder.add(internal.custom_call, operands, {
        "custom_call_target": f"lapack_{PREFIXES[kind]}{routine}_ffi", "operand_layout_constraints": "{" + constraints + "}",
        "api_version": "API_VERSION_TYPED_FFI"}, shape, common={"backend_config": "{" + entries + "}"})


def _laid_out(shape: Shape, batch: int) -> Shape:
    """Matrices column by column, everything else row by row."""
    rank, order = shape.rank, list(range(shape.rank - 1, -1, -1))
    if rank == batch + 2:
        order[:2] = [rank - 2, rank - 1]
    return Shape.array(shape.element_type, shape.dimensions, layout=Layout(tuple(order)))


def _attribute(value: str | bool | int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{ord(value)} : ui8" if isinstance(value, str) else f"{value} : i32"
