"""The names that JAX gives to instructions: ``jit(f)/Dense_0/dot_general``."""

from __future__ import annotations

_DEPTH = 60
"""Levels of the tree of op_names: deeper ones are one level, as text."""


def levels_of(op_name: str) -> list[str]:
    """``jit(f)/transpose(jvp(a/b))/mul`` has three: slashes within parentheses are not between levels."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(op_name):
        depth = max(depth + (character == "(") - (character == ")"), 0)
        if character == "/" and not depth:
            found.append(op_name[start:at])
            start = at + 1
            if len(found) == _DEPTH:
                break
    return [level for level in (*found, op_name[start:]) if level]
