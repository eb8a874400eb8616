"""Which gradients users have registered, as far as programs that are not differentiated must know it.

The rules by opcode are in `grad_rules`, which is imported when a program is differentiated for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_target_rules: dict[str, Callable[..., Any]] = {}
"""Users' rules by the target of a custom call, for the whole process."""

_changes = 0
"""How often a rule was changed. Rules belong to the whole process, as the table does."""


def changed() -> None:
    """Say that a rule is another now: what was derived by the old ones is derived anew."""
    global _changes  # noqa: PLW0603
    _changes += 1


def revision() -> int:
    """A number that is another one after every change of a rule: part of the key of what rules have derived."""
    return _changes


def target_rule(target: str) -> Callable[..., Any] | None:
    """The registered rule for custom calls of a target."""
    return _target_rules.get(target)


def has_target_rule(target: str) -> bool:
    """Whether custom calls of a target have a registered rule."""
    return target in _target_rules


def set_target_rule(target: str, rule: Callable[..., Any] | None) -> None:
    """Register the rule for custom calls of a target in place of the one before; None for none."""
    if rule is None:
        _target_rules.pop(target, None)
    else:
        _target_rules[target] = rule
