"""Exchanges between participants run beside the computation: each is begun as early, and awaited as late, as the data allow.
Start and done of HLO's asynchronous forms are no more than that, so all forms are alike, blocking ones too.

All participants run one program, and exchanges are moved by the graph alone: their order stays the same for all. None passes
what others see, such as messages and draws, or what exchanges inside.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Collection, Iterator

from torch.fx import Graph, Node

from ..core import tuning
from ..hlo.inference import has_effect
from ..hlo.ir import Instruction, reachable
from ..hlo.schema import OPS
from ..kernels import collective
from ..opcodes.internal import custom_call


def overlap_exchanges(graph: Graph) -> None:
    """Rewrite the graph in place: what an exchange needs comes before what it does not, exchanges of what is there already are
    begun before they are needed, and those beside which something is computed become a begin and a wait."""
    if not exchanges(graph):
        return
    _needed_first(graph)
    _begin_early(graph)
    place = places(graph)
    for node in exchanges(graph):
        first = min(uses(node), key=place.__getitem__, default=None)
        if first is not None and any(_computes(between) for between in _between(node, first)):
            _split(graph, node, first)


# ------------------------------------------------------------------------------------------- what passes over exchanges ask


def places(graph: Graph) -> dict[Node, int]:
    """The place of each node in the graph."""
    return {node: place for place, node in enumerate(graph.nodes)}


def exchanges(graph: Graph) -> list[Node]:
    """The calls that exchange, in their order."""
    return [node for node in graph.nodes if node.op == "call_function" and node.target in collective.BEGINS]


def uses(node: Node) -> list[Node]:
    """What reads an exchange's result, or the parts of it where there are several."""
    return [user for user in node.users if not is_part(user)] + [u for p in node.users if is_part(p) for u in p.users]


