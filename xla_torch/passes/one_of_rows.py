"""One element of each row, taken or put there by an index, beside elementwise calls on whole rows: a label's logit, and what its
gradient adds to that of the others.

What is computed for whole rows and read at one place of each is computed of what stands at these places. What is put into rows of
one number is a selection by the place in the row: part of the fusion that reads it, where it would be an array.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ..core import tuning
from ..kernels import gathers, indexing
from ..kernels.calls import EXPAND, RESHAPE, known
from ..opcodes.reducer_kinds import ReducerKind
from .blocking import is_native
from .filled_gathers import taken
from .patterns import array_of, number_of
from .simplify import sizes_of

Dims = tuple[int, ...]

_ARITHMETIC = (operator.add, torch.add, operator.sub, torch.sub, operator.mul, torch.mul, operator.truediv, torch.div)
"""Whose result is NaN where an operand is."""
_DTYPES = (torch.float32, torch.float64)


def use_one_of_rows(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; what nothing uses any more stays in it."""
    for node in list(graph.nodes):
        if node.target in (indexing.gather, gathers.gather_along_or_fill):
            _take_before(graph, node)
        elif node.target is indexing.scatter and is_native():
            _select_place(root, graph, node)


# ------------------------------------------------------------------------------------------- taken


def _take_before(graph: Graph, node: Node) -> None:
    """Let a gather of one element of each row go before the arithmetic that made the rows."""
    if node.target is gathers.gather_along_or_fill:
        operand, along, fills = node.args[0], node.args[2], node.args[3] == node.args[3]
    else:
        found = taken(node)
        operand, along, fills = (found[0], found[2], not found[3]) if found else (None, 0, True)
    dims = array_of(operand)
    if fills or dims is None or not isinstance(along, int) or math.prod(dims) < tuning.FUSIONS_FROM:
        return
    one = tuple(1 if d == along else n for d, n in enumerate(dims))
    if array_of(node) == one and dims != one and _read_rows(operand, dims, one) is not None:
        with graph.inserting_before(node):
            node.replace_all_uses_with(_one_of(graph, node, operand, dims, one))


def _one_of(graph: Graph, node: Node, source: Any, dims: Dims, one: Dims) -> Node:
    """What the gather `node` would take from `source`."""
    read = _read_rows(source, dims, one)
    if read is None:
        made = graph.node_copy(node, lambda n: source if n is node.args[0] else n)
    else:
        given = {operand: operand.args[0] if _is_expansion(operand) else _one_of(graph, node, operand, dims, one)
                 for operand in source.all_input_nodes}
        made = graph.call_function(source.target, map_arg(source.args, given.__getitem__))
    made.meta.update(node.meta, array=(one, source.meta["array"][1]))
    return made


def _read_rows(source: Any, dims: Dims, one: Dims) -> Node | None:
    """The only whole array that arithmetic reads, beside numbers and values of each row; None of other calls."""
    if source.target not in _ARITHMETIC or source.kwargs or array_of(source) != dims:
        return None
    operands = source.all_input_nodes
    whole = [o for o in operands if not _is_expansion(o)]
    of_rows = all(_broadcasts(sizes_of(o.args[0]), one) for o in operands if _is_expansion(o))
    return whole[0] if of_rows and len(whole) == 1 and array_of(whole[0]) == dims else None


def _is_expansion(node: Node) -> bool:
    return node.op == "call_method" and node.target == EXPAND


def _broadcasts(dims: Dims | None, to: Dims) -> bool:
    return dims is not None and all(n in (1, m) for n, m in zip(reversed(dims), reversed(to), strict=False))


# ------------------------------------------------------------------------------------------- put


def _select_place(root: torch.nn.Module, graph: Graph, node: Node) -> None:
    """Put a selection in the place of a scatter of one element into each row of equal numbers, where fusions read it."""
    operand, indices, updates, combiner = node.args
    dims = array_of(node)
    number = number_of(root, operand) if dims is not None and _puts_one(node, dims) else None
    if dims is None or number is None or not _is_fused(node):
        return
    rows, dtype = (*dims[:-1], 1), indices.meta["array"][1]  # pyright: ignore
    places = torch.arange(dims[-1], dtype=dtype)
    with graph.inserting_before(node):
        at, put = (_reshaped(graph, value, rows) for value in (indices, updates))
        if combiner == ReducerKind.ADD:
            put = _call(graph, torch.add, (put, number), rows, node)
        is_there = _call(graph, torch.eq, (_constant(root, graph, places), at), dims, node, torch.bool)
        node.replace_all_uses_with(_call(graph, torch.where, (is_there, put, number), dims, node))


def _puts_one(node: Node, dims: Dims) -> bool:
    """Whether each row gets one update, at the place that its index says."""
    _, indices, updates, combiner = node.args
    others, last = tuple(range(len(dims) - 1)), len(dims) - 1
    expected = {"update_window_dims": (), "inserted_window_dims": (last,), "scatter_dims_to_operand_dims": (last,),
                "input_batching_dims": others, "scatter_indices_batching_dims": others}
    if combiner not in (ReducerKind.ADD, ReducerKind.SECOND) or not (isinstance(indices, Node) and isinstance(updates, Node)):
        return False
    given: dict[str, Any] = dict(node.kwargs)
    points, dtype = array_of(indices), node.meta["array"][1]
    return (points is not None and all(tuple(given.get(k, (None,))) == v for k, v in expected.items())
            and given["index_vector_dim"] >= last > 0 and points[:last] == dims[:-1] and all(n == 1 for n in points[last:])
            and indices.meta["array"][1] in (torch.int32, torch.int64) and dtype in _DTYPES
            and array_of(updates) is not None and updates.meta["array"][1] is dtype)


def _is_fused(node: Node) -> bool:
    """Whether fusions read the node, and nothing else does."""
    rows = list(map(known, (user.target for user in node.users)))
    is_large = math.prod(array_of(node) or ()) >= tuning.FUSIONS_FROM
    return is_large and any(row.elementwise for row in rows) and all(row.elementwise or row.row for row in rows)


def _constant(root: torch.nn.Module, graph: Graph, tensor: torch.Tensor) -> Node:
    name = "places"
    while hasattr(root, name):
        name += "_"
    root.register_buffer(name, tensor, persistent=False)
    node = graph.create_node("get_attr", name)
    node.meta["array"] = (tuple(tensor.shape), tensor.dtype)
    return node


def _reshaped(graph: Graph, node: Any, dims: Dims) -> Node:
    made = graph.call_method(RESHAPE, (node, dims))
    made.meta["array"] = (dims, node.meta["array"][1])
    return made


def _call(graph: Graph, function: Any, args: tuple[Any, ...], dims: Dims, of: Node, dtype: torch.dtype | None = None) -> Node:
    made = graph.call_function(function, args)
    made.meta.update(of.meta, array=(dims, dtype or of.meta["array"][1]))
    return made
