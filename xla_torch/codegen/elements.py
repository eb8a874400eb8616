"""Native code of one element: what an elementwise op computes from the elements of its operands, as an expression of C.

Each op has a pattern for each kind of element, with ``{0}``, ``{1}`` for its operands; what an op cannot be here (floats of 8
bits and fewer, the order of complex numbers) is `Unfit`, and the loop stays torch's. Every expression is brought to its type at
once: C widens narrow integers, and a number must be rounded at each step as XLA rounds it.

Floats of 16 bits (`HALVES`) are integers in memory. What is read from there is a C ``f32`` that has a value of the type, each op
is computed in that precision, and its result rounded to the type at once. Only `typed`, `read` and `stored` know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core.types import (
    BF16,
    C64,
    C128,
    F16,
    F32,
    F64,
    PRED,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    Kind,
    PrimitiveType,
    complex_part,
)
from ..hlo.ir import Instruction
from ..hlo.rule_tables import RuleTable
from ..opcodes import comparison, convert, elementwise
from .functions import integer

NAMES = {PRED: "pred", S8: "s8", S16: "s16", S32: "s32", S64: "s64", U8: "u8", U16: "u16", U32: "u32", U64: "u64",
         F32: "f32", F64: "f64", C64: "c64", C128: "c128"}
"""The element types that C has, by their names in native code."""

HALVES = {BF16: "bf16", F16: "f16"}
"""Those that C has not, as its functions (`functions.py`) name them."""

Rule = Callable[[Instruction, Sequence[str]], str]

ELEMENTS: RuleTable[Rule] = RuleTable("native element")

PATTERNS: dict[str, dict[str, str]] = {}
"""The C of ops by kind of their first operand's elements, of those that are no more than a pattern."""


class Unfit(Exception):
    """A loop that cannot be native code, or is better not."""


def is_native(element_type: PrimitiveType) -> bool:
    """Whether native code has elements of this type."""
    return element_type in NAMES or element_type in HALVES


def name_of(element_type: PrimitiveType) -> str:
    """The type in native code of one element. Raises Unfit for types that are not there."""
    if not is_native(element_type):
        raise Unfit(f"{element_type.text} is no type of native code")
    return "f32" if element_type in HALVES else NAMES[element_type]


def memory_of(element_type: PrimitiveType) -> str:
    """The type of an array's elements. Truth values are bytes: GCC 12 makes no vectors of what reads _Bool from memory. Raises
    Unfit."""
    if element_type in HALVES:
        return "u16"
    return name_of(U8 if element_type is PRED else element_type)


def typed(element_type: PrimitiveType, code: str) -> str:
    """An expression brought to a type."""
    return f"round_{HALVES[element_type]}({code})" if element_type in HALVES else same(element_type, code)


def same(element_type: PrimitiveType, code: str) -> str:
    """An expression that has a value of a type already."""
    return f"(({name_of(element_type)})({code}))"


def read(element_type: PrimitiveType, place: str) -> str:
    """The element at a place in memory."""
    return f"load_{HALVES[element_type]}({place})" if element_type in HALVES else place


def stored(element_type: PrimitiveType, code: str) -> str:
    """What stands in memory for an element."""
    return f"store_{HALVES[element_type]}({code})" if element_type in HALVES else code


def number(value: np.generic, element_type: PrimitiveType) -> str:
    """A constant."""
    if element_type.is_complex:
        real, imag = (number(part, complex_part(element_type)) for part in (value.real, value.imag))
        return f"__builtin_complex({real}, {imag})"
    if not element_type.is_floating:
        return typed(element_type, integer(int(value.item())))
    real = float(value)  # pyright: ignore[reportArgumentType]
    special = '__builtin_nan("")' if np.isnan(real) else f"{'-' * (real < 0)}__builtin_inf()"
    return same(element_type, real.hex() if np.isfinite(real) else special)


def element(instruction: Instruction, operands: Sequence[str], fused: bool = False) -> str:
    """The code of an element of the result; `fused` where the processor has a fused multiply-add. Raises Unfit where there is no
    rule for these types."""
    element_type = instruction.shape.element_type
    if fused and instruction.opcode in VECTOR_COMPLEX and element_type is C64:
        return f"{VECTOR_COMPLEX[instruction.opcode]}({', '.join(operands)})"
    is_alone = instruction.shape.element_count == 1 and instruction.opcode in _BETTER_ALONE
    if fused and instruction.opcode in VECTOR_ELEMENTS and name_of(element_type) == "f32" and not is_alone:
        code = f"{VECTOR_ELEMENTS[instruction.opcode]}({', '.join(operands)})"
        return code if element_type is F32 else typed(element_type, code)
    rule = ELEMENTS.get(instruction.opcode)
    if rule is None:
        raise Unfit(f"{instruction.opcode} is no op of native code")
    bring = same if instruction.opcode in _EXACT else typed
    return bring(element_type, rule(instruction, operands))


