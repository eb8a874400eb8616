"""Fourier transforms that scale their results themselves.

XLA's inverse transforms divide by the number of elements, and a gradient of a transform multiplies by that number again. torch's
can leave both out.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from .patterns import arguments, array_of, number_of

_INVERSE = (torch.fft.ifftn, torch.fft.irfftn)
_MULTIPLY = (operator.mul, torch.mul)


def scale_transforms(root: torch.nn.Module, graph: Graph) -> None:
    """Rewrite the graph in place: an inverse transform times the number of its elements does not divide by it."""
    for node in list(graph.nodes):
        left, right = _factors(node)
        for transform, factor in ((left, right), (right, left)):
            count = _divides_by(transform)
            if count is not None and _number(root, factor) == count:
                transform.kwargs = {**transform.kwargs, "norm": "forward"}
                node.replace_all_uses_with(transform)


def _factors(node: Node) -> tuple[Any, ...]:
    is_method = node.op == "call_method" and node.target == torch.Tensor.mul.__name__ and len(node.args) == 2
    return node.args if is_method else arguments(node, _MULTIPLY, 2)


def _number(root: torch.nn.Module, factor: Any) -> complex | None:
    return factor if isinstance(factor, (int, float, complex)) else number_of(root, factor)


def _divides_by(node: Any) -> int | None:
    """How many elements an inverse transform is of, which nothing else reads."""
    dims = array_of(node)
    if dims is None or node.target not in _INVERSE or len(node.users) != 1 or "norm" in node.kwargs:
        return None
    return math.prod(dims[d] for d in node.kwargs["dim"])

