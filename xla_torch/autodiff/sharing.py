"""A builder that makes no op twice: what is asked for again is the op that is already there.

Rules do not know of each other, so two of them often compute the same thing, or what the forward pass has computed.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..analysis.named_functions import clipped_part
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..transform.equal_ops import Forms, key_of


class SharingBuilder(Builder):
    """Equal pure ops of equal operands are one op, unless they are parts of functions that differ in their derivatives."""

    def __init__(self, name: str = "computation"):
        super().__init__(name)
        self._known: dict[Hashable, XlaOp] = {}
        self._forms = Forms()

    def append(self, instruction: Instruction) -> XlaOp:
        key = self._key(instruction)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return known
        op = super().append(instruction)
        if key is not None:
            self._known[key] = op
        return op

    def _key(self, instruction: Instruction) -> Hashable | None:
        """What makes two instructions the same; None for those that are never shared."""
        key = key_of(instruction, tuple(map(id, instruction.operands)), self._numbered)
        return None if key is None else (key, clipped_part(instruction))

    def _numbered(self, computation: Computation) -> int:
        """Reducers and other functions of scalars are compared by what they compute, as each rule makes its own; those that bring
        derivatives, and all others, by identity."""
        is_scalar = all(p.shape.is_array and not p.shape.rank for p in computation.parameters)
        by_form = is_scalar and computation.derivatives is None
        return -1 - self._forms.number(computation) if by_form else id(computation)
