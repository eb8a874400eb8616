"""CHLO, quantized types and the dialects of shapes by the own reader and converter, against XLA or formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from support import oracle
from support.quantized_rows import ROWS as QUANTIZED
from support.quantized_rows import Q
from support.quantized_rows import Row as QuantizedRow
from support.stablehlo_oracle import load_stablehlo
from support.stablehlo_rows import ROWS, Row
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.hlo.ir import Module
from xla_torch.mlir.text.parser import parse
from xla_torch.runtime.static import StaticComputation
from xla_torch.stablehlo.convert import to_module


def run(text: str, *arguments: np.ndarray, shapes: Sequence[tuple[int, ...]] | None = None) -> tuple[np.ndarray, ...]:
    module = to_module(parse(text), argument_shapes=shapes)
    assert isinstance(module, Module)
    return StaticComputation(module).run_numpy(*arguments)


def same(got: Sequence[np.ndarray], expected: Sequence[Any], tolerance: float) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, map(np.asarray, expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(one.astype(wide), other.astype(wide), rtol=tolerance, atol=min(tolerance, 1e-6))


# ------------------------------------------------------------------------------------------------------------- CHLO

CHLO = [row for row in ROWS if row.name.startswith("chlo.")]


@oracle.needs_xla
@pytest.mark.parametrize("row", CHLO, ids=lambda row: row.name)
def test_every_operation_of_chlo(row: Row):
    expected = oracle.run_xla(load_stablehlo(row.program()), *row.arguments) if row.expected is None else [
        np.asarray(row.expected(*row.arguments))]
    same(run(row.program(), *row.arguments), expected, 1e-5)


FUNCTIONS = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "erfc", "erf_inv", "lgamma",
             "digamma", "bessel_i1e", "square", "conj", "is_inf", "is_pos_inf", "is_neg_inf"]
COMPLEX = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "square", "conj", "_asin_acos_kernel"]
NARROW = ["asin", "tan", "erf", "lgamma", "square", "is_inf"]
"""Those that XLA's converter takes of 8 bits."""
POINTS = np.array([-2.5, -1, -0.5, -0.0, 0.0, 0.25, 0.99, 1, 3.5, np.inf, -np.inf, np.nan])
PLANE = np.array([1, -1, 0.5, 2, -3, 0]) + 1j * np.array([0.5, 2, -1, 0, 0, -0.3])
TYPES = {"f8E5M2": (ml_dtypes.float8_e5m2, 0.3), "f8E4M3FN": (ml_dtypes.float8_e4m3fn, 0.3), "f16": (np.float16, 2e-3),
         "bf16": (ml_dtypes.bfloat16, 1.6e-2), "f32": (np.float32, 1e-5), "f64": (np.float64, 1e-12),
         "complex<f32>": (np.complex64, 3e-5), "complex<f64>": (np.complex128, 1e-10)}


@oracle.needs_xla
@pytest.mark.parametrize("element", TYPES)
def test_functions_of_every_element_type(element: str):
    """Special points included. One program has all functions, for XLA takes long to compile one."""
    dtype, tolerance = TYPES[element]
    names = COMPLEX if "complex" in element else NARROW if element.startswith("f8") else FUNCTIONS
    values = (PLANE if "complex" in element else POINTS).astype(dtype)
    given = f"tensor<{len(values)}x{element}>"
    types = [given.replace(element, "i1") if n.startswith("is_") else given for n in names]
    lines = [f'%{k} = "chlo.{n}"(%a) : ({given}) -> {t}' for k, (n, t) in enumerate(zip(names, types, strict=True))]
    results = ", ".join(f"%{k}" for k in range(len(names)))
    of = ", ".join(types)
    text = "\n".join([f"func.func @main(%a: {given}) -> ({of}) {{", *lines, f"return {results} : {of}", "}"])
    expected = oracle.run_xla(load_stablehlo(text), values)
    if "digamma" in names:  # NaN at 0 before jaxlib 0.12
        place = names.index("digamma")
        expected[place] = np.where(values == 0, np.array(-np.inf, dtype), expected[place])
    same(run(text, values), expected, tolerance)


