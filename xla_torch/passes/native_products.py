"""Blocks of two products with one fusion between them as native code: found in the body of such a block."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from ..codegen.elements import number
from ..codegen.products import Mask, text
from ..core import tuning
from ..core.types import F32
from ..kernels.native_fusions import Role
from ..kernels.native_products import NativeProducts
from ..storage import torch_private
from .fusion_source import Source
from .native_fusions import fusions, inputs_of
from .patterns import arguments

_PRODUCTS = frozenset({operator.matmul, torch.matmul})
_SUBTRACT, _DIVIDE = frozenset({operator.sub, torch.sub}), frozenset({operator.truediv, torch.div})


def native_products(body: Graph) -> NativeProducts | None:
    """The native code of a block, where it is two products of float32 with one fusion between."""
    given, calls = body.find_nodes(op="placeholder"), [n for n in body.nodes if n.op in ("call_function", "call_method")]
    first, *between, last = calls
    if "sgemm" not in torch_private.blas() or not all(map(_is_float32_product, (first, last))):
        return None
    with _row_by_row(given, first.meta["array"][0]):
        return _native(body, given, first, between, last)


@contextlib.contextmanager
def _row_by_row(given: Sequence[Node], dims: tuple[int, ...]) -> Iterator[None]:
    """Within the block an array that spreads over dimensions before the last, as a mask of each example does, is one row to
    fusions: native products have its address for each row."""
    before = {node: dict(node.meta) for node in given}
    for node in given:
        own, dtype = node.meta.get("array", ((), None))
        spreads = len(own) == len(dims) and own != dims and all(n in (1, all_of) for n, all_of in zip(own, dims, strict=True))
        if spreads and "spread" not in node.meta:
            node.meta.update(array=(dims, dtype), spread="column" if own[-1] == dims[-1] else "row")
    yield
    for node, meta in before.items():
        node.meta = meta


def _native(body: Graph, given: Sequence[Node], first: Node, between: list[Node], last: Node) -> NativeProducts | None:
    of, groups = fusions(body.nodes)
    if groups != [between] or last.args[0] is not between[-1] or between[-1].meta["array"] != first.meta["array"]:
        return None
    inputs = inputs_of(of, between)
    dims, values = first.meta["array"][0], last.args[1]
    shown = all(map(_is_shown, inputs, repeat(len(dims))))
    if of.grid != dims or first not in inputs or not isinstance(values, Node) or not shown:
        return None
    chosen = _select_of_softmax(between)
    mask = None if chosen is None else _mask(chosen, inputs)
    most = [] if mask is None else [n for n in between if n.target is torch.amax]
    source = Source(of, between, inputs, [between[-1], *most], by_rows=True)
    operands: list[Any] = [*first.args, values, *(i for i in inputs if i is not first)]
    rows = min(dims[-2], max(_LEAST_ROWS, tuning.TILE // dims[-1]))
    widths = [i.meta["array"][1].itemsize if role in _HAVE_COLUMNS else 0 for i, role in inputs.items()]
    kept = source.kept_bytes + 4 * rows
    native = NativeProducts(text(source.functions("rows"), list(inputs).index(first), widths, kept, mask),
                            [given.index(o) for o in operands],
                            [w for i, w in zip(inputs, widths, strict=True) if i is not first],
                            dims, rows, kept)
    native.begin()
    return native


_LEAST_ROWS = 32
"""Rows of a tile at least: products of fewer take longer for each."""

_HAVE_COLUMNS: frozenset[Role] = frozenset({"whole", "tail", "column"})


def _is_shown(node: Node, rank: int) -> bool:
    """Whether an input is a tensor that spreads to the grid as torch's own calls spread it."""
    return not node.meta.get("number") and len(node.meta["array"][0]) in (0, rank)


def _is_float32_product(node: Node) -> bool:
    arrays = [n.meta.get("given") or n.meta.get("array") for n in (node, *node.all_input_nodes)]
    return node.target in _PRODUCTS and all(a is not None and a[1] is torch.float32 and math.prod(a[0]) > 0 for a in arrays)


def _select_of_softmax(nodes: list[Node]) -> Node | None:
    """`x` of ``exp(x - max(x)) / sum(exp(x - max(x)))``, the last of the nodes, if it is a select that nothing else reads."""
    quotient = nodes[-1]
    exponential, total = arguments(quotient, _DIVIDE, 2)
    difference, = arguments(exponential, {torch.exp}, 1)
    chosen, most = arguments(difference, _SUBTRACT, 2)
    if arguments(chosen, {torch.where}, 3) == (None, None, None):
        return None
    sums, largest = (arguments(_viewed(n), {f}, 2)[0] for n, f in ((total, torch.sum), (most, torch.amax)))
    closed = set(chosen.users) == {difference, _viewed(most)} and set(exponential.users) == {quotient, _viewed(total)}
    return chosen if sums is exponential and largest is chosen and closed else None


def _viewed(node: Any) -> Any:
    return node.args[0] if isinstance(node, Node) and node.op == "call_method" else node


_HIDES_FROM = -1e3
"""The number from which downwards what stands in hidden places is taken to hide them."""


def _mask(chosen: Node, inputs: dict[Node, Role]) -> Mask | None:
    """What a select hides by one number, where that is low enough to be worth a try."""
    condition, *others = chosen.args
    for hidden, instead in ((1, others[0]), (0, others[1])):
        if inputs.get(condition) in _HAVE_COLUMNS and isinstance(instead, float) and instead <= _HIDES_FROM:  # pyright: ignore
            return Mask(list(inputs).index(condition), hidden, number(np.float64(instead), F32))  # pyright: ignore
    return None
