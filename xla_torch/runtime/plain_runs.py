"""Calling what is kept of a program: without autograd and autocast, under the user's limits, with errors in the standard error
format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..core.budget import running
from ..core.errors import XlaError
from ..storage.torch_private import autocast_is_anywhere, autocast_is_on, set_grad_enabled, without_autocast
from .caches import Cache
from .run_errors import as_xla_error

_T = TypeVar("_T")


def run_without_autograd(name: str, kept: Cache[torch.device, Callable[..., _T]],
                         make: Callable[[torch.device], Callable[..., _T]],
                         device: torch.device, *given: Any) -> _T:
    """Call the device's cached run without autograd and autocast, because the program states all types. `name` is for errors."""
    if autocast_is_anywhere() and autocast_is_on(device.type):
        with without_autocast(device.type):
            return run_without_autograd(name, kept, make, device, *given)
    if (block := running()) is not None:
        block.look()
    return without_grad(name, kept.get(device, make), *given)


def without_grad(name: str, run: Callable[..., _T], *given: Any) -> _T:
    """Call it while autograd records nothing. `name` is for errors."""
    records = torch.is_grad_enabled()
    try:
        if records:
            set_grad_enabled(False)
        return run(*given)
    except XlaError:
        raise
    except (RuntimeError, IndexError, MemoryError) as error:
        found = as_xla_error(error, name)
        if found is None:
            raise
        raise found from error
    finally:
        if records:
            set_grad_enabled(True)
