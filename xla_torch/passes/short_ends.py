"""Operands that have one value for each few elements, the same again and again: the mean of a group of channels, at each place.

Torch goes by the innermost dimension that it cannot join with others, and for a row of four elements that takes it as long as for
thirty. So such an operand is copied with its values as often as they are used there, which makes the innermost dimension longer.
"""

from __future__ import annotations

import math
from typing import cast

from torch.fx import Graph, Node

from ..core import tuning
from ..kernels.calls import EXPAND, known
from .patterns import array_of, copied

Dims = tuple[int, ...]

SHORT = 16
"""Elements up to which a row is short: a value for each 4 of 64 Ki elements is subtracted in 90 to 160 us, and in 11 once it is
there four times."""

FEWER = 8
"""How many times as many elements as the copy an array has at least."""


def spread_short_ends(graph: Graph) -> None:
    """Rewrite the described graph in place."""
    spread: dict[tuple[Node, Dims], Node] = {}
    for node in list(graph.nodes):
        if node.op == "call_function" and known(node.target).out and known(node.target).elementwise and _is_large(node):
            node.args = tuple([_spread(graph, node, a, spread) if isinstance(a, Node) else a for a in node.args])


def _is_large(node: Node) -> bool:
    dims = array_of(node)
    return dims is not None and math.prod(dims) >= tuning.FUSIONS_FROM


def _spread(graph: Graph, node: Node, operand: Node, spread: dict[tuple[Node, Dims], Node]) -> Node:
    """What a call reads in the place of an operand: itself, where that is not one of these."""
    is_expansion = operand.op == "call_method" and operand.target == EXPAND
    source, whole = cast(Node, operand.args[0]) if is_expansion else operand, cast(Dims, array_of(node))
    dims = _with_end(array_of(source) or (), whole)
    if dims is None or (is_expansion and array_of(operand) != whole):
        return operand
    if (source, dims) not in spread:
        with graph.inserting_after(source):
            shown = graph.call_method(EXPAND, (source, list(dims)))
        with graph.inserting_after(shown):
            copy = copied(graph, shown)
        shown.meta["array"] = copy.meta["array"] = (dims, source.meta["array"][1])
        spread[source, dims] = copy
    if not is_expansion:
        return spread[source, dims]
    with graph.inserting_before(node):
        result = graph.call_method(EXPAND, (spread[source, dims], list(whole)))
    result.meta.update(operand.meta)
    return result


def _with_end(dims: Dims, whole: Dims) -> Dims | None:
    """The dimensions of an operand with those of the end, along which it shows the same, as in the whole; None where that end is
    long or none, or the copy would be large."""
    end = next((k for k, n in enumerate(reversed(dims)) if n != 1), 0)
    if not end or not 1 < math.prod(whole[-end:]) <= SHORT:
        return None
    spread = (*dims[:-end], *whole[-end:])
    return spread if math.prod(spread) * FEWER <= math.prod(whole) else None
