"""Floats of 8 bits and fewer on their way between processes: a byte each, and not the four of their carrier."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..lowering import numerics
from ..types import F8E8M0FNU, PrimitiveType, type_from_text
from .exchanges import Permute
from .participants import Exchange


def in_bytes(exchange: Exchange, perform: Callable[[Exchange], Any]) -> Any:
    """The result of an exchange, performed with a byte for each element where it only moves elements of a narrow type."""
    kind = type_from_text(exchange.narrow)
    if kind is None or not _converts(exchange, kind):
        return perform(exchange)
    coded = copy.copy(exchange)
    coded.narrow, coded.value = "", tuple(_to_bytes(v, kind) for v in exchange.value)
    result = perform(coded)
    return tuple(_from_bytes(r, kind) for r in result) if isinstance(result, tuple) else _from_bytes(result, kind)


def _converts(exchange: Exchange, kind: PrimitiveType) -> bool:
    """Whether elements become bytes where they are: torch has no type of its own for all, NumPy does. F8E8M0FNU has no zero,
    which those get who are sent nothing."""
    known = exchange.value[0].device.type == "cpu" or kind.torch is not kind.carrier
    return known and not (kind is F8E8M0FNU and isinstance(exchange, Permute))


def _to_bytes(tensor: torch.Tensor, kind: PrimitiveType) -> torch.Tensor:
    if kind.torch is not kind.carrier:
        return tensor.to(kind.torch).view(torch.uint8)
    return torch.from_numpy(numerics.numpy_from_carrier(tensor, kind).view(np.uint8))


def _from_bytes(data: torch.Tensor, kind: PrimitiveType) -> torch.Tensor:
    dtype = kind.torch
    if dtype is not None and dtype is not kind.carrier:
        return data.view(dtype).to(kind.carrier)
    return numerics.carrier_from_numpy(data.numpy().view(numerics.numpy_dtype(kind)), kind)
