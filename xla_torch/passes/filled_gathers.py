"""Gathers with a number where an index is out of bounds, as JAX spells them: a mask of the indices, and a selection after it.

The mask has an element for each index, but is spread over all that was gathered. One call reads the indices once, and writes each
element once (`kernels/gathers.py`). Where negative indices were made to count from the end before, it does that as well.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from ..kernels import gathers, indexing
from ..kernels.calls import RESHAPE, VIEWS
from ..kernels.reduction import all_of
from .patterns import arguments, array_of

_AND = (operator.and_, torch.bitwise_and, torch.logical_and)
_AT_LEAST, _AT_MOST = (operator.ge, torch.ge), (operator.le, torch.le)
_LESS, _ADD = (operator.lt, torch.lt), (operator.add, torch.add)
_IN_ORDER = VIEWS - {m.__name__ for m in (torch.Tensor.permute, torch.Tensor.t, torch.Tensor.transpose)}


def fill_gathers(graph: Graph) -> None:
    """Rewrite the graph in place; what nothing uses any more stays in it."""
    for node in list(graph.nodes):
        found = _filled(node)
        if found is not None:
            function, args = found
            with graph.inserting_before(node):
                call = graph.call_function(function, args)
            call.meta.update(node.meta)
            node.replace_all_uses_with(call)


def _filled(node: Node) -> tuple[Any, tuple[Any, ...]] | None:
    """The call that is the same as a selection."""
    mask, gathered, fill = arguments(node, (torch.where,), 3)
    if not (isinstance(mask, Node) and isinstance(gathered, Node) and isinstance(fill, (bool, int, float))):
        return None
    found = taken(gathered) if len(gathered.users) == 1 else None
    dims = array_of(node)
    if found is None or dims is None:
        return None
    operand, indices, dimension, is_along = found
    sizes = array_of(operand)
    around = (0, 0) if is_along or sizes is None else (dimension, len(sizes) - dimension - 1)
    if sizes is None or not _is_inside(mask, indices, sizes[dimension], dims, *around):
        return None
    call = gathers.gather_along_or_fill if is_along else gathers.take_or_fill
    given = _given(indices, sizes[dimension])
    if given is None:
        return call, (operand, indices, dimension, fill)
    return call, (operand, given, dimension, fill, True)


def _given(indices: Node, size: int) -> Node | None:
    """The indices before negative ones were made to count from the end of so many places, in the shape of these; None where they
    were not."""
    views = list[Node]()
    chosen: Any = indices
    while _is_view(chosen) and not any(isinstance(a, Node) for a in chosen.args[1:]):
        views.append(chosen)
        chosen = chosen.args[0]
    is_negative, moved, given = arguments(chosen, (torch.where,), 3)
    if not isinstance(given, Node) or given.meta.get("array") != chosen.meta.get("array"):
        return None
    if not (_is_call(is_negative, _LESS, given, 0) and _is_call(moved, _ADD, given, size)):
        return None
    for view in reversed(views):
        with given.graph.inserting_before(view):
            made = given.graph.call_method(str(view.target), (given, *view.args[1:]), dict(view.kwargs))
        made.meta.update(view.meta)
        given = made
    return given


def _is_call(node: Any, functions: tuple[Any, ...], first: Node, second: int) -> bool:
    left, right = arguments(node, functions, 2)
    return left is first and type(right) is int and right == second


def taken(node: Node) -> tuple[Node, Node, int, bool] | None:
    """Operand, indices and dimension of a gather of single slices, and whether it is one of elements, with indices for each."""
    if node.target is indexing.take:
        operand, indices, dimension = arguments(node, (indexing.take,), 3)
    elif node.target is indexing.gather:
        operand, indices = node.args
        sizes, points = map(array_of, (operand, indices))
        attributes: Any = node.kwargs
        dimension = None if sizes is None or points is None else gathers.dimension_along(sizes, points, **attributes)
    else:
        return None
    if not (isinstance(operand, Node) and isinstance(indices, Node) and isinstance(dimension, int)):
        return None
    return operand, indices, dimension, node.target is indexing.gather


def _is_inside(mask: Node, indices: Node, size: int, dims: tuple[int, ...], before: int, behind: int) -> bool:
    """Whether a mask of an array of `dims` says which indices are from 0 to `size` - 1, in whose place there are so many
    dimensions before and behind those of the indices."""
    views = []
    while _is_view(mask):
        views.append(mask)
        mask = mask.args[0]  # pyright: ignore[reportAssignmentType]
    both, _ = arguments(mask, (torch.all, all_of), 2)
    points, whole = array_of(mask), array_of(both)
    if points is None or whole is None or math.prod(whole) != math.prod(points) or points != dims[before:len(dims) - behind]:
        return False
    source, count = _in_order(indices, math.prod(points)), math.prod(points)
    bounds = [_bound(side, source, count) for side in arguments(both, _AND, 2)]
    if set(bounds) != {("from", 0), ("to", size - 1)} or _dtype(source) not in (torch.int32, torch.int64):
        return False
    return _shows(views[::-1], points, dims, before, behind)


def _is_view(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_method" and node.target in VIEWS


def _dtype(node: Node) -> torch.dtype | None:
    return node.meta.get("array", (None, None))[1]


def _bound(side: Any, source: Node, count: int) -> tuple[str, int] | None:
    """Which bound on what `source` shows one of both sides is."""
    for name, functions in (("from", _AT_LEAST), ("to", _AT_MOST)):
        asked, bound = arguments(side, functions, 2)
        if type(bound) is int and _in_order(asked, count) is source:
            return name, bound
    return None


def _in_order(node: Any, count: int) -> Node:
    """What a node shows one by one, in the same order."""
    while _is_view(node) and node.target in _IN_ORDER and (
            node.target != torch.Tensor.expand.__name__ or _is_of(node.args[1], count)):
        node = node.args[0]
    return node


def _is_of(sizes: Any, count: int) -> bool:
    known = isinstance(sizes, (tuple, list)) and all(type(n) is int and n >= 0 for n in sizes)
    return known and math.prod(sizes) == count


def _shows(views: list[Node], points: tuple[int, ...], dims: tuple[int, ...], before: int, behind: int) -> bool:
    """Whether these views bring an array of `points` to its place in `dims`."""
    base = torch.empty(points, device="meta")
    shown = base
    for view in views:
        # Of those that are no views of everything flatten is left out, and a reshape has to be one here.
        how: Any = view.args[1:]
        if any(isinstance(a, Node) for a in how) or view.kwargs or view.target == torch.Tensor.flatten.__name__:
            return False
        method = torch.Tensor.view if view.target == RESHAPE else getattr(torch.Tensor, str(view.target))
        try:
            shown = method(shown, *how)
        except RuntimeError:
            return False
    if len(shown.shape) > len(dims):
        return False
    wanted = base.reshape((1,) * before + points + (1,) * behind).expand(dims)
    shown = shown.expand(dims)
    return all(n == 1 or a == b for n, a, b in zip(dims, shown.stride(), wanted.stride(), strict=True))
