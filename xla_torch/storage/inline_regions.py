"""Graphs within exported graphs that run once and as they stand: those with gradients or autocast on or off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.fx

NAMES = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def is_region(node: torch.fx.Node) -> bool:
    """Whether a node runs such a graph."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in NAMES


def parted(module: torch.fx.GraphModule, node: torch.fx.Node) -> tuple[torch.fx.GraphModule, tuple[Any, ...]]:
    """The graph that a node runs, and what that is given."""
    place = next(k for k, one in enumerate(node.args) if isinstance(one, torch.fx.Node) and one.op == "get_attr")
    given: Any = node.args[place]
    return getattr(module, given.target), node.args[place + 1:]


def with_regions(module: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """A graph, and all such graphs within it."""
    yield module
    for node in module.graph.nodes:
        if is_region(node):
            yield from with_regions(parted(module, node)[0])


@contextlib.contextmanager
def keeping_lines(module: torch.fx.GraphModule) -> Iterator[None]:
    """A block in which such graphs run node by node: torch, which inlines them as it decomposes a program, then keeps the user's
    line of each node. Otherwise it would note the line of the code that torch.fx generates."""
    regions = [parted(one, node)[0] for one in with_regions(module) for node in one.graph.nodes if is_region(node)]
    for region in regions:
        region.forward = torch.fx.Interpreter(region).run
    try:
        yield
    finally:
        for region in regions:
            vars(region).pop("forward", None)


def without_dead_code(module: torch.fx.GraphModule) -> None:
    """Leave out what nobody reads of a graph and those within it, whose checks stay."""
    for one in with_regions(module):
        one.graph.eliminate_dead_code(lambda node: node.is_impure() or is_region(node))
        one.recompile()
