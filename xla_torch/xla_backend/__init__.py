"""XLA's own compiler as jaxlib brings it: how a program is partitioned, which is XLA's to decide, and executables. No jax."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import client

__all__ = ["client"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
