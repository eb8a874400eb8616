"""Checks in programs: a custom call of our own that raises ExecutionError where a condition on values does not hold.

``xla_torch.check`` takes ``pred[]`` and the numbers that the condition is about, and returns nothing. It has a side effect, so
that no pass leaves it out. Its configuration says in JSON what is asserted and where in the user's code. XLA does not know it:
`transform/other_readers.py` leaves checks out of what is written for other readers.
"""

from __future__ import annotations

import dataclasses
import json

from .ir import Instruction, Module

TARGET = "xla_torch.check"

LABEL = "xla_torch.assumption "
"""How the message of an assertion in a graph begins that asserts an assumption; what follows is the assumption in JSON."""


@dataclasses.dataclass(frozen=True)
class Assumption:
    """A decision of Python that a traced program depends on: what it asked for, the value, and where in the user's code, or, with
    line 0, which operator of the module."""

    expression: str
    value: bool | int | float | str
    file: str
    line: int

    @classmethod
    def of_label(cls, message: str) -> Assumption | None:
        """The assumption that an assertion with this message asserts, if it does."""
        return cls(**json.loads(message.removeprefix(LABEL))) if message.startswith(LABEL) else None

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.expression} is {self.value}"


def assumptions(module: Module) -> tuple[Assumption, ...]:
    """The assumptions that a program checks, each once."""
    configs = [json.loads(i.common["backend_config"]) for c in module.computations for i in c.instructions if is_check(i)]
    return tuple(dict.fromkeys(Assumption(**c["assumption"]) for c in configs if "assumption" in c))


def is_check(instruction: Instruction) -> bool:
    """Whether an instruction is a check."""
    return instruction.attributes.get("custom_call_target") == TARGET


def described(instruction: Instruction) -> str:
    """What a check asserts, and where the user's code makes it, in one line."""
    config = json.loads(instruction.common["backend_config"])
    return f"{config['asserted']} ({config['where']})" if config["where"] else config["asserted"]
