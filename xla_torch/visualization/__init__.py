"""Pictures of programs: a page to look through, and graphs for Graphviz. Made of the IR alone, without torch."""

from typing import TYPE_CHECKING

from ..core.lazy_imports import lazy

if TYPE_CHECKING:
    from . import dot, model_explorer, page, rows

__all__ = ["dot", "model_explorer", "page", "rows"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, ""))
