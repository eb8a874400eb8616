"""Kernels of the ops that appear in compiled programs only."""

from __future__ import annotations

import torch


def reinterpret(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bytes of `value`, in row-major order, as a flat tensor of another dtype."""
    return value.contiguous().reshape(-1).view(torch.uint8).view(dtype)