def exact_pattern(opcode: str, kind: str) -> str | None:
    """The pattern of an op whose result is exact, or correctly rounded: of none that C's library computes."""
    is_rounded = opcode in VECTOR_COMPLEX if kind == Kind.COMPLEX.value else kind == "float" and opcode in _CALLS
    return None if is_rounded else PATTERNS.get(opcode, {}).get(kind)


def needs_no_rounding(opcode: str) -> bool:
    """Whether the result of an op of floats is one of their type as it is."""
    return opcode in _EXACT


def is_vector_function(instruction: Instruction, fused: bool) -> bool:
    """Whether a compiler makes vector code of an op that is a function of C's library."""
    return fused and instruction.opcode in VECTOR_ELEMENTS and instruction.shape.element_type in (F32, *HALVES)


def is_one_by_one(instruction: Instruction, fused: bool) -> bool:
    """Whether processors compute an op's elements one by one: calls of C's library, and integers that are divided."""
    of, opcode = instruction.shape.element_type, instruction.opcode
    if opcode in (elementwise.divide, elementwise.remainder) and of.is_integral:
        return True
    return opcode in _CALLS and not of.is_integral and not is_vector_function(instruction, fused)


def element_work(instruction: Instruction, fused: bool) -> float:
    """Nanoseconds that the code of an element takes, roughly."""
    is_vector = is_vector_function(instruction, fused)
    given = {o.shape.element_type for o in instruction.operands}
    if not given.isdisjoint((C64, C128)):  # torch calls the same library
        return _CALL_WORK if C128 in given and instruction.opcode in (elementwise.abs_, elementwise.sign) else 2 * VECTOR_WORK
    is_called = instruction.opcode in _CALLS and instruction.shape.element_type.is_floating
    return _VECTOR_WORK_BEYOND.get(instruction.opcode, VECTOR_WORK) if is_vector or not is_called else _CALL_WORK


def _patterns(opcode: str, any: str = "", **kinds: str) -> None:
    """An op with a pattern for each kind (``float``, ``signed``, ``unsigned``, ``pred``, ``complex``), or with one for all real
    numbers.

    ``{t}`` is the type of an element, ``{s}`` and ``{u}`` integers of its width, ``{f}`` the ending of C's functions for it."""

    PATTERNS[opcode] = {**({} if not any else dict.fromkeys(("float", "signed", "unsigned"), any)), **kinds}

    ELEMENTS.add(opcode, lambda instruction, operands: applied(opcode, instruction.operands[0].shape.element_type, operands))


def applied(opcode: str, element_type: PrimitiveType, operands: Sequence[str]) -> str:
    """The code of an op of elements of this type, by its pattern. Raises Unfit."""
    pattern = PATTERNS[opcode].get(element_type.kind.value)
    if not pattern or not is_native(element_type):
        raise Unfit(f"{opcode} of {element_type.text} is not in native code")
    name = name_of(element_type)
    return pattern.format(*operands, t=name, s=f"s{element_type.bits}", u=f"u{element_type.bits}", f="f" * (name == "f32"))


_OF_COMPLEX = frozenset({elementwise.exponential, elementwise.log, elementwise.sqrt, elementwise.sine, elementwise.cosine,
                         elementwise.tan, elementwise.tanh, elementwise.sinh, elementwise.cosh})
"""Those of the following that complex numbers have as functions of these names (`complex_numbers.py`)."""

for _opcode, _function in {
    elementwise.exponential: "exp{f}", elementwise.exponential_minus_one: "expm1{f}", elementwise.log: "log{f}",
    elementwise.log_plus_one: "log1p{f}", elementwise.sqrt: "sqrt{f}", elementwise.cbrt: "cbrt{f}", elementwise.sine: "sin{f}",
    elementwise.cosine: "cos{f}", elementwise.tan: "tan{f}", elementwise.tanh: "tanh{f}", elementwise.sinh: "sinh{f}",
    elementwise.cosh: "cosh{f}", elementwise.erf: "erf{f}", elementwise.floor: "floor{f}", elementwise.ceil: "ceil{f}",
    elementwise.round_nearest_even: "rint{f}", elementwise.round_nearest_afz: "round{f}",
    elementwise.asin: "asin{f}", elementwise.acos: "acos{f}", elementwise.atan: "atan{f}",
    elementwise.asinh: "asinh{f}", elementwise.acosh: "acosh{f}", elementwise.atanh: "atanh{f}",
}.items():
    _patterns(_opcode, float=f"__builtin_{_function}({{0}})",
              complex=f"{_opcode}_{{t}}({{0}})" if _opcode in _OF_COMPLEX else "")

