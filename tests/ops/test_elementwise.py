"""Elementwise arithmetic: against real XLA on special values, and the documents' examples."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import (
    COMPLEX,
    FLOATS,
    INTS,
    NARROW_FLOATS,
    NARROW_INTS,
    SIGNED,
    assert_agree,
    dtype_of,
    elementwise_hlo,
    pairs,
    run_both,
    run_ours,
    special_values,
)
from support.oracle import needs_xla
from xla_torch import ops
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument
from xla_torch.shape import Shape

NAN, INF = math.nan, math.inf
SIGNED_NARROW = ("s2", "s4", *SIGNED)


# ------------------------------------------------------------------------------------------- one operand

# opcode, element types, tolerance in units of the last place
UNARY = [
    ("abs", (*FLOATS, *NARROW_FLOATS, *SIGNED_NARROW), 0),
    ("ceil", (*FLOATS, *NARROW_FLOATS), 0),
    ("floor", (*FLOATS, *NARROW_FLOATS), 0),
    ("round-nearest-even", (*FLOATS, *NARROW_FLOATS), 0),
    ("round-nearest-afz", (*FLOATS, *NARROW_FLOATS), 0),
    ("sign", (*FLOATS, *NARROW_FLOATS, *SIGNED_NARROW), 0),
    ("negate", (*FLOATS, *NARROW_FLOATS, *INTS, *NARROW_INTS, *COMPLEX), 0),
    ("not", ("pred", *INTS, *NARROW_INTS), 0),
    ("popcnt", (*INTS, "u2", "u4"), 0),
    ("count-leading-zeros", (*INTS, *NARROW_INTS), 0),
    ("real", FLOATS, 0),
    ("imag", FLOATS, 0),
    ("sqrt", (*FLOATS, "f8e5m2", "f8e4m3fn"), 1),
    ("cbrt", FLOATS, 2),
    ("cosine", FLOATS, 4),
    ("erf", FLOATS, 4),
    ("exponential", (*FLOATS, "f8e5m2", "f8e4m3fn"), 2),
    ("exponential-minus-one", FLOATS, 4),
    ("log", (*FLOATS, "f8e4m3"), 2),
    ("log-plus-one", FLOATS, 4),
    ("logistic", (*FLOATS, "f8e5m2"), 4),
    ("rsqrt", FLOATS, 4),
    ("sine", FLOATS, 4),
    ("tan", FLOATS, 4),
    ("tanh", (*FLOATS, "f8e4m3b11fnuz"), 4),
]


@needs_xla
@pytest.mark.parametrize(("opcode", "text", "ulps"), [(o, t, u) for o, types, u in UNARY for t in types])
def test_unary_agrees_with_xla(opcode: str, text: str, ulps: int) -> None:
    values = special_values(text)
    assert_agree(*run_both(elementwise_hlo(opcode, [(text, values)], text), values), ulps, (values,))


# XLA's results for infinite parts and for zeros of different sign differ here and there from C's, whose rules torch follows.
COMPLEX_UNARY = [("sign", 2), ("cosine", 8), ("sine", 8), ("tan", 8), ("tanh", 8), ("exponential", 8), ("log", 8), ("sqrt", 8),
                 ("exponential-minus-one", 8), ("log-plus-one", 8), ("logistic", 8)]


@needs_xla
@pytest.mark.parametrize("text", COMPLEX)
@pytest.mark.parametrize(("opcode", "ulps"), COMPLEX_UNARY)
def test_complex_unary_agrees_with_xla(opcode: str, ulps: int, text: str) -> None:
    values = special_values(text)
    values = values[np.isfinite(values) & ~((np.imag(values) == 0) & np.signbit(np.imag(values)))]
    assert_agree(*run_both(elementwise_hlo(opcode, [(text, values)], text), values), ulps, (values,), signed_zero=False)


@needs_xla
@pytest.mark.parametrize(("opcode", "complex_type", "result"), [(o, c, r) for o in ("abs", "real", "imag")
                                                                for c, r in (("c64", "f32"), ("c128", "f64"))])
def test_parts_of_complex_numbers(opcode: str, complex_type: str, result: str) -> None:
    values = special_values(complex_type)
    values = values[~np.isnan(values)] if opcode == "abs" else values
    assert_agree(*run_both(elementwise_hlo(opcode, [(complex_type, values)], result), values), 2, (values,))


@needs_xla
@pytest.mark.parametrize("text", [*FLOATS, "f8e5m2"])
def test_is_finite(text: str) -> None:
    values = special_values(text)
    assert_agree(*run_both(elementwise_hlo("is-finite", [(text, values)], "pred"), values))


# Values that the documents name, where real XLA has no kernel, and where XLA's CPU code is wrong (see the last column).
UNARY_VALUES = [
    ("abs", "s32", [-(2**31), -5], [-(2**31), 5], ""),
    ("round-nearest-afz", "f32", [0.5, -2.5, 0.49999997, -0.0], [1.0, -3.0, 0.0, -0.0], ""),
    ("round-nearest-even", "f32", [0.5, 1.5, 2.5, -0.5], [0.0, 2.0, 2.0, -0.0], ""),
    ("count-leading-zeros", "u8", [0, 1, 128], [8, 7, 0], ""),
    ("popcnt", "s32", [-1, 0], [32, 0], ""),
    ("popcnt", "s4", [-1, -8, 7], [4, 1, 3], "XLA's CPU code counts the sign's copies"),
    ("rsqrt", "f32", [0.0, -0.0, -1.0, INF], [INF, -INF, NAN, 0.0], ""),
    ("logistic", "f32", [-INF, INF, -1000.0], [0.0, 1.0, 0.0], ""),
    ("negate", "u8", [1], [255], ""),
    ("not", "u8", [5], [250], ""),
    ("sinh", "f32", [0.0, -0.0, INF], [0.0, -0.0, INF], "no CPU kernel"),
    ("cosh", "f32", [0.0, -INF], [1.0, INF], "no CPU kernel"),
    ("acos", "f32", [1.0, -1.0, 2.0], [0.0, math.pi, NAN], "no CPU kernel"),
    ("acosh", "f32", [1.0, 0.0], [0.0, NAN], "no CPU kernel"),
    ("asin", "f64", [1.0, -0.0], [math.pi / 2, -0.0], "no CPU kernel"),
    ("asinh", "f64", [-0.0, INF], [-0.0, INF], "no CPU kernel"),
    ("atan", "f64", [1.0, -INF], [math.pi / 4, -math.pi / 2], "no CPU kernel"),
    ("atanh", "f32", [1.0, 0.5], [INF, 0.5493061], "no CPU kernel"),
    ("asin", "c64", [0.5], [0.5235988], "no CPU kernel"),
    ("rsqrt", "c64", [4.0], [0.5], ""),
]


@pytest.mark.parametrize(("opcode", "text", "operand", "result", "why"), UNARY_VALUES)
def test_unary_values(opcode: str, text: str, operand: list[float], result: list[float], why: str) -> None:
    values = np.array(operand, dtype_of(text))
    assert_agree(run_ours(elementwise_hlo(opcode, [(text, values)], text), values), np.array(result, dtype_of(text)), 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_reciprocal_root_of_16_bits_is_rounded_once(dtype: torch.dtype) -> None:
    x = torch.linspace(0.05, 4.0, 500).to(dtype)
    want = x.double().rsqrt().float().to(dtype)
    for step in (1, 7):  # torch takes another way for a few elements than for many
        assert torch.equal(torch.cat([ops.Rsqrt(part) for part in x.split(step)]), want)


# ------------------------------------------------------------------------------------------- two operands

ARITHMETIC = (*NARROW_INTS, *INTS, *FLOATS, "f8e5m2", "f8e4m3fn", "f8e8m0fnu", "f4e2m1fn")
INTEGERS = (*NARROW_INTS, *INTS)

# opcode, element types, tolerance, whether the sign of a zero result counts
BINARY = [
    ("add", ("pred", *ARITHMETIC), 0, True),
    ("subtract", ARITHMETIC[:-2], 0, True),
    ("multiply", ("pred", *ARITHMETIC), 0, True),
    ("divide", (*INTEGERS, *FLOATS, "f8e5m2"), 0, True),
    ("remainder", (*INTEGERS, *FLOATS, "f8e4m3fn"), 0, True),
    # of zeros of different sign, either is the result (see the op's documentation)
    ("maximum", ("pred", *ARITHMETIC), 0, False),
    ("minimum", ("pred", *ARITHMETIC), 0, False),
    ("power", (*FLOATS, "f8e5m2", *NARROW_INTS), 4, True),
    ("atan2", FLOATS, 4, True),
    ("and", ("pred", *INTEGERS), 0, True),
    ("or", ("pred", *INTEGERS), 0, True),
    ("xor", ("pred", *INTEGERS), 0, True),
    ("shift-left", INTEGERS, 0, True),
    ("shift-right-arithmetic", INTEGERS, 0, True),
    ("shift-right-logical", INTEGERS, 0, True),
]


@needs_xla
@pytest.mark.parametrize(("opcode", "text", "ulps", "signed_zero"), [(o, t, u, z) for o, types, u, z in BINARY for t in types])
def test_binary_agrees_with_xla(opcode: str, text: str, ulps: int, signed_zero: bool) -> None:
    lhs, rhs = pairs(special_values(text))
    hlo = elementwise_hlo(opcode, [(text, lhs), (text, rhs)], text)
    assert_agree(*run_both(hlo, lhs, rhs), ulps, (lhs, rhs), signed_zero)


@needs_xla
@pytest.mark.parametrize("text", COMPLEX)
@pytest.mark.parametrize(("opcode", "ulps", "finite"), [("add", 0, False), ("subtract", 0, False), ("multiply", 8, False),
                                                       ("divide", 8, False), ("power", 2000, True)])
def test_complex_binary_agrees_with_xla(opcode: str, ulps: int, finite: bool, text: str) -> None:
    values = special_values(text)
    lhs, rhs = pairs(values[np.isfinite(values)] if finite else values[~np.isnan(values)][::3])
    hlo = elementwise_hlo(opcode, [(text, lhs), (text, rhs)], text)
    assert_agree(*run_both(hlo, lhs, rhs), ulps, (lhs, rhs), signed_zero=False)


@needs_xla
@pytest.mark.parametrize(("part", "result"), [("f32", "c64"), ("f64", "c128")])
def test_complex_of_parts(part: str, result: str) -> None:
    re, im = pairs(special_values(part))
    assert_agree(*run_both(elementwise_hlo("complex", [(part, re), (part, im)], result), re, im))


BINARY_VALUES = [
    ("divide", "s32", [7, -7, 7, -(2**31)], [0, 2, -2, -1], [-1, -3, -3, -(2**31)], "D1"),
    ("divide", "u32", [7, 2**32 - 1], [0, 2], [2**32 - 1, 2**31 - 1], "D1"),
    ("remainder", "s32", [7, -7, -(2**31)], [0, 2, -1], [7, -1, 0], "D1"),
    ("remainder", "f32", [-0.0, INF, 3.0, 3.0, 3.4e38], [2.0, 2.0, INF, 0.0, 0.5], [-0.0, NAN, 3.0, NAN, 0.0], "fmod"),
    ("maximum", "f32", [NAN, 1.0, 0.0], [1.0, NAN, 2.0], [NAN, NAN, 2.0], "NaN in either"),
    ("power", "f32", [NAN, 1.0, 0.0, -8.0, -1.0], [0.0, NAN, -1.0, 1 / 3, INF], [1.0, 1.0, INF, NAN, 1.0], "C's pow"),
    ("power", "s32", [-1, 0, 2, 1, 0, 3, -7], [-3, -1, -1, -5, 0, 21, 3], [-1, 0, 0, 1, 1, 3**21 - 2 * 2**32, -343], ""),
    ("power", "s8", [2, -2], [9, 7], [0, -128], "wraps; XLA's CPU code takes exponents modulo a power of two"),
    ("power", "u32", [3, 2], [2**32 - 1, 31], [pow(3, 2**32 - 1, 2**32), 2**31], "the exponent is unsigned"),
    ("atan2", "f32", [0.0, -0.0, INF], [-0.0, -0.0, INF], [math.pi, -math.pi, math.pi / 4], "C's atan2"),
    ("shift-left", "s32", [1, 1, 1, 3], [31, 32, -1, 1], [-(2**31), 0, 0, 6], "amounts count as unsigned"),
    ("shift-right-arithmetic", "u8", [255], [8], [255], "an unsigned operand is shifted as if signed"),
    ("mulhi", "u32", [2**32 - 1, 2**31], [2**32 - 1, 2], [2**32 - 2, 1], "not in this XLA"),
    ("mulhi", "s32", [-1, 2**31 - 1], [1, 2**31 - 1], [-1, 2**30 - 1], "not in this XLA"),
    ("mulhi", "u64", [2**64 - 1, 2**63], [2**64 - 1, 6], [2**64 - 2, 3], "not in this XLA"),
    ("mulhi", "s64", [-1, 2**63 - 1, -(2**63)], [1, 2**63 - 1, 4], [-1, 2**62 - 1, -2], "not in this XLA"),
    ("maximum", "c64", [1 + 2j, 1 + 3j], [1 + 3j, 1 + 2j], [1 + 3j, 1 + 3j], "XLA's CPU code takes lhs on ties of the real part"),
    ("minimum", "c64", [1 + 2j, 1 + 3j], [1 + 3j, 0 + 9j], [1 + 2j, 0 + 9j], "XLA's CPU code takes lhs on ties of the real part"),
    ("power", "c64", [0, 0, 2], [0, 2, 3], [1, 0, 8], "0^0 is 1"),
    ("power", "c64", [complex(INF, 1), complex(NAN, 0), 1, 1], [0, 0, complex(INF, -1), NAN], [1, 1, 1, 1], "C's pow"),
]


@pytest.mark.parametrize(("opcode", "text", "lhs", "rhs", "result", "why"), BINARY_VALUES)
def test_binary_values(opcode: str, text: str, lhs: list[float], rhs: list[float], result: list[float], why: str) -> None:
    a, b, want = (np.array(v, dtype_of(text)) for v in (lhs, rhs, result))
    assert_agree(run_ours(elementwise_hlo(opcode, [(text, a), (text, b)], text), a, b), want, 4)


# Constants take other ways through the bodies than arrays: as Python numbers, on either side.
CONSTANTS = [
    ("s32", "divide remainder power shift-left shift-right-logical maximum", "0 1 -1 3 32 -2147483648"),
    ("u32", "divide remainder shift-right-arithmetic shift-right-logical minimum", "0 1 7 16 4294967295"),
    ("f32", "divide remainder power maximum minimum atan2", "0.5 -0.5 0 2 3 nan inf"),
    ("c64", "add divide", "(0,2) (1,inf)"),
    ("s4", "shift-right-logical multiply", "2"),
    ("u8", "divide subtract", "16"),
]
# XLA's CPU code takes exponents of integers modulo 128 (see above), and makes of a power of -1 a division
UNFIT = {("s32", "power", base, True) for base in ("-2147483648", "3", "-1", "0", "32")} | {("s32", "power", "-1", False)}


@needs_xla
@pytest.mark.parametrize(("text", "opcode", "constant", "constant_first"), [
    case for text, opcodes, constants in CONSTANTS
    for case in itertools.product([text], opcodes.split(), constants.split(), [False, True]) if case not in UNFIT])
def test_constant_operand(text: str, opcode: str, constant: str, constant_first: bool) -> None:
    values = special_values(text)
    values = values[np.isfinite(values)] if text in COMPLEX else values
    operands = "c, p" if constant_first else "p, c"
    hlo = f"""HloModule test

