"""Checks in programs: a custom call of our own that raises ExecutionError where a condition on values does not hold.

``xla_torch.check`` takes ``pred[]`` and the numbers that the condition is about, and returns nothing. It has a side effect, so
that no pass leaves it out. Its configuration says in JSON what is asserted and where in the user's code. XLA does not know it:
`transform/other_readers.py` leaves checks out of what is written for other readers.
"""

from __future__ import annotations

import json

from .ir import Instruction

TARGET = "xla_torch.check"


def is_check(instruction: Instruction) -> bool:
    """Whether an instruction is a check."""
    return instruction.attributes.get("custom_call_target") == TARGET


def described(instruction: Instruction) -> str:
    """What a check asserts, and where the user's code makes it, in one line."""
    config = json.loads(instruction.common["backend_config"])
    return f"{config['asserted']} ({config['where']})" if config["where"] else config["asserted"]
