"""Questions about the nodes of a graph, for passes that match patterns, and a copy that passes make.

An argument of a call may be another call, an input, a constant or a plain number: each question has an answer for all of them.
"""

from __future__ import annotations

import cmath
from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, Node


def arguments(node: Any, functions: Collection[Any], count: int) -> tuple[Any, ...]:
    """The arguments of a call of one of these functions, if they are `count` positional ones; otherwise a None for each."""
    is_call = isinstance(node, Node) and node.op == "call_function" and node.target in functions
    return node.args if is_call and len(node.args) == count and not node.kwargs else (None,) * count


def array_of(node: Any) -> tuple[int, ...] | None:
    """The sizes of a described array, if they are known."""
    dims = node.meta.get("array", (None,))[0] if isinstance(node, Node) else None
    return tuple(dims) if dims is not None and all(type(n) is int for n in dims) else None


def number_of(root: torch.nn.Module, node: Any) -> complex | None:
    """The finite number that a constant shows everywhere."""
    if not isinstance(node, Node) or node.op != "get_attr" or array_of(node) is None:
        return None
    tensor: torch.Tensor = getattr(root, str(node.target))
    if tensor.device.type != "cpu" or any(tensor.stride()) or not tensor.numel():  # of a device one would wait for it
        return None
    number = tensor[(0,) * tensor.dim()].item()
    return number if cmath.isfinite(number) else None


def copied(graph: Graph, value: Any) -> Node:
    """A call that copies a value, with its elements in the order of its dimensions."""
    return graph.call_function(torch.clone, (value,), {"memory_format": torch.contiguous_format})
