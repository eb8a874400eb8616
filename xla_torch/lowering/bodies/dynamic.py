"""Op bodies: dynamic sizes."""

from __future__ import annotations

from ...core.shape import UNBOUNDED
from ...hlo.attributes import Dims
from ...hlo.ir import Instruction
from ...kernels import movement as kernels
from ...opcodes.dynamic import INT32_MAX
from ..body_table import body
from ..values import Host, Number, Splat, Value, emit
from .movement import host_value


@body("get-dimension-size")
def get_dimension_size(inst: Instruction, operand: Value, *, dimensions: Dims) -> Value:
    shape, dimension = inst.operands[0].shape, dimensions[0]
    if not shape.dynamic_flags[dimension]:
        return Splat(shape.dimensions[dimension])
    bound = shape.dimensions[dimension]
    high = INT32_MAX if bound == UNBOUNDED else bound
    return Splat(Host(emit(kernels.dimension_size, operand, dimension), 0, high))


@body("set-dimension-size", numbers="val", view=True)
def set_dimension_size(inst: Instruction, operand: Value, val: Value, *, dimensions: Dims) -> Value:
    dimension, given = dimensions[0], inst.operands[0].shape
    bound = inst.shape.dimensions[dimension]
    if isinstance(val, Number) and val == bound and not given.dynamic_flags[dimension]:
        return operand
    return emit(kernels.set_dimension_size, operand, host_value(val), dimension, INT32_MAX if bound == UNBOUNDED else bound)


@body("dynamic-reshape", numbers="dim_sizes", view=True)
def dynamic_reshape(inst: Instruction, operand: Value, *dim_sizes: Value) -> Value:
    groups = kernels.groups_of(inst.operands[0].shape.dimensions, inst.shape.dimensions)
    return emit(kernels.dynamic_reshape, operand, tuple(host_value(s) for s in dim_sizes),
                tuple((tuple(old), tuple(new)) for old, new in groups))
