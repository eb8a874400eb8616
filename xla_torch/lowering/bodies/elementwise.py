"""Op bodies: elementwise arithmetic of one and of two operands. Comparisons, clamp and select stand in `comparison.py`.

Specification: hlo/SPEC.md, Elementwise ops. The plain cases are one torch call each; what torch leaves open or does otherwise
(unsigned types in signed storage, division by zero, complex numbers) goes to a kernel that stands in the program as one call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from ...core.types import PRED, Kind, PrimitiveType
from ...hlo.attributes import Accuracy
from ...hlo.ir import Instruction
from ...kernels import elementwise as kernels
from ...kernels import integers
from ...storage.dtypes import storage_dtype
from .. import values
from ..body_table import body
from ..values import Number, Value

# ------------------------------------------------------------------------------------------- one operand


def _unary(opcode: str, function: Callable[..., Any], of_complex: Callable[..., Any] | None = None, single: bool = False) -> None:
    """A body that is one call of `function` (for complex operands of the kernel `of_complex`, if any).
    With `single`, floats of 16 bits are computed in F32: torch's own function
    of these rounds on the way."""

    def call(inst: Instruction, operand: Value, *, result_accuracy: Accuracy) -> Value:
        element_type = inst.shape.element_type
        if of_complex is not None and element_type.is_complex:
            return values.emit(of_complex, operand)
        if single and element_type.bits == 16:
            return function(operand.to(torch.float32)).to(storage_dtype(element_type))
        return function(operand)

    body(opcode)(call)


def _cube_root(operand: Value) -> Value:
    return values.emit(kernels.cube_root, operand)


_unary("cbrt", _cube_root)
_unary("cosine", torch.cos, of_complex=kernels.complex_cos)
_unary("erf", torch.erf, single=True)
_unary("exponential", torch.exp, of_complex=kernels.complex_exp)
_unary("exponential-minus-one", torch.expm1, of_complex=kernels.complex_expm1)
_unary("log", torch.log, of_complex=kernels.complex_log)
_unary("log-plus-one", torch.log1p, of_complex=kernels.complex_log1p)
_unary("logistic", torch.sigmoid, of_complex=kernels.complex_logistic)
_unary("rsqrt", torch.rsqrt, of_complex=kernels.complex_rsqrt, single=True)
_unary("sine", torch.sin, of_complex=kernels.complex_sin)
_unary("sqrt", torch.sqrt, of_complex=kernels.complex_sqrt)
_unary("tan", torch.tan, of_complex=kernels.complex_tan)
_unary("tanh", torch.tanh, of_complex=kernels.complex_tanh)
# XLA's inference takes real operands only here, but its builder and StableHLO's chlo have complex ones: so have we.
_unary("acos", torch.acos)
_unary("acosh", torch.acosh)
_unary("asin", torch.asin)
_unary("asinh", torch.asinh)
_unary("atan", torch.atan)
_unary("atanh", torch.atanh)
_unary("cosh", torch.cosh, of_complex=kernels.complex_cosh)
_unary("sinh", torch.sinh, of_complex=kernels.complex_sinh)


@body("abs")
def absolute(inst: Instruction, operand: Value) -> Value:
    """Magnitude; of the smallest integer, that integer itself."""
    return values.emit(kernels.complex_abs, operand) if inst.operands[0].shape.element_type.is_complex else torch.abs(operand)


@body("ceil")
def ceil(inst: Instruction, operand: Value) -> Value:
    return torch.ceil(operand)


@body("floor")
def floor(inst: Instruction, operand: Value) -> Value:
    return torch.floor(operand)


@body("round-nearest-even")
def round_nearest_even(inst: Instruction, operand: Value) -> Value:
    return torch.round(operand)


@body("round-nearest-afz")
def round_nearest_afz(inst: Instruction, operand: Value) -> Value:
    return values.emit(kernels.round_half_away, operand)


@body("sign")
def sign(inst: Instruction, operand: Value) -> Value:
    kind = inst.shape.element_type.kind
    if kind is Kind.SIGNED:
        return torch.sign(operand)
    return values.emit(kernels.complex_sign if kind is Kind.COMPLEX else kernels.sign, operand)


@body("negate")
def negate(inst: Instruction, operand: Value) -> Value:
    return values.emit(kernels.complex_negate, operand) if inst.shape.element_type.is_complex else -operand


@body("not")
def logical_not(inst: Instruction, operand: Value) -> Value:
    """Bitwise; logical for PRED."""
    return ~operand


@body("popcnt")
def popcnt(inst: Instruction, operand: Value) -> Value:
    return values.emit(integers.population_count, operand, inst.shape.element_type.bits)


@body("count-leading-zeros")
def count_leading_zeros(inst: Instruction, operand: Value) -> Value:
    return values.emit(integers.count_leading_zeros, operand, inst.shape.element_type.bits)


@body("is-finite")
def is_finite(inst: Instruction, operand: Value) -> Value:
    return torch.isfinite(operand)


@body("real", view=True)
def real(inst: Instruction, operand: Value) -> Value:
    """Real part; a real operand is its own."""
    return torch.real(operand) if inst.operands[0].shape.element_type.is_complex else operand


@body("imag", view=True)
def imag(inst: Instruction, operand: Value) -> Value:
    """Imaginary part; zeros for a real operand."""
    return torch.imag(operand) if inst.operands[0].shape.element_type.is_complex else torch.zeros_like(operand)


# ------------------------------------------------------------------------------------------- two operands


def _binary(opcode: str, numbers: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The body of two operands. Floats of different widths are brought to the result's before the body runs."""

    def define(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def aligned(inst: Instruction, lhs: Value, rhs: Value) -> Value:
            return function(inst, *at_one_width(inst, storage_dtype(inst.shape.element_type), lhs, rhs))

        body(opcode, numbers=numbers)(aligned)
        return function

    return define


def at_one_width(inst: Instruction, storage: torch.dtype | None, *operands: Value) -> tuple[Value, ...]:
    """The operands in this storage dtype where they are floats of different widths; unchanged where all types are equal."""
    types = [o.shape.element_type for o in inst.operands[-len(operands):]]
    if all(t is types[0] for t in types):
        return operands
    return tuple(v if isinstance(v, Number) or storage_dtype(t) is storage else v.to(storage)
                 for v, t in zip(operands, types, strict=True))


@_binary("add", numbers="lhs rhs")
def add(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """Integers wrap; the sum of PREDs is their disjunction."""
    if inst.shape.element_type.is_complex:
        return values.emit(kernels.complex_add, lhs, rhs)
    return lhs | rhs if inst.shape.element_type is PRED else lhs + rhs


@_binary("subtract", numbers="lhs rhs")
def subtract(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    if inst.shape.element_type.is_complex:
        return values.emit(kernels.complex_subtract, lhs, rhs)
    return lhs - rhs


@_binary("multiply", numbers="lhs rhs")
def multiply(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """Integers wrap; the product of PREDs is their conjunction."""
    if inst.shape.element_type is PRED:
        return lhs & rhs
    if inst.shape.element_type.is_complex:  # whose infinite parts meet the other part of 1
        return lhs * rhs
    return rhs if _is_one(lhs) else lhs if _is_one(rhs) else lhs * rhs


def _is_one(value: Value) -> bool:
    """Whether this is the number 1, which changes no factor and no dividend."""
    return isinstance(value, Number) and value == 1


@_binary("divide", numbers="lhs rhs")
def divide(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """Integers truncate toward zero; x / 0 is -1 or, unsigned, has all bits set; MIN / -1 is MIN."""
    element_type = inst.shape.element_type
    if _is_one(rhs) and not element_type.is_complex:
        return lhs
    if element_type.is_complex:
        return values.emit(kernels.complex_divide, lhs, rhs)
    if element_type.is_floating:
        return _float_quotient(lhs, rhs, element_type)
    if element_type.is_signed:
        return values.emit(integers.divide_signed, lhs, rhs)
    shift = _log2(rhs)
    if shift is None:
        return values.emit(integers.divide_unsigned, lhs, rhs, element_type.bits)
    return _shift_right_by(lhs, shift, element_type)


@_binary("remainder", numbers="lhs rhs")
def remainder(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """The dividend's sign. Integers: x % 0 is x, MIN % -1 is 0. Floats: C's fmod."""
    element_type = inst.shape.element_type
    if element_type.is_floating:
        return values.emit(kernels.float_remainder, lhs, rhs)
    if element_type.is_signed:
        return values.emit(integers.remainder_signed, lhs, rhs)
    return values.emit(integers.remainder_unsigned, lhs, rhs, element_type.bits) if _log2(rhs) is None else lhs & (rhs - 1)


def _float_quotient(lhs: Value, rhs: Value, element_type: PrimitiveType) -> Value:
    """The quotient, rounded once. Of a number and a tensor torch would multiply the number with the reciprocal, and CUDA
    divides by a number in the same way."""
    if isinstance(lhs, Number):
        return torch.reciprocal(rhs) if lhs == 1.0 else values.emit(kernels.quotient, lhs, rhs)
    if isinstance(rhs, Number) and values.device().type != "cpu" and not _has_exact_inverse(rhs):
        rhs = as_tensor(rhs, element_type)
    return lhs / rhs


def _has_exact_inverse(number: Value) -> bool:
    """Whether 1 / number is a normal float: powers of two have one, if they are not too large or too small."""
    return abs(math.frexp(number)[0]) == 0.5 and 2.0**-14 <= abs(number) <= 2.0**14


def _log2(number: Value) -> int | None:
    """The exponent of a Python number that is a power of two (and positive in its storage dtype), else None."""
    is_power = isinstance(number, int) and number > 0 and number & (number - 1) == 0
    return number.bit_length() - 1 if is_power else None


def as_tensor(operand: Value, element_type: PrimitiveType) -> Value:
    """A Python number as a 0-dimensional tensor, for torch functions that take none; other operands as they are."""
    return values.constant(torch.tensor(operand, dtype=storage_dtype(element_type))) if isinstance(operand, Number) else operand


@_binary("maximum", numbers="rhs")
def maximum(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """NaN where either operand is NaN. Of two zeros of different sign either may be the result, as in XLA's evaluator."""
    return _extreme(inst, lhs, rhs, largest=True)


@_binary("minimum", numbers="rhs")
def minimum(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """NaN where either operand is NaN. Of two zeros of different sign either may be the result, as in XLA's evaluator."""
    return _extreme(inst, lhs, rhs, largest=False)


def _extreme(inst: Instruction, lhs: Value, rhs: Value, largest: bool) -> Value:
    element_type = inst.shape.element_type
    if element_type is PRED:
        return lhs | rhs if largest else lhs & rhs
    if element_type.is_complex:
        return values.emit(kernels.complex_extreme, lhs, rhs, largest)
    if element_type.hides_sign:
        return values.emit(integers.unsigned_extreme, lhs, rhs, largest)
    if element_type.is_floating and not isinstance(rhs, Number):
        return torch.maximum(lhs, rhs) if largest else torch.minimum(lhs, rhs)
    # A number, or an integer that may be one on the host when the program runs: these take numbers and tensors. clamp with one
    # bound, a number, does not pass NaN on before torch 2.12.
    return torch.clamp_min(lhs, rhs) if largest else torch.clamp_max(lhs, rhs)


@_binary("power", numbers="lhs rhs")
def power(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """C's pow. Integers wrap; a negative exponent gives 0 but for the bases 1 and -1."""
    element_type = inst.shape.element_type
    if element_type.is_integral:
        return values.emit(integers.power, lhs, rhs, element_type.hides_sign)
    if element_type.is_complex:
        return values.emit(kernels.complex_power, lhs, rhs)
    if isinstance(rhs, Number) and rhs in (0.5, -0.5):
        # torch takes such a number for a square root, which differs from pow at -0 and -inf.
        rhs = as_tensor(rhs, element_type)
    return torch.pow(lhs, rhs)


@_binary("atan2")
def atan2(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    if inst.shape.element_type.is_complex:
        return values.emit(kernels.complex_atan2, lhs, rhs)
    return torch.atan2(lhs, rhs)


@_binary("and", numbers="lhs rhs")
def logical_and(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    return lhs & rhs


@_binary("or", numbers="lhs rhs")
def logical_or(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    return lhs | rhs


@_binary("xor", numbers="lhs rhs")
def logical_xor(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    return lhs ^ rhs


@_binary("shift-left", numbers="rhs")
def shift_left(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """The amount counts as unsigned; one of the width or more gives 0, which is torch's meaning as well."""
    return lhs << rhs


@_binary("shift-right-arithmetic", numbers="rhs")
def shift_right_arithmetic(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """Copies of the top bit come in, in unsigned types as well; an amount of the width or more leaves only these."""
    element_type = inst.shape.element_type
    if element_type.is_signed or element_type.hides_sign:
        return lhs >> rhs
    return values.emit(integers.shift_right_arithmetic_unsigned, lhs, rhs, element_type.bits)


@_binary("shift-right-logical", numbers="rhs")
def shift_right_logical(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """Zeros come in. The amount counts as unsigned; one of the width or more gives 0."""
    element_type = inst.shape.element_type
    if isinstance(rhs, Number) and 0 <= rhs < element_type.bits:  # pyright: ignore[reportOperatorIssue]
        return _shift_right_by(lhs, int(rhs), element_type)  # pyright: ignore[reportArgumentType]
    return values.emit(integers.shift_right_logical, lhs, rhs, element_type.bits)


def _shift_right_by(operand: Value, amount: int, element_type: PrimitiveType) -> Value:
    """A logical shift by an amount that is known and in range."""
    if amount == 0 or not (element_type.is_signed or element_type.hides_sign):
        return operand >> amount
    if element_type.is_narrow:
        return (operand & ((1 << element_type.bits) - 1)) >> amount
    return (operand >> amount) & ((1 << (element_type.bits - amount)) - 1)


@_binary("mulhi", numbers="lhs rhs")
def mulhi(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """The upper half of the product of twice the width."""
    element_type = inst.shape.element_type
    return values.emit(integers.high_product, lhs, rhs, element_type.bits, element_type.is_unsigned)


@body("complex")
def complex_of(inst: Instruction, lhs: Value, rhs: Value) -> Value:
    """Real part `lhs`, imaginary part `rhs`."""
    return torch.complex(lhs, rhs)
