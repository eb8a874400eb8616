"""The graph that autograd keeps of what was computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def autograd_nodes(results: Sequence[torch.Tensor]) -> list[Any]:
    """The nodes of autograd's graph that results come from."""
    waiting: list[Any] = [r.grad_fn for r in results]
    found: dict[Any, None] = {}
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = None
            waiting += [before for before, _ in node.next_functions]
    return list(found)