@oracle.needs_xla
@pytest.mark.parametrize("element", ["f8E5M2", "f8E4M3FN", "f8E4M3FNUZ", "f16", "bf16", "f32", "f64"])
def test_next_after(element: str):
    dtype = ml_dtypes.float8_e4m3fnuz if element == "f8E4M3FNUZ" else TYPES[element][0]
    t = f"tensor<12x{element}>"
    text = f"""func.func @main(%a: {t}, %b: {t}) -> {t} {{
      %0 = chlo.next_after %a, %b : {t}, {t} -> {t}
      return %0 : {t} }}"""
    values = POINTS.astype(dtype), POINTS[::-1].astype(dtype)
    same(run(text, *values), oracle.run_xla(load_stablehlo(text), *values), 0)


A = np.random.RandomState(0).rand(2, 3, 4).astype(np.float32)
STEPS, START = A[0, :, :2].copy(), np.ones(2, np.float32)
SUMS, BACK = np.cumsum(STEPS, 0) + START, np.cumsum(STEPS[::-1], 0)[::-1] + START
SCAN = """func.func @main(%a: tensor<3x2xf32>, %c: tensor<2xf32>) -> (tensor<3x2xf32>, tensor<2xf32>) {{
  %0:2 = "chlo.scan"(%a, %c) <{{dimension = 0 : i64, is_reverse = {}, operandSegmentSizes = array<i32: 1, 1>,
                               resultSegmentSizes = array<i32: 1, 1>}}> ({{
  ^bb0(%x: tensor<2xf32>, %y: tensor<2xf32>):
    %1 = stablehlo.add %x, %y : tensor<2xf32>
    stablehlo.return %1, %1 : tensor<2xf32>, tensor<2xf32>
  }}) : (tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3x2xf32>, tensor<2xf32>)
  return %0#0, %0#1 : tensor<3x2xf32>, tensor<2xf32> }}"""

