"""StableHLO's quantized types against formulas of its specification in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support import oracle
from support.quantized_rows import ADD, ALONG, DOT, ROWS, A, Q, Row, S, small, values
from xla_torch import from_stablehlo
from xla_torch.errors import HloSyntaxError, InvalidArgument, UnsupportedError

pytestmark = oracle.needs_xla


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_ops_on_quantized_types(row: Row):
    """Quantized parameters and results are arrays of their storage type. Functions that differ in the last bit may round to
    the neighbour, rarely."""
    (got,) = from_stablehlo(row.program()).run_numpy(*row.arguments())
    expected = row.expected()
    assert (got.dtype, got.shape) == (row.result[1].dtype if isinstance(row.result[1], Q) else expected.dtype if
                                      row.result[1] != "f32" else np.dtype(np.float32), row.result[0])
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if isinstance(row.result[1], Q):
        assert difference.max() <= 1
        assert np.count_nonzero(difference) <= 0.05 * difference.size
    else:
        assert difference.max() <= 1e-5 * max(1, np.abs(expected).max())


HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
ROUNDING = [(Q(1.0, 0), [-2, -2, 0, 0, 2, 2, 127, -128, 127, -128]),
            # The zero point is added before rounding, so it decides to which side a half goes.
            (Q(1.0, 1), [-2, 0, 0, 2, 2, 4, 127, -128, 127, -128]),
            (Q(1.0, 3, "u8"), [0, 2, 2, 4, 4, 6, 255, 0, 255, 0]),
            (Q(1.0, 0, bounds=(-2, 1)), [-2, -2, 0, 0, 1, 1, 1, -2, 1, -2]),
            (Q(1.0, 0, "i32"), [-2, -2, 0, 0, 2, 2, 1e9, -1e9, 2**31 - 1, -2**31])]


@pytest.mark.parametrize(("to", "expected"), ROUNDING, ids=lambda x: str(x)[:40])
def test_halves_go_to_even_and_the_storage_bounds_hold(to: Q, expected: list[float]):
    row = Row("", "%r = stablehlo.uniform_quantize %a : ({0}) -> {r}", [((10,), "f32")], ((10,), to), small)
    (got,) = from_stablehlo(row.program()).run_numpy(HALVES)
    assert got.tolist() == expected


def test_sums_of_products_are_exact():
    """Many products of large integers, whose sum floats of the expressed type would round."""
    row = Row("", DOT, [((1, 4096), Q(1.0, -128)), ((4096, 1), Q(1.0, 0))], ((1, 1), Q(1.0, 0, "i32")), small)
    a, b = np.full((1, 4096), 127, np.int8), np.full((4096, 1), 127, np.int8)
    a[0, 0], b[0, 0] = -127, 1
    (got,) = from_stablehlo(row.program()).run_numpy(a, b)
    assert got.item() == 1 + 4095 * 255 * 127


def test_quantized_programs_of_unknown_sizes():
    program = f"""func.func @main(%a: tensor<?x6xf32>) -> tensor<?x6xf32> {{
      %0 = stablehlo.uniform_quantize %a : (tensor<?x6xf32>) -> tensor<?x6x{ALONG}>
      %1 = stablehlo.uniform_quantize %0 : (tensor<?x6x{ALONG}>) -> tensor<?x6x{A}>
      %2 = stablehlo.add %1, %1 : tensor<?x6x{A}>
      %3 = stablehlo.uniform_dequantize %2 : (tensor<?x6x{A}>) -> tensor<?x6xf32>
      return %3 : tensor<?x6xf32> }}"""
    for rows in (1, 5):
        x = values((rows, 6), "f32", rows)
        once = A.dequantize(A.quantize(ALONG.dequantize(ALONG.quantize(x))))
        (got,) = from_stablehlo(program).run_numpy(x)
        np.testing.assert_allclose(got, A.dequantize(A.quantize(once + once)), rtol=1e-6)


@pytest.mark.parametrize("portable", [False, True])
def test_quantized_bytecode(portable: bool):
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]
    from jaxlib.mlir import ir

    from support.stablehlo_oracle import bytecode, new_context, parse

    row = Row("", ADD, [(S, A), (S, A)], (S, A), np.add)
    if portable:
        data = _jax.mlir.serialize_portable_artifact(row.program(), "1.9.0")
    else:
        with new_context() as context, ir.Location.unknown():
            data = bytecode(parse(row.program(), context))
    (got,) = from_stablehlo(data).run_numpy(*row.arguments())
    assert np.array_equal(got, row.expected())


def test_a_quantized_program_runs_on_tensors():
    row = Row("", ADD, [(S, A), (S, A)], (S, A), np.add)
    got = from_stablehlo(row.program())(*map(torch.from_numpy, row.arguments()))
    assert got.dtype is torch.int8
    assert np.array_equal(got.numpy(), row.expected())


REFUSED = [
    ("tensor<2x!quant.any<i8:f32>>", UnsupportedError, "no such element type"),
    ("tensor<2x!quant.uniform<i8:f32, -0.5>>", InvalidArgument, "scale"),
    ("tensor<2x!quant.uniform<f8:f32, 0.5>>", HloSyntaxError, "line 1"),
]


@pytest.mark.parametrize(("of", "error", "match"), REFUSED)
def test_other_quantized_types_are_refused(of: str, error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        from_stablehlo(f"func.func @main(%a: {of}) -> {of} {{ return %a : {of} }}")
