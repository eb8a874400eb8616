"""Fusion for the CPU: chains of elementwise calls on large arrays become one call that runs them block by block.

Torch runs each elementwise call over the whole array. Once arrays outgrow the cache, a chain of ten calls moves ten times
the memory that a fused loop would. Here such chains are found in the finished graph and moved into a small sub-program
that `kernels.blocked` runs on pieces of the arrays; between two calls of the chain the piece is still in the cache.
"""

from __future__ import annotations

import dataclasses
import math
import operator

import torch
import torch.fx
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from .kernels.blocked import blocked
from .kernels.marks import ELEMENTWISE
from .memory import OUT_VARIANTS, out_variant, plan_memory

MINIMUM = 1 << 19
"""Elements of an array from which a chain on it is run in blocks."""

BLOCK = 1 << 17
"""Elements of a block: half of it for each of two cores fits a private cache with room for a few intermediates."""

_COMPARISONS = {operator.lt: torch.lt, operator.le: torch.le, operator.gt: torch.gt, operator.ge: torch.ge,
                operator.eq: torch.eq, operator.ne: torch.ne}
_ELEMENTWISE = frozenset(OUT_VARIANTS) | frozenset(_COMPARISONS) | frozenset({torch.clamp, torch.isfinite, torch.sign})

Dims = tuple[int, ...]


@dataclasses.dataclass(eq=False)
class _Chain:
    """Elementwise nodes over arrays of the same dimensions that can run as one."""

    dims: Dims
    nodes: list[Node] = dataclasses.field(default_factory=list)


