"""Fusion for the CPU: chains of calls on large arrays, elementwise and along rows, become one call that runs them block by block.

Torch runs each call over the whole array. Once arrays outgrow the cache, a chain of ten calls moves ten times the memory that
a fused loop would. Here such chains are found in the finished graph and moved into a small sub-program that `kernels.blocked`
runs on parts of the arrays; between two calls of the chain a part is still in the cache.

A chain is cut along one dimension, and each dimension before it into single places. What belongs to it computes each of these
places from the same place of its operands: elementwise calls, reductions of later dimensions (a softmax's maximum and sum, the
moments of a norm), and the views that bring their results back to full size. Operands without these dimensions (a norm's weights)
are given whole. A reduction of the cut dimension ends a chain: each block reduces its part, and the parts are reduced after it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.fx
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ..codegen.compiled import is_available
from ..core import tuning
from ..core.sizes import Size
from ..kernels.blocked import blocked
from ..kernels.calls import EXPAND, ROW_VIEWS, known
from ..kernels.native_fusions import Role
from ..kernels.native_products import products
from ..storage.torch_private import LoweredModule
from .filled_gathers import array_of
from .memory import Writes, out_variant, plan_memory
from .native_fusions import form_fusions, has_fusions, is_fusion, is_one_fusion, write_into
from .short_ends import spread_short_ends
from .simplify import copy_views, put_in_order

Dims = tuple[int, ...]

_SPLIT_FROM = 64
"""Elements that a block reduces to one, from which that is worth reducing twice."""


Part = Literal["cut", "kept", "whole"]
"""What a block gets of an operand: its own places of the dimension that is cut and one of each before it; one of each before it,
with all that follows; all of it."""


class Chain:
    """Nodes that can run as one on blocks of the dimension `cut`: elementwise ones over arrays of the same dimensions, and those
    that follow from them row by row."""

    needs_native = False
    """Whether it runs in one piece of native code or not as a chain."""

    def __init__(self, dims: Dims):
        self.dims, self.nodes, self.members = dims, list[Node](), set[Node]()
        self.cut, self.rows = _cut(dims)
        self._parts: dict[Node, Part] = {}

    @property
    def prefix(self) -> Dims:
        return self.dims[:self.cut + 1]

    def fits(self, node: Node) -> bool:
        """Whether the node computes each place of the cut dimension from the same place of its operands."""
        return self._parts_of(node) is not None

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.members.add(node)
        self._parts.update(self._parts_of(node) or {})

    def inputs(self) -> dict[Part, list[Node]]:
        """What the chain is computed from, by what of it each block gets."""
        self._parts.clear()  # earlier chains stand in the place of some operands by now
        for node in self.nodes:
            self._parts.update(self._parts_of(node) or {})
        outside = [(i, part) for i, part in self._parts.items() if i not in self.members]
        return {part: [i for i, own in outside if own == part] for part in ("cut", "kept", "whole")}

    def _parts_of(self, node: Node) -> dict[Node, Part] | None:
        """For each operand what a block needs of it; None where the node cannot belong to the chain."""
        if "array" not in node.meta or not (
                _large_grid(node) == self.dims if _is_partial(node) else self._is_along(node) and self.takes(node)):
            return None
        parts: dict[Node, Part] = {}
        for operand in node.all_input_nodes:
            part = self.part(node, operand, operand.meta["array"][0]) if "array" in operand.meta else None
            if part is None or self._parts.get(operand, part) != part or (part != "cut" and operand in self.members):
                return None
            parts[operand] = part
        return parts

    def _is_along(self, node: Node) -> bool:
        return node.meta["array"][0][:self.cut + 1] == self.prefix

    def as_native(self, body: Graph) -> torch.nn.Module | None:
        """What runs the whole chain, where that is other than a body for blocks."""
        return None

    def takes(self, node: Node) -> bool:
        """Whether a node of these dimensions can belong to the chain, whatever its operands are."""
        return _is_rowwise(node, self.cut)

    def part(self, node: Node, operand: Node, dims: Dims) -> Part | None:
        """What a block needs of an operand of these dimensions; None where that is none of the three."""
        less = len(node.meta["array"][0]) - len(dims) if is_elementwise(node) else 0
        first = dims[:max(0, self.cut + 1 - less)]
        if all(n == 1 for n in first):
            return "whole"
        if less or any(n not in (1, own) for n, own in zip(first, self.prefix, strict=True)):
            return None
        return "cut"


def block_elementwise(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; sub-programs are registered on `root`."""
    _describe(graph)
    spread_short_ends(graph)
    _split_reductions(graph)
    _put_ends_last(graph)
    extract_chains(root, graph, _find_chains(graph))


