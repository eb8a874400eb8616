"""HLO modules to MLIR operations of StableHLO: the mirror of the rules that read them."""

from typing import TYPE_CHECKING

from ...core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import module

__all__ = ["module"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
