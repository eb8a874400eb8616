"""Graphs that hold for many sizes: the sizes stand in the module, and the code is shared by all modules that differ in them.

A program that is lowered for sizes that stand for many (`sizes.py`) has them in the arguments of its calls. Here they become
attributes of the module, which are integers wherever the module runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from ..core.errors import UnsupportedError
from ..core.sizes import MARK, Key, Size
from ..storage.torch_private import of_same_code

_PLAIN = frozenset({Node, bool, int, float, type(None), torch.dtype, torch.device})
"""What is no size and holds none, as nearly all arguments of a program's calls."""


def hold_sizes(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place: its calls read each size from an attribute of `root`."""
    read: dict[Key, Node] = {}
    first = next(iter(graph.nodes))

    def held(argument: Any) -> Any:
        if isinstance(argument, str) and MARK in argument:
            raise UnsupportedError("a call reads a size from text", got=argument.replace(MARK, ""))
        if not isinstance(argument, Size):
            return argument
        if argument.key not in read:
            name = _free(root)
            setattr(root, name, argument)
            with graph.inserting_before(first):
                read[argument.key] = graph.create_node("get_attr", name, (), {}, name)
        return read[argument.key]

    for node in list(graph.nodes):
        if not all(type(a) in _PLAIN for arguments in (node.args, node.kwargs.values()) for a in arguments):
            node.args = map_aggregate(node.args, held)
            node.kwargs = map_aggregate(node.kwargs, held)


def _free(root: torch.nn.Module) -> str:
    count = 0
    while hasattr(root, name := f"size_{count}"):
        count += 1
    return name


def with_sizes(module: torch.nn.Module, values: Mapping[str, int]) -> torch.nn.Module:
    """The module with these values of the unknown sizes: the same code, and the same constants."""
    return of_same_code(module, lambda given: given.at(values) if isinstance(given, Size) else given)
