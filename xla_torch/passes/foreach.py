"""Results on many arrays as one native call: an optimizer's update of a hundred weights, for one.

Torch needs 2 us for each call, however small the array, and a block of calls ten times as long. Arithmetic whose values go
nowhere but into the program's results, and through no other call, is put together at the program's end: nothing else waits for
it then. It is made of flat fusions (`fusion_source.py`), one for each array, with one function for equal ones, and threads
share all their elements.

It computes the same bits as torch, but for roots: torch's library rounds one in seven otherwise than IEEE 754 says. Such a call
with roots waits for its code before it first runs, so that a program gives the same numbers each time.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from typing import Any

import torch
import torch.fx
from torch.fx import Graph, GraphModule, Node

from ..codegen.compiled import is_available
from ..core import tuning
from ..kernels.native_fusions import NativeForeach, Role, foreach
from .blocking import is_elementwise
from .fusion_source import Calls, Source, expression, text_of_foreach
from .memory import plan_memory

_LEAST = 4
"""Fusions from which a foreach is more than what a block is."""


def foreach_results(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; the sub-program is registered on `root`."""
    if math.isinf(tuning.NATIVE_AFTER) or not is_available():
        return
    members = _members(graph)
    fusions = [_Fusion(c) for c in _components(members) if not _belongs_to_a_block(c)]
    fusions = [p for p in fusions if p.source is not None]
    if len(fusions) >= _LEAST and sum(len(p.nodes) for p in fusions) >= tuning.FOREACH_CALLS:
        _extract(root, graph, fusions)


def _members(graph: Graph) -> set[Node]:
    """Elementwise calls that are used by each other and as results alone."""
    members: set[Node] = set()
    for node in reversed(graph.nodes):
        if all(u.op == "output" or (u in members and _dims(u) == _dims(node)) for u in node.users) and _is_member(node):
            members.add(node)
    return members


def _is_member(node: Node) -> bool:
    if node.op not in ("call_function", "call_method") or not node.users or "array" not in node.meta:
        return False
    dims = _dims(node)
    if not dims or not all(type(n) is int for n in dims) or not 0 < math.prod(dims) <= tuning.FOREACH_UP_TO:
        return False
    return expression(node, None, rounded=False) is not None and all(_is_plain(i, dims) for i in node.all_input_nodes)


def _is_plain(operand: Node, dims: tuple[int, ...]) -> bool:
    """Whether an operand has a value for each element, or one for all."""
    return _dims(operand) in (dims, ()) and not (operand.op == "call_method" and operand.target == "expand")


def _belongs_to_a_block(nodes: list[Node]) -> bool:
    """Whether a fusion is the end of a longer chain on an array that blocks take."""
    inside, dims = set(nodes), _dims(nodes[0])
    return math.prod(dims) >= tuning.FUSIONS_FROM and any(
        is_elementwise(i) and "array" in i.meta and _dims(i) == dims for n in nodes for i in n.all_input_nodes if i not in inside)


def _dims(node: Node) -> tuple[int, ...]:
    return tuple(node.meta["array"][0])


def _components(members: set[Node]) -> list[list[Node]]:
    """Members that are connected with each other, in order."""
    of: dict[Node, list[Node]] = {}
    for node in members:
        of[node] = [node]
    for node in members:
        for operand in node.all_input_nodes:
            if operand in members and of[operand] is not of[node]:
                small, large = sorted((of[operand], of[node]), key=len)
                large += small
                of.update(dict.fromkeys(small, large))
    found = {id(component): component for component in of.values()}
    return sorted((sorted(c) for c in found.values()), key=lambda c: c[0])


class _Fusion:
    """Calls with their inputs and results; there is a `source` if they can be native."""

    def __init__(self, nodes: list[Node]):
        self.nodes = nodes
        calls = Calls(nodes, _dims(nodes[0]), rounded=False)
        self.source: Source | None = None
        if all(calls.is_row.get(node) is False for node in nodes):
            members = set(nodes)
            inputs: dict[Node, Role] = {i: calls.roles[i] for node in nodes for i in node.all_input_nodes if i not in members}
            self.results = [node for node in nodes if any(user not in members for user in node.users)]
            source = Source(calls, nodes, inputs, self.results)
            self.source = source if source.is_flat else None


def _extract(root: torch.nn.Module, graph: Graph, fusions: list[_Fusion]) -> None:
    sources = [fusion.source for fusion in fusions if fusion.source is not None]
    inputs = list(dict.fromkeys(i for source in sources for i in source.inputs))
    results = [node for source in sources for node in source.results]
    number = {node: k for k, node in enumerate([*inputs, *results])}
    functions: dict[str, int] = {}
    about: list[tuple[int, int, int, int]] = []
    order: list[int] = []
    elements = 0
    for fusion, source in zip(fusions, sources, strict=True):
        function = functions.setdefault(source.body("part_0"), len(functions))
        begin, elements = elements, elements + math.prod(_dims(fusion.nodes[0]))
        about.append((function, len(order), begin, elements))
        order += [number[node] for node in (*source.inputs, *source.results)]
    text = text_of_foreach([body.replace("part_0", f"part_{k}", 1) for body, k in functions.items()])
    made = [(_dims(node), node.meta["array"][1]) for node in results]
    waits = any(node.target is torch.sqrt for fusion in fusions for node in fusion.nodes)
    native = NativeForeach(text, _in_torch(fusions, inputs, results), made, about, order, waits)
    if waits:
        native.begin()
    name = "results"
    while hasattr(root, name):
        name += "_"
    root.add_module(name, native)
    output, instead = next(iter(reversed(graph.nodes))), dict[Node, Node]()
    with graph.inserting_before(output):
        call = graph.call_function(foreach, (graph.create_node("get_attr", name), tuple(inputs)))
        call.meta["inside"] = [n.meta["hlo"] for f in fusions for n in f.nodes if "hlo" in n.meta]
        call.meta["owned"] = frozenset(range(len(results)))
        call.meta["may_overwrite"] = _overwritten(sources, number)
        for k, node in enumerate(results):
            one = graph.call_function(operator.getitem, (call, k))
            one.meta.update({key: v for key, v in node.meta.items() if key in ("hlo", "array")})
            instead[node] = one
        output.args = torch.fx.map_arg(output.args, lambda node: instead.get(node, node))
    for fusion in fusions:
        for node in reversed(fusion.nodes):
            graph.erase_node(node)


def _overwritten(sources: list[Source], number: dict[Node, int]) -> list[list[int]]:
    """For each result the numbers of inputs that it may be written over: those that its fusion alone reads, by element."""
    read = Counter(i for source in sources for i in source.inputs)
    return [[number[i] for i, role in source.inputs.items() if role == "whole" and read[i] == 1
             and i.meta["array"] == node.meta["array"]] for source in sources for node in source.results]


def _in_torch(fusions: list[_Fusion], inputs: list[Node], results: list[Node]) -> GraphModule:
    body = Graph()
    inside: dict[Node, Any] = {i: body.placeholder(i.name) for i in inputs}
    for node in (node for fusion in fusions for node in fusion.nodes):
        inside[node] = body.node_copy(node, inside.__getitem__)
    body.output(tuple(inside[node] for node in results))
    plan_memory(body, fresh_outputs=False, large=1)
    return GraphModule(torch.nn.Module(), body, "Foreach")