def extract_chains(root: torch.nn.Module, graph: Graph, chains: Sequence[Chain]) -> None:
    """Put a call in the place of each chain."""
    for number, chain in enumerate(chains):
        _extract(root, graph, chain, f"block_{number}")
    if chains:
        put_in_order(graph)


def is_elementwise(node: Node) -> bool:
    if "out" in node.kwargs:
        return False
    if node.op == "call_method":
        return node.target == "to" and len(node.args) == 2 and isinstance(node.args[1], torch.dtype)
    return node.op == "call_function" and known(node.target).elementwise


def is_product(node: Node) -> bool:
    """Whether a node is a product of matrices, or of stacks of them."""
    return node.op == "call_function" and node.target in (operator.matmul, torch.matmul) and not node.kwargs


def _is_view(node: Node) -> bool:
    return node.op == "call_method" and node.target in ROW_VIEWS and len(node.args) == 2 and not node.kwargs


def _is_of_sizes(view: Node) -> bool:
    """Whether its own or its operand's dimensions hold sizes that stand for many."""
    source, how = view.args
    assert isinstance(source, Node)
    return any(isinstance(n, Size) for n in (*source.meta["array"][0], *(how if isinstance(how, (tuple, list)) else (how,))))


def _is_reduction(node: Node) -> bool:
    return node.op == "call_function" and known(node.target).reduces and len(node.args) == 2 and not node.kwargs


def _is_partial(node: Node) -> bool:
    """Whether a node reduces each block of an array to a part of the result, which is reduced again."""
    return node.meta.get("partial", False)


def _is_rowwise(node: Node, cut: int) -> bool:
    """Whether a node treats the places of its dimension `cut`, and those of the dimensions before it, one by one."""
    if is_elementwise(node):
        return True
    args: Any = node.args
    if not (_is_reduction(node) or _is_view(node)) or "array" not in args[0].meta:
        return False
    (before, _), how = args[0].meta["array"], args[1]
    if _is_reduction(node):
        return isinstance(how, tuple) and min(how, default=-1) > cut
    if isinstance(how, int):
        return how > cut
    same = before[:cut + 1] == tuple(how)[:cut + 1]
    return same if node.target != EXPAND else same and len(before) == len(how)


def _split_reductions(graph: Graph) -> None:
    """Reduce what a chain makes within its blocks first, where nothing else reads it: a loss is computed in one pass."""
    for node in list(graph.nodes):
        grid = _large_grid(node) if _is_reduction(node) else None
        source: Any = node.args[0] if node.args else None
        if (grid and is_elementwise(source) and len(source.users) == 1 and isinstance(node.args[1], tuple)
                and source.meta["array"][1].is_floating_point):
            _split_reduction(graph, node, grid)


