"""Thresholds so low that small programs take the ways of large ones: in blocks, in place, loops not written out."""

from __future__ import annotations

from collections.abc import Callable

from xla_torch import tuning

LOW: dict[str, float] = {"BLOCKED_FROM": 2, "BLOCK": 5, "LARGE": 1, "ACCUMULATED_FROM": 1, "PRODUCT_BLOCKED_FROM": 2,
                         "UNROLLED_STEPS": 0}


def lower_thresholds(put: Callable[[object, str, float], None] = setattr) -> None:
    """Set them by `put`, `setattr` or a fixture's. Programs that are lowered already stay as they are."""
    for name, value in LOW.items():
        put(tuning, name, value)
