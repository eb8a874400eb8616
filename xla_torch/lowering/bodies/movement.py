"""Op bodies: data movement and constants."""

from __future__ import annotations

import builtins

import torch

from ...core.errors import ExecutionError
from ...core.shape import Shape
from ...hlo.attributes import Dims, Int, LiteralWithShape, Padding, SliceBounds
from ...hlo.ir import Instruction
from ...kernels import movement as kernels
from ...storage.dtypes import storage_dtype
from ..body_table import body
from ..values import Host, Number, Value, device, emit

# --------------------------------------------------------------------------------------------- bodies


@body("broadcast", view=True)
def broadcast(inst: Instruction, operand: Value, *, dimensions: Dims) -> Value:
    given = inst.operands[0].shape
    order = sorted(range(given.rank), key=dimensions.__getitem__)
    if order != list(range(given.rank)):
        operand = operand.permute(order)
    mapped = {dimensions[d]: d for d in order}
    missing = [d for d in range(inst.shape.rank) if d not in mapped]
    leading = missing == list(range(len(missing)))  # expand prepends dimensions by itself
    for d in () if leading else missing:
        operand = operand.unsqueeze(d)
    # A dynamic dimension keeps the size that the operand has at run time.
    sizes = [-1 if d in mapped and given.dynamic_flags[mapped[d]] else size for d, size in enumerate(inst.shape.dimensions)]
    return operand.expand(sizes) if missing else operand


@body("reshape", view=True)
def reshape(inst: Instruction, operand: Value, *, inferred_dimension: Int) -> Value:
    given = inst.operands[0].shape
    if given.is_static and inst.shape.is_static:
        return operand.reshape(inst.shape.dimensions)
    return emit(kernels.reshape_dynamic, operand, given.dimensions, inst.shape.dimensions, inst.shape.dynamic_flags)


@body("transpose", view=True)
def transpose(inst: Instruction, operand: Value, *, dimensions: Dims) -> Value:
    return operand if list(dimensions) == list(range(len(dimensions))) else operand.permute(dimensions)


@body("reverse", view=True)
def reverse(inst: Instruction, operand: Value, *, dimensions: Dims) -> Value:
    return torch.flip(operand, dimensions) if dimensions else operand


@body("slice", view=True)
def slice_(inst: Instruction, operand: Value, *, slice: SliceBounds) -> Value:
    full = [(0, size, 1) for size in inst.operands[0].shape.dimensions]
    index: list[builtins.slice] = [
        builtins.slice(None) if bounds == whole else builtins.slice(bounds[0], bounds[1], bounds[2] if bounds[2] != 1 else None)
        for bounds, whole in zip(slice, full, strict=True)]
    while index and index[-1] == builtins.slice(None):
        index.pop()
    if not index:
        return operand
    return operand[tuple(index)] if len(index) > 1 else operand[index[0]]


@body("concatenate")
def concatenate(inst: Instruction, *operands: Value, dimensions: Dims) -> Value:
    return torch.cat([_as_result_type(inst, v, o.shape) for v, o in zip(operands, inst.operands, strict=True)], dimensions[0])


@body("pad", numbers="padding_value")
def pad(inst: Instruction, operand: Value, padding_value: Value, *, padding: Padding) -> Value:
    operand, padding_value = _as_result_type(inst, operand, inst.operands[0].shape), host_value(padding_value)
    if not any(map(any, padding)):
        return operand
    given = inst.operands[0].shape
    # torch crops before it pads, so it cannot crop from what it pads on the other side.
    croppable = all((low >= 0 and high >= 0) or (not dynamic and n + min(low, 0) + min(high, 0) >= 0)
                    for n, dynamic, (low, high, _) in zip(given.dimensions, given.dynamic_flags, padding, strict=True))
    if isinstance(padding_value, Number) and croppable and not any(interior for _, _, interior in padding):
        edges = [edge for low, high, _ in reversed(padding) for edge in (low, high)]
        return torch.constant_pad_nd(operand, edges, padding_value)
    return emit(kernels.pad, operand, padding_value, padding)


def host_value(value: Value) -> Value:
    """The number (at run time a Python int) that a `Host` stands for; other values unchanged."""
    return value.value if isinstance(value, Host) else value


def _as_result_type(inst: Instruction, value: Value, given: Shape) -> Value:
    """`value` in the result's storage dtype, where operands are floats of different widths."""
    return value if given.element_type is inst.shape.element_type else value.to(storage_dtype(inst.shape.element_type))


_EXACT_IOTA_FLOATS = {torch.float16: 2**11, torch.bfloat16: 2**8}


@body("iota")
def iota(inst: Instruction, *, iota_dimension: Int) -> Value:
    element_type, sizes = inst.shape.element_type, inst.shape.dimensions
    size = sizes[iota_dimension]
    # Where counting in the type itself would saturate or round, count in int64 and convert, which wraps integers.
    dtype = storage_dtype(element_type)
    limit = 2 ** (element_type.bits - 1) if element_type.is_integral else _EXACT_IOTA_FLOATS.get(dtype, 2**24)
    direct = size <= limit and not element_type.is_complex
    line = emit(torch.arange, size, dtype=dtype if direct else torch.int64, device=device())
    line = line if direct else line.to(dtype)
    if len(sizes) == 1:
        return line
    return line.reshape([size if d == iota_dimension else 1 for d in range(len(sizes))]).expand(sizes)


@body("constant")
def constant(inst: Instruction, *, literal: LiteralWithShape) -> Value:
    raise ExecutionError("constants are values of the evaluator, not computed by an op body")


@body("parameter")
def parameter(inst: Instruction, *, parameter_number: Int) -> Value:
    raise ExecutionError("a parameter outside of its computation has no value")


@body("copy", view=True)
def copy(inst: Instruction, operand: Value) -> Value:
    return operand