def _split_reduction(graph: Graph, node: Node, grid: Dims) -> None:
    args: Any = node.args
    target: Any = node.target
    source, how = args
    cut, rows = _cut(grid)
    inner = tuple(d for d in how if d > cut)
    of_rows, of_blocks = math.prod(grid[d] for d in inner), math.prod(grid[d] for d in inner) * min(rows, grid[cut])
    if len(inner) < len(how) and of_rows >= _SPLIT_FROM:
        args, dims = (source, inner), tuple(n for d, n in enumerate(grid) if d not in inner)
        rest = tuple(d for d in how if d not in inner)
    elif cut in how and of_blocks >= _SPLIT_FROM and known(target).row:
        args = (source, (cut, *inner), True)
        dims = tuple(1 if d in inner else -(-n // rows) if d == cut else n for d, n in enumerate(grid))
        rest = how
    else:
        return
    with graph.inserting_before(node):
        first = graph.call_function(target, args)
    # An instruction describes its result only: a sum that an init value is still added to stands in front of it.
    first.meta.update(node.meta, array=(dims, _called(node, _one_element).dtype), partial=rest is how)
    node.args = (first, rest)


def _put_ends_last(graph: Graph) -> None:
    """Put numbers behind all else that are for results alone, and that small arrays are reduced to: a loss stands before its
    gradient, and no chain of the gradient is to end where the loss reads it."""
    writes = Writes(graph)
    over = frozenset[Node]().union(*map(writes.over, graph.nodes))
    known = {node: math.prod(dims) for node in graph.nodes if (dims := array_of(node)) is not None}
    most = max(known.values(), default=0)

    def is_small(node: Node) -> bool:
        return node in known and known[node] * _SPLIT_FROM <= most

    anchor = next(iter(reversed(graph.nodes)))
    ends = {anchor}
    for node in reversed(list(graph.nodes)):
        is_any = is_elementwise(node) or _is_view(node) or _is_reduction(node) or _is_partial(node)
        is_number = is_any and known.get(node) == 1 and ends.issuperset(node.users)
        if is_number and all(map(is_small, node.all_input_nodes)) and over.isdisjoint(writes.reads(node)):
            anchor.prepend(node)
            anchor = node
            ends.add(node)


def _describe(graph: Graph) -> None:
    """Find dimensions and dtype of the intermediate calls inside op bodies, which no instruction describes."""
    least = _least()
    for node in graph.nodes:
        if node.target is torch.arange and type(node.args[0]) is int and len(node.args) == 1:
            node.meta.setdefault("array", ((node.args[0],), node.kwargs["dtype"]))
        if "array" in node.meta or not (is_elementwise(node) or _is_view(node)):
            continue
        inputs = [i.meta.get("array") for i in node.all_input_nodes]
        if None in inputs or (is_elementwise(node) and max((math.prod(i[0]) for i in inputs), default=0) < least):
            continue
        if _is_view(node) and _is_of_sizes(node):
            continue  # views of small arrays are described as well: that would tell sizes that stand for many
        result = _called(node, _meta_tensor if _is_view(node) else _empty_tensor)
        node.meta["array"] = (tuple(result.shape) if _is_view(node) else _broadcast([i[0] for i in inputs]), result.dtype)


def _called(node: Node, stand_in: Callable[[Node], torch.Tensor]) -> torch.Tensor:
    args, kwargs = map_arg((node.args, node.kwargs), stand_in)
    function: Any = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
    return function(*args, **kwargs)


def _meta_tensor(node: Node) -> torch.Tensor:
    dims, dtype = node.meta["array"]
    return torch.empty(dims, dtype=dtype, device="meta")


# For the dtype alone. On the meta device torch answers many functions in Python, sums too, and imports its compiler for it.


def _empty_tensor(node: Node) -> torch.Tensor:
    dims, dtype = node.meta["array"]
    return torch.ones((0,) * len(dims), dtype=dtype)


def _one_element(node: Node) -> torch.Tensor:
    """Of which there is a largest one."""
    dims, dtype = node.meta["array"]
    return torch.ones((1,) * len(dims), dtype=dtype)


def _broadcast(shapes: Sequence[Dims]) -> Dims:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(dims)) + tuple(dims) for dims in shapes]
    return tuple(next((n for n in ns if n != 1), 1) for ns in zip(*padded, strict=True))


def _find_chains(graph: Graph) -> list[Chain]:
    """Chains with at least two passes over large arrays, or with a fusion. A node joins its operand's chain, or a recent one,
    unless something outside has used a result of the chain before: the result would then be made long before it is used, and only
    by such a use can a way lead from the chain to the node, or to a chain that the node waits for. A chain ends where something
    writes over what it reads: it runs where its last node stands."""
    writes = Writes(graph)
    chain_of: dict[Node, Chain] = {}
    readers: dict[Node, set[Chain]] = {}
    chains: list[Chain] = []
    used: set[Chain] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        for memory in writes.over(node):
            used |= readers.pop(memory, set())
        grid = _large_grid(node)
        recent = [c for c in chains[-4:] if c.dims == grid and is_elementwise(node)]
        options = (*(chain_of[i] for i in inputs if i in chain_of), *recent)
        chain = next((c for c in options if c not in used and c.fits(node)), None)
        if chain is None and grid is not None and Chain(grid).fits(node):
            chain = Chain(grid)
            chains.append(chain)
        used.update(chain_of[i] for i in inputs if i in chain_of and chain_of[i] is not chain)
        if chain is not None:
            chain.add(node)
            chain_of[node] = chain
            for memory in writes.reads(node):
                readers.setdefault(memory, set()).add(chain)
    return [c for c in chains if c.inputs()["cut"] and ((is_native() and has_fusions(c.nodes))
            or (math.prod(c.dims) >= tuning.BLOCKED_FROM and sum(map(_passes, c.nodes)) > 1))]


