"""Small exchanges of one kind become one: what they cost is that members wait for each other, and not what they move.

Each element is reduced, in the same order, or moved as before. HLO's exchanges of several operands are one for each until here.
"""

from __future__ import annotations

import bisect
import dataclasses
import inspect
import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from ..core import tuning
from ..distributed.reductions import Reduction
from ..kernels import collective
from .overlap import exchanges, fixed_places, places, size_of, source_of

_SIGNATURES = {kernel: inspect.signature(kernel) for kernel in (
    collective.all_gather, collective.all_reduce, collective.reduce_scatter)}


class _One:
    """An exchange that may be joined with others: its arguments by name, in how many shards it gives and takes, its bytes, and
    what must be equal to join it."""

    def __init__(self, node: Node, array: tuple[tuple[int, ...], torch.dtype]):
        self.node, (self.shape, self.dtype) = node, array
        self.arguments = _SIGNATURES[node.target].bind(*node.args).arguments  # pyright: ignore[reportArgumentType]
        self.dim: int = self.arguments.get("dim", 0)
        shards: int = self.arguments.get("shards", 1)
        self.given = shards if node.target is collective.reduce_scatter else 1
        self.taken = shards if node.target is collective.all_gather else 1
        self.elements = math.prod(self.shape) * self.given
        self.key = (node.target, self.dtype, *(self.arguments.get(n) for n in ("reducer", "shards", "groups", "mode", "narrow")))

    @property
    def size(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclasses.dataclass
class _Bucket:
    """Exchanges that become one: where its first member stands, the last of their operands, and the first use of any."""

    place: int
    operand: int
    use: int
    size: int
    members: list[_One]


def join_exchanges(graph: Graph) -> None:
    """Rewrite the graph in place: exchanges of one kind, group and element type, of `tuning.JOINED_BYTES` at most together,
    become one where none needs what another brings."""
    depths = _depths(graph)
    for depth in range(1 + max(depths.values(), default=-1)):  # those of what others bring come after these
        place, fixed, order = places(graph), fixed_places(graph), list(graph.nodes)
        made: list[_Bucket] = []
        last: dict[Any, _Bucket] = {}
        for node in exchanges(graph):
            one = _joinable(node) if depths.get(node) == depth else None
            if one is None:
                continue
            own = _Bucket(place[node], max(place[o] for o in node.all_input_nodes), min(place[u] for u in node.users), one.size,
                          [one])
            if one.key not in last or not _add(last[one.key], own, fixed):
                last[one.key] = own
                made.append(own)
        made = [bucket for bucket in made if len(bucket.members) > 1]
        gone = {one.node for bucket in made for one in bucket.members}
        for bucket in made:
            begin = max(bucket.place, bucket.operand + 1)  # earlier ones are begun when all are together
            _join(graph, bucket, place, next(node for node in order[begin:] if node not in gone))


def _depths(graph: Graph) -> dict[Node, int]:
    """For each exchange of how many others, one of the next one's result, its operands come directly."""
    found: dict[Node, int] = {}
    for node in exchanges(graph):
        found[node] = 1 + max((found.get(source_of(o), -1) for o in node.all_input_nodes), default=-1)
    return found


def _joinable(node: Node) -> _One | None:
    """An exchange that may be joined with others; None for other kinds, large ones, unread ones, and regions as reducers."""
    if node.target not in _SIGNATURES or size_of(node) is None or not node.users or not node.all_input_nodes:
        return None
    one = _One(node, node.meta["array"])
    named = isinstance(one.arguments.get("reducer", Reduction.ADD), Reduction)
    return one if named and 0 < one.size <= tuning.JOINED_BYTES else None


def _add(bucket: _Bucket, one: _Bucket, fixed: list[int]) -> bool:
    """Put an exchange with others where the data allow: all that they give is there before anything that they bring is used."""
    operand, use, size = max(bucket.operand, one.operand), min(bucket.use, one.use), bucket.size + one.size
    passed = bisect.bisect_left(fixed, one.place) - bisect.bisect_left(fixed, bucket.place)
    if size > tuning.JOINED_BYTES or operand >= use or passed:
        return False
    bucket.operand, bucket.use, bucket.size = operand, use, size
    bucket.members += one.members
    return True


def _join(graph: Graph, bucket: _Bucket, place: dict[Node, int], point: Node) -> None:
    """One exchange for all of a bucket, begun before a node at which all that it gives is there."""
    members, first = bucket.members, bucket.members[0]
    nodes = [one.node for one in members]
    used = min((user for node in nodes for user in node.users), key=place.__getitem__)
    dims, elements = tuple(one.dim for one in members), sum(one.elements for one in members)
    name, channel = first.arguments["site"]
    first.arguments["site"] = f"{name} and {len(members) - 1} more", channel
    if "dim" in first.arguments:
        first.arguments["dim"] = 0
    with graph.inserting_before(point):
        packed = graph.call_function(collective.joined, (tuple(node.args[0] for node in nodes), dims, first.given))
        first.arguments["operand"] = packed
        whole = graph.call_function(first.node.target, tuple(first.arguments.values()))  # pyright: ignore[reportArgumentType]
    with graph.inserting_before(used):
        parts = graph.call_function(collective.parted, (whole, tuple(one.shape for one in members), dims))
        for number, node in enumerate(nodes):
            part = graph.call_function(operator.getitem, (parts, number))
            part.meta.update(node.meta)
            node.replace_all_uses_with(part)
            graph.erase_node(node)
    packed.meta["array"] = ((first.given, elements // first.given // first.taken), first.dtype)
    whole.meta["array"] = ((first.taken, elements // first.given // first.taken), first.dtype)
    inside = [part.meta["hlo"] for part in parts.users if "hlo" in part.meta]
    for node in (packed, whole, parts):
        node.meta |= {"hlo": inside[0], "inside": inside} if inside else {}
