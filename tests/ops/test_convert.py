"""Conversions of value, of bits and of precision: against real XLA for every pair of types, and the documents' examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import (
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
from support.oracle import needs_xla, run_xla
from xla_torch import ops
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.shape import Shape
from xla_torch.storage.dtypes import torch_dtype
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

WIDTHS = [(5, 10), (8, 7), (4, 3), (5, 2), (3, 4), (2, 1), (8, 23), (11, 52), *((bits, 0) for bits in range(1, 13))]


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
    """Where a float of 8 bits is NaN: in its storage dtype it keeps no payload."""
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


# ------------------------------------------------------------------------------------------------ floats of 6 bits, and NaNs

CODES = np.arange(256, dtype=np.uint8)
SIX_BITS = ("f6e2m3fn", "f6e3m2fn")
SEVERAL_NANS = ("f8e5m2", "f8e4m3", "f8e3m4", "f8e4m3fn")


def _run(text: str, *arrays: np.ndarray) -> np.ndarray:
    found = xla_torch.parse_hlo(f"ENTRY m {{ {text} }}").run_numpy(*arrays)
    return np.asarray(found[0] if isinstance(found, tuple) else found)


@pytest.mark.parametrize("kind", SIX_BITS)
def test_floats_of_six_bits(kind: str) -> None:
    """XLA's parser knows them and its CPU does not: ml_dtypes says what numbers they are."""
    dtype, values = dtype_of(kind), CODES[:64].view(dtype_of(kind))
    numbers = values.astype(np.float32)
    pair = f"x = {kind}[64] parameter(0); y = {kind}[64] reverse(x), dimensions={{0}}; ROOT r = {kind}[64]".replace(";", "\n")
    for opcode, function in (("add", np.add), ("multiply", np.multiply), ("maximum", np.maximum)):
        want = function(numbers, numbers[::-1]).astype(dtype)
        assert _run(f"{pair} {opcode}(x, y)", values).view(np.uint8).tolist() == want.view(np.uint8).tolist()
    exponentials = _run(f"{pair} exponential(x)", values).astype(np.float32)
    assert exponentials.tolist() == np.exp(numbers).astype(dtype).astype(np.float32).tolist()
    other = SIX_BITS[1 - SIX_BITS.index(kind)]
    bits = _run(f"x = {kind}[64] parameter(0)\n ROOT r = {other}[64] bitcast-convert(x)", values)
    assert bits.dtype == dtype_of(other)
    assert bits.view(np.uint8).tolist() == CODES[:64].tolist()
    assert _run(f"ROOT c = {kind}[3] constant({{1, 2.2, 100}})").tolist() == np.array([1, 2.2, 100]).astype(dtype).tolist()
    integers = _run(f"x = s32[4] parameter(0)\n ROOT r = {kind}[4] convert(x)", np.array([3, -100, 0, 5], np.int32))
    assert integers.tolist() == np.array([3, -100, 0, 5]).astype(dtype).tolist()


@pytest.mark.parametrize("kind", SIX_BITS)
def test_floats_of_six_bits_in_stablehlo(kind: str) -> None:
    name = f"tensor<3xf{kind[1:].upper()}>"
    text = f"""func.func @main(%a: {name}) -> tensor<3xf32> {{
      %c = stablehlo.constant dense<[1.0, 2.0, 7.0]> : {name}
      %0 = stablehlo.add %a, %c : {name}
      %1 = stablehlo.convert %0 : ({name}) -> tensor<3xf32>
      return %1 : tensor<3xf32> }}"""
    program, a = xla_torch.from_stablehlo(text), np.array([0.25, 1, -7]).astype(dtype_of(kind))
    want = np.add(a.astype(np.float32), [1, 2, 7]).astype(dtype_of(kind)).astype(np.float32)
    np.testing.assert_array_equal(np.ravel(program.run_numpy(a)), want)
    with pytest.raises(UnsupportedError, match="no field for constants"):
        program.to_hlo_proto()


