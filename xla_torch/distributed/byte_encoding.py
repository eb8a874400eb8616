"""Floats of 8 bits and fewer on their way between processes: a byte for each, and not the four of their storage dtype."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch

from ..core.types import F8E8M0FNU, PrimitiveType
from ..storage import nan_codes
from ..storage.dtypes import storage_dtype, torch_dtype
from .exchange import Exchange, Result
from .exchanges import Permute


def encoded(exchange: Exchange, perform: Callable[[Exchange], Result]) -> Result:
    """The result of an exchange, performed with a byte for each element where it only moves elements of a narrow type."""
    kind = exchange.narrow_type
    if kind is None or not _encodes(exchange, kind):
        return perform(exchange)
    in_bytes = copy.copy(exchange)
    in_bytes.narrow_type, in_bytes.value = None, tuple(_to_bytes(v, kind) for v in exchange.value)
    result = perform(in_bytes)
    return tuple(_from_bytes(r, kind) for r in result) if isinstance(result, tuple) else _from_bytes(result, kind)


def _encodes(exchange: Exchange, kind: PrimitiveType) -> bool:
    """Whether elements become bytes where they are: torch has no type of its own for all, NumPy does. F8E8M0FNU has no zero,
    which those get who are sent nothing."""
    known = exchange.value[0].device.type == "cpu" or _has_dtype(kind)
    return known and not (kind is F8E8M0FNU and isinstance(exchange, Permute))


def _has_dtype(kind: PrimitiveType) -> bool:
    return torch_dtype(kind) is not storage_dtype(kind)


def _to_bytes(tensor: torch.Tensor, kind: PrimitiveType) -> torch.Tensor:
    if _has_dtype(kind):
        plain = tensor.to(torch_dtype(kind)).view(torch.uint8)
    else:
        with np.errstate(all="ignore"):  # NumPy warns of NaN
            plain = torch.from_numpy(tensor.detach().numpy().astype(kind.numpy).view(np.uint8))
    return nan_codes.to_codes(tensor, plain, *nan_codes.SEVERAL[kind]) if kind in nan_codes.SEVERAL else plain


def _from_bytes(data: torch.Tensor, kind: PrimitiveType) -> torch.Tensor:
    if _has_dtype(kind):
        found = data.view(torch_dtype(kind)).to(storage_dtype(kind))
    else:
        assert kind.numpy is not None
        with np.errstate(all="ignore"):
            found = torch.from_numpy(data.numpy().view(kind.numpy).astype(np.float32))
    return nan_codes.with_payloads(found, data) if kind in nan_codes.SEVERAL else found
