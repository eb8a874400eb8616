"""The table of fused rules: gradients that several ops have together and that are simpler, or more exact, than theirs one by one.

A fused rule stands under the op that gives the result. It looks at an instruction and what it is computed from, and either
does not apply (None), or says of which one value the result is a function, and what the cotangent of that value is. The
engine then goes around the rules of the ops between the two. ::

    @fused("softmax", "divide", "exponential", "reduce")
    def _softmax(result: Instruction) -> Fused | None: ...

The first opcode is the result's; all are those whose rules it stands for. Where a user has put a rule in the place of one of
these, the fused rule does not apply.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator

from grad_rules._table import TABLE
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Instruction
from xla_torch.hlo.schema import OPS


@dataclasses.dataclass(frozen=True, slots=True)
class Fused:
    """One place where a fused rule applies: the result depends on `source` and on nothing else that has a gradient.

    `rule` takes the result's cotangent and the values of the instructions that it `reads`, and gives the cotangent of
    `source`. If the derivative is `symmetric` but for conjugation, the rule carries tangents the other way as it is; else it is
    transposed for them. `elementwise` says that each element of the result depends on the source's element at the same place
    only.
    """

    source: Instruction
    rule: (Callable[[XlaOp, XlaOp], XlaOp | None] | Callable[[XlaOp, XlaOp, XlaOp], XlaOp | None]
           | Callable[[XlaOp, XlaOp, XlaOp, XlaOp], XlaOp | None])
    reads: tuple[Instruction, ...]
    elementwise: bool = True
    symmetric: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class FusedRule:
    """An entry of the table. `opcodes` are the ops whose rules it stands for, the result's first."""

    name: str
    opcodes: tuple[str, ...]
    match: Callable[[Instruction], Fused | None]

    @property
    def what(self) -> str:
        """What the rule is, in one paragraph: the first of its docstring."""
        return " ".join((inspect.getdoc(self.match) or "").partition("\n\n")[0].split())


FUSED: dict[str, FusedRule] = {}
"""Every fused rule by its name. Filled by importing `grad_rules`."""


def fused(name: str, *opcodes: str) -> Callable[[Callable[[Instruction], Fused | None]], Callable[[Instruction], Fused | None]]:
    """Decorate a fused rule. Raises TypeError at import for an unknown opcode and for a name that another one has."""

    def enter(match: Callable[[Instruction], Fused | None]) -> Callable[[Instruction], Fused | None]:
        unknown = [opcode for opcode in opcodes if opcode not in OPS]
        if unknown or not opcodes:
            raise TypeError(f"fused gradient rule {name!r} for unknown opcodes: {unknown}")
        if name in FUSED:
            raise TypeError(f"there are two fused gradient rules called {name!r}: {FUSED[name].match} and {match}")
        FUSED[name] = FusedRule(name, opcodes, match)
        return match

    return enter


def fused_at(result: Instruction) -> Fused | None:
    """Where a fused rule applies to an instruction, the first one that does."""
    return next(_applying(result), None)


def _applying(result: Instruction) -> Iterator[Fused]:
    for rule in FUSED.values():
        if rule.opcodes[0] == result.opcode and not any(TABLE[opcode].own for opcode in rule.opcodes):
            found = rule.match(result)
            if found is not None:
                yield found
