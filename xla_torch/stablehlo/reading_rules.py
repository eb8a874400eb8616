"""The table of rules: what each operation of a dialect is in HLO.

A rule gets the scope in which the operation stands (`scope.py`), the operation and its operands as ops of the scope's builder,
and gives the results: an op for an operation of one result, otherwise a list with one for each. Rules for whole families are
made by functions; the table checks at import that no operation has two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..functions.hlo_builder import XlaOp
from ..mlir.ir import Operation

Results: TypeAlias = XlaOp | Sequence[XlaOp]
Rule: TypeAlias = Callable[[Any, Operation, Sequence[XlaOp]], Results]
"""The first argument is the Scope, which stands above this table."""

RULES: dict[str, Rule] = {}
"""The rule of each operation by its name with the dialect. Filled by the modules of rules, at import."""

QUANTIZED = "!quant"
"""The name of the rule for all operations that have quantized operands or results."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorate the rule of these operations. Raises TypeError for an operation that has a rule already."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise TypeError(f"{name} has two rules")
            RULES[name] = function
        return function

    return register


def find(name: str) -> Rule | None:
    """The rule of an operation. What MHLO has no rule of its own for is as in StableHLO."""
    found = RULES.get(name)
    if found is None and name.startswith("mhlo."):
        found = RULES.get("stablehlo." + name[5:])
    return found
