"""MLIR as StableHLO programs use it: text and bytecode to one small IR of operations. Knows neither HLO nor torch."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import bytecode, ir, text

__all__ = ["bytecode", "ir", "text"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
