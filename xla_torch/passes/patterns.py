"""Questions about the nodes of a graph, for passes that match patterns.

An argument of a call may be another call, an input, a constant or a plain number: each question has an answer for all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch.fx import Node


def arguments(node: Any, functions: Collection[Any], count: int) -> tuple[Any, ...]:
    """The arguments of a call of one of these functions, if they are `count` positional ones; otherwise a None for each."""
    is_call = isinstance(node, Node) and node.op == "call_function" and node.target in functions
    return node.args if is_call and len(node.args) == count and not node.kwargs else (None,) * count


def array_of(node: Any) -> tuple[int, ...] | None:
    """The sizes of a described array, if they are known."""
    dims = node.meta.get("array", (None,))[0] if isinstance(node, Node) else None
    return tuple(dims) if dims is not None and all(type(n) is int for n in dims) else None