ENTRY entry {{
  p = {text}[{len(values)}] parameter(0)
  s = {text}[] constant({constant})
  c = {text}[{len(values)}] broadcast(s), dimensions={{}}
  ROOT r = {text}[{len(values)}] {opcode}({operands})
}}"""
    assert_agree(*run_both(hlo, values), 2, (values,), signed_zero=False)


@pytest.mark.parametrize("text", FLOATS)
@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("constant", [1.0, 3.0, -0.7, 1e4])
def test_quotients_with_a_constant_are_rounded_once(constant: float, constant_first: bool, text: str) -> None:
    """As NumPy's. (Of a constant divisor XLA's CPU code takes the reciprocal, and so rounds twice.)"""
    values = np.random.default_rng(0).normal(size=500).astype(dtype_of(text))
    number = np.array(constant).astype(values.dtype)
    hlo = f"""ENTRY entry {{
  p = {text}[500] parameter(0)
  s = {text}[] constant({number})
  c = {text}[500] broadcast(s), dimensions={{}}
  ROOT r = {text}[500] divide({"c, p" if constant_first else "p, c"})
}}"""
    with np.errstate(over="ignore"):
        want = number / values if constant_first else values / number
    assert_agree(run_ours(hlo, values), want, 0, (values,))


# The counter of a loop stays a Python integer while the program runs; elementwise ops meet it as either operand.
WITH_COUNTER = [*(f"xor(s32[4] {o}(x, b), s32[4] {o}(b, x))" for o in (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "shift-left",
    "shift-right-arithmetic", "shift-right-logical")), "power(x, b)", "clamp(i, x, three)", "clamp(b, x, t)", "clamp(t, b, x)",
    "select(pred[4] compare(x, b), b, x)", "select(pred[4] compare(b, x), x, b)", "select(pred[4] compare(b, t), b, t)"]


@needs_xla
@pytest.mark.parametrize("call", WITH_COUNTER)
def test_loop_counter_as_operand(call: str) -> None:
    lines = call_lines(call)
    hlo = f"""HloModule test

