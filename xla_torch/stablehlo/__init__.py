"""StableHLO's operations to HLO: `convert.py` makes a module of what a reader of MLIR gives, by rules for its ops."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import convert, reading, writing

__all__ = ["convert", "reading", "writing"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
