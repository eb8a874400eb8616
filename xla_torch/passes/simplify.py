"""Views that a program need not make: those of a chain but the last, and broadcasts that torch does by itself. And concatenations
of concatenations.

XLA writes each broadcast as an instruction of its own, often through a shape with a dimension of size 1 and back. On small
arrays such views cost as much as the arithmetic between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch.fx import Graph, Node

from ..core import tuning
from ..kernels.calls import EXPAND, RESHAPE, ROW_VIEWS, UNSQUEEZE, known

Dims = tuple[int, ...]


def drop_needless_views(graph: Graph) -> None:
    """Rewrite the graph in place; results and their sizes stay."""
    for node in list(graph.nodes):
        if node.op == "call_method" and node.target in ROW_VIEWS:
            _join_views(node)
        elif node.op == "call_function" and known(node.target).out:
            _use_unexpanded(node)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_method" and node.target in ROW_VIEWS and not node.users:
            graph.erase_node(node)


def join_concatenations(graph: Graph) -> None:
    """Let a concatenation read the operands of another one along the same dimension that nothing else reads: each would write
    all of it again. Padding with an array's own elements is two for each dimension."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not torch.cat or node.kwargs:
            continue
        operands, dim = cast(tuple[list[Node], int], node.args)
        inner = [o for o in operands if o.op == "call_function" and o.target is torch.cat and o.args[1:] == (dim,)
                 and not o.kwargs and list(o.users) == [node] and operands.count(o) == 1]
        if inner:
            node.args = ([part for o in operands for part in (cast(list[Node], o.args[0]) if o in inner else [o])], dim)
            for one in inner:
                graph.erase_node(one)


def _is_method(node: object, name: str) -> bool:
    return isinstance(node, Node) and node.op == "call_method" and node.target == name


def _join_views(node: Node) -> None:
    """Of views in a row that show the same elements in other dimensions only the last counts; one to the sizes that are there
    already is none."""
    want = sizes_of(node)
    source = node
    while want is not None and _is_reordering(source):
        source = cast(Node, source.args[0])
    if want is None or source is node:
        return
    same = next((n for n in (source, cast(Node, node.args[0])) if sizes_of(n) == want), None)
    if same is not None:
        node.replace_all_uses_with(same)
    elif source is not node.args[0]:
        node.target, node.args = RESHAPE, (source, tuple(want))


def _is_reordering(node: Node) -> bool:
    """Whether a view shows each element of its operand once, in the same order."""
    if node.op != "call_method" or node.target not in ROW_VIEWS or node.kwargs or not isinstance(node.args[0], Node):
        return False
    have, want = sizes_of(node.args[0]), sizes_of(node)
    if node.target != EXPAND:
        return True
    return have is not None and want is not None and [n for n in have if n != 1] == [n for n in want if n != 1]


def sizes_of(node: Node) -> Dims | None:
    """The sizes of what a node gives, where they are known and stand for no others."""
    if "array" in node.meta:
        dims = tuple(node.meta["array"][0])
    elif _is_method(node, UNSQUEEZE) and isinstance(node.args[0], Node):
        have, at = sizes_of(node.args[0]), node.args[1]
        if have is None or not isinstance(at, int) or at < 0:
            return None
        dims = (*have[:at], 1, *have[at:])
    else:
        return None
    return dims if all(type(n) is int for n in dims) else None


def _use_unexpanded(node: Node) -> None:
    """Give an elementwise call the small operand instead of its expansion, if another operand has the full size."""
    array = node.meta.get("array")
    # Chains on arrays of that size run in blocks, which want operands of one shape.
    if array is None or math.prod(array[0]) >= tuning.BLOCKED_FROM:
        return
    operands = [a for a in node.args if isinstance(a, Node)]
    expanded = [a for a in operands if _is_method(a, EXPAND)]
    if expanded and any(a not in expanded and a.meta.get("array", ((),))[0] == array[0] for a in operands):
        node.args = tuple(a.args[0] if isinstance(a, Node) and a in expanded else a for a in node.args)


def copy_views(graph: Graph, nodes: list[Node], is_view: Callable[[Node], bool]) -> None:
    """Of nodes that are to be taken out: views that are also used outside are made there again, rather than be results."""
    members = set(nodes)
    for node in reversed(nodes):
        outside = [user for user in node.users if user not in members]
        if is_view(node) and outside:
            with graph.inserting_after(node):
                twin = graph.node_copy(node)
            for user in outside:
                user.replace_input_with(node, twin)
    for node in [n for n in reversed(nodes) if not n.users]:
        nodes.remove(node)
        graph.erase_node(node)


def put_in_order(graph: Graph) -> None:
    """Put nodes after their inputs again, otherwise in the order they had."""
    nodes = [n for n in graph.nodes if n.op != "output"]
    done: set[Node] = set()
    order: list[Node] = []
    for node in nodes:
        stack = [node]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            missing = [i for i in top.all_input_nodes if i not in done]
            if missing:
                stack.extend(missing)
            else:
                stack.pop()
                done.add(top)
                order.append(top)
    anchor = next(iter(reversed(graph.nodes)))
    for node in order:
        anchor.prepend(node)