cond {{
  q = (s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}}

body {{
  q = (s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(q), index=0
  x = s32[4] get-tuple-element(q), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = s32[4] broadcast(i), dimensions={{}}
  three = s32[] constant(3)
  t = s32[4] broadcast(three), dimensions={{}}
{lines}
  ROOT r = (s32[], s32[4]) tuple(j, y)
}}

ENTRY entry {{
  z = s32[] constant(0)
  p = s32[4] parameter(0)
  s = (s32[], s32[4]) tuple(z, p)
  w = (s32[], s32[4]) while(s), condition=cond, body=body
  ROOT o = s32[4] get-tuple-element(w), index=1
}}"""
    x = np.array([-7, 100, 3, 2**30], np.int32)
    assert_agree(*run_both(hlo, x), inputs=(x,))


def call_lines(call: str) -> str:
    """A call with calls for operands as one HLO line for each; the last is named y."""
    lines: list[str] = []
    while inner := re.search(r"(\w+\[4\]) ([\w-]+)(\([^()]*\))", call):
        shape, opcode, operands = inner.groups()
        attributes = ", direction=GT" if opcode == "compare" else ""
        lines.append(f"  v{len(lines)} = {shape} {opcode}{operands}{attributes}")
        call = call.replace(inner.group(), f"v{len(lines) - 1}")
    return "\n".join([*lines, f"  y = s32[4] {call}"])


def test_complex_atan2() -> None:
    y, x = torch.tensor([1 + 0j, 2 + 1j, 0.5 - 1j]), torch.tensor([1 + 0j, 0.5 + 0.25j, -2 + 1j])
    torch.testing.assert_close(torch.tan(ops.Atan2(y, x)), y / x)


# ------------------------------------------------------------------------------------------- what XLA refuses

REFUSED = [
    ("abs", ["u32[2]"], "element type"),
    ("abs", ["pred[2]"], "element type"),
    ("negate", ["pred[2]"], "element type"),
    ("sign", ["u8[2]"], "element type"),
    ("ceil", ["c64[2]"], "element type"),
    ("cbrt", ["c64[2]"], "element type"),
    ("popcnt", ["pred[2]"], "element type"),
    ("sine", ["s32[2]"], "element type"),
    ("is-finite", ["s32[2]"], "element type"),
    ("not", ["f32[2]"], "element type"),
    ("sqrt", ["(f32[2])"], "not an array"),
    ("add", ["f32[2]", "s32[2]"], "different element types"),
    ("add", ["f32[2]", "f32[3]"], "incompatible shapes"),
    ("add", ["f32[2]", "f32[1]"], "incompatible shapes"),
    ("add", ["f32[2]", "f32[]"], "incompatible shapes"),
    ("add", ["f32[2]", "token[]"], "not an array"),
    ("subtract", ["pred[2]", "pred[2]"], "element type"),
    ("divide", ["pred[2]", "pred[2]"], "element type"),
    ("remainder", ["c64[2]", "c64[2]"], "element type"),
    ("power", ["pred[2]", "pred[2]"], "element type"),
    ("atan2", ["s32[2]", "s32[2]"], "element type"),
    ("and", ["f32[2]", "f32[2]"], "element type"),
    ("shift-left", ["pred[2]", "pred[2]"], "element type"),
    ("complex", ["bf16[2]", "bf16[2]"], "cannot be made"),
    ("complex", ["f32[2]", "f64[2]"], "cannot be made"),
    ("clamp", ["f32[]", "f32[2]", "s32[]"], "different element types"),
    ("clamp", ["f32[2]", "f32[]", "f32[2]"], "incompatible shapes"),
    ("select", ["s32[2]", "f32[2]", "f32[2]"], "PRED"),
    ("select", ["pred[3]", "f32[2]", "f32[2]"], "incompatible shapes"),
    ("select", ["pred[2]", "f32[2]", "f32[3]"], "incompatible shapes"),
    ("select", ["pred[2]", "f32[2]", "s32[2]"], "different element types"),
]


@pytest.mark.parametrize(("opcode", "shapes", "message"), REFUSED)
def test_refused_operands(opcode: str, shapes: list[str], message: str) -> None:
    builder = XlaBuilder("test")
    operands = [builder.parameter(i, Shape.parse(s)) for i, s in enumerate(shapes)]
    with pytest.raises(InvalidArgument, match=message) as caught:
        builder.add(opcode, operands)
    assert str(caught.value).startswith(opcode)


SHAPES = [
    ("f32[2,<=3]", "f32[2,3]", "f32[2,<=3]"),
    ("f32[?,3]", "f32[2,3]", "f32[2,3]"),
    ("f32[?]", "f32[?]", "f32[?]"),
    ("f32[?]", "f32[<=4]", "f32[<=4]"),
    ("f32[0,2]", "f32[0,2]", "f32[0,2]"),
]


@pytest.mark.parametrize(("lhs", "rhs", "result"), SHAPES)
def test_shapes_of_binary_ops(lhs: str, rhs: str, result: str) -> None:
    builder = XlaBuilder("test")
    operands = [builder.parameter(i, Shape.parse(s)) for i, s in enumerate((lhs, rhs))]
    assert str(builder.add("add", operands).shape) == result
    assert str(builder.add("add", operands[::-1]).shape) == result


# ------------------------------------------------------------------------------------------- generated code

CODE = [
    ("add(p, q)", "f32", "p + q"),
    ("multiply(p, c)", "f32", "p * 3.0"),
    ("divide(c, p)", "f32", "kernels.elementwise.quotient(3.0, p)"),
    ("maximum(p, q)", "f32", "torch.maximum(p, q)"),
    ("maximum(p, c)", "f32", "torch.clamp_min(p, 3.0)"),
    ("tanh(p)", "f32", "torch.tanh(p)"),
    ("logistic(p)", "f64", "torch.sigmoid(p)"),
    ("xor(p, q)", "s32", "p ^ q"),
    ("shift-left(p, c)", "s32", "p << 3"),
    ("select(b, p, q)", "f32", "torch.where(b, p, q)"),
    ("clamp(c, p, c)", "f32", "torch.clamp(p, 3.0, 3.0)"),
    ("clamp(c, p, c)", "s32", "torch.clamp(p, 3, 3)"),
]


@pytest.mark.parametrize(("call", "text", "code"), CODE)
def test_plain_cases_are_one_call(call: str, text: str, code: str) -> None:
    hlo = f"""HloModule test

ENTRY entry {{
  p = {text}[4] parameter(0)
  q = {text}[4] parameter(1)
  b = pred[4] parameter(2)
  s = {text}[] constant(3)
  c = {text}[4] broadcast(s), dimensions={{}}
  ROOT r = {text}[4] {call}
}}"""
    lines = [line.split("#")[0].strip() for line in xla_torch.parse_hlo(hlo).python_code().splitlines()[1:]]
    assert len(lines) == 2
    assert lines[0].split(" = ", 1)[1] == code


# ------------------------------------------------------------------------------------------- documented functions


FUNCTIONS = [
    (ops.Abs, [-1.5], 1.5), (ops.Cbrt, [-8.0], -2.0), (ops.Ceil, [0.2], 1.0), (ops.Cos, [0.0], 1.0), (ops.Erf, [0.0], 0.0),
    (ops.Exp, [0.0], 1.0), (ops.Expm1, [0.0], 0.0), (ops.Floor, [-0.5], -1.0), (ops.Log, [1.0], 0.0), (ops.Log1p, [0.0], 0.0),
    (ops.Logistic, [0.0], 0.5), (ops.Neg, [2.0], -2.0), (ops.Round, [2.5], 3.0), (ops.RoundNearestAfz, [-2.5], -3.0),
    (ops.RoundNearestEven, [2.5], 2.0), (ops.Rsqrt, [4.0], 0.5), (ops.Sign, [-3.0], -1.0), (ops.Sin, [0.0], 0.0),
    (ops.Sqrt, [9.0], 3.0), (ops.Tan, [0.0], 0.0), (ops.Tanh, [0.0], 0.0), (ops.Acos, [1.0], 0.0), (ops.Acosh, [1.0], 0.0),
    (ops.Asin, [0.0], 0.0), (ops.Asinh, [0.0], 0.0), (ops.Atan, [0.0], 0.0), (ops.Atanh, [0.0], 0.0), (ops.Cosh, [0.0], 1.0),
    (ops.Sinh, [0.0], 0.0), (ops.Real, [1.5], 1.5), (ops.Imag, [1.5], 0.0), (ops.Conj, [1.5], 1.5), (ops.Square, [3.0], 9.0),
    (ops.Reciprocal, [4.0], 0.25), (ops.IsFinite, [INF], False), (ops.Clz, [1], 63), (ops.PopulationCount, [7], 3),
    (ops.Not, [5], -6), (ops.LogicalNot, [True], False),
    (ops.Add, [1, 2], 3), (ops.Sub, [1, 2], -1), (ops.Mul, [3, 2], 6), (ops.Div, [-7, 2], -3), (ops.Rem, [-7, 2], -1),
    (ops.Max, [1, 2], 2), (ops.Min, [1, 2], 1), (ops.Pow, [2.0, 3.0], 8.0), (ops.Atan2, [0.0, 1.0], 0.0), (ops.And, [6, 3], 2),
    (ops.Or, [6, 3], 7), (ops.Xor, [6, 3], 5), (ops.LogicalAnd, [True, False], False), (ops.LogicalOr, [True, False], True),
    (ops.ShiftLeft, [1, 4], 16), (ops.ShiftRightArithmetic, [-16, 2], -4), (ops.ShiftRightLogical, [-1, 63], 1),
    (ops.Complex, [1.0, 2.0], 1 + 2j), (ops.Mulhi, [2**62, 8], 2), (ops.Eq, [1, 2], False), (ops.Ne, [1, 2], True),
    (ops.Ge, [1, 2], False), (ops.Gt, [1, 2], False), (ops.Le, [1, 2], True), (ops.Lt, [1, 2], True),
    (ops.EqTotalOrder, [NAN, NAN], True), (ops.NeTotalOrder, [0.0, -0.0], True), (ops.LtTotalOrder, [-0.0, 0.0], True),
    (ops.LeTotalOrder, [INF, NAN], True), (ops.GtTotalOrder, [0.0, -0.0], True), (ops.GeTotalOrder, [-INF, NAN], False),
    (ops.LtTotalOrder, [1, 2], True), (ops.Clamp, [0, -1, 6], 0), (ops.Select, [True, 1, 2], 1),
    (ops.NextAfter, [1.0, 2.0], 1.0000001192092896), (ops.NextAfter, [0.0, -1.0], -1.401298464324817e-45),
    (ops.NextAfter, [1.0, -1.0], 0.9999999403953552), (ops.NextAfter, [1.0, 1.0], 1.0), (ops.NextAfter, [NAN, 1.0], NAN),
]


@pytest.mark.parametrize(("function", "operands", "result"), FUNCTIONS, ids=lambda v: getattr(v, "__name__", None))
def test_documented_functions(function: Any, operands: list, result: Any) -> None:
    got = function(*(torch.tensor(v) for v in operands)).numpy()
    assert got.shape == ()
    np.testing.assert_allclose(got, result, rtol=1e-6, atol=1e-45 if function is ops.NextAfter else 0)


def test_functions_need_an_op() -> None:
    with pytest.raises(InvalidArgument, match="at least one operand must be an XlaOp"):
        ops.Add(1, 2)
    empty = ops.Tuple(XlaBuilder("test"), [])
    with pytest.raises(InvalidArgument, match="not an array"):
        ops.Add(empty, 1)


def test_accuracy_is_an_attribute() -> None:
    from xla_torch.hlo.attributes import ResultAccuracy

    builder = XlaBuilder("test")
    op = ops.Exp(builder.parameter(0, Shape.parse("f32[2]")), ResultAccuracy("highest"))
    assert "result_accuracy={mode=highest}" in builder.build(op).to_hlo_text()
