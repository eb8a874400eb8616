"""Programs as `torch.export` has them: graphs of torch's own operators, which other tools of torch's read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, Any

import torch

from ..core.shape import Shape
from ..hlo.tree import mapped
from ..storage.dtypes import torch_dtype
from ..storage.torch_private import quietly


class _Calling(torch.nn.Module):
    """A module that is one call."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self._function = function

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)


def save_exported(function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any], out: str | IO[bytes]) -> None:
    """Write what `torch.export.export` makes of a call on arguments like these."""
    exported = quietly(lambda: torch.export.export(_Calling(function), tuple(arguments), named, strict=False))
    quietly(lambda: torch.export.save(exported, out))


def zeros(shape: Shape) -> Any:
    """An argument of this shape."""
    return mapped(lambda own: torch.zeros(own.dimensions, dtype=torch_dtype(own.element_type)), shape)
