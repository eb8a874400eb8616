"""The kinds of reducers that have names: what a computation of two scalars to one of their type does."""

from __future__ import annotations

import enum

from ..hlo.schema import Trait, schema_of
from . import elementwise


class ReducerKind(enum.StrEnum):
    """What a computation of (accumulated, new) to one scalar does. Those that are one op of the two are called like it."""

    ADD = elementwise.add
    MULTIPLY = elementwise.multiply
    MINIMUM = elementwise.minimum
    MAXIMUM = elementwise.maximum
    AND = elementwise.and_
    OR = elementwise.or_
    XOR = elementwise.xor
    SUBTRACT = elementwise.subtract
    """Accumulated minus new."""
    FIRST = "first"
    """The accumulated one."""
    SECOND = "second"
    """The new one."""

    @property
    def is_op(self) -> bool:
        """Whether it is one op of the two scalars."""
        return self not in (ReducerKind.FIRST, ReducerKind.SECOND)

    @property
    def is_commutative(self) -> bool:
        return self.is_op and schema_of(self).has(Trait.COMMUTATIVE)


BY_OPCODE = {kind.value: kind for kind in ReducerKind if kind.is_op}
"""The kind that is called like an opcode."""