_patterns(elementwise.is_finite, float="__builtin_isfinite({0})")
_patterns(elementwise.rsqrt, float="1 / __builtin_sqrt{f}({0})", complex="rsqrt_{t}({0})")
_patterns(elementwise.logistic, float="1 / (1 + __builtin_exp{f}(-{0}))")
_patterns(elementwise.abs_, float="__builtin_fabs{f}({0})", signed="abs_{t}({0})", unsigned="{0}", complex="abs_{t}({0})")
_patterns(elementwise.negate, "-{0}", complex="-{0}")
_patterns(elementwise.sign, float="sign_{t}({0})", signed="sign_{t}({0})", complex="sign_{t}({0})")
_patterns(elementwise.real, float="{0}", complex="__real__ {0}")
_patterns(elementwise.imag, float="0", complex="__imag__ {0}")
_patterns(elementwise.complex_, float="__builtin_complex({0}, {1})")
_patterns(elementwise.not_, "~{0}", pred="!{0}")
_patterns(elementwise.add, "{0} + {1}", pred="{0} | {1}", complex="{0} + {1}")
_patterns(elementwise.subtract, "{0} - {1}", complex="{0} - {1}")
_patterns(elementwise.multiply, "{0} * {1}", pred="{0} & {1}", complex="multiply_{t}({0}, {1})")
_patterns(elementwise.divide, float="{0} / {1}", signed="divide_signed_{t}({0}, {1})",
          unsigned="divide_unsigned_{t}({0}, {1})", complex="divide_{t}({0}, {1})")
_patterns(elementwise.remainder, float="__builtin_fmod{f}({0}, {1})", signed="remainder_signed_{t}({0}, {1})",
          unsigned="remainder_unsigned_{t}({0}, {1})")
_patterns(elementwise.maximum, "maximum_{t}({0}, {1})", pred="{0} | {1}")
_patterns(elementwise.minimum, "minimum_{t}({0}, {1})", pred="{0} & {1}")
_patterns(elementwise.power, float="__builtin_pow{f}({0}, {1})")
_patterns(elementwise.atan2, float="__builtin_atan2{f}({0}, {1})")
_patterns(elementwise.and_, signed="{0} & {1}", unsigned="{0} & {1}", pred="{0} & {1}")
_patterns(elementwise.or_, signed="{0} | {1}", unsigned="{0} | {1}", pred="{0} | {1}")
_patterns(elementwise.xor, signed="{0} ^ {1}", unsigned="{0} ^ {1}", pred="{0} ^ {1}")
_patterns(elementwise.shift_left, signed="shift_left_{t}({0}, {1})", unsigned="shift_left_{t}({0}, {1})")
_patterns(elementwise.shift_right_arithmetic, signed="shift_right_arithmetic_{s}({0}, {1})",
          unsigned="shift_right_arithmetic_{s}({0}, {1})")
_patterns(elementwise.shift_right_logical, signed="shift_right_logical_{u}({0}, {1})",
          unsigned="shift_right_logical_{u}({0}, {1})")
_patterns(elementwise.popcnt, signed="__builtin_popcountll(({u}){0})", unsigned="__builtin_popcountll({0})")
_patterns(elementwise.count_leading_zeros, signed="count_leading_zeros_{t}({0})", unsigned="count_leading_zeros_{t}({0})")
_patterns(elementwise.mulhi, signed="high_product_signed_{t}({0}, {1})", unsigned="high_product_unsigned_{t}({0}, {1})")
_patterns(comparison.clamp, "minimum_{t}(maximum_{t}({0}, {1}), {2})")

_CALLS = frozenset({
    elementwise.exponential, elementwise.exponential_minus_one, elementwise.log, elementwise.log_plus_one, elementwise.cbrt,
    elementwise.sine, elementwise.cosine, elementwise.tan, elementwise.tanh, elementwise.sinh, elementwise.cosh, elementwise.erf,
    elementwise.asin, elementwise.acos, elementwise.atan, elementwise.asinh, elementwise.acosh, elementwise.atanh,
    elementwise.logistic, elementwise.power, elementwise.atan2, elementwise.remainder,
})
"""Ops for which C's library is called, an element at a time."""
_CALL_WORK = 8.0

_EXACT = frozenset({
    comparison.clamp, comparison.select, elementwise.maximum, elementwise.minimum, elementwise.abs_, elementwise.negate,
    elementwise.sign, elementwise.floor, elementwise.ceil, elementwise.round_nearest_even, elementwise.round_nearest_afz,
    convert.bitcast_convert,
})
"""Ops of floats whose result needs no rounding."""

VECTOR_WORK = 0.125
"""Nanoseconds for an element where a compiler makes vector code."""

