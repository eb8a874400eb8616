"""The table of whole functions: what their derivatives are, wherever a program spells them out in ops.

XLA has an op for some functions only. Others, and those of complex numbers, are programs of ops: selects between formulas,
series, loops. The derivative of such a spelling is not that of the function where a formula ends, for one is chosen at that point
alone or two meet there; and a sum that has converged has a derivative that may not have. So spellings are recognised
(`xla_torch.transform.expansions`), and differentiated by these rules.

A rule is written like one for an op: it asks by name for ``ct``, ``out`` and the function's operands. All functions are
elementwise, and holomorphic where they are complex. Every operand has a rule, in the order of the operands.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from grad_rules._table import TABLE, Rule
from xla_torch.hlo.schema import OPS


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionRules:
    """An entry of the table: the rules by operand, and the words that each asks for."""

    name: str
    rules: Mapping[str, Callable[..., Any]]
    asks: Mapping[str, tuple[str, ...]]

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(self.rules)


FUNCTIONS: dict[str, FunctionRules] = {}
"""Functions that have no op, by their names. Filled by importing `grad_rules`."""


def function(name: str, **rules: Rule) -> None:
    """Enter a function. Raises TypeError at import for a second entry and for a word that no rule can be given."""
    if name in FUNCTIONS or name in OPS:
        raise TypeError(f"there are two functions called {name!r}")
    asks = {operand: tuple(inspect.signature(rule).parameters) for operand, rule in rules.items()}
    unknown = {word for words in asks.values() for word in words} - {"ct", "out", *rules}
    if unknown:
        raise TypeError(f"the rules of {name!r} ask for {sorted(unknown)}; known words are ct, out and {sorted(rules)}")
    FUNCTIONS[name] = FunctionRules(name, rules, asks)


def rules_of_function(name: str) -> FunctionRules:
    """The rules of a function by its name, which is an opcode where it is what an op is."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    entry = TABLE[name]
    return FunctionRules(name, entry.rules, entry.asks)