def block_elementwise(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; sub-programs are registered on `root`."""
    _describe(graph)
    chains = _find_chains(graph)
    if not chains:
        return
    for number, chain in enumerate(chains):
        _extract(root, graph, chain, f"block_{number}")
    _sort(graph)


def _is_elementwise(node: Node) -> bool:
    if "out" in node.kwargs:
        return False
    if node.op == "call_method":
        return node.target == "to" and len(node.args) == 2 and isinstance(node.args[1], torch.dtype)
    return node.op == "call_function" and (node.target in _ELEMENTWISE or node.target in ELEMENTWISE)


def _describe(graph: Graph) -> None:
    """Find dimensions and dtype of the intermediate calls inside op bodies, which no instruction describes."""
    for node in graph.nodes:
        if "array" in node.meta or not _is_elementwise(node):
            continue
        inputs = [i.meta.get("array") for i in node.all_input_nodes]
        if None in inputs or max((math.prod(i[0]) for i in inputs), default=0) < MINIMUM:
            continue
        stand_in = map_arg((node.args, node.kwargs), _meta_tensor)
        function = getattr(torch.Tensor, node.target) if node.op == "call_method" else node.target
        result = function(*stand_in[0], **stand_in[1])
        node.meta["array"] = (tuple(result.shape), result.dtype)


def _meta_tensor(node: Node) -> torch.Tensor:
    dims, dtype = node.meta["array"]
    return torch.empty(dims, dtype=dtype, device="meta")


def _find_chains(graph: Graph) -> list[_Chain]:
    """Chains of at least two nodes. A node joins its operand's chain, or a recent one, unless another way leads from the
    chain to it or something has used a result of the chain before: one of the two would then wait for the other, or be made
    long before it is used."""
    chain_of: dict[Node, _Chain] = {}
    above: dict[Node, frozenset[_Chain]] = {}
    chains: list[_Chain] = []
    used: set[_Chain] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        above[node] = frozenset().union(*(above[i] | ({chain_of[i]} if i in chain_of else frozenset()) for i in inputs))
        if not _can_block(node):
            used.update(chain_of[i] for i in inputs if i in chain_of)
            continue
        size = node.meta["array"][0]
        options = [c for c in (*(chain_of[i] for i in inputs if i in chain_of), *chains[-4:]) if c.dims == size and c not in used]
        chain = next((c for c in options if all(chain_of.get(i) is c or c not in above[i] for i in inputs)
                      and _outside_clear(node, c, chain_of, above)), None)
        if chain is None:
            chain = _Chain(size)
            chains.append(chain)
        used.update(chain_of[i] for i in inputs if chain_of.get(i, chain) is not chain)
        chain.nodes.append(node)
        chain_of[node] = chain
        above[node] -= {chain}
    return [c for c in chains if len(c.nodes) > 1]


def _outside_clear(node: Node, chain: _Chain, chain_of: dict[Node, _Chain], above: dict[Node, frozenset[_Chain]]) -> bool:
    """Joining must not make two chains wait for each other: no chain above the node may itself stand below `chain`."""
    waiting = frozenset().union(*(above[i] | ({chain_of[i]} if i in chain_of else frozenset()) for i in node.all_input_nodes))
    return not any(other is not chain and any(chain in above[m] for m in other.nodes) for other in waiting)


def _can_block(node: Node) -> bool:
    if "array" not in node.meta or not _is_elementwise(node):
        return False
    size = node.meta["array"][0]
    if math.prod(size) < MINIMUM:
        return False
    # Operands are arrays of the same dimensions or scalars; of anything else nothing is known.
    return all("array" in i.meta and i.meta["array"][0] in (size, ()) for i in node.all_input_nodes)


def _extract(root: torch.nn.Module, graph: Graph, chain: _Chain, name: str) -> None:
    members = set(chain.nodes)
    inputs = list(dict.fromkeys(i for n in chain.nodes for i in n.all_input_nodes if i not in members))
    arrays = [i for i in inputs if i.meta["array"][0] == chain.dims]
    scalars = [i for i in inputs if i.meta["array"][0] != chain.dims]
    results = [n for n in chain.nodes if any(u not in members for u in n.users)]
    body = Graph()
    inside: dict[Node, Node] = {}
    for outer in (*arrays, *scalars):
        inside[outer] = body.placeholder(outer.name)
    targets = {n: body.placeholder(f"into_{n.name}") for n in results}
    for node in chain.nodes:
        inside[node] = body.node_copy(node, lambda n: inside[n])
    for node in results:
        _write_into(body, inside[node], targets[node])
    body.output(())
    plan_memory(body, fresh_outputs=False, large=1)
    while hasattr(root, name):
        name += "_"
    root.add_module(name, GraphModule(torch.nn.Module(), body, "Block"))
    dimension, rows = _cut(chain.dims)
    with graph.inserting_before(chain.nodes[-1]):
        module = graph.create_node("get_attr", name)
        specs = tuple(n.meta["array"] for n in results)
        cut = (dimension, chain.dims[dimension], rows)
        call = graph.call_function(blocked, (module, cut, specs, tuple(arrays), tuple(scalars)))
        call.meta["owned"] = frozenset(range(len(results)))
        call.meta["may_overwrite"] = [_read_before(body, targets[n], [inside[a] for a in arrays]) for n in results]
        for number, node in enumerate(results):
            piece = graph.call_function(operator.getitem, (call, number))
            piece.meta.update({k: v for k, v in node.meta.items() if k in ("hlo", "array")})
            node.replace_all_uses_with(piece)
    for node in reversed(chain.nodes):
        graph.erase_node(node)


def _write_into(body: Graph, node: Node, target: Node) -> None:
    """Make a result of the block end in its target, without a copy where torch can write it there."""
    function = _COMPARISONS.get(node.target) or out_variant(node)
    if function is not None and isinstance(node.args[0], Node):
        node.target, node.kwargs = function, {**node.kwargs, "out": target}
    else:
        body.call_method("copy_", (target, node))


def _read_before(body: Graph, target: Node, inputs: list[Node]) -> list[int]:
    """The numbers of the inputs that the block has read when it writes into the target."""
    place = {node: number for number, node in enumerate(body.nodes)}
    written = min(place[user] for user in target.users)
    return [k for k, node in enumerate(inputs) if all(place[user] <= written for user in node.users)]


def _cut(dims: Dims) -> tuple[int, int]:
    """The dimension to cut and the rows of a block: the slowest dimension that has enough rows, else the largest."""
    total = math.prod(dims)
    wanted = max(1, total // BLOCK)
    dimension = next((d for d, n in enumerate(dims) if n >= wanted), max(range(len(dims)), key=dims.__getitem__))
    return dimension, max(1, BLOCK * dims[dimension] // total)


def _sort(graph: Graph) -> None:
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
