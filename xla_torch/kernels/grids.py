"""Kernels that bring a value onto the grid of a type narrower than its storage dtype."""

from __future__ import annotations

import torch

from ..storage.nan_codes import to_codes, with_known_payloads, with_payloads
from .calls import elementwise

_SMALLEST_NORMAL = 0x00800000
_INFINITY = 0x7F800000


@elementwise
def round_to_grid(x: torch.Tensor, mantissa_bits: int, min_exponent: int, largest: float, beyond: float,
                  signed_zero: bool = True) -> torch.Tensor:
    """Round float32 values to a float format with few bits, to nearest even, with gradual underflow.

    `mantissa_bits` are the explicit ones, `min_exponent` is the exponent of the smallest normal value, `largest` the
    largest finite value; what rounds beyond it becomes `beyond` (inf, NaN or `largest`) with the sign of x.
    """
    exponent = ((x.view(torch.int32) >> 23) & 0xFF).sub_(127).clamp_(min=min_exponent)
    # The distance of neighbours on the grid, a power of two: dividing by it and multiplying again is exact.
    spacing = exponent.add_(127 - mantissa_bits).bitwise_left_shift_(23).view(torch.float32)
    rounded = torch.round(x / spacing) * spacing
    result = torch.where(rounded.abs() > largest, torch.copysign(torch.full_like(x, beyond), x), rounded)
    return result if signed_zero else result + 0.0


@elementwise
def round_to_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round float32 values to those of a torch dtype. NaNs stay what they are."""
    return torch.where(x.isnan(), x, x.to(dtype).to(torch.float32))


@elementwise
def round_to_power_of_two(x: torch.Tensor) -> torch.Tensor:
    """Round float32 values to F8E8M0FNU: powers of two from 2^-127, halfway cases up; what is not positive is NaN."""
    bits = x.view(torch.int32)
    # Exponent codes: 0 stands for 2^-127, which is subnormal in float32, and all
    # above it goes to 2^-126, as in XLA.
    code = torch.where(bits < _SMALLEST_NORMAL, (bits > 0x00400000).to(torch.int32), (bits + 0x00400000) >> 23)
    power = torch.where(code == 0, 0x00400000, code << 23).view(torch.float32)
    return torch.where((bits > 0) & (bits < _INFINITY - 0x00400000), power, float("nan"))


@elementwise
def round_to_finite_grid(x: torch.Tensor, mantissa_bits: int, min_exponent: int, largest: float) -> torch.Tensor:
    """As `round_to_grid`, for formats that saturate at the largest value and have no NaN: it becomes -0."""
    return round_to_grid(torch.where(x.isnan(), -0.0, x), mantissa_bits, min_exponent, largest, largest)


for _function in (with_payloads, to_codes, with_known_payloads):
    elementwise(_function)
