"""Where results are stored: buffers that die are written over, results that users get are theirs alone.

This runs on the finished torch.fx graph. Python frees a value after its last use (torch.fx prints ``x = None``); what is
left is to reuse large buffers, because on a CPU a fresh one costs as much as the arithmetic that fills it, and to let
dynamic-update-slice write into an operand that dies there, so that a loop does not copy its buffers each step.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.fx import Graph, Node

from ..core import tuning
from ..kernels import collective, indexing
from ..kernels.blocked import blocked
from ..kernels.calls import EXPAND, FRESH_METHODS, RESHAPE, VIEWS, known
from ..kernels.native_fusions import foreach
from .patterns import copied


def out_variant(node: Node) -> Callable[..., Any] | None:
    """What to call for the node's result to be written into ``out=``, or None where torch has no such call for its
    operands: some functions want tensors when they write elsewhere."""
    row = known(node.target)
    if row.out is None or row.numbers == "any":
        return row.out
    numbers = [not isinstance(a, Node) or a.meta.get("number", False) for a in node.args]
    return None if numbers[0] or (any(numbers) and row.numbers == "none") else row.out


_IN_PLACE: dict[Any, Callable[..., Any]] = {**indexing.IN_PLACE, **collective.IN_PLACE}
_BEGUN_IN_PLACE: dict[Any, Callable[..., Any]] = {**collective.BEGUN_IN_PLACE}
"""Calls that may write over their first operand, also where they are begun and awaited later."""

_WRITING = frozenset(_IN_PLACE.values()) | frozenset(_BEGUN_IN_PLACE.values())
"""Calls that do."""



class Writes:
    """Which calls of a graph write over memory that others read."""

    def __init__(self, graph: Graph):
        targets = [_written(node) for node in graph.nodes]
        self._over = {node: target for node, target in zip(graph.nodes, targets, strict=True) if target is not None}
        self._roots = _Storage(graph).roots if self._over else {}

    def over(self, node: Node) -> frozenset[Node]:
        """The nodes in whose memory the call writes; none for nearly every call."""
        return self._roots[self._over[node]] if node in self._over else frozenset()

    def reads(self, node: Node) -> frozenset[Node]:
        """The nodes in whose memory the operands of a call may lie."""
        return frozenset().union(*(self._roots.get(i, frozenset()) for i in node.all_input_nodes))


def _written(node: Node) -> Node | None:
    """The operand that a call writes over."""
    over = node.args[0] if node.target in _WRITING else node.kwargs.get("out")
    return over if isinstance(over, Node) else None


def plan_memory(graph: Graph, fresh_outputs: bool, large: int | None = None, overwrites: bool = True) -> None:
    """Rewrite the graph in place: overwrite operands that die (from `large` elements on, `tuning.LARGE` by default) if it
    `overwrites` any, copy results that are not the caller's alone."""
    storage = _Storage(graph)
    for node in list(graph.nodes):
        _drop_copy(node, storage)
        if overwrites:
            _overwrite_operand(node, storage, tuning.LARGE if large is None else large)
    if fresh_outputs:
        _separate_outputs(graph, storage)