def _passes(node: Node) -> int:
    """How often a call goes over a large array, as far as that matters: torch computes a logsumexp by calls of its own."""
    if _large_grid(node) is None or node.target in (torch.real, torch.imag):
        return 0
    return 1 + (node.target is torch.logsumexp)


def _large_grid(node: Node) -> Dims | None:
    """The dimensions of the large array that a node computes something for each element of; None where there is no such."""
    of = node if is_elementwise(node) else node.args[0] if _is_reduction(node) or _is_partial(node) else None
    dims = of.meta["array"][0] if isinstance(of, Node) and "array" in of.meta else ()
    return dims if math.prod(dims) >= _least() else None


def _least() -> int:
    """Elements from which chains are looked for: fewer where there is native code, which takes them at once."""
    return min(tuning.BLOCKED_FROM, tuning.FUSIONS_FROM) if is_native() else tuning.BLOCKED_FROM


def is_native() -> bool:
    """Whether there is native code in this process."""
    return is_available() and not math.isinf(tuning.NATIVE_AFTER)


def _extract(root: torch.nn.Module, graph: Graph, chain: Chain, name: str) -> None:
    copy_views(graph, chain.nodes, _is_view)
    chain.members = set(chain.nodes)
    members = chain.members
    inputs = chain.inputs()
    arrays, scalars = (*inputs["cut"], *inputs["kept"]), inputs["whole"]
    results = [n for n in chain.nodes if any(u not in members for u in n.users)]
    body = Graph()
    inside: dict[Node, Node] = {}
    for outer in (*arrays, *scalars):
        inside[outer] = body.placeholder(outer.name)
        inside[outer].meta["number"] = outer.meta.get("number", False)
        spread = _spread(root, outer)
        if spread:
            inside[outer].meta["spread"], inside[outer].meta["shown"] = spread, _shown(root, outer)
        if spread or not _is_expansion(outer):
            inside[outer].meta["array"] = outer.meta["array"]
        inside[outer].meta["given"] = outer.meta.get("array")
        inside[outer].meta["apart"] = not chain.needs_native and _is_slice(outer)
    targets = {n: body.placeholder(f"into_{n.name}") for n in results}
    for node in chain.nodes:
        inside[node] = body.node_copy(node, lambda n: inside[n])
        if _is_view(node):
            inside[node].args = _of_blocks(inside[node].args, chain.cut)
    outputs = body.output(tuple(inside[n] for n in results))
    inner = torch.nn.Module()
    native = chain.as_native(body)
    if native is None and chain.needs_native:
        return
    if is_native():
        form_fusions(inner, body)
    made: Any = outputs.args[0]
    body.erase_node(outputs)
    for node, result in zip(results, made, strict=True):
        _write_into(body, result, targets[node])
    body.output(())
    plan_memory(body, fresh_outputs=False, large=1)
    while hasattr(root, name):
        name += "_"
    root.add_module(name, LoweredModule(inner, body, "Block"))
    with graph.inserting_before(chain.nodes[-1]):
        module = graph.create_node("get_attr", name)
        specs = tuple(n.meta["array"] for n in results)
        cut = (chain.prefix, chain.rows)
        kept: dict[str, Any] = {"kept": len(inputs["kept"])} if inputs["kept"] else {}
        if is_one_fusion(body):
            kept["is_fusion"] = True
        call = graph.call_function(blocked, (module, cut, specs, arrays, tuple(scalars)), kept)
        if native is not None:
            root.add_module(f"{name}_native", native)
            call.target, call.args = products, (graph.create_node("get_attr", f"{name}_native"), *call.args)
        call.meta["inside"] = [n.meta["hlo"] for n in chain.nodes if "hlo" in n.meta]
        call.meta["owned"] = frozenset(range(len(results)))
        call.meta["may_overwrite"] = [_read_before(body, targets[n], [inside[a] for a in inputs["cut"]]) for n in results]
        for number, node in enumerate(results):
            part = graph.call_function(operator.getitem, (call, number))
            part.meta.update({k: v for k, v in node.meta.items() if k in ("hlo", "array")})
            node.replace_all_uses_with(part)
    for node in reversed(chain.nodes):
        graph.erase_node(node)


