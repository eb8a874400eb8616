"""Thresholds so low that small programs take the ways of large ones: in blocks, in place, with loops; texts in pieces."""

from __future__ import annotations

import importlib
from collections.abc import Callable

LOW: dict[str, float] = {
    # how programs run
    "core.tuning.BLOCKED_FROM": 2, "core.tuning.BLOCK": 5, "core.tuning.LARGE": 1, "autodiff.residuals.LARGE": 1,
    "core.tuning.ACCUMULATED_FROM": 1, "core.tuning.PRODUCT_BLOCKED_FROM": 2,
        "core.tuning.UNROLLED_STEPS": 0, "core.tuning.CONSTANT_UP_TO": 2, "core.tuning.COMBINED_AT_ONCE": 4,
    "core.tuning.MANY_UPDATES": 2,
        "core.tuning.SORTED_BY_NETWORK": 2, "core.tuning.RADIX_SORTED_FROM": 2, "core.tuning.RADIX_SORTED_ROW": 2,
    "core.tuning.RADIX_SORTED_IN_TORCH": 2, "core.tuning.COUNTERS_AT_ONCE": 3,
    "core.tuning.SHORT_WINDOW": 2,
        "core.tuning.COPIED_AT_ONCE": 2, "core.tuning.REDUCED_AT_ONCE": 3, "core.tuning.POOLED_BYTES": 1,
    "core.tuning.LARGE_PAGES_FROM": 1,
    "core.tuning.NARROW_PRODUCTS_FROM": 1, "core.tuning.FOLDED_BY_A_LOOP_FROM": 1, "core.tuning.TOP_OF_A_HEAP": 0,
    "core.tuning.INVARIANT_UP_TO": 2, "core.tuning.INVARIANT_ARITHMETIC_UP_TO": 2,
    "passes.blocking._SPLIT_FROM": 2,
    # what is searched for
        "core.tuning.COMPARED_CONSTANTS": 2, "core.tuning.CONSTANT_OPERANDS": 1, "core.tuning.BOUNDED_ROWS_BYTES": 0,
    "core.tuning.SEGMENT": 2,
    # texts and files
    "hlo.literals.printing.LARGE": 2, "hlo.literals.printing._LONG_ROW": 2, "hlo.literals.printing._PIECE": 3,
        "hlo.literals.text._SHORT": 0, "hlo.literals.text._BACKWARDS": 7, "hlo.literals.number_lists._PIECE": 40,
    "hlo.literals.number_lists._WHOLE": 4,
        "hlo.literals.number_lists.CAREFUL": 8, "hlo.literals.text.CAREFUL": 8, "mlir.text.elements.CAREFUL": 8,
    "hlo.literals.number_text._MANY": 1,
    "hlo.literals.literal._PIECE": 3, "hlo.hex_text._PIECE": 6, "hlo.printer._SMALL": 1,
    "proto.large_data.LARGE": 1, "proto.literals.LARGE": 1, "proto.wire._CHUNK": 16,
    "stablehlo.movement.SPLATS": 2,
}
"""By module of the package and name, names that modules import by value once for each of them. Those of native code are not
among them: with them each small program would be compiled."""


def lower_thresholds(put: Callable[[object, str, float], None] = setattr) -> None:
    """Set them by `put`, `setattr` or a fixture's. Programs that are lowered already stay as they are."""
    for name, value in LOW.items():
        module, _, constant = name.rpartition(".")
        put(importlib.import_module(f"xla_torch.{module}"), constant, value)