class _Storage:
    """Which nodes may share memory: each node has the set of roots (memory it may live in), a root being a node."""

    def __init__(self, graph: Graph):
        self.place = {node: position for position, node in enumerate(graph.nodes)}
        self.roots: dict[Node, frozenset[Node]] = {}
        self.members: dict[Node, dict[Node, None]] = {}
        self.external: set[Node] = set()
        self._last: dict[Node, list[int]] = {}
        """The two last places at which each root is read, under whatever name."""
        self._modules: Node | None = None
        for node in graph.nodes:
            if node.op != "output":  # which would have all roots there are
                self.put(node, self._roots_of(node))

    def put(self, node: Node, roots: frozenset[Node]) -> None:
        self.roots[node] = roots
        places = [self.place[reader] for reader in node.users]
        for root in roots:
            self.members.setdefault(root, {})[node] = None
            self._last[root] = sorted({*self._last.get(root, ()), *places})[-2:]

    def move(self, node: Node, roots: frozenset[Node]) -> None:
        """`node`, and everything that lived in it, now lives in `roots`."""
        for member in self.members.pop(node, {}):
            self.put(member, (self.roots[member] - {node}) | roots)

    def _roots_of(self, node: Node) -> frozenset[Node]:
        if node.op in ("placeholder", "get_attr"):
            root = self._of_modules(node) if node.op == "get_attr" and "array" not in node.meta else node
            self.external.add(root)
            return frozenset({root})
        if self._is_fresh(node):
            return frozenset({node})
        inputs = node.all_input_nodes
        return frozenset().union(*(self.roots[i] for i in inputs)) if inputs else frozenset({node})

    def _of_modules(self, module: Node) -> Node:
        """One root for whatever modules hold, the first of them: each further one would stand in all that follows from it."""
        self._modules = self._modules or module
        return self._modules

    @staticmethod
    def _is_fresh(node: Node) -> bool:
        if node.op == "call_function":
            if node.target is operator.getitem and isinstance(node.args[0], Node):
                whole = node.args[0]
                owned = node.args[1] in whole.meta.get("owned", ())
                return owned or known(whole.target).memory == "parts"
            return known(node.target).memory in ("fresh", "ordered") and "out" not in node.kwargs
        return node.op == "call_method" and node.target in FRESH_METHODS

    def owned(self, node: Node) -> bool:
        """The node's memory was made in this graph, and it is one block that we know."""
        roots = self.roots[node]
        return len(roots) == 1 and not roots & self.external

    def dies_at(self, node: Node, user: Node, end: Node | None = None) -> bool:
        """No node that may share memory with `node` is used after `user`, or by `user` under another name. `end` only waits
        for what `user` began."""
        limit, roots = self.place[user], self.roots[node]
        waiting = None if end is None else self.place[end]
        if any(place > limit and place != waiting for root in roots for place in self._last[root]):
            return False
        inputs = user.all_input_nodes
        # A root may have as many names as the program has updates in place, and a call as many operands as it has arrays.
        if max((len(self.members[root]) for root in roots), default=0) < len(inputs):
            return not any(user in member.users for root in roots for member in self.members[root] if member is not node)
        return not any(other is not node and not roots.isdisjoint(self.roots[other]) for other in inputs)


def _overwrite_operand(node: Node, storage: _Storage, large: int) -> None:
    if node.op != "call_function" or "out" in node.kwargs:
        return
    if node.target is blocked:
        _overwrite_blocked(node, storage)
        return
    if node.target is foreach:
        _overwrite_foreach(node, storage)
        return
    if node.target in _BEGUN_IN_PLACE:
        _overwrite_begun(node, storage)
        return
    if node.target in _IN_PLACE:
        operand = node.args[0]
        if isinstance(operand, Node) and storage.owned(operand) and storage.dies_at(operand, node) and not _is_read_beside(
                operand, node, storage):
            node.target = _IN_PLACE[node.target]
            storage.move(node, storage.roots[operand])
        return
    array = node.meta.get("array")
    function = out_variant(node)
    if function is None or array is None or math.prod(array[0]) < large:
        return
    for operand in node.args:
        if isinstance(operand, Node) and operand.meta.get("array") == array and _is_dense(operand) \
                and storage.owned(operand) and storage.dies_at(operand, node):
            node.target = function
            node.kwargs = {**node.kwargs, "out": operand}
            storage.move(node, storage.roots[operand])
            return


def _is_read_beside(operand: Node, node: Node, storage: _Storage) -> bool:
    """Whether another argument of the node lies where its first one does: an update of a value by itself."""
    others: list[Node] = []
    torch.fx.map_arg((node.args[1:], node.kwargs), others.append)
    return any(storage.roots.get(other, frozenset()) & storage.roots[operand] for other in others)


def _overwrite_blocked(node: Node, storage: _Storage) -> None:
    """Results of a chain that runs block by block are written over arrays that die there, each over another one."""
    call: Any = node.args
    into = _overwritten(node, storage, call[3], call[2])
    if any(k is not None for k in into):
        node.kwargs = {**node.kwargs, "into": into}


def _overwrite_foreach(node: Node, storage: _Storage) -> None:
    """Results of a foreach likewise."""
    call: Any = node.args
    results = {part.args[1]: part.meta["array"] for part in node.users}
    into = _overwritten(node, storage, call[1], [results.get(k) for k in range(len(node.meta["may_overwrite"]))])
    if any(k is not None for k in into):
        node.kwargs = {**node.kwargs, "into": into}


