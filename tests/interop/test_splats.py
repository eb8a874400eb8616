"""Constants of equal elements: a row for each type, sizes on both sides of every constant that switches how one is read, kept or
printed, through every entry point."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import xla_torch
from support.written import WRITTEN, EntryPoint
from xla_torch.hlo.literals import printing as literal_printing
from xla_torch.stablehlo import movement

# MLIR's type, an element in MLIR's text, and the same as NumPy has it
TYPES = {
    "i1": ("true", np.bool_(True)), "i2": ("-1", ml_dtypes.int2(-1)), "i4": ("3", ml_dtypes.int4(3)),
    "ui4": ("9", ml_dtypes.uint4(9)), "i8": ("-7", np.int8(-7)), "ui16": ("65535", np.uint16(65535)), "i32": ("5", np.int32(5)),
    "ui64": ("18446744073709551615", np.uint64(2 ** 64 - 1)), "bf16": ("0x7FC1", None), "f16": ("-0.0", np.float16(-0.0)),
    "f32": ("5.0", np.float32(5)), "f64": ("0x7FF0000000000000", np.float64(np.inf)), "f8E5M2": ("1.0", ml_dtypes.float8_e5m2(1)),
    "f4E2M1FN": ("1.5", ml_dtypes.float4_e2m1fn(1.5)), "f8E8M0FNU": ("2.0", ml_dtypes.float8_e8m0fnu(2)),
    "complex<f32>": ("(1.0, -0.0)", np.complex64(complex(1, -0.0)))}

SHAPES = [(), (1,), (0,), (8, 3), (movement.SPLATS - 1,), (8, 4), (movement.SPLATS + 1,), (1, 8, 1, 8),
          (literal_printing.LARGE - 1,), (literal_printing.LARGE,), (3, 257)]

ENTRY_POINTS: dict[str, EntryPoint] = {"as it was read": lambda made: made} | WRITTEN


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("element", TYPES)
def test_equal_elements(element: str, entry_point: str) -> None:
    text, number = TYPES[element]
    if number is None:
        number = np.array(int(text, 16), np.uint16).view(ml_dtypes.bfloat16)[()]
    for shape in SHAPES:
        type_ = f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"
        made = ENTRY_POINTS[entry_point](xla_torch.from_stablehlo(
            f"func.func @main() -> {type_} {{\n  %0 = stablehlo.constant dense<{text}> : {type_}\n  return %0 : {type_}\n}}"))
        found, wanted = made.run_numpy()[0], np.full(shape, number)
        assert found.shape == shape
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes(), shape
