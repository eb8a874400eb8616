"""Graphs in the place of nodes of other graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from ..core.errors import InternalError
from . import torch_graph


def inline(module: torch.fx.GraphModule, node: torch.fx.Node, graph: torch.fx.GraphModule,
           given: Sequence[torch.fx.Node]) -> None:
    """Put a graph in the place of a node."""
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    rest = iter(given)
    where = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
    for part in graph.graph.nodes:
        if part.op == "placeholder":
            known[part] = next(rest)
        elif part.op == "output":
            _hand_over(module, node, map_arg(part.args[0], lambda n: known[n]))
        elif part.op == "get_attr":
            raise InternalError("a constant in what an operator is", subject=torch_graph.name_of(node.target), got=part.target)
        else:
            with module.graph.inserting_before(node):
                known[part] = module.graph.node_copy(part, lambda n: known[n])
            known[part].meta = {**part.meta, **where}


def _hand_over(module: torch.fx.GraphModule, node: torch.fx.Node, found: Any) -> None:
    """Let all who read a node read what stands in its place."""
    if isinstance(found, torch.fx.Node):
        node.replace_all_uses_with(found)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(found[user.args[1]])
            module.graph.erase_node(user)
    module.graph.erase_node(node)
