"""What a command has to say: in words or, with ``--json``, as one line of JSON; and its exit status."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.errors import XlaError
from ..core.printable import printable

FAILED = 2
"""Exit status after an error, the same as for a wrong command line."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell has it."""


@dataclass(frozen=True)
class Message:
    """The output of a command: text or JSON facts, made when asked for, and the exit status."""

    text: Callable[[], str]
    facts: Callable[[], Any]
    status: int = 0


def as_json(facts: Any) -> str:
    """On one line, so that several processes may share a terminal. What is no number in JSON is a string: ``"NaN"``."""
    return json.dumps(_plain(facts), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def error_facts(error: XlaError) -> dict[str, str]:
    """The parts of an error that it has."""
    parts = {"error": error.what, "kind": type(error).__name__, "subject": error.subject, "got": error.got,
             "expected": error.expected, "from": error.where, "hint": error.hint}
    return {name: printable(str(part), 800) for name, part in parts.items() if not (isinstance(part, str) and not part)}
