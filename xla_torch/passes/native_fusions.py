"""Fusions of a block as native code: calls that a C compiler makes vector code of, made one pass over their operands.

Inside a block (`blocking.py`) torch still reads and writes every intermediate array, if only in the cache. Arithmetic, bits,
comparisons, selects, and sums, largest and smallest elements of rows can be one loop over rows. What torch has better code for
divides the others into fusions. They compute the same bits as torch: each operation is rounded as IEEE 754 says, and rows are
summed up in torch's own order. (A root may differ in its last bit, where torch's library rounds it otherwise, and so may the sign
of a zero that is the larger of two, on which torch's own loops do not agree.)

Exponentials and their like of float32, and functions of complex64, are as exact as torch's, but not of the same bits. On large
arrays a fusion with such a function waits for its code before it first runs, so that a program gives the same numbers each time;
on smaller ones it begins in torch, as bundles and loops do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx
from torch.fx import Graph, GraphModule, Node

from ..core import tuning
from ..kernels import convert, integers
from ..kernels.calls import COMPARISONS, known
from ..kernels.native import can_fuse, made_after
from ..kernels.native_fusions import NativeFusion, Role, fusion
from .fusion_source import SLOW_IN_TORCH, Calls, Source, is_complex_function, is_rounded
from .memory import plan_memory
from .simplify import copy_views, put_in_order

_LEAST = 4
"""Calls from which a fusion is worth compiling."""

_DEAR = 3
"""Such calls that a function counts for."""


_OF_SEVERAL_CALLS = frozenset({integers.__name__, convert.__name__})
"""Modules of kernels for which torch needs several calls: division that rounds to zero and traps nothing, counts of bits."""


def form_fusions(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite a block in place, before its results are written anywhere; sub-programs are registered on `root`."""
    calls, groups = fusions(graph.nodes)
    for k, nodes in enumerate(groups):
        _extract(root, graph, calls, nodes, f"piece_{k}")
    put_in_order(graph)


def _cost(node: Node) -> int:
    """What a call takes torch, in plain calls on as many elements."""
    if is_complex_function(node):
        return _LEAST
    if is_rounded(node):
        return _LEAST if known(node.target).opcode in SLOW_IN_TORCH else _DEAR
    if getattr(node.target, "__module__", "") in _OF_SEVERAL_CALLS:
        return _LEAST
    if known(node.target).out in COMPARISONS:
        return tuning.COMPARISON_COST
    return tuning.SELECT_COST if node.target is torch.where else not _is_view(node)


def has_fusions(nodes: Iterable[Node]) -> bool:
    """Whether there is a fusion among the nodes of a chain."""
    return bool(fusions(nodes)[1])


def fusions(nodes: Iterable[Node]) -> tuple[Calls, list[list[Node]]]:
    """The nodes of each fusion: those with equally many calls of torch's between them and the inputs."""
    nodes = list(nodes)
    grid = max((n.meta["array"][0] for n in nodes if "array" in n.meta), key=math.prod, default=())
    calls = Calls(nodes, grid, can_fuse())
    levels: dict[Node, int] = {}
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        is_member = node in calls.is_row
        levels[node] = max((levels.get(i, 0) + (not is_member and i in calls.is_row) for i in node.all_input_nodes), default=0)
        if is_member:
            groups.setdefault(levels[node], []).append(node)
    return calls, [group for group in groups.values() if _is_worth(calls, group)]


def _is_worth(calls: Calls, nodes: list[Node]) -> bool:
    """Whether a group takes torch some calls, and reads arrays. A result that is also read inside has to be copied."""
    members = set(nodes)
    copied = sum(0 < len(members.intersection(n.users)) < len(n.users) for n in nodes)
    is_dear = sum(map(_cost, nodes)) + copied >= _LEAST
    return is_dear and _shows_grid(calls, inputs_of(calls, nodes)) and not all(map(calls.is_row.__getitem__, nodes))


def _shows_grid(calls: Calls, inputs: dict[Node, Role]) -> bool:
    """Whether the inputs say how large the grid is: one of them, or rows and columns together."""
    roles = {*inputs.values()}
    are_spread = all(len(n.meta["array"][0]) == len(calls.grid) for n, role in inputs.items() if role == "row")
    return not {"whole", "apart"}.isdisjoint(roles) or ({"row", "column"} <= roles and are_spread)


def inputs_of(calls: Calls, nodes: list[Node]) -> dict[Node, Role]:
    members, roles = set(nodes), dict[Node, Role]()
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in members:
                role = calls.role(node, operand)
                assert role is not None
                roles[operand] = role
    return roles


def _is_view(node: Node) -> bool:
    return node.op == "call_method" and node.target != "to"


def is_fusion(node: Node) -> bool:
    """Whether a node is a result of a fusion."""
    return node.target is operator.getitem and isinstance(node.args[0], Node) and node.args[0].target is fusion


def is_one_fusion(body: Graph) -> bool:
    """Whether a block is one fusion, and calls nothing else."""
    calls = [n for n in body.nodes if n.op in ("call_function", "call_method") and not is_fusion(n)]
    return [n.target for n in calls] == [fusion]


def write_into(node: Node, target: Node) -> None:
    """Let a fusion write one of its results into `target`."""
    call: Any = node.args[0]
    module, inputs, targets = call.args
    place: Any = node.args[1]
    call.args = (module, inputs, tuple(target if k == place else t for k, t in enumerate(targets)))
    call.meta["owned"] -= {place}


def _extract(root: torch.nn.Module, graph: Graph, calls: Calls, nodes: list[Node], name: str) -> None:
    copy_views(graph, nodes, _is_view)
    members, inputs = set(nodes), inputs_of(calls, nodes)
    results = [n for n in nodes if any(u not in members for u in n.users)]
    source = Source(calls, nodes, inputs, results)
    body = Graph()
    inside = {i: body.placeholder(i.name) for i in inputs}
    for node in nodes:
        inside[node] = body.node_copy(node, inside.__getitem__)
    body.output(tuple(inside[n] for n in results))
    plan_memory(body, fresh_outputs=False, large=1)
    module = GraphModule(torch.nn.Module(), body, "Fusion")
    made = [(n.meta["array"][1], len(n.meta["array"][0]) - len(calls.grid) if calls.is_row[n] else None) for n in results]
    waits = math.prod(calls.grid) >= tuning.WAITED_FOR_FROM and any(map(is_rounded, nodes))
    native = NativeFusion(source.text(), module, tuple(inputs.values()), made, source.kept_bytes,
                          len(calls.grid) if source.is_flat else calls.lead, waits)
    if native.waits or math.prod(calls.grid) * sum(map(_cost, nodes)) * tuning.FUSION_ELEMENT >= made_after(native.text):
        native.begin()
    root.add_module(name, native)
    with graph.inserting_after(nodes[-1]):
        call = graph.call_function(fusion, (graph.create_node("get_attr", name), tuple(inputs), (None,) * len(results)))
    call.meta["owned"] = frozenset(range(len(results)))
    for k, node in enumerate(results):
        with graph.inserting_after(call):
            one = graph.call_function(operator.getitem, (call, k))
        one.meta["array"] = node.meta["array"]
        node.replace_all_uses_with(one)
    for node in reversed(nodes):
        graph.erase_node(node)
