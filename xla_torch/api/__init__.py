"""One thing each that users do with a program: load, build, trace, differentiate, batch, compile, shard, describe it."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import exported_function, library

__all__ = ["exported_function", "library"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
