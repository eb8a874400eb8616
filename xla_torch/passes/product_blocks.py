"""Attention, and whatever is like it, block by block: a product much larger than its factors, made rows of another product.

Scores of queries and keys are made, scaled, masked, turned into shares by a softmax and multiplied with values. Where nothing
else reads them, none of that has to be there as a whole: each block of queries goes through all of it, in the order and with the
calls that the program has, so that results are what they are without blocks, masks and rows without keys included. Nothing here
knows attention: what counts is that a product is large, that what follows works row by row, and that a second product ends it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.fx import Graph, Node

from ..core import tuning
from ..kernels.calls import UNSQUEEZE, VIEWS
from ..kernels.native import can_fuse
from .blocking import Chain, Dims, Part, extract_chains, is_native, is_product
from .fusion_source import LEAST_ROW
from .memory import Writes
from .native_products import native_products

_LESS = 2
"""How many times smaller than their product its factors are."""

_ROW_FUNCTIONS = frozenset({torch.softmax, torch.log_softmax})


class _ProductChain(Chain):
    """A chain with products in it, whose right factors are given to each block with all their rows."""

    def takes(self, node: Node) -> bool:
        rank = len(node.meta["array"][0])
        if is_product(node):
            return self.cut <= rank - 2
        return super().takes(node) or (node.target in _ROW_FUNCTIONS and node.args[1:] == (-1,) and self.cut < rank - 1)

    def part(self, node: Node, operand: Node, dims: Dims) -> Part | None:
        if not is_product(node):
            return super().part(node, operand, dims)
        rank, (left, right) = len(node.meta["array"][0]), node.args
        if left is right:
            return None
        if operand is left:
            return super().part(node, operand, dims) if len(dims) == rank else None
        batch = self.prefix[:rank - 2]
        first = dims[:-2][:len(batch)]
        if all(n == 1 for n in first):
            return "whole"
        if len(dims) != rank or any(n not in (1, own) for n, own in zip(first, batch, strict=True)):
            return None
        return "kept" if self.cut == rank - 2 else "cut"

    def as_native(self, body: Graph) -> torch.nn.Module | None:
        return native_products(body) if is_native() else None


def block_products(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; sub-programs are registered on `root`."""
    nodes = list(graph.nodes)
    found: list[Chain] = []
    for place, node in enumerate(nodes):
        if is_product(node) and _is_large(node):
            chain = _up_to_a_product(nodes[place:])
            if chain is not None and not any(chain.members & other.members for other in found):
                chain = _opened(graph, chain)
                chain.needs_native = not _is_worth_blocks(node)
                found.append(chain)
    if found and not any(map(Writes(graph).over, nodes)):
        extract_chains(root, graph, found)


def _is_large(node: Node) -> bool:
    """Whether a product is large, and its factors much less so."""
    dims, left, right = _dims(node), *map(_dims, node.args)
    if dims is None or left is None or right is None or len(dims) < 2 or len(left) < 2 or len(right) < 2:
        return False
    if not all(type(n) is int for n in (*dims, *left, *right)) or _LESS * (math.prod(left) + math.prod(right)) > math.prod(dims):
        return False
    return _is_worth_blocks(node) or (is_native() and can_fuse() and math.prod(dims) >= tuning.NATIVE_PRODUCT_FROM)


def _is_worth_blocks(node: Node) -> bool:
    """Whether blocks of torch's calls gain by it, where the right factor of each is small."""
    right: Any = node.args[1]
    return (math.prod(node.meta["array"][0]) >= tuning.PRODUCT_BLOCKED_FROM
            and math.prod(right.meta["array"][0][-2:]) <= tuning.FACTOR_OF_BLOCKS)


def _up_to_a_product(nodes: list[Node]) -> Chain | None:
    """The chain from the first of these nodes, a product, to the next one, if nothing else reads what is in it."""
    chain = _ProductChain(nodes[0].meta["array"][0])
    for node in nodes:
        inside = [i for i in node.all_input_nodes if i in chain.members]
        if node is not nodes[0] and not inside:
            continue
        for operand in node.all_input_nodes:
            _dims(operand)
        if _dims(node) is None or not chain.fits(node):
            return None
        chain.add(node)
        if node is not nodes[0] and is_product(node):
            closed = all(user in chain.members for member in chain.nodes[:-1] for user in member.users)
            return chain if closed and node.args[0] in chain.members else None
    return None


def _opened(graph: Graph, chain: Chain) -> Chain:
    """The chain with its softmax written out where that becomes native code, one pass over its rows with what stands before."""
    if not is_native() or not can_fuse():
        return chain
    opened = _ProductChain(chain.dims)
    for node in chain.nodes:
        for one in _spelled(graph, node) if _is_fusible_softmax(node) else (node,):
            opened.add(one)
    return opened


def _is_fusible_softmax(node: Node) -> bool:
    dims, dtype = node.meta["array"]
    return node.target is torch.softmax and dtype is torch.float32 and dims[-1] >= LEAST_ROW


def _spelled(graph: Graph, node: Node) -> list[Node]:
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` in the place of a softmax."""
    (*rows, _), dtype = node.meta["array"]
    x, axis = node.args[0], (len(rows),)
    made: list[Node] = []

    def call(function: Any, *args: Any, dims: Dims = node.meta["array"][0]) -> Node:
        with graph.inserting_before(node):
            one = graph.call_method(function, args) if isinstance(function, str) else graph.call_function(function, args)
        one.meta.update(node.meta, array=(dims, dtype))
        made.append(one)
        return one

    def each_row(function: Any, of: Any) -> Node:
        return call(UNSQUEEZE, call(function, of, axis, dims=(*rows,)), len(rows), dims=(*rows, 1))

    exponential = call(torch.exp, call(torch.sub, x, each_row(torch.amax, x)))
    node.replace_all_uses_with(call(torch.div, exponential, each_row(torch.sum, exponential)))
    graph.erase_node(node)
    return made


def _dims(node: Any) -> Dims | None:
    """The dimensions of a node, which are noted on it if only its operands' were."""
    if not isinstance(node, Node):
        return None
    if "array" not in node.meta:
        if is_product(node):
            _describe_product(node)
        elif node.op == "call_method" and node.target in VIEWS and _dims(node.args[0]) is not None and not node.kwargs:
            _describe_view(node)
    return node.meta["array"][0] if "array" in node.meta else None


def _describe_product(node: Node) -> None:
    left, right = map(_dims, node.args)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return
    factor: Any = node.args[0]
    if not all(type(n) is int for n in (*left, *right)):  # sizes that stand for many
        return
    batch = np.broadcast_shapes(left[:-2], right[:-2])  # torch's own imports sympy, which takes 0.4 s
    node.meta["array"] = ((*batch, left[-2], right[-1]), factor.meta["array"][1])


def _describe_view(node: Node) -> None:
    source, *how = node.args
    dims, dtype = source.meta["array"]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    if all(type(n) is int for n in dims) and not any(isinstance(h, Node) for h in how):
        view = getattr(torch.empty(dims, dtype=dtype, device="meta"), str(node.target))(*how)
        node.meta["array"] = (tuple(view.shape), dtype)
