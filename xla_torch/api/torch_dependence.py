"""Which operators of an exported graph compute with arguments or random numbers, with all that is written into memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.fx

from ..storage import inline_regions, torch_private
from ..storage.torch_graphs import storage_key
from ..storage.value_reads import ASSERTIONS


def dependent(module: torch.fx.GraphModule, arguments: set[str], held: Mapping[str, Any]) -> Iterator[torch.fx.Node]:
    """The calls, in order, that compute with these arguments or with random numbers. `held` has the tensors that other
    placeholders are: some of them may share memory."""
    known = _Memory()
    shared: dict[int, torch.fx.Node] = {}
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            known.add(node)
            if node.name in arguments:
                known.varying.add(node)
            elif isinstance(value := held.get(node.name), torch.Tensor) and value.layout is torch.strided:
                known.join(node, shared.setdefault(storage_key(value), node))
    yield from known.calls(module)


class _Memory:
    """Which values may share memory, and which of them vary from call to call."""

    def __init__(self) -> None:
        self.varying: set[torch.fx.Node] = set()
        self._sharing: dict[torch.fx.Node, set[torch.fx.Node]] = {}

    def add(self, node: torch.fx.Node) -> None:
        self._sharing.setdefault(node, {node})

    def join(self, node: torch.fx.Node, other: torch.fx.Node) -> None:
        few, many = sorted((self._sharing[node], self._sharing[other]), key=len)
        if few is not many:
            many |= few
            self._sharing.update(dict.fromkeys(few, many))

    def calls(self, module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
        """The calls of a graph that compute with what varies, also those within the regions that it runs."""
        for node in module.graph.nodes:
            self.add(node)
            if inline_regions.is_region(node):
                yield from self._region(module, node)
            elif node.op == "call_function" and self._call(module, node):
                yield node

    def _call(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
        for other in _viewed(node):
            self.join(node, other)
        varies = _draws(module, node) or not self.varying.isdisjoint(node.all_input_nodes)
        if varies:
            self.varying.add(node)
            for written in _written(module, node):
                self.varying |= self._sharing[written]
        return varies

    def _region(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
        inner, given = inline_regions.parted(module, node)
        inputs = [one for one in inner.graph.nodes if one.op == "placeholder"]
        self._pass_on(zip(inputs, given, strict=True))
        yield from self.calls(inner)
        results = torch_private.pytree.tree_leaves(inner.graph.output_node().args)
        self._pass_on((node, one) for one in results)

    def _pass_on(self, pairs: Iterable[tuple[torch.fx.Node, Any]]) -> None:
        for to, given in pairs:
            if isinstance(given, torch.fx.Node):
                self.add(to)
                self.join(to, given)
                self.varying |= {to} if given in self.varying else set()


def _is_plain(target: Any) -> bool:
    """Whether a call computes numbers or takes one of several results."""
    return getattr(target, "__module__", None) in ("_operator", "math", "torch")


def _viewed(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The inputs whose memory a result may share. Of an operator that stands for others its schema does not always say it."""
    target: Any = node.target
    if not isinstance(target, torch_private.Operator):
        return node.all_input_nodes if target is operator.getitem or not _is_plain(target) else []
    if torch_private.is_composite(target):
        return node.all_input_nodes
    return _given(node, lambda one: one.alias_info is not None) if torch_private.is_view(target) else []


def _given(node: torch.fx.Node, is_wanted: Callable[[Any], bool]) -> list[torch.fx.Node]:
    """The inputs of an operator that are given for some of its arguments."""
    given = [node.args[k] if k < len(node.args) else node.kwargs.get(one.name)
             for k, one in enumerate(torch_private.arguments_of(node.target)) if is_wanted(one)]
    return [one for one in torch_private.pytree.tree_leaves(given) if isinstance(one, torch.fx.Node)]


def _written(module: torch.fx.GraphModule, node: torch.fx.Node) -> list[torch.fx.Node]:
    """The inputs that a call may write into."""
    target: Any = node.target
    if not isinstance(target, torch_private.Operator):
        inner = _inner(module, node)
        return node.all_input_nodes if any(_written(one, part) for one, part in inner) else []
    if target in ASSERTIONS or target is torch.ops.aten.detach_.default:  # no value changes, whatever the schema says
        return []
    return _given(node, lambda one: (one.alias_info is not None and one.alias_info.is_write) or (
        target in _NORMALIZATIONS and one.name.startswith("running_")))


_NORMALIZATIONS = (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default)
"""Operators that write into statistics, which their schema does not say."""


def _draws(module: torch.fx.GraphModule, node: torch.fx.Node) -> bool:
    """Whether a call draws random numbers."""
    target: Any = node.target
    if isinstance(target, torch_private.Operator):
        return torch.Tag.nondeterministic_seeded in target.tags
    return any(_draws(one, part) for one, part in _inner(module, node))


def _inner(module: torch.fx.GraphModule, node: torch.fx.Node) -> list[tuple[torch.fx.GraphModule, torch.fx.Node]]:
    """The calls of the graphs that a call runs, each with its module."""
    found = [getattr(module, str(given.target), None) for given in node.all_input_nodes if given.op == "get_attr"]
    return [(one, part) for one in found if isinstance(one, torch.fx.GraphModule) for part in one.graph.nodes
            if part.op == "call_function"]