def _overwritten(node: Node, storage: _Storage, arrays: Any, results: Any) -> tuple[int | None, ...]:
    """For each result of a call the number of the array that it is written over, if any."""
    parts = {part.args[1]: part for part in node.users}
    into: list[int | None] = []
    taken: set[int] = set()
    for number, (result, candidates) in enumerate(zip(results, node.meta["may_overwrite"], strict=True)):
        free = (k for k in candidates if k not in taken and arrays[k].meta.get("array") == result and _is_dense(arrays[k])
                and storage.owned(arrays[k]) and storage.dies_at(arrays[k], node))
        over = next(free, None)
        into.append(over)
        if over is None:
            continue
        taken.add(over)
        if number in parts:
            storage.move(parts[number], storage.roots[arrays[over]])
    return tuple(into)


def _overwrite_begun(node: Node, storage: _Storage) -> None:
    """An exchange that is begun here and awaited by its only user may store its result in an operand that dies here."""
    operand, end = node.args[0], next(iter(node.users), None)
    if isinstance(operand, Node) and end is not None and storage.owned(operand) and storage.dies_at(operand, node, end):
        node.target = _BEGUN_IN_PLACE[node.target]
        storage.move(end, storage.roots[operand])


_RESIZED = VIEWS - {EXPAND, *(m.__name__ for m in (torch.Tensor.permute, torch.Tensor.t, torch.Tensor.transpose))}
"""What gives an array other sizes, with its elements in their order."""


def _is_dense(node: Node) -> bool:
    """Not an expanded view. Elementwise results and fresh ones are dense, and such in other sizes; of other views we do not
    know."""
    while node.op == "call_method" and node.target in _RESIZED and isinstance(node.args[0], Node):
        node = node.args[0]
    return _Storage._is_fresh(node) or (node.op == "call_function" and "out" in node.kwargs)


def _drop_copy(node: Node, storage: _Storage) -> None:
    """A defensive copy of a value that is ours and dies here is no copy at all."""
    if node.op != "call_function" or node.target is not torch.clone:
        return
    source = node.args[0]
    if isinstance(source, Node) and _is_dense(source) and storage.owned(source) and storage.dies_at(source, node):
        storage.move(node, storage.roots[source])
        node.replace_all_uses_with(source)
        node.graph.erase_node(node)


def _separate_outputs(graph: Graph, storage: _Storage) -> None:
    """Give each result memory of its own: a copy where it may share some with an input, a constant or another result. What is a
    part of an array that is made here is copied as soon as nothing else reads that, which then is free while the rest runs."""
    output = next(iter(reversed(graph.nodes)))
    results: list[Any] = []
    given: set[Node] = set()
    for value in output.args[0]:  # pyright: ignore[reportGeneralTypeIssues, reportOptionalIterable]
        if isinstance(value, Node):
            roots = storage.roots[value]
            is_shared = not (roots.isdisjoint(storage.external) and roots.isdisjoint(given))
            larger = _larger_arrays(value, storage)
            given |= set() if is_shared else roots
            if is_shared and not larger and _is_reshaped(value):
                _copy_before_reshape(graph, value)
            elif is_shared or larger:
                with graph.inserting_after(_last_reader(value, larger, storage)) if larger else graph.inserting_before(output):
                    value = copied(graph, value)
            elif not _is_dense(value) or known(value.target).memory == "ordered":
                with graph.inserting_before(output):
                    value = graph.call_method("contiguous", (value,))
        results.append(value)
    output.args = (tuple(results),)


def _is_reshaped(value: Node) -> bool:
    """Whether a result is another array in another shape, for nobody else."""
    return value.op == "call_method" and value.target == RESHAPE and isinstance(value.args[0], Node) and len(value.users) == 1


def _copy_before_reshape(graph: Graph, value: Node) -> None:
    """Copy what is reshaped: to reshape what repeats itself is a copy already, and behind it would come another one."""
    with graph.inserting_before(value):
        value.args = (copied(graph, value.args[0]), *value.args[1:])


def _larger_arrays(value: Node, storage: _Storage) -> list[Node]:
    """The larger arrays made here of which a result may be a view, which would keep them."""
    own = _count(value)
    if own is None or value in storage.roots[value]:
        return []
    return [root for root in storage.roots[value] - storage.external if (_count(root) or 0) >= max(tuning.LARGE, own + 1)]


def _count(node: Node) -> int | None:
    """How many elements an array has, if that is known."""
    array = node.meta.get("array")
    return math.prod(array[0]) if array is not None and all(isinstance(n, int) for n in array[0]) else None


