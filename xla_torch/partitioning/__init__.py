"""Programs for several partitions with their global meaning: manual regions run for all partitions at once."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import manual_regions

__all__ = ["manual_regions"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
