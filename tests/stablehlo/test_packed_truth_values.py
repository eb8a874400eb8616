"""StableHLO packs truth values into integers, the lowest bit first. jaxlib contradicts itself there: its verifier counts i1 as
one bit, and its HLO as eight. `reduce_precision` to formats without a mantissa agrees with XLA."""

from __future__ import annotations

import numpy as np
import pytest

import xla_torch
from support.oracle import needs_xla, run_xla


def bitcast(given: str, result: str) -> xla_torch.XlaComputation:
    return xla_torch.from_stablehlo(f"""func.func @main(%x: tensor<{given}>) -> tensor<{result}> {{
      %0 = stablehlo.bitcast_convert %x : (tensor<{given}>) -> tensor<{result}>
      return %0 : tensor<{result}>
    }}""")


@pytest.mark.parametrize(("integer", "dtype"), [("i8", np.int8), ("i16", np.int16), ("i32", np.int32), ("i64", np.int64)])
@pytest.mark.parametrize("value", [0, 1, -1, 5, -100])
def test_integers_are_bits_and_back(integer: str, dtype: type, value: int) -> None:
    width = np.dtype(dtype).itemsize * 8
    given = np.array([value, 3], dtype)
    (bits,) = bitcast(f"2x{integer}", f"2x{width}xi1").run_numpy(given)
    want = (given[:, None].view(np.dtype(f"u{width // 8}")) >> np.arange(width, dtype=f"u{width // 8}")) & 1
    np.testing.assert_array_equal(bits, want.astype(bool))
    (again,) = bitcast(f"2x{width}xi1", f"2x{integer}").run_numpy(bits)
    np.testing.assert_array_equal(again, given)


SPECIAL = [0.0, -0.0, 1.0, 1.5, 3.0, 1e-5, 6e-5, 6.2e-5, 32768.0, 40000.0, 65536.0, 1e6, -1e30, np.inf, -np.inf, np.nan, 1e-42]


@needs_xla
@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 0), (5, 2), (4, 3), (8, 0), (2, 1), (1, 0)])
def test_narrow_formats_are_those_of_xla(exponent: int, mantissa: int) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[{len(SPECIAL)}] parameter(0)
  ROOT r = f32[{len(SPECIAL)}] reduce-precision(x), exponent_bits={exponent}, mantissa_bits={mantissa}
}}"""
    given = np.array(SPECIAL, np.float32)
    np.testing.assert_array_equal(xla_torch.parse_hlo(text).run_numpy(given)[0], run_xla(text, given)[0])