@pytest.mark.parametrize("kind", [*SEVERAL_NANS, "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0fnu"])
def test_every_code_survives(kind: str) -> None:
    """Also of NaNs: as argument, as result, through bits and where elements are moved."""
    values = CODES.view(dtype_of(kind))
    for text, given in [
        (f"x = u8[256] parameter(0)\n y = {kind}[256] bitcast-convert(x)\n ROOT r = u8[256] bitcast-convert(y)", CODES),
        (f"x = {kind}[256] parameter(0)\n ROOT r = u8[256] bitcast-convert(x)", values),
        (f"x = u8[256] parameter(0)\n ROOT r = {kind}[256] bitcast-convert(x)", CODES),
        (f"x = {kind}[256] parameter(0)\n y = {kind}[16,16] reshape(x)\n ROOT r = {kind}[256] reshape(y)", values),
        (f"x = {kind}[256] parameter(0)\n i = pred[256] compare(x, x), direction=EQ\n ROOT r = {kind}[256] select(i, x, x)",
         values),
    ]:
        assert _run(text, given).view(np.uint8).tolist() == CODES.tolist(), text
    own = torch_dtype(element_type(kind))
    if own is not torch.float32:
        text = f"ENTRY m {{ x = {kind}[256] parameter(0)\n ROOT r = {kind}[256] reverse(x), dimensions={{0}} }}"
        program = xla_torch.parse_hlo(text)
        assert program(torch.from_numpy(CODES.copy()).view(own)).view(torch.uint8).flip(0).tolist() == CODES.tolist()


@needs_xla
@pytest.mark.parametrize("kind", SEVERAL_NANS)
def test_total_order_of_every_code(kind: str) -> None:
    text = f"""x = {kind}[256] parameter(0)
      y = {kind}[256,256] broadcast(x), dimensions={{0}}
      z = {kind}[256,256] broadcast(x), dimensions={{1}}
      ROOT r = pred[256,256] compare(y, z), direction=LT, type=TOTALORDER"""
    values = CODES.view(dtype_of(kind))
    np.testing.assert_array_equal(_run(text, values), run_xla(f"ENTRY m {{ {text} }}", values)[0])


@needs_xla
@pytest.mark.parametrize("kind", [*SEVERAL_NANS, "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0fnu"])
def test_bits_of_what_is_converted(kind: str) -> None:
    text = f"x = f32[4] parameter(0)\n y = {kind}[4] convert(x)\n ROOT r = u8[4] bitcast-convert(y)"
    given = np.array([np.nan, -np.nan, np.inf, 1], np.float32)
    np.testing.assert_array_equal(_run(text, given), run_xla(f"ENTRY m {{ {text} }}", given)[0])


@pytest.mark.parametrize("kind", [*NARROW_FLOATS, *SIX_BITS, "f8e8m0fnu"])
def test_neighbours_of_every_number(kind: str) -> None:
    values = CODES[:1 << element_type(kind).bits].view(dtype_of(kind))
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values))
    builder = xla_torch.XlaBuilder("neighbours")
    shape = xla_torch.Shape.array(element_type(kind), a.shape)
    program = builder.build(ops.NextAfter(builder.parameter(0, shape), builder.parameter(1, shape)))
    with np.errstate(all="ignore"):
        numbers = values.astype(np.float32)
        grid = np.unique(numbers[~np.isnan(numbers)])
        x, y = a.astype(np.float32), b.astype(np.float32)
        step = np.searchsorted(grid, x) + np.sign(y - x)
        want = np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x == y, y, grid[np.nan_to_num(step).astype(int) % len(grid)]))
        infinite = np.isinf(x) & np.isinf(y)
        want[infinite & (x == y)] = y[infinite & (x == y)]
        far = infinite & (x != y)
        want[far] = np.sign(x[far]) * grid[np.isfinite(grid)].max()
    got = np.asarray(program.run_numpy(a, b), dtype_of(kind)).reshape(-1).astype(np.float32)
    np.testing.assert_array_equal(got, want.astype(np.float32))
