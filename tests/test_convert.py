"""Conversions of value, of bits and of precision: against real XLA for every pair of types, and the documents' examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from agreement import (
    ALL,
    COMPLEX,
    FLOATS,
    INTS,
    NARROW_FLOATS,
    NARROW_INTS,
    assert_agree,
    dtype_of,
    element_type,
    element_type_of,
    elementwise_hlo,
    run_both,
    run_ours,
    special_values,
)
from oracle import needs_xla, run_xla
from xla_torch import ops
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.shape import Shape
from xla_torch.types import BF16, C64, C128, F16, F32, PRED, S32, TUPLE, U4, U8

NAN, INF = math.nan, math.inf

# ------------------------------------------------------------------------------------------- convert


def targets_of(source: str) -> list[str]:
    """What real XLA converts to: of complex numbers no PRED, and the F4 type to no integers (there it takes 6 for infinite)."""
    unfit = ("pred",) if source in COMPLEX else (*INTS, *NARROW_INTS) if source == "f4e2m1fn" else ()
    return [t for t in ALL if t not in unfit and t != source]


def values_of(source: str) -> np.ndarray:
    values = special_values(source)
    if source in FLOATS:  # around the limits of the integer and the narrow float types
        with np.errstate(all="ignore"):
            limits = np.array([2.0**k for k in range(-12, 65)])
            limits = np.concatenate([limits, limits * (1 - 2.0**-9), limits * (1 + 2.0**-9), limits * 1.5])
            values = np.concatenate([values, limits.astype(values.dtype), -limits.astype(values.dtype)])
    return values


@needs_xla
@pytest.mark.parametrize("source", ALL)
def test_convert_agrees_with_xla(source: str) -> None:
    """One program converts to all types."""
    values, targets = values_of(source), targets_of(source)
    count = len(values)
    lines = [f"  c{t} = {t}[{count}] convert(p)" for t in targets]
    shapes, names = ", ".join(f"{t}[{count}]" for t in targets), ", ".join(f"c{t}" for t in targets)
    hlo = "\n".join(["HloModule test", "", "ENTRY entry {", f"  p = {source}[{count}] parameter(0)", *lines,
                     f"  ROOT r = ({shapes}) tuple({names})", "}"])
    for target, got, want in zip(targets, xla_torch.parse_hlo(hlo).run_numpy(values), run_xla(hlo, values), strict=True):
        try:
            assert_agree(got, want, inputs=(values,))
        except AssertionError as error:
            raise AssertionError(f"to {target}: {error}") from None


CONVERTED = [
    ("s32", "s8", [300], [44]), ("s32", "u8", [-129], [127]), ("s32", "s4", [100], [4]), ("s32", "s2", [2], [-2]),
    ("f32", "s32", [1e20, -1e20, NAN, INF, 2147483520.0], [2147483647, -(2**31), 0, 2147483647, 2147483520]),
    ("f32", "u8", [-3.9, 300.0], [0, 255]), ("f32", "s4", [INF, -INF], [7, -8]), ("f32", "s2", [3.9], [1]),
    ("f32", "u32", [4294967040.0, 4294967296.0, -1.0, 3e9], [4294967040, 2**32 - 1, 0, 3000000000]),
    ("f32", "u64", [2.0**63, 1e30, NAN], [2**63, 2**64 - 1, 0]), ("f64", "s64", [2.0**63, -(2.0**63)], [2**63 - 1, -(2**63)]),
    ("bf16", "u16", [65535.0, 300.0], [65535, 300]), ("f16", "s64", [-INF, 65504.0], [-(2**63), 65504]),
    ("s32", "f32", [16777219], [16777220]), ("s64", "f64", [2**53 + 1], [2**53]),
    ("u64", "f32", [2**64 - 1, 2**63 + 2**39 + 1], [2.0**64, 2.0**63 + 2.0**40]),
    ("u32", "s64", [2**32 - 1], [2**32 - 1]), ("u16", "f32", [65535], [65535.0]), ("u32", "f64", [2**31], [2.0**31]),
    ("f64", "f16", [1 + 2**-11 + 2**-40, 1e300, 1e-300], [1 + 2**-10, INF, 0.0]),
    ("f32", "pred", [NAN, -0.0, 0.5], [True, False, True]), ("pred", "f32", [True, False], [1.0, 0.0]),
    ("c64", "pred", [1j, 0j], [True, False]), ("f32", "c64", [2.0], [2 + 0j]), ("u32", "c128", [2**32 - 1], [2.0**32 - 1]),
    ("f32", "f8e5m2", [300.0, 1e6], [320.0, INF]), ("f32", "f8e4m3fn", [300.0, 464.0, 465.0], [288.0, 448.0, NAN]),
    ("f32", "f8e4m3b11fnuz", [300.0, -0.0], [NAN, 0.0]), ("f32", "f8e3m4", [256.0], [INF]),
    ("f32", "f4e2m1fn", [9.0, -9.0, NAN], [6.0, -6.0, -0.0]), ("f32", "f8e8m0fnu", [3.0, -1.0, 0.0], [4.0, NAN, NAN]),
    ("f4e2m1fn", "s32", [6.0, -6.0], [6, -6]),
]


def array_of(values: list[Any], text: str) -> np.ndarray:
    if element_type(text).is_integral and element_type(text).bits > 8:
        return np.array(values, dtype_of(text))
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype_of(text))


@pytest.mark.parametrize(("source", "target", "operand", "result"), CONVERTED)
def test_converted_values(source: str, target: str, operand: list[Any], result: list[Any]) -> None:
    values, want = array_of(operand, source), array_of(result, target)
    assert_agree(run_ours(elementwise_hlo("convert", [(source, values)], target), values), want, inputs=(values,))


def test_conversion_copies_what_it_does_not_change() -> None:
    """The result never shares memory with the argument."""
    x = torch.arange(4, dtype=torch.int32)
    for y in (ops.ConvertElementType(x, S32), ops.ConvertElementType(x, xla_torch.types.U32)):
        assert y.data_ptr() != x.data_ptr()


# ------------------------------------------------------------------------------------------- stochastic-convert


@needs_xla
@pytest.mark.parametrize("target", ["s8", "s16", "s32", "s64"])
@pytest.mark.parametrize(("source", "random"), [("f32", "u32"), ("f16", "u16"), ("f64", "u64"), ("bf16", "u16")])
def test_stochastic_convert_agrees_with_xla(source: str, random: str, target: str) -> None:
    values = special_values(source)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, np.iinfo(dtype_of(random)).max, len(values), dtype_of(random), endpoint=True)
    hlo = elementwise_hlo("stochastic-convert", [(source, values), (random, bits)], target)
    assert_agree(*run_both(hlo, values, bits), inputs=(values, bits))


def test_stochastic_convert_rounds_by_the_random_bits() -> None:
    x, random = torch.tensor([1.5, 1.5, -1.5, NAN]), torch.tensor([0, 2**31, 0, 0], dtype=torch.uint32)
    assert ops.StochasticConvertType(x, random, S32).tolist() == [2, 1, -2, 0]
    with pytest.raises(UnsupportedError, match="stochastic conversion"):
        ops.StochasticConvertType(x, random, BF16)


# ------------------------------------------------------------------------------------------- reduce-precision

WIDTHS = [(5, 10), (8, 7), (4, 3), (5, 2), (1, 0), (3, 4), (2, 1), (8, 23), (11, 52)]


@needs_xla
@pytest.mark.parametrize("text", FLOATS)
@pytest.mark.parametrize(("exponent_bits", "mantissa_bits"), WIDTHS)
def test_reduce_precision_agrees_with_xla(exponent_bits: int, mantissa_bits: int, text: str) -> None:
    rng = np.random.default_rng(0)
    random = rng.normal(size=2000) * 2.0 ** rng.integers(-14, 14, 2000)
    values = np.concatenate([special_values(text), random.astype(dtype_of(text))])
    attributes = f", exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
    assert_agree(*run_both(elementwise_hlo("reduce-precision", [(text, values)], text, attributes), values), inputs=(values,))


REDUCED = [
    (5, 10, [65519.99, 65520.0, 6e-8, 5.9e-5], [65504.0, INF, 0.0, 0.0]),
    (4, 3, [248.0, 247.0, 0.014], [INF, 240.0, 0.0]),
    (8, 7, [1e-40, NAN], [9.183549615799121e-41, NAN]),
    (1, 0, [0.5, 1.0, 1.5, 2.0, 3.0, 1.2], [0.0, 0.0, INF, INF, INF, 0.0]),
]


@pytest.mark.parametrize(("exponent_bits", "mantissa_bits", "operand", "result"), REDUCED)
def test_reduced_values(exponent_bits: int, mantissa_bits: int, operand: list[float], result: list[float]) -> None:
    got = ops.ReducePrecision(torch.tensor(operand), exponent_bits, mantissa_bits)
    torch.testing.assert_close(got, torch.tensor(result), equal_nan=True, rtol=0, atol=0)


def test_reduce_precision_of_a_narrow_type() -> None:
    x = torch.tensor([1.125, 1.375, 192.0, 2.0**-9, -0.25]).to(torch.float8_e4m3fn)
    assert ops.ReducePrecision(x, 4, 1).to(torch.float32).tolist() == [1.0, 1.5, 192.0, 0.0, -0.25]
    assert torch.equal(ops.ReducePrecision(x, 5, 3).to(torch.float32), x.to(torch.float32))


# ------------------------------------------------------------------------------------------- bitcast-convert

BITCASTS = [
    ("f32", (3, 4), "s32", (3, 4)), ("f32", (3, 4), "u8", (3, 4, 4)), ("u8", (3, 4, 4), "f32", (3, 4)), ("f32", (), "u8", (4,)),
    ("u8", (4,), "f32", ()), ("f32", (3,), "f16", (3, 2)), ("bf16", (3, 2), "f32", (3,)), ("u64", (5,), "f64", (5,)),
    ("u32", (5, 2), "u64", (5,)), ("u16", (9,), "s16", (9,)), ("s8", (9,), "u8", (9,)), ("u8", (5,), "u4", (5, 2)),
    ("u4", (5, 2), "u8", (5,)), ("u8", (5,), "s4", (5, 2)), ("s4", (5, 2), "s8", (5,)), ("f32", (5,), "u4", (5, 8)),
    ("u4", (5, 8), "f32", (5,)), ("u4", (5,), "u2", (5, 2)), ("u2", (5, 2), "s4", (5,)), ("s4", (16,), "u4", (16,)),
    ("f4e2m1fn", (16,), "u4", (16,)), ("s4", (16,), "f4e2m1fn", (16,)), ("u8", (9,), "f4e2m1fn", (9, 2)),
    ("f4e2m1fn", (9, 2), "s8", (9,)), ("u16", (0, 3), "u8", (0, 3, 2)), ("u8", (0, 3, 2), "u16", (0, 3)),
    ("u4", (0, 2), "u8", (0,)), ("u32", (9,), "f8e5m2fnuz", (9, 4)), ("f8e4m3fn", (9,), "u4", (9, 2)),
    *((f, (256,), "u8", (256,)) for f in (*NARROW_FLOATS[:-1], "f8e8m0fnu")),
    *(("s8", (256,), f, (256,)) for f in (*NARROW_FLOATS[:-1], "f8e8m0fnu")),
    ("f8e4m3fnuz", (9, 2), "u16", (9,)), ("u4", (9, 2), "f8e3m4", (9,)), ("s2", (16,), "u2", (16,)), ("u8", (5,), "s2", (5, 4)),
    ("s2", (5, 4), "u8", (5,)), ("s16", (3,), "s4", (3, 4)), ("s4", (3, 4), "s16", (3,)), ("s2", (3, 8), "u16", (3,)),
    ("u16", (3,), "s2", (3, 8)), ("f4e2m1fn", (3, 4), "u16", (3,)), ("u32", (3,), "f4e2m1fn", (3, 8)),
    ("f8e4m3fn", (3, 4), "u32", (3,)), ("f64", (3,), "u2", (3, 32)), ("s4", (3,), "s2", (3, 2)), ("s2", (3, 2), "u4", (3,)),
]


@needs_xla
@pytest.mark.parametrize(("source", "dims", "target", "result"), BITCASTS)
def test_bitcast_agrees_with_xla(source: str, dims: tuple[int, ...], target: str, result: tuple[int, ...]) -> None:
    kind = element_type(source)
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 1 << min(kind.bits, 8), math.prod(dims) * kind.itemsize, np.uint8)
    values = (np.arange(256, dtype=np.uint8) if dims == (256,) else raw).view(dtype_of(source)).reshape(dims)
    hlo = f"""HloModule test

