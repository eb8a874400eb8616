"""Tables of rules by opcode: what a lowering, a transform or an analysis knows of single ops.

Whatever is true of many ops is a trait of their schemas. What is left, one function for each op, stands in a table like these,
in a module that is about such rules and nothing else. A table checks itself at import: an opcode without a schema and a second
rule for one are TypeErrors that name the place. `lacking` names the ops that a table should serve and does not.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from .schema import OPS, OpSchema, Trait

R = TypeVar("R")

TABLES: dict[str, RuleTable[Any]] = {}
"""Every rule table by its name. Filled by the modules that define them."""


class RuleTable(Mapping[str, R], Generic[R]):
    """Rules of one kind. `serves` says of a schema whether an op without a rule is a gap; by default none is.

    `filled_by` names the modules that enter the rules where they are imported on first use: that of the op's family where there
    is one, and else all of them.
    """

    def __init__(self, name: str, serves: Callable[[OpSchema], bool] = lambda _: False, filled_by: Sequence[str] = ()):
        if name in TABLES:
            raise TypeError(f"there are two rule tables called {name!r}")
        self.name, self.serves = name, serves
        self._rules: dict[str, R] = {}
        self._not_imported = [*filled_by]
        self._defaults: dict[Trait, R] = {}
        TABLES[name] = self

    def rule(self, *opcodes: str) -> Callable[[R], R]:
        """Decorate the rule of these opcodes."""

        def register(rule: R) -> R:
            for opcode in opcodes:
                self.add(opcode, rule)
            return rule

        return register

    def by_trait(self, trait: Trait) -> Callable[[R], R]:
        """Decorate the rule of all ops that have the trait and no rule of their own. TypeError for a second one."""

        def register(rule: R) -> R:
            if trait in self._defaults:
                raise TypeError(f"{trait} has two {self.name} rules: {_place(self._defaults[trait])} and {_place(rule)}")
            self._defaults[trait] = rule
            return rule

        return register

    def find(self, opcode: str) -> R | None:
        """The opcode's own rule, or that of a trait that it has, or None."""
        own = self.get(opcode)
        if own is not None:
            return own
        return next((rule for trait, rule in self._defaults.items() if OPS[opcode].has(trait)), None)

    def add(self, opcode: str, rule: R) -> None:
        """Enter a rule. Raises TypeError for an unknown opcode and for one that has a rule already."""
        if opcode not in OPS:
            raise TypeError(f"{self.name} rule for an unknown opcode {opcode!r}: {_place(rule)}")
        if opcode in self._rules:
            raise TypeError(f"{opcode!r} has two {self.name} rules: {_place(self._rules[opcode])} and {_place(rule)}")
        self._rules[opcode] = rule

    def add_all(self, rules: Mapping[str, R]) -> None:
        """Enter several rules."""
        for opcode, rule in rules.items():
            self.add(opcode, rule)

    def fill(self, opcode: str | None = None) -> None:
        """Import the modules that enter the rule of this opcode, or all of them."""
        family = OPS[opcode].family if opcode in OPS else ""
        needed = [m for m in self._not_imported if m.rpartition(".")[2] == family] or [*self._not_imported]
        for module in needed:
            importlib.import_module(module)
        # Only now: until then, other threads import the same modules, and so wait for them.
        self._not_imported = [m for m in self._not_imported if m not in needed]

    def lacking(self) -> list[str]:
        """The opcodes that the table serves and that have no rule, neither their own nor by a trait."""
        return sorted(opcode for opcode, schema in OPS.items() if self.serves(schema) and self.find(opcode) is None)

    def __getitem__(self, opcode: str) -> R:
        if opcode not in self:
            raise KeyError(opcode)
        return self._rules[opcode]

    def __iter__(self) -> Iterator[str]:
        self.fill()
        return iter(self._rules)

    def __len__(self) -> int:
        self.fill()
        return len(self._rules)

    def __contains__(self, opcode: object) -> bool:
        if opcode not in self._rules and self._not_imported:
            self.fill(opcode if isinstance(opcode, str) else None)
        return opcode in self._rules

    def get(self, opcode: str, default: Any = None) -> Any:
        return self._rules[opcode] if opcode in self else default


def _place(rule: object) -> str:
    rule = getattr(rule, "function", rule)
    return f"{getattr(rule, '__module__', '?')}.{getattr(rule, '__qualname__', type(rule).__name__)}"
