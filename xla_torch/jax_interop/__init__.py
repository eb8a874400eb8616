"""Programs in other formats (StableHLO, HLO protos, JAX functions) to HLO modules. Knows neither torch nor how a module runs."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import exported, exported_main, jax

__all__ = ["exported", "exported_main", "jax"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