PROGRAMS: dict[str, tuple[str, list[np.ndarray], list[Any]]] = {
    "broadcast_dimensions": ("""func.func @main(%a: tensor<2x3x4xf32>, %b: tensor<2x3xf32>) -> tensor<2x3x4xf32> {
      %0 = "chlo.broadcast_add"(%a, %b) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x3x4xf32>, tensor<2x3xf32>) ->
        tensor<2x3x4xf32>
      return %0 : tensor<2x3x4xf32> }""", [A, A[..., 0].copy()], [A + A[..., :1]]),
    "rank promotion": ("""func.func @main(%a: tensor<4xf32>, %b: tensor<2x3x1xf32>) -> tensor<2x3x4xf32> {
      %0 = chlo.broadcast_subtract %a, %b : (tensor<4xf32>, tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
      return %0 : tensor<2x3x4xf32> }""", [A[0, 0].copy(), A[..., :1].copy()], [A[0, 0] - A[..., :1]]),
    "select": ("""func.func @main(%p: tensor<3x1xi1>, %a: tensor<4xf32>, %b: tensor<2x3x1xf32>) -> tensor<2x3x4xf32> {
      %0 = chlo.broadcast_select %p, %a, %b : (tensor<3x1xi1>, tensor<4xf32>, tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
      return %0 : tensor<2x3x4xf32> }""", [A[0, :, :1] > 0.5, A[0, 0].copy(), A[..., :1].copy()],
               [np.where(A[0, :, :1] > 0.5, A[0, 0], A[..., :1])]),
    "complex constant": ("""func.func @main(%a: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
      %0 = "chlo.constant_like"(%a) {value = #complex.number<:f32 1.0, -2.5> : complex<f32>} : (tensor<2xcomplex<f32>>) ->
        tensor<2xcomplex<f32>>
      return %0 : tensor<2xcomplex<f32>> }""", [START.astype(np.complex64)], [np.full(2, 1 - 2.5j, np.complex64)]),
    "scan": (SCAN.format("false"), [STEPS, START], [SUMS, SUMS[-1]]),
    "scan backwards": (SCAN.format("true"), [STEPS, START], [BACK, BACK[0]]),
    "scan of carries alone": ("""func.func @main(%c: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "chlo.scan"(%c) <{dimension = 0 : i64, scan_dim_size = 3 : i64, operandSegmentSizes = array<i32: 0, 1>,
                             resultSegmentSizes = array<i32: 0, 1>}> ({
      ^bb0(%y: tensor<2xf32>):
        %1 = stablehlo.add %y, %y : tensor<2xf32>
        stablehlo.return %1 : tensor<2xf32>
      }) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }""", [START], [START * 8]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str):
    text, arguments, expected = PROGRAMS[name]
    same(run(text, *arguments), expected, 1e-6)


# ------------------------------------------------------------------------------------------------------------- quantized types


@pytest.mark.parametrize("row", QUANTIZED, ids=lambda row: row.op)
def test_quantized_types(row: QuantizedRow):
    """Functions that differ in the last bit may round to the neighbour, rarely."""
    (got,), expected = run(row.program(), *row.arguments()), row.expected()
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if isinstance(row.result[1], Q):
        assert difference.max() <= 1
        assert np.count_nonzero(difference) <= 0.05 * difference.size
    else:
        assert difference.max() <= 1e-5 * max(1, np.abs(expected).max())


WEIGHTS = np.random.RandomState(0).randint(-100, 100, (4, 6)).astype(np.int8)
SCALES, ZEROS = np.array([[0.5, 0.25, 0.125], [1, 2, 4]], np.float32), np.array([[1, -2, 3], [0, 5, -6]])
BLOCKS = "!quant.uniform<i8:f32:{0:2,1:2}, {" + ", ".join(
    "{" + ", ".join(f"{s}:{z}" for s, z in zip(*row, strict=True)) + "}" for row in zip(SCALES, ZEROS, strict=True)) + "}>"
SCALE, ZERO = (np.repeat(np.repeat(p, 2, 0), 2, 1) for p in (SCALES, ZEROS))
REAL = ((WEIGHTS - ZERO) * SCALE).astype(np.float32)
SUB_CHANNEL = {
    "dequantize": ("(%a: tensor<4x6x{q}>) -> tensor<4x6xf32>",
                   "stablehlo.uniform_dequantize %a : (tensor<4x6x{q}>) -> tensor<4x6xf32>", [WEIGHTS], REAL),
    "quantize": ("(%a: tensor<4x6xf32>) -> tensor<4x6x{q}>",
                 "stablehlo.uniform_quantize %a : (tensor<4x6xf32>) -> tensor<4x6x{q}>", [REAL], WEIGHTS),
    "weights": ("(%x: tensor<3x4xf32>, %a: tensor<4x6x{q}>) -> tensor<3x6xf32>",
                "stablehlo.dot %x, %a : (tensor<3x4xf32>, tensor<4x6x{q}>) -> tensor<3x6xf32>",
                [A[0], WEIGHTS], A[0] @ REAL),
    "add": ("(%a: tensor<4x6x{q}>) -> tensor<4x6xf32>",
            "stablehlo.add %a, %a : (tensor<4x6x{q}>, tensor<4x6x{q}>) -> tensor<4x6xf32>", [WEIGHTS], REAL + REAL),
}


@pytest.mark.parametrize("name", SUB_CHANNEL)
def test_blocks_with_parameters_of_their_own(name: str):
    signature, body, arguments, expected = SUB_CHANNEL[name]
    text = f"func.func @main{signature} {{\n%0 = {body}\nreturn %0 : {signature.partition('-> ')[2]}\n}}".replace("{q}", BLOCKS)
    same(run(text, *arguments), [expected], 1e-5)


def test_blocks_that_do_not_fit():
    signature, body, _, _ = SUB_CHANNEL["dequantize"]
    text = f"func.func @main{signature} {{\n%0 = {body}\nreturn %0 : tensor<4x6xf32>\n}}".replace("{q}", BLOCKS)
    with pytest.raises(InvalidArgument, match="does not fit the array"):
        run(text.replace("4x6x", "4x8x").replace("4x6xf32", "4x8xf32"), np.zeros((4, 8), np.int8))


# ------------------------------------------------------------------------------------------------------------- shapes

M, ROW = A[0, :2, :3].copy(), np.arange(3, dtype=np.float32)
SHAPES: dict[str, tuple[str, list[np.ndarray], Any]] = {
    "broadcast": ("""func.func @main(%a: tensor<?x?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
      %0 = shape.shape_of %a : tensor<?x?xf32> -> tensor<2xindex>
      %1 = shape.shape_of %b : tensor<?xf32> -> tensor<1xindex>
      %w = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<1xindex>
      %r = shape.assuming %w -> (tensor<?x?xf32>) {
        %2 = shape.broadcast %0, %1 : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
        %3 = stablehlo.dynamic_broadcast_in_dim %a, %2, dims = [0, 1] : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
        %4 = stablehlo.dynamic_broadcast_in_dim %b, %2, dims = [1] : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
        %5 = stablehlo.add %3, %4 : tensor<?x?xf32>
        shape.assuming_yield %5 : tensor<?x?xf32>
      }
      return %r : tensor<?x?xf32> }""", [M, ROW], M + ROW),
    "num_elements": ("""func.func @main(%a: tensor<?x?xf32>) -> tensor<?xf32> {
      %0 = shape.shape_of %a : tensor<?x?xf32> -> tensor<2xindex>
      %n = shape.num_elements %0 : tensor<2xindex> -> index
      %1 = tensor.from_elements %n : tensor<1xindex>
      %2 = stablehlo.dynamic_reshape %a, %1 : (tensor<?x?xf32>, tensor<1xindex>) -> tensor<?xf32>
      return %2 : tensor<?xf32> }""", [M], M.reshape(-1)),
    "arith": ("""func.func @main(%a: tensor<?x?xf32>) -> tensor<?x?x?xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %d0 = tensor.dim %a, %c0 : tensor<?x?xf32>
      %d1 = tensor.dim %a, %c1 : tensor<?x?xf32>
      %p = arith.cmpi sgt, %d0, %c1 : index
      %e = arith.select %p, %d0, %c1 : index
      %m = arith.muli %e, %c2 : index
      %h = arith.divsi %m, %c2 : index
      %q = "arith.ceildivsi"(%d1, %c2) : (index, index) -> index
      %i = arith.index_cast %h : index to i32
      %j = arith.index_cast %d1 : index to i32
      %k = arith.index_cast %q : index to i32
      %s = tensor.from_elements %i, %j, %k : tensor<3xi32>
      %r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [0, 1] : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x?xf32>
      return %r : tensor<?x?x?xf32> }""", [M], np.repeat(M[..., None], 2, -1)),
    "shapes": ("""func.func @main(%a: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %0 = "shape.shape_of"(%a) : (tensor<?x?xf32>) -> !shape.shape
      %c = "shape.const_shape"() {shape = dense<[1, 1]> : tensor<2xindex>} : () -> !shape.shape
      %b = "shape.broadcast"(%0, %c) : (!shape.shape, !shape.shape) -> !shape.shape
      %e = "shape.to_extent_tensor"(%b) : (!shape.shape) -> tensor<2xindex>
      %i = arith.constant 1 : index
      %f = tensor.extract %e[%i] : tensor<2xindex>
      %g = arith.constant 0 : index
      %h = "shape.get_extent"(%b, %g) : (!shape.shape, index) -> index
      %j = "tensor.from_elements"(%f, %h) : (index, index) -> tensor<2xindex>
      %k = "tensor.cast"(%j) : (tensor<2xindex>) -> tensor<?xindex>
      %l = "tensor.cast"(%k) : (tensor<?xindex>) -> tensor<2xindex>
      %m = stablehlo.dynamic_reshape %a, %l : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
      return %m : tensor<?x?xf32> }""", [M], M.reshape(3, 2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_computations_of_sizes_are_folded(name: str):
    text, arguments, expected = SHAPES[name]
    same(run(text, *arguments, shapes=[a.shape for a in arguments]), [expected], 1e-6)


def test_what_is_assumed_of_sizes_must_hold():
    text = SHAPES["broadcast"][0]
    with pytest.raises(InvalidArgument, match="assumes of sizes"):
        run(text, shapes=[(2, 3), (4,)])


ARITH = {"addi": (7, 3, 10), "subi": (3, 7, -4), "muli": (-3, 7, -21), "divsi": (-7, 2, -3), "remsi": (-7, 2, -1),
         "ceildivsi": (7, 2, 4), "floordivsi": (-7, 2, -4), "divui": (-2, 2, 2**31 - 1), "remui": (-1, 2, 1), "maxsi": (-1, 2, 2),
         "minsi": (-1, 2, -1), "maxui": (-1, 2, -1), "minui": (-1, 2, 2), "andi": (6, 3, 2), "ori": (6, 3, 7), "xori": (6, 3, 5),
         "shli": (3, 2, 12), "shrsi": (-8, 1, -4), "shrui": (-8, 1, 2**31 - 4)}


@pytest.mark.parametrize("name", ARITH)
def test_arithmetic_on_signless_integers(name: str):
    a, b, expected = ARITH[name]
    text = f"""func.func @main(%a: i32, %b: i32) -> i32 {{
      %0 = "arith.{name}"(%a, %b) : (i32, i32) -> i32
      return %0 : i32 }}"""
    same(run(text, np.array(a, np.int32), np.array(b, np.int32)), [np.array(expected, np.int32)], 0)


def test_unknown_operations_are_named():
    with pytest.raises(UnsupportedError, match=r"tensor\.generate"):
        run("""func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
          %0 = "tensor.generate"(%a) : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32> }""")
