"""What the parser of HLO text asks of an opcode's definition, laid out for speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..core.errors import HloSyntaxError
from .codecs import Codec
from .common import COMMON
from .ir import Instruction
from .reader import Reader
from .scanner import nearest
from .schema import OPS, OpSchema
from .structure import CONSTANT, PARAMETER

POSITIONAL = {PARAMETER: "parameter_number", CONSTANT: "literal"}
"""Opcodes whose parentheses hold an attribute, not operands."""


@dataclasses.dataclass(slots=True)
class Plan:
    """What the parser asks of an opcode's definition, laid out for speed."""

    definition: OpSchema
    codecs: dict[str, tuple[Codec, bool, bool]]
    """By attribute name: the codec, whether it is context-free, and whether the attribute is the opcode's own."""
    required: tuple[str, ...]
    least: int
    most: float

    def check(self, reader: Reader, operands: Sequence[Instruction], attributes: dict[str, Any], at: int) -> None:
        """Raise HloSyntaxError at the opcode unless it may have so many operands, and has the attributes that it must."""
        definition, count = self.definition, len(operands)
        if not self.least <= count <= self.most:
            names = ", ".join(definition.operands) + (f", *{definition.variadic}" if definition.variadic else "")
            raise reader.error(f"{definition.opcode} expects {self._at_least()} operands, but has {count} operands", at,
                             f"{definition.opcode}({names})")
        for name in self.required:
            if name not in attributes:
                raise reader.error(f"attribute {name} is expected but not seen", at, f"{name}=...")
        if definition.newer and (wrong := definition.newer.as_older(operands, attributes)):
            raise reader.error(wrong, at)

    def unexpected(self, reader: Reader, name: str, start: int) -> HloSyntaxError:
        """The error of an attribute that the opcode does not have."""
        own = [n for n, (_, _, is_own) in self.codecs.items() if is_own]
        return reader.error(f"unexpected attribute {name!r} of {self.definition.opcode}", start,
                          f"one of {' '.join([*own, *(n for n in COMMON if n not in own)])}", nearest(name, self.codecs))

    def _at_least(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return f"at least {self.least}" if self.most == float("inf") else f"{self.least} to {self.most}"


def plan_of(opcode: str) -> Plan | None:
    """The plan of an opcode; None for one that is not known."""
    definition = OPS.get(opcode)
    if definition is None:
        return None
    written = {n: a for n, a in definition.attributes.items() if n != POSITIONAL.get(opcode)}
    codecs = {name: (codec, codec.context_free, False) for name, codec in COMMON.items()}
    codecs |= {name: (a.codec, a.codec.context_free, True) for name, a in written.items()}
    if definition.newer:
        codecs |= {name: (codec, codec.context_free, True) for name, codec in definition.newer.codecs.items()}
    most = float("inf") if definition.variadic else len(definition.operands)
    return Plan(definition, codecs, tuple(n for n, a in written.items() if a.required),
                 len(definition.operands) - definition.optional_operands, most)
