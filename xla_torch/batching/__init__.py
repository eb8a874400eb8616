"""Programs for a batch: of a program for one example, and of one for a batch of another size; the rules by opcode."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import embedded, programs

__all__ = ["embedded", "programs"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
