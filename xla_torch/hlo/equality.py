"""Are two modules the same program, written the same way? Names apart, everything counts."""

from __future__ import annotations

from typing import Any

from .canonical_values import LISTS
from .ir import Computation, Instruction, Module
from .literals.literal import Literal
from .schema import OPS


def modules_equal(a: Module, b: Module) -> str | None:
    """None where the modules are structurally equal, otherwise the first difference in words.

    Names of modules, computations and instructions do not matter, attributes that are not written equal their defaults, and
    an unwritten layout equals the default one. Constants compare by bits.
    """
    return _Comparison().modules(a, b)


class _Comparison:
    def __init__(self) -> None:
        self._computations: dict[int, Computation] = {}
        self._instructions: dict[int, Instruction] = {}

    def modules(self, a: Module, b: Module) -> str | None:
        for what, left, right in (("header", _header(a), _header(b)), ("tables", a.tables, b.tables)):
            if left != right:
                return f"{what}: {left} and {right}"
        theirs, ours = a.computations, b.computations
        if len(theirs) != len(ours):
            return f"{len(theirs)} and {len(ours)} computations"
        # Callees stand before callers, so the computations an attribute refers to have been paired already.
        for left, right in zip(theirs, ours, strict=True):
            if reason := self.computations(left, right):
                return f"computation {left.name}: {reason}"
        return None if self._computations[id(a.entry)] is b.entry else "the entries are different computations"

    def computations(self, a: Computation, b: Computation) -> str | None:
        if len(a.instructions) != len(b.instructions):
            return f"{len(a.instructions)} and {len(b.instructions)} instructions"
        if (a.execution_thread or "main") != (b.execution_thread or "main"):
            return f"execution threads {a.execution_thread!r} and {b.execution_thread!r}"
        for left, right in zip(a.instructions, b.instructions, strict=True):
            if reason := self.instructions(left, right):
                return f"instruction {left.name}: {reason}"
            self._instructions[id(left)] = right
        if self._instructions[id(a.root)] is not b.root:
            return f"roots {a.root.name} and {b.root.name}"
        self._computations[id(a)] = b
        return None

    def instructions(self, a: Instruction, b: Instruction) -> str | None:
        if a.opcode != b.opcode:
            return f"opcodes {a.opcode} and {b.opcode}"
        if a.shape is not b.shape and a.shape.to_text() != b.shape.to_text():
            return f"shapes {a.shape.to_text()} and {b.shape.to_text()}"
        if [id(self._instructions.get(id(o))) for o in a.operands] != [id(o) for o in b.operands]:
            return "different operands"
        definition = OPS.get(a.opcode)
        left, right = (definition.attribute_values(i.attributes) if definition else i.attributes for i in (a, b))
        return self.mappings(left, right) or self.mappings(a.common, b.common)

    def mappings(self, a: dict[str, Any], b: dict[str, Any]) -> str | None:
        for name in [*a, *(n for n in b if n not in a)]:
            if not self.values(a.get(name), b.get(name)):
                return f"{name}: {a.get(name)} and {b.get(name)}"
        return None

    def values(self, a: Any, b: Any) -> bool:
        if isinstance(a, Computation):
            return self._computations.get(id(a)) is b
        if isinstance(a, Instruction):
            return self._instructions.get(id(a)) is b
        if isinstance(a, Literal):
            return a == b
        if isinstance(a, LISTS) and isinstance(b, LISTS):
            return len(a) == len(b) and all(map(self.values, a, b))
        return a == b or (a in _NOTHING and b in _NOTHING)


_NOTHING: tuple[Any, ...] = (None, "", {}, [])


def _header(module: Module) -> dict[str, Any]:
    """The header without what a missing attribute means anyway."""
    defaults = {"replica_count": 1, "num_partitions": 1, "is_scheduled": False, "alias_passthrough_params": False}
    header = {n: v for n, v in module.header.items() if v is not None and v != defaults.get(n)}
    header.pop("entry_computation_layout", None)
    return header
