"""MLIR's bytecode of every version, read (`parser.py`) and written (`writing.py`)."""

from typing import TYPE_CHECKING

from ...core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import parser

__all__ = ["parser"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