ENTRY entry {{
  p = {source}[{",".join(map(str, dims))}] parameter(0)
  ROOT r = {target}[{",".join(map(str, result))}] bitcast-convert(p)
}}"""
    got, want = run_both(hlo, values)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    same = (got[..., None].view(np.uint8) == want[..., None].view(np.uint8)).all(-1)
    assert (same | is_narrow_nan(want) | (is_narrow_nan(values) if values.shape == want.shape else False)).all()


def is_narrow_nan(values: np.ndarray) -> np.ndarray:
    """Where a float of 8 bits is NaN: in its carrier it keeps no payload."""
    if not element_type_of(values).is_floating or values.dtype.itemsize > 1:
        return np.zeros(values.shape, bool)
    with np.errstate(all="ignore"):
        return np.isnan(values.astype(np.float32))


def test_bitcast_of_no_elements_with_any_strides() -> None:
    nothing = torch.empty(0, 1, dtype=torch.int8).expand(0, 2)
    assert nothing.stride() == (1, 0)
    assert ops.BitcastConvertType(nothing, F16).shape == (0,)


def test_document_examples_of_bitcast() -> None:
    assert ops.BitcastConvertType(torch.tensor(1.0), U8).tolist() == [0, 0, 128, 63]
    assert ops.BitcastConvertType(torch.tensor([0x21], dtype=torch.uint8), U4).tolist() == [[1, 2]]
    assert ops.BitcastConvertType(torch.zeros(10), F16).shape == (10, 2)
    assert ops.BitcastConvertType(torch.zeros(10, 2, dtype=torch.float16), F32).shape == (10,)
    assert ops.BitcastConvertType(torch.tensor([1, 0], dtype=torch.uint8), PRED).tolist() == [True, False]
    assert ops.BitcastConvertType(torch.tensor([True, False]), U8).tolist() == [1, 0]
    assert ops.BitcastConvertType(torch.tensor([1 + 2j]), C64).tolist() == [1 + 2j]
    assert ops.BitcastConvertType(torch.tensor([1 + 2j]).to(torch.complex128), C64).shape == (1, 2)


# ------------------------------------------------------------------------------------------- what XLA refuses

REFUSED = [
    (lambda p: ops.ConvertElementType(p, TUPLE), "f32[2]", "not an element type of arrays"),
    (lambda p: ops.ConvertElementType(p, F32), "token[]", "not an array"),
    (lambda p: ops.BitcastConvertType(p, TUPLE), "f32[2]", "not an element type of arrays"),
    (lambda p: ops.BitcastConvertType(p, C64), "f64[2]", "complex and real"),
    (lambda p: ops.BitcastConvertType(p, F32), "c64[2]", "complex and real"),
    (lambda p: ops.BitcastConvertType(p, F32), "f16[3]", "last dimension"),
    (lambda p: ops.BitcastConvertType(p, F32), "f16[]", "last dimension"),
    (lambda p: ops.BitcastConvertType(p, C128), "c64[3]", "last dimension"),
    (lambda p: ops.ReducePrecision(p, 0, 3), "f32[2]", "exponent bits"),
    (lambda p: ops.ReducePrecision(p, 1, -1), "f32[2]", "mantissa bits"),
    (lambda p: ops.ReducePrecision(p, 5, 10), "s32[2]", "element type"),
    (lambda p: ops.StochasticConvertType(p, ops.BitcastConvertType(p, S32), S32), "f32[2]", "element type"),
    (lambda p: ops.StochasticConvertType(p, p.builder.parameter(1, Shape.parse("u16[2]")), S32), "f32[2]", "another width"),
    (lambda p: ops.StochasticConvertType(p, p.builder.parameter(1, Shape.parse("u32[3]")), S32), "f32[2]", "incompatible"),
    (lambda p: ops.NextAfter(p, p), "s32[2]", "neighbours"),
]


@pytest.mark.parametrize(("function", "shape", "message"), REFUSED)
def test_refused(function: Any, shape: str, message: str) -> None:
    operand = XlaBuilder("test").parameter(0, Shape.parse(shape))
    with pytest.raises(InvalidArgument, match=message):
        function(operand)


def test_bitcast_keeps_dynamic_dimensions() -> None:
    builder = XlaBuilder("test")
    p = builder.parameter(0, Shape.parse("f32[<=4]"))
    assert str(ops.BitcastConvertType(p, F16).shape) == "f16[<=4,2]"
    assert str(ops.ConvertElementType(p, BF16).shape) == "bf16[<=4]"
