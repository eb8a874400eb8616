"""What torch's compiler makes of a program: groups of calls between those that are best as they are.

`compile(..., "inductor")` does not hand a whole program to torch's compiler, which writes out loops step by step and compiles
equal layers one by one, for minutes. Products, convolutions, sorts, loops and blocks stay calls: torch, or native code, has the
better code for them. What stands between (elementwise calls, reductions, views, concatenations) becomes one function for each
group of calls that are connected, compiled by `kernels.fused_calls`; equal groups are one function.

A call belongs to the group of the calls that have as many of those others before them: then no way leads out of a group and
back into it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ..kernels.calls import VIEWS, known
from ..kernels.fused_calls import FusedCalls, fused_calls
from ..storage.torch_private import LoweredModule
from .blocking import is_elementwise
from .memory import Writes
from .simplify import copy_views, put_in_order

_MAKERS = frozenset({torch.cat, torch.flip, torch.constant_pad_nd, torch.nn.functional.pad, torch.full, torch.clone})
_MAYBE_VIEWS = frozenset({"to", "contiguous"})
"""Methods that give back their operand where there is nothing to do."""

_LEAST = 2
"""Calls that compute, from which a group is worth a function."""

_HALF = frozenset({torch.float16, torch.bfloat16})
"""Types in which the compiler leaves out the rounding between calls, which is part of what a program means."""


def fuse_calls(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; what stands for each group is registered on `root`."""
    for number, nodes in enumerate(_groups(graph)):
        _extract(root, graph, nodes, f"fused_{number}")
    put_in_order(graph)


def _groups(graph: Graph) -> list[list[Node]]:
    """The nodes of each group, in the graph's order. Where a call writes over memory, groups end: they run where their last call
    stands."""
    writes, stages, first = Writes(graph), dict[Node, int](), 0
    members: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        own = _is_member(node)
        stages[node] = max((stages[i] + (own and i not in members and _computes(i)) for i in node.all_input_nodes), default=0)
        if writes.over(node):
            first = max(stages.values()) + 1
        if own:
            stages[node] = max(stages[node], first)
            _join(members, node, stages)
    unique = {id(group): group for group in members.values()}
    place = {node: k for k, node in enumerate(graph.nodes)}
    found = [sorted(group, key=place.__getitem__) for group in unique.values()]
    return [group for group in found if sum(map(_takes_time, group)) >= _LEAST]


def _join(members: dict[Node, list[Node]], node: Node, stages: dict[Node, int]) -> None:
    """Put a node into one group with those of its operands that have its stage."""
    group = members[node] = [node]
    for operand in node.all_input_nodes:
        other = members.get(operand)
        if other is not None and other is not group and stages[operand] == stages[node]:
            small, large = sorted((group, other), key=len)
            large += small
            members.update(dict.fromkeys(small, large))
            group = large


def _computes(node: Node) -> bool:
    return node.op in ("call_function", "call_method")


def _is_member(node: Node) -> bool:
    if "out" in node.kwargs or any(t in _HALF for t in _dtypes(node)):
        return False
    if node.op == "call_method":
        return is_elementwise(node) or node.target in VIEWS or (node.target == "contiguous" and len(node.args) == 1)
    return node.op == "call_function" and (is_elementwise(node) or known(node.target).reduces or node.target in _MAKERS)


def _dtypes(node: Node) -> Iterator[torch.dtype]:
    """The element types that are known of a call's operands and result."""
    for one in (node, *node.all_input_nodes):
        if "array" in one.meta:
            yield one.meta["array"][1]
    yield from (a for a in (*node.args, *node.kwargs.values()) if isinstance(a, torch.dtype))


def _is_view(node: Node) -> bool:
    """Whether the result may lie in an operand's memory."""
    return node.op == "call_method" and (node.target in VIEWS or node.target in _MAYBE_VIEWS)


def _takes_time(node: Node) -> bool:
    return not _is_view(node) and node.target is not torch.full


def _extract(root: torch.nn.Module, graph: Graph, nodes: list[Node], name: str) -> None:
    copy_views(graph, nodes, _is_view)
    members = set(nodes)
    inputs = list(dict.fromkeys(i for node in nodes for i in node.all_input_nodes if i not in members))
    results = [n for n in nodes if any(u not in members for u in n.users)]
    body = Graph()
    inside = {outer: body.placeholder(f"given_{k}") for k, outer in enumerate(inputs)}
    for k, node in enumerate(nodes):
        inside[node] = body.create_node(node.op, node.target, *map_arg((node.args, node.kwargs), inside.__getitem__), f"call_{k}")
    body.output(tuple(inside[n] for n in results))
    while hasattr(root, name):
        name += "_"
    root.add_module(name, FusedCalls(LoweredModule(torch.nn.Module(), body, "Fused"), described(body)))
    with graph.inserting_before(nodes[-1]):
        call = graph.call_function(fused_calls, (graph.create_node("get_attr", name), tuple(inputs)))
        call.meta["inside"] = [n.meta["hlo"] for n in nodes if "hlo" in n.meta]
        call.meta["owned"] = frozenset(range(len(results)))
        for k, node in enumerate(results):
            one = graph.call_function(operator.getitem, (call, k))
            one.meta.update({key: v for key, v in node.meta.items() if key in ("hlo", "array")})
            node.replace_all_uses_with(one)
    for node in reversed(nodes):
        graph.erase_node(node)


def described(body: Graph) -> str:
    """The calls as text: equal texts are equal functions."""
    number = {node: k for k, node in enumerate(body.nodes)}

    def text(argument: Any) -> Any:
        return f"%{number[argument]}" if isinstance(argument, Node) else argument

    return "\n".join(f"{node.op} {_name(node.target)} {map_arg((node.args, node.kwargs), text)!r}" for node in body.nodes)


def _name(target: Any) -> str:
    return target if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"
