"""Op bodies: what appears in compiled programs only (bitcast, copies in two halves, barriers, custom calls)."""

from __future__ import annotations

from ...core.shape import Shape
from ...core.types import PrimitiveType
from ...hlo.attributes import (
    Bool,
    CustomCallApiVersion,
    CustomCallSchedule,
    Int,
    OperandAliases,
    PaddingType,
    Precision,
    Raw,
    Regions,
    ShapeTexts,
    Text,
    Window,
)
from ...hlo.ir import Instruction
from ...kernels import internal as kernels
from ...opcodes.internal import Domain, OptionalConvDims, OptionalLiteral, OptionalRegion
from ...storage.dtypes import storage_dtype
from .. import custom_calls
from ..body_table import body
from ..values import Splat, Value, emit
from .contraction import permuted
from .convert import reinterpreted


@body("bitcast", view=True)
def bitcast(inst: Instruction, operand: Value, *, result_layout: Raw) -> Value:
    source, target = inst.operands[0].shape, inst.shape
    same_type = source.element_type is target.element_type
    if _keeps_order(source, target) and (same_type or source.dimensions == target.dimensions):
        value = operand if same_type else _viewed(operand, source.element_type, target.element_type)
        return value if source.dimensions == target.dimensions else value.reshape(target.dimensions)
    # To the order in memory, to the result's sizes in memory, and to the result's order.
    value = permuted(operand, source.minor_to_major[::-1])
    stored = [target.dimensions[d] for d in reversed(target.minor_to_major)]
    if not same_type:
        value = _viewed(value, source.element_type, target.element_type)
    value = value.reshape(stored)
    order = target.minor_to_major[::-1]
    return permuted(value, [order.index(d) for d in range(target.rank)])


def _keeps_order(source: Shape, target: Shape) -> bool:
    """Row-major on both sides, or the same dimensions in the same layout."""
    row_major = all(_significant(s) == sorted(_significant(s), reverse=True) for s in (source, target))
    return row_major or (source.dimensions == target.dimensions and source.minor_to_major == target.minor_to_major)


def _significant(shape: Shape) -> list[int]:
    """The layout without dimensions of size 1, whose place does not matter."""
    return [d for d in shape.minor_to_major if shape.dimensions[d] != 1]


def _viewed(value: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """The elements' bits as elements of another type; of another width, flat and in the order of memory."""
    if source.is_narrow or target.is_narrow:
        if target.bits > source.bits:
            value = value.reshape(-1, target.bits // source.bits)
        return reinterpreted(value, source, target)
    if source.bits == target.bits:
        return value.view(storage_dtype(target))
    return emit(kernels.reinterpret, value, storage_dtype(target))


@body("copy-start", view=True)
def copy_start(inst: Instruction, operand: Value, *, cross_program_prefetch_index: Int | None) -> Value:
    return (operand, operand, *(Splat(0, s.dimensions) for s in inst.shape.tuple_shapes[2:]))


@body("copy-done", view=True)
def copy_done(inst: Instruction, operand: Value) -> Value:
    return operand[0]


@body("opt-barrier", view=True)
def opt_barrier(inst: Instruction, operand: Value) -> Value:
    return operand


@body("domain", view=True)
def domain(inst: Instruction, operand: Value, *, domain: Domain) -> Value:
    return operand


@body("add-dependency", view=True)
def add_dependency(inst: Instruction, operand: Value, token: Value) -> Value:
    return operand


@body("custom-call")
def custom_call(inst: Instruction, *operands: Value, custom_call_target: Text, api_version: CustomCallApiVersion,
                custom_call_has_side_effect: Bool, operand_layout_constraints: ShapeTexts, to_apply: OptionalRegion,
                called_computations: Regions, output_to_operand_aliasing: OperandAliases, schedule: CustomCallSchedule,
                window: Window, dim_labels: OptionalConvDims, feature_group_count: Int, batch_group_count: Int,
                padding_type: PaddingType, literal: OptionalLiteral, operand_precision: Precision) -> Value:
    return custom_calls.call(inst, operands)
