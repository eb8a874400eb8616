"""Op bodies: conversions of value (convert, stochastic-convert), of bits (bitcast-convert) and of precision."""

from __future__ import annotations

import numpy as np
import torch

from ...core.errors import UnsupportedError
from ...core.types import (
    BF16,
    F8E4M3B11FNUZ,
    F8E8M0FNU,
    F16,
    F32,
    F64,
    PRED,
    U64,
    Kind,
    PrimitiveType,
    complex_part,
    exponent_bits,
    mantissa_bits,
)
from ...hlo.attributes import Int
from ...hlo.ir import Instruction
from ...kernels import convert as kernels
from ...storage.dtypes import storage_dtype, torch_dtype
from .. import numerics, values
from ..body_table import body
from ..values import Value

# ------------------------------------------------------------------------------------------- values


@body("convert")
def convert(inst: Instruction, operand: Value) -> Value:
    """The same value in another type: integers wrap, floats round to nearest even, floats to integers truncate and
    saturate with NaN to 0, anything but 0 is true. Of a complex number a real type takes the real part."""
    source, target = inst.operands[0].shape.element_type, inst.shape.element_type
    return operand.clone() if source is target else converted(operand, source, target)


def converted(operand: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """As `convert` between two types, but not yet on the target's grid (`numerics.normalise`)."""
    if target is PRED:
        return operand != 0
    if source.is_complex and not target.is_complex:
        operand, source = torch.real(operand), complex_part(source)
    if target.is_complex:
        part = operand if source.is_complex or source is complex_part(target) else (
            _to_float(operand, source, complex_part(target)))
        return part.to(storage_dtype(target))
    if target.is_floating:
        return _to_float(operand, source, target)
    if source.is_floating:
        return float_to_integer(operand, target)
    return _integer_to_integer(operand, source, target)


def _to_float(operand: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    if source is F64 and target is F16:
        return values.emit(kernels.f64_to_f16, operand)
    if source is U64:
        wide = storage_dtype(target) if target in (F32, F64) else torch.float32
        return values.emit(kernels.u64_to_float, operand, wide).to(storage_dtype(target))
    if source.hides_sign:
        operand = _zero_extended(operand, source, torch.int32 if source.bits == 16 else torch.int64)
    return _stored_as(operand, source, target)


def float_to_integer(operand: Value, target: PrimitiveType) -> Value:
    """Floats in the storage dtype of an integer type: toward zero, saturated, NaN as 0."""
    if target is U64:
        return values.emit(kernels.float_to_u64, operand)
    return values.emit(kernels.float_to_integer, operand, *integer_range(target), storage_dtype(target))


def _integer_to_integer(operand: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    if source.hides_sign and target.bits > source.bits:
        return _zero_extended(operand, source, storage_dtype(target))
    return _stored_as(operand, source, target)


def _stored_as(operand: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """The operand in the target's storage dtype; a copy where it is there already, as no result may share memory with it."""
    return operand.clone() if storage_dtype(source) is storage_dtype(target) else operand.to(storage_dtype(target))


def _zero_extended(operand: Value, source: PrimitiveType, storage: torch.dtype | None) -> Value:
    """An unsigned value that hides its sign, in wider signed storage."""
    return operand.to(storage) & ((1 << source.bits) - 1)


def integer_range(element_type: PrimitiveType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    if element_type.is_unsigned:
        return 0, (1 << element_type.bits) - 1
    return -(1 << (element_type.bits - 1)), (1 << (element_type.bits - 1)) - 1


@body("stochastic-convert")
def stochastic_convert(inst: Instruction, operand: Value, random: Value) -> Value:
    """Round to an integer away from zero with the fraction as probability, by comparing it with the random bits."""
    source, target = inst.operands[0].shape.element_type, inst.shape.element_type
    if not target.is_integral or target is U64:
        raise UnsupportedError("stochastic conversion to this type", got=target, expected="an integer type other than u64")
    chance = _to_float(random, inst.operands[1].shape.element_type, F64)
    return values.emit(kernels.stochastic_convert, operand, chance, source.bits, *integer_range(target), storage_dtype(target))


@body("reduce-precision")
def reduce_precision(inst: Instruction, operand: Value, *, exponent_bits: Int, mantissa_bits: Int) -> Value:
    """Round to nearest even as a format with these widths would, without its subnormal numbers. XLA computes types of 8 bits
    and fewer in F16, so theirs are kept by as many exponent bits as that has."""
    element_type = inst.shape.element_type
    wide = F16 if element_type.is_narrow and element_type is not F8E8M0FNU else element_type
    own_exponent, own_mantissa = _widths(wide)
    if exponent_bits >= own_exponent and mantissa_bits >= own_mantissa:
        return operand.clone()
    if element_type is F32 and (exponent_bits, mantissa_bits) == _widths(BF16):
        return operand.to(torch.bfloat16).to(torch.float32)
    if wide is element_type:
        return values.emit(kernels.reduce_precision, operand, exponent_bits, mantissa_bits)
    rounded = values.emit(kernels.reduce_precision, operand.to(storage_dtype(wide)), exponent_bits, mantissa_bits)
    return rounded.to(storage_dtype(element_type))


def _widths(element_type: PrimitiveType) -> tuple[int, int]:
    return exponent_bits(element_type), mantissa_bits(element_type)


# ------------------------------------------------------------------------------------------- bits


@body("bitcast-convert", view=True)
def bitcast_convert(inst: Instruction, operand: Value) -> Value:
    """The same bits read as another type. Parts of one wider element stand in a last dimension, low part first."""
    source, target = inst.operands[0].shape.element_type, inst.shape.element_type
    return operand if source is target else reinterpreted(operand, source, target)


def reinterpreted(operand: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """The elements' bits as elements of another type; a last dimension counts the parts of a wider element."""
    return _from_bits(_regrouped(_to_bits(operand, source), source, target), target)


def _to_bits(operand: Value, source: PrimitiveType) -> Value:
    """A tensor whose elements have the type's bits: of a narrow type in uint8, of others the stored value itself."""
    if source is PRED or (source.is_narrow and source.is_signed):
        return operand.view(torch.uint8)
    if source.kind is not Kind.FLOAT or not source.is_narrow:
        return operand
    if torch_dtype(source) is not storage_dtype(source):
        return numerics.from_storage(operand, source).view(torch.uint8)
    keys, codes = _code_table(source)
    known = numerics.known_payloads(operand, source)
    nan = 0x80 if source is F8E4M3B11FNUZ else None
    return values.emit(kernels.encode_by_table, known, values.constant(keys), values.constant(codes), nan)


def _from_bits(bits: Value, target: PrimitiveType) -> Value:
    if target is PRED:
        return bits.view(torch.uint8) != 0
    if target.is_narrow and target.is_floating:
        if torch_dtype(target) is not storage_dtype(target):
            return numerics.to_storage(bits.view(torch_dtype(target)), target)
        codes = bits.view(torch.uint8) & ((1 << target.bits) - 1)
        return values.emit(kernels.decode_by_table, codes, values.constant(_value_table(target)))
    return bits.view(storage_dtype(target))


def _regrouped(bits: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """Elements of the source's width as elements of the target's, by way of bytes where the narrower has less than one."""
    if target.bits < source.bits:
        if target.bits >= 8:
            return values.emit(kernels.split, bits, torch.uint8 if target.bits == 8 else storage_dtype(target))
        if source.bits > 8:
            bits = values.emit(kernels.split, bits, torch.uint8)
        units = values.emit(kernels.split_units, bits, min(source.bits, 8), target.bits)
        return units.flatten(-2) if source.bits > 8 else units
    if target.bits > source.bits:
        if source.bits < 8:
            bits = values.emit(kernels.join_units, bits, source.bits, min(target.bits, 8))
        return values.emit(kernels.join, bits, storage_dtype(target)) if target.bits > 8 else bits.squeeze(-1)
    return bits


def _value_table(element_type: PrimitiveType) -> torch.Tensor:
    """The float32 value of each code of a narrow float type."""
    codes = np.arange(1 << element_type.bits, dtype=np.uint8)
    return numerics.storage_from_numpy(codes.view(numerics.numpy_dtype(element_type)), element_type)


def _code_table(element_type: PrimitiveType) -> tuple[torch.Tensor, torch.Tensor]:
    """Total-order keys of all values of a narrow float type, ascending, and the code of each."""
    keys, codes = numerics.total_order_key(_value_table(element_type), F32).sort()
    return keys, codes.to(torch.uint8)
