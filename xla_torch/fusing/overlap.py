"""Exchanges between participants run beside the computation: each is begun where it stands in the program, and awaited
where its result is first used. Start and done of HLO's asynchronous forms are no more than that, so all forms are alike.
"""

from __future__ import annotations

import operator

from torch.fx import Graph, Node

from ..kernels import collective


def overlap_exchanges(graph: Graph) -> None:
    """Rewrite the graph in place: exchanges after which something else is computed first become a begin and a wait."""
    place = {node: position for position, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in collective.BEGINS:
            users = [user for user in node.users if not _is_part(user)] + [u for p in node.users if _is_part(p) for u in p.users]
            first = min(users, key=place.__getitem__, default=None)
            if first is not None and any(_computes(between) for between in _between(node, first)):
                _split(graph, node, first)


def _is_part(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def _between(node: Node, end: Node) -> list[Node]:
    found, current = [], node.next
    while current is not end:
        found.append(current)
        current = current.next
    return found


def _computes(node: Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module") and not _is_part(node)


def _split(graph: Graph, node: Node, first: Node) -> None:
    several = node.target is collective.all_to_all_tuple
    for part in [user for user in node.users if _is_part(user)]:
        first.prepend(part)
    before = next((p for p in _between(node, first) if p in node.users), first)
    with graph.inserting_before(before):
        awaited = graph.call_function(collective.wait_all if several else collective.wait, (node,))
    awaited.meta.update(node.meta)
    node.meta.pop("array", None)
    node.replace_all_uses_with(awaited, delete_user_cb=lambda user: user is not awaited)
    node.target = collective.BEGINS[node.target]  # pyright: ignore[reportArgumentType]