VECTOR_ELEMENTS = {
    elementwise.exponential: "exp_f32", elementwise.exponential_minus_one: "expm1_f32", elementwise.log: "log_f32",
    elementwise.log_plus_one: "log1p_f32", elementwise.logistic: "logistic_f32", elementwise.tanh: "tanh_f32",
    elementwise.sinh: "sinh_f32", elementwise.cosh: "cosh_f32", elementwise.asinh: "asinh_f32", elementwise.acosh: "acosh_f32",
    elementwise.atanh: "atanh_f32", elementwise.sine: "sine_f32", elementwise.cosine: "cosine_f32", elementwise.tan: "tan_f32",
    elementwise.asin: "asin_f32", elementwise.acos: "acos_f32", elementwise.atan: "atan_f32", elementwise.atan2: "atan2_f32",
    elementwise.cbrt: "cbrt_f32", elementwise.power: "power_f32", elementwise.erf: "erf_f32",
}
"""Functions of float32 that a compiler makes vector code of (`transcendental.py`); C's library has one call for each element."""

VECTOR_COMPLEX = {
    elementwise.exponential: "exp_c64", elementwise.log: "log_c64", elementwise.divide: "divide_c64",
    elementwise.log_plus_one: "log1p_by_parts", elementwise.exponential_minus_one: "expm1_by_parts",
    **{opcode: f"{opcode}_by_parts" for opcode in (
        elementwise.abs_, elementwise.sign, elementwise.power, elementwise.sqrt, elementwise.rsqrt, elementwise.sine,
        elementwise.cosine, elementwise.tan, elementwise.sinh, elementwise.cosh, elementwise.tanh)},
}
"""The same of complex numbers in single precision."""

_BETTER_ALONE = frozenset({
    elementwise.sine, elementwise.cosine, elementwise.cosh, elementwise.asin, elementwise.acos, elementwise.atan,
    elementwise.cbrt, elementwise.power,
})
"""Those that C's library computes sooner for one number, from which it branches off early."""

_VECTOR_WORK_BEYOND = {
    elementwise.log: 0.4, elementwise.tanh: 0.5, elementwise.sine: 0.6, elementwise.cosine: 0.6, elementwise.tan: 1.2,
    elementwise.asin: 1.0, elementwise.acos: 1.0,
}
"""Nanoseconds for an element that these take beyond torch's own vector code; the others take about as long."""

_DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}


@ELEMENTS.rule(comparison.compare)
def _compare(instruction: Instruction, operands: Sequence[str]) -> str:
    element_type = instruction.operands[0].shape.element_type
    direction = instruction.attributes["direction"]
    if not is_native(element_type) or (element_type.is_complex and direction not in ("EQ", "NE")):
        raise Unfit("this comparison is not in native code")
    if instruction.attributes.get("type") == "TOTALORDER" and element_type.is_floating:
        operands = [f"order_{name_of(element_type)}({o})" for o in operands]
    return f"{operands[0]} {_DIRECTIONS[direction]} {operands[1]}"


@ELEMENTS.rule(comparison.select)
def _select(instruction: Instruction, operands: Sequence[str]) -> str:
    return f"select_{name_of(instruction.shape.element_type)}({operands[0]}, {operands[1]}, {operands[2]})"


@ELEMENTS.rule(convert.convert)
def _convert(instruction: Instruction, operands: Sequence[str]) -> str:
    (operand,), source, target = operands, instruction.operands[0].shape.element_type, instruction.shape.element_type
    name_of(source)
    if target is PRED:
        return f"{operand} != 0"
    if source.is_complex and not target.is_complex:
        operand, source = f"__real__ {operand}", complex_part(source)
    if source is F64 and target is F16:
        return f"once_f16({operand})"
    return f"truncated_{name_of(target)}({operand})" if source.kind is Kind.FLOAT and target.is_integral else operand


@ELEMENTS.rule(convert.reduce_precision)
def _reduce_precision(instruction: Instruction, operands: Sequence[str]) -> str:
    element_type, given = instruction.shape.element_type, instruction.attributes
    if element_type not in (F32, F64):
        raise Unfit(f"reduce-precision of {element_type.text} is not in native code")
    return f"reduce_precision_{name_of(element_type)}({operands[0]}, {given['exponent_bits']}, {given['mantissa_bits']})"


@ELEMENTS.rule(convert.bitcast_convert)
def _bitcast_convert(instruction: Instruction, operands: Sequence[str]) -> str:
    (operand,), source, target = operands, instruction.operands[0].shape.element_type, instruction.shape.element_type
    if source.bits != target.bits or PRED in (source, target) or source.is_complex or target.is_complex:
        raise Unfit("this bitcast-convert is not in native code")
    bits = stored(source, operand) if source in HALVES else f"bits_of_{name_of(source)}({operand})"
    return read(target, bits) if target in HALVES else f"of_bits_{name_of(target)}({bits})"