def _is_expansion(node: Node) -> bool:
    return node.op == "call_method" and node.target == EXPAND


def _is_slice(node: Node) -> bool:
    """Whether an array is part of another one, with whole stretches of its rows."""
    if node.target is not operator.getitem or not isinstance(node.args[1], tuple):
        return False
    last = node.args[1][-1]
    return isinstance(last, slice) and last.step in (None, 1)


def _spread(root: torch.nn.Module, node: Node) -> Role | None:
    """How an array shows fewer values than it has places: each row the same, each place of a row the same, or the same rows again
    and again (a mask that all members of a batch share)."""
    dims = _shown(root, node)
    if dims is None or len(dims) < 2:
        return None
    all_of: Dims = node.meta["array"][0]
    if dims == tuple(all_of):
        return None
    if dims[:-1] == all_of[:-1]:
        return "row"
    if all(n == 1 for n in dims[:-1]) and dims[-1] == all_of[-1]:
        return "column"
    first = next((k for k, n in enumerate(dims) if n != 1), len(dims))
    return "tail" if dims[first:] == all_of[first:] else None


def _shown(root: torch.nn.Module, node: Node) -> Dims | None:
    """The dimensions of what an array shows, 1 where it shows the same in all places; None where that is not known."""
    if "array" not in node.meta:
        return None
    rank = len(node.meta["array"][0])
    if node.op == "get_attr":
        tensor: torch.Tensor = getattr(root, str(node.target))
        return tuple(n if step else 1 for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    source: Any = node.args[0] if _is_expansion(node) else None
    if source is None or "array" not in source.meta:
        return None
    dims = source.meta["array"][0]
    return (*[1] * (rank - len(dims)), *dims)


def _of_blocks(args: Any, cut: int) -> tuple[Any, Any]:
    """A view's arguments where there are fewer places of the dimension `cut`."""
    source, sizes = args
    return source, sizes if isinstance(sizes, int) else [1 if d < cut else -1 if d == cut else n for d, n in enumerate(sizes)]


def _write_into(body: Graph, node: Node, target: Node) -> None:
    """Make a result of the block end in its target, without a copy where torch can write it there."""
    if is_fusion(node):
        write_into(node, target)
        return
    function = torch.matmul if is_product(node) else out_variant(node)
    if function is not None and isinstance(node.args[0], Node):
        node.target, node.kwargs = function, {**node.kwargs, "out": target}
    else:
        body.call_method("copy_", (target, node))


def _read_before(body: Graph, target: Node, inputs: list[Node]) -> list[int]:
    """The numbers of the inputs that the block has read when it writes into the target."""
    place = {node: number for number, node in enumerate(body.nodes)}
    written = min(place[user] for user in target.users)
    return [k for k, node in enumerate(inputs) if all(place[user] <= written for user in _readers(node))]


def _readers(node: Node) -> list[Node]:
    """What reads a node's memory, also through views."""
    return [reader for user in node.users for reader in ([user, *_readers(user)] if _is_view(user) else [user])]


def _cut(dims: Dims) -> tuple[int, int]:
    """The dimension to cut and the rows of a block: the first dimension that, with those before it, makes enough blocks."""
    wanted = max(2, math.prod(dims) // tuning.BLOCK)
    dimension = next((d for d in range(len(dims)) if math.prod(dims[:d + 1]) >= wanted), len(dims) - 1)
    return dimension, max(1, tuning.BLOCK // max(1, math.prod(dims[dimension + 1:])))
