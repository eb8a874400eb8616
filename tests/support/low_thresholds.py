"""Thresholds so low that small programs take the ways of large ones: in blocks, in place, with loops; texts in pieces."""

from __future__ import annotations

import importlib
from collections.abc import Callable

LOW: dict[str, float] = {
    # how programs run
    "tuning.BLOCKED_FROM": 2, "tuning.BLOCK": 5, "tuning.LARGE": 1, "autodiff.residuals.LARGE": 1,
    "tuning.ACCUMULATED_FROM": 1, "tuning.PRODUCT_BLOCKED_FROM": 2,
    "tuning.UNROLLED_STEPS": 0, "tuning.CONSTANT_UP_TO": 2, "tuning.COMBINED_AT_ONCE": 4, "tuning.MANY_UPDATES": 2,
    "tuning.SORTED_BY_NETWORK": 2, "tuning.RADIX_SORTED_FROM": 2, "tuning.COUNTERS_AT_ONCE": 3, "tuning.SHORT_WINDOW": 2,
    "tuning.COPIED_AT_ONCE": 2, "tuning.REDUCED_AT_ONCE": 3, "tuning.POOLED_BYTES": 1, "tuning.LARGE_PAGES_FROM": 1,
    "tuning.NARROW_PRODUCTS_FROM": 1, "tuning.FOLDED_BY_A_LOOP_FROM": 1, "tuning.TOP_OF_A_HEAP": 0,
    "lowering.blocking._SPLIT_FROM": 2,
    # what is searched for
    "tuning.COMPARED_CONSTANTS": 2, "tuning.CONSTANT_OPERANDS": 1, "tuning.BOUNDED_ROWS_BYTES": 0, "tuning.SEGMENT": 2,
    # texts and files
    "hlo.literal_printing.LARGE": 2, "hlo.literal_printing._LONG_ROW": 2, "hlo.literal_printing._PIECE": 3,
    "hlo.literal_text._SHORT": 0, "hlo.literal_text._BACKWARDS": 7, "hlo.number_lists._PIECE": 40, "hlo.number_lists._WHOLE": 4,
    "hlo.number_lists.CAREFUL": 8, "hlo.literal_text.CAREFUL": 8, "mlir.text_elements.CAREFUL": 8, "hlo.number_text._MANY": 1,
    "hlo.literal._PIECE": 3, "hlo.hex_text._PIECE": 6, "hlo.printer._SMALL": 1,
    "proto.wire.LARGE": 1, "proto.literals.LARGE": 1, "proto.wire._CHUNK": 16,
    "stablehlo.movement.SPLATS": 2,
}
"""By module of the package and name, names that modules import by value once for each of them. Those of native code are not
among them: with them each small program would be compiled."""


def lower_thresholds(put: Callable[[object, str, float], None] = setattr) -> None:
    """Set them by `put`, `setattr` or a fixture's. Programs that are lowered already stay as they are."""
    for name, value in LOW.items():
        module, _, constant = name.rpartition(".")
        put(importlib.import_module(f"xla_torch.{module}"), constant, value)