def is_part(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def source_of(node: Node) -> Node:
    """What a node is a part of, if it is one, else the node itself."""
    return node.all_input_nodes[0] if is_part(node) else node


def fixed_places(graph: Graph) -> list[int]:
    """The places of nodes that no exchange may pass."""
    known: dict[Instruction, bool] = {}

    def is_fixed(node: Node) -> bool:
        instruction: Instruction | None = node.meta.get("hlo")
        if instruction is None or instruction.opcode not in OPS or instruction.schema.exchange:
            return False
        if instruction not in known:
            inside = (i for c in reachable(instruction.called_computations) for i in c.instructions)
            known[instruction] = _is_seen(instruction) or any(i.schema.exchange or _is_seen(i) for i in inside)
        return known[instruction]

    return [place for place, node in enumerate(graph.nodes) if is_fixed(node)]


def _is_seen(instruction: Instruction) -> bool:
    """Whether others may see when an instruction is carried out."""
    return instruction.opcode == custom_call or has_effect(instruction)


def size_of(node: Node) -> int | None:
    """The bytes of a node's array, None where that is not known."""
    array = node.meta.get("array")
    if array is None or not all(isinstance(n, int) for n in array[0]):
        return None
    return math.prod(array[0]) * array[1].itemsize


def _computes(node: Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module") and not is_part(node)


# ------------------------------------------------------------------------------------------- what exchanges need, first


def _needed_first(graph: Graph) -> None:
    """Between two exchanges, put what the second one does not need behind it, if that is awaited before a third: the product
    that is a weight's gradient then runs while the gradient of activations is summed. Nothing passes more than one exchange, so
    that no more is kept than one has between two of them."""
    nodes, place, fixed = list(graph.nodes), places(graph), fixed_places(graph)
    ends = [place[node] for node in exchanges(graph)]
    start = 0
    for number, end in enumerate(ends):
        node, following = nodes[end], ends[number + 1] if number + 1 < len(ends) else len(nodes)
        barrier = bisect.bisect_left(fixed, end)
        start = max(start, fixed[barrier - 1] + 1 if barrier else 0)
        if min((place[user] for user in uses(node)), default=following) < following:
            behind = node
            for other in _not_needed(nodes[start:end], node):
                behind.append(other)
                behind = other
        start = end + 1


def _not_needed(between: Collection[Node], node: Node) -> Iterator[Node]:
    """The calls among those between two exchanges that the second one does not need, in their order; none where it needs none,
    as it may be begun early then."""
    needed, waiting = set[Node](), list(node.all_input_nodes)
    inside = set(between)
    while waiting:
        current = waiting.pop()
        if current in inside and current not in needed:
            needed.add(current)
            waiting += current.all_input_nodes
    if any(_computes(one) and one.target is not collective.joined for one in needed):
        yield from (other for other in between if other not in needed and other.op not in ("placeholder", "get_attr"))


# ------------------------------------------------------------------------------------------- begun early


def _begin_early(graph: Graph) -> None:
    """Move exchanges up to behind their last operand, as long as what they will have brought before it is needed is within
    `_room` at each place. None passes one whose result is used earlier: exchanges are carried out in their order.
    """
    nodes, place, fixed = list(graph.nodes), places(graph), fixed_places(graph)
    inputs = max((place[node] for node in nodes if node.op == "placeholder"), default=-1) + 1
    ahead, moved, begun = _Ahead(_free_bytes(graph)), set[Node](), list[tuple[int, int]]()
    for node in exchanges(graph):
        moving = [*(operand for operand in node.all_input_nodes if operand.target is collective.joined), node]
        operands, size, here = moving[0].all_input_nodes, size_of(node), place[moving[0]]
        use = min((place[user] for user in uses(node)), default=len(nodes))
        to = here
        if size is not None and not any(map(_brings, operands)):  # it would wait for the other one
            barrier = bisect.bisect_left(fixed, here)
            before = (begin for begin, used in begun if used <= use)
            behind = (place[operand] + 1 for operand in operands)
            to = ahead.first(max([inputs, fixed[barrier - 1] + 1 if barrier else 0, *before, *behind]), here, size)
            while nodes[to] in moved:
                to += 1
        if size is not None and to < here:
            for one in moving:
                nodes[to].prepend(one)
            moved.update(moving)
            ahead.put(to, here, size)
        begun.append((to if to < here else here + len(moving), use))


def _free_bytes(graph: Graph) -> int:
    """How many bytes may be ahead: as many as the largest exchange brings that is within `tuning.AHEAD_BYTES`, so that the peak
    is that one above what it would be, however small the program's arrays are."""
    return max((n for n in map(size_of, exchanges(graph)) if n is not None and n <= tuning.AHEAD_BYTES), default=0)


def _brings(node: Node) -> bool:
    """Whether a node is an exchange's result, or a part of it."""
    source = source_of(node)
    return source.op == "call_function" and source.target in collective.BEGINS


class _Ahead:
    """What is brought before it is needed: from which place to which, and how many bytes. Ends are put in their order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[tuple[int, int, int]] = []

    def put(self, begin: int, end: int, size: int) -> None:
        self._held.append((begin, end, size))

    def first(self, low: int, end: int, size: int) -> int:
        """The first place from `low` on from which to the end so many bytes more may be held."""
        if size > self._most:
            return end
        free = self._most - size
        held = [one for one in self._held if one[1] > low]
        changes = [(e, bytes_) for _, e, bytes_ in held] + [(b, -bytes_) for b, _, bytes_ in held]
        total = 0
        for at, change in sorted(changes, key=lambda found: (-found[0], found[1])):  # backwards from the end
            total += change
            if total > free:
                return min(at, end)
        return low


# ------------------------------------------------------------------------------------------- awaited late


def _between(node: Node, end: Node) -> Iterator[Node]:
    current = node.next
    while current is not end:
        yield current
        current = current.next


def _split(graph: Graph, node: Node, first: Node) -> None:
    several = node.target is collective.all_to_all_tuple
    for part in [user for user in node.users if is_part(user)]:
        first.prepend(part)
    before = next((p for p in _between(node, first) if p in node.users), first)
    with graph.inserting_before(before):
        awaited = graph.call_function(collective.wait_all if several else collective.wait, (node,))
    awaited.meta.update(node.meta)
    node.meta.pop("array", None)
    node.replace_all_uses_with(awaited, delete_user_cb=lambda user: user is not awaited)
    node.target = collective.BEGINS[node.target]  # pyright: ignore[reportArgumentType]
