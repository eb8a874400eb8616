"""MLIR's text, read (`parser.py`) and written (`printing.py`)."""

from typing import TYPE_CHECKING

from ...core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import elements

__all__ = ["elements"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
