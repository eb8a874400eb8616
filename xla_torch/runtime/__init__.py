"""Programs that run: what is kept with a program, how torch.autograd and torch.func see it, and the code that runs as text."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import polymorphic

__all__ = ["polymorphic"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