def _last_reader(value: Node, roots: list[Node], storage: _Storage) -> Node:
    """The last call that reads memory in these arrays, before the results are returned."""
    readers = [reader for root in roots for member in storage.members[root] for reader in member.users]
    return max([value, *(r for r in readers if r in storage.place and r.op != "output")], key=storage.place.__getitem__)


# ------------------------------------------------------------------------------------------------ loop bodies

def overwrite_carries(graph: Graph, first: int, count: int) -> set[int]:
    """Loop bodies: let dynamic-update-slice, scatter and additions write into a carried buffer that leaves the body as the
    same carry.

    Carries are the inputs from number `first` on. Returns the carries that are overwritten.
    """
    storage = _Storage(graph)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"][first:first + count]
    output = next(iter(reversed(graph.nodes)))
    results = list(output.args[0])  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    holders = Counter(root for r in results if isinstance(r, Node) for root in storage.roots[r])
    overwritten: set[int] = set()
    writes: list[tuple[Node, Node]] = []
    for slot, (carry, result) in enumerate(zip(placeholders, results, strict=True)):
        chain = _update_chain(result, carry)
        # Where another carry leaves the body in the same memory, the next step would write over what it reads.
        if not chain or any(holders[node] > (node in storage.roots[result]) for node in {carry, *chain}):
            continue
        link_before = [carry, *chain[:-1]]
        if all(storage.dies_at(before, link) for before, link in zip(link_before, chain, strict=True)):
            writes += zip(link_before, chain, strict=True)
            overwritten.add(slot)
    changing = {placeholders[slot] for slot in overwritten}
    for before, link in writes:
        _write_over(link, before, lambda node: not storage.roots[node] & changing)
    return overwritten


def _update_chain(result: Any, carry: Node) -> list[Node]:
    """The updates that lead from a carry to its result, first one first; empty if there is no such way."""
    if not isinstance(result, Node) or result is carry or result.op != "call_function":
        return []
    if result.target in indexing.IN_PLACE:
        sources = result.args[:1]
    else:
        sources = result.args if _accumulates(result, carry) else ()
    for source in sources:
        before = _update_chain(source, carry)
        if before or source is carry:
            return [*before, result]
    return []


def _accumulates(node: Node, carry: Node) -> bool:
    """Whether a node is a sum of large arrays of the carry's form."""
    array = carry.meta.get("array")
    return (node.target in (operator.add, torch.add) and not node.kwargs and array is not None
            and node.meta.get("array") == array and math.prod(array[0]) >= tuning.ACCUMULATED_FROM)


def _write_over(link: Node, before: Node, is_constant: Callable[[Node], bool]) -> None:
    """Let an update, or a sum, write into its operand `before`; a product is added as it is computed, where its factors
    still are what they were (`is_constant`)."""
    if link.target in indexing.IN_PLACE:
        link.target = indexing.IN_PLACE[link.target]
        return
    other = link.args[1] if link.args[0] is before else link.args[0]
    factors = _factors(other)
    if factors is None or not all(map(is_constant, factors)):
        link.target, link.kwargs = torch.add, {"out": before}
    else:
        link.target, link.args, link.kwargs = torch.addmm, (before, *factors), {"out": before}
        _erase_unused(other)


def _factors(node: Any) -> tuple[Node, Node] | None:
    """The matrices whose product a node is, where it is used once."""
    if not isinstance(node, Node) or node.target is not operator.matmul or len(node.users) != 1:
        return None
    dims, dtype = node.meta.get("array", ((), None))
    left, right = node.args
    if len(dims) != 2 or dtype not in (torch.float32, torch.float64) or not (_is_matrix(left) and _is_matrix(right)):
        return None
    return left, right  # pyright: ignore[reportReturnType]


def _erase_unused(node: Any) -> None:
    """Erase a call, and then those of its operands, that nothing uses any more."""
    if isinstance(node, Node) and not node.users and node.op in ("call_function", "call_method"):
        operands = node.all_input_nodes
        node.graph.erase_node(node)
        for operand in operands:
            _erase_unused(operand)


def _is_matrix(node: Any) -> bool:
    return isinstance(node, Node) and (len(node.meta.get("array", ((),))[0]) == 2 or (
        node.op == "call_method" and node.target == "t"))
