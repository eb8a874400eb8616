"""Layouts as attributes write them: the dimensions of an array from minor to major."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..core.errors import InvalidArgument
from ..core.layouts import Layout
from ..core.shape import Shape
from ..mlir.ir import Elements


def laid(shape: Shape, layout: Any) -> Shape:
    """A shape with a layout; what is no array has none. Raises InvalidArgument for one of another rank."""
    if not shape.is_array or layout is None:
        return shape
    order = tuple(int(d) for d in (layout.value.reshape(-1).tolist() if isinstance(layout, Elements) else layout))
    if sorted(order) != list(range(shape.rank)):
        raise InvalidArgument("the layout does not fit", got=f"{list(order)} for {shape}", subject="StableHLO")
    return dataclasses.replace(shape, layout=Layout(order)) if order else shape
