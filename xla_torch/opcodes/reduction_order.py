"""In what order reducers meet elements, as far as results show it: what XLA's CPU code does with one that is not associative.

What lowers these ops and what differentiates them go by the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.shape import Shape
from ..hlo.attributes import WindowDimension

SIDE = 32
"""Extent of the pieces in which one array is reduced; several are reduced element by element."""

IN_ORDER_IN_WINDOW = 64
"""Elements of a window up to which they are looked at one after another."""

ROW = 16
"""Elements of a running reduction up to which it is computed as written; longer ones are cut into rows of so many."""


def running_dimension(operand: Shape, window: Sequence[WindowDimension]) -> tuple[int, bool, bool] | None:
    """The dimension of a running reduction, written as a window as long as the array and padded on one side only; whether it runs
    from the end; and whether it leaves out the element itself. None for other windows."""
    wide = [d for d, w in enumerate(window)
            if (w.size, w.stride, w.padding_low, w.padding_high, w.base_dilation) != (1, 1, 0, 0, 1)]
    if len(wide) != 1 or operand.dynamic_flags[wide[0]]:
        return None
    (d,), n, w = wide, operand.dimensions[wide[0]], window[wide[0]]
    if (w.size, w.stride, w.base_dilation, w.window_dilation) != (n, 1, 1, 1) or min(w.padding_low, w.padding_high) != 0:
        return None
    low, high = w.padding_low, w.padding_high
    return (d, high > 0, max(low, high) == n) if max(low, high) in (n - 1, n) else None
