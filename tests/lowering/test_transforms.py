"""Inverse Fourier transforms times the number of their elements do not divide by it."""

from __future__ import annotations

import pytest
import torch

from xla_torch import parse_hlo
from xla_torch.core import tuning

ROWS = [
    # operand, transform, factor, whether one call makes both
    ("c64[3,5]", "c64[3,5] fft(x), fft_type=IFFT, fft_length={5}", 5, True),
    ("c128[3,5]", "c128[3,5] fft(x), fft_type=IFFT, fft_length={3,5}", 15, True),
    ("c64[3,5]", "f32[3,8] fft(x), fft_type=IRFFT, fft_length={8}", 8, True),
    ("c64[3,5]", "c64[3,5] fft(x), fft_type=IFFT, fft_length={5}", 3, False),
    ("c64[3,5]", "c64[3,5] fft(x), fft_type=FFT, fft_length={5}", 5, False),
    ("f32[3,8]", "c64[3,5] fft(x), fft_type=RFFT, fft_length={8}", 8, False),
]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("operand", "transform", "factor", "is_one"), ROWS, ids=[str(k) for k in range(len(ROWS))])
def test_inverse_transforms_scale_their_results(operand: str, transform: str, factor: int, is_one: bool, is_first: bool,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    shape = transform.partition(" ")[0]
    number = f"({factor}, 0)" if shape.startswith("c") else str(factor)
    given = "b, t" if is_first else "t, b"
    text = "\n".join(["HloModule m", "ENTRY e {", f"x = {operand} parameter(0)", f"t = {transform}",
                      f"c = {shape.partition('[')[0]}[] constant({number})", f"b = {shape} broadcast(c), dimensions={{}}",
                      f"ROOT r = {shape} multiply({given})", "}"])
    dtype = {"c64": torch.complex64, "c128": torch.complex128, "f32": torch.float32}[operand.partition("[")[0]]
    x = torch.randn([int(n) for n in operand.partition("[")[2][:-1].split(",")], dtype=dtype)
    program = parse_hlo(text)
    assert ("forward" in program.lowered().code.partition(":")[2]) == is_one
    monkeypatch.setattr(tuning, "WITHOUT_PASSES", frozenset({"scaled transforms"}))
    plain = parse_hlo(text)
    assert "norm" not in plain.lowered().code
    torch.testing.assert_close(program(x), plain(x))


def test_a_transform_that_others_read_divides() -> None:
    program = parse_hlo("""HloModule m
        ENTRY e { x = c64[4] parameter(0)
          t = c64[4] fft(x), fft_type=IFFT, fft_length={4}
          c = c64[] constant((4, 0))
          b = c64[4] broadcast(c), dimensions={}
          m = c64[4] multiply(t, b)
          ROOT r = (c64[4], c64[4]) tuple(m, t) }""")
    x = torch.randn(4, dtype=torch.complex64)
    torch.testing.assert_close(program(x), (torch.fft.ifft(x, norm="forward"), torch.fft.ifft(x)))
