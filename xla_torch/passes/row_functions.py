"""Functions of rows that torch has whole: softmax, its logarithm, layer norm, the logarithm of a sum of exponentials. They are
found by what a program computes.

A row of `ROWS` looks at the last call of a spelling, and says which call of torch is the same on the whole array. Between the
calls stand views, which bring a number for each row (a maximum, a sum, a mean) back to the row. A spelling whose intermediate
results are used elsewhere stays as it is: they have to be computed then, and blocks do that in one pass.

Torch's functions sum in another order, and nothing else differs: rows of infinities and NaN come out as they do spelled out. So a
variance as the mean of squares less the square of the mean is no layer norm: it loses digits, and may be negative. Sizes
that stand for many are compared by what they are, so that a program for many sizes has the calls of a program for one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from ..core import tuning
from ..core.sizes import unnamed
from ..kernels.calls import EXPAND, RESHAPE, ROW_VIEWS

Dims = tuple[int, ...]
Call = tuple[Callable[..., Any], tuple[Any, ...]]

_DTYPES = (torch.float32, torch.float64)
_ADD, _SUBTRACT = (operator.add, torch.add), (operator.sub, torch.sub)
_MULTIPLY, _DIVIDE = (operator.mul, torch.mul), (operator.truediv, torch.div)


def use_row_functions(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place; what nothing uses any more stays in it."""
    called = {node.target for node in graph.nodes}
    rows = [row for name, row in ROWS.items() if tuning.ROW_FUNCTIONS and called & NEEDED[name]]
    if not rows:
        return
    for node in reversed(list(graph.nodes)):
        if node.users and _is_of_rows(node):
            for row in rows:
                spelling = Spelling(root, node)
                found = row(spelling, node)
                if found is not None and spelling.is_closed():
                    _replace(graph, node, found)
                    break


def _is_of_rows(node: Node) -> bool:
    dims, dtype = node.meta.get("array", ((), None))
    return node.op == "call_function" and dtype in _DTYPES and len(dims) > 0


def _replace(graph: Graph, node: Node, found: Call) -> None:
    function, args = found
    with graph.inserting_before(node):
        whole = graph.call_function(function, tuple(a(graph) if isinstance(a, _Flat) else a for a in args))
    whole.meta.update(node.meta)
    node.replace_all_uses_with(whole)


class _Flat:
    """An array of one dimension beside size-1 ones, to be handed over with that dimension alone."""

    def __init__(self, node: Node, size: int):
        self.node, self.size = node, size

    def __call__(self, graph: Graph) -> Node:
        node: Any = self.node
        while _is_view(node) and isinstance(node.args[0], Node) and _same(_count(node.args[0]), self.size):
            node = node.args[0]
        return node if len(_dims_of(node) or ()) == 1 else graph.call_method(RESHAPE, (node, (self.size,)))


