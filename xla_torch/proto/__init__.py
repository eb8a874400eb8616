"""HLO protos (`HloModuleProto`, `HloProto`, snapshots) to modules and back, on a schema of our own. Knows no torch."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import containers, serialized_sharding, writing

__all__ = ["containers", "serialized_sharding", "writing"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
