"""Op definitions: conversions of value (convert, stochastic-convert), of bits (bitcast-convert) and of precision.

Document: spec ops.md, sections 1.1 to 1.3. Rounding to types narrower than their carriers is not done here: the evaluator
brings every result onto its type's grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..errors import UnsupportedError
from ..hlo.ir import Instruction
from ..lowering import numerics, values
from ..lowering.kernels import convert as kernels
from ..types import (
    BF16,
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
from .attributes import Int
from .definition import op
from .shapes import bitcast_convert_shape, convert_shape, reduce_precision_shape, stochastic_convert_shape

# ------------------------------------------------------------------------------------------- values


@op("convert", infer=convert_shape, elementwise=True, inferable=False, stablehlo="convert")
def convert(inst: Instruction, operand: Any) -> Any:
    """The same value in another type: integers wrap, floats round to nearest even, floats to integers truncate and
    saturate with NaN to 0, anything but 0 is true. Of a complex number a real type takes the real part."""
    source, target = inst.operands[0].shape.element_type, inst.shape.element_type
    if source is target:
        return operand.clone()
    if target is PRED:
        return operand != 0
    if source.is_complex and not target.is_complex:
        operand, source = torch.real(operand), complex_part(source)
    if target.is_complex:
        part = operand if source.is_complex else _to_float(operand, source, complex_part(target))
        return part.to(target.carrier)
    if target.is_floating:
        return _to_float(operand, source, target)
    if source.is_floating:
        return float_to_integer(operand, target)
    return _integer_to_integer(operand, source, target)


def _to_float(operand: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    if source is F64 and target is F16:
        return values.emit(kernels.f64_to_f16, operand)
    if source is U64:
        wide = target.carrier if target in (F32, F64) else torch.float32
        return values.emit(kernels.u64_to_float, operand, wide).to(target.carrier)
    if source.hides_sign:
        operand = _zero_extended(operand, source, torch.int32 if source.bits == 16 else torch.int64)
    return _in_carrier(operand, source, target)


def float_to_integer(operand: Any, target: PrimitiveType) -> Any:
    """Floats as the carrier of an integer type: toward zero, saturated, NaN as 0."""
    if target is U64:
        return values.emit(kernels.float_to_u64, operand)
    return values.emit(kernels.float_to_integer, operand, *integer_range(target), target.carrier)


def _integer_to_integer(operand: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    if source.hides_sign and target.bits > source.bits:
        return _zero_extended(operand, source, target.carrier)
    return _in_carrier(operand, source, target)


def _in_carrier(operand: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    """The operand in the target's carrier; a copy where it is there already, as no result may share memory with it."""
    return operand.clone() if source.carrier is target.carrier else operand.to(target.carrier)


def _zero_extended(operand: Any, source: PrimitiveType, carrier: torch.dtype | None) -> Any:
    """An unsigned value that hides its sign, in a wider signed carrier."""
    return operand.to(carrier) & ((1 << source.bits) - 1)


def integer_range(element_type: PrimitiveType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    if element_type.is_unsigned:
        return 0, (1 << element_type.bits) - 1
    return -(1 << (element_type.bits - 1)), (1 << (element_type.bits - 1)) - 1


@op("stochastic-convert", infer=stochastic_convert_shape, elementwise=True, inferable=False)
def stochastic_convert(inst: Instruction, operand: Any, random: Any) -> Any:
    """Round to an integer away from zero with the fraction as probability, by comparing it with the random bits."""
    source, target = inst.operands[0].shape.element_type, inst.shape.element_type
    if not target.is_integral or target is U64:
        raise UnsupportedError("stochastic conversion to this type", got=target, expected="an integer type other than u64")
    chance = _to_float(random, inst.operands[1].shape.element_type, F64)
    return values.emit(kernels.stochastic_convert, operand, chance, source.bits, *integer_range(target), target.carrier)


@op("reduce-precision", infer=reduce_precision_shape, inferable=False, elementwise=True, stablehlo="reduce_precision")
def reduce_precision(inst: Instruction, operand: Any, *, exponent_bits: Int, mantissa_bits: Int) -> Any:
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
    return values.emit(kernels.reduce_precision, operand.to(wide.carrier), exponent_bits, mantissa_bits).to(element_type.carrier)


def _widths(element_type: PrimitiveType) -> tuple[int, int]:
    return exponent_bits(element_type), mantissa_bits(element_type)


# ------------------------------------------------------------------------------------------- bits


@op("bitcast-convert", infer=bitcast_convert_shape, view=True, inferable=False, stablehlo="bitcast_convert")
def bitcast_convert(inst: Instruction, operand: Any) -> Any:
    """The same bits read as another type. Parts of one wider element stand in a last dimension, low part first."""
    source, target = inst.operands[0].shape.element_type, inst.shape.element_type
    return operand if source is target else reinterpreted(operand, source, target)


def reinterpreted(operand: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    """The elements' bits as elements of another type; a last dimension counts the parts of a wider element."""
    return _from_bits(_regrouped(_to_bits(operand, source), source, target), target)


def _to_bits(operand: Any, source: PrimitiveType) -> Any:
    """A tensor whose elements have the type's bits: of a narrow type in uint8, of others the carrier itself."""
    if source is PRED or (source.is_narrow and source.is_signed):
        return operand.view(torch.uint8)
    if source.kind is not Kind.FLOAT or not source.is_narrow:
        return operand
    if source.torch is not source.carrier:
        return operand.to(source.torch).view(torch.uint8)
    keys, codes = _code_table(source)
    return values.emit(kernels.encode_by_table, operand, values.constant(keys), values.constant(codes))


def _from_bits(bits: Any, target: PrimitiveType) -> Any:
    if target is PRED:
        return bits.view(torch.uint8) != 0
    if target.is_narrow and target.is_floating:
        if target.torch is not target.carrier:
            return bits.view(target.torch).to(target.carrier)
        codes = bits.view(torch.uint8) & ((1 << target.bits) - 1)
        return values.emit(kernels.decode_by_table, codes, values.constant(_value_table(target)))
    return bits.view(target.carrier)


def _regrouped(bits: Any, source: PrimitiveType, target: PrimitiveType) -> Any:
    """Elements of the source's width as elements of the target's, by way of bytes where the narrower has less than one."""
    if target.bits < source.bits:
        if target.bits >= 8:
            return values.emit(kernels.split, bits, torch.uint8 if target.bits == 8 else target.carrier)
        if source.bits > 8:
            bits = values.emit(kernels.split, bits, torch.uint8)
        units = values.emit(kernels.split_units, bits, min(source.bits, 8), target.bits)
        return units.flatten(-2) if source.bits > 8 else units
    if target.bits > source.bits:
        if source.bits < 8:
            bits = values.emit(kernels.join_units, bits, source.bits, min(target.bits, 8))
        return values.emit(kernels.join, bits, target.carrier) if target.bits > 8 else bits.squeeze(-1)
    return bits


def _value_table(element_type: PrimitiveType) -> torch.Tensor:
    """The float32 value of each code of a narrow float type."""
    codes = np.arange(1 << element_type.bits, dtype=np.uint8)
    with np.errstate(all="ignore"):
        return torch.from_numpy(codes.view(numerics.numpy_dtype(element_type)).astype(np.float32))


def _code_table(element_type: PrimitiveType) -> tuple[torch.Tensor, torch.Tensor]:
    """Total-order keys of all values of a narrow float type, ascending, and the code of each."""
    keys, codes = numerics.total_order_key(_value_table(element_type), F32).sort()
    return keys, codes.to(torch.uint8)