class Spelling:
    """What the comparison of a node with a spelling has come by. Each question returns None, or False, where the answer is no."""

    def __init__(self, root: torch.nn.Module, last: Node):
        self._root, self._last = root, last
        self._seen: set[Node] = set()
        self.dims: Dims = last.meta["array"][0]
        self.rows, self.size = self.dims[:-1], self.dims[-1]

    def is_closed(self) -> bool:
        """Whether nothing else uses what stands between the operands and the last call."""
        inside = {*self._seen, self._last}
        return all(user in inside for node in self._seen - {self._last} for user in node.users)

    def call(self, node: Any, functions: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments of a call of one of these functions."""
        if not isinstance(node, Node) or node.op != "call_function" or node.target not in functions or node.kwargs:
            return None
        self._seen.add(node)
        return node.args

    def each_row(self, node: Any) -> Node | None:
        """The array of a number for each row, that is brought back to the rows by views alone."""
        if not isinstance(node, Node):
            return None
        dims = _dims_of(node)
        if _same(dims, self.dims) and _is_view(node, EXPAND) and not _same(self.size, 1):
            self._seen.add(node)
            node = node.args[0]  # pyright: ignore[reportAssignmentType]
            dims = _dims_of(node)
        if not _same(dims, (*self.rows, 1)) and (dims != () or self.rows):
            return None
        return self.numbers(node)

    def numbers(self, node: Any, rows: Dims | None = None) -> Node | None:
        """An array with a number for each row, behind views that leave their order."""
        count = math.prod(self.rows if rows is None else rows)
        while isinstance(node, Node) and _is_view(node):
            if not _same(_count(node), count):
                return None
            self._seen.add(node)
            node = node.args[0]
        # What no instruction describes stands within the body of one, and has as many.
        return node if isinstance(node, Node) and (_dims_of(node) is None or _same(_count(node), count)) else None

    def spread(self, node: Any, dims: Dims, kept: Dims) -> Node | None:
        """The numbers, of dimensions `kept` beside an array of `dims`, that are brought back to it by views alone."""
        if isinstance(node, Node) and _is_view(node, EXPAND) and _same(_dims_of(node), dims) and not _same(dims, kept):
            self._seen.add(node)
            node = node.args[0]
        shown = _dims_of(node) if isinstance(node, Node) else None
        if shown is None or not _same((*[1] * (len(kept) - len(shown)), *shown), kept):
            return None
        return self.numbers(node, kept)

    def is_finite_maximum(self, node: Node, x: Node, dims: Any, rows: Dims) -> bool:
        """Whether these are the largest numbers of `x` along dimensions, 0 in place of infinities and NaN."""
        chosen = self.call(node, (torch.where,))
        if not chosen or isinstance(chosen[2], Node) or chosen[2] != 0 or not isinstance(chosen[1], Node):
            return False
        asked = self.call(chosen[0], (torch.isfinite,))
        largest = self.numbers(chosen[1], rows)
        found = self.call(self.numbers(self.without_lowest(largest), rows), (torch.amax,))
        same = asked and self.numbers(asked[0], rows) is largest
        return bool(same and found and len(found) == 2 and found[0] is x and found[1] == dims)

    def columns(self, node: Any) -> _Flat | None:
        """An array that is the same for all rows."""
        if isinstance(node, Node) and _same(_dims_of(node), self.dims) and _is_view(node, EXPAND) and self.rows:
            self._seen.add(node)
            node = node.args[0]
        dims = _dims_of(node) if isinstance(node, Node) else None
        if not dims or len(dims) > len(self.dims) or not (_same(dims[-1], self.size) and _same(math.prod(dims), self.size)):
            return None
        return _Flat(node, self.size)

    def beside_columns(self, node: Any, functions: tuple[Any, ...]) -> tuple[Any, _Flat | None]:
        """What stands in a call of one of these functions beside an array that is the same for all rows, and that array."""
        left, right = self.call(node, functions) or (None, None)
        for operand, other in ((left, right), (right, left)):
            flat = self.columns(other)
            if flat is not None and isinstance(operand, Node) and _same(_dims_of(operand), self.dims):
                return operand, flat
        return None, None

    def reduction(self, node: Any, function: Any) -> Node | None:
        """The array whose rows are reduced to the numbers."""
        found = self.numbers(node)
        args = self.call(found, (function,))
        if not args or len(args) != 2 or not isinstance(args[0], Node) or not _same(_dims_of(args[0]), self.dims):
            return None
        return args[0] if args[1] in ((len(self.dims) - 1,), len(self.dims) - 1) else None

    def is_lowest(self, value: Any) -> bool:
        """Whether a value is minus infinity, everywhere."""
        if isinstance(value, Node) and value.op == "get_attr":
            value = getattr(self._root, str(value.target), None)
        return bool((value == -math.inf).all()) if isinstance(value, torch.Tensor) else value == -math.inf

    def less_maximum(self, node: Any) -> Node | None:
        """`x` of ``x - max(x)``."""
        args = self.call(node, _SUBTRACT)
        numbers = self.each_row(args[1]) if args else None
        if not args or numbers is None:
            return None
        return args[0] if self.reduction(self.without_lowest(numbers), torch.amax) is args[0] else None

    def without_lowest(self, numbers: Any) -> Any:
        """`x` of ``max(x, -inf)``; what is no such call itself."""
        raised = self.call(numbers, (torch.maximum, torch.clamp_min))
        if not raised:
            return numbers
        lowest = [a for a in raised if self.is_lowest(a)]
        return next((a for a in raised if not self.is_lowest(a)), None) if lowest else None

    def mean(self, node: Any) -> Node | None:
        """`x` of the numbers ``sum(x) / n``."""
        numbers = self.numbers(node)
        quotient, product = self.call(numbers, _DIVIDE), self.call(numbers, _MULTIPLY)
        if quotient and not isinstance(quotient[1], Node) and _same(quotient[1], self.size):
            return self.reduction(quotient[0], torch.sum)
        if product and type(self.size) is int and product[1] == 1 / max(self.size, 1):
            return self.reduction(product[0], torch.sum)
        return None

    def less_mean(self, node: Any) -> Node | None:
        """`x` of ``x - mean(x)``."""
        args = self.call(node, _SUBTRACT)
        numbers = self.each_row(args[1]) if args else None
        return args[0] if args and numbers is not None and self.mean(numbers) is args[0] else None

    def deviation(self, node: Any, function: Any) -> tuple[Node, float] | None:
        """`x` and `epsilon` of the numbers ``function(mean((x - mean(x))**2) + epsilon)``."""
        root = self.call(self.numbers(node), (function,))
        total = self.call(self.numbers(root[0]), _ADD) if root else None
        if not total or not isinstance(total[1], float) or total[1] < 0:
            return None
        factors = self.call(self.mean(total[0]), _MULTIPLY)
        if not factors:
            return None
        left, right = map(self.less_mean, factors)
        return (left, total[1]) if left is not None and left is right else None


def _same(left: Any, right: Any) -> bool:
    """Whether sizes or dimensions are the same, also where they stand for many: of these nothing is told by that."""
    return unnamed(left) == unnamed(right)


def _count(node: Node) -> Any:
    dims = _dims_of(node)
    return None if dims is None else math.prod(dims)


def _is_view(node: Node, *names: str) -> bool:
    return node.op == "call_method" and node.target in (names or ROW_VIEWS) and not node.kwargs


def _dims_of(node: Node) -> Dims | None:
    """The dimensions of a node, also of views that no instruction describes."""
    if "array" in node.meta:
        return tuple(node.meta["array"][0])
    if not _is_view(node) or len(node.args) != 2:
        return None
    source, how = node.args
    if isinstance(how, (tuple, list)):
        sizes: Any = tuple(how)
        return None if any(isinstance(n, Node) or (type(n) is int and n < 0) for n in sizes) else sizes
    before = _dims_of(source) if isinstance(source, Node) else None
    return None if before is None or not isinstance(how, int) or how < 0 else (*before[:how], 1, *before[how:])


# ------------------------------------------------------------------------------------------- the table


def softmax(s: Spelling, node: Node) -> Call | None:
    """``exp(x - max(x)) / sum(exp(x - max(x)))``"""
    parts = s.call(node, _DIVIDE)
    numbers = s.each_row(parts[1]) if parts else None
    if not parts or numbers is None or s.reduction(numbers, torch.sum) is not parts[0]:
        return None
    exponential = s.call(parts[0], (torch.exp,))
    x = s.less_maximum(exponential[0]) if exponential else None
    return None if x is None else (torch.softmax, (x, -1))


def log_softmax(s: Spelling, node: Node) -> Call | None:
    """``(x - max(x)) - log(sum(exp(x - max(x))))``"""
    parts = s.call(node, _SUBTRACT)
    numbers = s.each_row(parts[1]) if parts else None
    logarithm = s.call(numbers, (torch.log,)) if numbers is not None else None
    summed = s.reduction(logarithm[0], torch.sum) if logarithm else None
    exponential = s.call(summed, (torch.exp,))
    if not parts or not exponential or exponential[0] is not parts[0]:
        return None
    x = s.less_maximum(parts[0])
    return None if x is None else (torch.log_softmax, (x, -1))


def layer_norm(s: Spelling, node: Node) -> Call | None:
    """``(x - mean(x)) * rsqrt(mean((x - mean(x))**2) + epsilon) * scale + bias``, also without scale or bias."""
    inner, bias = s.beside_columns(node, _ADD)
    for value, offset in ((inner, bias), (node, None)):
        product, scale = s.beside_columns(value, _MULTIPLY)
        for centre, factor in ((product, scale), (value, None)):
            found = _normalised(s, centre)
            if found is not None:
                return torch.layer_norm, (found[0], (s.size,), factor, offset, found[1])
    return None


def _normalised(s: Spelling, node: Any) -> tuple[Node, float] | None:
    for functions, function in ((_MULTIPLY, torch.rsqrt), (_DIVIDE, torch.sqrt)):
        parts = s.call(node, functions)
        x = s.less_mean(parts[0]) if parts else None
        numbers = s.each_row(parts[1]) if parts and x is not None else None
        found = s.deviation(numbers, function) if numbers is not None else None
        if found is not None and found[0] is x:
            return found
    return None


def logsumexp(s: Spelling, node: Node) -> Call | None:
    """``log(sum(exp(x - m))) + m``, where m is ``max(x)``, or 0 where that is no finite number; along any dimensions."""
    parts = s.call(node, _ADD)
    for logarithm, peak in (parts, parts[::-1]) if parts else ():
        found = _of_exponentials(s, logarithm)
        if found is None:
            continue
        x, less, reduced = found
        dims = _dims_of(x) or ()
        kept = tuple(1 if d in reduced else n for d, n in enumerate(dims))
        m = s.spread(less, dims, kept)
        if m is None or s.numbers(peak, s.dims) is not m or not s.is_finite_maximum(m, x, reduced, s.dims):
            continue
        if _same(s.dims, tuple(n for d, n in enumerate(dims) if d not in reduced)):
            return torch.logsumexp, (x, reduced)
        return (torch.logsumexp, (x, reduced, True)) if _same(s.dims, kept) else None
    return None


def _of_exponentials(s: Spelling, node: Any) -> tuple[Node, Any, Dims] | None:
    """`x`, `m` and the dimensions of ``log(sum(exp(x - m)))``, perhaps of the sum's absolute value."""
    logarithm = s.call(node, (torch.log,))
    total = s.numbers(logarithm[0], s.dims) if logarithm else None
    absolute = s.call(total, (torch.abs,))
    summed = s.call(s.numbers(absolute[0], s.dims) if absolute else total, (torch.sum,))
    exponential = s.call(summed[0], (torch.exp,)) if summed and len(summed) == 2 else None
    difference = s.call(exponential[0], _SUBTRACT) if exponential else None
    if not (summed and exponential and difference and isinstance(difference[0], Node) and isinstance(summed[1], tuple)):
        return None
    same = _same(_dims_of(difference[0]), _dims_of(exponential[0])) and min(summed[1], default=-1) >= 0
    return (difference[0], difference[1], summed[1]) if same else None


ROWS: dict[str, Callable[[Spelling, Node], Call | None]] = {
    "softmax": softmax, "log_softmax": log_softmax, "layer_norm": layer_norm, "logsumexp": logsumexp}
"""What torch has whole, by its name there."""

NEEDED: dict[str, set[Any]] = {"softmax": {torch.exp}, "log_softmax": {torch.exp}, "layer_norm": {torch.rsqrt, torch.sqrt},
                               "logsumexp": {torch.isfinite}}
"""Functions of which each spelling has one: graphs without them are not searched."""
