"""Which NaN it is: the codes of NaNs of narrow floats, in float32 values that stand for these.

A format with several NaNs keeps the code of each, but for its sign, as the payload of the float32 NaN that stands for it. What
arithmetic makes has no such payload, and is the format's quiet NaN. `infinity` is the code of the format's infinity, beyond
which the NaNs are.
"""

from __future__ import annotations

import torch

from ..core.types import F8E3M4, F8E4M3, F8E5M2, PrimitiveType

SEVERAL: dict[PrimitiveType, tuple[int, int]] = {F8E5M2: (0x7C, 2), F8E4M3: (0x78, 3), F8E3M4: (0x70, 4)}
"""Of the types with several NaNs of a sign: the code of infinity, and the mantissa's bits."""

_QUIET = 0x7FC00000


def with_payloads(x: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """float32 values of elements with these codes (uint8): NaNs get theirs as payload."""
    wide = codes.to(torch.int32)
    return torch.where(x.isnan(), (((wide >> 7) << 31) | _QUIET | (wide & 0x7F)).view(torch.float32), x)


def to_codes(x: torch.Tensor, plain: torch.Tensor, infinity: int, mantissa_bits: int) -> torch.Tensor:
    """The codes (uint8) of float32 values on the grid: `plain` but for NaNs."""
    bits = with_known_payloads(x, infinity, mantissa_bits).view(torch.int32)
    return torch.where(x.isnan(), (bits & 0x7F) | ((bits >> 24) & 0x80), plain.to(torch.int32)).to(torch.uint8)


def with_known_payloads(x: torch.Tensor, infinity: int, mantissa_bits: int) -> torch.Tensor:
    """The values, NaNs without a code as payload with that of the quiet NaN."""
    bits = x.view(torch.int32)
    payload = bits & 0x3FFFFF
    known = ~x.isnan() | ((payload > infinity) & (payload < 0x80))
    quiet = (bits & -(1 << 31)) | _QUIET | infinity | (1 << (mantissa_bits - 1))
    return torch.where(known, bits, quiet).view(torch.float32)
