"""A program in another precision: which ops then compute in what, and the programs rewritten by that."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import policy, programs

__all__ = ["policy", "programs"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
